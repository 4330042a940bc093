//! Reads the bytes of a tweak as a number. The byte order depends on the AES-XTS engine, which may be
//! unknown.

use crate::mkey::XtsEngine;
use crate::types::Tweak;
use core::fmt;

/// Returns the tweak as the engine reads its bytes. For an unknown engine, returns the readings in both byte
/// orders, each with the name of the order.
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

/// Prints the tweak as the engine reads its bytes, or both readings for an unknown engine.
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
