//! The virtual DPU: an aarch64 machine in QEMU with an SSH server, on the loopback interface only.

mod image;

use crate::machine::arch::Arch;
use crate::machine::function;
use crate::machine::kernel::Kernel;
use crate::machine::kvm::Accelerator;
use crate::machine::qemu::Qemu;
use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use xtask::debian::{self, Architecture, Dependencies};
use xtask::host;
use xtask::run::{At, Ends, check, free_port, program, root, wait};

/// The longest time from power-on to the first answer of the SSH server. The machine needs seconds, and many
/// times that on a busy host.
const BOOT: Duration = Duration::from_secs(180);

/// The pause between two attempts to reach the server.
const LOOK: Duration = Duration::from_millis(100);

/// Parameters of the kernel: print warnings only, reboot after a panic (which ends QEMU), leave out
/// mitigations that are slow under emulation, and use expedited RCU grace periods.
const PARAMETERS: &str = "console=ttyAMA0 loglevel=4 panic=-1 mitigations=off kpti=off nokaslr \
                          rcupdate.rcu_expedited=1";

/// The Debian packages in the machine.
const PACKAGES: &[&str] = &["linux-image-arm64", "busybox-static", "dropbear-bin", "ibverbs-providers"];

const MEMORY: &str = "1024M";

/// The emulated machine, with its own SSH keys. The machine runs from [`Self::start`] until this value is
/// dropped.
#[derive(Debug)]
pub(crate) struct Machine {
    folder: PathBuf,
    kernel: Kernel,
    port: u16,
    /// The QEMU that accepts the PCI function. `None` for a machine without the function.
    emulator: Option<Qemu>,
    function: Option<Ends>,
    qemu: Option<Ends>,
}

impl Machine {
    /// Makes the keys and the root file system. With `drives`, the machine has the software device as a PCI
    /// function, and Linux's own mlx5 drivers.
    pub(crate) fn new(drives: bool) -> Result<Self, String> {
        let emulator = if drives { Some(Qemu::find(Arch::Arm64, None)?) } else { None };
        if emulator.is_none() {
            debian::install(debian::EMULATORS)?;
        }
        debian::install(debian::SSH)?;
        let packages = debian::unpack(None, Architecture::Arm64, "vdpu", PACKAGES, Dependencies::Included)?;
        // The name of the first machine's folder is the number of this process. Later machines append a
        // number.
        static MACHINES: AtomicU32 = AtomicU32::new(0);
        let name = match (std::process::id(), MACHINES.fetch_add(1, Ordering::Relaxed)) {
            (process, 0) => process.to_string(),
            (process, machine) => format!("{process}-{machine}"),
        };
        let kernel = Kernel::below(&packages)?;
        let port = free_port()?;
        let folder = root().join("target/vdpu").join(name);
        // An earlier process with the same number, which was killed, may have left a folder behind.
        let _ = fs::remove_dir_all(&folder);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.at(&folder)?;
        // From here on, dropping `machine` removes the folder.
        let machine = Self { folder, kernel, port, emulator, function: None, qemu: None };
        for key in ["host_key", "client_key"] {
            let mut make = program("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "vdpu", "-f"]);
            make.arg(machine.folder.join(key));
            check(make)?;
        }
        machine.write("known_hosts", format!("[127.0.0.1]:{port} {}", machine.read("host_key.pub")?))?;
        let image = image::build(
            &packages,
            &machine.kernel,
            drives,
            &machine.read("host_key")?,
            &machine.read("client_key.pub")?,
        )?;
        machine.write("initramfs", image)?;
        Ok(machine)
    }

    /// Switches the machine on, after switching it off if it runs. Returns when the machine's SSH server
    /// answers.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        self.stop();
        if self.emulator.is_some() {
            let port = ["--port", "infiniband"].map(String::from);
            self.function = Some(host::serve(&self.folder.join("socket"), &port)?);
        }
        let qemu = &mut self.qemu.insert(Ends(self.spawn()?)).0;
        // A test reads this process number, to kill the machine.
        fs::write(self.folder.join("qemu.pid"), qemu.id().to_string()).map_err(|error| error.to_string())?;
        let end = Instant::now() + BOOT;
        while matches!(wait(qemu, LOOK), Ok(None)) {
            if answers(self.port) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("the machine does not answer: {}", self.last_words("console.log")));
            }
        }
        Err(format!("QEMU has ended: {} {}", self.last_words("qemu.log"), self.last_words("console.log")))
    }

    /// Switches the machine off at once, without a shutdown.
    pub(crate) fn stop(&mut self) {
        self.qemu = None;
        self.function = None;
    }

    /// Returns the port of the SSH server on the loopback interface.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the file of the private key for `root`.
    pub(crate) fn key(&self) -> PathBuf {
        self.folder.join("client_key")
    }

    pub(crate) fn known_hosts(&self) -> PathBuf {
        self.folder.join("known_hosts")
    }

    fn spawn(&self) -> Result<Child, String> {
        let console = format!("file:{}", self.folder.join("console.log").display());
        // The guest has no access to other networks. One port of this machine is forwarded to the guest's
        // port 22.
        let network = format!("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{}-:22", self.port);
        let log = File::create(self.folder.join("qemu.log")).map_err(|error| error.to_string())?;
        let mut qemu = match &self.emulator {
            Some(emulator) => {
                let mut qemu = emulator.command();
                qemu.args(function::options(
                    Arch::Arm64,
                    Accelerator::Tcg,
                    MEMORY,
                    &self.folder.join("socket"),
                ));
                qemu
            }
            None => {
                // `setpriv` ends the machine also if this process is killed.
                let mut qemu = program("setpriv", &["--pdeathsig", "KILL", Arch::Arm64.qemu()]);
                let (machine, processor) = Arch::Arm64.machine();
                qemu.args(["-machine", machine, "-cpu", processor, "-smp", "2", "-m", MEMORY]);
                qemu
            }
        };
        qemu.args(["-display", "none", "-monitor", "none", "-nodefaults", "-no-reboot"])
            .args(["-serial", &console, "-netdev", &network, "-device", "virtio-net-device,netdev=net"])
            .args(["-append", PARAMETERS, "-kernel"])
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(self.folder.join("initramfs"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        qemu.spawn().map_err(|error| format!("qemu-system-aarch64 cannot be run: {error}"))
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let path = self.folder.join(name);
        fs::read_to_string(&path).at(&path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<(), String> {
        let path = self.folder.join(name);
        fs::write(&path, content).at(&path)
    }

    fn last_words(&self, name: &str) -> String {
        let log = fs::read(self.folder.join(name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
        // The folder contains the private keys.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns whether an SSH server introduces itself at a port. A connection alone proves nothing: QEMU accepts
/// it before the server runs.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let mut name = [0; 4];
    stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
        && stream.read_exact(&mut name).is_ok()
        && name == *b"SSH-"
}
