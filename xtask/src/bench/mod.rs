//! `cargo xtask bench`: counts the instructions of each request.

mod emulator;
mod goals;
mod guest;
mod plot;
mod record;
mod table;
mod times;

use crate::outcome::Outcome;
use record::{Counts, Profile, Row};
use std::env::consts::ARCH;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use times::{Conditions, Timed};
use xtask::host::FIRMWARE;
use xtask::run::{self, At, cargo};
use xtask::toolchain::{Board, System, Toolchain};
use xtask::{debian, emulate, host};

pub(crate) const HELP: &str = "\
cargo xtask bench [--host] [--json | --svg FILE | --record | --record-times | --readme]
cargo xtask bench --emulator [--json]
cargo xtask bench --guest

Counts the instructions of each request under callgrind, for five sides:

  ours              the library, from native values to the doorbell
  libmlx5           the installed libmlx5 with its defaults: locks (without contention), BlueFlame
  libmlx5_stripped  libmlx5 for one thread and without BlueFlame (MLX5_SINGLE_THREADED=1,
                    MLX5_SHUT_UP_BF=1)
  copy              a bare copy of the same bytes, with its doorbell
  floor             the shortest code written by hand, for a few works

The benchmark program is built in two profiles: release, cargo's default, and lto, with fat LTO and
one codegen unit ([profile.bench]). libmlx5 is counted once, for both. The software device executes
rings when libmlx5 releases a lock; its instructions are not counted. For the Cortex-A72 and the
Cortex-A78, a bare-metal image runs in QEMU, which counts instructions as a clock: without libmlx5,
in the release profile only.

A count is the difference of two runs, one with more requests, so it contains the requests alone.
The same program always has the same counts. Users wait for time: each request is also timed, in
rounds in which the stripped libmlx5 and the library take turns in one process. A time depends on
the machine and on its load, which are printed beside it. No test compares times.

  --host       count on this machine only
  --json       print one object, {\"machine\", \"date\", \"load\", \"rows\": [{\"work\", \"batch\",
               \"arch\", \"profile\": \"release\"|\"lto\", \"ours\",
               \"libmlx5\", \"libmlx5_stripped\", \"copy\", \"floor\", \"time\"}]}:
               instructions for each request, null if the side does not perform the work; time has
               nanoseconds of the library and of the stripped libmlx5 in their best runs, the ratio
               of these two, and the median ratio of all rounds, null if not measured
  --svg FILE   plot instructions against the number of scatter entries
  --record     write the counts to hil-tests/benches; `cargo xtask test bench` compares with them
  --record-times
               time the release profile on this machine and write the times to
               hil-tests/benches/times.csv: on a quiet machine only
  --readme     write the recorded counts and times to hil-tests/benches/README.md, some to README.md
  --emulator   measure the speed of the software device instead, under programs of others in two
               processes on two cores: RDMA WRITEs in MB/s (perftest), a polled ping-pong in
               microseconds (ibv_rc_pingpong), mkeys created and destroyed in a second. The same
               rounds measure TCP, a pair of sockets, and memcpy. Fails if a ratio is outside its
               bound; the bounds are for a quiet machine with two cores. With --json:
               {\"rows\": [{\"work\", \"value\"}]}
  --guest      measure the PCI function under Linux's own driver in an emulated guest: from doorbell
               to completion, MB/s, posts a second (perftest). The same programs on the stand-in,
               without a guest, and the time in the device for each doorbell, show what of it is the
               emulated processor. On a quiet machine only

hil-tests/benches/src/lib.rs describes the works.
";

/// The function whose instructions are counted, as callgrind names it.
const COUNTED: &str = "bench::bench_counted_region";

/// The library that contains the software device.
const DEVICE: &str = "libmlx5_uverbs.so";

/// Options of the software device: the form in which it imports crypto keys (`--crypto`), and its AES-XTS
/// engine (`--engine`).
const PLAIN_KEYS: &str = "plaintext";
const ENGINE: &str = "multi-block";

/// Arguments of the benchmark program. They select the sides whose instructions the program counts: all
/// sides (the library, libmlx5, a bare copy, the shortest code), libmlx5 alone, or all but libmlx5, which no
/// profile of cargo changes.
const ALL_SIDES: &[&str] = &["count"];
const LIBMLX5: &[&str] = &["count", "libmlx5"];
const WITHOUT_LIBMLX5: &[&str] = &["count", "ours", "copy", "floor"];

/// Environment variables that make libmlx5 work without locks, and with a doorbell of 8 bytes.
const STRIPPED: [(&str, &str); 2] = [("MLX5_SINGLE_THREADED", "1"), ("MLX5_SHUT_UP_BF", "1")];

#[derive(Clone, Copy)]
enum Libmlx5 {
    /// libmlx5's defaults: with locks and BlueFlame.
    AsItComes,
    /// libmlx5 for one thread, without locks and BlueFlame.
    Stripped,
}

impl Libmlx5 {
    /// Sets the environment variables of [`STRIPPED`] for a command, or removes them.
    fn set_up(self, command: &mut Command) {
        for (variable, value) in STRIPPED {
            match self {
                Self::AsItComes => command.env_remove(variable),
                Self::Stripped => command.env(variable, value),
            };
        }
    }
}

/// The names of the lock functions. libmlx5 calls the lock functions of the software device, which executes
/// the rings and calls the lock functions of the C library. Callgrind switches counting at each lock
/// function: off in the device's function, on again in the C library's function. The count then contains the
/// whole lock and nothing of the device.
const LOCKS: &str = "pthread_spin_*";

/// Selects the SSE2 functions of the C library. By default, the choice depends on the machine.
const PLAIN_MACHINE: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-ERMS,-FSRM";

/// Counts instructions or measures times, as `arguments` say. Prints the result, or writes it to the file
/// that an option names.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let (host, rest): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| *argument == "--host");
    let counted = || if host.is_empty() { everywhere() } else { native() };
    let timed = || counted().and_then(|counts| with_times(counts.rows));
    let result = match rest[..] {
        [] => timed().map(|rows| format!("{}{}", table::text(&rows), footnote())),
        ["--json"] => timed().map(|rows| table::json(&rows, &Conditions::now())),
        ["--svg", file] => draw(file),
        ["--emulator"] => emulator::measure(false),
        ["--emulator", "--json"] => emulator::measure(true),
        ["--guest"] => guest::measure(),
        ["--record"] => everywhere().and_then(|counts| record::write(&counts)),
        ["--record-times"] => time(Profile::Release).and_then(times::write),
        ["--readme"] => {
            record::read().and_then(|recorded| table::write_readme(&recorded.rows, &times::read()?))
        }
        ["--help" | "-h"] => Ok(HELP.into()),
        _ => return run::misuse(HELP),
    };
    match result {
        Ok(text) => run::print(&text, 0),
        Err(message) => run::failed(&message),
    }
}

/// Counts on this machine and on the emulated cores of all boards.
fn everywhere() -> Result<Counts, String> {
    let mut counts = native()?;
    for board in Board::ALL {
        let bare = bare_metal(board)?;
        counts.compilers.extend(bare.compilers);
        counts.rows.extend(bare.rows);
    }
    Ok(counts)
}

fn native() -> Result<Counts, String> {
    let rustc = run::tool("rustc");
    let compilers = vec![(ARCH.into(), record::version(&rustc)?)];
    let mut rows = count(Profile::Release, ALL_SIDES, Libmlx5::Stripped)?;
    let whole = count(Profile::Release, LIBMLX5, Libmlx5::AsItComes)?;
    rows.iter_mut().for_each(|row| row.take_libmlx5(&whole));
    let mut optimised = count(Profile::Lto, WITHOUT_LIBMLX5, Libmlx5::Stripped)?;
    // The count of the installed libmlx5 does not depend on the profile.
    optimised.iter_mut().for_each(|row| row.take_libmlx5(&rows));
    rows.extend(optimised);
    Ok(Counts { compilers, rows })
}

fn bare_metal(board: Board) -> Result<Counts, String> {
    let arch = format!("aarch64-{}", board.cpu());
    let rustc = Toolchain::find(board, System::None)?.rustc;
    let lines = run::answer(host::task(FIRMWARE, &["firmware", "--board", board.name(), "--count"])?)?;
    let total = |line: &'_ str| {
        let (name, total) = line.rsplit_once(' ')?;
        // Only lines with counts have four words before a number. Other lines are log output.
        (name.split(' ').count() == 4).then_some((name.to_owned(), total.parse().ok()?))
    };
    let totals: Vec<(String, u64)> = lines.lines().filter_map(total).collect();
    let totals: Vec<(&str, u64)> = totals.iter().map(|(line, total)| (line.as_str(), *total)).collect();
    Ok(Counts {
        compilers: vec![(arch.clone(), record::version(&rustc)?)],
        rows: record::rows(&arch, Profile::Release, &totals)?,
    })
}

/// Counts on this machine and on the emulated cores, and compares the counts with the recorded ones.
pub(crate) fn check(out: &mut dyn Write) -> Outcome {
    match record::read().and_then(|recorded| compare(&recorded, &everywhere()?, out)) {
        // Counts of another compiler are not comparable.
        Ok(0) => Outcome::Skipped(
            "counts were recorded with another rustc (hil-tests/benches; cargo xtask bench --record)".into(),
        ),
        Ok(_) => Outcome::Passed,
        Err(message) => Outcome::Failed(message),
    }
}

/// Compares the counts of each architecture that was recorded with the same compiler. Returns the number of
/// compared architectures.
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
        number => Err(format!("{number} counts differ from the recorded ones")),
    }
}

fn faults_to(out: &mut dyn Write, faults: &[String]) -> Result<(), String> {
    faults.iter().try_for_each(|fault| writeln!(out, "{fault}")).map_err(|error| error.to_string())
}

/// Counts for each number of scatter entries, and draws the counts into an SVG file. Returns the slopes as
/// text.
fn draw(file: &str) -> Result<String, String> {
    let rows = count(Profile::Lto, &["plot"], Libmlx5::Stripped)?;
    let picture = plot::svg(&rows)?;
    fs::write(file, picture).map_err(|error| format!("{file}: {error}"))?;
    plot::slopes(&rows)
}

/// Builds the benchmark program and returns its path. The program is copied, because cargo builds both
/// profiles to the same path.
fn program(profile: Profile) -> Result<PathBuf, String> {
    debian::install(debian::VALGRIND)?;
    run::check(cargo(&["build", "--quiet", "--profile", profile.cargo(), "--package", "mlx5-bench"]))?;
    let built = run::built("release", "bench")?;
    let program = built.with_file_name(format!("bench-{}", profile.name()));
    fs::copy(built, &program).at(&program)?;
    Ok(program)
}

fn count(profile: Profile, arguments: &[&str], libmlx5: Libmlx5) -> Result<Vec<Row>, String> {
    let program = program(profile)?;
    let folder = run::root().join("target/bench");
    // Dumps of an earlier run must not be mixed with the dumps of this run.
    run::empty(&folder)?;
    let dump = folder.join("dump");
    let mut words = vec![
        "valgrind".into(),
        "--quiet".into(),
        "--tool=callgrind".into(),
        // The dump contains full names, because the name of the device's library is searched for in it.
        "--compress-strings=no".into(),
        "--collect-atstart=no".into(),
        format!("--toggle-collect={COUNTED}"),
        format!("--toggle-collect={LOCKS}"),
        // With this option, callgrind forgets the instructions of locks that were taken before the counted
        // function.
        format!("--zero-before={COUNTED}"),
        format!("--dump-after={COUNTED}"),
        format!("--callgrind-out-file={}", dump.display()),
        program.display().to_string(),
    ];
    words.extend(arguments.iter().copied().map(String::from));
    let mut command = emulate::idle(words, PLAIN_KEYS, ENGINE)?;
    libmlx5.set_up(&mut command);
    // With `LD_BIND_NOW`, the dynamic linker resolves functions at start-up, outside of the counted function.
    command.env("LD_BIND_NOW", "1").env("GLIBC_TUNABLES", PLAIN_MACHINE);
    let lines = run::answer(command)?;
    let totals = lines.lines().zip(1..).map(|(line, number)| {
        let file = dump.with_extension(number.to_string());
        let text = fs::read_to_string(&file).at(&file)?;
        let of_device = record::counted_in(&text, DEVICE);
        if of_device != 0 {
            return Err(format!("{line}: {of_device} of the counted instructions are the software device's"));
        }
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let total = total.and_then(|total| total.trim().parse().ok());
        Ok((line, total.ok_or(format!("{} has no sum", file.display()))?))
    });
    let totals = totals.collect::<Result<Vec<(&str, u64)>, String>>()?;
    record::rows(ARCH, profile, &totals)
}

fn time(profile: Profile) -> Result<Vec<Timed>, String> {
    let words = vec![program(profile)?.display().to_string(), "time".into()];
    let mut command = emulate::idle(words, PLAIN_KEYS, ENGINE)?;
    Libmlx5::Stripped.set_up(&mut command);
    run::answer(command).map(|text| times::printed(&text))
}

fn with_times(mut rows: Vec<Row>) -> Result<Vec<Row>, String> {
    for profile in Profile::ALL {
        times::put_to(&mut rows, ARCH, profile, &time(profile)?);
    }
    Ok(rows)
}

/// Returns the line below the table: it explains the columns with times.
fn footnote() -> String {
    let Conditions { machine, date, load } = Conditions::now();
    format!(
        "ns: of the library in its best run; best, median: how many times longer the stripped libmlx5 \
         takes, by the best runs and in the median round; {machine}, {date}, load {load}\n"
    )
}
