//! Tests with clients of the function over vfio-user, without QEMU. An independent driver and the library
//! each bring the function up, and other clients send requests that the function refuses.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bring_up;
mod lent;
mod library;
mod machine;
mod planned;
mod refusals;
