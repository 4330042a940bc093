//! Creates mkeys that work requests configure later, and memory windows.

use super::cq::{Cq, SetAside, Writer};
use super::{DevxError, ProtectionDomain, Psvs, create_unlike, sys};
use crate::command::error::CommandError;
use crate::command::{Command, CreateMkey, EntryCount, GeneralCapabilities, MkeyFeatures};
use crate::mkey::{Access, MemoryWindow, Mkey, MkeyAttributes, SignatureAttributes, UmrForm};
use crate::types::KsmEntrySize;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::vec::Vec;

/// The properties of an mkey.
///
/// ```
/// use mlx5_mkey::devx::{Cq, DevxError, MkeySpec, Mkeys, ProtectionDomain};
/// /// Creates mkeys for T10-DIF inside AES-XTS. `cq` is the completion queue of the queue pairs that use the
/// /// mkeys.
/// fn create(pd: &ProtectionDomain, cq: &Cq) -> Result<Mkeys, DevxError> {
///     let spec = MkeySpec { max_entries: 16, signature: Some(cq), crypto: true, ..MkeySpec::default() };
///     pd.create_mkeys(64, spec)
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MkeySpec<'c> {
    /// The largest number of entries in a layout of the mkey (16 bytes each on the device), at most
    /// [`GeneralCapabilities::max_umr_entries`]. An interleaved layout needs one entry more, for its header.
    pub max_entries: u32,
    /// The completion queue at which signature errors arrive, if the mkey shall have signatures. The mkey
    /// sets aside one entry of it. The caller ensures that the queue pairs that use the mkey complete to this
    /// queue: the library does not check this, and no entry is set aside in another queue. If a queue pair
    /// has two completion queues, errors in sent data arrive at the one of the send queue, errors in received
    /// data at the other.
    pub signature: Option<&'c Cq>,
    /// The mkey encrypts with AES-XTS. Transfers through the mkey fail until a configuration gives it crypto
    /// properties.
    pub crypto: bool,
    /// Requests may change the mkey's tag (`MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG`).
    pub update_tag: bool,
    /// The peer may invalidate the mkey.
    pub remote_invalidate: bool,
    /// Writes through the mkey may pass one another, and reads may pass writes where the device supports that
    /// (kernel `mlx5e_mkey_set_relaxed_ordering`).
    pub relaxed_ordering: bool,
    /// Rights that the mkey has from the start, in addition to reading by the owner. They are meant for
    /// [`UmrForm::Minimal`], whose configurations may omit the rights, except after [`Mkey::forget`].
    pub access: Access,
    /// Whether a configuration writes all properties of the mkey, or only those that change.
    pub form: UmrForm,
    /// The length of every entry, for mkeys whose entries all have one length (KSM). `None` for entries of
    /// different lengths. The entries of a KSM mkey come from lists in registered memory
    /// ([`RegisteredList::write_ksm`](crate::mkey::RegisteredList::write_ksm)).
    pub entry_size: Option<KsmEntrySize>,
}

impl MkeySpec<'_> {
    const fn features(&self, device: &GeneralCapabilities) -> MkeyFeatures {
        MkeyFeatures {
            block_signature: self.signature.is_some(),
            crypto: self.crypto,
            update_tag: self.update_tag,
            remote_invalidate: self.remote_invalidate,
            relaxed_ordering_write: self.relaxed_ordering,
            relaxed_ordering_read: self.relaxed_ordering && device.relaxed_ordering_read,
            access: self.access,
            form: self.form,
            entry_size: self.entry_size,
        }
    }
}

/// An mkey, in two parts: the software's record of the mkey, and the handle of the mkey on the device. A
/// program may store the two parts in different places.
pub struct MkeyObject {
    /// The software's record of the mkey; configure it through a [`super::QueuePair`].
    pub mkey: Mkey,
    /// The handle that keeps the mkey on the device.
    pub handle: MkeyHandle,
}

/// Mkeys with the same properties. The value dereferences to a slice of [`Mkey`], for use in a router of
/// completions. A signature error gives the mkey's index in this slice.
pub struct Mkeys {
    mkeys: Vec<Mkey>,
    handles: Vec<MkeyHandle>,
}

impl Mkeys {
    /// Returns the software's records of the mkeys, and the handles that keep them on the device. A pool
    /// takes the records.
    ///
    /// ```no_run
    /// use mlx5_mkey::devx::{MkeyHandle, MkeySpec, ProtectionDomain};
    /// use mlx5_mkey::queue::{MkeyPool, PoolSlot};
    /// use std::error::Error;
    /// /// Creates 64 mkeys. Drop their handles after the pool.
    /// fn pool(pd: &ProtectionDomain) -> Result<(MkeyPool<'static>, Vec<MkeyHandle>), Box<dyn Error>> {
    ///     let spec = MkeySpec { max_entries: 16, update_tag: true, ..MkeySpec::default() };
    ///     let (mkeys, handles) = pd.create_mkeys(64, spec)?.into_parts();
    ///     Ok((MkeyPool::new(mkeys, vec![PoolSlot::EMPTY; 64])?, handles))
    /// }
    /// ```
    pub fn into_parts(self) -> (Vec<Mkey>, Vec<MkeyHandle>) {
        (self.mkeys, self.handles)
    }
}

impl Deref for Mkeys {
    type Target = [Mkey];

    fn deref(&self) -> &[Mkey] {
        &self.mkeys
    }
}

impl DerefMut for Mkeys {
    fn deref_mut(&mut self) -> &mut [Mkey] {
        &mut self.mkeys
    }
}

/// Keeps an mkey on the device. Dropping the handle destroys the mkey there.
pub struct MkeyHandle(#[expect(dead_code, reason = "dropped with the handle")] sys::Object<Arc<MkeyKept>>);

/// The objects that an mkey on the device needs. They are kept until the mkey is destroyed.
struct MkeyKept {
    _psvs: Option<Psvs>,
    _pd: Arc<sys::Pd>,
    set_aside: Option<SetAside>,
}

impl Psvs {
    /// Creates `count` mkeys with the properties `spec` that share this pair of PSVs, in the protection
    /// domain of the PSVs.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_mkey`]. After an error no mkey is left on the device.
    pub fn create_mkeys(&self, count: usize, spec: MkeySpec<'_>) -> Result<Mkeys, DevxError> {
        self.domain.make_mkeys(count, spec, Some(self))
    }
}

impl ProtectionDomain {
    /// Creates an mkey, and its PSVs if `spec` asks for signatures.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device lacks a property of `spec`, or refuses;
    /// [`DevxError::CompletionQueueTooSmall`] where the completion queue has no entry left for signature
    /// errors; [`DevxError::ErrorsOverwritten`] where the completion queue could lose signature errors;
    /// [`DevxError::Adopt`] with [`AdoptError::OtherDevice`](super::AdoptError::OtherDevice) for a completion
    /// queue of another device.
    pub fn create_mkey(&self, spec: MkeySpec<'_>) -> Result<MkeyObject, DevxError> {
        self.make_mkey(spec, None)
    }

    /// Creates `count` mkeys with the properties `spec`.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_mkey`]. After an error no mkey is left on the device.
    pub fn create_mkeys(&self, count: usize, spec: MkeySpec<'_>) -> Result<Mkeys, DevxError> {
        self.make_mkeys(count, spec, None)
    }

    /// Creates `count` unbound memory windows of type 2, and the handles that keep them on the device. A
    /// [`WindowPool`](crate::queue::WindowPool) takes the windows.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device has no memory windows, or refuses. After an error no window is
    /// left on the device.
    pub fn create_windows(&self, count: usize) -> Result<(Vec<MemoryWindow>, Vec<MkeyHandle>), DevxError> {
        if !self.report.general.memory_windows {
            let (command, what) = (CreateMkey::OPCODE, "memory windows");
            return Err(CommandError::Unsupported { command, what }.into());
        }
        let spec = MkeySpec { max_entries: 1, remote_invalidate: true, ..MkeySpec::default() };
        let (mkeys, handles) = self.create_mkeys(count, spec)?.into_parts();
        Ok((mkeys.iter().map(|mkey| MemoryWindow::new(mkey.key())).collect(), handles))
    }

    fn make_mkeys(
        &self,
        count: usize,
        spec: MkeySpec<'_>,
        shared: Option<&Psvs>,
    ) -> Result<Mkeys, DevxError> {
        let made = (0..count)
            .map(|_| self.make_mkey(spec, shared).map(|MkeyObject { mkey, handle }| (mkey, handle)));
        let (mkeys, handles) = made.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Ok(Mkeys { mkeys, handles })
    }

    /// Creates an mkey. If it has signatures, they use the PSVs `shared`. If `shared` is `None`, the function
    /// creates PSVs for this mkey alone.
    fn make_mkey(&self, spec: MkeySpec<'_>, shared: Option<&Psvs>) -> Result<MkeyObject, DevxError> {
        let features = spec.features(&self.report.general);
        let max_entries = EntryCount::new(spec.max_entries)?;
        let command = CreateMkey { pd: self.number()?, max_entries, features, tag: 0 };
        command.check(&self.report.general)?;
        let set_aside = spec.signature.map(|cq| cq.set_error_aside(&self.context)).transpose()?;
        let psvs = match shared {
            _ if !features.block_signature => None,
            Some(shared) => Some(shared.clone()),
            None => Some(self.create_psvs()?),
        };
        let signature = self.report.general.signatures().zip(psvs.as_ref()).map(|(capabilities, psvs)| {
            let [memory, wire] = psvs.indices();
            SignatureAttributes { capabilities, ..SignatureAttributes::new(memory, wire) }
        });
        let kept = Arc::new(MkeyKept { _psvs: psvs, _pd: self.pd.clone(), set_aside });
        let (object, key) = create_unlike(&self.context, &kept, &command, |key| {
            spec.signature.is_some_and(|cq| cq.knows(Writer::Mkey(key.index())))
        })?;
        if let Some(entry) = &kept.set_aside {
            entry.belongs_to(Writer::Mkey(key.index()));
        }
        let crypto = if features.crypto { self.report.general.xts_engine() } else { None };
        let attributes = MkeyAttributes { signature, crypto, ..command.plain_attributes(key) };
        Ok(MkeyObject { mkey: Mkey::new(attributes), handle: MkeyHandle(object) })
    }
}
