#![doc = include_str!("../README.md")]
#![no_std]

mod fmt;
pub mod types;
pub mod wire;
