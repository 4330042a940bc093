//! Work requests as owned values, and one function that posts them: [`Request::perform`].
//!
//! Several tests use this type: the recorded requests of libmlx5, the differential test, the replay of SPDK's
//! requests, and fuzzing. Each checks the bytes that the library writes.

use alloc::vec::Vec;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{
    Access, InterleavedEntry, KlmEntry, KsmEntry, Layout, MemoryWindow, Mkey, RegisteredList,
};
use mlx5_mkey::queue::SendRequest;
use mlx5_mkey::types::{Key, KsmEntrySize, PsvIndex, Seed};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::{Local, MaskedAtomic, Payload, PreparedConfig, Remote, Sge};

/// The flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The request waits until earlier RDMA READs and atomics have completed (fence).
    pub fenced: bool,
    /// The request has a completion of its own (signalled).
    pub signaled: bool,
    /// The responder's completion entry is marked as solicited.
    pub solicited: bool,
}

impl Flags {
    /// Sets these flags on a request.
    pub const fn apply<'q, 'r>(self, mut request: SendRequest<'q, 'r>) -> SendRequest<'q, 'r> {
        if self.fenced {
            request = request.fenced();
        }
        if self.signaled {
            request = request.signaled();
        }
        if self.solicited {
            request = request.solicited();
        }
        request
    }
}

/// The data of a SEND or an RDMA WRITE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Data segments.
    Sges(Vec<Sge>),
    /// Inline data: bytes inside the request.
    Inline(Vec<u8>),
}

impl Data {
    fn payload(&self) -> Payload<'_> {
        match self {
            Self::Sges(sges) => Payload::Sges(sges),
            Self::Inline(bytes) => Payload::Inline(bytes),
        }
    }
}

/// A layout of an mkey that owns its entries. (The library's [`Layout`] borrows them.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedLayout {
    /// The mkey keeps the layout that it has.
    Unchanged,
    /// A list of KLM entries.
    List(Vec<KlmEntry>),
    /// An interleaved layout: number of cycles, and the entries of a cycle.
    Interleaved(u32, Vec<InterleavedEntry>),
}

impl OwnedLayout {
    /// Returns the layout in the library's type.
    pub fn as_layout(&self) -> Layout<'_> {
        match self {
            Self::Unchanged => Layout::Unchanged,
            Self::List(entries) => Layout::List(entries),
            Self::Interleaved(repeat, entries) => Layout::Interleaved { repeat: *repeat, entries },
        }
    }
}

/// The entries of a list in registered memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Entries of various lengths.
    Klm(Vec<KlmEntry>),
    /// Entries of one common length.
    Ksm(KsmEntrySize, Vec<KsmEntry>),
}

/// A list of entries in registered memory, to which a request has a pointer, so that the device reads it
/// there. The value owns the entries and the memory.
#[derive(Clone, Debug)]
pub struct OwnedList {
    /// The entries, which [`Request::perform`] writes to the memory.
    pub entries: Entries,
    /// The address of the memory, as the device accesses it.
    pub address: u64,
    /// The local key of the memory.
    pub key: Key,
    /// The memory of the list, with [`RegisteredList::blocks_for`] blocks of 64 bytes.
    pub memory: Vec<Wqebb>,
}

impl OwnedList {
    /// Writes the entries to the memory.
    ///
    /// # Errors
    /// [`ConfigError`]: the library refuses the address or an entry.
    pub fn write(&mut self) -> Result<RegisteredList<'_>, ConfigError> {
        let mut list = RegisteredList::new(&mut self.memory, self.address, self.key)?;
        match &self.entries {
            Entries::Klm(entries) => list.write(entries)?,
            Entries::Ksm(size, entries) => list.write_ksm(*size, entries)?,
        }
        Ok(list)
    }
}

/// A work request. The numbers of mkeys, windows and prepared configurations are positions in the lists of
/// [`Objects`].
#[derive(Clone, Debug)]
pub enum Request {
    /// NOP.
    Nop,
    /// SEND.
    Send(Data),
    /// SEND with immediate data.
    SendImm(u32, Data),
    /// SEND that invalidates a key of the peer.
    SendInvalidate(Key, Data),
    /// RDMA WRITE.
    Write(Remote, Data),
    /// RDMA WRITE with immediate data.
    WriteImm(Remote, u32, Data),
    /// RDMA READ.
    Read(Remote, Vec<Sge>),
    /// Compare and swap: the compared value, then the new value.
    CompareSwap(Remote, u64, u64, Local),
    /// Fetch and add.
    FetchAdd(Remote, u64, Local),
    /// A masked atomic operation.
    Masked(Remote, MaskedAtomic, Local),
    /// A copy in local memory: target, source, number of bytes.
    Memcpy(Local, Local, u32),
    /// A complete WQE as raw bytes.
    Raw(Vec<u8>),
    /// LOCAL_INV of any key.
    Invalidate(Key),
    /// LOCAL_INV of an mkey.
    InvalidateMkey(usize),
    /// LOCAL_INV of a memory window.
    InvalidateWindow(usize),
    /// Binds a memory window to a range, with access rights, and with the start address of its space.
    BindWindow(usize, KlmEntry, Access, u64),
    /// SET_PSV.
    SetPsv(PsvIndex, Seed),
    /// Configures an mkey: the mkey, the prepared configuration, the layout.
    Configure(usize, usize, OwnedLayout),
    /// Configures an mkey: the mkey, the prepared configuration, the list in registered memory.
    ConfigureByPointer(usize, usize, OwnedList),
    /// Replaces entries of an mkey: the mkey, the index of the first replaced entry, the new entries.
    Replace(usize, u32, Vec<KlmEntry>),
    /// Replaces entries of an mkey: the mkey, the index of the first replaced entry, the list in registered
    /// memory.
    ReplaceByPointer(usize, u32, OwnedList),
    /// Appends entries to an mkey, from a list in registered memory.
    AppendByPointer(usize, OwnedList),
}

/// The objects to which a request refers by their positions in these lists.
#[derive(Debug)]
pub struct Objects<'o> {
    /// Mkeys.
    pub mkeys: &'o mut [Mkey],
    /// Memory windows.
    pub windows: &'o mut [MemoryWindow],
    /// Prepared configurations.
    pub prepared: &'o [PreparedConfig],
}

impl Objects<'_> {
    /// Returns no objects, for a request that needs none.
    pub const fn none() -> Self {
        Self { mkeys: &mut [], windows: &mut [], prepared: &[] }
    }
}

impl Request {
    /// Returns the data of a SEND, an RDMA WRITE or an RDMA READ: its data segments, or the bytes in the
    /// request itself.
    pub fn data(&self) -> Option<Payload<'_>> {
        match self {
            Self::Send(data)
            | Self::SendImm(_, data)
            | Self::SendInvalidate(_, data)
            | Self::Write(_, data)
            | Self::WriteImm(_, _, data) => Some(data.payload()),
            Self::Read(_, sges) => Some(Payload::Sges(sges)),
            _ => None,
        }
    }

    /// Posts this request.
    ///
    /// # Errors
    /// [`PostError`]: the library refuses the request, or a list.
    ///
    /// # Panics
    /// If `objects` lacks an object of the request.
    pub fn perform(&mut self, request: SendRequest<'_, '_>, objects: Objects<'_>) -> Result<(), PostError> {
        let Objects { mkeys, windows, prepared } = objects;
        match self {
            Self::Nop => request.nop(),
            Self::Send(data) => request.send(data.payload()),
            Self::SendImm(imm, data) => request.send_imm(*imm, data.payload()),
            Self::SendInvalidate(key, data) => request.send_invalidate(*key, data.payload()),
            Self::Write(remote, data) => request.rdma_write(*remote, data.payload()),
            Self::WriteImm(remote, imm, data) => request.rdma_write_imm(*remote, *imm, data.payload()),
            Self::Read(remote, sges) => request.rdma_read(*remote, sges),
            Self::CompareSwap(remote, compare, swap, old) => {
                request.compare_swap(*remote, *compare, *swap, *old)
            }
            Self::FetchAdd(remote, add, old) => request.fetch_add(*remote, *add, *old),
            Self::Masked(remote, atomic, old) => request.masked_atomic(*remote, *atomic, *old),
            Self::Memcpy(to, from, bytes) => request.memcpy(*to, *from, *bytes),
            Self::Raw(bytes) => request.raw(bytes),
            Self::Invalidate(key) => request.invalidate(*key),
            Self::InvalidateMkey(mkey) => request.invalidate_mkey(&mut mkeys[*mkey]),
            Self::InvalidateWindow(window) => request.invalidate_window(&windows[*window]),
            Self::BindWindow(window, range, access, start) => {
                request.bind_window(&mut windows[*window], *range, *access, *start)
            }
            Self::SetPsv(psv, seed) => request.set_psv(*psv, *seed),
            Self::Configure(mkey, with, layout) => match layout.as_layout() {
                // The library has two functions for lists. Lists with an odd number of entries go through the
                // one that converts entries of a caller's own type, so that both functions are tested.
                Layout::List(entries) if entries.len() % 2 == 1 => {
                    let (mkey, prepared) = (&mut mkeys[*mkey], &prepared[*with]);
                    request.configure_mkey_from(mkey, prepared, entries, |entry| *entry)
                }
                layout => request.configure_mkey(&mut mkeys[*mkey], &prepared[*with], layout),
            },
            Self::ConfigureByPointer(mkey, with, list) => {
                request.configure_mkey_by_pointer(&mut mkeys[*mkey], &prepared[*with], &mut list.write()?)
            }
            Self::Replace(mkey, first, entries) => {
                request.replace_entries(&mut mkeys[*mkey], *first, entries)
            }
            Self::ReplaceByPointer(mkey, first, list) => {
                request.replace_entries_by_pointer(&mut mkeys[*mkey], *first, &list.write()?)
            }
            Self::AppendByPointer(mkey, list) => {
                request.append_entries_by_pointer(&mut mkeys[*mkey], &list.write()?)
            }
        }
    }
}
