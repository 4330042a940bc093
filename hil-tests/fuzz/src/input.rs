//! The bytes that a fuzzer hands out, read as choices. Where they end, all choices are the first.

use arbitrary::{Arbitrary, Unstructured};

/// What is left of the bytes.
pub(crate) struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// Whether there is nothing left to choose from.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Any value.
    pub(crate) fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// A number below `end`, which is more than 0.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        // A byte for few choices: whoever mutates bytes then mutates choices.
        let number = if end <= 256 { u32::from(self.any::<u8>()) } else { self.any() };
        number % end
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// True in one of `of` cases.
    pub(crate) fn one_in(&mut self, of: u32) -> bool {
        self.below(of) == of - 1
    }

    /// Something, or nothing in half of all cases.
    pub(crate) fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.below(2) == 0 { None } else { Some(value(self)) }
    }

    /// This number of bytes, zeros behind the end.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        // Fills what is missing with zeros.
        let _ = self.0.fill_buffer(&mut bytes);
        bytes
    }

    /// All bytes that are left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0.take_rest()
    }
}
