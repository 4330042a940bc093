//! Collects a sentence for each scenario from the docstring of its function. The report of `cargo xtask
//! validate` shows these sentences.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const SCENARIOS: &str = "../../hil-tests/scenarios/src/scenarios";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={SCENARIOS}");
    let mut table = String::from("&[\n");
    for file in sources(Path::new(SCENARIOS))? {
        let mut comment: Vec<String> = Vec::new();
        for line in fs::read_to_string(&file)?.lines() {
            if let Some(words) = line.strip_prefix("///") {
                comment.push(words.trim().into());
            } else if let Some(name) = line.strip_prefix("fn ").and_then(|rest| rest.split_once('(')) {
                // Only the first paragraph of the docstring is used.
                let words: Vec<&str> =
                    comment.iter().map(String::as_str).take_while(|words| !words.is_empty()).collect();
                if !words.is_empty() {
                    // Writing to a string cannot fail.
                    let _ = writeln!(table, "({:?}, {:?}),", name.0, words.join(" "));
                }
                comment.clear();
            } else {
                comment.clear();
            }
        }
    }
    table.push_str("]\n");
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
    fs::write(folder.join("sentences.rs"), table)
}

/// Returns the files of a folder and of the folders in it, sorted.
fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(sources(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}
