//! Every task of the project: `cargo xtask help`.

#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod audit;
mod bench;
mod chaos;
mod differential;
mod empty_machine;
mod fuzz;
mod package;
mod peer;
mod sanitize;
mod storage;
mod test;
mod versions;

use std::process::ExitCode;
use xtask::{build, emulate, host, run};

const HELP: &str = "\
cargo xtask TASK

  demo [--file PATH] [--fault NAME]
                        run the examples of the manual pages, rows A to J and a file on the software
                        device
  test [--rest] [--nightly] [STEP…]
                        the checks, in three tiers; CI runs the first two
  build --board bluefield2|bluefield3 --os none|linux [--release]
                        build what runs on the Arm cores of a BlueField
  capi [--arch NAME] [--test]
                        make the library and the header for C and C++
  chaos [--seeds N] [--pairs N] | --seed S | --pair S
                        have the device and the kernel break their word while programs work
  vectors [FILE… | -]   replay recorded work requests of the reference provider and compare every
                        byte (default: those of this repository; - reads standard input)
  decode [--html OUT] HEX|FILE|-
                        print or draw work requests (or, with --cqe, completions) in words, and what
                        a device would refuse
  hil [--board NAME] [--filter TEXT] [--junit FILE] [--html FILE] …
                        run the scenarios on boards: the software device, the same behind libmlx5,
                        devices of this machine and of others, reset when they hang
  dist [--arch x86-64|arm64] [--check] …
                        pack the stand-in with a launcher, for machines without cargo and Rust
  differential [--count N] [--seed S]
                        compare random requests with what the installed libmlx5 writes
  audit                 licences, sources and advisories of all crates, and dependencies not used
  bench [--json | --svg FILE | --record | --readme]
                        count instructions for each request: the library, libmlx5, a bare copy
  emulate [options] -- COMMAND…
                        run any verbs program on a software mlx5_0 (`emulate --help`)
  empty-machine         run the README's commands in a system that holds what they need and no more
  firmware --board bluefield2|bluefield3 [--filter TEXT]
                        run the scenarios as a bare-metal image in QEMU
  fuzz [--seconds N] [TARGET…]
                        call the library, the software device, the stand-in and all parsers with
                        whatever libFuzzer makes up
  lab [--virtual-dpus]  boards that a labgrid coordinator on this machine lends, under `hil`
  mutants [--shard K/N] [FILE…]
                        change the library and the software device in small ways, which the tests
                        must notice
  package               build and test the library as a registry would hand it out
  peer [--only TEXT | --dpdk | --rdma-core DIR | --spdk DIR]
                        rdma-core's tests, perftest, UCX, qperf and DPDK's crypto driver, unchanged,
                        on the software device; checkouts of rdma-core and SPDK
  sanitize [address | valgrind]
                        the tests under AddressSanitizer and valgrind
  storage [--ios N] [--kill] …
                        run the example of a storage target and its initiator on the software
                        device: T10-DIF, AES-XTS, corrupt blocks, a target that is killed
  tidy                  check the rules of the house in all crates: which module may know which,
                        where unsafe may stand
  versions              build the library with the newest and the oldest versions of its
                        dependencies
  help                  this text

Each task answers --help. Exit status: 0 all is well, 1 it is not, 2 the arguments make no sense.
";

fn main() -> ExitCode {
    // Whoever needs it later asks again, and says what went wrong.
    let _ = run::itself();
    let arguments = run::arguments();
    let (task, rest) =
        arguments.split_first().map_or(("help", &[][..]), |(task, rest)| (task.as_str(), rest));
    match task {
        "audit" => run::no_arguments(rest, audit::HELP).unwrap_or_else(audit::run),
        "bench" => bench::run(rest),
        "build" => build::run(rest),
        "chaos" => chaos::run(rest),
        "differential" => differential::run(rest),
        "emulate" => emulate::run(rest),
        "empty-machine" => run::no_arguments(rest, empty_machine::HELP).unwrap_or_else(empty_machine::run),
        "fuzz" => fuzz::run(rest),
        "package" => run::no_arguments(rest, package::HELP).unwrap_or_else(package::run),
        "peer" => peer::run(rest),
        "sanitize" => sanitize::run(rest),
        "storage" => storage::run(rest),
        "test" => test::run(rest),
        "versions" => run::no_arguments(rest, versions::HELP).unwrap_or_else(versions::run),
        "capi" => elsewhere("xtask-capi", &arguments),
        "decode" => elsewhere("xtask-device", &arguments),
        "demo" => elsewhere("xtask-device", &arguments),
        "vectors" => elsewhere("xtask-device", &arguments),
        "dist" => elsewhere("xtask-artefacts", &arguments),
        "firmware" => elsewhere("xtask-boards", &arguments),
        "mutants" => elsewhere("xtask-mutants", &arguments),
        "hil" => elsewhere("xtask-boards", &arguments),
        "lab" => elsewhere("xtask-boards", &arguments),
        "tidy" => elsewhere("xtask-tidy", &arguments),
        "help" | "--help" | "-h" => run::no_arguments(rest, HELP).unwrap_or_else(|| run::print(HELP, 0)),
        _ => run::misuse(&format!(
            "unknown task `{task}`

{HELP}"
        )),
    }
}

/// Builds the program that serves a task, and becomes it.
fn elsewhere(package: &str, arguments: &[String]) -> ExitCode {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match host::task(package, &arguments) {
        Ok(command) => run::replace(command),
        Err(message) => run::failed(&message),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn help_fits_a_line() {
        for help in [
            super::HELP,
            super::audit::HELP,
            super::bench::HELP,
            super::build::HELP,
            super::chaos::HELP,
            super::differential::HELP,
            super::empty_machine::HELP,
            super::fuzz::HELP,
            super::package::HELP,
            super::peer::HELP,
            super::sanitize::HELP,
            super::storage::HELP,
            super::test::HELP,
            super::versions::HELP,
        ] {
            assert_eq!(help.lines().find(|line| line.chars().count() > 100), None);
        }
    }
}
