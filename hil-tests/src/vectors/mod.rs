//! Replays recorded inputs with the library, and compares the bytes in the ring with the bytes that the
//! reference provider (libmlx5) wrote.
//!
//! `vectors/FORMAT.md` describes the format. [`mod@format`] reads it, [`mod@replay`] posts the inputs with
//! the library, [`mod@rules`] names the deliberate refusals of the library (`vectors/DIFFERENCES.md`).

mod blue_flame;
pub mod format;
mod manner;
pub mod replay;
pub mod rules;

pub use manner::{Limits, Replay, Verdict};
use replay::Outcome;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The file in the folder of the vectors that contains no vectors, but recorded work requests of SPDK's
/// driver ([`mod@crate::recording`]).
pub const SPDK: &str = "spdk.jsonl.gz";

/// Counts of a replay of many vectors.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of vectors. A vector is a sequence of chains, a chain a series of requests that are posted
    /// together.
    pub sequences: usize,
    /// Chains whose bytes equal the recorded ones.
    pub matched: usize,
    /// Differing chains: vector, chain number, difference.
    pub differences: Vec<(String, usize, String)>,
    /// Chains that both libmlx5 and the library refuse.
    pub refused: usize,
    /// Chains not compared, by reason.
    pub not_compared: BTreeMap<&'static str, usize>,
    /// Number of configurations of mkeys in chains whose bytes are equal.
    pub configured: usize,
    /// Numbers of compared mkeys ([`Outcome::mkeys`]).
    pub mkeys: [usize; 2],
    /// Numbers of compared BlueFlame doorbells ([`Outcome::blue_flame`]).
    pub blue_flame: [usize; 3],
}

impl Tally {
    /// Replays vectors, all with these limits and by this posting method.
    pub fn of(vectors: &[format::Vector], how: Replay) -> Self {
        let mut tally = Self::default();
        vectors.iter().for_each(|vector| tally.add(vector, how));
        tally
    }

    /// Replays one vector and counts its chains.
    fn add(&mut self, vector: &format::Vector, how: Replay) {
        self.sequences += 1;
        let Outcome { verdicts, configured, mkeys, blue_flame } = replay::replay(vector, how);
        self.configured += configured;
        self.blue_flame.iter_mut().zip(blue_flame).for_each(|(sum, count)| *sum += count);
        self.mkeys = [self.mkeys[0] + mkeys[0], self.mkeys[1] + mkeys[1]];
        for (number, verdict) in verdicts.into_iter().enumerate() {
            match verdict {
                Verdict::Matched => self.matched += 1,
                Verdict::Differs(what) => self.differences.push((vector.id.clone(), number, what)),
                Verdict::Refused => self.refused += 1,
                Verdict::NotCompared(reason) => *self.not_compared.entry(reason).or_default() += 1,
            }
        }
    }

    /// Returns the number of chains.
    pub fn chains(&self) -> usize {
        self.matched + self.differences.len() + self.refused + self.not_compared.values().sum::<usize>()
    }

    /// Returns a summary of one line.
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

/// Reads vectors from a stream, one JSON object per line.
///
/// # Errors
/// An error of reading or parsing, with the line number.
pub fn read(reader: impl Read) -> io::Result<Vec<format::Vector>> {
    lines(reader)
}

/// Reads the vectors of a file, which is compressed if its name ends with `.gz`.
///
/// # Errors
/// An error of reading or parsing, with the file's name.
pub fn read_file(path: &Path) -> io::Result<Vec<format::Vector>> {
    read_lines(path)
}

/// Reads a file of one JSON object per line, which is compressed if its name ends with `.gz`.
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let file = std::fs::File::open(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let result = if path.extension().is_some_and(|extension| extension == "gz") {
        lines(flate2::read::GzDecoder::new(file))
    } else {
        lines(file)
    };
    result.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

fn lines<T: DeserializeOwned>(reader: impl Read) -> io::Result<Vec<T>> {
    let mut values = Vec::new();
    for (number, line) in BufReader::new(reader).lines().enumerate() {
        let line = line?;
        if !line.trim().is_empty() {
            let value = serde_json::from_str(&line)
                .map_err(|error| io::Error::other(format!("line {}: {error}", number + 1)))?;
            values.push(value);
        }
    }
    Ok(values)
}

/// Returns the folder of this repository's vectors.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

/// Returns the vector files of this repository, sorted by name, without recordings of other drivers.
///
/// # Errors
/// An error of the file system.
pub fn repository_files() -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.to_string_lossy().ends_with(".jsonl.gz") && !path.ends_with(SPDK))
        .collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::way::Way;

    /// Reads all vectors of the repository.
    fn vectors() -> Vec<format::Vector> {
        repository_files().unwrap().iter().flat_map(|file| read_file(file).unwrap()).collect()
    }

    /// Counts of a replay of all vectors of the repository. They must stay the same, so that no vector is
    /// lost.
    #[derive(Debug, PartialEq)]
    struct Counts {
        matched: usize,
        refused: usize,
        not_compared: Vec<(&'static str, usize)>,
        configured: usize,
        mkeys: [usize; 2],
        blue_flame: [usize; 3],
    }

    impl Counts {
        fn of(tally: &Tally) -> Self {
            Self {
                matched: tally.matched,
                refused: tally.refused,
                not_compared: tally.not_compared.iter().map(|(reason, count)| (*reason, *count)).collect(),
                configured: tally.configured,
                mkeys: tally.mkeys,
                blue_flame: tally.blue_flame,
            }
        }

        fn expected(how: Replay) -> Self {
            let lifted = how.limits == Limits::Lifted;
            let mut not_compared = vec![
                ("aborted by the user", 2),
                ("behind a chain that was refused or aborted", 7),
                ("deliberate: configuration with setters missing", 1),
                ("deliberate: copy mask without a wire domain", 1),
                ("deliberate: interleaved layout without room for its header", 1),
                ("deliberate: interleaved stride over 16 bits", 1),
                ("deliberate: list entry of 0 bytes or over 2 GiB", 2),
                ("deliberate: second layout behind an empty list", 1),
            ];
            if lifted {
                not_compared.push((rules::LIFTED, 9));
            }
            not_compared.sort_unstable();
            let (matched, refused) = (788, if lifted { 64 } else { 73 });
            // Each compared chain has one mkey, but one chain has two. One chain was refused after a
            // configuration in it, and its mkeys are not compared. The library refused 7 further chains on
            // purpose.
            let mkeys = [matched + 1, refused - 1 + 7];
            // `blue_flame` counts the doorbells of 16 vectors. Two of the vectors ring twice: for a UMR, then
            // for a request that libmlx5 does not copy, because the queue does not prefer BlueFlame.
            Self { matched, refused, not_compared, configured: 613, mkeys, blue_flame: [4, 12, 2] }
        }
    }

    #[test]
    fn all_vectors_of_the_repository_match() {
        let vectors = vectors();
        for how in Replay::all() {
            let tally = Tally::of(&vectors, how);
            assert_eq!(tally.differences, [], "{how}: {}", tally.summary());
            // The numbers of all chains and vectors of the 18 files: none may be missing.
            assert_eq!((tally.chains(), tally.sequences), (877, 787), "{how}");
            assert_eq!(Counts::of(&tally), Counts::expected(how), "{how}");
        }
    }

    #[test]
    fn a_wrong_byte_is_a_difference() {
        let mut vector = vectors().swap_remove(0);
        for how in Replay::all() {
            assert!(matches!(replay::replay(&vector, how).verdicts[0], Verdict::Matched), "{how}");
        }
        vector.chains[0].result.bbs[0].hex.0[19] ^= 1;
        for how in Replay::all() {
            assert!(matches!(replay::replay(&vector, how).verdicts[0], Verdict::Differs(_)), "{how}");
        }
    }

    #[test]
    fn a_doorbell_for_whole_requests_is_compared() {
        let vector = read_file(&folder().join("blueflame.jsonl.gz")).unwrap().swap_remove(0);
        let verdict = |change: &dyn Fn(&mut format::ChainResult)| {
            let mut vector = vector.clone();
            change(&mut vector.chains[0].result);
            replay::replay(&vector, Replay { limits: Limits::Recorded, way: Way::Request }).verdicts[0]
                .clone()
        };
        assert_eq!(verdict(&|_| {}), Verdict::Matched);
        let changes: [&dyn Fn(&mut format::DoorbellSpec); 3] =
            [&|rung| rung.offset ^= 256, &|rung| rung.len = Some(128), &|rung| rung.kind = "ctrl8".into()];
        for change in changes {
            let verdict = verdict(&|result| change(result.doorbell.as_mut().unwrap()));
            assert!(matches!(verdict, Verdict::Differs(_)), "{verdict:?}");
        }
        let verdict = verdict(&|result| result.bf_offset_after ^= 256);
        assert!(matches!(verdict, Verdict::Differs(_)), "{verdict:?}");
    }
}
