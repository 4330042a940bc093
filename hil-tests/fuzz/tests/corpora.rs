//! What was found before is not there any more, and what fuzzing begins with finds nothing.
#![allow(clippy::unwrap_used, missing_docs)]

use hil_fuzz::{TARGETS, corpus};

#[test]
fn nothing_that_was_found_is_there_again() {
    for target in TARGETS {
        let files =
            std::fs::read_dir(corpus(target)).into_iter().flatten().map(|entry| entry.unwrap().path());
        for file in files {
            eprintln!("{}", file.display());
            (target.run)(&std::fs::read(file).unwrap());
        }
    }
}

#[test]
fn seeds_find_nothing() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for (number, seed) in seeds.iter().enumerate() {
            eprintln!("{} {number}", target.name);
            assert!(seed.len() <= target.longest, "{} {number}: {} bytes", target.name, seed.len());
            (target.run)(seed);
        }
    }
}

/// Calls have a model, and random bytes are sequences of them: many find what few do not.
#[test]
fn random_calls_do_what_the_model_says() {
    let calls = TARGETS.iter().find(|target| target.name == "calls").unwrap();
    let mut state = 7_u64;
    for _ in 0..3000 {
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        let bytes: Vec<u8> = (0..512).map(|_| byte()).collect();
        (calls.run)(&bytes);
    }
}
