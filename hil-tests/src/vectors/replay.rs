//! Posts the recorded inputs of a vector with the library, and compares the written bytes with the bytes of
//! libmlx5 (the reference).

use super::blue_flame::{Page, Register, Written};
use super::format::{
    Chain, Context, DomainSpec, Hex, Int, InterleavedSpec, MkeyAfter, MkeySpec, Op, Ret, SgeSpec, Vector,
};
use super::manner::{Limits, Replay, Tally, Verdict};
use super::rules::{self, Asked, Refusal};
use crate::request::{Data, Flags, Objects, OwnedLayout, Request};
use crate::way::{Poster, Way, block_signature, with_masks};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, ErrorCount, Escape, Guard, InterleavedEntry, Keytag,
    KlmEntry, Mkey, MkeyAttributes, MkeyConfig, Signature, SignatureAttributes, SignatureCapabilities,
    SignatureChange, SignatureFault, SignatureOrder, T10Dif, UmrForm, XtsEngine,
};
use mlx5_mkey::queue::{
    Doorbell, DoorbellRecord, LastRequest, SendQueue, SendQueueConfig, SendRequest, SendSlot,
};
use mlx5_mkey::types::{BlockSize, DekId, Key, PsvIndex, Qpn, Seed, Tweak};
use mlx5_mkey::wire::{Wqebb, cqe::SignatureErrorCqe};
use mlx5_mkey::wqe::{Remote, Sge};

/// `ENOMEM`, the errno of libmlx5 for a full queue.
const ENOMEM: u32 = 12;

/// The byte that fills the ring before each chain. A byte that the library forgets to write keeps this value.
const PATTERN: u8 = 0xa5;

/// A doorbell that records the last request's control segment. If the recorded queue pair has a BlueFlame
/// register, the doorbell also writes to memory in its place.
struct Recorder<'p> {
    control: Option<[u8; 8]>,
    register: Option<Register<'p>>,
}

impl Doorbell for Recorder<'_> {
    fn ring(&mut self, last: &LastRequest<'_>) {
        self.control = Some(last.control());
        if let Some(register) = &mut self.register {
            register.ring(last);
        }
    }
}

type Queue<'r, 'p> = SendQueue<'r, &'r mut Recorder<'p>>;

/// Replays all chains of a vector, and adds the counts of what was compared to the tally. Returns the result
/// of each chain.
pub(super) fn replay(vector: &Vector, how: Replay, tally: &mut Tally) -> Vec<Verdict> {
    let mut state = State {
        mkeys: vector.mkeys.iter().map(|spec| create_mkey(spec, &vector.ctx)).collect(),
        known: vector.mkeys.iter().map(Known::created).collect(),
        fence: vector.qp.fm_cache,
        outstanding: vector.qp.head.wrapping_sub(vector.qp.tail),
        half: vector.qp.bf.offset,
    };
    let mut has_stopped = false;
    let mut verdict = |chain| {
        if has_stopped {
            return Verdict::NotCompared("behind a chain that was refused or aborted");
        }
        let verdict = judge(vector, chain, how, &mut state, tally).unwrap_or_else(Verdict::Differs);
        // After a failed chain, libmlx5's mkeys keep a part of the chain's changes, and the library's mkeys
        // have none. Later chains are therefore not compared.
        has_stopped = verdict != Verdict::Matched;
        verdict
    };
    vector.chains.iter().map(&mut verdict).collect()
}

/// The state of mkeys and queue that a chain leaves to the next one.
#[derive(Clone)]
struct State {
    mkeys: Vec<Mkey>,
    /// Length and error count of each mkey after the last chain, as recorded.
    known: Vec<Known>,
    fence: u8,
    outstanding: u32,
    /// Offset of the half of the BlueFlame register that the next doorbell writes, in bytes.
    half: usize,
}

/// Length and error count of an mkey, and whether the next configuration must tell the device the count
/// (`pending`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    length: u64,
    errors: u32,
    pending: bool,
}

impl Known {
    fn created(spec: &MkeySpec) -> Self {
        let (errors, pending) =
            spec.sig.as_ref().map_or((0, false), |sig| (sig.err_count, sig.err_count_updated));
        Self { length: 0, errors, pending }
    }

    fn recorded(after: &MkeyAfter) -> Self {
        Self { length: after.length.0, errors: after.err_count, pending: after.err_count_updated }
    }

    /// Returns length and error count of the library's mkey. An mkey without signature counts no errors.
    fn of(mkey: &Mkey) -> Self {
        let count = mkey.error_count().unwrap_or(ErrorCount { seen: 0, pending: false });
        Self { length: mkey.length(), errors: count.seen, pending: count.pending }
    }
}

/// The result of posting a chain with the library, which may have refused it, and the state of the library's
/// queue afterwards.
struct Posted {
    outcome: Step,
    ring: Vec<Wqebb>,
    record: DoorbellRecord,
    configured: usize,
    producer: u32,
    fence: u8,
    outstanding: u32,
    doorbell: Option<[u8; 8]>,
    /// If there is a BlueFlame register: the result of comparing its bytes with the recorded ones, and the
    /// offset of the half that the next doorbell writes.
    register: Option<(Result<Written, String>, Option<usize>)>,
}

/// Posts a chain and compares the library's result with the recorded one.
///
/// # Errors
/// A description of the difference.
fn judge(
    vector: &Vector,
    chain: &Chain,
    how: Replay,
    state: &mut State,
    tally: &mut Tally,
) -> Result<Verdict, String> {
    let expected = match &chain.result.ret {
        Ret::Aborted(_) => return Ok(Verdict::NotCompared("aborted by the user")),
        Ret::Errno(errno) => *errno,
    };
    let before = state.clone();
    let Some(posted) = post(vector, chain, how, state) else {
        return Ok(Verdict::NotCompared("queue limits that no device has"));
    };
    match (expected, &posted.outcome) {
        (0, Err(refusal)) => {
            let overlaps = chain.result.bbs.len() > vector.qp.wqe_cnt.into();
            let reason = rules::deliberate(refusal, overlaps)
                .ok_or_else(|| format!("the reference posts it, the library refuses: {refusal:?}"))?;
            unchanged(chain, &posted, state, &before, &mut tally.mkeys[1])?;
            Ok(Verdict::NotCompared(reason))
        }
        // The library may report a full queue only if libmlx5 also does, even if the chain has other errors.
        (errno, Err(refusal)) if rules::no_room(refusal) && errno != ENOMEM => {
            Err(format!("the reference refuses it with errno {errno}, the library has no room: {refusal:?}"))
        }
        (_, Err(_)) => {
            unchanged(chain, &posted, state, &before, &mut tally.mkeys[1])?;
            Ok(Verdict::Refused)
        }
        (0, Ok(())) => {
            (state.fence, state.outstanding) = (posted.fence, posted.outstanding);
            compare(vector, chain, &posted, state, tally)?;
            state.known = chain.result.mkeys_after.iter().map(Known::recorded).collect();
            tally.configured += posted.configured;
            Ok(Verdict::Matched)
        }
        (ENOMEM, Ok(())) if how.limits == Limits::Lifted && is_limited(vector, chain, how, &before) => {
            Ok(Verdict::NotCompared(rules::LIFTED))
        }
        (errno, Ok(())) => Err(format!("the reference refuses it with errno {errno}, the library posts it")),
    }
}

/// Returns whether the library refuses the chain if its queue has the limits of libmlx5's queue.
fn is_limited(vector: &Vector, chain: &Chain, how: Replay, before: &State) -> bool {
    let recorded = post(vector, chain, Replay { limits: Limits::Recorded, ..how }, &mut before.clone());
    recorded.is_some_and(|posted| posted.outcome.is_err_and(|refusal| rules::is_limit(&refusal)))
}

/// Posts a chain to a new queue of the library. Returns `None` if the library does not accept the recorded
/// properties of the queue.
fn post(vector: &Vector, chain: &Chain, how: Replay, state: &mut State) -> Option<Posted> {
    let qp = &vector.qp;
    let mut ring = vec![Wqebb([PATTERN; 64]); qp.wqe_cnt.into()];
    let mut slots = vec![SendSlot::EMPTY; qp.wqe_cnt.into()];
    let record = DoorbellRecord::new();
    let (max_inline_data, max_requests) = match how.limits {
        Limits::Recorded => (qp.max_inline_data, qp.max_post.saturating_sub(state.outstanding)),
        Limits::Lifted => (SendQueueConfig::MAX_INLINE_DATA, u32::MAX),
    };
    let config = SendQueueConfig {
        max_inline_data,
        max_sge: qp.max_send_sge,
        max_requests,
        signal_all: qp.sq_sig_all != 0,
        first_block: chain.result.pi_before.0 as u32,
        small_fence: state.fence != 0,
        ..SendQueueConfig::new(Qpn::from_low_bits(qp.qpn))
    };
    let page = Page::new();
    let mut recorder = Recorder { control: None, register: page.register(qp, state.half) };
    let mut queue = Queue::new(config, &mut ring, &mut slots, &record, &mut recorder).ok()?;
    let mut driver = Driver {
        way: how.way,
        octowords: (max_inline_data as usize + 4) / 16,
        specs: &vector.mkeys,
        mkeys: &mut state.mkeys,
        configured: 0,
        wr: None,
        open: None,
        begun: None,
    };
    let outcome = driver.run(&mut queue, chain);
    let configured = driver.configured;
    let (producer, fence) = (queue.producer(), queue.next_fence() << 5);
    let outstanding = state.outstanding.wrapping_add(queue.outstanding());
    let Recorder { control: doorbell, register } = recorder;
    let register = register.map(|mut register| (page.compare(qp, chain), page.next(&mut register)));
    Some(Posted { outcome, ring, record, configured, producer, fence, outstanding, doorbell, register })
}

/// Checks that a refused chain left the mkeys unchanged, apart from the signature errors that the chain
/// reports. If an earlier request of the chain configured an mkey, nothing is checked.
fn unchanged(
    chain: &Chain,
    posted: &Posted,
    state: &State,
    before: &State,
    compared: &mut usize,
) -> Result<(), String> {
    if posted.configured != 0 {
        return Ok(());
    }
    for (number, (mkey, known)) in state.mkeys.iter().zip(&before.known).enumerate() {
        let errors =
            chain.ops.iter().filter(|op| matches!(op, Op::SigErrorCqe { mkey } if *mkey == number)).count()
                as u32;
        let expected =
            Known { errors: known.errors + errors, pending: known.pending || errors > 0, ..*known };
        if Known::of(mkey) != expected {
            return Err(format!(
                "refused, and yet the mkey is {:?}, before it {expected:?}",
                Known::of(mkey)
            ));
        }
        *compared += 1;
    }
    Ok(())
}

fn compare(
    vector: &Vector,
    chain: &Chain,
    posted: &Posted,
    state: &mut State,
    tally: &mut Tally,
) -> Result<(), String> {
    let (qp, mkeys, result) = (&vector.qp, &state.mkeys, &chain.result);
    let equal = |what: &str, ours: u64, theirs: u64| {
        if ours == theirs { Ok(()) } else { Err(format!("{what} {ours:#x}, the reference has {theirs:#x}")) }
    };
    equal("producer counter", u64::from(posted.producer), result.pi_after.0)?;
    equal("fence state", u64::from(posted.fence), u64::from(result.fm_cache_after))?;
    equal(
        "requests posted",
        u64::from(posted.outstanding),
        u64::from(result.sq_head_after.wrapping_sub(qp.tail)),
    )?;
    let blocks = posted.producer.wrapping_sub(result.pi_before.0 as u32) as usize;
    equal("blocks", blocks as u64, result.bbs.len() as u64)?;
    for (index, block) in posted.ring.iter().enumerate() {
        if block.0 != [PATTERN; 64] && !result.bbs.iter().any(|theirs| theirs.bb == index) {
            return Err(format!("block {index} written, the reference leaves it alone"));
        }
    }
    for block in &result.bbs {
        let Hex(theirs) = &block.hex;
        let (Some(Wqebb(ours)), 64) = (posted.ring.get(block.bb), theirs.len()) else {
            return Err(format!("block {} is not one of the ring, or not of 64 bytes", block.bb));
        };
        // libmlx5 signs requests if the queue pair demands it (`wq_sig`), and the library never does. The
        // signature byte of a control segment is therefore not compared.
        let signature = qp.wq_sig != 0 && result.wqes.iter().any(|wqe| wqe.bb == block.bb);
        for offset in 0..64 {
            let free = block.untouched.iter().any(|&(start, len)| (start..start + len).contains(&offset))
                || (signature && offset == 8);
            if !free {
                let what = format!("block {} offset {offset}:", block.bb);
                equal(&what, u64::from(ours[offset]), u64::from(theirs[offset]))?;
            }
        }
    }
    let [_, send] = posted.record.bytes();
    match &result.dbrec {
        Some(Hex(theirs)) if theirs[..] != send => {
            return Err(format!("doorbell record {send:02x?}, the reference has {theirs:02x?}"));
        }
        None if send != [0; 4] => return Err("doorbell record written".into()),
        _ => {}
    }
    match (&result.doorbell, posted.doorbell) {
        (None, Some(_)) => return Err("doorbell rung".into()),
        (Some(_), None) => return Err("doorbell not rung".into()),
        // A doorbell that wrote a whole request (BlueFlame) is compared further below.
        (Some(spec), Some(ours)) if spec.kind == "ctrl8" => {
            let theirs = spec.hex.as_ref().map(|Hex(bytes)| bytes.as_slice());
            if theirs != Some(&ours[..]) {
                return Err(format!("doorbell {ours:02x?}, the reference has {theirs:02x?}"));
            }
        }
        (Some(_), Some(_)) if posted.register.is_none() => {
            return Err("the reference has written a whole request, the library has no such register".into());
        }
        _ => {}
    }
    if let Some((written, half)) = &posted.register {
        let half = half.ok_or("the doorbell writes nothing")?;
        equal("half of the register that is next", half as u64, result.bf_offset_after as u64)?;
        state.half = half;
        tally.blue_flame[written.clone()? as usize] += 1;
    }
    if mkeys.len() != result.mkeys_after.len() {
        return Err(format!("{} mkeys, the reference has {}", mkeys.len(), result.mkeys_after.len()));
    }
    for (mkey, theirs) in mkeys.iter().zip(&result.mkeys_after) {
        if Known::of(mkey) != Known::recorded(theirs) {
            return Err(format!(
                "mkey {:?}, the reference has {:?}",
                Known::of(mkey),
                Known::recorded(theirs)
            ));
        }
        tally.mkeys[0] += 1;
    }
    Ok(())
}

fn create_mkey(spec: &MkeySpec, ctx: &Context) -> Mkey {
    let has = |name: &str| ctx.crypto_engines.iter().any(|engine| engine == name);
    let engine = if has("aes_xts_multi_block") {
        XtsEngine::MultiBlock
    } else if has("aes_xts_single_block") {
        XtsEngine::SingleBlock
    } else {
        XtsEngine::Unspecified
    };
    let signature = spec.sig.as_ref().map(|sig| SignatureAttributes {
        memory_psv: PsvIndex::from_low_bits(sig.mem_psv),
        wire_psv: PsvIndex::from_low_bits(sig.wire_psv),
        error_count: ErrorCount { seen: sig.err_count, pending: sig.err_count_updated },
        capabilities: SignatureCapabilities::ALL,
    });
    Mkey::new(MkeyAttributes {
        key: Key::from_raw(spec.lkey),
        max_entries: spec.num_desc.into(),
        signature,
        crypto: spec.crypto.then_some(engine),
        tag_update: ctx.mkey_update_tag != 0,
        form: UmrForm::Complete,
        entry_size: None,
    })
}

/// A recorded configuration while it is being read: some of its setters are still to come.
struct OpenConfig {
    mkey: usize,
    setters_to_come: usize,
    access: Option<Access>,
    layout: Option<OwnedLayout>,
    signature: Option<BlockSignature>,
    /// Whether the configuration resets the signature, unless it sets another one.
    resets: bool,
    crypto: Option<Crypto>,
}

/// Sets a property of a configuration, which must not be set yet. `twice` is the reason if it is.
fn once<T>(place: &mut Option<T>, value: Result<T, Refusal>, twice: &'static str) -> Step {
    if place.is_some() {
        return inexpressible(twice);
    }
    *place = Some(value?);
    Ok(())
}

/// Returns the number of bytes that a layout maps, or `None` for an unchanged layout.
fn mapped(layout: &OwnedLayout) -> Option<u64> {
    match layout {
        OwnedLayout::Unchanged => None,
        OwnedLayout::List(entries) => Some(entries.iter().map(|entry| u64::from(entry.length)).sum()),
        OwnedLayout::Interleaved(repeat, entries) => {
            Some(entries.iter().map(|entry| u64::from(entry.bytes)).sum::<u64>() * u64::from(*repeat))
        }
    }
}

/// Returns the lengths of the entries of a list, or the strides (bytes and skip) of an interleaved layout.
fn spans(layout: &OwnedLayout) -> Vec<u32> {
    let stride = |entry: &InterleavedEntry| u32::from(entry.bytes) + u32::from(entry.skip);
    match layout {
        OwnedLayout::Unchanged => Vec::new(),
        OwnedLayout::List(entries) => entries.iter().map(|entry| entry.length).collect(),
        OwnedLayout::Interleaved(_, entries) => entries.iter().map(stride).collect(),
    }
}

/// Id and flags of the next request.
struct Wr {
    id: u64,
    flags: Flags,
    inline: bool,
}

impl Wr {
    fn new(id: Int, names: &[String]) -> Self {
        let has = |flag: &str| names.iter().any(|name| name == flag);
        let flags = Flags { fenced: has("fence"), signaled: has("signaled"), solicited: has("solicited") };
        Self { id: id.0, flags, inline: has("inline") }
    }
}

struct Driver<'d> {
    way: Way,
    /// The number of octowords of a request that layout and BSFs may fill.
    octowords: usize,
    specs: &'d [MkeySpec],
    mkeys: &'d mut [Mkey],
    configured: usize,
    wr: Option<Wr>,
    open: Option<OpenConfig>,
    /// A request whose data setter is still to come.
    begun: Option<Op>,
}

type Step = Result<(), Refusal>;

/// Returns the refusal of a recorded input for which the library has no types.
fn inexpressible<T>(what: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Inexpressible(what))
}

/// Refuses flags, codes and masks for which the library has no types.
fn none(extras: &[Option<Int>]) -> Step {
    let is_there = extras.iter().flatten().any(|value| value.0 != 0);
    if is_there { inexpressible("a flag, code or comp_mask that libmlx5 does not know") } else { Ok(()) }
}

/// The type that posts the requests of a chain, by the posting method of the replay.
type Out<'q, 'r, 'p> = Poster<'q, 'r, &'r mut Recorder<'p>>;

impl Driver<'_> {
    /// Performs all recorded steps of a chain. The library posts together what libmlx5 posts with one
    /// doorbell.
    fn run(&mut self, queue: &mut Queue<'_, '_>, chain: &Chain) -> Step {
        let mut ops = chain.ops.as_slice();
        while let [op, rest @ ..] = ops {
            ops = rest;
            match op {
                Op::Start => {
                    let end = rest.iter().position(|op| matches!(op, Op::Complete));
                    let (requests, behind) = rest.split_at(end.unwrap_or(rest.len()));
                    self.post(queue, requests)?;
                    ops = behind.get(1..).unwrap_or_default();
                }
                Op::PostSend { .. } => self.post(queue, std::slice::from_ref(op))?,
                Op::Cancel { wr_id, hw_wqebb_counter } => {
                    cancel(queue, wr_id.0, *hw_wqebb_counter, chain)?;
                }
                Op::SigErrorCqe { mkey } => self.record_error(*mkey)?,
                Op::SetLkey { mkey, lkey } => self.set_key(*mkey, *lkey)?,
                _ => return inexpressible("request outside of a chain"),
            }
        }
        Ok(())
    }

    /// Posts requests and rings the doorbell.
    fn post(&mut self, queue: &mut Queue<'_, '_>, ops: &[Op]) -> Step {
        let mut out = self.way.open(queue);
        let mut posted = ops.iter().try_for_each(|op| self.apply(&mut out, op));
        if posted.is_ok() && self.open.is_some() {
            posted = inexpressible(rules::UNFINISHED);
        }
        if posted.is_ok() {
            out.publish();
        }
        posted
    }

    fn record_error(&mut self, mkey: usize) -> Step {
        let mkey = self.mkey(mkey)?;
        let fault = SignatureFault {
            mkey: mkey.key().index(),
            syndrome: SignatureErrorCqe::SYNDROME_GUARD,
            sig_type: SignatureErrorCqe::TYPE_BLOCK,
            domain: SignatureErrorCqe::DOMAIN_MEMORY,
            expected: 0,
            actual: 0,
            offset: 0,
        };
        mkey.record(&fault);
        Ok(())
    }

    fn set_key(&mut self, mkey: usize, key: u32) -> Step {
        let mkey = self.mkey(mkey)?;
        if mkey.key().index() != Key::from_raw(key).index() {
            return inexpressible("another mkey index");
        }
        mkey.set_tag(Key::from_raw(key).tag()).map_err(|error| Refusal::Post(error.into()))
    }

    fn apply(&mut self, out: &mut Out<'_, '_, '_>, op: &Op) -> Step {
        match op {
            Op::Abort => Ok(()),
            Op::Wr { wr_id, send_flags } => {
                self.wr = Some(Wr::new(*wr_id, send_flags));
                Ok(())
            }
            Op::MkeyConfigure { mkey, num_setters, conf_flags, conf_flags_raw, comp_mask } => {
                none(&[*conf_flags_raw, *comp_mask])?;
                let resets = conf_flags.iter().any(|flag| flag == "reset_sig_attr");
                self.open_config(out, *mkey, *num_setters, resets)
            }
            Op::SetAccess { access } => self.set_access(out, access),
            Op::SetLayoutList { sges } => self.set_layout(out, Ok(list(sges))),
            Op::SetLayoutInterleaved { repeat_count, entries } => {
                self.set_layout(out, interleaved(*repeat_count, entries))
            }
            Op::SetSigBlock { mem, wire, flags, check_mask, copy_mask, flags_raw, comp_mask } => {
                let copy_mask = flags.iter().any(|flag| flag == "copy_mask").then_some(*copy_mask);
                let signature = none(&[*flags_raw, *comp_mask])
                    .and_then(|()| signature(mem, wire, *check_mask, copy_mask));
                self.setter(out, |open| once(&mut open.signature, signature, "second signature setter"))
            }
            Op::SetCrypto { standard_raw, data_unit_size_raw, order_raw, comp_mask, .. } => {
                let crypto = none(&[*standard_raw, *data_unit_size_raw, *order_raw, *comp_mask])
                    .and_then(|()| crypto(op));
                self.setter(out, |open| once(&mut open.crypto, crypto, "second crypto setter"))
            }
            Op::MrList { mkey, access, sges } => {
                self.open_config(out, *mkey, 2, false)?;
                self.set_access(out, access)?;
                self.set_layout(out, Ok(list(sges)))
            }
            Op::MrInterleaved { mkey, access, repeat_count, entries } => {
                self.open_config(out, *mkey, 2, false)?;
                self.set_access(out, access)?;
                self.set_layout(out, interleaved(*repeat_count, entries))
            }
            Op::Send
            | Op::SendImm { .. }
            | Op::SendInv { .. }
            | Op::RdmaWrite { .. }
            | Op::RdmaWriteImm { .. }
            | Op::RdmaRead { .. } => {
                if self.open.is_some() {
                    return inexpressible(rules::UNFINISHED);
                }
                self.begun = Some(op.clone());
                Ok(())
            }
            Op::LocalInv { rkey } => {
                let mut request = Request::Invalidate(Key::from_raw(*rkey));
                request.perform(self.request(out)?, Objects::none()).map_err(Refusal::Post)
            }
            Op::SetSge(sge) => self.post_data(out, Data::Sges(sge_list(std::slice::from_ref(sge)))),
            Op::SetSgeList { sges } => self.post_data(out, Data::Sges(sge_list(sges))),
            Op::SetInline { data } => self.post_data(out, Data::Inline(data.0.clone())),
            Op::SigErrorCqe { mkey } => self.record_error(*mkey),
            Op::SetLkey { mkey, lkey } => self.set_key(*mkey, *lkey),
            Op::PostSend { opcode, wr_id, send_flags, sges, rkey, raddr, imm, inv_rkey } => {
                self.wr = Some(Wr::new(*wr_id, send_flags));
                let rkey = rkey.or(*inv_rkey).unwrap_or_default();
                let (raddr, imm) = (raddr.unwrap_or_default(), imm.unwrap_or_default());
                let op = match opcode.as_str() {
                    "send" => Op::Send,
                    "send_imm" => Op::SendImm { imm },
                    "send_inv" => Op::SendInv { rkey },
                    "rdma_write" => Op::RdmaWrite { rkey, raddr },
                    "rdma_write_imm" => Op::RdmaWriteImm { rkey, raddr, imm },
                    "rdma_read" => Op::RdmaRead { rkey, raddr },
                    "local_inv" => return self.apply(out, &Op::LocalInv { rkey }),
                    _ => return inexpressible("legacy opcode"),
                };
                self.apply(out, &op)?;
                self.post_data(out, Data::Sges(sge_list(sges)))
            }
            Op::Start | Op::Complete | Op::Cancel { .. } => inexpressible("chain within a chain"),
        }
    }

    fn mkey(&mut self, index: usize) -> Result<&mut Mkey, Refusal> {
        self.mkeys.get_mut(index).ok_or(Refusal::Inexpressible("mkey that is not there"))
    }

    fn request<'p, 'r>(&self, out: &'p mut Out<'_, 'r, '_>) -> Result<SendRequest<'p, 'r>, Refusal> {
        if self.open.is_some() {
            return inexpressible(rules::UNFINISHED);
        }
        let Some(wr) = &self.wr else { return inexpressible("request without flags") };
        Ok(wr.flags.apply(out.request(wr.id)))
    }

    fn open_config(&mut self, out: &mut Out<'_, '_, '_>, mkey: usize, setters: usize, resets: bool) -> Step {
        if self.open.is_some() {
            return inexpressible(rules::UNFINISHED);
        }
        if !self.wr.as_ref().is_some_and(|wr| wr.inline) {
            return inexpressible("configuration that is not inline");
        }
        let (access, layout, signature, crypto) = (None, None, None, None);
        self.open =
            Some(OpenConfig { mkey, setters_to_come: setters, access, layout, signature, resets, crypto });
        self.post_config_if_complete(out)
    }

    fn setter(&mut self, out: &mut Out<'_, '_, '_>, set: impl FnOnce(&mut OpenConfig) -> Step) -> Step {
        let Some(open) = &mut self.open else { return inexpressible("setter without a configuration") };
        set(open)?;
        open.setters_to_come -= 1;
        self.post_config_if_complete(out)
    }

    fn set_access(&mut self, out: &mut Out<'_, '_, '_>, names: &[String]) -> Step {
        self.setter(out, |open| once(&mut open.access, access(names), "second access setter"))
    }

    fn set_layout(&mut self, out: &mut Out<'_, '_, '_>, layout: Result<OwnedLayout, Refusal>) -> Step {
        self.setter(out, |open| {
            let is_empty = matches!(&open.layout, Some(OwnedLayout::List(entries)) if entries.is_empty());
            let twice = if is_empty { rules::SECOND_LAYOUT } else { "second layout setter" };
            once(&mut open.layout, layout, twice)
        })
    }

    fn post_config_if_complete(&mut self, out: &mut Out<'_, '_, '_>) -> Step {
        if self.open.as_ref().is_none_or(|open| open.setters_to_come > 0) {
            return Ok(());
        }
        let Some(open) = self.open.take() else { return Ok(()) };
        let layout = open.layout.unwrap_or(OwnedLayout::Unchanged);
        let kept = if open.resets { SignatureChange::Reset } else { SignatureChange::Keep };
        let signature = open.signature.map_or(kept, SignatureChange::Set);
        let config = MkeyConfig { access: open.access, signature, crypto: open.crypto };
        let mut mkey = self.mkey(open.mkey)?.clone();
        let before = mkey.clone();
        let request = self.request(out)?;
        let prepared = self
            .way
            .prepare_with_any_data_unit(mkey.kind(), &config)
            .map_err(|error| Refusal::Post(error.into()))?;
        // Both mkey and request have room for this number of entries. libmlx5 accepts an interleaved layout
        // of this length, because it does not count the layout's header. The library refuses the layout.
        let max_entries = self.octowords.min(self.specs[open.mkey].num_desc.into());
        let interleaved_to_the_brim =
            matches!(&layout, OwnedLayout::Interleaved(_, entries) if entries.len() == max_entries);
        let asked = Asked {
            entries: spans(&layout),
            interleaved_to_the_brim,
            length: mapped(&layout).unwrap_or(before.length()),
            signature_kept: signature == SignatureChange::Keep,
            crypto_kept: open.crypto.is_none(),
            bsf_in_force: before.signature().is_some() || before.crypto().is_some(),
        };
        let objects =
            Objects { mkeys: std::slice::from_mut(&mut mkey), windows: &mut [], prepared: &[prepared] };
        let result = Request::Configure(0, 0, layout).perform(request, objects);
        if result.is_err() {
            assert_eq!(mkey, before, "a refused configuration must leave the mkey as it was");
        }
        self.configured += usize::from(result.is_ok());
        self.mkeys[open.mkey] = mkey;
        result.map_err(|error| Refusal::Configure { error, asked })
    }

    fn post_data(&mut self, out: &mut Out<'_, '_, '_>, data: Data) -> Step {
        let Some(begun) = self.begun.take() else { return inexpressible("payload without a request") };
        let request = self.request(out)?;
        let lengths = match &data {
            Data::Sges(sges) => sges.iter().map(|sge| sge.length).collect(),
            Data::Inline(_) => Vec::new(),
        };
        let mut posted = match (begun, data) {
            (Op::Send, data) => Request::Send(data),
            (Op::SendImm { imm }, data) => Request::SendImm(imm, data),
            (Op::SendInv { rkey }, data) => Request::SendInvalidate(Key::from_raw(rkey), data),
            (Op::RdmaWrite { rkey, raddr }, data) => Request::Write(remote(rkey, raddr), data),
            (Op::RdmaWriteImm { rkey, raddr, imm }, data) => {
                Request::WriteImm(remote(rkey, raddr), imm, data)
            }
            (Op::RdmaRead { rkey, raddr }, Data::Sges(sges)) => Request::Read(remote(rkey, raddr), sges),
            (Op::RdmaRead { .. }, Data::Inline(_)) => return inexpressible(rules::INLINE_READ),
            (other, _) => unreachable!("{other:?} has no data"),
        };
        posted.perform(request, Objects::none()).map_err(|error| Refusal::Transfer { error, lengths })
    }
}

fn remote(rkey: u32, Int(address): Int) -> Remote {
    Remote { address, rkey: Key::from_raw(rkey) }
}

/// Converts data segments. Segments of length 0 are left out: verbs allows and ignores them, the library
/// refuses them.
fn sge_list(specs: &[SgeSpec]) -> Vec<Sge> {
    let sge =
        |spec: &SgeSpec| Sge { address: spec.addr.0, length: spec.length, lkey: Key::from_raw(spec.lkey) };
    specs.iter().filter(|spec| spec.length > 0).map(sge).collect()
}

fn list(specs: &[SgeSpec]) -> OwnedLayout {
    let entry = |spec: &SgeSpec| KlmEntry {
        address: spec.addr.0,
        length: spec.length,
        key: Key::from_raw(spec.lkey),
    };
    OwnedLayout::List(specs.iter().map(entry).collect())
}

fn interleaved(repeat: u32, specs: &[InterleavedSpec]) -> Result<OwnedLayout, Refusal> {
    let entry = |spec: &InterleavedSpec| {
        let stride = u64::from(spec.bytes_count) + u64::from(spec.bytes_skip);
        let (Ok(bytes), Ok(skip)) = (spec.bytes_count.try_into(), spec.bytes_skip.try_into()) else {
            return Err(Refusal::Stride { stride });
        };
        Ok(InterleavedEntry { address: spec.addr.0, bytes, skip, key: Key::from_raw(spec.lkey) })
    };
    let entries = specs.iter().map(entry).collect::<Result<_, _>>()?;
    Ok(OwnedLayout::Interleaved(repeat, entries))
}

fn access(names: &[String]) -> Result<Access, Refusal> {
    names.iter().try_fold(Access::NONE, |rights, name| {
        Ok(rights
            | match name.as_str() {
                "local_write" => Access::LOCAL_WRITE,
                "remote_read" => Access::REMOTE_READ,
                "remote_write" => Access::REMOTE_WRITE,
                "remote_atomic" => Access::REMOTE_ATOMIC,
                _ => return inexpressible("access flag that an mkey does not have"),
            })
    })
}

fn signature(
    memory: &Option<DomainSpec>,
    wire: &Option<DomainSpec>,
    check_mask: u8,
    copy_mask: Option<u8>,
) -> Result<BlockSignature, Refusal> {
    let memory = memory.as_ref().map(domain).transpose()?;
    let wire = wire.as_ref().map(domain).transpose()?;
    let Some(signature) = block_signature(memory, wire) else {
        return inexpressible("signature of no domain");
    };
    with_masks(signature, check_mask, copy_mask)
        .map_err(|error| Refusal::CopyMask { error, memory_only: wire.is_none() })
}

fn domain(spec: &DomainSpec) -> Result<Domain, Refusal> {
    none(&[spec.comp_mask, spec.flags_raw])?;
    let Some(block_size) = spec.block_size.and_then(BlockSize::from_bytes) else {
        return inexpressible("block size");
    };
    let crc_seed = |ones: u64| match spec.seed.unwrap_or_default().0 {
        0 => Ok(Seed::Zeros),
        seed if seed == ones => Ok(Seed::Ones),
        _ => inexpressible("seed other than 0 and all ones"),
    };
    let signature = match spec.kind.as_str() {
        "crc32" => Signature::Crc32(crc_seed(u64::from(u32::MAX))?),
        "crc32c" => Signature::Crc32c(crc_seed(u64::from(u32::MAX))?),
        "crc64_xp10" => Signature::Crc64Xp10(crc_seed(u64::MAX)?),
        "t10dif" => Signature::T10Dif(t10dif(spec)?),
        _ => return inexpressible("signature type"),
    };
    Ok(Domain { signature, block_size })
}

fn t10dif(spec: &DomainSpec) -> Result<T10Dif, Refusal> {
    let flag = |name: &str| spec.flags.iter().flatten().any(|flag| flag == name);
    Ok(T10Dif {
        guard: match spec.bg_type.as_deref() {
            Some("crc") => Guard::Crc,
            Some("csum") => Guard::IpChecksum,
            _ => return inexpressible("guard type"),
        },
        seed: match spec.bg.unwrap_or_default() {
            0 => Seed::Zeros,
            0xffff => Seed::Ones,
            _ => return inexpressible("seed other than 0 and all ones"),
        },
        app_tag: spec.app_tag.unwrap_or_default(),
        ref_tag: spec.ref_tag.unwrap_or_default(),
        ref_remap: flag("ref_remap"),
        escape: match (flag("app_escape"), flag("app_ref_escape")) {
            (_, true) => Escape::AppAndRefTag,
            (true, false) => Escape::AppTag,
            (false, false) => Escape::Never,
        },
    })
}

fn crypto(op: &Op) -> Result<Crypto, Refusal> {
    let Op::SetCrypto { encrypt_on_tx, order, data_unit_size, tweak, dek_id, keytag, .. } = op else {
        return inexpressible("crypto setter");
    };
    let Some(data_unit) = data_unit_size.and_then(BlockSize::from_bytes) else {
        return inexpressible("data unit size");
    };
    let (Ok(tweak), Ok(keytag)) = (tweak.0.as_slice().try_into(), keytag.0.as_slice().try_into()) else {
        return inexpressible("tweak or keytag of another length");
    };
    Ok(Crypto {
        direction: if *encrypt_on_tx { Direction::EncryptOnTx } else { Direction::DecryptOnTx },
        order: match order.as_str() {
            "signature_after_crypto_on_tx" => SignatureOrder::AfterCryptoOnTx,
            "signature_before_crypto_on_tx" => SignatureOrder::BeforeCryptoOnTx,
            _ => return inexpressible("signature order"),
        },
        data_unit,
        tweak: Tweak::from_le_bytes(tweak),
        dek: DekId::from_low_bits(*dek_id),
        keytag: Keytag(keytag),
    })
}

fn cancel(queue: &mut Queue<'_, '_>, id: u64, hw_counter: u32, chain: &Chain) -> Step {
    // The recorded block number has more bits than the number of a block in the ring. libmlx5 uses only the
    // low bits.
    let before = chain.result.pi_before.0 as u32;
    let mask = queue.free_blocks() + queue.producer().wrapping_sub(before) - 1;
    let counter = before.wrapping_add(hw_counter.wrapping_sub(before) & mask);
    let cancelled = queue.cancel(id, counter as u16).map_err(Refusal::Post)?;
    if Some(cancelled) != chain.result.cancel_ret {
        return inexpressible("another number of requests cancelled");
    }
    Ok(())
}
