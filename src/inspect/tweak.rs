//! A tweak's bytes as numbers. Their order depends on the engine, which may not be known.

use crate::mkey::XtsEngine;
use crate::types::Tweak;
use core::fmt;

/// Returns the two readings of a tweak's bytes, by the engines that a device may have.
pub(super) fn tweaks(bytes: [u8; 16], engine: Option<XtsEngine>) -> [Option<(&'static str, Tweak)>; 2] {
    let little = ("little endian", XtsEngine::SingleBlock.tweak_from_bytes(bytes));
    let big = ("big endian", XtsEngine::MultiBlock.tweak_from_bytes(bytes));
    match engine {
        None => [Some(little), Some(big)],
        Some(XtsEngine::MultiBlock) => [Some(big), None],
        Some(XtsEngine::MultiBlockLittleEndian | XtsEngine::SingleBlock | XtsEngine::Unspecified) => {
            [Some(little), None]
        }
    }
}

/// Prints the readings of a tweak's bytes that the engine leaves.
pub(super) fn print_tweak(
    bytes: [u8; 16],
    engine: Option<XtsEngine>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let mut separator = "";
    for (order, tweak) in tweaks(bytes, engine).into_iter().flatten() {
        write!(f, "{separator}{:#x} ({order})", tweak.get())?;
        separator = " or ";
    }
    Ok(())
}
