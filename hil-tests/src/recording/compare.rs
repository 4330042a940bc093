//! Compares the library's bytes with the recorded requests of another driver. Each request is translated to a
//! request of the library. The requests of one doorbell are posted together, at their place in a ring of the
//! recorded size, and compared byte by byte.
//!
//! One byte of the control segment, with fence mode and completion mode (`fm_ce_se`), is compared in part.
//! The library must signal the same requests as the driver. The completion mode of unsignalled requests is
//! not compared: the driver suppresses the completion of an unsignalled request that is flushed, and the
//! library asks for a completion of each unsignalled request that fails. The library's fences follow other
//! rules than the driver's, and the differences are counted (`vectors/DIFFERENCES.md`). The library must
//! fence each request that the driver fences after a configuration.

use super::event::{Engine, Event};
use crate::doorbell::Recorder;
use crate::request::{Data, Flags, Objects, OwnedLayout, Request};
use mlx5_mkey::error::{PostError, QueueError};
use mlx5_mkey::inspect::{Body, DataPath, DataSegmentView, Requests, Umr, WorkRequest};
use mlx5_mkey::mkey::{
    Crypto, ErrorCount, Mkey, MkeyAttributes, MkeyConfig, SignatureAttributes, SignatureChange, UmrForm,
    XtsEngine,
};
use mlx5_mkey::queue::{DoorbellRecord, SendQueue, SendQueueConfig, SendRequest, SendSlot};
use mlx5_mkey::types::{Key, PsvIndex, Qpn, Seed};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::ctrl::{FmCeSe, Opcode};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::collections::BTreeMap;
use std::fmt;

/// The byte that fills the ring before the requests of a doorbell are posted.
const PATTERN: u8 = 0xa5;

/// Offset of `fm_ce_se` in a control segment.
const FM_CE_SE: usize = 11;

/// The number of entries that each mkey of the recorded driver has room for.
const ENTRIES: u32 = 128;

/// The result of comparing the library's requests with the recorded ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Number of equal requests, for each kind.
    pub same: BTreeMap<&'static str, usize>,
    /// The differences, each with its line in the recording and its offset.
    pub differences: Vec<String>,
    /// Number of compared chains. A chain is the requests of one doorbell.
    pub chains: usize,
    /// Numbers of compared requests that the library or the driver fences: both with the same mode, both with
    /// different modes, only the library, only the driver.
    pub fences: [usize; 4],
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (differ, same): (_, usize) = (self.differences.len(), self.same.values().sum());
        let kinds: Vec<String> = self.same.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
        write!(f, "{} chains: {same} requests matched ({}), {differ} differ", self.chains, kinds.join("; "))?;
        let [same, otherwise, ours, theirs] = self.fences;
        write!(
            f,
            "; fenced alike {same}, by another mode {otherwise}, here alone {ours}, there alone {theirs}"
        )
    }
}

/// A recorded request, translated to a request of the library. If it configures an mkey, also the mkey and
/// the configuration.
struct Said {
    kind: &'static str,
    request: Request,
    configuration: Option<(Box<Mkey>, MkeyConfig)>,
}

impl Said {
    /// Returns a request that configures no mkey.
    const fn alone(kind: &'static str, request: Request) -> Self {
        Self { kind, request, configuration: None }
    }
}

/// The state of the recorded driver's queue pair.
#[derive(Clone, Copy, Default)]
struct Queue {
    blocks: usize,
    /// Whether the library fences the next request.
    is_fenced: bool,
}

/// The requests of one doorbell, with their line in the recording, their queue pair, the number of their
/// first block, and the kind of the device's AES-XTS engine.
struct Chain<'c> {
    line: usize,
    qpn: Qpn,
    from: u32,
    bytes: &'c [u8],
    engine: XtsEngine,
}

/// Posts the chains of a recording with the library, and compares the bytes.
pub fn compare(events: &[Event]) -> Comparison {
    let (mut comparison, mut engine) = (Comparison::default(), XtsEngine::MultiBlock);
    let mut queue = Queue::default();
    for (event, line) in events.iter().zip(1..) {
        match event {
            Event::Device { engine: Engine::MultiBlock } => engine = XtsEngine::MultiBlock,
            Event::Device { engine: Engine::SingleBlock } => engine = XtsEngine::SingleBlock,
            Event::Qp { blocks, .. } => queue = Queue { blocks: *blocks as usize, is_fenced: false },
            Event::Ring { qp, from, blocks } => {
                let (qpn, from) = (Qpn::from_low_bits(*qp), (*from).into());
                let chain = Chain { line, qpn, from, bytes: &blocks.0, engine };
                if let Err(what) = comparison.add(&mut queue, &chain) {
                    comparison.differences.push(format!("line {line}: {what}"));
                }
            }
            _ => {}
        }
    }
    comparison
}

impl Comparison {
    /// Posts a chain with the library, and compares its requests with the recorded ones. Returns an error if
    /// the chain as a whole is refused or differs.
    fn add(&mut self, queue: &mut Queue, chain: &Chain<'_>) -> Result<(), String> {
        let all = Requests::new(chain.bytes)
            .map(|(_, request)| Ok((said(&request, chain.engine)?, is_signaled(request.bytes()))))
            .collect::<Result<Vec<_>, &str>>()?;
        let kinds: Vec<&str> = all.iter().map(|(said, _)| said.kind).collect();
        let ours = posted(queue, chain, all)?;
        self.chains += 1;
        let mut is_behind_configuration = false;
        for ((offset, request), kind) in Requests::new(chain.bytes).zip(kinds) {
            let theirs = request.bytes();
            let ours = ours.get(offset..offset + theirs.len()).ok_or("fewer blocks than recorded")?;
            match self.compare_one(ours, theirs, is_behind_configuration) {
                Ok(()) => *self.same.entry(kind).or_default() += 1,
                Err(what) => {
                    self.differences.push(format!("line {}, byte {offset}: {kind}: {what}", chain.line));
                }
            }
            is_behind_configuration = !matches!(request.body(), Body::DataPath(_));
        }
        Ok(())
    }

    /// Compares the library's request `ours` with the recorded one, and counts how both are fenced.
    fn compare_one(
        &mut self,
        ours: &[u8],
        theirs: &[u8],
        is_behind_configuration: bool,
    ) -> Result<(), String> {
        if is_signaled(ours) != is_signaled(theirs) {
            return Err("signalled on one side".into());
        }
        let at = |at: &usize| *at != FM_CE_SE && ours.get(*at) != theirs.get(*at);
        if let Some(at) = (0..theirs.len()).find(at) {
            let part = |bytes: &[u8]| format!("{:02x?}", &bytes[at..bytes.len().min(at + 8)]);
            return Err(format!("byte {at}: {}, recorded is {}", part(ours), part(theirs)));
        }
        let fence = |bytes: &[u8]| flags(bytes).fm();
        match (fence(ours), fence(theirs)) {
            (0, 0) => {}
            (ours, theirs) if ours == theirs => self.fences[0] += 1,
            (0, _) if is_behind_configuration => return Err("not fenced behind a configuration".into()),
            (0, _) => self.fences[3] += 1,
            (_, 0) => self.fences[2] += 1,
            _ => self.fences[1] += 1,
        }
        Ok(())
    }
}

/// Returns the byte of a request's control segment with fence mode and completion mode (`fm_ce_se`).
fn flags(request: &[u8]) -> FmCeSe {
    FmCeSe::from_bits(request.get(FM_CE_SE).copied().unwrap_or_default())
}

fn is_signaled(request: &[u8]) -> bool {
    flags(request).ce() == FmCeSe::CE_ALWAYS
}

/// Translates a recorded request to one of the library, or returns a description of a request that the
/// library does not have.
fn said(request: &WorkRequest<'_>, engine: XtsEngine) -> Result<Said, &'static str> {
    match request.body() {
        Body::Configure(umr) => configure(&umr, engine),
        Body::SetPsv(segment) => {
            let seed = match segment.transient_signature.get() {
                0 => Seed::Zeros,
                0xffff_ffff_0000_0000 => Seed::Ones,
                _ => return Err("a PSV that starts with another value than a seed"),
            };
            let psv = PsvIndex::from_low_bits(segment.psv_index.get());
            Ok(Said::alone("SET_PSV", Request::SetPsv(psv, seed)))
        }
        Body::DataPath(transfer) => {
            let (remote, sges) = transfer_parts(&transfer)?;
            match transfer.opcode() {
                Opcode::RDMA_WRITE => Ok(Said::alone("RDMA WRITE", Request::Write(remote, Data::Sges(sges)))),
                Opcode::RDMA_READ => Ok(Said::alone("RDMA READ", Request::Read(remote, sges))),
                _ => Err("another transfer than an RDMA WRITE or READ"),
            }
        }
        _ => Err("another kind of request"),
    }
}

fn configure(umr: &Umr<'_>, engine: XtsEngine) -> Result<Said, &'static str> {
    let signature = umr.signature_change().map_err(|_| "a signature that cannot be read")?;
    let crypto: Option<Crypto> = umr.crypto(engine).map_err(|_| "a cipher that cannot be read")?;
    let layout = umr.layout().ok_or("an mkey whose layout stays")?;
    let seen = umr.error_count().map(u32::from);
    let psvs = SignatureAttributes::new(PsvIndex::default(), PsvIndex::default());
    let error_count = ErrorCount { seen: seen.unwrap_or_default(), pending: seen.is_some() };
    let is_signed = signature != SignatureChange::Keep;
    let mkey = Mkey::new(MkeyAttributes {
        signature: is_signed.then_some(SignatureAttributes { error_count, ..psvs }),
        crypto: crypto.map(|_| engine),
        form: UmrForm::Minimal,
        ..MkeyAttributes::plain(umr.key(), ENTRIES)
    });
    let kind = match (&signature, &crypto) {
        (SignatureChange::Digest(_), None) => "digest",
        (SignatureChange::Keep, Some(_)) => "AES-XTS",
        (SignatureChange::Keep, None) => "layout alone",
        _ => return Err("another kind of configuration"),
    };
    let entries: Vec<_> = layout.list_entries().take_while(|entry| entry.length > 0).collect();
    if umr.length() != Some(entries.iter().map(|entry| u64::from(entry.length)).sum()) {
        return Err("an mkey of another length than its layout");
    }
    let config = MkeyConfig { access: umr.access(), signature, crypto };
    let request = Request::Configure(0, 0, OwnedLayout::List(entries));
    Ok(Said { kind, request, configuration: Some((Box::new(mkey), config)) })
}

fn transfer_parts(transfer: &DataPath<'_>) -> Result<(Remote, Vec<Sge>), &'static str> {
    let remote = transfer.remote().ok_or("a transfer without a remote address")?;
    let remote = Remote { address: remote.address.get(), rkey: Key::from_raw(remote.rkey.get()) };
    let sges = transfer.data_segments().map(|(_, segment)| match segment {
        DataSegmentView::Memory(segment) => Ok(Sge {
            address: segment.address.get(),
            length: segment.byte_count.get(),
            lkey: Key::from_raw(segment.lkey.get()),
        }),
        DataSegmentView::Inline { .. } => Err("inline data"),
    });
    Ok((remote, sges.collect::<Result<_, _>>()?))
}

/// Posts a chain at its place in a ring, with one doorbell. Returns the written bytes of the chain.
fn posted(queue: &mut Queue, chain: &Chain<'_>, all: Vec<(Said, bool)>) -> Result<Vec<u8>, String> {
    let text = |error: QueueError| error.to_string();
    let (mut ring, record) = (vec![Wqebb([PATTERN; 64]); queue.blocks], DoorbellRecord::new());
    let mut slots = vec![SendSlot::EMPTY; queue.blocks];
    let config = SendQueueConfig {
        first_block: chain.from,
        small_fence: queue.is_fenced,
        ..SendQueueConfig::new(chain.qpn)
    };
    let mut ours =
        SendQueue::new(config, &mut ring, &mut slots, &record, Recorder::default()).map_err(text)?;
    let mut batch = ours.batch();
    for (id, (said, signaled)) in (0..).zip(all) {
        let kind = said.kind;
        let begun = Flags { signaled, ..Flags::default() }.apply(batch.request(id));
        post(said, begun).map_err(|refused| format!("request {id}, {kind}: refused: {refused}"))?;
    }
    drop(batch);
    queue.is_fenced = ours.next_fence() != 0;
    let end = ours.producer();
    let beside = end..chain.from + queue.blocks as u32;
    if beside.into_iter().any(|index| ours.block(index).0 != [PATTERN; 64]) {
        return Err("blocks written beside the requests".into());
    }
    let blocks = end.wrapping_sub(chain.from) as usize;
    let [_, counter] = record.bytes();
    if blocks * size_of::<Wqebb>() != chain.bytes.len() || counter != (end & 0xffff).to_be_bytes() {
        return Err(format!(
            "{blocks} blocks of {} recorded bytes, counter {counter:02x?}",
            chain.bytes.len()
        ));
    }
    let bytes: Vec<u8> = (chain.from..end).flat_map(|index| ours.block(index).0).collect();
    let last = Requests::new(chain.bytes).last().map(|(offset, _)| offset).unwrap_or_default();
    match ours.doorbell().0[..] {
        [control] if bytes.get(last..last + 8) == Some(&control) => Ok(bytes),
        ref rung => Err(format!("the doorbell was rung with {rung:02x?}")),
    }
}

fn post(said: Said, begun: SendRequest<'_, '_>) -> Result<(), PostError> {
    let Said { mut request, configuration, .. } = said;
    let Some((mut mkey, config)) = configuration else { return request.perform(begun, Objects::none()) };
    let prepared = [PreparedConfig::new(mkey.kind(), &config)?];
    let mkeys = std::slice::from_mut(&mut *mkey);
    request.perform(begun, Objects { mkeys, windows: &mut [], prepared: &prepared })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors;

    fn spdk() -> Vec<Event> {
        vectors::read_file(&vectors::folder().join(vectors::SPDK)).unwrap()
    }

    /// Returns the place and the bytes of the first chain.
    fn first_ring(events: &mut [Event]) -> (&mut u16, &mut Vec<u8>) {
        let rings = events.iter_mut().find_map(|event| match event {
            Event::Ring { from, blocks, .. } => Some((from, &mut blocks.0)),
            _ => None,
        });
        rings.unwrap()
    }

    #[test]
    fn the_library_writes_what_spdk_does() {
        let comparison = compare(&spdk());
        assert_eq!(comparison.differences, Vec::<String>::new());
        let same = [
            ("AES-XTS", 968),
            ("RDMA READ", 1466),
            ("RDMA WRITE", 2696),
            ("SET_PSV", 16),
            ("digest", 530),
            ("layout alone", 12),
        ];
        assert_eq!(comparison.same, same.into_iter().collect());
        assert_eq!((comparison.chains, comparison.fences), (883, [694, 170, 662, 208]));
    }

    #[test]
    fn a_wrong_byte_of_spdk_is_a_difference() {
        let mut events = spdk();
        events.truncate(2000);
        let before = compare(&events).differences.len();
        let (_, blocks) = first_ring(&mut events);
        blocks[24] ^= 1;
        assert_eq!((before, compare(&events).differences.len()), (0, 1));
    }

    #[test]
    fn a_chain_at_another_place_is_a_difference() {
        let mut events = spdk();
        let (from, _) = first_ring(&mut events);
        *from += 1;
        assert_ne!(compare(&events).differences, [""; 0]);
    }
}
