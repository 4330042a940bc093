//! PSVs that several mkeys share, for example for digests over several mkeys.

#![allow(unsafe_code)] // Unmangled names for C.

use super::device::{Pd, hand_out};
use super::error::{Error, attempt, given};
use super::values::{two, write_each};
use crate::devx;
use crate::types::PsvIndex;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::boxed::Box;

/// A pair of PSVs, for the memory and the wire domain. Mkeys that share PSVs are used one after another:
/// configure the next mkey after the transfer through the previous one has completed, and set a signature in
/// each configuration. The library does not check this.
pub struct Psvs(pub(super) devx::Psvs);

/// Creates a pair of PSVs.
///
/// Errors: MLX5MK_COMMAND, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_psvs_create(
    pd: Option<&Pd>,
    psvs: Option<&mut MaybeUninit<*mut Psvs>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, psvs) = (given(pd, "pd")?, given(psvs, "psvs")?);
        hand_out(psvs, Psvs(pd.pd.create_psvs()?))
    })
}

/// Writes the numbers of the PSVs, for digests over several mkeys. Either pointer may be NULL. The two
/// pointers must differ.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_psvs_indices(
    psvs: Option<&Psvs>,
    memory: Option<NonNull<u32>>,
    wire: Option<NonNull<u32>>,
) -> i32 {
    attempt(None, || {
        let Psvs(psvs) = given(psvs, "psvs")?;
        let places = two(memory, wire, "memory and wire are two places")?;
        // SAFETY: the caller vouches for the places.
        unsafe { write_each(places, psvs.indices().map(PsvIndex::get)) };
        Ok(0)
    })
}

/// Gives the PSVs up. They stay on the device until the pools that share them are gone. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_psvs_destroy(psvs: Option<Box<Psvs>>) {
    drop(psvs);
}
