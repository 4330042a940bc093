//! The library for C and C++ (feature `capi`): what the header `mlx5_mkey.h` declares, which `cargo xtask
//! capi` makes of these sources, with a static and a shared library and a file for pkg-config.
//! [`crate::guide::c`] is its page of the guide; `hil-tests/examples/c/protected_write.c` is a whole program.
//!
//! What holds for every function:
//!
//! - **Handles** are opaque. Who makes one destroys it, once. What was made from a device, a protection
//!   domain or a key keeps that alive, so they are destroyed in any order; a completion queue is refused to
//!   be destroyed while queue pairs or pools use it. No handle may be used once its destroy function has
//!   returned, or was told to be in use.
//! - **Results** are 0 or a count, and below 0 one of the codes `MLX5MK_…`. The last argument takes the same
//!   code with a message, where it is not NULL; where all is well nothing is written to it. What failed has
//!   changed nothing, unless a function says so, and has written to no other argument.
//! - **Arguments** are NULL only where a function says so: else the code is [`MLX5MK_ARGUMENT`], as for a
//!   number that makes no sense. What else a pointer leads to is not looked at: it is what its type says.
//!   What an argument leads to is read or written during the call only, but for memory that is registered,
//!   that of lists too, and objects of libibverbs that are adopted.
//! - **Threads**: a completion queue, the queue pairs that complete to it, and the pools whose signature
//!   errors arrive at it are a group; so are a queue pair's two completion queues. Calls with handles of one
//!   group are made one after the other, by any thread, of several groups at the same time. A pool without
//!   signatures, a prepared configuration, a list and windows are used by one thread at a time. Devices,
//!   protection domains, memory regions, keys and mkeys that bring their lists may be used by several threads
//!   at once. A destroy function is called when no other call uses the handle. There is no global state.
//! - **Destroying** what the kernel does not let go keeps the memory that it uses, since the device may still
//!   write to it.
//! - **Nothing unwinds** into C: an `extern "C"` function of Rust ends the process instead (since Rust 1.81).
//!   The core cannot panic, as the builds for bare metal show; setting up allocates, and ends the process
//!   where memory is used up.
//! - **Lengths** are in bytes, unless a function says otherwise.
//!
//! A caller that breaks these rules breaks memory, so that in Rust all functions with pointers are unsafe.
//!
//! Until version 1.0 a change may break programs that were compiled before it: `hil-tests/capi/abi.txt` lists
//! what they rely on.
//!
//! ```
//! use mlx5_mkey::capi::{MLX5MK_FULL, mlx5mk_code_words};
//! use std::ffi::CStr;
//! // SAFETY: it is a string that is never freed.
//! let words = unsafe { CStr::from_ptr(mlx5mk_code_words(MLX5MK_FULL)) };
//! assert_eq!(words.to_str(), Ok("nothing is free: take completions, or put mkeys back, then try again"));
//! ```

#![allow(clippy::missing_safety_doc)] // It is above, once for all functions.

mod config;
mod cq;
mod dek_cache;
mod device;
mod error;
mod events;
mod group;
mod inspect;
mod list;
mod list_mkey;
mod memory;
mod pool;
mod post;
mod psvs;
mod qp;
mod store;
mod text;
mod values;
mod window;

pub use config::*;
pub use cq::*;
pub use dek_cache::*;
pub use device::*;
pub use error::*;
pub use events::*;
pub use group::*;
pub use inspect::*;
pub use list::*;
pub use list_mkey::*;
pub use memory::*;
pub use pool::*;
pub use post::*;
pub use psvs::*;
pub use qp::*;
pub use store::*;
pub use values::*;
pub use window::*;

/// What the rules for threads rest on.
const _: () = {
    const fn moves<T: Send>() {}
    const fn is_shared<T: Send + Sync>() {}
    moves::<crate::devx::CqReader>();
    moves::<crate::devx::QueuePair<64, 16>>();
    moves::<crate::queue::MkeyPool<16>>();
    moves::<crate::devx::MkeyHandle>();
    moves::<Prepared>();
    is_shared::<Device>();
    is_shared::<Pd>();
    is_shared::<Mr>();
    is_shared::<Dek>();
    is_shared::<Psvs>();
    is_shared::<ListMkey>();
    is_shared::<Events>();
    is_shared::<crate::devx::MkeyStore>();
    moves::<crate::devx::MkeyCache<16>>();
    moves::<DekCache>();
    moves::<List>();
    moves::<Windows>();
};
