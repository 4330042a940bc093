//! Memory for pools, of a size that is known at run time.

#[cfg(feature = "alloc")]
use alloc::{boxed::Box, vec::Vec};

/// Memory for the elements of a pool: lent by the caller, or on the heap. Slices and arrays by exclusive
/// reference convert into this type; with feature `alloc`, vectors too. The length of the memory is the size
/// of the pool.
///
/// ```
/// use mlx5_mkey::queue::{PoolSlot, Room};
/// let mut slots = [PoolSlot::EMPTY; 64];
/// let room: Room<'_, PoolSlot> = (&mut slots).into();
/// assert_eq!(room.as_ref().len(), 64);
/// ```
pub struct Room<'m, T>(Place<'m, T>);

enum Place<'m, T> {
    Lent(&'m mut [T]),
    #[cfg(feature = "alloc")]
    Owned(Box<[T]>),
}

impl<T> AsRef<[T]> for Room<'_, T> {
    #[inline]
    fn as_ref(&self) -> &[T] {
        match &self.0 {
            Place::Lent(slice) => slice,
            #[cfg(feature = "alloc")]
            Place::Owned(slice) => slice,
        }
    }
}

impl<T> AsMut<[T]> for Room<'_, T> {
    #[inline]
    fn as_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Place::Lent(slice) => slice,
            #[cfg(feature = "alloc")]
            Place::Owned(slice) => slice,
        }
    }
}

impl<'m, T> From<&'m mut [T]> for Room<'m, T> {
    fn from(slice: &'m mut [T]) -> Self {
        Self(Place::Lent(slice))
    }
}

/// `N` is a constant parameter, because arrays of any length convert, and the length is a part of their type.
impl<'m, T, const N: usize> From<&'m mut [T; N]> for Room<'m, T> {
    fn from(array: &'m mut [T; N]) -> Self {
        Self(Place::Lent(array))
    }
}

#[cfg(feature = "alloc")]
impl<T> From<Vec<T>> for Room<'_, T> {
    fn from(elements: Vec<T>) -> Self {
        Self(Place::Owned(elements.into_boxed_slice()))
    }
}

crate::fmt::format_counters!(['m, T] Room ['m, T] { });
