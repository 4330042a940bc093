#![doc = include_str!("../README.md")]
#![no_std]

pub mod command;
pub mod error;
mod fmt;
pub mod mkey;
pub mod queue;
pub mod types;
pub mod wire;
pub mod wqe;
