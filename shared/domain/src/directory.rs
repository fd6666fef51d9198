//! Files below a watched folder of this machine, as URIs: every path below it has exactly one, and nothing else has any.

use percent_encoding::{percent_decode_str, utf8_percent_encode};

use crate::s3_uri::IN_A_PATH;

const SCHEME: &str = "file://";
/// Longest path: what Linux takes.
const PATH_BYTES_MAX: usize = 4095;

/// Is this written as the URI of a file?
pub fn is_file(text: &str) -> bool {
    text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// The one URI of a path; `None` if it is not absolute or not plain.
pub fn file_uri(path: &str) -> Option<String> {
    is_plain(path).then(|| format!("{SCHEME}{}", utf8_percent_encode(path, IN_A_PATH)))
}

/// The path of a URI as [`file_uri`] writes it, if it lies below `directory`.
pub fn path_below(directory: &str, uri: &str) -> Option<String> {
    let path = percent_decode_str(uri.strip_prefix(SCHEME)?).decode_utf8().ok()?;
    let rest = path.strip_prefix(directory)?.strip_prefix('/')?;
    (!rest.is_empty() && file_uri(&path).as_deref() == Some(uri)).then(|| path.into_owned())
}

/// Why `directory` cannot be watched, if it cannot.
pub(crate) fn directory_wrong(directory: &str) -> Option<&'static str> {
    match is_plain(directory) {
        true => None,
        false => Some("`directory` is an absolute path of a folder, without . or .. in it and without a / at its end"),
    }
}

/// Absolute, and written in the one way.
fn is_plain(path: &str) -> bool {
    let mut segments = path.split('/');
    path.starts_with('/')
        && segments.next() == Some("")
        && path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && segments.all(|segment| !segment.is_empty() && segment != "." && segment != "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn every_path_below_has_one_uri_and_nothing_else_has_any() {
        for path in ["/in/a.csv", "/in/a b/ü%41#?.csv", "/in/.hidden", "/in/...", "/in/a\nb"] {
            let uri = file_uri(path).unwrap();
            assert_eq!(path_below("/in", &uri).as_deref(), Some(path), "{uri}");
        }
        for bad in [
            "file:///in",
            "file:///in/",
            "file:///inside/a",
            "file:///in/../etc/passwd",
            "file:///in/%2e%2e/etc/passwd",
            "file:///in/a/./b",
            "file:///in//a",
            "file:///in/a%2Fb",
            "file:///in/%61",
            "file://host/in/a",
            "FILE:///in/a",
            "file:///in/a%00",
            "/in/a",
            "https://example.org/in/a",
        ] {
            assert_eq!(path_below("/in", bad), None, "{bad}");
        }
    }

    #[test]
    fn only_files_below_its_directory_belong_to_a_source() {
        let watching = |directory: &str| {
            let source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60);
            Source { url: None, poll: None, directory: Some(directory.into()), ..source }
        };
        let source = watching("/in").checked().unwrap();
        let (key, uri) = source.entity_at("file:///in/a%20b.csv").unwrap();
        assert_eq!((key.entity.as_str(), uri.as_str()), ("file:///in/a%20b.csv", "file:///in/a%20b.csv"));
        for outside in ["file:///etc/passwd", "file:///in/../etc/passwd", "https://example.org/a.json"] {
            assert_eq!(source.entity_at(outside).unwrap_err().code, "source.uri_outside", "{outside}");
        }
        for bad in ["in", "/in/", "/in/../etc", "", "/", "./in"] {
            assert!(watching(bad).checked().is_err(), "{bad}");
        }
        let mut both = watching("/in");
        both.url = Some("https://example.org/a.json".into());
        assert!(both.checked().unwrap_err().message.contains("`directory`"));
        let mut named = watching("/in");
        (named.directory, named.allow) = (None, vec!["file:///in/".into()]);
        assert!(named.checked().is_err(), "a file is watched through its directory only");
    }
}
