//! Parts of the machines that QEMU emulates: the emulator, the PCI function, the kernel and the root file
//! system.

pub(crate) mod arch;
pub(crate) mod folder;
pub(crate) mod function;
pub(crate) mod image;
pub(crate) mod kernel;
pub(crate) mod kvm;
mod modules;
pub(crate) mod qemu;
pub(crate) mod unpacked;
