//! Mkeys that work requests configure.

use super::cq::{Cq, SetAside, Writer};
use super::{DevxError, ProtectionDomain, Psvs, create_unlike, sys};
use crate::command::{Command, CreateMkey, EntryCount, GeneralCapabilities, MkeyFeatures};
use crate::error::CommandError;
use crate::mkey::{Access, MemoryWindow, Mkey, MkeyAttributes, SignatureAttributes, UmrForm};
use crate::types::KsmEntrySize;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::vec::Vec;

/// What an mkey is to be able to do.
///
/// ```
/// use mlx5_mkey::devx::{Cq, DevxError, MkeySpec, Mkeys, ProtectionDomain};
/// /// For T10-DIF inside AES-XTS. `cq` is the completion queue of the queue pairs that use them.
/// fn create(pd: &ProtectionDomain, cq: &Cq) -> Result<Mkeys, DevxError> {
///     let spec = MkeySpec { max_entries: 16, signature: Some(cq), crypto: true, ..MkeySpec::default() };
///     pd.create_mkeys(64, spec)
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MkeySpec<'c> {
    /// Translation entries of 16 bytes, as many as [`GeneralCapabilities::max_umr_entries`] at most; an
    /// interleaved layout takes one for its header.
    pub max_entries: u32,
    /// Block signatures, whose errors arrive at this completion queue, of which one entry is set aside. It
    /// must be that of the queue pairs that the mkey is used with (with two of them, errors in what is sent
    /// arrive at that of the send queue, in what is received at the other): this is not checked, and another
    /// queue has no room for the errors.
    pub signature: Option<&'c Cq>,
    /// AES-XTS. The mkey refuses traffic until it is configured.
    pub crypto: bool,
    /// Its tag will be changed (`MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG`).
    pub update_tag: bool,
    /// The peer may invalidate it.
    pub remote_invalidate: bool,
    /// Writes through it may pass one another, and reads pass writes where the device can do that as well
    /// (kernel `mlx5e_mkey_set_relaxed_ordering`).
    pub relaxed_ordering: bool,
    /// Rights that it has from the start, beside reading by the owner: for [`UmrForm::Minimal`], whose
    /// configurations need not give them while the state of the mkey is known.
    pub access: Access,
    /// How much configurations write.
    pub form: UmrForm,
    /// They are for lists whose entries all have this length (KSM), which are in registered memory
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

/// An mkey: what software knows of it, and what there is on the device. Where the two are kept apart, there
/// is still one of each.
pub struct MkeyObject {
    /// What software knows of it; configure it through a [`super::QueuePair`].
    pub mkey: Mkey,
    /// What keeps it on the device.
    pub handle: MkeyHandle,
}

/// Mkeys of a kind. It is a slice of [`Mkey`], as routers of completions take it: a signature error names the
/// index.
pub struct Mkeys {
    mkeys: Vec<Mkey>,
    handles: Vec<MkeyHandle>,
}

impl Mkeys {
    /// Returns what software knows of them, and what keeps them on the device: for a pool.
    ///
    /// ```no_run
    /// use mlx5_mkey::devx::{MkeyHandle, MkeySpec, ProtectionDomain};
    /// use mlx5_mkey::queue::MkeyPool;
    /// use std::error::Error;
    /// /// 64 mkeys, and the handles, to be dropped after the pool.
    /// fn pool(pd: &ProtectionDomain) -> Result<(MkeyPool<64>, Vec<MkeyHandle>), Box<dyn Error>> {
    ///     let spec = MkeySpec { max_entries: 16, update_tag: true, ..MkeySpec::default() };
    ///     let (mkeys, handles) = pd.create_mkeys(64, spec)?.into_parts();
    ///     Ok((MkeyPool::new(mkeys)?, handles))
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

/// Keeps an mkey on the device. It is gone from there when the value is dropped.
pub struct MkeyHandle(#[expect(dead_code, reason = "dropped with the handle")] sys::Object<Arc<MkeyKept>>);

/// What the device uses of an mkey.
struct MkeyKept {
    _psvs: Option<Psvs>,
    _pd: Arc<sys::Pd>,
    set_aside: Option<SetAside>,
}

impl Psvs {
    /// Makes `count` mkeys of a kind over these PSVs, in the same protection domain.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_mkey`]: none is left behind then.
    pub fn create_mkeys(&self, count: usize, spec: MkeySpec<'_>) -> Result<Mkeys, DevxError> {
        self.domain.make_mkeys(count, spec, Some(self))
    }
}

impl ProtectionDomain {
    /// Makes an mkey, and its PSVs if it is to have signatures.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device cannot, or refuses; [`DevxError::CompletionQueueTooSmall`]
    /// where the completion queue has no entry left for its signature errors;
    /// [`DevxError::ErrorsOverwritten`] where it could lose them.
    pub fn create_mkey(&self, spec: MkeySpec<'_>) -> Result<MkeyObject, DevxError> {
        self.make_mkey(spec, None)
    }

    /// Makes `count` mkeys of a kind.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_mkey`]: none is left behind then.
    pub fn create_mkeys(&self, count: usize, spec: MkeySpec<'_>) -> Result<Mkeys, DevxError> {
        self.make_mkeys(count, spec, None)
    }

    /// Makes `count` memory windows of type 2 that are not bound, and what keeps them on the device: for a
    /// [`WindowPool`](crate::queue::WindowPool).
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device has none, or refuses: none is left behind then.
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

    /// Makes an mkey over these PSVs, or with its own.
    fn make_mkey(&self, spec: MkeySpec<'_>, shared: Option<&Psvs>) -> Result<MkeyObject, DevxError> {
        let features = spec.features(&self.report.general);
        let max_entries = EntryCount::new(spec.max_entries)?;
        let command = CreateMkey { pd: self.number()?, max_entries, features, tag: 0 };
        command.check(&self.report.general)?;
        let set_aside = spec.signature.map(Cq::set_error_aside).transpose()?;
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
