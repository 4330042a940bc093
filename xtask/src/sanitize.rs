//! `cargo xtask sanitize`: the tests under AddressSanitizer and under valgrind.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use xtask::debian;
use xtask::run::{self, answer, cargo, check, program};

pub(crate) const HELP: &str = "\
cargo xtask sanitize [address | valgrind]

Runs the unit tests of the core and the tests of the software device and of the stand-in for the
kernel, behind the real libmlx5, and the scenarios on the software device with AddressSanitizer: no
access out of bounds or after the end, no leak (but of the stand-in's tests, which leave objects of
libibverbs behind). Then those of the core and of the stand-in under valgrind, which sees the code
of libmlx5 as well. Without a word both.

The compiler has to come with the sanitizer's library, as rustup's do. The test command does not run
this: it takes half an hour.
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

const CORE: Tests = &["--package", "mlx5-mkey", "--lib"];
const DEVICE: Tests = &["--package", "mlx5-softdev", "--lib", "--tests"];
const STAND_IN: Tests = &["--package", "mlx5-uverbs", "--lib", "--tests"];
/// As above, without tests that load the stand-in into programs that have no sanitizer in them.
const STAND_IN_ALONE: Tests = &[
    "--package",
    "mlx5-uverbs",
    "--lib",
    "--tests",
    "--",
    "--skip",
    "why_there_is_no_device_is_said_once",
    "--skip",
    "the_device_is_among_files_whichever_way_one_looks",
];
const SCENARIOS: Tests = &["--package", "hil-tests", "--test", "tests", "--", "softdev"];

fn address() -> Result<(), String> {
    debian::install(debian::VERBS)?;
    let host = Host::ask()?;
    if !host.has_library("asan") {
        return Err("the compiler comes without AddressSanitizer's library (librustc-*_rt.asan.a)".into());
    }
    // Tests of the stand-in leave objects of libibverbs behind, on purpose or since their programs end.
    let (leaks, no_leaks) = ("detect_leaks=1", "detect_leaks=0");
    let all = [(CORE, leaks), (DEVICE, leaks), (SCENARIOS, leaks), (STAND_IN_ALONE, no_leaks)];
    all.into_iter().try_for_each(|(tests, leaks)| {
        let mut command = host.test(tests);
        // The stand-in is loaded before a program that has the sanitizer in itself, and finds it there.
        let flags = "-Zsanitizer=address -Clink-arg=-Wl,--export-dynamic";
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
        let options = format!("verify_asan_link_order=0:detect_stack_use_after_return=1:{leaks}");
        command.env("ASAN_OPTIONS", options);
        check(command)
    })
}

fn valgrind() -> Result<(), String> {
    debian::install(&[debian::VERBS, debian::VALGRIND].concat())?;
    let host = Host::ask()?;
    [CORE, STAND_IN].into_iter().try_for_each(|tests| {
        let mut command = host.test(tests);
        command
            .env(host.runner(), "valgrind --quiet --error-exitcode=9 --trace-children=yes --leak-check=no");
        // It is fifty times as slow.
        command.env("PROPTEST_CASES", "8");
        check(command)
    })
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

    /// Returns a command that runs tests. With a target named, what runs in the compiler is built as always.
    fn test(&self, tests: Tests) -> Command {
        let mut command =
            cargo(&["test", "--quiet", "--target", &self.triple, "--target-dir", "target/sanitize"]);
        command.args(tests);
        command
    }

    /// Returns the variable that names what cargo runs tests with.
    fn runner(&self) -> String {
        format!("CARGO_TARGET_{}_RUNNER", self.triple.to_uppercase().replace(['-', '.'], "_"))
    }
}
