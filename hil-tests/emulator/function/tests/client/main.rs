//! Clients of the function over vfio-user, without QEMU: an independent bring-up, the library's own bring-up,
//! and refusals.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bring_up;
mod lent;
mod library;
mod machine;
mod planned;
mod refusals;
