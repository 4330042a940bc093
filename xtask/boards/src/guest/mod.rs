//! A guest of QEMU in which Linux's own drivers for mlx5 have the software device, as a PCI function.

mod image;

use crate::machine::arch::Arch;
use crate::machine::function::{self, Ends};
use crate::machine::image::kernel;
use crate::machine::qemu::Qemu;
use std::fs;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use xtask::debian::{self, Dependencies};
use xtask::run;
use xtask_parsers::boards::{Port, Processor};

pub(crate) const HELP: &str = "\
cargo xtask guest [--arch NAME] [--qemu PROGRAM] [--port NAME] [--seconds N] [--log]
                  [--file PATH]… [--find-qemu | --check | -- COMMAND…]

Boots Debian's kernel in QEMU, on a port of the software device as a PCI function. The kernel's own
mlx5_core and mlx5_ib drive the device. Runs COMMAND in the guest and ends with its exit status: a
line for the shell, or a program and its arguments. Without COMMAND, gives a shell in a terminal,
and runs ibv_devinfo elsewhere. A warning of the kernel is an error. QEMU 10.1 or later comes from
the PATH, else it is unpacked below `target` from Debian sid. Kernel and programs are unpacked from
Debian's packages there too. KVM is not used.

  --arch NAME      x86-64 (the default; needs such a machine) or arm64
  --qemu PROGRAM   take this QEMU
  --port NAME      infiniband (the default) or ethernet
  --seconds N      how long all of it may take (300; a shell may take a day)
  --log            print what the function is asked for, and each completion, to standard error
  --file PATH      put a file of this machine into /bin of the guest, such as a program to run there
  --find-qemu      only look for QEMU, and unpack it if there is none
  --check          ping-pong of all kinds, scenarios of `hil` over DEVX; the drivers let go of
                   the device and take it again
";

/// The Debian packages in the guest, beside the kernel.
const PACKAGES: &[&str] =
    &["busybox-static", "ibverbs-providers", "ibverbs-utils", "perftest", "rdmacm-utils"];

/// Parameters of the kernel: print warnings, reboot after a panic (which ends QEMU), leave out mitigations
/// that are slow under emulation.
const PARAMETERS: &str = "loglevel=5 panic=-1 mitigations=off";

/// The size of the guest's memory, which QEMU shares with the process of the PCI function.
const MEMORY: &str = "768M";

/// The script of `--check`.
const CHECK: &str = include_str!("check.sh");

/// The time for further lines after a warning of the kernel, such as its stack.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The time limit for a shell, in seconds.
const DAY: u64 = 24 * 60 * 60;

struct Options {
    arch: Arch,
    qemu: Option<String>,
    port: String,
    seconds: Option<u64>,
    log: bool,
    finds: bool,
    check: bool,
    files: Vec<PathBuf>,
    command: String,
}

fn options(arguments: &[String]) -> Option<Options> {
    let mut options = Options {
        arch: Arch::default(),
        qemu: None,
        port: "infiniband".into(),
        seconds: None,
        log: false,
        finds: false,
        check: false,
        files: Vec::new(),
        command: String::new(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--arch" => options.arch = Arch::named(rest.next()?)?,
            "--qemu" => options.qemu = Some(rest.next()?.clone()),
            "--port" => options.port.clone_from(rest.next()?),
            "--seconds" => options.seconds = Some(rest.next()?.parse().ok()?),
            "--log" => options.log = true,
            "--file" => options.files.push(rest.next()?.into()),
            "--find-qemu" => options.finds = true,
            "--check" => (options.check, options.command) = (true, CHECK.into()),
            "--" => {
                let words: Vec<String> = rest.by_ref().cloned().collect();
                options.command = match &words[..] {
                    [] => return None,
                    [script] => script.clone(),
                    words => words.iter().map(|word| run::quote(word)).collect::<Vec<_>>().join(" "),
                };
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
    let Some(mut options) = options(arguments) else { return run::misuse(HELP) };
    if options.finds {
        return run::status(Qemu::find(options.arch, options.qemu.as_deref()).map(|_| ()));
    }
    if options.command.is_empty() && !std::io::stdin().is_terminal() {
        options.command = "ibv_devinfo".into();
    }
    match boot(&options) {
        Ok(status) => ExitCode::from(status),
        Err(message) => run::failed(&message),
    }
}

/// Returns a command that runs the scenarios in a guest. Arguments for the scenarios may follow it.
pub(crate) fn command(processor: Processor, port: Port) -> Result<Vec<String>, String> {
    let arch = Arch::from(processor);
    let mut words = vec![run::itself()?.to_string_lossy().into_owned()];
    words.extend(["guest", "--arch", processor.name(), "--port", port.name()].map(String::from));
    words.extend(["--seconds".into(), DAY.to_string()]);
    for file in arch.storage()?.into_iter().chain([arch.scenarios()?]) {
        words.extend(["--file".into(), file.to_string_lossy().into_owned()]);
    }
    words.extend(["--", "hil", "--device", "mlx5_0", "--programs", "/bin"].map(String::from));
    Ok(words)
}

/// A folder. Dropping this value removes the folder.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A line that the guest has written.
enum Line {
    /// A line on the console: a message of the kernel, or of QEMU.
    Console(String),
    /// A line that the command has printed.
    Output(String),
}

/// Boots the guest, and returns the exit status of its command.
fn boot(options: &Options) -> Result<u8, String> {
    if options.arch == Arch::X86 && !cfg!(target_arch = "x86_64") {
        return Err("packages for an x86-64 guest are unpacked on x86-64 machines only (--arch arm64)".into());
    }
    let found = Qemu::find(options.arch, options.qemu.as_deref())?;
    let names = [&[options.arch.kernel()], PACKAGES].concat();
    let packages = debian::unpack(options.arch.packages(), "guest", &names, Dependencies::Included)?;
    let folder = Folder(run::root().join("target/guest").join(std::process::id().to_string()));
    fs::create_dir_all(&folder.0).map_err(|error| format!("{}: {error}", folder.0.display()))?;
    let image = folder.0.join("initramfs");
    let mut files = options.files.clone();
    if options.check {
        files.push(options.arch.scenarios()?);
    }
    fs::write(&image, image::build(options.arch, &packages, &files, &options.command)?)
        .map_err(|error| error.to_string())?;
    let socket = folder.0.join("socket");
    let mut served = vec!["--port".to_owned(), options.port.clone()];
    served.extend(options.log.then(|| "--log".to_owned()));
    let _function = function::serve(&socket, &served)?;
    let start = Instant::now();
    let mut qemu = Ends(spawn(options, &found, &kernel(&packages)?, &image, &socket)?);
    let (tell, lines) = channel();
    if let Some(console) = qemu.0.stderr.take() {
        listen(console, tell.clone(), Line::Console);
    }
    if let Some(output) = qemu.0.stdout.take() {
        listen(output, tell, Line::Output);
    }
    let usual = if options.command.is_empty() { DAY } else { 300 };
    let limit = Duration::from_secs(options.seconds.unwrap_or(usual));
    let status = watch(&lines, start + limit)?;
    eprintln!("the guest took {} s", start.elapsed().as_secs());
    Ok(status)
}

/// Starts QEMU. Its standard error is the console. Its standard output is the serial port of the command, or
/// stays this process's for a shell.
fn spawn(
    options: &Options,
    qemu: &Qemu,
    kernel: &Path,
    image: &Path,
    socket: &Path,
) -> Result<Child, String> {
    let port = options.arch.port();
    let parameters = format!("console={port}0 output={port}1 {PARAMETERS}");
    let is_shell = options.command.is_empty();
    let mut command = qemu.command();
    command
        .args(function::options(options.arch, MEMORY, socket))
        .args(["-nodefaults", "-vga", "none", "-display", "none", "-monitor", "none", "-no-reboot"])
        .args(["-serial", "file:/dev/stderr", "-serial", "stdio", "-append", &parameters, "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(image)
        .stdin(if is_shell { Stdio::inherit() } else { Stdio::null() })
        .stdout(if is_shell { Stdio::inherit() } else { Stdio::piped() })
        .stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("QEMU cannot be run: {error}"))
}

/// Sends each line of a stream, until the stream ends.
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
        if warning.is_none()
            && ["WARNING: CPU", "BUG: ", "Kernel panic"].iter().any(|text| line.contains(text))
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
        (None, None) => Err("the guest has ended before its command".into()),
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

    #[test]
    fn options_have_their_words() {
        let parsed = |line: &str| options(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
        let usual = parsed("").unwrap();
        assert_eq!((usual.arch, usual.qemu, usual.command.as_str()), (Arch::X86, None, ""));
        let other = parsed("--qemu /q --seconds 5 --log --file /a/b --file c -- ls -l /sys").unwrap();
        assert_eq!(
            (other.qemu.as_deref(), other.command.as_str(), other.log),
            (Some("/q"), "'ls' '-l' '/sys'", true)
        );
        let script = options(&["--".into(), "ls | wc".into()]).unwrap();
        assert_eq!(script.command, "ls | wc");
        assert_eq!((other.seconds, other.port.as_str()), (Some(5), "infiniband"));
        assert_eq!(other.files, ["/a/b", "c"].map(PathBuf::from));
        assert!(!other.check && parsed("--check").unwrap().check);
        assert_eq!(parsed("--arch arm64").unwrap().arch, Arch::Arm64);
        for line in ["--", "--file", "--seconds many", "--qemu", "ls", "--arch vax"] {
            assert!(parsed(line).is_none(), "{line}");
        }
    }
}
