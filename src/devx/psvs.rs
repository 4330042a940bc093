//! Pairs of PSVs.

use super::{DevxError, ProtectionDomain, sys};
use crate::command::CreatePsv;
use crate::types::PsvIndex;
use std::sync::Arc;

/// A pair of PSVs, for the memory and the wire domain, that several mkeys with signatures share: fewer
/// objects on the device, where the mkeys are used one after another.
///
/// A configuration that sets a signature gives the PSVs their start values. From then until the data has
/// passed, and its signature error if there is one was taken, they are that mkey's. So, of the mkeys over one
/// pair:
///
/// - The next one is configured when the transfer through the one before has completed and its completion was
///   taken; where a peer moves the data, when the peer has said that it is done. No public source says that a
///   fence is enough.
/// - Each configuration sets its signature: with [`SignatureChange::Keep`](crate::mkey::SignatureChange::Keep) the values that
///   another mkey needed would stay.
///
/// Nothing checks this. Mkeys of I/Os that overlap have PSVs of their own
/// ([`ProtectionDomain::create_mkeys`]), and so do those of a [`super::MkeyStore`].
///
/// The PSVs are on the device until the value, its clones and the mkeys over them are dropped.
///
/// The reference provider makes two PSVs for each mkey. SPDK (`module/accel/mlx5`) lays all mkeys of a task
/// over one PSV, which holds the signature so far and whether there was an error; no other task has it
/// meanwhile. Assumption: a PSV holds nothing of an earlier I/O that SET_PSV does not write.
///
/// ```no_run
/// use mlx5_mkey::devx::{Cq, DevxError, MkeySpec, Mkeys, ProtectionDomain};
/// /// Two mkeys for an I/O in two steps, one over the memory of each.
/// fn create(pd: &ProtectionDomain, cq: &Cq) -> Result<Mkeys, DevxError> {
///     let spec = MkeySpec { max_entries: 16, signature: Some(cq), ..MkeySpec::default() };
///     pd.create_psvs()?.create_mkeys(2, spec)
/// }
/// ```
#[derive(Clone)]
pub struct Psvs {
    /// Of the memory and of the wire domain.
    indices: [PsvIndex; 2],
    _objects: Arc<[sys::Object<Arc<sys::Pd>>; 2]>,
    pub(super) domain: ProtectionDomain,
}

impl Psvs {
    /// Returns the PSVs of the memory and of the wire domain, for digests over several mkeys.
    pub const fn indices(&self) -> [PsvIndex; 2] {
        self.indices
    }
}

impl ProtectionDomain {
    /// Makes the PSVs of mkeys that share them.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device cannot, or refuses: none is left behind then.
    pub fn create_psvs(&self) -> Result<Psvs, DevxError> {
        let psv = || {
            // Linux takes the command for one PSV only (`devx_is_obj_create_cmd` in
            // drivers/infiniband/hw/mlx5/devx.c).
            let command = CreatePsv::<1>::new(self.number()?);
            self.create(&command)
        };
        let ((memory, [memory_index]), (wire, [wire_index])) = (psv()?, psv()?);
        let indices = [memory_index, wire_index];
        Ok(Psvs { indices, _objects: Arc::new([memory, wire]), domain: self.clone() })
    }
}
