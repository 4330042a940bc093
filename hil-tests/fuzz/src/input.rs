//! Makes the choices of a fuzz target from the bytes of its input. After the last byte, each choice is the
//! first alternative.

use arbitrary::{Arbitrary, Unstructured};

/// The bytes of the input that no choice has used yet.
pub(crate) struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// Returns whether all bytes are used.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns any value of the type.
    pub(crate) fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// Returns a number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        // A choice among at most 256 values takes one byte: a mutation of a byte then changes one choice.
        let number = if end <= 256 { u32::from(self.any::<u8>()) } else { self.any() };
        number % end
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// Returns true in one of `of` cases, on average.
    pub(crate) fn one_in(&mut self, of: u32) -> bool {
        self.below(of) == of - 1
    }

    /// Returns the result of `value` in half of all cases, and `None` in the others.
    pub(crate) fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.below(2) == 0 { None } else { Some(value(self)) }
    }

    /// Returns this number of bytes, padded with zeros after the last byte.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        // The call pads with zeros.
        let _ = self.0.fill_buffer(&mut bytes);
        bytes
    }

    /// Returns all remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0.take_rest()
    }
}
