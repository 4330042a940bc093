//! Protection domains and what is made in them: memory regions, mkeys with their PSVs, keys, logins.

#![allow(unsafe_code)] // Registering memory is the caller's promise, passed on to the seam.

use super::cq::{Cq, SetAside, Writer};
use super::{Device, DevxError, carry, create_unlike, sys};
use crate::command::{
    Command, CreateDek, CreateListMkey, CreateLogin, CreateMkey, CreatePsv, Credential, CredentialId,
    CryptoReport, DekInfo, DekKey, DekObject, EntryCount, GeneralCapabilities, ImportKekId, LoginObject,
    LoginState, MkeyEntries, MkeyFeatures, ModifyDek, Pdn, QueryDek, QueryLogin, SyncCrypto,
};
use crate::error::CommandError;
use crate::mkey::{Access, KlmEntry, MemoryWindow, Mkey, MkeyAttributes, SignatureAttributes, UmrForm};
use crate::types::{DekId, Key, KsmEntrySize, PsvIndex};
use crate::wqe::Sge;
use core::ffi::c_void;
use core::ops::{Deref, DerefMut, Range};
use core::ptr::NonNull;
use std::boxed::Box;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::vec::Vec;

/// `IBV_ACCESS_*` bits for local write, remote write, remote read, remote atomic.
pub(super) fn verbs_access(access: Access) -> u32 {
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
    pub(super) report: CryptoReport,
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

    /// Uses a protection domain that another library has allocated (`struct ibv_pd`), that of a queue pair for
    /// [`Device::adopt_qp`], say. It is not freed.
    ///
    /// # Errors
    /// [`DevxError::Adopt`] where it is of another context, [`DevxError::Call`].
    ///
    /// # Safety
    /// `pd` is a `struct ibv_pd` of libmlx5, and stays allocated while the value and all that is made from it live.
    pub unsafe fn adopt_pd(&self, pd: NonNull<c_void>) -> Result<ProtectionDomain, DevxError> {
        // SAFETY: the caller vouches for the same.
        let pd = unsafe { sys::Pd::adopt(&self.context, pd)? };
        Ok(ProtectionDomain { pd, context: self.context.clone(), report: self.report })
    }

    /// Logs in, so that wrapped keys can be loaded (`mlx5dv_crypto_login_create`). A context has one login at a time: the next one may
    /// come when this is dropped. Threads share it, and keys that were loaded under it outlive it.
    ///
    /// # Errors
    /// [`DevxError::LoggedIn`] while there is a login; [`DevxError::Command`] where the device cannot, or refuses.
    pub fn login(
        &self,
        credential_id: CredentialId,
        import_kek_id: ImportKekId,
        credential: Credential<'_>,
    ) -> Result<Login, DevxError> {
        let command = CreateLogin { credential_id, import_kek_id, credential };
        command.check(&self.report)?;
        let place = self.context.login_place().ok_or(DevxError::LoggedIn)?;
        let (object, login) =
            carry(&command, |request, reply| sys::Object::create(&self.context, place, request, reply))?;
        Ok(Login { object, login })
    }
}

impl Device {
    /// Has the device forget the values of keys that it has used (SYNC_CRYPTO), see [`Dek::replace`].
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device cannot, or refuses.
    pub fn sync_crypto(&self) -> Result<(), DevxError> {
        SyncCrypto.check(&self.report)?;
        self.execute(&SyncCrypto)
    }
}

/// Registered memory of the caller's, or of a dma-buf. [`super::Buffer`] is memory that the shim owns.
pub struct MemoryRegion {
    region: sys::Mr,
    address: u64,
    length: usize,
}

impl MemoryRegion {
    /// Ends the registration: the device cannot reach the memory any more.
    ///
    /// # Errors
    /// [`DevxError::Call`]: the device may still reach the memory, which has to stay.
    pub fn deregister(self) -> Result<(), DevxError> {
        self.region.deregister()
    }

    /// Returns the address by which requests name its first byte.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns how many bytes it has.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the key for requests of this side.
    pub fn lkey(&self) -> Key {
        Key::from_raw(self.region.lkey())
    }

    /// Returns the key for requests of the peer.
    pub fn rkey(&self) -> Key {
        Key::from_raw(self.region.rkey())
    }

    /// Returns a piece as the layout of an mkey has it, as [`super::Buffer::entry`] does.
    pub fn entry(&self, piece: Range<usize>) -> KlmEntry {
        entry_of(self.sge(piece))
    }

    /// Returns a piece as requests have it, as [`super::Buffer::sge`] does.
    pub fn sge(&self, piece: Range<usize>) -> Sge {
        sge_of(self.address, self.length, self.lkey(), piece)
    }
}

/// Returns a piece of `length` registered bytes at `address`. What is not in them is left out, and what is longer than a request
/// can say.
pub(super) fn sge_of(address: u64, length: usize, lkey: Key, piece: Range<usize>) -> Sge {
    let start = piece.start.min(length);
    let bytes = piece.end.clamp(start, length) - start;
    Sge {
        address: address.wrapping_add(start as u64),
        length: u32::try_from(bytes).unwrap_or(u32::MAX),
        lkey,
    }
}

/// Returns the same piece as the layout of an mkey has it.
pub(super) const fn entry_of(Sge { address, length, lkey }: Sge) -> KlmEntry {
    KlmEntry { address, length, key: lkey }
}

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
    /// Translation entries; an interleaved layout takes one for its header.
    pub max_entries: u16,
    /// Block signatures, whose errors arrive at this completion queue, of which one entry is set aside. It must be that of the
    /// queue pairs that the mkey is used with (with two of them, errors in what is sent arrive at that of the send queue, in what
    /// is received at the other): this is not checked, and another queue has no room for the errors.
    pub signature: Option<&'c Cq>,
    /// AES-XTS. The mkey refuses traffic until it is configured.
    pub crypto: bool,
    /// Its tag will be changed (`MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG`).
    pub update_tag: bool,
    /// The peer may invalidate it.
    pub remote_invalidate: bool,
    /// Writes through it may pass one another, and reads pass writes where the device can do that as well (kernel
    /// `mlx5e_mkey_set_relaxed_ordering`).
    pub relaxed_ordering: bool,
    /// Rights that it has from the start, beside reading by the owner: for [`UmrForm::Minimal`], which need not give them again.
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

/// An mkey: what software knows of it, and what there is on the device. Where the two are kept apart, there is still one
/// of each.
pub struct MkeyObject {
    /// What software knows of it; configure it through a [`super::QueuePair`].
    pub mkey: Mkey,
    /// What keeps it on the device.
    pub handle: MkeyHandle,
}

/// Mkeys of a kind. It is a slice of [`Mkey`], as routers of completions take it: a signature error names the index.
pub struct Mkeys {
    mkeys: Vec<Mkey>,
    handles: Vec<MkeyHandle>,
}

impl Mkeys {
    /// Returns what software knows of them, and what keeps them on the device: for a pool.
    ///
    /// ```no_run
    /// use mlx5_mkey::devx::{DevxError, MkeyHandle, MkeySpec, ProtectionDomain};
    /// use mlx5_mkey::queue::MkeyPool;
    /// /// 64 mkeys, and the handles, to be dropped after the pool.
    /// fn pool(pd: &ProtectionDomain) -> Result<(MkeyPool<64>, Vec<MkeyHandle>), DevxError> {
    ///     let spec = MkeySpec { max_entries: 16, update_tag: true, ..MkeySpec::default() };
    ///     let (mkeys, handles) = pd.create_mkeys(64, spec)?.into_parts();
    ///     Ok((MkeyPool::new(mkeys), handles))
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

/// A pair of PSVs, for the memory and the wire domain, that several mkeys with signatures share: fewer objects on the device, where
/// the mkeys are used one after another.
///
/// A configuration that sets a signature gives the PSVs their start values. From then until the data has passed, and its
/// signature error if there is one was taken, they are that mkey's. So, of the mkeys over one pair:
///
/// - The next one is configured when the transfer through the one before has completed and its completion was taken; where a peer
///   moves the data, when the peer has said that it is done. No public source says that a fence is enough.
/// - Each configuration sets its signature: with [`SignatureChange::Keep`](crate::mkey::SignatureChange::Keep) the values that
///   another mkey needed would stay.
///
/// Nothing checks this. Mkeys of I/Os that overlap have PSVs of their own ([`ProtectionDomain::create_mkeys`]), and so do those of a
/// [`super::MkeyStore`].
///
/// The PSVs are on the device until the value, its clones and the mkeys over them are dropped.
///
/// The reference provider makes two PSVs for each mkey. SPDK (`module/accel/mlx5`) lays all mkeys of a task over one PSV, which holds
/// the signature so far and whether there was an error; no other task has it meanwhile. Assumption: a PSV holds nothing of an earlier
/// I/O that SET_PSV does not write.
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
    domain: ProtectionDomain,
}

impl Psvs {
    /// Returns the PSVs of the memory and of the wire domain, for digests over several mkeys.
    pub const fn indices(&self) -> [PsvIndex; 2] {
        self.indices
    }

    /// Makes `count` mkeys of a kind over these PSVs, in the same protection domain.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_mkey`]: none is left behind then.
    pub fn create_mkeys(&self, count: usize, spec: MkeySpec<'_>) -> Result<Mkeys, DevxError> {
        self.domain.make_mkeys(count, spec, Some(self))
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

/// An mkey that was created with its list. It is gone from the device when the value is dropped.
///
/// It can be used at once, and no work request changes it. The memory under it is registered on its own, and stays so while requests
/// use the key: the device refuses a key under it that is gone.
pub struct ListMkey {
    key: Key,
    address: u64,
    length: u64,
    _object: sys::Object<Arc<sys::Pd>>,
}

impl ListMkey {
    /// Returns its key, local and remote.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns the first address of its space.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns how many bytes its space has.
    pub const fn length(&self) -> u64 {
        self.length
    }
}

/// A data encryption key on the device. It is gone from the device when the value is dropped.
pub struct Dek {
    id: DekObject,
    domain: Box<ProtectionDomain>,
    object: sys::Object<Arc<sys::Pd>>,
}

impl Dek {
    /// Destroys the key on the device.
    ///
    /// # Errors
    /// [`DevxError::Call`], and the key, which is still there.
    pub fn destroy(self) -> Result<(), (DevxError, Self)> {
        let Self { id, domain, object } = self;
        object.destroy().map_err(|(error, object)| (error, Self { id, domain, object }))
    }

    /// Returns the number that [`crate::mkey::Crypto`] takes.
    pub const fn id(&self) -> DekId {
        self.id.dek_id()
    }

    /// Returns the object, as commands name it.
    pub const fn object(&self) -> DekObject {
        self.id
    }

    pub(super) const fn query_command(&self) -> QueryDek {
        QueryDek(self.id)
    }

    pub(super) const fn devx(&self) -> &sys::Object<Arc<sys::Pd>> {
        &self.object
    }

    /// Asks the device for the key's state, and for what was to be remembered of it (`mlx5dv_dek_query`).
    ///
    /// # Errors
    /// [`DevxError::Command`]: of a wrapped key, without a login, say.
    pub fn query(&self) -> Result<DekInfo, DevxError> {
        Ok(carry(&self.query_command(), |request, reply| self.object.query(request, reply))?.1)
    }

    /// Gives the key another value: its number stays, and so do the mkeys that were configured with it. When the key was used,
    /// [`Device::sync_crypto`] comes between the last completion with the old value and this.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device cannot, or refuses: the key is as before.
    ///
    /// ```no_run
    /// use mlx5_mkey::command::DekKey;
    /// use mlx5_mkey::devx::{Dek, Device, DevxError};
    /// /// All transfers with the key have completed.
    /// fn rotate(device: &Device, dek: &mut Dek, key: DekKey<'_>) -> Result<(), DevxError> {
    ///     device.sync_crypto()?;
    ///     dek.replace(key)
    /// }
    /// ```
    pub fn replace(&mut self, key: DekKey<'_>) -> Result<(), DevxError> {
        let command = ModifyDek { dek: self.id, pd: self.domain.number()?, key };
        command.check(&self.domain.report)?;
        carry(&command, |request, reply| self.object.modify(request, reply)).map(|_| ())
    }
}

/// A crypto login. Keys that were loaded under it outlive it.
pub struct Login {
    object: sys::Object<sys::LoginPlace>,
    login: LoginObject,
}

impl Login {
    /// Logs out.
    ///
    /// # Errors
    /// [`DevxError::Call`], and the login, which is still there.
    pub fn log_out(self) -> Result<(), (DevxError, Self)> {
        let Self { object, login } = self;
        object.destroy().map_err(|(error, object)| (error, Self { object, login }))
    }

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
    ///
    /// # Errors
    /// [`DevxError::OutOfRange`] where it is none that commands can have.
    pub fn number(&self) -> Result<Pdn, DevxError> {
        Ok(Pdn::new(self.pd.number())?)
    }

    /// Registers `length` bytes at `address` for the device (`ibv_reg_mr`).
    ///
    /// # Errors
    /// [`DevxError::Call`] with what the kernel said.
    ///
    /// # Safety
    /// - The memory stays mapped while the value lives, and for ever if [`MemoryRegion::deregister`] fails (dropping the value
    ///   tells [`super::on_drop_error`] of that, and nobody else).
    /// - Rust code does not use the memory in a way that conflicts with the device's reads and writes: until a request that names
    ///   the key, or an mkey laid over the memory, has completed; and as long as a peer has a key to it, of the region or of such
    ///   an mkey.
    pub unsafe fn register(
        &self,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, DevxError> {
        // SAFETY: the caller vouches for the same.
        let region = unsafe { sys::Mr::register(&self.pd, (), address, length, verbs_access(access)) };
        let region = region.map_err(|(error, ())| error)?;
        Ok(MemoryRegion { region, address: address.expose_provenance() as u64, length })
    }

    /// Registers a piece of a dma-buf, memory that another driver shares by a file descriptor: a GPU's, say. `piece` is in bytes
    /// of the dma-buf. Requests and layouts name its bytes by addresses from `iova` on: any address with the same offset in a page
    /// of the kernel as `piece.start`.
    ///
    /// The kernel holds a reference of its own (`dma_buf_get`) until the registration has ended: the descriptor may be closed, and
    /// the memory stays.
    ///
    /// A processor that reads or writes the bytes through a mapping tells the exporter before and after (`DMA_BUF_IOCTL_SYNC`), or
    /// it may see old ones. In which order other devices use the memory, the program decides.
    ///
    /// Source: ibv_reg_mr(3); in the kernel `uverbs_std_types_mr.c`, `umem_dmabuf.c`, `include/uapi/linux/dma-buf.h`.
    ///
    /// # Errors
    /// - [`DevxError::Library`]: libibverbs has no `ibv_reg_dmabuf_mr`, which came with version 34 of rdma-core. All else works.
    /// - [`DevxError::Call`] where `piece` is empty; and with what the kernel said: EINVAL where the descriptor is of no dma-buf, `piece` reaches past
    ///   its end, `iova` has another offset in its page, or the peer may write and this side may not; EBADF where the descriptor is
    ///   for nothing but its path (`O_PATH`); EPROTONOSUPPORT or EOPNOTSUPP where the kernel is older, or was built without paging on
    ///   demand (`CONFIG_INFINIBAND_ON_DEMAND_PAGING`); and what the exporter said.
    ///
    /// # Safety
    /// Rust code, in this process and in others that map the dma-buf, does not use the memory in a way that conflicts with the
    /// device's reads and writes: until a request that names the key, or an mkey laid over the memory, has completed; and as long
    /// as a peer has a key to it, of the region or of such an mkey. A region whose end failed ([`MemoryRegion::deregister`])
    /// counts as there. What other devices and drivers do with the memory is not covered by this contract.
    ///
    /// ```no_run
    /// use mlx5_mkey::devx::{DevxError, MemoryRegion, ProtectionDomain};
    /// use mlx5_mkey::mkey::{Access, KlmEntry};
    /// use std::os::fd::{AsFd, OwnedFd};
    ///
    /// /// Registers the second MiB of a dma-buf, and returns 4096 bytes of it for an mkey's layout.
    /// fn second(pd: &ProtectionDomain, dmabuf: OwnedFd) -> Result<(MemoryRegion, KlmEntry), DevxError> {
    ///     let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    ///     // SAFETY: nobody maps this dma-buf.
    ///     let region = unsafe { pd.register_dmabuf(dmabuf.as_fd(), 1 << 20..2 << 20, 0, access)? };
    ///     let entry = region.entry(0..4096);
    ///     Ok((region, entry))
    /// }
    /// ```
    pub unsafe fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        piece: Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, DevxError> {
        if piece.is_empty() {
            // The kernel's answer depends on where the piece begins in a page.
            return Err(DevxError::call("registration of a dma-buf", io::ErrorKind::InvalidInput.into()));
        }
        let length = piece.len();
        // SAFETY: the caller vouches for the same.
        let region =
            unsafe { sys::Mr::register_dmabuf(&self.pd, dmabuf, piece, iova, verbs_access(access))? };
        Ok(MemoryRegion { region, address: iova, length })
    }

    /// Makes an mkey, and its PSVs if it is to have signatures.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device cannot, or refuses; [`DevxError::CompletionQueueTooSmall`] where the completion queue
    /// has no entry left for its signature errors.
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

    /// Makes an mkey with its list: `entries`, one after the other, are its space from `address` on.
    ///
    /// ```no_run
    /// use mlx5_mkey::command::MkeyEntries;
    /// use mlx5_mkey::devx::{Buffer, DevxError, ListMkey, ProtectionDomain};
    /// use mlx5_mkey::mkey::Access;
    /// /// Two buffers as one space that a peer may read.
    /// fn join(pd: &ProtectionDomain, [a, b]: [&Buffer; 2]) -> Result<ListMkey, DevxError> {
    ///     let entries = [a.entry(0..a.len()), b.entry(0..b.len())];
    ///     pd.create_list_mkey(Access::REMOTE_READ, 0, MkeyEntries::Klm(&entries))
    /// }
    /// ```
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device takes no such list ([`CreateListMkey::new`]), or refuses.
    pub fn create_list_mkey(
        &self,
        access: Access,
        address: u64,
        entries: MkeyEntries<'_>,
    ) -> Result<ListMkey, DevxError> {
        let command = CreateListMkey::new(self.number()?, access, address, entries, &self.report.general)?;
        let (object, key) = carry(&command, |request, reply| {
            sys::Object::create(&self.context, self.pd.clone(), request, reply)
        })?;
        Ok(ListMkey { key, address, length: command.length(), _object: object })
    }

    /// Makes the PSVs of mkeys that share them.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device cannot, or refuses: none is left behind then.
    pub fn create_psvs(&self) -> Result<Psvs, DevxError> {
        let psv = || {
            // Linux takes the command for one PSV only (`devx_is_obj_create_cmd` in drivers/infiniband/hw/mlx5/devx.c).
            let command = CreatePsv::<1>::new(self.number()?);
            carry(&command, |request, reply| {
                sys::Object::create(&self.context, self.pd.clone(), request, reply)
            })
        };
        let ((memory, [memory_index]), (wire, [wire_index])) = (psv()?, psv()?);
        let indices = [memory_index, wire_index];
        Ok(Psvs { indices, _objects: Arc::new([memory, wire]), domain: self.clone() })
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
        let set_aside = spec.signature.map(|cq| cq.set_aside(1)).transpose()?;
        let psvs = match shared {
            _ if !features.block_signature => None,
            Some(shared) => Some(shared.clone()),
            None => Some(self.create_psvs()?),
        };
        let signature = self.report.general.signatures().zip(psvs.as_ref()).map(|(capabilities, psvs)| {
            let [memory, wire] = psvs.indices;
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

    /// Loads a data encryption key. Its bytes are wiped from the mailbox; the caller's copy is the caller's to wipe.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device does not take keys in this form, or refuses.
    pub fn create_dek(&self, key: DekKey<'_>, opaque: [u8; 8]) -> Result<Dek, DevxError> {
        let command = CreateDek { pd: self.number()?, key, opaque };
        command.check(&self.report)?;
        let (object, dek): (_, DekObject) = carry(&command, |request, reply| {
            sys::Object::create(&self.context, self.pd.clone(), request, reply)
        })?;
        Ok(Dek { id: dek, domain: Box::new(self.clone()), object })
    }
}
