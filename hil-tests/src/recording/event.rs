//! The events of a recording: created objects, posted requests, completions, results.

use crate::vectors::format::Hex;
use serde::Deserialize;

/// The kind of a device's AES-XTS engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The engine processes many data units per mkey.
    MultiBlock,
    /// The engine processes a single data unit per mkey.
    SingleBlock,
}

/// An event of a recording. Events are in the order in which they happened.
#[allow(missing_docs)] // The fields are named and explained in FORMAT.md.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Device { engine: Engine },
    Region { key: u32, address: u64, length: u64 },
    Mkey { number: u32, context: Hex },
    Psv(u32),
    Dek { number: u32, object: Hex },
    Qp { number: u32, blocks: u32 },
    QpError(u32),
    Fill { address: u64, length: usize, seed: u64 },
    Write { address: u64, bytes: Hex },
    Ring { qp: u32, from: u16, blocks: Hex },
    Completion { opcode: u8, counter: u16, syndrome: u8 },
    Result { address: u64, length: usize, hash: Hex },
}
