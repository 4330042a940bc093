//! The library for C and C++ (feature `capi`). `cargo xtask capi` generates the header `mlx5_mkey.h` from
//! these sources, and builds a static library, a shared library and a file for pkg-config.
//! [`crate::guide::c`] is the page of the guide for C; `hil-tests/examples/c/protected_write.c` is a whole
//! program.
//!
//! These rules hold for every function:
//!
//! - **Handles** are opaque. The program destroys each handle that it has created, once. Objects that were
//!   made from a device, a protection domain or a key keep it alive, so these handles are destroyed in any
//!   order. A completion queue cannot be destroyed while queue pairs or pools use it. A handle may not be
//!   used after its destroy function has returned, unless that function returned MLX5MK_IN_USE.
//! - **Results** are 0 or a count; a negative result is one of the codes `MLX5MK_…`. After an error, the last
//!   argument receives the same code with a message, if it is not NULL. After a success nothing is written to
//!   it (except by mlx5mk_cq_poll, mlx5mk_cq_poll_stamped and mlx5mk_cq_wait, for malformed entries). A
//!   function that failed has changed nothing, unless its description says so, and has written to no other
//!   argument.
//! - **Arguments** may be NULL only where a function says so. Otherwise the code is [`MLX5MK_ARGUMENT`], as
//!   for an invalid number. Any other pointer is not checked: it must lead to an object of its type. The
//!   library accesses this object during the call only, except registered memory, also that of lists, and
//!   adopted objects of libibverbs.
//! - **Threads**: a completion queue, the queue pairs that complete to it, and the pools that report
//!   signature errors to it form a group. The two completion queues of a queue pair belong to one group. The
//!   program makes all calls with handles of one group one after the other, by any thread. Calls with handles
//!   of different groups may run at the same time. The program ensures that only one thread at a time uses a
//!   pool without signatures, a prepared configuration, a list or windows. Devices, protection domains,
//!   logins, memory regions, keys, mkeys that were created with their lists, objects of commands and their
//!   channels may be used by several threads at once. The program calls a destroy function only when no other
//!   call uses the handle. The only global state is the function of mlx5mk_on_drop_error.
//! - **Destroying**: if the kernel refuses to destroy an object, the library keeps the memory of that object,
//!   since the device may still write to it.
//! - **No panic unwinds** into C: an `extern "C"` function of Rust ends the process instead (since Rust
//!   1.81). The core of the library (encoding and queues) contains no code that panics; the builds for bare
//!   metal check this. Functions that create objects allocate memory, and end the process if memory is used
//!   up.
//! - **Lengths** are in bytes, unless a function says otherwise.
//!
//! A caller that breaks these rules may corrupt memory, so all functions with pointers are unsafe in Rust.
//!
//! Before version 1.0, a new version of the library may break compiled programs. `hil-tests/capi/abi.txt`
//! lists the symbols and layouts that compiled programs rely on.
//!
//! ```
//! use mlx5_mkey::capi::{MLX5MK_FULL, mlx5mk_code_words};
//! use std::ffi::CStr;
//! // SAFETY: the function returns a string that is never freed.
//! let words = unsafe { CStr::from_ptr(mlx5mk_code_words(MLX5MK_FULL)) };
//! assert_eq!(words.to_str(), Ok("nothing is free: take completions, or put mkeys back, then try again"));
//! ```

#![allow(clippy::missing_safety_doc)] // The rules above hold for all functions.

mod clock;
mod command;
mod config;
mod cq;
mod crc;
mod dek_cache;
mod device;
mod error;
mod events;
mod group;
mod inspect;
mod list;
mod list_mkey;
mod login;
mod memory;
mod pool;
mod post;
mod psvs;
mod qp;
mod size;
mod store;
mod text;
mod values;
mod version;
mod window;

pub use clock::*;
pub use command::*;
pub use config::*;
pub use cq::*;
pub use crc::*;
pub use dek_cache::*;
pub use device::*;
pub use error::*;
pub use events::*;
pub use group::*;
pub use inspect::*;
pub use list::*;
pub use list_mkey::*;
pub use login::*;
pub use memory::*;
pub use pool::*;
pub use post::*;
pub use psvs::*;
pub use qp::*;
pub use size::*;
pub use store::*;
pub use values::*;
pub use version::*;
pub use window::*;

/// The rules for threads in the documentation of this module depend on these properties: each type may move
/// to another thread (`Send`), and some may be used by several threads at once (`Sync`).
const _: () = {
    const fn moves<T: Send>() {}
    const fn is_shared<T: Send + Sync>() {}
    moves::<crate::devx::CqReader>();
    moves::<crate::devx::QueuePair>();
    moves::<crate::queue::MkeyPool<'static>>();
    moves::<crate::devx::MkeyHandle>();
    moves::<Prepared>();
    is_shared::<Device>();
    is_shared::<Pd>();
    is_shared::<Mr>();
    is_shared::<Dek>();
    is_shared::<Psvs>();
    is_shared::<ListMkey>();
    is_shared::<Events>();
    is_shared::<Login>();
    is_shared::<Umem>();
    is_shared::<Uar>();
    is_shared::<Object>();
    is_shared::<Queries>();
    is_shared::<crate::devx::MkeyStore>();
    moves::<crate::devx::MkeyCache>();
    moves::<DekCache>();
    moves::<List>();
    moves::<Windows>();
};
