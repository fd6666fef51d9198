//! Writes the generated JSON Schemas into `schemas/`. Run by `make schemas`.

use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    for schema in tidemark_domain::contract::schemas::all()? {
        let path = root.join(&schema.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, schema.text)?;
        println!("schemas/{}", schema.path);
    }
    Ok(())
}
