//! The guide: the steps of a program that uses this library, one page for each subject.
//!
//! | Page | Subject |
//! |---|---|
//! | [`linux`] | from an open device to the first transfer, with the shim over libmlx5 (feature `devx`) |
//! | [`bluefield`] | one command that validates a card, and what to send back |
//! | [`bare_metal`] | from an open device to the first transfer on bare metal: the parts that you provide, and those of the library |
//! | [`signatures`] | signatures of data in memory and on the wire, and errors in them |
//! | [`crypto`] | AES-XTS: keys, data units, tweaks |
//! | [`errors`] | errors, the state after them, and recovery of a queue pair |
//! | [`threads`] | which values threads may share, and how |
//! | [`sizing`] | blocks of a ring, entries of a completion queue, numbers of mkeys |
//! | [`devices`] | capabilities of ConnectX and BlueField devices |
//! | [`features`] | features of rdma-core, SPDK, DPDK and this library |
//! | [`c`] | from an open device to the first transfer in C or C++, with the counterparts of functions of SPDK and libibverbs |
//! | [`rdma_core`] | functions of rdma-core, SPDK and DPDK, and their counterparts here |

#[doc = include_str!("bare_metal.md")]
pub mod bare_metal {}
#[doc = include_str!("bluefield.md")]
pub mod bluefield {}
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
