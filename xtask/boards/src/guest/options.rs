//! The options of `cargo xtask guest`.

use crate::machine::arch::Arch;
use std::path::PathBuf;
use xtask::run;

pub(crate) const HELP: &str = "\
cargo xtask guest [--arch NAME] [--kernel DIR] [--qemu PROGRAM] [--port NAME] [--seconds N]
                  [--socket PATH] [--tcg] [--log] [--faults WORDS] [--file PATH]… [-- COMMAND…]
cargo xtask guest [options] --check [--case WORDS] | --find-qemu

Boots Debian's kernel in QEMU, on a port of the software device as a PCI function. The kernel's own
mlx5_core and mlx5_ib drive the device. Runs COMMAND in the guest and ends with its exit status: a
line for the shell, or a program and its arguments. Without COMMAND, gives a shell in a terminal,
and runs ibv_devinfo elsewhere. A warning of the kernel is an error. QEMU 10.1 or later comes from
the PATH, else it is unpacked below `target` from Debian sid. Kernel and programs are unpacked from
Debian's packages there too. The guest sees the working folder of this command at /host, read-only.
KVM is used if a trial of at most 10 s has shown that a guest boots.

  --arch NAME      x86-64 (the default; needs such a machine) or arm64
  --kernel DIR     the only kernel of a folder with `boot/vmlinuz-*` and `lib/modules`; `sid` is the
                   newest kernel of Debian sid
  --qemu PROGRAM   take this QEMU
  --port NAME      infiniband (the default) or ethernet
  --socket PATH    take the function that listens there (cargo xtask function), such as one under a
                   debugger
  --seconds N      how long a guest may take (600; a shell may take a day)
  --tcg            emulate the processor; do not try KVM
  --log            print what the function is asked for, and each completion, to standard error
  --faults WORDS   have the function fail on purpose (cargo xtask function --help)
  --file PATH      put a file of this machine into /bin of the guest, such as a program to run there
  --find-qemu      only look for QEMU, and unpack it if there is none
  --check          guests of both ports, of Debian 12's and sid's kernel and of arm64 (or those that
                   the other options name): ping-pong of all kinds, perftest, rping, NVMe over
                   fabrics with and without protection information, iSER, DEVX, counters of packets;
                   the drivers let go of the device, also under load and for FLR, and recover a
                   device that fails; the other models; two guests on one network: ping, RoCE, NVMe
                   over fabrics, the storage example, and one of them dies; a target that inserts
                   and strips protection information; a target of this project; a guest and programs
                   on the stand-in;
                   Wireshark judges the captures of both
  --case WORDS     check only the guests whose description has WORDS, such as `two guests`
";

/// The value of `--kernel` that selects the newest kernel of Debian sid. Other values are folders.
pub(super) const SID: &str = "sid";

#[derive(Default)]
pub(super) struct Options {
    pub(super) arch: Option<Arch>,
    /// A folder with a kernel, or [`SID`].
    pub(super) kernel: Option<String>,
    pub(super) qemu: Option<String>,
    /// The vfio-user socket of a PCI function whose process runs already.
    pub(super) socket: Option<PathBuf>,
    pub(super) port: Option<String>,
    pub(super) seconds: Option<u64>,
    pub(super) log: bool,
    pub(super) faults: Option<String>,
    pub(super) tcg: bool,
    pub(super) finds: bool,
    pub(super) check: bool,
    /// A part of the descriptions of the guests to check.
    pub(super) case: Option<String>,
    pub(super) files: Vec<PathBuf>,
    pub(super) command: String,
}

impl Options {
    pub(super) fn arch(&self) -> Arch {
        self.arch.unwrap_or_default()
    }
}

pub(super) fn options(arguments: &[String]) -> Option<Options> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--arch" => options.arch = Some(Arch::named(rest.next()?)?),
            "--kernel" => options.kernel = Some(rest.next()?.clone()),
            "--qemu" => options.qemu = Some(rest.next()?.clone()),
            "--socket" => options.socket = Some(rest.next()?.into()),
            "--port" => options.port = Some(rest.next()?.clone()),
            "--seconds" => options.seconds = Some(rest.next()?.parse().ok()?),
            "--faults" => options.faults = Some(rest.next()?.clone()),
            "--tcg" => options.tcg = true,
            "--log" => options.log = true,
            "--file" => options.files.push(rest.next()?.into()),
            "--find-qemu" => options.finds = true,
            "--check" => options.check = true,
            "--case" => options.case = Some(rest.next()?.clone()),
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
    // Options without an effect are refused. A function that runs already (`--socket`) has its own port, log
    // and faults. The check has its own guests and commands.
    let of_function = options.log || options.port.is_some() || options.faults.is_some();
    let of_guest = options.socket.is_some()
        || options.faults.is_some()
        || !options.files.is_empty()
        || !options.command.is_empty();
    let is_idle = (options.socket.is_some() && of_function)
        || (options.check && of_guest)
        || (!options.check && options.case.is_some());
    (!is_idle).then_some(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_words() {
        let parsed = |line: &str| options(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
        let usual = parsed("").unwrap();
        assert_eq!((usual.arch(), usual.qemu, usual.command.as_str()), (Arch::X86, None, ""));
        let words = "--kernel sid --qemu /q --port ethernet --seconds 5 --log --tcg --file /a/b --file c";
        let other = parsed(&format!("{words} -- ls -l /sys")).unwrap();
        assert_eq!(
            (other.qemu.as_deref(), other.command.as_str(), other.log && other.tcg),
            (Some("/q"), "'ls' '-l' '/sys'", true)
        );
        assert_eq!(other.kernel.as_deref(), Some(SID));
        assert_eq!(parsed("--socket s").unwrap().socket, Some(PathBuf::from("s")));
        for idle in [
            "--socket s --log",
            "--socket s --port ethernet",
            "--socket s --faults call@1=late",
            "--check --faults call@1=late",
            "--check --file a",
            "--check -- ls",
            "--case two",
        ] {
            assert!(parsed(idle).is_none(), "{idle}");
        }
        let script = options(&["--".into(), "ls | wc".into()]).unwrap();
        assert_eq!(script.command, "ls | wc");
        assert_eq!((other.seconds, other.port.as_deref()), (Some(5), Some("ethernet")));
        assert_eq!(other.files, ["/a/b", "c"].map(PathBuf::from));
        assert!(!other.check && parsed("--check").unwrap().check);
        assert_eq!(parsed("--arch arm64").unwrap().arch(), Arch::Arm64);
        for line in ["--", "--file", "--seconds many", "--qemu", "ls", "--arch vax"] {
            assert!(parsed(line).is_none(), "{line}");
        }
    }
}
