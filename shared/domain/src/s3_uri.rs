//! Objects of S3 as URIs: every key has exactly one, and every such URI has exactly one key. So the same
//! object is never watched as two entities, whichever way a person or an event wrote it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Longest key, in bytes: S3's own limit.
pub const S3_KEY_BYTES_MAX: usize = 1024;

const SCHEME: &str = "s3://";
/// What stands as it is: what RFC 3986 lets stand in a path. All else is escaped byte by byte, in upper case.
pub(crate) const IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// The one URI of the object `key` in `bucket`. The key is as S3 has it: nothing in it is escaped yet.
pub fn s3_uri(bucket: &str, key: &str) -> String {
    format!("{SCHEME}{bucket}/{}", utf8_percent_encode(key, IN_A_PATH))
}

/// The key that a notification of S3 names: there, a space is written as `+`, and all else is escaped.
pub fn decoded_key(written: &str) -> String {
    percent_decode_str(&written.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Bucket and key of a URI as [`s3_uri`] writes it; `None` for every other text.
pub fn s3_parts(uri: &str) -> Option<(String, String)> {
    let (bucket, key) = parts(uri).ok()?;
    (!key.is_empty() && s3_uri(&bucket, &key) == uri).then_some((bucket, key))
}

/// Is this written as the URI of an object or a prefix of S3?
pub fn is_s3(text: &str) -> bool {
    text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// `text`, as a person may write it, as [`s3_uri`] writes it: the URI of an object, or of a prefix or a whole
/// bucket. Dots and double slashes stay: they are part of a key.
pub fn s3_normal(text: &str) -> Result<String, String> {
    parts(text).map(|(bucket, key)| s3_uri(&bucket, &key))
}

fn parts(text: &str) -> Result<(String, String), String> {
    if !is_s3(text) {
        return Err("is not written as s3://bucket/key".into());
    }
    let rest = &text[SCHEME.len()..];
    let (bucket, written) = rest.split_once('/').unwrap_or((rest, ""));
    if !is_bucket(bucket) {
        return Err("names no bucket: 3 to 63 of a-z 0-9 . - without a user or a port".into());
    }
    if written.contains(['?', '#']) {
        return Err("has a ? or a #: written as %3F or %23 they are part of the key, and otherwise S3 has no use for them".into());
    }
    if !escapes_are_whole(written) {
        return Err("has a % that begins no escape: written as %25 it is part of the key".into());
    }
    let key = percent_decode_str(written).decode_utf8().map_err(|_| "has escapes that are no UTF-8, as all keys are".to_owned())?;
    if key.len() > S3_KEY_BYTES_MAX {
        return Err(format!("has a key of more than {S3_KEY_BYTES_MAX} bytes"));
    }
    Ok((bucket.to_owned(), key.into_owned()))
}

/// The rules for names of buckets, but for those that only AWS's own names break.
fn is_bucket(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.' || byte == b'-';
    let outer = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    (3..=63).contains(&bytes.len())
        && bytes.iter().copied().all(inner)
        && outer(bytes.first())
        && outer(bytes.last())
        && !text.contains("..")
        && text.parse::<std::net::Ipv4Addr>().is_err()
}

fn escapes_are_whole(text: &str) -> bool {
    let mut after = text.split('%');
    after.next();
    after.all(|rest| rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWKWARD: [&str; 22] = [
        "a.csv",
        "a b",
        " ",
        "a+b",
        "100%",
        "%41",
        "%2F",
        "q?x=1&y=2",
        "a#b",
        "/lead",
        "a//b",
        "folder/",
        "../up",
        "./here/.",
        "grüße/€.txt",
        "\u{1F30A}",
        "e\u{301}",
        "a\nb\t\u{7f}",
        "year=2026/month=11/{x}|[y]^`\"<>\\",
        "!$&'()*+,;=:@~",
        "user:pass@host",
        "data/s3://x/y",
    ];

    #[test]
    fn every_key_has_one_uri_and_comes_back_from_it() {
        let mut seen = std::collections::BTreeSet::new();
        for key in AWKWARD {
            let uri = s3_uri("tide-mark.data", key);
            assert_eq!(s3_parts(&uri), Some(("tide-mark.data".into(), key.into())), "{uri}");
            assert_eq!(s3_normal(&uri), Ok(uri.clone()), "the one form is a fixed point");
            assert!(uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}?#[]".contains(&byte)), "{uri} is a URI");
            assert!(seen.insert(uri), "{key:?} shares its URI");
        }
        for byte in 0..=0x7fu8 {
            let key = char::from(byte).to_string();
            assert_eq!(s3_parts(&s3_uri("abc", &key)), Some(("abc".into(), key)), "{byte}");
        }
        assert_eq!(s3_uri("abc", "a b+c%/ü?"), "s3://abc/a%20b+c%25/%C3%BC%3F");
    }

    #[test]
    fn whatever_a_person_writes_becomes_the_one_form() {
        for (written, normal) in [
            ("s3://abc/a b/ü.csv", "s3://abc/a%20b/%C3%BC.csv"),
            ("S3://abc/%41%2d%c3%bc", "s3://abc/A-%C3%BC"),
            ("s3://abc/a%2Fb", "s3://abc/a/b"),
            ("s3://abc", "s3://abc/"),
        ] {
            assert_eq!(s3_normal(written), Ok(normal.into()), "{written}");
            assert_eq!(s3_parts(written), None, "only the one form has parts: {written}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let (long, longest) = ("k".repeat(S3_KEY_BYTES_MAX + 1), "k".repeat(S3_KEY_BYTES_MAX));
        assert!(s3_normal(&format!("s3://abc/{longest}")).is_ok());
        for bad in [
            "https://abc/a",
            "s3:/abc/a",
            "s3:///a",
            "s3://ab/a",
            "s3://Abc/a",
            "s3://user@abc/a",
            "s3://abc:443/a",
            "s3://a..c/a",
            "s3://-abc/a",
            "s3://abc./a",
            "s3://10.0.0.1/a",
            "s3://äbc/a",
            "s3://abc/a?versionId=1",
            "s3://abc/a#f",
            "s3://abc/100%",
            "s3://abc/%g1",
            "s3://abc/%é",
            "s3://abc/%FF",
            "ä3://abc/a",
            &format!("s3://{}/a", "b".repeat(64)),
            &format!("s3://abc/{long}"),
        ] {
            assert!(s3_normal(bad).is_err(), "{bad}");
            assert_eq!(s3_parts(bad), None, "{bad}");
        }
        assert_eq!(s3_parts("s3://abc/"), None, "a whole bucket is no object");
    }

    #[test]
    fn keys_of_notifications_are_decoded_once() {
        assert_eq!(decoded_key("drops/a+file%2B%C3%BC%2525.csv"), "drops/a file+ü%25.csv");
    }
}
