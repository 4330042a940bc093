//! Posts the requests of the differential test through libmlx5.

#![allow(unsafe_code)]

use super::case::{Config, SignatureStep, Work};
use crate::request::{Data, Flags, OwnedLayout, Request};
use core::ffi::{c_int, c_void};
use core::ptr;
use libmlx5::abi::{
    BindInfo, ConfAttr, CrcAttr, CryptoAttr, DifAttr, DomainAttr, IbvMr, IbvMw, IbvSge, Interleaved,
    SigBlockAttr,
};
use libmlx5::{RefMkey, RefQueue};
use mlx5_mkey::mkey::{
    Crypto, Direction, Domain, Escape, Guard, InterleavedEntry, KlmEntry, Signature, SignatureOrder,
};
use mlx5_mkey::types::{BlockSize, Seed};
use mlx5_mkey::wqe::{Payload, Sge};

/// Posts a chain of requests through libmlx5, between `ibv_wr_start` and `ibv_wr_complete`. The first request
/// has the id (`wr_id`) `first`. Returns 0, or the errno of `ibv_wr_complete`.
pub(super) fn issue(queue: &mut RefQueue, first: u64, chain: &[(Flags, Work)], mkey: &RefMkey) -> c_int {
    let ex = queue.ex();
    // SAFETY: the queue pair is live and belongs to libmlx5, which has set the function pointers of all
    // operations that the queue pair was created with. Nothing else uses it.
    let result = unsafe {
        ((*ex).start)(ex);
        for (id, (flags, work)) in (first..).zip(chain) {
            (*ex).wr_id = id;
            issue_one(queue, *flags, work, mkey);
        }
        ((*ex).complete)(ex)
    };
    result.abs()
}

/// Returns the flags of a request as verbs encodes them (`enum ibv_send_flags`).
fn wr_flags(flags: Flags, work: &Work) -> u32 {
    const FENCE: u32 = 1;
    const SIGNALED: u32 = 2;
    const SOLICITED: u32 = 4;
    const INLINE: u32 = 8;
    let inline = match work {
        Work::Configure(_) => true,
        Work::Plain(request) => matches!(request.data(), Some(Payload::Inline(_))),
        Work::Bind(..) => false,
    };
    [(flags.fenced, FENCE), (flags.signaled, SIGNALED), (flags.solicited, SOLICITED), (inline, INLINE)]
        .iter()
        .map(|&(set, bit)| if set { bit } else { 0 })
        .sum()
}

/// Posts a request.
///
/// # Safety
/// The caller ensures that the queue pair of `queue` is live, that nothing else uses it, and that `start` was
/// called for the current chain.
unsafe fn issue_one(queue: &mut RefQueue, flags: Flags, work: &Work, mkey: &RefMkey) {
    let ex = queue.ex();
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        (*ex).wr_flags = wr_flags(flags, work);
        match work {
            Work::Configure(config) => configure(queue, config, mkey),
            Work::Bind(key, range, access, zero_based) => {
                let window = IbvMw { rkey: key.get(), kind: 2, ..IbvMw::default() };
                let region = IbvMr { lkey: range.key.get(), ..IbvMr::default() };
                const ZERO_BASED: u32 = 1 << 5;
                let access = access | if *zero_based { ZERO_BASED } else { 0 };
                let length = range.length.into();
                let info = BindInfo { mr: &region, address: range.address, length, access };
                // `next` is the key with its tag (the low byte) increased by one, as `ibv_inc_rkey` does.
                let next = key.get() & !0xff | key.get().wrapping_add(1) & 0xff;
                ((*ex).bind_mw)(ex, &window, next, &info);
            }
            Work::Plain(request) => issue_plain(queue, request),
        }
    }
}

/// Posts a request of the variant `Work::Plain`.
///
/// # Safety
/// The caller ensures the same as for `issue_one`.
unsafe fn issue_plain(queue: &mut RefQueue, request: &Request) {
    let ex = queue.ex();
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        match request {
            Request::Invalidate(key) => ((*ex).local_inv)(ex, key.get()),
            Request::Send(data) => {
                ((*ex).send)(ex);
                data_of(queue, data);
            }
            Request::SendImm(imm, data) => {
                ((*ex).send_imm)(ex, imm.to_be());
                data_of(queue, data);
            }
            Request::SendInvalidate(key, data) => {
                ((*ex).send_inv)(ex, key.get());
                data_of(queue, data);
            }
            Request::Write(remote, data) => {
                ((*ex).rdma_write)(ex, remote.rkey.get(), remote.address);
                data_of(queue, data);
            }
            Request::WriteImm(remote, imm, data) => {
                ((*ex).rdma_write_imm)(ex, remote.rkey.get(), remote.address, imm.to_be());
                data_of(queue, data);
            }
            Request::Read(remote, sges) => {
                ((*ex).rdma_read)(ex, remote.rkey.get(), remote.address);
                sges_of(queue, sges);
            }
            Request::CompareSwap(remote, compare, swap, old) => {
                ((*ex).atomic_cmp_swp)(ex, remote.rkey.get(), remote.address, *compare, *swap);
                sges_of(queue, &[Sge { address: old.address, length: 8, lkey: old.lkey }]);
            }
            Request::FetchAdd(remote, add, old) => {
                ((*ex).atomic_fetch_add)(ex, remote.rkey.get(), remote.address, *add);
                sges_of(queue, &[Sge { address: old.address, length: 8, lkey: old.lkey }]);
            }
            Request::Memcpy(to, from, bytes) => {
                let mlx5 = queue.mlx5();
                let (to, to_key, from, from_key) = (to.address, to.lkey.get(), from.address, from.lkey.get());
                ((*mlx5).memcpy)(mlx5, to_key, to, from_key, from, *bytes as usize);
            }
            Request::Raw(wqe) => {
                let mlx5 = queue.mlx5();
                // The size field of the control segment says how many bytes libmlx5 reads: as many as `wqe`
                // has.
                ((*mlx5).raw_wqe)(mlx5, wqe.as_ptr().cast());
            }
            Request::Nop
            | Request::InvalidateMkey(_)
            | Request::InvalidateWindow(_)
            | Request::BindWindow(..)
            | Request::SetPsv(..)
            | Request::Configure(..)
            | Request::ConfigureByPointer(..)
            | Request::Replace(..)
            | Request::ReplaceByPointer(..)
            | Request::AppendByPointer(..)
            | Request::Masked(..) => panic!("libmlx5 has no call for {request:?}"),
        }
    }
}

/// Sets the data of the request that was begun last.
///
/// # Safety
/// The caller ensures the same as for `issue_one`, and has just begun a request with data.
unsafe fn data_of(queue: &mut RefQueue, data: &Data) {
    let ex = queue.ex();
    match data {
        // SAFETY: the caller keeps this function's contract; the call copies the data.
        Data::Inline(data) => unsafe {
            ((*ex).set_inline_data)(ex, data.as_ptr().cast(), data.len());
        },
        // SAFETY: the caller keeps this function's contract.
        Data::Sges(sges) => unsafe { sges_of(queue, sges) },
    }
}

/// Sets the data segments of the request that was begun last.
///
/// # Safety
/// The caller ensures the same as for `data_of`.
unsafe fn sges_of(queue: &mut RefQueue, sges: &[Sge]) {
    let ex = queue.ex();
    if let [Sge { address, length, lkey }] = *sges {
        // SAFETY: the caller keeps this function's contract.
        unsafe { ((*ex).set_sge)(ex, lkey.get(), address, length) };
    } else {
        let entry = |&Sge { address, length, lkey }: &Sge| IbvSge { address, length, lkey: lkey.get() };
        let list: Vec<_> = sges.iter().map(entry).collect();
        // SAFETY: the caller keeps this function's contract; the call only reads the list.
        unsafe { ((*ex).set_sge_list)(ex, list.len(), list.as_ptr()) };
    }
}

/// Configures the mkey by the older calls of libmlx5 or by the newer ones.
///
/// # Safety
/// The caller ensures the same as for `issue_one`.
unsafe fn configure(queue: &mut RefQueue, config: &Config, mkey: &RefMkey) {
    let (mlx5, raw) = (queue.mlx5(), mkey.as_ptr());
    match (config.older, config.access, &config.layout) {
        (true, Some(access), OwnedLayout::List(entries)) => {
            let list = sge_list(entries);
            // SAFETY: the caller keeps this function's contract; the call only reads the list.
            unsafe { ((*mlx5).mr_list)(mlx5, raw, access, list.len() as u16, list.as_ptr()) };
        }
        (true, Some(access), OwnedLayout::Interleaved(repeat, entries)) => {
            let list = interleaved_list(entries);
            // SAFETY: the caller keeps this function's contract; the call only reads the list.
            unsafe { ((*mlx5).mr_interleaved)(mlx5, raw, access, *repeat, list.len() as u16, list.as_ptr()) };
        }
        // SAFETY: the caller keeps this function's contract.
        _ => unsafe { configure_in_steps(queue, config, mkey) },
    }
}

/// Configures the mkey by `mlx5dv_wr_mkey_configure` and a call for each property (setter).
///
/// # Safety
/// The caller ensures the same as for `issue_one`.
unsafe fn configure_in_steps(queue: &mut RefQueue, config: &Config, mkey: &RefMkey) {
    let mlx5 = queue.mlx5();
    let reset = u32::from(config.signature == SignatureStep::Reset);
    let mut attr = ConfAttr { flags: reset, comp_mask: 0 };
    let setters = [
        config.access.is_some(),
        config.layout != OwnedLayout::Unchanged,
        matches!(config.signature, SignatureStep::Set { .. }),
        config.crypto.is_some(),
    ];
    let count = setters.iter().filter(|there| **there).count() as u8;
    // SAFETY: the caller keeps this function's contract; mkey and attributes live during the call.
    unsafe { ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), count, &mut attr) };
    for step in config.order {
        // SAFETY: `mkey_configure` above announced as many setters as follow here. Their arguments live
        // during the calls.
        unsafe {
            match step {
                0 => {
                    if let Some(access) = config.access {
                        ((*mlx5).set_mkey_access)(mlx5, access);
                    }
                }
                1 => set_layout(queue, &config.layout),
                2 => set_signature(queue, &config.signature),
                _ => {
                    if let Some(crypto) = &config.crypto {
                        let attr = crypto_attr(crypto, queue.dek());
                        ((*mlx5).set_mkey_crypto)(mlx5, &attr);
                    }
                }
            }
        }
    }
}

/// Calls the setter of the layout, if there is a layout.
///
/// # Safety
/// The caller ensures the same as for `issue_one`, and has called `mkey_configure`.
unsafe fn set_layout(queue: &mut RefQueue, layout: &OwnedLayout) {
    let mlx5 = queue.mlx5();
    match layout {
        OwnedLayout::List(entries) => {
            let list = sge_list(entries);
            // SAFETY: the caller keeps this function's contract; the call only reads the list.
            unsafe { ((*mlx5).set_mkey_list)(mlx5, list.len() as u16, list.as_ptr()) };
        }
        OwnedLayout::Interleaved(repeat, entries) => {
            let list = interleaved_list(entries);
            // SAFETY: the caller keeps this function's contract; the call only reads the list.
            unsafe { ((*mlx5).set_mkey_interleaved)(mlx5, *repeat, list.len() as u16, list.as_ptr()) };
        }
        OwnedLayout::Unchanged => {}
    }
}

/// Calls the setter of the signature, if there is a signature.
///
/// # Safety
/// The caller ensures the same as for `issue_one`, and has called `mkey_configure`.
unsafe fn set_signature(queue: &mut RefQueue, step: &SignatureStep) {
    let SignatureStep::Set { memory, wire, check_mask, copy_mask } = step else { return };
    let mlx5 = queue.mlx5();
    let [memory, wire] = [memory, wire].map(|domain| domain.as_ref().map(Details::new));
    let [memory, wire] = [&memory, &wire].map(|details| details.as_ref().map(Details::attr));
    let attr = SigBlockAttr {
        memory: memory.as_ref().map_or(ptr::null(), ptr::from_ref),
        wire: wire.as_ref().map_or(ptr::null(), ptr::from_ref),
        flags: u32::from(copy_mask.is_some()),
        check_mask: *check_mask,
        copy_mask: copy_mask.unwrap_or(0),
        comp_mask: 0,
    };
    // SAFETY: the caller keeps this function's contract; the details of the domains live during the call.
    unsafe { ((*mlx5).set_mkey_sig)(mlx5, &attr) };
}

fn sge_list(entries: &[KlmEntry]) -> Vec<IbvSge> {
    let entry = |&KlmEntry { address, length, key }: &_| IbvSge { address, length, lkey: key.get() };
    entries.iter().map(entry).collect()
}

fn interleaved_list(entries: &[InterleavedEntry]) -> Vec<Interleaved> {
    let entry = |&InterleavedEntry { address, bytes, skip, key }: &_| Interleaved {
        address,
        bytes: bytes.into(),
        skip: skip.into(),
        lkey: key.get(),
    };
    entries.iter().map(entry).collect()
}

fn block_size(size: BlockSize) -> u32 {
    match size {
        BlockSize::B512 => 0,
        BlockSize::B520 => 1,
        BlockSize::B4048 => 2,
        BlockSize::B4096 => 3,
        BlockSize::B4160 => 4,
        // libmlx5 has no block size of 1 MiB, and refuses this number.
        BlockSize::MIB1 => 5,
    }
}

fn crypto_attr(crypto: &Crypto, dek: *mut c_void) -> CryptoAttr {
    CryptoAttr {
        encrypt_on_tx: crypto.direction == Direction::EncryptOnTx,
        order: u32::from(crypto.order == SignatureOrder::BeforeCryptoOnTx),
        data_unit: block_size(crypto.data_unit),
        tweak: crypto.tweak.get().to_le_bytes(),
        dek,
        keytag: crypto.keytag.0,
        ..CryptoAttr::default()
    }
}

/// The parameters of a domain's signature (T10-DIF or CRC), with libmlx5's number of the block size.
enum Details {
    Dif(DifAttr, u32),
    Crc(CrcAttr, u32),
}

impl Details {
    fn new(domain: &Domain) -> Self {
        let size = block_size(domain.block_size);
        let crc = |kind, seed: &Seed, ones| {
            let seed = if *seed == Seed::Ones { ones } else { 0 };
            Self::Crc(CrcAttr { kind, seed }, size)
        };
        match &domain.signature {
            Signature::T10Dif(dif) => Self::Dif(
                DifAttr {
                    guard: u32::from(dif.guard == Guard::IpChecksum),
                    seed: if dif.seed == Seed::Ones { 0xffff } else { 0 },
                    app_tag: dif.app_tag,
                    ref_tag: dif.ref_tag,
                    flags: u16::from(dif.ref_remap)
                        | match dif.escape {
                            Escape::Never => 0,
                            Escape::AppTag => 2,
                            Escape::AppAndRefTag => 4,
                        },
                },
                size,
            ),
            Signature::Crc32(seed) => crc(0, seed, u64::from(u32::MAX)),
            Signature::Crc32c(seed) => crc(1, seed, u64::from(u32::MAX)),
            Signature::Crc64Xp10(seed) => crc(2, seed, u64::MAX),
        }
    }

    fn attr(&self) -> DomainAttr {
        let (kind, details, block_size) = match self {
            Self::Dif(dif, size) => (0, ptr::from_ref(dif).cast(), *size),
            Self::Crc(crc, size) => (1, ptr::from_ref(crc).cast(), *size),
        };
        DomainAttr { kind, details, block_size, comp_mask: 0 }
    }
}
