//! Posts random requests with the library.

use super::MAX_BLOCKS;
use super::case::{Config, Flags, Mapping, Payload, SignatureStep, Work};
use crate::way::{Configured, Post, Way};
use mlx5_mkey::mkey::{
    Access, BlockSignature, InterleavedEntry, Layout, ListEntry, Mkey, MkeyConfig, ReadyCrypto,
    SignatureChange,
};
use mlx5_mkey::queue::{Doorbell, SendQueue};
use mlx5_mkey::types::Key;
use mlx5_mkey::wqe::{Payload as Data, Sge};

/// The library's queue.
pub(super) type Ours<'r> = SendQueue<'r, Silent, MAX_BLOCKS>;

/// A doorbell that reaches nobody: the devices are told when to run.
pub(super) struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _control: [u8; 8]) {}
}

/// Posts a chain of requests with the library in one of the ways, named from `first` on, and rings the doorbell. Returns how
/// mkeys were configured, or which request is refused and why; nothing is rung for then, but by a batch for what it has.
pub(super) fn post_chain(
    queue: &mut Ours<'_>,
    way: Way,
    first: u64,
    chain: &[(Flags, Work)],
    mkey: &mut Mkey,
) -> Result<Configured, (usize, String)> {
    let mut poster = way.open(queue);
    for (number, (flags, work)) in chain.iter().enumerate() {
        let mut request = poster.request(first + number as u64);
        if flags.fence {
            request = request.fenced();
        }
        if flags.signaled {
            request = request.signaled();
        }
        if flags.solicited {
            request = request.solicited();
        }
        post(request, work, mkey).map_err(|error| (number, error))?;
    }
    let configured = poster.configured();
    poster.publish();
    Ok(configured)
}

/// Posts one request.
fn post(request: Post<'_, '_, '_, Silent, MAX_BLOCKS>, work: &Work, mkey: &mut Mkey) -> Result<(), String> {
    let posted = match work {
        Work::Configure(config) => return configure(request, config, mkey),
        Work::Invalidate(key) => request.invalidate(Key::from_raw(*key)),
        Work::Read(remote, list) => request.rdma_read(*remote, &sges(list)?),
        Work::CompareSwap(remote, compare, swap, (address, length, key)) => {
            let sge = one_sge(*address, *length, *key)?;
            request.compare_swap(*remote, *compare, *swap, &sge)
        }
        Work::FetchAdd(remote, add, (address, length, key)) => {
            request.fetch_add(*remote, *add, &one_sge(*address, *length, *key)?)
        }
        Work::Send(payload)
        | Work::SendImm(_, payload)
        | Work::SendInvalidate(_, payload)
        | Work::Write(_, payload)
        | Work::WriteImm(_, _, payload) => {
            let list;
            let data = match payload {
                Payload::Inline(bytes) => Data::Inline(bytes),
                Payload::Sges(entries) => {
                    list = sges(entries)?;
                    Data::Sges(&list)
                }
            };
            match work {
                Work::SendImm(imm, _) => request.send_imm(*imm, data),
                Work::SendInvalidate(key, _) => request.send_invalidate(Key::from_raw(*key), data),
                Work::Write(remote, _) => request.rdma_write(*remote, data),
                Work::WriteImm(remote, imm, _) => request.rdma_write_imm(*remote, *imm, data),
                _ => request.send(data),
            }
        }
    };
    posted.map_err(|error| format!("{error:?}"))
}

fn sges(list: &[(u64, u32, u32)]) -> Result<Vec<Sge>, String> {
    list.iter().map(|&(address, length, key)| one_sge(address, length, key)).collect()
}

fn one_sge(address: u64, length: u32, key: u32) -> Result<Sge, String> {
    Sge::new(address, length, Key::from_raw(key)).map_err(|error| format!("{error:?}"))
}

fn configure(
    request: Post<'_, '_, '_, Silent, MAX_BLOCKS>,
    config: &Config,
    mkey: &mut Mkey,
) -> Result<(), String> {
    let mut list = Vec::new();
    let mut strides = Vec::new();
    let layout = match &config.layout {
        None => None,
        Some(Mapping::List(entries)) => {
            for &(address, length, key) in entries {
                let entry = ListEntry::new(address, length, Key::from_raw(key));
                list.push(entry.map_err(|error| format!("{error:?}"))?);
            }
            Some(Layout::list(&list))
        }
        Some(Mapping::Interleaved(repeat, entries)) => {
            for &(address, bytes, skip, key) in entries {
                let entry = InterleavedEntry::new(address, bytes, skip, Key::from_raw(key));
                strides.push(entry.map_err(|error| format!("{error:?}"))?);
            }
            Some(Layout::interleaved(*repeat, &strides).map_err(|error| format!("{error:?}"))?)
        }
    };
    let signature = match &config.signature {
        SignatureStep::Keep => SignatureChange::Keep,
        SignatureStep::Reset => SignatureChange::Reset,
        SignatureStep::Set { memory, wire, check_mask, copy_mask } => {
            let signature = match (*memory, *wire) {
                (Some(memory), Some(wire)) => BlockSignature::both(memory, wire),
                (Some(memory), None) => BlockSignature::memory(memory),
                (None, Some(wire)) => BlockSignature::wire(wire),
                (None, None) => return Err("signature of no domain".into()),
            };
            let signature = signature.with_check_mask(*check_mask);
            SignatureChange::Set(match copy_mask {
                Some(mask) => signature.with_copy_mask(*mask).map_err(|error| format!("{error:?}"))?,
                None => signature,
            })
        }
    };
    let access = config.access.map(|bits| {
        // IBV_ACCESS_LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC.
        [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC]
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| bits >> bit & 1 == 1)
            .fold(Access::NONE, |rights, (_, right)| rights | right)
    });
    let crypto = config.crypto.map(ReadyCrypto::new);
    let config = MkeyConfig { access, layout, signature: signature.as_ref(), crypto: crypto.as_ref() };
    request.configure_mkey(mkey, &config).map_err(|error| format!("{error:?}"))
}
