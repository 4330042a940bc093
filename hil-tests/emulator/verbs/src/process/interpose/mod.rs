//! The functions of the C library that are taken over: each hands on what is not about the device.
//!
//! The names are those that libibverbs and libmlx5 import, and their 64-bit twins, which programs import that
//! ask for large files; and for programs, what else makes a descriptor of another (`dup` and its like) or
//! closes many. All of them have no effect on other files but the time for one comparison.

mod descriptors;
mod discovery;
mod files;
mod locks;
mod mappings;
mod next;
mod paths;
mod reads;
