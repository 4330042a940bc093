//! `cargo xtask bench --emulator`: measures the speed of the software device under programs of other
//! projects. The same rounds measure TCP, a pair of sockets and memcpy on this machine, for comparison.

use crate::peer::Device;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;
use xtask::run::{self, cargo, check};
use xtask::{debian, emulate};

/// The number of rounds. Each round measures each work (a program, such as a ping-pong) once. The output has
/// the median of a work's values, and the median of the ratios within each round.
const ROUNDS: usize = 3;

/// The time limit of a program: several times the duration of the slowest program.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// The processors for the two ends of a connection.
pub(super) const CORES: [&str; 2] = ["0", "1"];

const WRITE_64K: &str = "write_bw_64k_mb_s";
const WRITE_4K: &str = "write_bw_4k_mb_s";
const MANY_QUEUES: &str = "write_bw_64k_16qp_mb_s";
const XTS: &str = "xts_64k_mb_s";
const PING: &str = "pingpong_polled_us";
const TCP: &str = "loopback_tcp_64k_mb_s";
const SOCKETS: &str = "socketpair_us";

/// The works that programs of other projects measure between two processes: name of the work, and the command
/// line of both processes.
const PAIRS: &[(&str, &[&str])] = &[
    (WRITE_64K, &["ib_write_bw", "-d", "mlx5_0", "-F", "-n", "20000", "-s", "65536"]),
    (WRITE_4K, &["ib_write_bw", "-d", "mlx5_0", "-F", "-n", "100000", "-s", "4096"]),
    (MANY_QUEUES, &["ib_write_bw", "-d", "mlx5_0", "-F", "-n", "1250", "-s", "65536", "-q", "16"]),
    (PING, &["ibv_rc_pingpong", "-d", "mlx5_0", "-g", "0", "-n", "10000"]),
];

/// Options of `ib_write_bw` for encrypted traffic. The options that name the files with keys are added later.
const ENCRYPTED: &[&str] = &["--aes_block_size=4096", "-s", "65536", "--encrypt_on_tx", "-n", "10000"];

/// Bounds on the ratio of two works: numerator, denominator, bound.
const RATIOS: &[(&str, &str, Bound)] = &[
    (WRITE_64K, TCP, Bound::AtLeast(0.5)),
    (MANY_QUEUES, WRITE_64K, Bound::AtLeast(0.9)),
    (PING, SOCKETS, Bound::AtMost(2.0)),
];

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// The name of a work, and its value in each round.
type Row = (String, Vec<f64>);

/// Measures all works, and returns the result as text. `json` selects JSON instead of a table.
///
/// # Errors
/// A line for each ratio outside its bound. The result was printed then.
pub(super) fn measure(json: bool) -> Result<String, String> {
    debian::install(debian::VERBS)?;
    debian::install(debian::PEERS)?;
    let folder = run::temporary("emulator")?;
    let device = Device { library: emulate::library()?, folder: folder.path() };
    check(cargo(&["build", "--release", "--package", "hil-tests", "--example", "emulator_load"]))?;
    let load = run::built("release", "examples/emulator_load")?.to_string_lossy().into_owned();
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..ROUNDS {
        for (name, value) in round(&device, &load)? {
            match rows.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => rows.push((name, vec![value])),
            }
        }
    }
    let ratios: Vec<Ratio> = RATIOS.iter().map(|wanted| Ratio::of(&rows, wanted)).collect();
    let text = if json { object(&rows) } else { table(&rows, &ratios) };
    let missed: Vec<_> =
        ratios.iter().filter(|ratio| !ratio.holds).map(|ratio| ratio.line.as_str()).collect();
    if missed.is_empty() {
        return Ok(text);
    }
    print!("{text}");
    Err(missed.join("\n"))
}

fn round(device: &Device<'_>, load: &str) -> Result<Vec<(String, f64)>, String> {
    let mut values = Vec::new();
    for (name, words) in PAIRS {
        let output = device.ends(&on(CORES[0], words), &on(CORES[1], words), "plaintext", LIMIT)?;
        values.push((
            (*name).to_owned(),
            result(&output).ok_or_else(|| format!("{name}: no result in\n{output}"))?,
        ));
    }
    let (server, client) = device.encrypted(ENCRYPTED)?;
    let [server, client] =
        [&server, &client].map(|words| words.iter().map(String::as_str).collect::<Vec<_>>());
    let output = device.ends(&on(CORES[0], &server), &on(CORES[1], &client), "wrapped", LIMIT)?;
    values.push((XTS.into(), result(&output).ok_or_else(|| format!("{XTS}: no result in\n{output}"))?));
    let mut mkeys = device.program(load, "plaintext");
    mkeys.arg("mkeys");
    let mut machine = Command::new("taskset");
    machine.args(["-c", CORES[1], load, "machine", CORES[0]]);
    for command in [mkeys, machine] {
        let output = run::answer(command)?;
        for line in output.lines() {
            let named =
                line.split_once(' ').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
            values.push(named.ok_or_else(|| format!("not a name and a number: {line}"))?);
        }
    }
    Ok(values)
}

/// Returns the command line that runs `words` on the processor `core` only.
pub(super) fn on<'a>(core: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    ["taskset", "-c", core].iter().chain(words).copied().collect()
}

/// Finds the result in a program's output: microseconds for each iteration, or the average column of a table,
/// converted from MiB to MB.
fn result(output: &str) -> Option<f64> {
    let turn = |line: &str| line.trim().strip_suffix(" usec/iter")?.rsplit(' ').next()?.parse().ok();
    let average = || Some(value(output, "BW average[MB/sec]")? * 1.048_576);
    output.lines().find_map(turn).or_else(average)
}

/// Returns the value in a column of perftest's table. Column names are separated by two spaces or more, but
/// in tables of latencies a single space separates the first two names.
pub(super) fn value(output: &str, column: &str) -> Option<f64> {
    let mut lines = output.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let names = lines.next()?.replace('\t', "  ").replace(" #iterations", "  #iterations");
    let at =
        names.split("  ").map(str::trim).filter(|name| !name.is_empty()).position(|name| name == column)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn object(rows: &[Row]) -> String {
    let row = |(work, values): &Row| format!("{{\"work\": \"{work}\", \"value\": {:.2}}}", median(values));
    format!("{{\"rows\": [\n{}\n]}}\n", rows.iter().map(row).collect::<Vec<_>>().join(",\n"))
}

fn table(rows: &[Row], ratios: &[Ratio]) -> String {
    let mut text = format!("median of {ROUNDS} rounds, and range\n");
    for (work, values) in rows {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        // Writing to a string cannot fail, neither here nor below.
        let _ = writeln!(text, "{work:24} {:10.2}   {least:.2} to {most:.2}", median(values));
    }
    text.push_str("\nratios, medians over rounds\n");
    for Ratio { line, .. } in ratios {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The ratio of two values as a line of text, and whether it is within its bound.
struct Ratio {
    line: String,
    holds: bool,
}

impl Ratio {
    fn of(rows: &[Row], (over, under, bound): &(&str, &str, Bound)) -> Self {
        let values =
            |name: &str| rows.iter().find(|(work, _)| work == name).map_or(&[][..], |(_, values)| values);
        let ratios: Vec<f64> =
            values(over).iter().zip(values(under)).map(|(over, under)| over / under).collect();
        let ratio = median(&ratios);
        let (wanted, holds) = match bound {
            Bound::AtLeast(least) => (format!("at least {least}"), ratio >= *least),
            Bound::AtMost(most) => (format!("at most {most}"), ratio <= *most),
        };
        let verdict = if holds { "holds" } else { "missed" };
        Self { line: format!("{over} / {under}: {ratio:.2} ({wanted}: {verdict})"), holds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_in_what_programs_say() {
        let output = " Mtu : 4096[B]\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   \
                      MsgRate[Mpps]\n 65536      5000       1330.00            1000.00\t\t   0.017856\n";
        assert_eq!(result(output), Some(1048.576));
        assert_eq!(
            result("8192 bytes in 0.41 seconds\n1000 iters in 0.41 seconds = 412.54 usec/iter\n"),
            Some(412.54)
        );
        assert_eq!(result("failed\n"), None);
    }

    #[test]
    fn ratios_are_of_one_round() {
        let rows = [
            (WRITE_64K.to_owned(), vec![100.0, 10.0, 50.0]),
            (TCP.to_owned(), vec![100.0, 100.0, 100.0]),
            (MANY_QUEUES.to_owned(), vec![80.0, 10.0, 30.0]),
            (PING.to_owned(), vec![3.0]),
            (SOCKETS.to_owned(), vec![1.0]),
        ];
        let ratios: Vec<Ratio> = RATIOS.iter().map(|wanted| Ratio::of(&rows, wanted)).collect();
        assert_eq!(ratios.iter().map(|ratio| ratio.holds).collect::<Vec<_>>(), [true, false, false]);
        let text = table(&rows, &ratios);
        for line in [
            "write_bw_64k_mb_s / loopback_tcp_64k_mb_s: 0.50 (at least 0.5: holds)",
            "write_bw_64k_16qp_mb_s / write_bw_64k_mb_s: 0.80 (at least 0.9: missed)",
            "pingpong_polled_us / socketpair_us: 3.00 (at most 2: missed)",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        // A ratio without values is outside its bound.
        assert!(!Ratio::of(&[], &RATIOS[0]).holds);
        assert!(object(&rows[..1]).contains("{\"work\": \"write_bw_64k_mb_s\", \"value\": 50.00}"));
    }
}
