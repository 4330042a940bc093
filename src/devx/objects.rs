//! Protection domains and what is made in them: memory regions, mkeys with their PSVs, keys, logins.

#![allow(unsafe_code)] // Registering memory is the caller's promise, passed on to the seam.

use super::{Device, DevxError, carry, sys};
use crate::command::{
    CreateDek, CreateLogin, CreateMkey, CreatePsv, Credential, CredentialId, CryptoReport, DekKey, DekObject,
    EntryCount, ImportKekId, LoginObject, LoginState, MkeyFeatures, Pdn, QueryLogin,
};
use crate::mkey::{Access, Mkey, SignatureAttributes};
use crate::types::{DekId, Key};
use std::sync::Arc;
use std::vec::Vec;

/// `IBV_ACCESS_*` bits for local write, remote write, remote read, remote atomic.
fn verbs_access(access: Access) -> u32 {
    [
        (Access::LOCAL_WRITE, 1),
        (Access::REMOTE_WRITE, 2),
        (Access::REMOTE_READ, 4),
        (Access::REMOTE_ATOMIC, 8),
    ]
    .into_iter()
    .filter(|(right, _)| access.contains(*right))
    .map(|(_, bit)| bit)
    .sum()
}

/// A protection domain: keys work with queue pairs of the same one.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(super) pd: Arc<sys::Pd>,
    pub(super) context: Arc<sys::Context>,
    report: CryptoReport,
}

impl Device {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, DevxError> {
        let pd = sys::Pd::alloc(&self.context)?;
        Ok(ProtectionDomain { pd, context: self.context.clone(), report: self.report })
    }

    /// Logs in, so that wrapped keys can be loaded (`mlx5dv_crypto_login_create`).
    ///
    /// # Errors
    /// [`DevxError::Command`]; the kernel allows one login per open device.
    pub fn login(
        &self,
        credential_id: CredentialId,
        import_kek_id: ImportKekId,
        credential: Credential<'_>,
    ) -> Result<Login, DevxError> {
        let command = CreateLogin { credential_id, import_kek_id, credential };
        command.check(&self.report)?;
        let (object, login) =
            carry(&command, |request, reply| sys::Object::create(&self.context, request, reply))?;
        Ok(Login { object, login })
    }
}

/// Registered memory.
pub struct MemoryRegion(sys::Mr);

impl MemoryRegion {
    /// Returns the key for requests of this side.
    pub fn lkey(&self) -> Key {
        Key::from_raw(self.0.lkey())
    }

    /// Returns the key for requests of the peer.
    pub fn rkey(&self) -> Key {
        Key::from_raw(self.0.rkey())
    }
}

/// What an mkey is to be able to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MkeySpec {
    /// Translation entries; an interleaved layout takes one for its header.
    pub max_entries: u16,
    /// What it can do.
    pub features: MkeyFeatures,
}

/// An mkey: what software knows of it, and what there is on the device. Where the two are kept apart, there is still one
/// of each.
pub struct MkeyObject {
    /// What software knows of it; configure it through a [`super::QueuePair`].
    pub mkey: Mkey,
    /// What keeps it on the device.
    pub handle: MkeyHandle,
}

/// Keeps an mkey on the device. It is gone from there when the value is dropped.
pub struct MkeyHandle {
    // Destroyed in this order: the mkey refers to the PSVs, and all of them to the domain.
    _object: sys::Object,
    _psvs: Vec<sys::Object>,
    _pd: Arc<sys::Pd>,
}

/// A data encryption key on the device. It is gone from the device when the value is dropped.
pub struct Dek {
    id: DekId,
    // Destroyed in this order: the key refers to the domain.
    _object: sys::Object,
    _pd: Arc<sys::Pd>,
}

impl Dek {
    /// Returns the number that [`crate::mkey::Crypto`] takes.
    pub const fn id(&self) -> DekId {
        self.id
    }
}

/// A crypto login. Keys that were loaded under it outlive it.
pub struct Login {
    object: sys::Object,
    login: LoginObject,
}

impl Login {
    /// Asks the device whether the login is still valid.
    ///
    /// # Errors
    /// [`DevxError::Command`].
    pub fn state(&self) -> Result<LoginState, DevxError> {
        let ((), state) = carry(&QueryLogin(self.login), |request, reply| self.object.query(request, reply))?;
        Ok(state)
    }
}

impl ProtectionDomain {
    /// Returns the number that commands carry.
    pub(super) fn number(&self) -> Result<Pdn, DevxError> {
        Ok(Pdn::new(self.pd.number())?)
    }

    /// Registers `length` bytes at `address` for the device (`ibv_reg_mr`).
    ///
    /// # Errors
    /// [`DevxError::Call`] with what the kernel said.
    ///
    /// # Safety
    /// The memory stays mapped while the value lives. Until a request that names its key has completed, and while a peer has
    /// its key, Rust code does not use it in a way that conflicts with the device's reads and writes.
    pub unsafe fn register(
        &self,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, DevxError> {
        // SAFETY: the caller vouches for the same.
        Ok(MemoryRegion(unsafe { sys::Mr::register(&self.pd, address, length, verbs_access(access))? }))
    }

    /// Makes an mkey, and its PSVs if it is to have signatures.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device cannot, or refuses.
    pub fn create_mkey(&self, spec: MkeySpec) -> Result<MkeyObject, DevxError> {
        let command = CreateMkey {
            pd: self.number()?,
            max_entries: EntryCount::new(spec.max_entries)?,
            features: spec.features,
            tag: 0,
        };
        command.check(&self.report.general)?;
        let mut psvs = Vec::new();
        let mut psv = || {
            let command = CreatePsv::<1>::new(self.number()?);
            let (object, [index]) =
                carry(&command, |request, reply| sys::Object::create(&self.context, request, reply))?;
            psvs.push(object);
            Ok::<_, DevxError>(index)
        };
        let signature = match self.report.general.signatures() {
            Some(capabilities) if spec.features.block_signature => {
                Some(SignatureAttributes { capabilities, ..SignatureAttributes::new(psv()?, psv()?) })
            }
            _ => None,
        };
        let (object, key) =
            carry(&command, |request, reply| sys::Object::create(&self.context, request, reply))?;
        let crypto = if spec.features.crypto { self.report.general.xts_engine() } else { None };
        let attributes = crate::mkey::MkeyAttributes { signature, crypto, ..command.plain_attributes(key) };
        let handle = MkeyHandle { _object: object, _psvs: psvs, _pd: self.pd.clone() };
        Ok(MkeyObject { mkey: Mkey::new(attributes), handle })
    }

    /// Loads a data encryption key. Its bytes are wiped from the mailbox; the caller's copy is the caller's to wipe.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device does not take keys in this form, or refuses.
    pub fn create_dek(&self, key: DekKey<'_>, opaque: [u8; 8]) -> Result<Dek, DevxError> {
        let command = CreateDek { pd: self.number()?, key, opaque };
        command.check(&self.report)?;
        let (object, dek): (_, DekObject) =
            carry(&command, |request, reply| sys::Object::create(&self.context, request, reply))?;
        Ok(Dek { id: dek.dek_id(), _object: object, _pd: self.pd.clone() })
    }
}
