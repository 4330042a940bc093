//! PSVs that several mkeys share, for example for digests over several mkeys.

#![allow(unsafe_code)] // `no_mangle` is unsafe.

use super::config::either;
use super::device::{Pd, hand_out};
use super::error::{Error, attempt, given};
use crate::devx;
use core::mem::MaybeUninit;
use std::boxed::Box;

/// A pair of PSVs, for the memory and the wire domain. Mkeys that share PSVs are used one after another: the
/// caller configures the next mkey only after the transfer through the previous one has completed, and sets a
/// signature in each configuration. The library does not check this.
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

/// Returns the number of the PSV of a domain, MLX5MK_MEMORY or MLX5MK_WIRE. The field `psv` of a digest over
/// several mkeys takes this number. It is below 2^24.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_psvs_index(
    psvs: Option<&Psvs>,
    domain: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let [memory, wire] = given(psvs, "psvs")?.0.indices();
        // The number of a PSV has 24 bits, so it is never negative as an `i32`.
        Ok(either("domain", domain, memory, wire)?.get().cast_signed())
    })
}

/// Destroys the handle. The PSVs stay on the device until the pools that share them are destroyed. NULL is
/// ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_psvs_destroy(psvs: Option<Box<Psvs>>) {
    drop(psvs);
}
