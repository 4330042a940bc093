//! Replacements for functions of the C library. Each hands calls that do not concern the device to the
//! original.
//!
//! # Safety
//!
//! The caller of a replacement keeps the contract of the function with the same name in the C library.
//!
//! The replaced functions are the functions that libibverbs and libmlx5 import, and the 64-bit variants for
//! programs with large files. Programs also need the functions that duplicate a descriptor (`dup` and others)
//! or close many. On other files, each replacement only costs the time for a comparison.

mod cm;
mod descriptors;
mod discovery;
mod files;
mod locks;
mod mappings;
mod netlink;
mod next;
mod paths;
mod reads;
mod signals;
