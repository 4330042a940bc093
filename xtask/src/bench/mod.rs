//! `cargo xtask bench`: instructions for each request.

mod emulator;
mod goals;
mod plot;
mod record;
mod table;

use crate::test::Outcome;
use emulator::Measured;
use record::{Counts, Profile, Row};
use std::env::consts::ARCH;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use table::Conditions;
use xtask::run::{self, cargo};
use xtask::toolchain::{Board, System, Toolchain};
use xtask::{debian, emulate, host};

pub(crate) const HELP: &str = "\
cargo xtask bench [--host] [--json | --svg FILE | --record | --readme]
cargo xtask bench --emulator [--json]

Counts the instructions of each request under callgrind: what the library executes, from native
values to the doorbell; what the installed libmlx5 does for the same request, as it comes, with its
locks, which nobody else wants, and BlueFlame; libmlx5 stripped of these, for one thread and without
BlueFlame (MLX5_SINGLE_THREADED=1, MLX5_SHUT_UP_BF=1); a bare copy of the same bytes with its
doorbell; and a floor, the least that was written by hand for a few works. The program is built in
two profiles: release, as cargo builds by default, and lto, with fat LTO and one codegen unit
([profile.bench]). libmlx5 is counted once, and has the same counts in both. The software device
takes its turns where libmlx5 gives a lock back; that is not counted.

The same for the Cortex-A72 and the Cortex-A78 (no libmlx5 there, release only): a bare-metal image
in QEMU, which counts instructions as a clock.

A count is the difference of two runs, one with more requests, so that nothing else is in it;
the same program always has the same counts. How long the stripped libmlx5 takes in relation to the
library, the median of rounds in which both have their turn, is for information: it depends on the
machine and on the moment.

  --host       on this machine only
  --json       one object on standard output, {\"machine\", \"date\", \"rows\": [{\"work\",
               \"batch\", \"arch\", \"profile\": \"release\"|\"lto\", \"ours\", \"libmlx5\",
               \"libmlx5_stripped\", \"copy\", \"floor\", \"time\"}]}: instructions for a request,
               null where a side does not do the work; time is that of the stripped libmlx5 divided
               by the library's on this machine and date, null where it is not measured
  --svg FILE   a plot: instructions against the number of scatter entries, from 1 to the most
  --record     write the counts to hil-tests/benches, where `cargo xtask test` compares with them
  --readme     write the recorded counts to hil-tests/benches/README.md, and some to README.md
  --emulator   instead of all this: how fast the software device is under programs of others, two
               processes on two cores: MB a second of RDMA WRITEs (perftest) and microseconds of a
               polled ping-pong (ibv_rc_pingpong), mkeys made and destroyed in a second; beside
               them, in the same rounds, TCP and a pair of sockets between two processes, and
               memcpy. With --json, {\"rows\": [{\"work\", \"value\"}]}. Fails where the ratios are not
               met that it names: they are for a machine with two cores and nothing else to do

What the works are is said in hil-tests/benches/src/lib.rs.
";

/// What callgrind calls the function that is counted.
const COUNTED: &str = "bench::bench_counted_region";

/// The library that the software device is in.
const DEVICE: &str = "libmlx5_uverbs.so";

/// How the device takes keys, and its engine.
const PLAIN_KEYS: &str = "plaintext";
const ENGINE: &str = "multi-block";

/// The arguments of the program that counts everything on this machine, that counts libmlx5, and that counts what depends on the
/// profile.
const ALL_SIDES: &[&str] = &["count"];
const LIBMLX5: &[&str] = &["count", "libmlx5"];
const WITHOUT_LIBMLX5: &[&str] = &["count", "ours", "copy", "floor"];

/// What makes libmlx5 do without locks, and with a doorbell of 8 bytes.
const STRIPPED: [(&str, &str); 2] = [("MLX5_SINGLE_THREADED", "1"), ("MLX5_SHUT_UP_BF", "1")];

/// How libmlx5 is set up.
#[derive(Clone, Copy)]
enum Libmlx5 {
    /// With locks and BlueFlame.
    AsItComes,
    /// For one thread, and without BlueFlame.
    Stripped,
}

impl Libmlx5 {
    /// Has a program find libmlx5 so, whatever is set around it.
    fn set_up(self, command: &mut Command) {
        for (variable, value) in STRIPPED {
            match self {
                Self::AsItComes => command.env_remove(variable),
                Self::Stripped => command.env(variable, value),
            };
        }
    }
}

/// The functions of locks. libmlx5 calls those of the software device, which takes its turns there, and these call those of the C
/// library: callgrind stops counting in the first and goes on in the second, so that all of the lock is counted and nothing else.
const LOCKS: &str = "pthread_spin_*";

/// Which functions of the C library there are depends on the machine, unless it is told: those of SSE2.
const PLAIN_MACHINE: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-ERMS,-FSRM";

/// Counts, and shows the counts as the arguments want.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if let Some((_, rest)) = arguments.split_first().filter(|(first, _)| *first == "--emulator") {
        let measured = match rest {
            [] => emulator::measure(false),
            [json] if json == "--json" => emulator::measure(true),
            _ => return run::misuse(HELP),
        };
        return match measured {
            Ok(Measured { text, missed }) if missed.is_empty() => run::print(&text, 0),
            Ok(Measured { text, missed }) => {
                let status = run::print(&text, 1);
                run::failed(&missed.join("\n"));
                status
            }
            Err(message) => run::failed(&message),
        };
    }
    let (host, rest): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| *argument == "--host");
    let counted = || if host.is_empty() { everywhere() } else { native() };
    let timed = || counted().and_then(|counts| with_times(counts.rows));
    let result = match rest[..] {
        [] => timed().map(|rows| format!("{}{}", table::text(&rows), footnote())),
        ["--json"] => timed().map(|rows| table::json(&rows, &conditions())),
        ["--svg", file] => draw(file),
        ["--record"] => everywhere().and_then(|counts| record::write(&counts)),
        ["--readme"] => record::read().and_then(|recorded| table::write_readme(&recorded.rows)),
        ["--help" | "-h"] => Ok(HELP.into()),
        _ => return run::misuse(HELP),
    };
    match result {
        Ok(text) => run::print(&text, 0),
        Err(message) => run::failed(&message),
    }
}

/// Counts on this machine and on the cores of all boards.
fn everywhere() -> Result<Counts, String> {
    let mut counts = native()?;
    for board in Board::ALL {
        let bare = bare_metal(board)?;
        counts.compilers.extend(bare.compilers);
        counts.rows.extend(bare.rows);
    }
    Ok(counts)
}

/// Counts on this machine.
fn native() -> Result<Counts, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let compilers = vec![(ARCH.into(), record::version(&rustc)?)];
    let mut rows = count(Profile::Release, ALL_SIDES, Libmlx5::Stripped)?;
    let whole = count(Profile::Release, LIBMLX5, Libmlx5::AsItComes)?;
    rows.iter_mut().for_each(|row| row.take_libmlx5(&whole));
    let mut optimised = count(Profile::Lto, WITHOUT_LIBMLX5, Libmlx5::Stripped)?;
    // What is installed does not depend on how the program was built.
    optimised.iter_mut().for_each(|row| row.take_libmlx5(&rows));
    rows.extend(optimised);
    Ok(Counts { compilers, rows })
}

/// Counts on the core of a board, as QEMU has it.
fn bare_metal(board: Board) -> Result<Counts, String> {
    let arch = format!("aarch64-{}", board.cpu());
    let rustc = Toolchain::find(board, System::None)?.rustc;
    let lines = run::answer(host::task("xtask-boards", &["firmware", "--board", board.name(), "--count"])?)?;
    let total = |line: &'_ str| {
        let (name, total) = line.rsplit_once(' ')?;
        // The rest is log.
        (name.split(' ').count() == 4).then_some((name.to_owned(), total.parse().ok()?))
    };
    let totals: Vec<(String, u64)> = lines.lines().filter_map(total).collect();
    let totals: Vec<(&str, u64)> = totals.iter().map(|(line, total)| (line.as_str(), *total)).collect();
    Ok(Counts {
        compilers: vec![(arch.clone(), record::version(&rustc)?)],
        rows: record::rows(&arch, Profile::Release, &totals)?,
    })
}

/// Compares with the recorded counts.
pub(crate) fn check(out: &mut dyn Write) -> Outcome {
    match record::read().and_then(|recorded| compare(&recorded, &everywhere()?, out)) {
        // What another compiler makes of it is not held against anybody.
        Ok(0) => Outcome::Skipped(
            "counts were recorded with another rustc, see hil-tests/benches (cargo xtask bench --record)"
                .into(),
        ),
        Ok(_) => Outcome::Passed,
        Err(message) => Outcome::Failed(message),
    }
}

/// Compares where the compiler is the one of then; returns for how many architectures that is so.
fn compare(recorded: &Counts, counts: &Counts, out: &mut dyn Write) -> Result<usize, String> {
    let (mut compared, mut faults) = (0, Vec::new());
    for (arch, compiler) in &counts.compilers {
        if recorded.compiler(arch).is_some_and(|then| then != compiler) {
            faults_to(
                out,
                &[format!("SKIPPED 1: {arch}: not compared, recorded with another compiler than {compiler}")],
            )?;
            continue;
        }
        let of = |rows: &[Row]| rows.iter().filter(|row| row.arch == *arch).cloned().collect::<Vec<_>>();
        faults.extend(record::compare(&of(&recorded.rows), &of(&counts.rows)));
        compared += 1;
    }
    if compared == counts.compilers.len() {
        faults.extend(goals::missed(&counts.rows));
    }
    faults_to(out, &faults)?;
    match faults.len() {
        0 => Ok(compared),
        number => Err(format!("{number} counts are not as they were recorded")),
    }
}

fn faults_to(out: &mut dyn Write, faults: &[String]) -> Result<(), String> {
    faults.iter().try_for_each(|fault| writeln!(out, "{fault}")).map_err(|error| error.to_string())
}

/// Counts for each number of scatter entries and draws it.
fn draw(file: &str) -> Result<String, String> {
    let rows = count(Profile::Lto, &["plot"], Libmlx5::Stripped)?;
    let picture = plot::svg(&rows)?;
    fs::write(file, picture).map_err(|error| format!("{file}: {error}"))?;
    plot::slopes(&rows)
}

/// Builds the program and returns where it is. Cargo puts it in the same place whatever the profile.
fn program(profile: Profile) -> Result<PathBuf, String> {
    debian::install(debian::VALGRIND)?;
    run::check(cargo(&["build", "--quiet", "--profile", profile.cargo(), "--package", "mlx5-bench"]))?;
    let built = run::built("release", "bench")?;
    let program = built.with_file_name(format!("bench-{}", profile.name()));
    fs::copy(built, &program).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(program)
}

/// Counts instructions of what the program does with these arguments.
fn count(profile: Profile, arguments: &[&str], libmlx5: Libmlx5) -> Result<Vec<Row>, String> {
    let program = program(profile)?;
    let folder = run::root().join("target/bench");
    // Dumps of an earlier run would be taken for those of this one.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let dump = folder.join("dump");
    let mut words = vec![
        "valgrind".into(),
        "--quiet".into(),
        "--tool=callgrind".into(),
        // Names in full: DEVICE is looked for.
        "--compress-strings=no".into(),
        "--collect-atstart=no".into(),
        format!("--toggle-collect={COUNTED}"),
        format!("--toggle-collect={LOCKS}"),
        // Locks that are taken outside of it.
        format!("--zero-before={COUNTED}"),
        format!("--dump-after={COUNTED}"),
        format!("--callgrind-out-file={}", dump.display()),
        program.display().to_string(),
    ];
    words.extend(arguments.iter().copied().map(String::from));
    let mut command = emulate::command(words, PLAIN_KEYS, ENGINE)?;
    libmlx5.set_up(&mut command);
    // Functions are found when the program starts, not in what is counted.
    command.env("LD_BIND_NOW", "1").env("GLIBC_TUNABLES", PLAIN_MACHINE);
    let lines = run::answer(command)?;
    let totals = lines.lines().zip(1..).map(|(line, number)| {
        let file = dump.with_extension(number.to_string());
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let of_device = record::counted_in(&text, DEVICE);
        if of_device != 0 {
            return Err(format!(
                "{line}: {of_device} instructions of the software device are counted as well"
            ));
        }
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let total = total.and_then(|total| total.trim().parse().ok());
        Ok((line, total.ok_or(format!("{} has no sum", file.display()))?))
    });
    let totals = totals.collect::<Result<Vec<(&str, u64)>, String>>()?;
    record::rows(ARCH, profile, &totals)
}

/// Times where it can be done, and puts it to the counts.
fn with_times(mut rows: Vec<Row>) -> Result<Vec<Row>, String> {
    for profile in Profile::ALL {
        let words = vec![program(profile)?.display().to_string(), "time".into()];
        let mut command = emulate::command(words, PLAIN_KEYS, ENGINE)?;
        Libmlx5::Stripped.set_up(&mut command);
        let lines = run::answer(command)?;
        for line in lines.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [work, batch, ratio] = words[..] else { continue };
            let is_it = |row: &&mut Row| {
                (row.arch.as_str(), row.profile) == (ARCH, profile)
                    && row.work == work
                    && row.batch.to_string() == batch
            };
            if let Some(row) = rows.iter_mut().find(is_it) {
                row.time = ratio.parse().ok();
            }
        }
    }
    Ok(rows)
}

/// Returns where and when times are measured.
fn conditions() -> Conditions {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let machine = name.map_or("an unknown CPU", |(_, name)| name).into();
    Conditions { machine, date: run::answer(run::program("date", &["-u", "+%F"])).unwrap_or_default() }
}

/// Returns the line below the table.
fn footnote() -> String {
    let Conditions { machine, date } = conditions();
    format!("time: libmlx5's divided by the library's, median of rounds, on {machine}, {date}\n")
}
