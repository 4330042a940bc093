//! Ground truth: replays recorded inputs and compares with the ring bytes that the reference provider wrote.
//!
//! The format is that of `vectors/FORMAT.md`: [`mod@format`] reads it, [`mod@replay`] drives the library with it, [`mod@rules`] names
//! where the library refuses on purpose what the reference accepts (`vectors/DIFFERENCES.md`).

pub mod format;
pub mod replay;
pub mod rules;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// What became of one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every byte that the reference touched is the same.
    Matched,
    /// Something is not; says what.
    Differs(String),
    /// The reference refused it, and so did the library.
    Refused,
    /// Not compared, for this reason.
    NotCompared(&'static str),
}

/// Counts over many vectors.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Vectors, each a sequence of chains.
    pub sequences: usize,
    /// Chains whose bytes are the same.
    pub matched: usize,
    /// Chains that differ: vector, chain number, what.
    pub differences: Vec<(String, usize, String)>,
    /// Chains that both refused.
    pub refused: usize,
    /// Chains not compared, by reason.
    pub not_compared: BTreeMap<&'static str, usize>,
}

impl Tally {
    /// Replays one vector and counts its chains.
    pub fn add(&mut self, vector: &format::Vector) {
        self.sequences += 1;
        for (number, verdict) in replay::replay(vector).into_iter().enumerate() {
            match verdict {
                Verdict::Matched => self.matched += 1,
                Verdict::Differs(what) => self.differences.push((vector.id.clone(), number, what)),
                Verdict::Refused => self.refused += 1,
                Verdict::NotCompared(reason) => *self.not_compared.entry(reason).or_default() += 1,
            }
        }
    }

    /// Replays all vectors of a stream, one JSON object a line.
    ///
    /// # Errors
    /// What reading or parsing said, with the line's number.
    pub fn add_lines(&mut self, reader: impl Read) -> io::Result<()> {
        for (number, line) in BufReader::new(reader).lines().enumerate() {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let vector = serde_json::from_str(&line)
                .map_err(|error| io::Error::other(format!("line {}: {error}", number + 1)))?;
            self.add(&vector);
        }
        Ok(())
    }

    /// Replays all vectors of a file, compressed with gzip if its name ends so.
    ///
    /// # Errors
    /// What reading or parsing said, with the file's name.
    pub fn add_file(&mut self, path: &Path) -> io::Result<()> {
        let file = std::fs::File::open(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let result = if path.extension().is_some_and(|extension| extension == "gz") {
            self.add_lines(flate2::read::GzDecoder::new(file))
        } else {
            self.add_lines(file)
        };
        result.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
    }

    /// Returns the number of chains.
    pub fn chains(&self) -> usize {
        self.matched + self.differences.len() + self.refused + self.not_compared.values().sum::<usize>()
    }

    /// Returns the one line that sums up.
    pub fn summary(&self) -> String {
        let not_compared: usize = self.not_compared.values().sum();
        let reasons: Vec<String> =
            self.not_compared.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
        let mut line = format!(
            "{} chains matched, {} differ, {} refused as expected, {not_compared} not compared",
            self.matched,
            self.differences.len(),
            self.refused
        );
        if not_compared > 0 {
            line += &format!(" ({})", reasons.join("; "));
        }
        line
    }
}

/// Returns the vector files of this repository, sorted by name.
///
/// # Errors
/// What the file system said.
pub fn repository_files() -> io::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.to_string_lossy().ends_with(".jsonl.gz"))
        .collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_vectors_of_the_repository_match() {
        let mut tally = Tally::default();
        for file in repository_files().unwrap() {
            tally.add_file(&file).unwrap();
        }
        assert_eq!(tally.differences, [], "{}", tally.summary());
        // Nothing may slip away: these are all chains of the 18 files.
        assert_eq!((tally.chains(), tally.sequences), (877, 787));
        assert_eq!(tally.refused, 73);
    }

    #[test]
    fn a_wrong_byte_is_a_difference() {
        let file = &repository_files().unwrap()[0];
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
        let line = text.lines().next().unwrap();
        let mut vector: format::Vector = serde_json::from_str(line).unwrap();
        assert!(matches!(replay::replay(&vector)[0], Verdict::Matched));
        vector.chains[0].result.bbs[0].hex.0[19] ^= 1;
        assert!(matches!(replay::replay(&vector)[0], Verdict::Differs(_)));
    }
}
