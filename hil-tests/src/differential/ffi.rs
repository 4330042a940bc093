//! Has the reference issue requests.

#![allow(unsafe_code)]

use super::case::{Config, Flags, Mapping, Payload, SignatureStep, Work};
use core::ffi::{c_int, c_void};
use core::ptr;
use libmlx5::abi::{
    BindInfo, ConfAttr, CrcAttr, CryptoAttr, DifAttr, DomainAttr, IbvMr, IbvMw, IbvSge, Interleaved,
    SigBlockAttr,
};
use libmlx5::{RefMkey, RefQueue};
use mlx5_mkey::mkey::{Crypto, Direction, Domain, Escape, Guard, Signature, SignatureOrder};
use mlx5_mkey::types::{BlockSize, Seed};

/// Issues a chain of requests on an mkey, named from `first` on; returns 0 or the errno of the chain.
pub(super) fn issue(queue: &mut RefQueue, first: u64, chain: &[(Flags, Work)], mkey: &RefMkey) -> c_int {
    let ex = queue.ex();
    // SAFETY: the queue pair is live and of libmlx5, which has set all functions of the operations that it was created
    // with. Nothing else uses it.
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

/// Returns the flags of a request (`enum ibv_send_flags`).
fn wr_flags(flags: Flags, work: &Work) -> u32 {
    const FENCE: u32 = 1;
    const SIGNALED: u32 = 2;
    const SOLICITED: u32 = 4;
    const INLINE: u32 = 8;
    let inline = match work {
        Work::Configure(_) => true,
        Work::Invalidate(_) | Work::Bind(..) => false,
        Work::Send(payload)
        | Work::SendImm(_, payload)
        | Work::SendInvalidate(_, payload)
        | Work::Write(_, payload)
        | Work::WriteImm(_, _, payload) => matches!(payload, Payload::Inline(_)),
        Work::Read(..) | Work::CompareSwap(..) | Work::FetchAdd(..) | Work::Memcpy(..) | Work::Raw(_) => {
            false
        }
    };
    [(flags.fence, FENCE), (flags.signaled, SIGNALED), (flags.solicited, SOLICITED), (inline, INLINE)]
        .iter()
        .map(|&(set, bit)| if set { bit } else { 0 })
        .sum()
}

/// Issues one request.
///
/// # Safety
/// As for `issue`, behind its start.
unsafe fn issue_one(queue: &mut RefQueue, flags: Flags, work: &Work, mkey: &RefMkey) {
    let ex = queue.ex();
    // SAFETY: see the contract.
    unsafe {
        (*ex).wr_flags = wr_flags(flags, work);
        match work {
            Work::Configure(config) => configure(queue, config, mkey),
            Work::Invalidate(key) => ((*ex).local_inv)(ex, *key),
            Work::Bind(key, (address, length, lkey), access, zero_based) => {
                let nothing = ptr::null();
                let window = IbvMw { context: nothing, pd: nothing, rkey: *key, handle: 0, kind: 2 };
                let region = IbvMr { unused: [nothing; 4], handle: 0, lkey: *lkey, rkey: 0 };
                const ZERO_BASED: u32 = 1 << 5;
                let access = access | if *zero_based { ZERO_BASED } else { 0 };
                let info = BindInfo { mr: &region, address: *address, length: (*length).into(), access };
                // `ibv_inc_rkey`.
                let next = key & !0xff | key.wrapping_add(1) & 0xff;
                ((*ex).bind_mw)(ex, &window, next, &info);
            }
            Work::Send(payload) => {
                ((*ex).send)(ex);
                payload_of(queue, payload);
            }
            Work::SendImm(imm, payload) => {
                ((*ex).send_imm)(ex, imm.to_be());
                payload_of(queue, payload);
            }
            Work::SendInvalidate(key, payload) => {
                ((*ex).send_inv)(ex, *key);
                payload_of(queue, payload);
            }
            Work::Write(remote, payload) => {
                ((*ex).rdma_write)(ex, remote.rkey.get(), remote.address);
                payload_of(queue, payload);
            }
            Work::WriteImm(remote, imm, payload) => {
                ((*ex).rdma_write_imm)(ex, remote.rkey.get(), remote.address, imm.to_be());
                payload_of(queue, payload);
            }
            Work::Read(remote, sges) => {
                ((*ex).rdma_read)(ex, remote.rkey.get(), remote.address);
                sges_of(queue, sges);
            }
            Work::CompareSwap(remote, compare, swap, sge) => {
                ((*ex).atomic_cmp_swp)(ex, remote.rkey.get(), remote.address, *compare, *swap);
                sges_of(queue, &[*sge]);
            }
            Work::FetchAdd(remote, add, sge) => {
                ((*ex).atomic_fetch_add)(ex, remote.rkey.get(), remote.address, *add);
                sges_of(queue, &[*sge]);
            }
            Work::Memcpy((to, to_key), (from, from_key), bytes) => {
                let mlx5 = queue.mlx5();
                ((*mlx5).memcpy)(mlx5, *to_key, *to, *from_key, *from, *bytes as usize);
            }
            Work::Raw(wqe) => {
                let mlx5 = queue.mlx5();
                // It has as many bytes as it says.
                ((*mlx5).raw_wqe)(mlx5, wqe.as_ptr().cast());
            }
        }
    }
}

/// Gives the last request its payload.
///
/// # Safety
/// As for `issue_one`, behind the builder of a request that moves data.
unsafe fn payload_of(queue: &mut RefQueue, payload: &Payload) {
    let ex = queue.ex();
    match payload {
        // SAFETY: see the contract; the data are copied during the call.
        Payload::Inline(data) => unsafe {
            ((*ex).set_inline_data)(ex, data.as_ptr().cast(), data.len());
        },
        // SAFETY: see the contract.
        Payload::Sges(sges) => unsafe { sges_of(queue, sges) },
    }
}

/// Gives the last request its scatter entries.
///
/// # Safety
/// As for `payload`.
unsafe fn sges_of(queue: &mut RefQueue, sges: &[(u64, u32, u32)]) {
    let ex = queue.ex();
    if let [(address, length, lkey)] = *sges {
        // SAFETY: see the contract.
        unsafe { ((*ex).set_sge)(ex, lkey, address, length) };
    } else {
        let list = sge_list(sges);
        // SAFETY: see the contract; the list is read during the call.
        unsafe { ((*ex).set_sge_list)(ex, list.len(), list.as_ptr()) };
    }
}

/// Configures the mkey.
///
/// # Safety
/// As for `issue_one`.
unsafe fn configure(queue: &mut RefQueue, config: &Config, mkey: &RefMkey) {
    let (mlx5, raw) = (queue.mlx5(), mkey.as_ptr());
    match (config.older, config.access, &config.layout) {
        (true, Some(access), Some(Mapping::List(entries))) => {
            let list = sge_list(entries);
            // SAFETY: see the contract; the list is read during the call.
            unsafe { ((*mlx5).mr_list)(mlx5, raw, access, list.len() as u16, list.as_ptr()) };
        }
        (true, Some(access), Some(Mapping::Interleaved(repeat, entries))) => {
            let list = interleaved_list(entries);
            // SAFETY: as above.
            unsafe { ((*mlx5).mr_interleaved)(mlx5, raw, access, *repeat, list.len() as u16, list.as_ptr()) };
        }
        // SAFETY: see the contract.
        _ => unsafe { configure_in_steps(queue, config, mkey) },
    }
}

/// Configures the mkey with a builder and its setters.
///
/// # Safety
/// As for `issue_one`.
unsafe fn configure_in_steps(queue: &mut RefQueue, config: &Config, mkey: &RefMkey) {
    let mlx5 = queue.mlx5();
    let reset = u32::from(config.signature == SignatureStep::Reset);
    let mut attr = ConfAttr { flags: reset, comp_mask: 0 };
    let setters = [
        config.access.is_some(),
        config.layout.is_some(),
        matches!(config.signature, SignatureStep::Set { .. }),
        config.crypto.is_some(),
    ];
    let count = setters.iter().filter(|there| **there).count() as u8;
    // SAFETY: see the contract; mkey and attributes are live during the call.
    unsafe { ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), count, &mut attr) };
    for step in config.order {
        // SAFETY: behind the builder, as many setters as it was told, each of what lives during its call.
        unsafe {
            match step {
                0 => {
                    if let Some(access) = config.access {
                        ((*mlx5).set_mkey_access)(mlx5, access);
                    }
                }
                1 => set_layout(queue, config.layout.as_ref()),
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

/// Calls the setter of the layout, if there is one.
///
/// # Safety
/// As for `issue_one`, behind the builder.
unsafe fn set_layout(queue: &mut RefQueue, layout: Option<&Mapping>) {
    let mlx5 = queue.mlx5();
    match layout {
        Some(Mapping::List(entries)) => {
            let list = sge_list(entries);
            // SAFETY: see the contract; the list is read during the call.
            unsafe { ((*mlx5).set_mkey_list)(mlx5, list.len() as u16, list.as_ptr()) };
        }
        Some(Mapping::Interleaved(repeat, entries)) => {
            let list = interleaved_list(entries);
            // SAFETY: as above.
            unsafe { ((*mlx5).set_mkey_interleaved)(mlx5, *repeat, list.len() as u16, list.as_ptr()) };
        }
        None => {}
    }
}

/// Calls the setter of the signature, if there is one.
///
/// # Safety
/// As for `issue_one`, behind the builder.
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
    // SAFETY: see the contract; what the attributes point to lives during the call.
    unsafe { ((*mlx5).set_mkey_sig)(mlx5, &attr) };
}

fn sge_list(entries: &[(u64, u32, u32)]) -> Vec<IbvSge> {
    entries.iter().map(|&(address, length, lkey)| IbvSge { address, length, lkey }).collect()
}

fn interleaved_list(entries: &[(u64, u32, u32, u32)]) -> Vec<Interleaved> {
    entries.iter().map(|&(address, bytes, skip, lkey)| Interleaved { address, bytes, skip, lkey }).collect()
}

fn block_size(size: BlockSize) -> u32 {
    match size {
        BlockSize::B512 => 0,
        BlockSize::B520 => 1,
        BlockSize::B4048 => 2,
        BlockSize::B4096 => 3,
        BlockSize::B4160 => 4,
        // It has no such size, and refuses the number.
        BlockSize::MIB1 => 5,
    }
}

fn crypto_attr(crypto: &Crypto, dek: *mut c_void) -> CryptoAttr {
    CryptoAttr {
        standard: 0,
        encrypt_on_tx: crypto.direction == Direction::EncryptOnTx,
        order: u32::from(crypto.order == SignatureOrder::BeforeCryptoOnTx),
        data_unit: block_size(crypto.data_unit),
        tweak: crypto.tweak.get().to_le_bytes(),
        dek,
        keytag: crypto.keytag.0,
        comp_mask: 0,
    }
}

/// What a domain points to.
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
