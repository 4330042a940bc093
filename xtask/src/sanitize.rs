//! `cargo xtask sanitize`: runs the tests under AddressSanitizer and under valgrind.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use xtask::run::{self, answer, cargo, check, program, root};
use xtask::{debian, emulate};

pub(crate) const HELP: &str = "\
cargo xtask sanitize [address | valgrind]

Runs tests with AddressSanitizer, then under valgrind; a word selects one of the two. The tests are:
the unit tests of the library with its shim and its functions for C; the tests of the software
device; the tests of the stand-in with the real libmlx5; the scenarios on the software device and
behind libmlx5; the tests of the command queue, and property tests.

AddressSanitizer finds accesses out of bounds or after the end of an object. It finds leaks of the
library and the software device only: tests of the stand-in leave objects of libibverbs behind, and
scenarios give memory to their device for good. valgrind sees the code of libmlx5 as well, and finds
wrong accesses, not leaks. xtask/src/sanitize.rs lists the tests that each tool skips, with reasons.

AddressSanitizer needs a compiler with the sanitizer's library, such as rustup's. The run takes half
an hour: the step `sanitize` of `cargo xtask test --nightly`.
";

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h"] => return run::print(HELP, 0),
        [] => address().and_then(|()| valgrind()),
        ["address"] => address(),
        ["valgrind"] => valgrind(),
        _ => return run::misuse(HELP),
    };
    run::status(done)
}

/// Arguments for `cargo test` that select packages and tests, or names of tests.
type Tests = &'static [&'static str];

const CORE: Tests = &["--package", "mlx5-mkey", "--features", "capi", "--lib"];
const DEVICE: Tests = &["--package", "mlx5-softdev", "--package", "mlx5-softdev-tests", "--lib"];
const STAND_IN: Tests = &["--package", "mlx5-uverbs", "--lib", "--tests", "--"];
/// Tests of the stand-in for the kernel that AddressSanitizer skips. Two tests load the stand-in into
/// programs without the sanitizer. One test maps memory at addresses that the sanitizer uses. The others
/// search all memory for a secret, and the sanitizer keeps stack frames after a return.
const NOT_WITH_ADDRESS: Tests = &[
    "secrets",
    "why_there_is_no_device_is_said_once",
    "the_device_is_among_files_whichever_way_one_looks",
    "calls_of_any_kind_leave_nothing_behind",
];
/// Tests of the stand-in for the kernel that valgrind skips. Some tests pass bad addresses to the kernel, and
/// some measure the CPU time of a thread. The tests `secrets` search all memory for a secret, which includes
/// valgrind's own memory.
const NOT_WITH_VALGRIND: Tests =
    &["secrets", "good_addresses_move_bytes_and_bad_ones_are_refused", "a_thread_that_sleeps_is_woken"];
/// Arguments that build the program `hil`, which runs scenarios behind the stand-in for the kernel, and the
/// stand-in itself.
const BEHIND: Tests = &["--package", "hil-tests", "--bin", "hil", "--package", "mlx5-uverbs", "--lib"];
/// Scenarios on the software device, tests of the command queue, and property tests. Two tests that search
/// memory for a key are left out: AddressSanitizer keeps old stack frames, and most of the memory belongs to
/// AddressSanitizer or valgrind.
const SCENARIOS: Tests = &[
    "--package",
    "hil-tests",
    "--test",
    "tests",
    "--",
    "softdev",
    "command_queue",
    "properties",
    "--skip",
    "m66_a_key_leaves_nothing_on_the_stack",
    "--skip",
    "m66_a_key_leaves_nothing_in_the_software_device",
];

fn stand_in_without(skipped: Tests) -> Vec<&'static str> {
    let skip = skipped.iter().flat_map(|test| ["--skip", test]);
    STAND_IN.iter().copied().chain(skip).collect()
}

/// Returns the reason why the compiler cannot build with AddressSanitizer. Returns `None` if the compiler
/// can.
pub(crate) fn missing() -> Result<Option<&'static str>, String> {
    let has_library = Host::ask()?.has_library("asan");
    let reason = "the compiler comes without AddressSanitizer's library (librustc-*_rt.asan.a)";
    Ok((!has_library).then_some(reason))
}

fn address() -> Result<(), String> {
    debian::install(debian::VERBS)?;
    if let Some(reason) = missing()? {
        return Err(reason.into());
    }
    let host = Host::ask()?;
    // Leak checks are off for two groups. Scenarios leak memory on purpose if a device may still write to it.
    // Tests of the stand-in for the kernel leave objects of libibverbs behind when their programs end.
    let (leaks, no_leaks) = ("detect_leaks=1", "detect_leaks=0");
    let stand_in = stand_in_without(NOT_WITH_ADDRESS);
    let all: [(&[&str], _); 4] =
        [(CORE, leaks), (DEVICE, leaks), (SCENARIOS, no_leaks), (&stand_in, no_leaks)];
    let run = |mut command: Command, leaks| {
        // The stand-in for the kernel is loaded into a program that contains the sanitizer, and finds the
        // sanitizer's functions there.
        let flags = "-Zsanitizer=address -Clink-arg=-Wl,--export-dynamic";
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
        let options = format!("verify_asan_link_order=0:detect_stack_use_after_return=1:{leaks}");
        command.env("ASAN_OPTIONS", options);
        check(command)
    };
    all.into_iter().try_for_each(|(tests, leaks)| run(host.cargo("test", tests), leaks))?;
    run(host.cargo("build", BEHIND), no_leaks)?;
    run(host.behind(&[]), no_leaks)
}

/// The beginning of the command that runs a program under valgrind.
const VALGRIND: &[&str] =
    &["valgrind", "--quiet", "--error-exitcode=9", "--trace-children=yes", "--leak-check=no"];

fn valgrind() -> Result<(), String> {
    debian::install(&[debian::VERBS, debian::VALGRIND].concat())?;
    let host = Host::ask()?;
    let stand_in = stand_in_without(NOT_WITH_VALGRIND);
    [CORE, DEVICE, SCENARIOS, &stand_in].into_iter().try_for_each(|tests| {
        let mut command = host.cargo("test", tests);
        command.env(host.runner(), VALGRIND.join(" "));
        // Programs under valgrind are fifty times as slow: property tests try few cases, and each scenario
        // uses one posting method.
        command.env("PROPTEST_CASES", "8").env("HIL_WAYS", "1");
        check(command)
    })?;
    check(host.cargo("build", BEHIND))?;
    check(host.behind(VALGRIND))
}

/// The target triple of this machine, and the folder of its standard library.
struct Host {
    triple: String,
    library: String,
}

impl Host {
    fn ask() -> Result<Self, String> {
        let rustc = run::tool("rustc");
        let print = |what| answer(program(&rustc, &["--print", what]));
        Ok(Self { triple: print("host-tuple")?, library: print("target-libdir")? })
    }

    fn has_library(&self, sanitizer: &str) -> bool {
        let end = format!("_rt.{sanitizer}.a");
        let files = fs::read_dir(Path::new(&self.library)).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.file_name().to_string_lossy().ends_with(&end))
    }

    /// Returns a call of cargo. With `--target`, build scripts and procedural macros stay uninstrumented.
    fn cargo(&self, subcommand: &str, of: &[&str]) -> Command {
        let mut command =
            cargo(&[subcommand, "--quiet", "--target", &self.triple, "--target-dir", "target/sanitize"]);
        command.args(of);
        command
    }

    /// Returns a command that runs the scenarios behind the stand-in for the kernel. `under` is the beginning
    /// of the command line, such as valgrind's.
    fn behind(&self, under: &[&str]) -> Command {
        let built = root().join("target/sanitize").join(&self.triple).join("debug");
        let hil = built.join("hil").to_string_lossy().into_owned();
        let words = [&["--"], under, &[&hil, "--device", "uverbs", "--ways", "1"]].concat();
        let words: Vec<_> = words.into_iter().map(String::from).collect();
        emulate::with_library(&built.join("libmlx5_uverbs.so"), &words)
    }

    /// Returns the name of the environment variable with which cargo takes a command that runs the tests,
    /// such as valgrind.
    fn runner(&self) -> String {
        format!("CARGO_TARGET_{}_RUNNER", self.triple.to_uppercase().replace(['-', '.'], "_"))
    }
}
