//! The lowest layer: the numbers of the kernel and of libibverbs, system calls, descriptors, memory,
//! settings. The modules of this layer contain no device and no object.

pub(crate) mod abi;
pub(crate) mod allocator;
pub(crate) mod counters;
pub(crate) mod descriptors;
pub(crate) mod direct;
pub(crate) mod errno;
pub(crate) mod fault;
pub(crate) mod missing;
pub(crate) mod netdevs;
pub(crate) mod netlink;
pub(crate) mod notice;
pub(crate) mod owner;
pub(crate) mod port;
pub(crate) mod process_memory;
pub(crate) mod settings;
pub(crate) mod sys;
pub(crate) mod sysfs;
pub(crate) mod window;
