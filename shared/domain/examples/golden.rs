//! Writes the golden documents into `tests/golden/documents/`. Run by `make golden`; review the
//! difference like code.

use std::error::Error;
use std::fs;
use std::path::Path;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/golden/cases.rs"]
mod cases;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/documents");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for cases::GoldenFile { name, bytes } in cases::files()? {
        let path = root.join(&name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, bytes)?;
        println!("tests/golden/documents/{name}");
    }
    Ok(())
}
