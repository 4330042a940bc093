//! The guide: what a program does, step by step.
//!
//! | Page | What it is about |
//! |---|---|
//! | [`linux`] | from an open device to the first transfer, with the shim (feature `devx`) |
//! | [`bare_metal`] | the same without a system: what you bring, what the library does |
//! | [`signatures`] | integrity fields in memory, on the wire, and errors in them |
//! | [`crypto`] | AES-XTS: keys, data units, tweaks |
//! | [`errors`] | what can fail, what then is still true, and how a queue pair is made ready again |
//! | [`threads`] | what may be shared, and how |
//! | [`sizing`] | blocks of a ring, entries of a completion queue, numbers of mkeys |
//! | [`devices`] | what ConnectX and BlueField devices can do |
//! | [`features`] | what rdma-core, SPDK, DPDK and this library can do, and what shows it |
//! | [`c`] | from an open device to the first transfer in C or C++, and functions of SPDK and libibverbs beside ours |
//! | [`rdma_core`] | from functions of rdma-core to those here |

#[doc = include_str!("bare_metal.md")]
pub mod bare_metal {}
#[doc = include_str!("c.md")]
pub mod c {}
#[doc = include_str!("crypto.md")]
pub mod crypto {}
#[doc = include_str!("devices.md")]
pub mod devices {}
#[doc = include_str!("errors.md")]
pub mod errors {}
#[doc = include_str!("features.md")]
pub mod features {}
#[cfg_attr(feature = "devx", doc = include_str!("linux.md"))]
#[cfg_attr(not(feature = "devx"), doc = "Build the documentation with feature `devx` to see this page.")]
pub mod linux {}
#[doc = include_str!("rdma_core.md")]
pub mod rdma_core {}
#[doc = include_str!("signatures.md")]
pub mod signatures {}
#[doc = include_str!("sizing.md")]
pub mod sizing {}
#[doc = include_str!("threads.md")]
pub mod threads {}
