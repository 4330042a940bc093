//! Pairs of protection signature values (PSVs) that several mkeys share.

use super::{DevxError, ProtectionDomain, sys};
use crate::command::CreatePsv;
use crate::types::PsvIndex;
use std::sync::Arc;

/// A pair of PSVs, for the memory and the wire domain, that several mkeys with signatures share. So mkeys
/// that are used one after another need fewer objects on the device.
///
/// A configuration that sets a signature gives the PSVs their start values. Until the data have passed and
/// the program has taken a signature error, if there is one, no other mkey may use these PSVs. Therefore the
/// caller follows these rules for the mkeys that share one pair:
///
/// - Configure the next mkey after the transfer through the previous one has completed and its completion was
///   taken. If a peer moves the data, wait for the peer's message that it is done. A fence in place of this
///   wait may not be enough: no public source says that it is enough.
/// - Each configuration sets its signature: [`SignatureChange::Keep`](crate::mkey::SignatureChange::Keep)
///   would keep the values of another mkey.
///
/// The library does not check these rules. Mkeys of overlapping I/Os need their own PSVs
/// ([`ProtectionDomain::create_mkeys`]); the mkeys of a [`super::MkeyStore`] always have their own.
///
/// The PSVs are on the device until this value, its clones and the mkeys that use the PSVs are dropped.
///
/// libmlx5 creates two PSVs for each mkey. In SPDK (`module/accel/mlx5`), all mkeys of a task share one PSV,
/// which holds the running signature and an error flag; no other task uses this PSV meanwhile. Assumption:
/// SET_PSV overwrites everything that a PSV holds of an earlier I/O.
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
    /// The PSVs of the memory and of the wire domain.
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
    /// Creates a pair of PSVs for mkeys to share.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device has no PSVs, or refuses. After an error no PSV is left on the
    /// device.
    pub fn create_psvs(&self) -> Result<Psvs, DevxError> {
        let psv = || {
            // Linux accepts the command for a single PSV only (`devx_is_obj_create_cmd` in
            // drivers/infiniband/hw/mlx5/devx.c).
            let command = CreatePsv::<1>::new(self.number()?);
            self.create(&command)
        };
        let ((memory, [memory_index]), (wire, [wire_index])) = (psv()?, psv()?);
        let indices = [memory_index, wire_index];
        Ok(Psvs { indices, _objects: Arc::new([memory, wire]), domain: self.clone() })
    }
}
