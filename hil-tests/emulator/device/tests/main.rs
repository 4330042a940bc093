//! Tests of the software device through its public interface. All are in one program, which builds faster
//! than one program for each file.
#![cfg(test)]
#![allow(missing_docs, clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod capabilities;
mod commands;
mod common;
mod completions;
mod copy;
mod crypto;
mod datagram;
mod drivers;
mod events;
mod faults;
mod integrity;
mod interface;
mod judge;
mod layout;
mod lists;
mod long_lists;
mod network;
mod objects;
mod outstanding;
mod port;
mod queues;
mod random;
mod region;
mod registration;
mod shared;
mod signature;
mod spaces;
mod statuses;
mod tap;
mod transaction;
mod transform;
mod transport;
mod umr;
mod users;
mod window;
