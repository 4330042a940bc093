//! `cargo xtask bench --guest`: measures the PCI function under Linux's own driver in a guest, beside the
//! same programs on the stand-in, without a guest.

use super::emulator::{CORES, LIMIT, on};
use crate::peer::Device;
use std::fmt::Write as _;
use std::fs;
use xtask::{debian, emulate, host, run};

/// A work: its words, the program with its arguments, the column of the program's table, and the factor to
/// the unit in the words.
struct Work {
    words: &'static str,
    program: &'static [&'static str],
    column: &'static str,
    factor: f64,
}

const WORKS: &[Work] = &[
    Work {
        words: "doorbell to completion of the peer, 8 bytes (ib_write_lat), in us",
        program: &["ib_write_lat", "-d", "mlx5_0", "-F", "-s", "8", "-n", "2000"],
        column: "t_typical[usec]",
        factor: 1.0,
    },
    Work {
        words: "RDMA WRITEs of 64 KiB (ib_write_bw), in MB/s",
        program: &["ib_write_bw", "-d", "mlx5_0", "-F", "-s", "65536", "-n", "2000"],
        column: "BW average[MB/sec]",
        factor: 1.048_576,
    },
    Work {
        words: "posts of 8 bytes a second (ib_write_bw), in thousands",
        program: &["ib_write_bw", "-d", "mlx5_0", "-F", "-s", "8", "-n", "20000"],
        column: "MsgRate[Mpps]",
        factor: 1000.0,
    },
];

/// The word before the output of a work in the guest.
const MARK: &str = "work:";

/// Measures all works, and returns a table.
pub(super) fn measure() -> Result<String, String> {
    debian::install(debian::VERBS)?;
    debian::install(debian::PEERS)?;
    let guest = run::answer(host::task("xtask-boards", &["guest", "--tcg", "--", &script()])?)?;
    let mut outputs = guest.split(MARK).skip(1);
    let folder = run::temporary("guest")?;
    let device = Device { library: emulate::library()?, folder: folder.path() };
    let mut text = format!("{:66}{:>10}{:>12}{:>8}\n", "", "guest", "stand-in", "ratio");
    for work in WORKS {
        let own = |output: &str| {
            let value = value(output, work.column).ok_or_else(|| format!("no result in\n{output}"))?;
            Ok::<f64, String>(value * work.factor)
        };
        let inside = own(outputs.next().unwrap_or_default())?;
        let [server, client] = CORES.map(|core| on(core, work.program));
        let outside = device.ends(&server, &client, "plaintext", LIMIT)?;
        let outside = own(&outside)?;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:66}{inside:>10.2}{outside:>12.2}{:>8.2}", work.words, inside / outside);
    }
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    let _ = write!(
        text,
        "\nLoad of this machine: {load}. The guest is emulated (TCG). Both sides execute requests on the\n\
         same software device; the ratio is that of the way to it: translated instructions, the exit of\n\
         each doorbell and the function's socket in the guest, a thread that polls in the stand-in.\n",
    );
    Ok(text)
}

/// Returns the script of the guest: server and client of each work.
fn script() -> String {
    let one = |work: &Work| {
        let program = work.program.join(" ");
        format!("echo {MARK}; {program} > /dev/null 2>&1 & sleep 1; {program} 127.0.0.1 || exit 1; wait\n")
    };
    WORKS.iter().map(one).collect()
}

/// Returns the value in a column of perftest's table. Two spaces or more separate the names of columns,
/// except the first two in tables of latencies.
fn value(output: &str, column: &str) -> Option<f64> {
    let mut lines = output.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let names = lines.next()?.replace('\t', "  ").replace(" #iterations", "  #iterations");
    let at =
        names.split("  ").map(str::trim).filter(|name| !name.is_empty()).position(|name| name == column)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_name() {
        let output = "Mtu : 4096[B]\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   \
                      MsgRate[Mpps]\n 65536      2000        1330.00        1000.00\t\t   0.017856\n";
        assert_eq!(value(output, "BW average[MB/sec]"), Some(1000.0));
        assert_eq!(value(output, "MsgRate[Mpps]"), Some(0.017_856));
        let output = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
                      8       2000          7.61           90.5         8.25     \t       9.0\n";
        assert_eq!(value(output, "t_typical[usec]"), Some(8.25));
        assert_eq!(value(output, "another"), None);
        assert_eq!(value("", "t_avg[usec]"), None);
    }
}
