//! `cargo xtask bench --guest`: measures the software device as a PCI function under Linux's own driver in a
//! guest of QEMU, and the same programs without a guest, behind the stand-in for the kernel.

use super::emulator::{CORES, LIMIT, on, value};
use crate::peer::Device;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;
use xtask::{debian, emulate, host, run};

/// A work: its description, the command line of server and client, the column of perftest's table with the
/// result, and the factor that converts the result to the unit of the description.
struct Work {
    words: &'static str,
    program: &'static [&'static str],
    column: &'static str,
    factor: f64,
}

/// The column with the typical time of a message.
const LATENCY: &str = "t_typical[usec]";

const WORKS: &[Work] = &[
    Work {
        words: "doorbell to completion of the peer, 8 bytes (ib_write_lat), in us",
        program: &["ib_write_lat", "-d", "mlx5_0", "-F", "-s", "8", "-n", "20000"],
        column: LATENCY,
        factor: 1.0,
    },
    Work {
        words: "RDMA WRITEs of 64 KiB (ib_write_bw), in MB/s",
        program: &["ib_write_bw", "-d", "mlx5_0", "-F", "-s", "65536", "-n", "20000"],
        column: "BW average[MB/sec]",
        factor: 1.048_576,
    },
    Work {
        words: "posts of 8 bytes a second (ib_write_bw), in thousands",
        program: &["ib_write_bw", "-d", "mlx5_0", "-F", "-s", "8", "-n", "100000"],
        column: "MsgRate[Mpps]",
        factor: 1000.0,
    },
];

/// The lines that the guest prints before and after the output of a work.
const BEGIN: &str = "work begins";
const END: &str = "work ends";

/// Returns the two numbers in the file of `mlx5-function --times`: the count of doorbells so far, and the
/// nanoseconds that the device took for them.
fn counts(text: &str) -> [f64; 2] {
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    [(); 2].map(|()| numbers.next().unwrap_or_default())
}

/// Runs all works in a guest. Returns for each the output, and the microseconds in the device for a doorbell.
fn inside(folder: &Path) -> Result<Vec<(String, f64)>, String> {
    let (socket, times) = (folder.join("function"), folder.join("times"));
    let options = ["--port", "infiniband", "--times", &times.to_string_lossy()].map(String::from);
    let _function = host::serve(&socket, &options)?;
    let taken = || counts(&fs::read_to_string(&times).unwrap_or_default());
    let words = ["guest", "--tcg", "--socket", &socket.to_string_lossy(), "--", &script()];
    let mut guest = host::task("xtask-boards", &words)?;
    let mut guest = guest.stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let (mut works, mut output, mut before) = (Vec::new(), String::new(), [0.0; 2]);
    for line in BufReader::new(guest.stdout.take().ok_or("no output to read")?).lines() {
        match line.map_err(|error| error.to_string())?.trim_end() {
            BEGIN => (output, before) = (String::new(), taken()),
            END => {
                let ([begin, begin_time], [end, end_time]) = (before, taken());
                works.push((std::mem::take(&mut output), (end_time - begin_time) / (end - begin) / 1000.0));
            }
            other => output.extend([other, "\n"]),
        }
    }
    match guest.wait().map_err(|error| error.to_string())? {
        status if status.success() => Ok(works),
        status => Err(format!("the guest ended with {status}:\n{output}")),
    }
}

/// Returns the microseconds from a write to a socket to the return of a read in another thread, without a
/// guest: half of a round trip of messages that are as long as a doorbell's.
fn socket() -> Result<f64, String> {
    const ROUNDS: u32 = 20_000;
    const DOORBELL: usize = 40;
    let trip = |ends: std::io::Result<(UnixStream, UnixStream)>| {
        let (mut near, mut far) = ends?;
        let answers = std::thread::spawn(move || {
            let mut message = [0; DOORBELL];
            while far.read_exact(&mut message).and_then(|()| far.write_all(&message)).is_ok() {}
        });
        let (begin, mut message) = (Instant::now(), [0; DOORBELL]);
        for _ in 0..ROUNDS {
            near.write_all(&message)?;
            near.read_exact(&mut message)?;
        }
        let took = begin.elapsed();
        drop(near);
        let _ = answers.join();
        Ok(took.as_secs_f64() * 1e6 / f64::from(ROUNDS) / 2.0)
    };
    trip(UnixStream::pair()).map_err(|error: std::io::Error| error.to_string())
}

pub(super) fn measure() -> Result<String, String> {
    debian::install(debian::VERBS)?;
    debian::install(debian::PEERS)?;
    let folder = run::temporary("guest")?;
    let mut inside = inside(folder.path())?.into_iter();
    let device = Device { library: emulate::library()?, folder: folder.path() };
    let mut text = format!("{:66}{:>10}{:>12}{:>8}{:>12}\n", "", "guest", "stand-in", "ratio", "device, us");
    let mut parts = String::new();
    for work in WORKS {
        let own = |output: &str| {
            let value = value(output, work.column).ok_or_else(|| format!("no result in\n{output}"))?;
            Ok::<f64, String>(value * work.factor)
        };
        let (output, taken) = inside.next().ok_or("the guest has left a work out")?;
        let found = own(&output)?;
        let [server, client] = CORES.map(|core| on(core, work.program));
        let outside = own(&device.ends(&server, &client, "plaintext", LIMIT)?)?;
        let ratio = found / outside;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:66}{found:>10.2}{outside:>12.2}{ratio:>8.2}{taken:>12.2}", work.words);
        if work.column == LATENCY {
            parts = shares(found, taken, socket()?);
        }
    }
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    let _ = write!(
        text,
        "\n{parts}\n\
         Load of this machine: {load}. Both sides execute requests on the same software device. Column\n\
         `device`: mean time from the arrival of a send doorbell at the function to the end of its\n\
         execution, completion included, as the function measures it.\n",
    );
    Ok(text)
}

/// Says where the time of a message goes: in the device, in the socket, and in the rest, which only the
/// emulated guest has. All values are microseconds.
fn shares(message: f64, device: f64, socket: f64) -> String {
    let rest = (message - device - socket).max(0.0);
    let share = |part: f64| part / message * 100.0;
    format!(
        "Of {message:.2} us for 8 bytes in the guest:\n\
         {device:8.2} ({:.0} %) in the device, from the arrival of the doorbell\n\
         {socket:8.2} ({:.0} %) on the way of a message over a socket: half a round trip without a guest\n\
         {rest:8.2} ({:.0} %) in the emulated processor (TCG): instructions, the exits of the doorbell, and\n\
         {:17}on a busy machine the wait for a processor\n",
        share(device),
        share(socket),
        share(rest),
        "",
    )
}

fn script() -> String {
    let one = |work: &Work| {
        let program = work.program.join(" ");
        let server = format!("{program} > /dev/null 2>&1 & sleep 1");
        format!("{server}; echo {BEGIN}; {program} 127.0.0.1 || exit 1; echo {END}\nwait\n")
    };
    WORKS.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_message_are_all_of_it() {
        let text = shares(10.0, 2.0, 3.0);
        for part in ["2.00 (20 %) in the device", "3.00 (30 %) on the way", "5.00 (50 %) in the emulated"] {
            assert!(text.contains(part), "{text}");
        }
        // The time in the socket is measured without a guest. On a busy machine, the two parts can exceed the
        // time of the whole message. The rest then counts as 0.
        assert!(shares(10.0, 2.0, 9.0).contains("0.00 (0 %)"));
        assert_eq!(counts("      64 doorbells       12800 ns\n"), [64.0, 12_800.0]);
        assert_eq!(counts(""), [0.0; 2]);
    }

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
