//! The process `mlx5-function`, which serves the software device as a PCI function over vfio-user, and QEMU's
//! options that connect a machine with it.

use super::arch::Arch;
use super::kvm::Accelerator;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use xtask::host;
use xtask::run::program;

/// The time limit for the process of the PCI function until it listens on its socket.
const LISTENS: Duration = Duration::from_secs(10);

/// A child process. Dropping this value kills the process.
#[derive(Debug)]
pub(crate) struct Ends(pub(crate) Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // `kill` fails if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the process of the PCI function with these arguments, and waits until the process listens on its
/// socket.
pub(crate) fn serve(socket: &Path, arguments: &[String]) -> Result<Ends, String> {
    let path = host::executes("mlx5-function")?;
    // An earlier process that was killed may have left the file of its socket. The loop below waits for a new
    // file.
    let _ = std::fs::remove_file(socket);
    // `setpriv` ends the process of the function also if this process is killed.
    let mut function = program("setpriv", &["--pdeathsig", "KILL"]);
    function.arg(path).arg("--socket").arg(socket).args(arguments);
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

/// Returns QEMU's options for a machine with two processors and the PCI function. `memory` is the size of the
/// machine's memory, such as `768M`, which the process of the function shares.
pub(crate) fn options(arch: Arch, accelerator: Accelerator, memory: &str, socket: &Path) -> Vec<String> {
    let (machine, _) = arch.machine();
    let [accel, accelerator, cpu, processor] = accelerator.options(arch);
    let function =
        format!(r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{}"}}}}"#, socket.display());
    let machine = format!("{machine},memory-backend=ram");
    let shared = format!("memory-backend-memfd,id=ram,size={memory},share=on");
    [
        [accel, accelerator],
        ["-machine", &machine],
        [cpu, processor],
        ["-smp", "2"],
        ["-m", memory],
        ["-object", &shared],
        ["-device", &function],
    ]
    .concat()
    .into_iter()
    .map(String::from)
    .collect()
}
