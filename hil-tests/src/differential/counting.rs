//! Counts which features occur in a chain of requests that libmlx5 and the library have posted and the
//! software devices have executed.

use super::case::{Config, SignatureStep, WINDOW_INDEX, Work};
use super::compare::{SET_PSV, straight, word};
use super::coverage::Coverage;
use super::execute::Executed;
use super::pair::Pair;
use super::post::Chain;
use crate::request::{Flags, Request};
use crate::way::Way;
use mlx5_mkey::inspect::Requests;
use mlx5_mkey::mkey::{Mkey, Signature};

/// A chain of requests as libmlx5 has written it into its ring.
pub(super) struct Issued {
    /// The ring, and the counter of the doorbell record.
    pub(super) ring: Vec<u8>,
    pub(super) counter: [u8; 4],
    /// The first block in the ring, and the number of blocks.
    pub(super) start: usize,
    pub(super) count: usize,
    /// The blocks of the chain, in order, without a break at the end of the ring.
    pub(super) requests: Vec<u8>,
}

/// The place of a request, together with its SET_PSVs: first block, counted from the beginning of the chain,
/// and number of blocks.
struct Span {
    start: usize,
    blocks: usize,
}

impl Issued {
    /// Finds the requests of a chain in libmlx5's ring. `producer` is the library's number of the first
    /// block.
    pub(super) fn new(ring: Vec<u8>, counter: [u8; 4], producer: u32) -> Result<Self, String> {
        let blocks = ring.len() / 64;
        let count = usize::from((word(&counter, 0) as u16).wrapping_sub(producer as u16));
        if count > blocks {
            return Err(format!("the reference counts {count} blocks"));
        }
        let start = producer as usize % blocks;
        let requests = straight(&ring, start, count);
        Ok(Self { ring, counter, start, count, requests })
    }

    fn blocks(&self) -> usize {
        self.ring.len() / 64
    }

    fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for (offset, request) in Requests::new(&self.requests) {
            let blocks = request.bytes().len().div_ceil(64);
            match spans.last_mut() {
                Some(span) if request.bytes()[3] == SET_PSV => span.blocks += blocks,
                _ => spans.push(Span { start: offset / 64, blocks }),
            }
        }
        spans
    }

    /// Returns whether a request crosses the end of the ring.
    fn wraps(&self, span: &Span) -> bool {
        (self.start + span.start) % self.blocks() + span.blocks > self.blocks()
    }

    /// Returns whether a request contains this block. `block` is the 16-bit counter of a completion entry.
    fn contains(&self, span: &Span, block: u16) -> bool {
        let first = (self.start + span.start) as u16;
        let behind = block.wrapping_sub(first) & (self.blocks() as u16).wrapping_sub(1);
        usize::from(behind) < span.blocks
    }
}

/// The properties of an mkey that are in force: whether it has a signature, and whether it has crypto
/// properties.
#[derive(Clone, Copy, Default)]
pub(super) struct InForce {
    signature: bool,
    crypto: bool,
}

impl InForce {
    pub(super) fn of(mkey: &Mkey) -> Self {
        Self { signature: mkey.signature().is_some(), crypto: mkey.crypto().is_some() }
    }

    /// Returns which of the properties a configuration keeps.
    fn kept(self, config: &Config) -> Self {
        Self {
            signature: self.signature && config.signature == SignatureStep::Keep,
            crypto: self.crypto && config.crypto.is_none(),
        }
    }

    /// Returns the properties in force after a configuration.
    fn behind(self, config: &Config) -> Self {
        let kept = self.kept(config);
        let sets = matches!(config.signature, SignatureStep::Set { .. });
        Self { signature: kept.signature || sets, crypto: kept.crypto || config.crypto.is_some() }
    }
}

/// Returns whether a prepared form of the configuration has a value that can be changed without preparing it
/// again: the tags of a T10-DIF, or crypto properties such as the tweak.
fn can_be_changed(config: &Config) -> bool {
    let SignatureStep::Set { memory, wire, .. } = &config.signature else { return config.crypto.is_some() };
    let has_tags =
        [memory, wire].into_iter().flatten().any(|domain| matches!(domain.signature, Signature::T10Dif(_)));
    has_tags || config.crypto.is_some()
}

impl Coverage {
    /// Counts a chain that both devices have executed, completely or up to a failure. Returns the requests
    /// before the failure.
    pub(super) fn note<'c>(
        &mut self,
        pair: &mut Pair,
        chain: &Chain<'c>,
        mut in_force: InForce,
        issued: &Issued,
        executed: &Executed,
    ) -> &'c [(Flags, Work)] {
        let spans = issued.spans();
        let end =
            executed.failed.and_then(|block| spans.iter().position(|span| issued.contains(span, block)));
        let done = chain.works.get(..end.unwrap_or(chain.works.len())).unwrap_or_default();
        let before = self.executed;
        let mut last: Option<&Config> = None;
        for ((flags, work), span) in done.iter().zip(&spans) {
            let of = &mut self.ways[chain.way as usize];
            of.requests += 1;
            match work {
                Work::Configure(config) => {
                    of.signaled += u64::from(flags.signaled);
                    of.silent += u64::from(!flags.signaled);
                    of.wrapped += u64::from(issued.wraps(span));
                    let again = last.replace(config).is_some_and(|last| last.is_prepared_as(config));
                    of.again += u64::from(again);
                    self.note_configured(pair, chain.way, config, in_force);
                    in_force = in_force.behind(config);
                }
                Work::Bind(..) => self.binds += 1,
                Work::Plain(request) => match request {
                    Request::Memcpy(..) => of.copies += 1,
                    Request::Raw(_) => {
                        of.raw += 1;
                        self.raw_wrapped += u64::from(issued.wraps(span));
                    }
                    Request::CompareSwap(..) | Request::FetchAdd(..) | Request::Masked(..) => {
                        self.atomics += 1;
                    }
                    Request::Write(remote, _) | Request::Read(remote, _) => {
                        self.by_window += u64::from(remote.rkey.index().get() == WINDOW_INDEX);
                    }
                    _ => {}
                },
            }
        }
        let configured = self.executed - before;
        self.moved += if executed.moved { configured } else { 0 };
        self.failed += u64::from(executed.failed.is_some());
        self.signature_errors += executed.signature_errors;
        self.errors_again += if pair.rearmed { executed.signature_errors } else { 0 };
        pair.rearmed |= pair.erred && configured > 0;
        done
    }

    /// Counts a configuration that both devices have executed. `in_force` are the mkey's properties before
    /// the configuration.
    fn note_configured(&mut self, pair: &Pair, way: Way, config: &Config, in_force: InForce) {
        let kept = in_force.kept(config);
        let changed = way.changes() && can_be_changed(config);
        let sets_or_resets = pair.kind.signature && config.signature != SignatureStep::Keep;
        self.executed += 1;
        self.older += u64::from(config.older);
        self.crypto += u64::from(config.crypto.is_some());
        // A configuration that changes signature or crypto properties writes the BSFs of both, also of the
        // unchanged ones.
        self.kept_signatures += u64::from(kept.signature && config.crypto.is_some());
        self.kept_crypto += u64::from(kept.crypto && sets_or_resets);
        self.changed_behind_errors += u64::from(changed && pair.erred);
        let of = &mut self.ways[way as usize];
        of.changed += u64::from(changed);
        of.kept += u64::from(kept.signature || kept.crypto);
        of.behind_errors += u64::from(pair.erred);
    }
}
