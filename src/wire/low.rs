//! What a field of a word takes of a value: its low bits.
//!
//! A setter of a bit field panics where a value has more bits than the field. Values are in range where they
//! are made, by their types; cutting them here leaves no panic in what encodes them.

/// Returns the low `N` bits of a value.
pub(super) const fn low8<const N: u32>(value: u8) -> u8 {
    let low = value & (u8::MAX >> (u8::BITS - N));
    debug_assert!(value == low, "more bits than the field has");
    low
}

/// Returns the low `N` bits of a value.
pub(super) const fn low32<const N: u32>(value: u32) -> u32 {
    let low = value & (u32::MAX >> (u32::BITS - N));
    debug_assert!(value == low, "more bits than the field has");
    low
}
