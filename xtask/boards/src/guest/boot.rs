//! Boots a guest, and watches its console.

use super::image;
use super::options::Options;
use super::parts::{Guest, Parts};
use crate::machine::function;
use crate::machine::kvm::Accelerator;
use crate::machine::qemu::Qemu;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use xtask::host;
use xtask::run::{self, Ends};

/// Parameters of the kernel: print warnings, reboot after a panic (which ends QEMU), leave out mitigations
/// that are slow under emulation. The kernel also leaves out its test of the timer, as it does under KVM: on
/// a busy machine an emulated timer may be late, and the kernel would panic.
const PARAMETERS: &str = "loglevel=5 panic=-1 mitigations=off no_timer_check";

/// The size of the guest's memory, which QEMU shares with the process of the PCI function.
const MEMORY: &str = "768M";

/// After a warning of the kernel, the time in which the guest may still print further lines, such as the
/// kernel's stack.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The time limit for a command in the guest, in seconds. The longest command, that of `guest --check`, took
/// 139 s beside other work.
const USUAL: u64 = 600;

/// The time limit for an interactive shell in the guest, in seconds.
pub(super) const DAY: u64 = 24 * 60 * 60;

/// QEMU's options for a network interface with which programs of the guest reach TCP ports of this machine,
/// at the address 10.0.2.2. The interface needs no ROM, since the guest does not boot from the network.
const USER_NETWORK: &[&str] = &["-netdev", "user,id=user", "-device", "virtio-net-pci,netdev=user,romfile="];

enum Line {
    /// A line on the console: a message of the kernel, or of QEMU.
    Console(String),
    /// A line that the command has printed.
    Output(String),
}

pub(super) const ENDED: &str = "the guest has ended before its command";

/// Boots the guest, and returns the exit status of its command.
pub(super) fn boot(options: &Options, guest: &Guest, parts: &Parts) -> Result<u8, String> {
    let folder = run::temporary("guest")?;
    let own = folder.path().join("socket");
    let (socket, _function) = match &options.socket {
        Some(socket) => (socket, None),
        None => (&own, Some(host::serve(&own, &served(options, guest, None))?)),
    };
    machine(options, guest, parts, socket, folder.path())
}

/// Returns the options of the process that serves the guest's PCI function. `network` is the folder in which
/// the devices of one network meet. `None` for a device without a network.
pub(super) fn served(options: &Options, guest: &Guest, network: Option<&Path>) -> Vec<String> {
    let mut served = vec!["--port".to_owned(), guest.port.clone()];
    served.extend(options.log.then(|| "--log".to_owned()));
    served.extend(guest.device.iter().flat_map(|name| ["--device".to_owned(), name.clone()]));
    served.extend(guest.faults.iter().flat_map(|words| ["--faults".to_owned(), words.clone()]));
    served.extend(
        (!guest.signatures).then(|| ["--signatures", "none"].map(String::from)).into_iter().flatten(),
    );
    served.extend(network.iter().flat_map(|path| ["--fabric".to_owned(), path.display().to_string()]));
    served
}

/// Boots a machine on the function that listens at a socket, and returns the exit status of its command. The
/// machine's image is in `folder`.
pub(super) fn machine(
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
        .args(if guest.reaches_host { USER_NETWORK } else { &[] })
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

/// Prints the output of the guest's command, and on standard error the lines of the console that name mlx5,
/// the guest or QEMU, and all lines from a warning on. Returns the command's exit status. A warning of the
/// kernel is an error, also after the command has ended. The guest is killed [`LAST_WORDS`] after the
/// warning.
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
    fn a_guest_that_says_nothing_takes_too_long() {
        let (_tell, seen) = channel();
        assert!(watch(&seen, Instant::now()).unwrap_err().contains("too long"));
    }
}
