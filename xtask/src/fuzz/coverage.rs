//! Coverage of the library by lines, from the edges that inputs have taken.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The addresses of all edges of a program, and whether each was taken.
#[derive(Debug, Default)]
pub(super) struct Coverage(BTreeMap<String, bool>);

impl Coverage {
    /// Adds the edges of a target. Each line has an address, then 1 if the edge was taken, otherwise 0.
    pub(super) fn add(&mut self, edges: &str) {
        for (place, taken) in edges.lines().filter_map(|line| line.split_once(' ')) {
            *self.0.entry(place.into()).or_default() |= taken == "1";
        }
    }

    /// Returns for each folder two numbers of lines at which a branch begins: the lines that inputs have
    /// reached, and all such lines.
    ///
    /// # Errors
    /// `addr2line` of binutils cannot be run.
    pub(super) fn of<'f>(
        &self,
        program: &Path,
        folders: &[&'f str],
    ) -> Result<Vec<(&'f str, usize, usize)>, String> {
        let places: Vec<&str> = self.0.keys().map(String::as_str).collect();
        let lines = lines(program, &places)?;
        let reached: Vec<(&str, bool)> = lines.lines().zip(self.0.values().copied()).collect();
        Ok(folders.iter().map(|folder| count(&reached, folder)).collect())
    }
}

/// Returns a line of text for each address: file and line number.
fn lines(program: &Path, places: &[&str]) -> Result<String, String> {
    let wrong = |error: std::io::Error| format!("addr2line (of binutils): {error}");
    let mut child = Command::new("addr2line")
        .arg("-e")
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(wrong)?;
    let mut input = child.stdin.take().ok_or("addr2line has no input")?;
    let text = places.join("\n");
    // Another thread writes the input while this thread reads the output. One thread alone would block as
    // soon as both pipes are full.
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(wrong)?;
    writer.join().map_err(|_| "addr2line did not read its input")?.map_err(wrong)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Counts the lines of a folder at which an edge begins: the lines that were reached, and all such lines.
fn count<'f>(reached: &[(&str, bool)], folder: &'f str) -> (&'f str, usize, usize) {
    let root = xtask::run::root();
    let begin = format!("{}/{folder}/", root.display());
    let of_folder = || {
        reached.iter().filter(|(line, _)| line.starts_with(&begin) || line.starts_with(&format!("{folder}/")))
    };
    let all: BTreeSet<&str> = of_folder().map(|(line, _)| *line).collect();
    let taken: BTreeSet<&str> = of_folder().filter(|(_, taken)| *taken).map(|(line, _)| *line).collect();
    (folder, taken.len(), all.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_reached_where_one_of_its_edges_is() {
        let root = xtask::run::root();
        let line = |number| format!("{}/src/queue/send.rs:{number}", root.display());
        let [first, second] = [line(1), line(2)];
        let reached =
            [(&*first, false), (&*first, true), (&*second, false), ("/elsewhere/src/queue/x.rs:1", true)];
        assert_eq!(count(&reached, "src/queue"), ("src/queue", 1, 2));
        assert_eq!(count(&reached, "src/inspect"), ("src/inspect", 0, 0));
    }

    #[test]
    fn what_one_target_does_not_reach_another_may() {
        let mut coverage = Coverage::default();
        coverage.add("0x10 1\n0x20 0\n");
        coverage.add("0x10 0\n0x20 0\n0x30 1\n");
        let taken: Vec<bool> = coverage.0.values().copied().collect();
        assert_eq!(taken, [true, false, true]);
    }
}
