//! Functions that cut a value to the low bits, as many as a field of a word has.
//!
//! A setter of a bit field panics if a value has more bits than the field. The types of the library keep
//! values in range already. With values cut here, the compiler removes the panic from the encoding code.

/// Returns the low `N` bits of a value. A debug build asserts that the other bits are 0.
pub(crate) const fn low8<const N: u32>(value: u8) -> u8 {
    let low = value & (u8::MAX >> (u8::BITS - N));
    debug_assert!(value == low, "more bits than the field has");
    low
}

/// Returns the low `N` bits of a value. A debug build asserts that the other bits are 0.
pub(crate) const fn low32<const N: u32>(value: u32) -> u32 {
    let low = value & (u32::MAX >> (u32::BITS - N));
    debug_assert!(value == low, "more bits than the field has");
    low
}

/// Returns the low `N` bits of a value. A debug build asserts that the other bits are 0.
pub(crate) const fn low64<const N: u32>(value: u64) -> u64 {
    let low = value & (u64::MAX >> (u64::BITS - N));
    debug_assert!(value == low, "more bits than the field has");
    low
}
