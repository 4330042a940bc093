//! QEMU's options that connect a machine with the process `mlx5-function`, which serves the software device
//! as a PCI function over vfio-user.

use super::arch::Arch;
use super::kvm::Accelerator;
use std::path::Path;

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
