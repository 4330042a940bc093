//! What the library writes for the requests of another driver: each is put in the library's words, posted, and compared byte by byte.
//!
//! One byte is compared in part: that of the control segment with fence and completion (`fm_ce_se`). The driver fences by other rules
//! and asks for no completion of requests that are flushed (`vectors/DIFFERENCES.md`); that the same requests are signalled is
//! compared.

use super::{Engine, Event};
use mlx5_mkey::inspect::{Body, DataPath, DataSegmentView, Requests, Umr, WorkRequest};
use mlx5_mkey::mkey::{
    Crypto, ErrorCount, KlmEntry, Mkey, MkeyAttributes, MkeyConfig, SignatureAttributes, SignatureChange,
    UmrForm, XtsEngine,
};
use mlx5_mkey::queue::{Doorbell, DoorbellRecord, LastRequest, SendQueue, SendQueueConfig, SendRequest};
use mlx5_mkey::types::{Key, PsvIndex, Qpn, Seed};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::ctrl::{FmCeSe, Opcode};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::collections::BTreeMap;
use std::fmt;

/// Blocks of the ring that requests are posted to, one by one.
const RING: usize = 64;

/// Where a control segment has `fm_ce_se`.
const FM_CE_SE: usize = 11;

/// Room of the driver's mkeys, in entries.
const ENTRIES: u32 = 128;

/// Requests that were compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Those that are the same, by kind.
    pub same: BTreeMap<&'static str, usize>,
    /// What differs, and where.
    pub differences: Vec<String>,
    /// Requests that the library cannot say, by reason.
    pub not_compared: BTreeMap<&'static str, usize>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = |counts: &BTreeMap<&'static str, usize>| {
            let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{what}: {count}")).collect();
            counts.join("; ")
        };
        let (same, not_compared): (usize, usize) =
            (self.same.values().sum(), self.not_compared.values().sum());
        write!(f, "{same} requests matched ({}), {} differ", counts(&self.same), self.differences.len())?;
        write!(f, ", {not_compared} not compared")?;
        if not_compared > 0 {
            write!(f, " ({})", counts(&self.not_compared))?;
        }
        Ok(())
    }
}

/// A request in the library's words.
enum Said {
    Configure { mkey: Box<Mkey>, config: MkeyConfig, entries: Vec<KlmEntry> },
    SetPsv { psv: PsvIndex, seed: Seed },
    Write { remote: Remote, sges: Vec<Sge> },
    Read { remote: Remote, sges: Vec<Sge> },
}

/// Posts each request of a recording anew, and compares the bytes.
pub fn compare(events: &[Event]) -> Comparison {
    let (mut comparison, mut engine) = (Comparison::default(), XtsEngine::MultiBlock);
    for (event, line) in events.iter().zip(1..) {
        match event {
            Event::Device { engine: Engine::MultiBlock, .. } => engine = XtsEngine::MultiBlock,
            Event::Device { engine: Engine::SingleBlock, .. } => engine = XtsEngine::SingleBlock,
            Event::Ring { qp, from, blocks } => {
                for (offset, request) in Requests::new(&blocks.0) {
                    let begin = u32::from(*from) + (offset / size_of::<Wqebb>()) as u32;
                    let place = format!("line {line}, byte {offset}");
                    comparison.add(&place, &request, Qpn::from_low_bits(*qp), begin, engine);
                }
            }
            _ => {}
        }
    }
    comparison
}

impl Comparison {
    fn add(&mut self, place: &str, request: &WorkRequest<'_>, qpn: Qpn, begin: u32, engine: XtsEngine) {
        let (kind, said) = match said(request, engine) {
            Ok(said) => said,
            Err(reason) => return *self.not_compared.entry(reason).or_default() += 1,
        };
        let completion = FmCeSe::from_bits(request.bytes().get(FM_CE_SE).copied().unwrap_or_default()).ce();
        let is_signaled = completion == FmCeSe::CE_ALWAYS;
        let mut ours = match posted(said, qpn, begin, is_signaled) {
            Ok(ours) => ours,
            Err(refused) => return self.differences.push(format!("{place}: refused: {refused}")),
        };
        let theirs = request.bytes();
        ours.truncate(theirs.len());
        if let (Some(ours), Some(theirs)) = (ours.get_mut(FM_CE_SE), theirs.get(FM_CE_SE)) {
            let signaled = FmCeSe::from_bits(*ours).ce() == FmCeSe::CE_ALWAYS;
            *ours = if signaled == is_signaled { *theirs } else { !*theirs };
        }
        match ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs) {
            None if ours.len() == theirs.len() => *self.same.entry(kind).or_default() += 1,
            at => {
                let at = at.unwrap_or(ours.len().min(theirs.len()));
                let part = |bytes: &[u8]| format!("{:02x?}", &bytes[at..bytes.len().min(at + 8)]);
                let what =
                    format!("{place}: {kind}: byte {at}: {}, recorded is {}", part(&ours), part(theirs));
                self.differences.push(what);
            }
        }
    }
}

/// Puts a request in the library's words.
fn said(request: &WorkRequest<'_>, engine: XtsEngine) -> Result<(&'static str, Said), &'static str> {
    match request.body() {
        Body::Configure(umr) => configure(&umr, engine),
        Body::SetPsv(segment) => {
            let seed = match segment.transient_signature.get() {
                0 => Seed::Zeros,
                0xffff_ffff_0000_0000 => Seed::Ones,
                _ => return Err("a PSV that starts with another value than a seed"),
            };
            Ok(("SET_PSV", Said::SetPsv { psv: PsvIndex::from_low_bits(segment.psv_index.get()), seed }))
        }
        Body::DataPath(transfer) => {
            let (remote, sges) = transfer_parts(&transfer)?;
            match transfer.opcode() {
                Opcode::RDMA_WRITE => Ok(("RDMA WRITE", Said::Write { remote, sges })),
                Opcode::RDMA_READ => Ok(("RDMA READ", Said::Read { remote, sges })),
                _ => Err("another transfer than an RDMA WRITE or READ"),
            }
        }
        _ => Err("another kind of request"),
    }
}

fn configure(umr: &Umr<'_>, engine: XtsEngine) -> Result<(&'static str, Said), &'static str> {
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
    let (mut entries, length) = (Vec::new(), umr.length());
    let mut mapped = 0;
    for entry in layout.list_entries().take_while(|entry| entry.length > 0) {
        mapped += u64::from(entry.length);
        entries.push(entry);
    }
    if length != Some(mapped) {
        return Err("an mkey of another length than its layout");
    }
    let config = MkeyConfig { access: umr.access(), signature, crypto };
    Ok((kind, Said::Configure { mkey: Box::new(mkey), config, entries }))
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

struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: &LastRequest<'_>) {}
}

/// Posts a request at a block, and returns its bytes.
fn posted(said: Said, qpn: Qpn, begin: u32, is_signaled: bool) -> Result<Vec<u8>, String> {
    let (mut ring, record) = (vec![Wqebb::ZERO; RING], DoorbellRecord::new());
    let config = SendQueueConfig { first_block: begin, ..SendQueueConfig::new(qpn) };
    let mut queue =
        SendQueue::<_, RING>::new(config, &mut ring, &record, Silent).map_err(|error| error.to_string())?;
    let request = queue.request(0);
    let request = if is_signaled { request.signaled() } else { request };
    post(said, request)?;
    Ok((begin..queue.producer()).flat_map(|index| queue.block(index).0).collect())
}

fn post(said: Said, request: SendRequest<'_, '_>) -> Result<(), String> {
    match said {
        Said::Configure { mut mkey, config, entries } => {
            let prepared = PreparedConfig::new(mkey.kind(), &config).map_err(|error| error.to_string())?;
            request.configure_mkey(&mut mkey, &prepared, &entries[..])
        }
        Said::SetPsv { psv, seed } => request.set_psv(psv, seed),
        Said::Write { remote, sges } => request.rdma_write(remote, &sges[..]),
        Said::Read { remote, sges } => request.rdma_read(remote, &sges),
    }
    .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::read;
    use crate::vectors;

    fn spdk() -> Vec<Event> {
        read(&vectors::folder().join(vectors::SPDK)).unwrap()
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
        assert_eq!(comparison.not_compared, BTreeMap::new());
    }

    #[test]
    fn a_wrong_byte_of_spdk_is_a_difference() {
        let mut events = spdk();
        events.truncate(2000);
        let before = compare(&events).differences.len();
        let bytes = events.iter_mut().find_map(|event| match event {
            Event::Ring { blocks, .. } => Some(&mut blocks.0),
            _ => None,
        });
        bytes.unwrap()[24] ^= 1;
        assert_eq!((before, compare(&events).differences.len()), (0, 1));
    }
}
