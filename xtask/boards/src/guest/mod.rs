//! A guest of QEMU in which Linux's own drivers for mlx5 have the software device, as a PCI function.

mod image;

use crate::vdpu::image::kernel;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use xtask::debian::{self, Architecture, Dependencies};
use xtask::host;
use xtask::run::{self, program};

pub(crate) const HELP: &str = "\
cargo xtask guest [--qemu PROGRAM] [--seconds N] [--log] [--file PATH]…
                  [--check | -- COMMAND…]

Boots Debian's kernel in QEMU, on an InfiniBand port of the software device as a PCI function. The
kernel's own mlx5_core and mlx5_ib drive the device. Runs COMMAND in a shell of the guest (without
one: ibv_devinfo), prints its output, and ends with its exit status. A warning of the kernel is an
error. Kernel and programs are unpacked from Debian's packages below `target`. Needs an x86-64
machine; KVM is not used.

  --qemu PROGRAM   qemu-system-x86_64 of 10.1 or later, which knows vfio-user-pci (else from PATH)
  --seconds N      how long all of it may take (300)
  --log            print what the function is asked for, and each completion, to standard error
  --file PATH      put a file of this machine into /bin of the guest, such as a program to run there
  --check          ping-pong of all kinds, scenarios of `hil` over DEVX; the drivers let go of
                   the device and take it again
";

/// The Debian packages in the guest.
const PACKAGES: &[&str] = &["linux-image-amd64", "busybox-static", "ibverbs-providers", "ibverbs-utils"];

/// Parameters of the kernel: print warnings, reboot after a panic (which ends QEMU), leave out mitigations
/// that are slow under emulation.
const PARAMETERS: &str = "console=ttyS0 loglevel=5 panic=-1 mitigations=off";

/// The size of the guest's memory, which QEMU shares with the process of the PCI function.
const MEMORY: &str = "768M";

/// The shell script that the guest runs for `--check`.
const CHECK: &str = include_str!("check.sh");

/// The time limit for the process of the PCI function until it listens on its socket.
const LISTENS: Duration = Duration::from_secs(10);

struct Options {
    qemu: String,
    limit: Duration,
    log: bool,
    check: bool,
    files: Vec<PathBuf>,
    command: String,
}

fn options(arguments: &[String]) -> Option<Options> {
    let mut options = Options {
        qemu: "qemu-system-x86_64".into(),
        limit: Duration::from_secs(300),
        log: false,
        check: false,
        files: Vec::new(),
        command: "ibv_devinfo".into(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--qemu" => options.qemu = rest.next()?.clone(),
            "--seconds" => options.limit = Duration::from_secs(rest.next()?.parse().ok()?),
            "--log" => options.log = true,
            "--file" => options.files.push(rest.next()?.into()),
            "--check" => (options.check, options.command) = (true, CHECK.into()),
            "--" => {
                options.command = rest.by_ref().cloned().collect::<Vec<_>>().join(" ");
                if options.command.is_empty() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(options)
}

/// Runs `cargo xtask guest` with the arguments after `guest`.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--help") {
        return run::print(HELP, 0);
    }
    let Some(options) = options(arguments) else { return run::misuse(HELP) };
    match boot(&options) {
        Ok(status) => ExitCode::from(status),
        Err(message) => run::failed(&message),
    }
}

/// A child process. Dropping this value kills the process.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // `kill` fails if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder. Dropping this value removes the folder.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Boots the guest, and returns the exit status of its command.
fn boot(options: &Options) -> Result<u8, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the guest is an x86-64 machine, and this is none".into());
    }
    let mut knows = Command::new(&options.qemu);
    let help = knows.args(["-device", "vfio-user-pci,help"]).output();
    if !help.is_ok_and(|help| help.status.success()) {
        let qemu = &options.qemu;
        return Err(format!("{qemu} does not know vfio-user-pci: QEMU 10.1 or later does (--qemu PROGRAM)"));
    }
    let packages = debian::unpack(Architecture::Own, "guest", PACKAGES, Dependencies::Included)?;
    let folder = Folder(run::root().join("target/guest").join(std::process::id().to_string()));
    fs::create_dir_all(&folder.0).map_err(|error| format!("{}: {error}", folder.0.display()))?;
    let image = folder.0.join("initramfs");
    let mut files = options.files.clone();
    if options.check {
        host::build_programs(&["hil"])?;
        files.push(run::built("debug", "hil")?);
    }
    fs::write(&image, image::build(&packages, &files, &options.command)?)
        .map_err(|error| error.to_string())?;
    let socket = folder.0.join("socket");
    let _function = serve(&socket, options.log)?;
    let start = Instant::now();
    let mut qemu = Ends(machine(options, &kernel(&packages)?, &image, &socket)?);
    let console = qemu.0.stdout.take().ok_or("QEMU has no console")?;
    let (tell, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(console)
            .split(b'\n')
            .map_while(Result::ok)
            .all(|line| tell.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_ok())
    });
    let status = watch(&lines, start + options.limit)?;
    eprintln!("the guest took {} s", start.elapsed().as_secs());
    Ok(status)
}

/// Starts the process of the PCI function, and waits until the process listens on its socket.
fn serve(socket: &Path, log: bool) -> Result<Ends, String> {
    let path = socket.to_string_lossy();
    let mut arguments = vec!["--socket", &path, "--port", "infiniband"];
    if log {
        arguments.push("--log");
    }
    let mut function = host::task("mlx5-function", &arguments)?;
    let spawned = function.stdin(Stdio::null()).spawn();
    let mut function = Ends(spawned.map_err(|error| format!("the function cannot be started: {error}"))?);
    let end = Instant::now() + LISTENS;
    while !socket.exists() {
        let has_ended = matches!(function.0.try_wait(), Ok(Some(_)));
        if has_ended || Instant::now() > end {
            return Err("the function does not listen".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(function)
}

/// Starts QEMU, whose standard output is the guest's console.
fn machine(options: &Options, kernel: &Path, image: &Path, socket: &Path) -> Result<Child, String> {
    let function =
        format!(r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{}"}}}}"#, socket.display());
    // `setpriv` ends the guest also if this process is killed.
    let mut qemu = program("setpriv", &["--pdeathsig", "KILL", &options.qemu]);
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", MEMORY])
        .args(["-machine", "q35,memory-backend=ram", "-object"])
        .arg(format!("memory-backend-memfd,id=ram,size={MEMORY},share=on"))
        .args(["-nodefaults", "-vga", "none", "-display", "none", "-monitor", "none", "-no-reboot"])
        .args(["-serial", "stdio", "-append", PARAMETERS, "-device", &function, "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(image)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    qemu.spawn().map_err(|error| format!("{} cannot be run: {error}", options.qemu))
}

/// Prints the output of the guest's command, and returns the command's exit status. A warning of the kernel
/// is an error, also during the shutdown.
fn watch(lines: &Receiver<String>, end: Instant) -> Result<u8, String> {
    let (mut begun, mut status, mut warning) = (false, None, None);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let line = match lines.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Err("the guest takes too long".into()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if ["WARNING: CPU", "BUG: ", "Kernel panic"].iter().any(|text| line.contains(text)) {
            warning.get_or_insert_with(|| line.clone());
        }
        match line.strip_prefix("guest: ") {
            Some("begin") => begun = true,
            Some(end) => {
                status = end.strip_prefix("status ").and_then(|status| status.parse().ok());
                begun = false;
            }
            None if begun || line.contains("mlx5") || warning.is_some() => println!("{line}"),
            None => {}
        }
    }
    match (status, warning) {
        (_, Some(warning)) => Err(format!("the kernel warns: {warning}")),
        (Some(status), None) => Ok(status),
        (None, None) => Err("the guest has ended before its command".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(lines: &[&str]) -> Result<u8, String> {
        let (tell, seen) = channel();
        lines.iter().for_each(|line| tell.send((*line).to_owned()).unwrap());
        drop(tell);
        watch(&seen, Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn a_guest_ends_as_its_command_does() {
        assert_eq!(watched(&["guest: begin", "words", "guest: status 0", "more"]), Ok(0));
        assert_eq!(watched(&["guest: begin", "guest: status 77"]), Ok(77));
        assert!(watched(&["guest: begin", "words"]).unwrap_err().contains("before its command"));
        let warned = watched(&["guest: status 0", "[ 1.0] WARNING: CPU: 1 PID: 7 at x.c:1"]);
        assert!(warned.unwrap_err().contains("x.c:1"), "behind the end of the command");
    }

    #[test]
    fn a_guest_that_says_nothing_takes_too_long() {
        let (_tell, seen) = channel();
        assert!(watch(&seen, Instant::now()).unwrap_err().contains("too long"));
    }

    #[test]
    fn options_have_their_words() {
        let parsed = |line: &str| options(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
        let usual = parsed("").unwrap();
        assert_eq!((usual.qemu.as_str(), usual.command.as_str()), ("qemu-system-x86_64", "ibv_devinfo"));
        let other = parsed("--qemu /q --seconds 5 --log --file /a/b --file c -- ls -l /sys").unwrap();
        assert_eq!((other.qemu.as_str(), other.command.as_str(), other.log), ("/q", "ls -l /sys", true));
        assert_eq!(other.limit, Duration::from_secs(5));
        assert_eq!(other.files, ["/a/b", "c"].map(PathBuf::from));
        assert!(!other.check && parsed("--check").unwrap().check);
        for line in ["--", "--file", "--seconds many", "--qemu", "ls"] {
            assert!(parsed(line).is_none(), "{line}");
        }
    }
}
