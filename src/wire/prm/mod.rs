//! Command mailboxes, by which software creates, changes and destroys objects on the device.
//!
//! Layouts follow rdma-core's `mlx5_ifc.h`. The documentation marks names of this header as "PRM". Fields
//! that this header lacks name their source. The header numbers the bits of a big-endian word from the
//! highest to the lowest; the bitfields of this module number them from the lowest to the highest. A test
//! compares both numberings.

pub mod atomic_capabilities;
pub mod command;
pub mod command_queue;
pub mod cq;
pub mod crypto_capabilities;
pub mod crypto_login;
pub mod encryption_key;
pub mod eq;
pub mod event;
pub mod function;
pub mod general_capabilities;
pub mod mkey;
pub mod object;
pub mod pages;
pub mod psv;
pub mod qp;
pub mod qp_context;
pub mod query_hca_cap;
pub mod roce_capabilities;
