//! Secrets by reference. Where there is none, the request is refused (I10); none is ever repeated.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use tidemark_domain::Fault;
use tidemark_pipeline::ports::Secrets;

use crate::failure::blocking;

/// Largest secret (I14).
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Most files whose secrets are remembered.
const FILES_MAX: usize = 1000;

type Variable = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Secrets from the environment (`env:NAME`) and from files (`file:PATH`).
pub struct LocalSecrets {
    variable: Variable,
    /// What files held when they were last read, with the time of their last change.
    read: Mutex<HashMap<String, (SystemTime, String)>>,
}

impl LocalSecrets {
    /// `variable` looks up the environment, which only a main may read.
    pub fn new(variable: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { variable: Box::new(variable), read: Mutex::default() }
    }
}

impl Secrets for LocalSecrets {
    async fn secrets(&self, reference: &str) -> Result<Vec<String>, Fault> {
        self.secret(reference).await.map(|secret| vec![secret])
    }
}

impl LocalSecrets {
    async fn secret(&self, reference: &str) -> Result<String, Fault> {
        if let Some(name) = reference.strip_prefix("env:") {
            return (self.variable)(name).filter(|secret| !secret.is_empty()).ok_or_else(|| {
                Fault::rejected("secret.missing", format!("the environment variable {name} holds no secret"))
                    .remedy("set it and start the program again")
            });
        }
        if let Some(path) = reference.strip_prefix("file:") {
            return self.in_file(path).await;
        }
        // Not repeated: somebody may have written the secret itself here.
        Err(Fault::rejected("secret.reference", "on this machine a secret is referred to as env:NAME or file:PATH"))
    }

    /// A file is read again when it has changed, so that a rotated secret is valid at once.
    async fn in_file(&self, path: &str) -> Result<String, Fault> {
        let known = |read: &HashMap<String, (SystemTime, String)>, at| {
            read.get(path).filter(|(then, _)| *then == at).map(|(_, secret)| secret.clone())
        };
        let changed_at = std::fs::metadata(path).and_then(|file| file.modified()).ok();
        if let Some(at) = changed_at
            && let Some(secret) = known(&self.read.lock().unwrap_or_else(PoisonError::into_inner), at)
        {
            return Ok(secret);
        }
        let file = path.to_owned();
        let secret = blocking(move || from_file(Path::new(&file))).await?;
        if let Some(at) = changed_at {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            if read.len() >= FILES_MAX {
                read.clear();
            }
            read.insert(path.to_owned(), (at, secret.clone()));
        }
        Ok(secret)
    }
}

/// The content of a file, without the line break that editors add.
fn from_file(path: &Path) -> Result<String, Fault> {
    let missing = |why: String| {
        Fault::rejected("secret.missing", format!("{} {why}", path.display())).remedy("write the secret there, readable by this user")
    };
    let mut secret = String::new();
    let read = File::open(path).and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut secret));
    read.map_err(|error| missing(format!("cannot be read: {error}")))?;
    if secret.len() as u64 > SECRET_BYTES_MAX {
        return Err(missing(format!("has more than {SECRET_BYTES_MAX} bytes")));
    }
    let secret = secret.trim_end_matches(['\r', '\n']);
    if secret.is_empty() { Err(missing("is empty".into())) } else { Ok(secret.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_comes_from_where_its_reference_says_and_is_never_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        std::fs::write(&file, "hunter2\n").unwrap();
        let secrets = LocalSecrets::new(|name| (name == "KEY").then(|| "hunter3".into()));
        assert_eq!(secrets.secret("env:KEY").await.unwrap(), "hunter3");
        assert_eq!(secrets.secret(&format!("file:{}", file.display())).await.unwrap(), "hunter2");
        let rotated = std::fs::File::options().write(true).truncate(true).open(&file).unwrap();
        std::io::Write::write_all(&mut &rotated, b"hunter4").unwrap();
        rotated.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(secrets.secret(&format!("file:{}", file.display())).await.unwrap(), "hunter4", "valid at once");
        for absent in ["env:OTHER", "file:/nonexistent/secret", "hunter2", ""] {
            let fault = secrets.secret(absent).await.unwrap_err();
            assert!(!fault.is_retryable() && !fault.to_string().contains("hunter"), "{fault}");
        }
    }
}
