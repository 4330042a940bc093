//! Command mailboxes: how the device is told to create, change and destroy objects.
//!
//! Layouts are those of rdma-core's `mlx5_ifc.h`, whose names the docs give as "PRM"; what it leaves out says
//! so. Numbers of bits in that header count from the top of each big-endian word; here a word is a bitfield,
//! which counts from the bottom, and a test compares the two.

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
