//! Tests that need no board but the software device. All files in this folder are modules of one program,
//! which links faster than a program for each file.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod assumptions;
mod command_queue;
mod failed;
mod features;
mod measured;
mod pages;
mod proofs;
mod properties;
mod requirements;
mod softdev;
mod ways;
