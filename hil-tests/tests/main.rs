//! Tests that need no board except the software device. One program links faster than one for each file.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command_queue;
mod failed;
mod features;
mod measured;
mod no_board;
mod pages;
mod proofs;
mod properties;
mod requirements;
mod softdev;
mod ways;
