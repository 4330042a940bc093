//! Boots a guest, and watches its console.

use super::image;
use super::options::Options;
use super::parts::{Guest, Parts};
use crate::machine::function::{self, Ends};
use crate::machine::kvm::Accelerator;
use crate::machine::qemu::Qemu;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use xtask::run;

/// Parameters of the kernel: print warnings, reboot after a panic (which ends QEMU), leave out mitigations
/// that are slow under emulation.
const PARAMETERS: &str = "loglevel=5 panic=-1 mitigations=off";

/// The size of the guest's memory, which QEMU shares with the process of the PCI function.
const MEMORY: &str = "768M";

/// After a warning of the kernel, the time in which the guest may still print further lines, such as the
/// kernel's stack.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The time limit for a command in the guest, in seconds. The longest command, that of `guest --check`, takes
/// 80 s on two quiet processors.
const USUAL: u64 = 600;

/// The time limit for an interactive shell in the guest, in seconds.
pub(super) const DAY: u64 = 24 * 60 * 60;

/// A line that the guest has written.
enum Line {
    /// A line on the console: a message of the kernel, or of QEMU.
    Console(String),
    /// A line that the command has printed.
    Output(String),
}

/// The error for a guest that has ended before its command.
const ENDED: &str = "the guest has ended before its command";

/// Boots the guest, and returns the exit status of its command.
pub(super) fn boot(options: &Options, guest: &Guest, parts: &Parts) -> Result<u8, String> {
    let folder = run::temporary("guest")?;
    let own = folder.path().join("socket");
    let (socket, _function) = match &options.socket {
        Some(socket) => (socket, None),
        None => (&own, Some(function::serve(&own, &served(options, guest, None))?)),
    };
    machine(options, guest, parts, socket, folder.path())
}

/// Boots two guests on one network at the same time. The first one dies at the end of each of its scripts but
/// the last, and boots again with the next one. Returns the exit status of the command that has failed, or 0.
pub(super) fn boot_two(
    options: &Options,
    first: &[Guest],
    second: &Guest,
    parts: &Parts,
) -> Result<u8, String> {
    let folders = [run::temporary("guest")?, run::temporary("guest")?];
    let [own, other] = folders.each_ref().map(|folder| folder.path());
    let network = own.join("network");
    let serve = |guest: &Guest, folder: &Path| {
        let socket = folder.join("socket");
        let mut served = served(options, guest, Some(&network));
        served.extend(["--pcap".to_owned(), folder.join(CAPTURE).display().to_string()]);
        function::serve(&socket, &served).map(|function| (socket, function))
    };
    // The first function on the network has the first address.
    let (socket, _function) = serve(first.first().ok_or("no first guest")?, own)?;
    let (other_socket, _other_function) = serve(second, other)?;
    let status = std::thread::scope(|scope| {
        let boots = scope.spawn(|| {
            for (number, guest) in first.iter().enumerate() {
                match machine(options, guest, parts, &socket, own) {
                    Err(why) if why == ENDED && number + 1 < first.len() => {}
                    ended => return ended,
                }
            }
            Err(ENDED.into())
        });
        let status = machine(options, second, parts, &other_socket, other);
        let first = boots.join().map_err(|_| "the first guest has no end")?;
        match (status, first) {
            (Ok(0), first) => first,
            (status, Ok(_)) => status,
            (status, Err(why)) => Err(format!("{why}; the second guest: {status:?}")),
        }
    })?;
    for folder in [own, other] {
        let bytes = fs::read(folder.join(CAPTURE)).map_err(|error| format!("the capture: {error}"))?;
        let kinds = captured(&bytes).ok_or("the capture is not whole")?;
        if let Some(kind) = [IPV4, ARP, IPV6].into_iter().find(|kind| !kinds.contains(kind)) {
            return Err(format!("the capture has no frame of type {kind:#06x}"));
        }
    }
    Ok(status)
}

/// The name of the file with the frames of a function on a network.
const CAPTURE: &str = "frames.pcap";

/// Types of Ethernet frames.
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Returns the types of the frames in a capture, or `None` if the capture is not whole: its records have to
/// fill it, and each frame has to have a header.
fn captured(bytes: &[u8]) -> Option<BTreeSet<u16>> {
    let mut rest = bytes.strip_prefix(&0xa1b2_3c4d_u32.to_ne_bytes())?.get(20..)?;
    let mut kinds = BTreeSet::new();
    while !rest.is_empty() {
        let length = u32::from_ne_bytes(*rest.get(8..)?.first_chunk()?) as usize;
        let frame = rest.get(16..16 + length)?;
        kinds.insert(u16::from_be_bytes(*frame.get(12..)?.first_chunk()?));
        rest = rest.get(16 + length..)?;
    }
    Some(kinds)
}

/// Returns the options of a guest's function, on a network if there is one.
fn served(options: &Options, guest: &Guest, network: Option<&Path>) -> Vec<String> {
    let mut served = vec!["--port".to_owned(), guest.port.clone()];
    served.extend(options.log.then(|| "--log".to_owned()));
    served.extend(guest.device.iter().flat_map(|name| ["--device".to_owned(), name.clone()]));
    served.extend(guest.faults.iter().flat_map(|words| ["--faults".to_owned(), words.clone()]));
    served.extend(network.iter().flat_map(|path| ["--fabric".to_owned(), path.display().to_string()]));
    served
}

/// Boots a machine on the function that listens at a socket, and returns the exit status of its command. The
/// machine's image is in `folder`.
fn machine(
    options: &Options,
    guest: &Guest,
    parts: &Parts,
    socket: &Path,
    folder: &Path,
) -> Result<u8, String> {
    let image = folder.join("initramfs");
    fs::write(&image, image::build(guest, parts)?).map_err(|error| error.to_string())?;
    let accelerator = match options.tcg {
        true => Accelerator::Tcg,
        false => Accelerator::find(&parts.qemu, guest.arch, &parts.kernel),
    };
    let start = Instant::now();
    let mut qemu = Ends(spawn(guest, parts, accelerator, &image, socket)?);
    let (tell, lines) = channel();
    if let Some(console) = qemu.0.stderr.take() {
        listen(console, tell.clone(), Line::Console);
    }
    if let Some(output) = qemu.0.stdout.take() {
        listen(output, tell, Line::Output);
    }
    let usual = if guest.command.is_empty() { DAY } else { USUAL };
    let limit = Duration::from_secs(options.seconds.unwrap_or(usual));
    let status = watch(&lines, start + limit)?;
    eprintln!("the guest took {} s", start.elapsed().as_secs());
    Ok(status)
}

/// Starts QEMU. QEMU's standard error is the guest's console. Its standard output is the serial port on which
/// the guest's command prints. For an interactive shell, QEMU inherits standard input and output of this
/// process.
fn spawn(
    guest: &Guest,
    parts: &Parts,
    accelerator: Accelerator,
    image: &Path,
    socket: &Path,
) -> Result<Child, String> {
    let port = guest.arch.port();
    let parameters = format!("console={port}0 output={port}1 {PARAMETERS}");
    let is_shell = guest.command.is_empty();
    let mut command = parts.qemu.command();
    command
        .args(function::options(guest.arch, accelerator, MEMORY, socket))
        .args(share(&parts.qemu)?)
        .args(["-nodefaults", "-vga", "none", "-display", "none", "-monitor", "none", "-no-reboot"])
        .args(["-serial", "file:/dev/stderr", "-serial", "stdio", "-append", &parameters, "-kernel"])
        .arg(&parts.kernel.image)
        .arg("-initrd")
        .arg(image)
        .stdin(if is_shell { Stdio::inherit() } else { Stdio::null() })
        .stdout(if is_shell { Stdio::inherit() } else { Stdio::piped() })
        .stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("QEMU cannot be run: {error}"))
}

/// Returns QEMU's options that share the working folder with the guest, read-only (9p). A QEMU without 9p
/// shares nothing.
fn share(qemu: &Qemu) -> Result<Vec<String>, String> {
    const DEVICE: &str = "virtio-9p-pci";
    if !qemu.has(DEVICE) {
        return Ok(Vec::new());
    }
    let folder = std::env::current_dir().map_err(|error| format!("no working folder: {error}"))?;
    // In a value of an option, QEMU reads two commas as one.
    let path = folder.display().to_string().replace(',', ",,");
    let options = [
        "-fsdev".to_owned(),
        format!("local,id=host,path={path},security_model=none,readonly=on"),
        "-device".to_owned(),
        format!("{DEVICE},fsdev=host,mount_tag=host"),
    ];
    Ok(options.into())
}

/// Sends each line of a stream to `tell`, until the stream ends. Runs in a thread of its own.
fn listen(stream: impl Read + Send + 'static, tell: Sender<Line>, kind: fn(String) -> Line) {
    std::thread::spawn(move || {
        BufReader::new(stream)
            .split(b'\n')
            .map_while(Result::ok)
            .all(|line| tell.send(kind(String::from_utf8_lossy(&line).trim_end().to_owned())).is_ok())
    });
}

/// Prints the output of the guest's command, and on standard error the lines of the console that name mlx5.
/// Returns the command's exit status. A warning of the kernel is an error, also during the shutdown, and ends
/// the guest.
fn watch(lines: &Receiver<Line>, mut end: Instant) -> Result<u8, String> {
    let (mut status, mut warning) = (None, None);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let line = match lines.recv_timeout(left) {
            Ok(Line::Output(line)) => {
                println!("{line}");
                continue;
            }
            Ok(Line::Console(line)) => line,
            Err(RecvTimeoutError::Timeout) if warning.is_none() => {
                return Err("the guest takes too long".into());
            }
            Err(_) => break,
        };
        if warning.is_none() && ["WARNING: ", "BUG: ", "Kernel panic"].iter().any(|text| line.contains(text))
        {
            warning = Some(line.clone());
            end = end.min(Instant::now() + LAST_WORDS);
        }
        if let Some(code) = line.strip_prefix("guest: status ") {
            status = code.parse().ok();
        } else if warning.is_some() || ["mlx5", "guest: ", "qemu"].iter().any(|text| line.contains(text)) {
            eprintln!("{line}");
        }
    }
    match (status, warning) {
        (_, Some(warning)) => Err(format!("the kernel warns: {warning}")),
        (Some(status), None) => Ok(status),
        (None, None) => Err(ENDED.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(lines: &[&str]) -> Result<u8, String> {
        let (tell, seen) = channel();
        lines.iter().for_each(|line| tell.send(Line::Console((*line).to_owned())).unwrap());
        drop(tell);
        watch(&seen, Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn a_guest_ends_as_its_command_does() {
        assert_eq!(watched(&["words", "guest: status 0", "more"]), Ok(0));
        assert_eq!(watched(&["guest: status 77"]), Ok(77));
        assert!(watched(&["words"]).unwrap_err().contains("before its command"));
        let warned = watched(&["guest: status 0", "[ 1.0] WARNING: CPU: 1 PID: 7 at x.c:1"]);
        assert!(warned.unwrap_err().contains("x.c:1"), "behind the end of the command");
    }

    #[test]
    fn what_a_command_prints_is_no_word_of_the_kernel() {
        let (tell, seen) = channel();
        for line in ["guest: status 3", "BUG: of a program"] {
            tell.send(Line::Output(line.into())).unwrap();
        }
        tell.send(Line::Console("guest: status 0".into())).unwrap();
        drop(tell);
        assert_eq!(watch(&seen, Instant::now() + Duration::from_secs(60)), Ok(0));
    }

    #[test]
    fn a_capture_that_is_cut_short_is_not_whole() {
        let head = [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 0x0004_0000, 1].map(u32::to_ne_bytes);
        let record = [0_u32, 0, 14, 14].map(u32::to_ne_bytes);
        let frame = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 6];
        let bytes = [head.as_flattened(), record.as_flattened(), &frame].concat();
        assert_eq!(captured(&bytes), Some(BTreeSet::from([ARP])));
        assert!((25..bytes.len()).chain([0, 4]).all(|length| captured(&bytes[..length]).is_none()));
    }

    #[test]
    fn a_guest_that_says_nothing_takes_too_long() {
        let (_tell, seen) = channel();
        assert!(watch(&seen, Instant::now()).unwrap_err().contains("too long"));
    }
}
