//! `cargo xtask sanitize`: the tests under AddressSanitizer and under valgrind.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use xtask::run::{self, answer, cargo, check, program, root};
use xtask::{debian, emulate};

pub(crate) const HELP: &str = "\
cargo xtask sanitize [address | valgrind]

Runs the unit tests of the core with all that is built on it, the tests of the software device and
of the stand-in for the kernel, behind the real libmlx5, the scenarios on the software device and
behind libmlx5, the tests of the command queue and of properties with AddressSanitizer: no access
out of bounds or after the end, and of the core and the software device no leak. (The stand-in's
tests leave objects of libibverbs behind, and scenarios give memory to their device for good.) Then
all of them under valgrind, which sees the code of libmlx5 as well, and looks at accesses only.
Without a word both. Left out are: with AddressSanitizer two tests of the stand-in that load it into
programs that have no sanitizer in them, and one that takes memory where the sanitizer has its own;
under valgrind one that gives the kernel a bad address, and two that measure how long a thread
computes; under both those that look for secrets in all memory, of which the tool has most, and
keeps what was on the stack.

The compiler has to come with the sanitizer's library, as rustup's do. It takes half an hour: the
step `sanitize` of `cargo xtask test --nightly` runs it.
";

/// Runs one of them, or both.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h"] => return run::print(HELP, 0),
        [] => address().and_then(|()| valgrind()),
        ["address"] => address(),
        ["valgrind"] => valgrind(),
        _ => return run::misuse(HELP),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => run::failed(&what),
    }
}

/// Packages and the tests of them that run.
type Tests = &'static [&'static str];

const CORE: Tests = &["--package", "mlx5-mkey", "--features", "capi", "--lib"];
const DEVICE: Tests = &["--package", "mlx5-softdev", "--package", "mlx5-softdev-tests", "--lib"];
const STAND_IN: Tests = &["--package", "mlx5-uverbs", "--lib", "--tests", "--"];
/// Tests of the stand-in that AddressSanitizer leaves out: they load it into programs that have no sanitizer in them, take
/// memory where the sanitizer has its own, or look for secrets in all memory: frames of functions that have returned are kept.
const NOT_WITH_ADDRESS: Tests = &[
    "--skip",
    "secrets",
    "--skip",
    "why_there_is_no_device_is_said_once",
    "--skip",
    "the_device_is_among_files_whichever_way_one_looks",
    "--skip",
    "calls_of_any_kind_leave_nothing_behind",
];
/// And those that valgrind does: one gives the kernel a bad address, two measure how long a thread computes, and the search would
/// be of valgrind's memory, too.
const NOT_WITH_VALGRIND: Tests = &[
    "--skip",
    "secrets",
    "--skip",
    "good_addresses_move_bytes_and_bad_ones_are_refused",
    "--skip",
    "a_thread_that_sleeps_is_woken",
    "--skip",
    "the_example_sleeps_in_tokio",
];
/// The program that runs scenarios behind the stand-in, and the stand-in.
const BEHIND: Tests = &["--package", "hil-tests", "--bin", "hil", "--package", "mlx5-uverbs", "--lib"];
/// Scenarios on the software device, the command queue, and properties. Two tests that look for a key are left out: on the stack,
/// of which AddressSanitizer keeps what was there, and in all memory, of which most is the tool's.
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

/// Returns what the compiler lacks for AddressSanitizer, if it lacks something.
///
/// # Errors
/// The compiler cannot be asked.
pub(crate) fn missing() -> Result<Option<&'static str>, String> {
    let has_library = Host::ask()?.has_library("asan");
    let what = "the compiler comes without AddressSanitizer's library (librustc-*_rt.asan.a)";
    Ok((!has_library).then_some(what))
}

fn address() -> Result<(), String> {
    debian::install(debian::VERBS)?;
    if let Some(what) = missing()? {
        return Err(what.into());
    }
    let host = Host::ask()?;
    // Scenarios give memory, which a device may still write, to it for good. Tests of the stand-in leave objects of libibverbs
    // behind, on purpose or since their programs end.
    let (leaks, no_leaks) = ("detect_leaks=1", "detect_leaks=0");
    let stand_in = [STAND_IN, NOT_WITH_ADDRESS].concat();
    let all: [(&[&str], _); 4] =
        [(CORE, leaks), (DEVICE, leaks), (SCENARIOS, no_leaks), (&stand_in, no_leaks)];
    let run = |mut command: Command, leaks| {
        // The stand-in is loaded before a program that has the sanitizer in itself, and finds it there.
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

/// What every program runs in.
const VALGRIND: &[&str] =
    &["valgrind", "--quiet", "--error-exitcode=9", "--trace-children=yes", "--leak-check=no"];

fn valgrind() -> Result<(), String> {
    debian::install(&[debian::VERBS, debian::VALGRIND].concat())?;
    let host = Host::ask()?;
    let stand_in = [STAND_IN, NOT_WITH_VALGRIND].concat();
    [CORE, DEVICE, SCENARIOS, &stand_in].into_iter().try_for_each(|tests| {
        let mut command = host.cargo("test", tests);
        command.env(host.runner(), VALGRIND.join(" "));
        // It is fifty times as slow: few cases of each property, and each scenario in one way of posting.
        command.env("PROPTEST_CASES", "8").env("HIL_WAYS", "1");
        check(command)
    })?;
    check(host.cargo("build", BEHIND))?;
    check(host.behind(VALGRIND))
}

/// This machine, as the compiler calls it.
struct Host {
    triple: String,
    library: String,
}

impl Host {
    fn ask() -> Result<Self, String> {
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        let said = answer(program(&rustc, &["--version", "--verbose"]))?;
        let triple =
            said.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
        let library = answer(program(&rustc, &["--print", "target-libdir"]))?;
        Ok(Self { triple: triple.into(), library })
    }

    /// Returns whether a sanitizer's library is there.
    fn has_library(&self, sanitizer: &str) -> bool {
        let end = format!("_rt.{sanitizer}.a");
        let files = fs::read_dir(Path::new(&self.library)).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.file_name().to_string_lossy().ends_with(&end))
    }

    /// Returns a command that builds, or builds and runs. With a target named, what runs in the compiler is built as always.
    fn cargo(&self, what: &str, of: &[&str]) -> Command {
        let mut command =
            cargo(&[what, "--quiet", "--target", &self.triple, "--target-dir", "target/sanitize"]);
        command.args(of);
        command
    }

    /// Returns a command that runs the scenarios behind the stand-in, as they were built, under another program.
    fn behind(&self, under: &[&str]) -> Command {
        let built = root().join("target/sanitize").join(&self.triple).join("debug");
        let hil = built.join("hil").to_string_lossy().into_owned();
        let words = [&["--"], under, &[&hil, "--device", "uverbs", "--ways", "1"]].concat();
        let words: Vec<_> = words.into_iter().map(String::from).collect();
        emulate::with_library(&built.join("libmlx5_uverbs.so"), &words)
    }

    /// Returns the variable that names what cargo runs tests with.
    fn runner(&self) -> String {
        format!("CARGO_TARGET_{}_RUNNER", self.triple.to_uppercase().replace(['-', '.'], "_"))
    }
}
