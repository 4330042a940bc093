//! Runs the fuzz targets with the inputs of their corpora and with random bytes. No input may make a target
//! fail.
#![allow(clippy::unwrap_used, missing_docs)]

use hil_fuzz::targets::{self, Target};
use hil_fuzz::{corpora, function};
use std::collections::BTreeSet;

/// Returns the targets of this package. A test of `mlx5-uverbs` runs the corpora of the stand-in for the
/// kernel.
fn here() -> impl Iterator<Item = (&'static Target, fn(&[u8]))> {
    targets::ALL.iter().filter_map(|target| function(target).map(|function| (target, function)))
}

#[test]
fn all_targets_but_the_stand_in_are_here_and_each_has_a_corpus() {
    let here: Vec<_> = here().map(|(target, _)| target.name).collect();
    let all: Vec<_> = targets::ALL.iter().map(|target| target.name).collect();
    assert_eq!([&here[..], &["standin", "rdma-cm"]].concat(), all);
    let folders = std::fs::read_dir(corpora()).unwrap();
    let folders: BTreeSet<_> = folders.map(|folder| folder.unwrap().file_name()).collect();
    assert_eq!(folders, all.into_iter().map(Into::into).collect());
}

#[test]
fn nothing_that_was_found_is_there_again() {
    for (target, function) in here() {
        for file in std::fs::read_dir(corpora().join(target.name)).unwrap().map(|entry| entry.unwrap().path())
        {
            eprintln!("{}", file.display());
            let bytes = std::fs::read(file).unwrap();
            assert!(bytes.len() <= target.longest, "{} bytes", bytes.len());
            function(&bytes);
        }
    }
}

/// Every input of these targets selects a sequence of steps, so random bytes can be inputs. Many random
/// sequences find faults that the corpus may miss.
#[test]
fn random_sequences_do_what_the_models_say() {
    for (name, times) in [("calls", 3000), ("command-queue", 1000), ("function", 300), ("device", 1000)] {
        let (_, function) = here().find(|(target, _)| target.name == name).unwrap();
        let mut state = 7_u64;
        for number in 0..times {
            eprintln!("{name} {number}");
            let mut byte = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 24) as u8
            };
            let bytes: Vec<u8> = (0..512).map(|_| byte()).collect();
            function(&bytes);
        }
    }
}
