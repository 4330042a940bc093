#![doc = include_str!("README.md")]
#![no_std]
// Tests may panic, so these lints apply only to the library's own code.

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(test, feature = "devx"))]
extern crate std;

#[cfg(feature = "capi")]
pub mod capi;
pub mod command;
#[cfg(feature = "devx")]
pub mod devx;
pub mod error;
mod fmt;
pub mod guide;
pub mod hca;
pub mod inspect;
pub mod mkey;
pub mod queue;
pub mod types;
pub mod wire;
pub mod wqe;
