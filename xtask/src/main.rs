//! The entry to all tasks of the project: `cargo xtask help` lists them.

mod audit;
mod bench;
mod chaos;
mod differential;
mod empty_machine;
mod fuzz;
mod outcome;
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
                        run the checks, in three tiers; CI runs the first two
  build --board bluefield2|bluefield3 --os none|linux [--release]
                        build the programs for the Arm cores of a BlueField
  capi [--arch NAME] [--test]
                        build the library and the header for C and C++
  chaos [--seeds N] [--pairs N] | --seed S | --pair S
                        inject faults of device, kernel and peers while programs work
  vectors [FILE… | -]   replay recorded work requests of the reference provider and compare every
                        byte (default: those of this repository; - reads standard input)
  decode [--html OUT] HEX|FILE|-
                        print or draw work requests (or, with --cqe, completions) in words, and
                        report what a device would refuse
  guest [--qemu PROGRAM] [--check | -- COMMAND…]
                        boot a guest of QEMU whose own mlx5 drivers have the software device
  hil [--board NAME] [--filter TEXT] [--junit FILE] [--html FILE] …
                        run the scenarios on boards: the software device, alone or behind libmlx5,
                        devices of this machine and of other machines; reset boards that hang
  dist [--validate | --deb] [--arch x86-64|arm64] [--check] …
                        pack the stand-in and its launcher, or all that validates a card, for
                        machines without cargo and Rust; make Debian packages
  differential [--count N] [--seed S]
                        compare random requests with those of the installed libmlx5
  audit                 check licences, sources and advisories of all crates; find unused
                        dependencies
  bench [--json | --svg FILE | --record | --readme | --emulator | --guest]
                        count the instructions of each request: of the library, of libmlx5 and of
                        a bare copy; measure the software device, alone or under a guest's driver
  emulate [options] -- COMMAND…
                        run any verbs program on a software mlx5_0 (`emulate --help`)
  empty-machine         run the README's commands in a system with only the packages they need
  firmware --board bluefield2|bluefield3 [--filter TEXT]
                        run the scenarios as a bare-metal image in QEMU
  function --socket PATH [--device NAME] [--port NAME] [--log] [--log-json FILE] …
                        serve the software device as a PCI function over vfio-user, for QEMU
  fuzz [--seconds N] [TARGET…]
                        call the library, the software device, the stand-in and all parsers with
                        inputs that libFuzzer generates
  lab [--virtual-dpus]  run `hil` on two boards that a labgrid coordinator on this machine lends
  mutants [--shard K/N] [FILE…]
                        make small changes to the library and the software device, one at a time;
                        tests must notice each
  package               build and test the library from its package
  peer [--only TEXT | --dpdk | --pypi | --built | --rdma-core DIR | --spdk DIR]
                        run unchanged programs of others on the software device: rdma-core's tests,
                        perftest, UCX, qperf, fio, libfabric, DPDK, MPI; rdma-core, SPDK
  sanitize [address | valgrind]
                        run the tests under AddressSanitizer and valgrind
  storage [--ios N] [--kill] …
                        run the example of a storage target and its initiator on the software
                        device: T10-DIF, AES-XTS, corrupt blocks, a target that is killed
  tidy                  check the rules of the house in all crates: imports between modules, places
                        of unsafe code
  validate [DEVICE | --stand-in]
                        run scenarios, measurements and benchmarks on a device of this machine, and
                        pack a report; --compare A B and --facts A read reports
  versions              build the library with the newest and the oldest versions of its
                        dependencies
  help                  print this text

Each task answers --help. Exit status: 0 success, 1 failure, 2 invalid arguments.
";

fn main() -> ExitCode {
    // The first call of `itself` stores the path of this program. If the path is unknown, the later callers
    // that need it report the error.
    let _ = run::itself();
    let arguments = run::arguments();
    let (task, rest) =
        arguments.split_first().map_or(("help", &[][..]), |(task, rest)| (task.as_str(), rest));
    match task {
        "audit" => alone(rest, audit::HELP, audit::run),
        "bench" => bench::run(rest),
        "build" => build::run(rest),
        "chaos" => chaos::run(rest),
        "differential" => differential::run(rest),
        "emulate" => emulate::run(rest),
        "empty-machine" => alone(rest, empty_machine::HELP, empty_machine::run),
        "fuzz" => fuzz::run(rest),
        "package" => alone(rest, package::HELP, package::run),
        "peer" => peer::run(rest),
        "sanitize" => sanitize::run(rest),
        "storage" => storage::run(rest),
        "test" => test::run(rest),
        "versions" => alone(rest, versions::HELP, versions::run),
        "capi" => elsewhere("xtask-capi", &arguments),
        "decode" | "demo" | "vectors" => elsewhere("xtask-device", &arguments),
        "dist" => elsewhere("xtask-artefacts", &arguments),
        "function" => function(rest),
        "firmware" => elsewhere("xtask-firmware", &arguments),
        "guest" | "hil" | "lab" | "validate" => elsewhere("xtask-boards", &arguments),
        "mutants" => elsewhere("xtask-mutants", &arguments),
        "tidy" => elsewhere("xtask-tidy", &arguments),
        "help" | "--help" | "-h" => run::no_arguments(rest, HELP).unwrap_or_else(|| run::print(HELP, 0)),
        _ => run::misuse(&format!("unknown task `{task}`\n\n{HELP}")),
    }
}

/// Builds, in release mode, the program that serves the PCI function. Replaces this process by that program.
fn function(arguments: &[String]) -> ExitCode {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match host::executes("mlx5-function") {
        Ok(program) => run::replace(run::program(&program.to_string_lossy(), &arguments)),
        Err(message) => run::failed(&message),
    }
}

/// Performs a task that has no option except `--help`.
fn alone(arguments: &[String], help: &str, perform: fn() -> Result<(), String>) -> ExitCode {
    run::no_arguments(arguments, help).unwrap_or_else(|| run::status(perform()))
}

/// Builds the program that serves a task, and replaces this process by it.
fn elsewhere(package: &str, arguments: &[String]) -> ExitCode {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match host::task(package, &arguments) {
        Ok(command) => run::replace(command),
        Err(message) => run::failed(&message),
    }
}
