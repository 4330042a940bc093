//! Runs the fuzz targets with the inputs of their corpora, with their initial inputs and with random bytes.
//! No input may make a target fail.
#![allow(clippy::unwrap_used, missing_docs)]

use hil_fuzz::targets::{self, Target};
use hil_fuzz::{Functions, corpora, corpus, functions};

/// Returns the targets of this package. A test of `mlx5-uverbs` runs the corpora of the stand-in for the
/// kernel.
fn here() -> impl Iterator<Item = (&'static Target, Functions)> {
    targets::ALL.iter().filter_map(|target| functions(target).map(|functions| (target, functions)))
}

#[test]
fn all_targets_but_the_stand_in_are_here_and_each_corpus_is_of_one() {
    let here: Vec<_> = here().map(|(target, _)| target.name).collect();
    let all: Vec<_> = targets::ALL.iter().map(|target| target.name).collect();
    assert_eq!([&here[..], &["standin", "rdma-cm"]].concat(), all);
    for folder in std::fs::read_dir(corpora()).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        assert!(all.contains(&name.as_str()), "corpus/{name} belongs to no target");
    }
}

#[test]
fn nothing_that_was_found_is_there_again() {
    for (target, functions) in here() {
        let files =
            std::fs::read_dir(corpus(target)).into_iter().flatten().map(|entry| entry.unwrap().path());
        for file in files {
            eprintln!("{}", file.display());
            (functions.run)(&std::fs::read(file).unwrap());
        }
    }
}

#[test]
fn seeds_find_nothing() {
    for (target, functions) in here() {
        let seeds = (functions.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for (number, seed) in seeds.iter().enumerate() {
            eprintln!("{} {number}", target.name);
            assert!(seed.len() <= target.longest, "{} {number}: {} bytes", target.name, seed.len());
            (functions.run)(seed);
        }
    }
}

/// Calls a target this many times with random bytes.
fn call_randomly(name: &str, times: usize) {
    let (_, functions) = here().find(|(target, _)| target.name == name).unwrap();
    let mut state = 7_u64;
    for _ in 0..times {
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        let bytes: Vec<u8> = (0..512).map(|_| byte()).collect();
        (functions.run)(&bytes);
    }
}

/// Every input selects a sequence of calls, so random bytes can be inputs. Many random sequences find faults
/// that the corpus may miss.
#[test]
fn random_calls_do_what_the_model_says() {
    call_randomly("calls", 3000);
}

/// Every input selects a sequence of commands for the command queue, so random bytes can be inputs.
#[test]
fn random_commands_come_to_what_the_device_has_left() {
    call_randomly("command-queue", 1000);
}

/// Every input selects a sequence of steps for the PCI function, so random bytes can be inputs. The steps are
/// commands and doorbells, and memory is unmapped between them.
#[test]
fn random_steps_leave_the_function_whole() {
    call_randomly("function", 300);
}

/// Every input selects a sequence of requests, bytes in rings, messages and states of the software device, so
/// random bytes can be inputs.
#[test]
fn random_rings_and_messages_write_nothing_that_no_key_maps() {
    call_randomly("device", 1000);
}
