//! PSVs that several mkeys share, for digests over several mkeys among others.

#![allow(unsafe_code)] // The names that C knows functions by.

use super::device::{Pd, hand_out};
use super::error::{Error, attempt, given};
use crate::devx;
use core::mem::MaybeUninit;
use std::boxed::Box;

/// A pair of PSVs, for the memory and the wire domain. Mkeys that share them are used one after another: the next one is configured when
/// the transfer through the one before has completed, and each configuration sets its signature. Nothing checks this.
pub struct Psvs(pub(super) devx::Psvs);

/// Makes a pair of PSVs.
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

/// Writes the numbers of the PSVs, for digests over several mkeys. Either pointer may be NULL.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_psvs_indices(
    psvs: Option<&Psvs>,
    memory: Option<&mut MaybeUninit<u32>>,
    wire: Option<&mut MaybeUninit<u32>>,
) -> i32 {
    attempt(None, || {
        let Psvs(psvs) = given(psvs, "psvs")?;
        for (place, index) in [memory, wire].into_iter().zip(psvs.indices()) {
            if let Some(place) = place {
                place.write(index.get());
            }
        }
        Ok(0)
    })
}

/// Gives the PSVs up. They are on the device until the pools that share them are gone. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_psvs_destroy(psvs: Option<Box<Psvs>>) {
    drop(psvs);
}
