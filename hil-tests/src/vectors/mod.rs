//! Replays recorded inputs with the library, and compares the bytes in the ring with the bytes that the
//! reference provider (libmlx5) wrote.
//!
//! `vectors/FORMAT.md` describes the format. [`mod@format`] reads it, `replay` posts the inputs with the
//! library, `rules` names the deliberate refusals of the library (`vectors/DIFFERENCES.md`).

mod blue_flame;
pub mod format;
mod manner;
mod replay;
mod rules;

pub use manner::{Limits, Replay, Tally, Verdict};
use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The file in the folder of the vectors that contains no vectors, but recorded work requests of SPDK's
/// driver ([`mod@crate::recording`]).
pub const SPDK: &str = "spdk.jsonl.gz";

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
        for (number, verdict) in replay::replay(vector, how, self).into_iter().enumerate() {
            match verdict {
                Verdict::Matched => self.matched += 1,
                Verdict::Differs(what) => self.differences.push((vector.id.clone(), number, what)),
                Verdict::Refused => self.refused += 1,
                Verdict::NotCompared(reason) => *self.not_compared.entry(reason).or_default() += 1,
            }
        }
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

/// Reads JSON objects from a stream: vectors, or the events of a recording.
///
/// # Errors
/// An error of reading or parsing, with the line number.
pub fn read<T: DeserializeOwned>(reader: impl Read) -> io::Result<Vec<T>> {
    let text = io::read_to_string(reader)?;
    Ok(serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>()?)
}

/// Reads the JSON objects of a file, which is compressed if its name ends with `.gz`.
///
/// # Errors
/// An error of reading or parsing, with the file's name.
pub fn read_file<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let named = |error| io::Error::other(format!("{}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(named)?;
    let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
    if is_compressed { read(flate2::read::GzDecoder::new(file)) } else { read(file) }.map_err(named)
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
    use std::collections::BTreeMap;

    /// Reads all vectors of the repository.
    fn vectors() -> Vec<format::Vector> {
        repository_files().unwrap().iter().flat_map(|file| read_file(file).unwrap()).collect()
    }

    /// Returns the counts of a replay of all vectors of the repository. They must stay the same, so that no
    /// vector is lost.
    fn expected(how: Replay) -> Tally {
        let lifted = how.limits == Limits::Lifted;
        let mut not_compared = BTreeMap::from([
            ("aborted by the user", 2),
            ("behind a chain that was refused or aborted", 7),
            ("deliberate: configuration with setters missing", 1),
            ("deliberate: copy mask without a wire domain", 1),
            ("deliberate: interleaved layout without room for its header", 1),
            ("deliberate: interleaved stride over 16 bits", 1),
            ("deliberate: list entry of 0 bytes or over 2 GiB", 2),
            ("deliberate: second layout behind an empty list", 1),
        ]);
        if lifted {
            not_compared.insert(rules::LIFTED, 9);
        }
        let (matched, refused) = (788, if lifted { 64 } else { 73 });
        // Each compared chain has one mkey, but one chain has two. One chain was refused after a
        // configuration in it, and its mkeys are not compared. The library refused 7 further chains on
        // purpose.
        let mkeys = [matched + 1, refused - 1 + 7];
        // `blue_flame` counts the doorbells of 16 vectors. Two of the vectors ring twice: for a UMR, then for
        // a request that libmlx5 does not copy, because the queue does not prefer BlueFlame.
        let (differences, blue_flame) = (Vec::new(), [4, 12, 2]);
        Tally {
            sequences: 787,
            matched,
            differences,
            refused,
            not_compared,
            configured: 613,
            mkeys,
            blue_flame,
        }
    }

    /// Returns the result of a vector's first chain.
    fn first(vector: &format::Vector, how: Replay) -> Verdict {
        replay::replay(vector, how, &mut Tally::default()).swap_remove(0)
    }

    #[test]
    fn all_vectors_of_the_repository_match() {
        let vectors = vectors();
        for how in Replay::all() {
            assert_eq!(Tally::of(&vectors, how), expected(how), "{how}");
        }
    }

    #[test]
    fn a_wrong_byte_is_a_difference() {
        let mut vector = vectors().swap_remove(0);
        for how in Replay::all() {
            assert!(matches!(first(&vector, how), Verdict::Matched), "{how}");
        }
        vector.chains[0].result.bbs[0].hex.0[19] ^= 1;
        for how in Replay::all() {
            assert!(matches!(first(&vector, how), Verdict::Differs(_)), "{how}");
        }
    }

    #[test]
    fn a_doorbell_for_whole_requests_is_compared() {
        let vector: format::Vector = read_file(&folder().join("blueflame.jsonl.gz")).unwrap().swap_remove(0);
        let verdict = |change: &dyn Fn(&mut format::ChainResult)| {
            let mut vector = vector.clone();
            change(&mut vector.chains[0].result);
            first(&vector, Replay { limits: Limits::Recorded, way: Way::Request })
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
