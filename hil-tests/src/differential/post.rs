//! Posts random requests with the library.

use super::MAX_BLOCKS;
use super::case::{Config, Flags, Mapping, Payload, SignatureStep, Work};
use crate::way::Way;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{
    Access, BlockSignature, InterleavedEntry, KlmEntry, Layout, MemoryWindow, Mkey, MkeyConfig,
    SignatureChange,
};
use mlx5_mkey::queue::{Doorbell, LastRequest, SendQueue, SendRequest};
use mlx5_mkey::types::Key;
use mlx5_mkey::wqe::{Local, Payload as Data, PreparedConfig, Sge};

/// The library's queue.
pub(super) type Ours<'r> = SendQueue<'r, Silent, MAX_BLOCKS>;

/// A doorbell that reaches nobody: the devices are told when to run.
pub(super) struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: &LastRequest<'_>) {}
}

/// A chain of requests, named from `first` on, and the way in which they are posted.
#[derive(Clone, Copy)]
pub(super) struct Chain<'c> {
    pub(super) way: Way,
    pub(super) first: u64,
    pub(super) works: &'c [(Flags, Work)],
}

/// Posts a chain with the library and rings the doorbell. Returns which request is refused and why; nothing is rung for then,
/// but by a batch for what it has.
pub(super) fn post_chain(
    queue: &mut Ours<'_>,
    chain: &Chain<'_>,
    mkey: &mut Mkey,
) -> Result<(), (usize, PostError)> {
    let mut poster = chain.way.open(queue);
    let mut last: Last<'_> = None;
    for (number, (flags, work)) in chain.works.iter().enumerate() {
        let mut request = poster.request(chain.first + number as u64);
        if flags.fence {
            request = request.fenced();
        }
        if flags.signaled {
            request = request.signaled();
        }
        if flags.solicited {
            request = request.solicited();
        }
        post(request, (chain.way, &mut last), work, mkey).map_err(|error| (number, error))?;
    }
    poster.publish();
    Ok(())
}

/// What was prepared last, and for what: a chain posts it again where it can.
type Last<'c> = Option<(&'c Config, PreparedConfig)>;

/// Posts one request.
fn post<'c>(
    request: SendRequest<'_, '_>,
    (way, last): (Way, &mut Last<'c>),
    work: &'c Work,
    mkey: &mut Mkey,
) -> Result<(), PostError> {
    match work {
        Work::Configure(config) => configure(request, prepare(way, last, config, mkey)?, config, mkey),
        Work::Invalidate(key) => request.invalidate(Key::from_raw(*key)),
        Work::Bind(key, range, rights, zero_based) => {
            let Sge { address, length, lkey } = one_sge(range);
            let mut window = MemoryWindow::new(Key::from_raw(*key));
            let start = if *zero_based { 0 } else { address };
            let range = KlmEntry { address, length, key: lkey };
            request.bind_window(&mut window, range, access(*rights), start)
        }
        Work::Read(remote, list) => request.rdma_read(*remote, &sges(list)),
        Work::CompareSwap(remote, compare, swap, sge) => {
            request.compare_swap(*remote, *compare, *swap, &one_sge(sge))
        }
        Work::FetchAdd(remote, add, sge) => request.fetch_add(*remote, *add, &one_sge(sge)),
        Work::Memcpy(to, from, bytes) => request.memcpy(place(*to), place(*from), *bytes),
        Work::Raw(wqe) => request.raw(wqe),
        Work::Send(payload) => with(payload, |data| request.send(data)),
        Work::SendImm(imm, payload) => with(payload, |data| request.send_imm(*imm, data)),
        Work::SendInvalidate(key, payload) => {
            with(payload, |data| request.send_invalidate(Key::from_raw(*key), data))
        }
        Work::Write(remote, payload) => with(payload, |data| request.rdma_write(*remote, data)),
        Work::WriteImm(remote, imm, payload) => {
            with(payload, |data| request.rdma_write_imm(*remote, *imm, data))
        }
    }
}

/// Posts what carries a payload.
fn with(payload: &Payload, post: impl FnOnce(Data<'_>) -> Result<(), PostError>) -> Result<(), PostError> {
    match payload {
        Payload::Inline(bytes) => post(Data::Inline(bytes)),
        Payload::Sges(list) => post(Data::Sges(&sges(list))),
    }
}

fn place((address, key): (u64, u32)) -> Local {
    Local { address, lkey: Key::from_raw(key) }
}

fn sges(list: &[(u64, u32, u32)]) -> Vec<Sge> {
    list.iter().map(one_sge).collect()
}

fn one_sge(&(address, length, key): &(u64, u32, u32)) -> Sge {
    Sge { address, length, lkey: Key::from_raw(key) }
}

fn prepare<'l, 'c>(
    way: Way,
    last: &'l mut Last<'c>,
    config: &'c Config,
    mkey: &Mkey,
) -> Result<&'l PreparedConfig, ConfigError> {
    let prepared = match last.take() {
        Some((of, prepared)) if of.is_prepared_as(config) => prepared,
        _ => {
            let words = MkeyConfig {
                access: config.access.map(access),
                signature: signature(&config.signature)?,
                crypto: config.crypto,
            };
            way.prepare(mkey.kind(), &words)?
        }
    };
    Ok(&last.insert((config, prepared)).1)
}

fn configure(
    request: SendRequest<'_, '_>,
    prepared: &PreparedConfig,
    config: &Config,
    mkey: &mut Mkey,
) -> Result<(), PostError> {
    match &config.layout {
        None => request.configure_mkey(mkey, prepared, Layout::Unchanged),
        Some(Mapping::List(entries)) => {
            let entry = |&(address, length, key): &_| KlmEntry { address, length, key: Key::from_raw(key) };
            let entries: Vec<_> = entries.iter().map(entry).collect();
            request.configure_mkey(mkey, prepared, &entries[..])
        }
        Some(Mapping::Interleaved(repeat, entries)) => {
            let entries: Vec<_> = entries.iter().map(stream).collect();
            let layout = Layout::Interleaved { repeat: *repeat, entries: &entries };
            request.configure_mkey(mkey, prepared, layout)
        }
    }
}

fn stream(&(address, bytes, skip, key): &(u64, u32, u32, u32)) -> InterleavedEntry {
    // Cases have strides of 16 bits.
    let [bytes, skip] = [bytes, skip].map(|bytes| u16::try_from(bytes).expect("16 bits"));
    InterleavedEntry { address, bytes, skip, key: Key::from_raw(key) }
}

fn signature(step: &SignatureStep) -> Result<SignatureChange, ConfigError> {
    let SignatureStep::Set { memory, wire, check_mask, copy_mask } = step else {
        let reset = *step == SignatureStep::Reset;
        return Ok(if reset { SignatureChange::Reset } else { SignatureChange::Keep });
    };
    let signature = match (*memory, *wire) {
        (Some(memory), Some(wire)) => BlockSignature::both(memory, wire),
        (Some(memory), None) => BlockSignature::memory(memory),
        (None, Some(wire)) => BlockSignature::wire(wire),
        (None, None) => unreachable!("cases have a signature in a domain"),
    };
    let signature = signature.with_check_mask(*check_mask);
    Ok(SignatureChange::Set(match copy_mask {
        Some(mask) => signature.with_copy_mask(*mask)?,
        None => signature,
    }))
}

/// Reads IBV_ACCESS_LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC.
fn access(bits: u32) -> Access {
    [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC]
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .fold(Access::NONE, |rights, (_, right)| rights | right)
}
