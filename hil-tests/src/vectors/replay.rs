//! Posts the recorded inputs of a vector with the library, and compares the written bytes with the bytes of
//! libmlx5 (the reference).

use super::blue_flame::{Page, Register, Written};
use super::format::{
    Chain, Context, DomainSpec, Hex, InterleavedSpec, MkeyAfter, MkeySpec, Op, Qp, Ret, SgeSpec, Vector,
};
use super::manner::{Limits, Replay, Verdict};
use super::rules::{self, Asked, Refusal};
use crate::request::{Data, Flags, Objects, OwnedLayout, Request};
use crate::way::Poster;
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

/// The number of blocks of the largest ring that a replay supports.
const MAX_BLOCKS: usize = 4096;

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

/// The result of replaying a vector.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The result of each chain.
    pub verdicts: Vec<Verdict>,
    /// Number of configurations of mkeys in chains whose bytes are equal.
    pub configured: usize,
    /// Numbers of mkeys whose length and error count were compared, counted once per chain: with the recorded
    /// values after a posted chain, and with the values before a refused chain.
    pub mkeys: [usize; 2],
    /// Numbers of BlueFlame doorbells of the library: with 8 bytes, like libmlx5's; with a whole request,
    /// like libmlx5's; with a whole request where libmlx5 wrote 8 bytes, because the queue does not prefer
    /// BlueFlame.
    pub blue_flame: [usize; 3],
}

/// Replays all chains of a vector.
pub fn replay(vector: &Vector, how: Replay) -> Outcome {
    let mut state = State {
        mkeys: vector.mkeys.iter().map(|spec| create_mkey(spec, &vector.ctx)).collect(),
        max_entries: vector.mkeys.iter().map(|spec| spec.num_desc.into()).collect(),
        known: vector.mkeys.iter().map(Known::created).collect(),
        fence: vector.qp.fm_cache,
        outstanding: vector.qp.head.wrapping_sub(vector.qp.tail),
        half: vector.qp.bf.offset,
    };
    let mut outcome = Outcome::default();
    let mut stopped = None;
    for chain in &vector.chains {
        let verdict = match stopped {
            Some(reason) => Verdict::NotCompared(reason),
            None => judge(&vector.qp, chain, how, &mut state, &mut outcome),
        };
        // After a failed chain, libmlx5's mkeys keep a part of the chain's changes, and the library's mkeys
        // have none. Later chains are therefore not compared.
        if stopped.is_none() && verdict != Verdict::Matched {
            stopped = Some("behind a chain that was refused or aborted");
        }
        outcome.verdicts.push(verdict);
    }
    outcome
}

/// The state of mkeys and queue that a chain leaves to the next one.
#[derive(Clone)]
struct State {
    mkeys: Vec<Mkey>,
    /// The number of entries that each mkey has room for.
    max_entries: Vec<usize>,
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

/// The result of posting a chain with the library, which may have refused it.
struct Posted {
    outcome: Step,
    ring: Vec<Wqebb>,
    record: DoorbellRecord,
    after: After,
    configured: usize,
}

fn judge(qp: &Qp, chain: &Chain, how: Replay, state: &mut State, outcome: &mut Outcome) -> Verdict {
    let expected = match &chain.result.ret {
        Ret::Aborted(_) => return Verdict::NotCompared("aborted by the user"),
        Ret::Errno(errno) => *errno,
    };
    if qp.wqe_cnt > MAX_BLOCKS {
        return Verdict::NotCompared("ring of more than 4096 blocks");
    }
    let before = state.clone();
    let Some(posted) = post(qp, chain, how, state) else {
        return Verdict::NotCompared("queue limits that no device has");
    };
    match (expected, &posted.outcome) {
        (0, Err(refusal)) => match rules::deliberate(refusal, chain.result.bbs.len() > qp.wqe_cnt) {
            Some(reason) => match unchanged(chain, &posted, state, &before, &mut outcome.mkeys[1]) {
                Ok(()) => Verdict::NotCompared(reason),
                Err(what) => Verdict::Differs(what),
            },
            None => Verdict::Differs(format!("the reference posts it, the library refuses: {refusal:?}")),
        },
        // The library may report a full queue only if libmlx5 also does, even if the chain has other errors.
        (errno, Err(refusal)) if rules::no_room(refusal) && errno != ENOMEM => Verdict::Differs(format!(
            "the reference refuses it with errno {errno}, the library has no room: {refusal:?}"
        )),
        (_, Err(_)) => match unchanged(chain, &posted, state, &before, &mut outcome.mkeys[1]) {
            Ok(()) => Verdict::Refused,
            Err(what) => Verdict::Differs(what),
        },
        (0, Ok(())) => {
            state.fence = posted.after.fence;
            state.outstanding = posted.after.outstanding;
            match compare(qp, chain, &posted, state, outcome) {
                Ok(()) => {
                    state.known = chain.result.mkeys_after.iter().map(Known::recorded).collect();
                    outcome.configured += posted.configured;
                    Verdict::Matched
                }
                Err(what) => Verdict::Differs(what),
            }
        }
        (ENOMEM, Ok(())) if how.limits == Limits::Lifted && is_limited(qp, chain, how, &before) => {
            Verdict::NotCompared(rules::LIFTED)
        }
        (errno, Ok(())) => {
            Verdict::Differs(format!("the reference refuses it with errno {errno}, the library posts it"))
        }
    }
}

/// Returns whether the library refuses the chain if its queue has the limits of libmlx5's queue.
fn is_limited(qp: &Qp, chain: &Chain, how: Replay, before: &State) -> bool {
    let recorded = post(qp, chain, Replay { limits: Limits::Recorded, ..how }, &mut before.clone());
    recorded.is_some_and(|posted| posted.outcome.is_err_and(|refusal| rules::is_limit(&refusal)))
}

/// Posts a chain to a new queue of the library. Returns `None` if the library does not accept the recorded
/// properties of the queue.
fn post(qp: &Qp, chain: &Chain, how: Replay, state: &mut State) -> Option<Posted> {
    let mut ring = vec![Wqebb([PATTERN; 64]); qp.wqe_cnt];
    let mut slots = vec![SendSlot::EMPTY; qp.wqe_cnt];
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
        how,
        octowords: (max_inline_data as usize + 4) / 16,
        max_entries: &state.max_entries,
        mkeys: &mut state.mkeys,
        configured: 0,
        wr: None,
        open: None,
        data: None,
    };
    let outcome = driver.run(&mut queue, chain);
    let configured = driver.configured;
    let mut after = After {
        producer: queue.producer(),
        fence: queue.next_fence() << 5,
        outstanding: state.outstanding.wrapping_add(queue.outstanding()),
        doorbell: queue.doorbell().control,
        register: None,
    };
    after.register =
        recorder.register.as_mut().map(|register| (page.compare(qp, chain), page.next(register)));
    Some(Posted { outcome, ring, record, after, configured })
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

/// The state of the library's queue after a chain.
struct After {
    producer: u32,
    fence: u8,
    outstanding: u32,
    doorbell: Option<[u8; 8]>,
    /// If there is a BlueFlame register: the result of comparing its bytes with the recorded ones, and the
    /// offset of the half that the next doorbell writes.
    register: Option<(Result<Written, String>, Option<usize>)>,
}

fn compare(
    qp: &Qp,
    chain: &Chain,
    posted: &Posted,
    state: &mut State,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let Posted { ring, record, after, .. } = posted;
    let mkeys = &state.mkeys;
    let result = &chain.result;
    let equal = |what: &str, ours: u64, theirs: u64| {
        if ours == theirs { Ok(()) } else { Err(format!("{what} {ours:#x}, the reference has {theirs:#x}")) }
    };
    equal("producer counter", u64::from(after.producer), result.pi_after.0)?;
    equal("fence state", u64::from(after.fence), u64::from(result.fm_cache_after))?;
    equal(
        "requests posted",
        u64::from(after.outstanding),
        u64::from(result.sq_head_after.wrapping_sub(qp.tail)),
    )?;
    let blocks = after.producer.wrapping_sub(result.pi_before.0 as u32) as usize;
    equal("blocks", blocks as u64, result.bbs.len() as u64)?;
    for (index, block) in ring.iter().enumerate() {
        if block.0 != [PATTERN; 64] && !result.bbs.iter().any(|theirs| theirs.bb == index) {
            return Err(format!("block {index} written, the reference leaves it alone"));
        }
    }
    for block in &result.bbs {
        let Hex(theirs) = &block.hex;
        let (Some(Wqebb(ours)), 64) = (ring.get(block.bb), theirs.len()) else {
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
    let [_, send] = record.bytes();
    match &result.dbrec {
        Some(Hex(theirs)) if theirs[..] != send => {
            return Err(format!("doorbell record {send:02x?}, the reference has {theirs:02x?}"));
        }
        None if send != [0; 4] => return Err("doorbell record written".into()),
        _ => {}
    }
    match (&result.doorbell, after.doorbell) {
        (None, Some(_)) => return Err("doorbell rung".into()),
        (Some(_), None) => return Err("doorbell not rung".into()),
        // A doorbell that wrote a whole request (BlueFlame) is compared further below.
        (Some(spec), Some(ours)) if spec.kind == "ctrl8" => {
            let theirs = spec.hex.as_ref().map(|Hex(bytes)| bytes.as_slice());
            if theirs != Some(&ours[..]) {
                return Err(format!("doorbell {ours:02x?}, the reference has {theirs:02x?}"));
            }
        }
        (Some(_), Some(_)) if after.register.is_none() => {
            return Err("the reference has written a whole request, the library has no such register".into());
        }
        _ => {}
    }
    if let Some((written, half)) = &after.register {
        let half = half.ok_or("the doorbell writes nothing")?;
        equal("half of the register that is next", half as u64, result.bf_offset_after as u64)?;
        state.half = half;
        outcome.blue_flame[written.clone()? as usize] += 1;
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
        outcome.mkeys[0] += 1;
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
    layout: OwnedLayout,
    signature: SignatureChange,
    signature_set: bool,
    crypto: Option<Crypto>,
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

/// The data of a request whose data setter is still to come.
const NO_DATA: Data = Data::Sges(Vec::new());

#[derive(Clone)]
struct Wr {
    id: u64,
    flags: Vec<String>,
}

impl Wr {
    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|name| name == flag)
    }
}

struct Driver<'d> {
    how: Replay,
    /// The number of octowords of a request that layout and BSFs may fill.
    octowords: usize,
    /// The number of entries that each mkey has room for.
    max_entries: &'d [usize],
    mkeys: &'d mut [Mkey],
    configured: usize,
    wr: Option<Wr>,
    open: Option<OpenConfig>,
    /// A request whose data setter is still to come.
    data: Option<Request>,
}

type Step = Result<(), Refusal>;

/// Returns the refusal of a recorded input for which the library has no types.
fn inexpressible<T>(what: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Inexpressible(what))
}

fn none(extra: &Option<super::format::Int>, what: &'static str) -> Step {
    if extra.is_some_and(|value| value.0 != 0) { inexpressible(what) } else { Ok(()) }
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
        let mut out = self.how.way.open(queue);
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
        mkey.set_tag(Key::from_raw(key).tag()).map_err(Refusal::Config)
    }

    fn apply(&mut self, out: &mut Out<'_, '_, '_>, op: &Op) -> Step {
        match op {
            Op::Abort => Ok(()),
            Op::Wr { wr_id, send_flags } => {
                self.wr = Some(Wr { id: wr_id.0, flags: send_flags.clone() });
                Ok(())
            }
            Op::MkeyConfigure { mkey, num_setters, conf_flags, conf_flags_raw, comp_mask } => {
                none(conf_flags_raw, "unknown configuration flag")?;
                none(comp_mask, "comp_mask")?;
                let reset = conf_flags.iter().any(|flag| flag == "reset_sig_attr");
                self.open_config(out, *mkey, *num_setters, reset)
            }
            Op::SetAccess { access } => self.set_access(out, access),
            Op::SetLayoutList { sges } => self.set_layout(out, Ok(list(sges))),
            Op::SetLayoutInterleaved { repeat_count, entries } => {
                self.set_layout(out, interleaved(*repeat_count, entries))
            }
            Op::SetSigBlock { mem, wire, flags, check_mask, copy_mask, flags_raw, comp_mask } => {
                let copy_mask = flags.iter().any(|flag| flag == "copy_mask").then_some(*copy_mask);
                let signature = none(flags_raw, "unknown signature flag")
                    .and_then(|()| none(comp_mask, "comp_mask"))
                    .and_then(|()| block_signature(mem, wire, *check_mask, copy_mask));
                self.setter(out, |open| {
                    if open.signature_set {
                        return inexpressible("second signature setter");
                    }
                    open.signature = SignatureChange::Set(signature?);
                    open.signature_set = true;
                    Ok(())
                })
            }
            Op::SetCrypto { standard_raw, data_unit_size_raw, order_raw, comp_mask, .. } => {
                let crypto = none(standard_raw, "crypto standard")
                    .and_then(|()| none(data_unit_size_raw, "data unit size"))
                    .and_then(|()| none(order_raw, "signature order"))
                    .and_then(|()| none(comp_mask, "comp_mask"))
                    .and_then(|()| crypto(op));
                self.setter(out, |open| {
                    if open.crypto.is_some() {
                        return inexpressible("second crypto setter");
                    }
                    open.crypto = Some(crypto?);
                    Ok(())
                })
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
            Op::Send => self.begin(Request::Send(NO_DATA)),
            Op::SendImm { imm } => self.begin(Request::SendImm(*imm, NO_DATA)),
            Op::SendInv { rkey } => self.begin(Request::SendInvalidate(Key::from_raw(*rkey), NO_DATA)),
            Op::RdmaWrite { rkey, raddr } => self.begin(Request::Write(remote(*rkey, raddr.0), NO_DATA)),
            Op::RdmaWriteImm { rkey, raddr, imm } => {
                self.begin(Request::WriteImm(remote(*rkey, raddr.0), *imm, NO_DATA))
            }
            Op::RdmaRead { rkey, raddr } => self.begin(Request::Read(remote(*rkey, raddr.0), Vec::new())),
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
                self.wr = Some(Wr { id: wr_id.0, flags: send_flags.clone() });
                let key = rkey.or(*inv_rkey).unwrap_or_default();
                let remote = remote(key, raddr.unwrap_or_default().0);
                let imm = imm.unwrap_or_default();
                self.begin(match opcode.as_str() {
                    "send" => Request::Send(NO_DATA),
                    "send_imm" => Request::SendImm(imm, NO_DATA),
                    "send_inv" => Request::SendInvalidate(Key::from_raw(key), NO_DATA),
                    "rdma_write" => Request::Write(remote, NO_DATA),
                    "rdma_write_imm" => Request::WriteImm(remote, imm, NO_DATA),
                    "rdma_read" => Request::Read(remote, Vec::new()),
                    "local_inv" => {
                        let mut request = Request::Invalidate(Key::from_raw(key));
                        return request.perform(self.request(out)?, Objects::none()).map_err(Refusal::Post);
                    }
                    _ => return inexpressible("legacy opcode"),
                })?;
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
        let (fenced, signaled) = (wr.has("fence"), wr.has("signaled"));
        let flags = Flags { fenced, signaled, solicited: wr.has("solicited") };
        Ok(flags.apply(out.request(wr.id)))
    }

    fn open_config(&mut self, out: &mut Out<'_, '_, '_>, mkey: usize, setters: usize, reset: bool) -> Step {
        if self.open.is_some() {
            return inexpressible(rules::UNFINISHED);
        }
        if !self.wr.as_ref().is_some_and(|wr| wr.has("inline")) {
            return inexpressible("configuration that is not inline");
        }
        self.open = Some(OpenConfig {
            mkey,
            setters_to_come: setters,
            access: None,
            layout: OwnedLayout::Unchanged,
            signature: if reset { SignatureChange::Reset } else { SignatureChange::Keep },
            signature_set: false,
            crypto: None,
        });
        self.post_config_if_complete(out)
    }

    fn setter(&mut self, out: &mut Out<'_, '_, '_>, set: impl FnOnce(&mut OpenConfig) -> Step) -> Step {
        let Some(open) = &mut self.open else { return inexpressible("setter without a configuration") };
        set(open)?;
        open.setters_to_come -= 1;
        self.post_config_if_complete(out)
    }

    fn set_access(&mut self, out: &mut Out<'_, '_, '_>, names: &[String]) -> Step {
        let access = access(names);
        self.setter(out, |open| {
            if open.access.is_some() {
                return inexpressible("second access setter");
            }
            open.access = Some(access?);
            Ok(())
        })
    }

    fn set_layout(&mut self, out: &mut Out<'_, '_, '_>, layout: Result<OwnedLayout, Refusal>) -> Step {
        self.setter(out, |open| {
            match &open.layout {
                OwnedLayout::List(entries) if entries.is_empty() => {
                    return inexpressible(rules::SECOND_LAYOUT);
                }
                OwnedLayout::List(_) | OwnedLayout::Interleaved(..) => {
                    return inexpressible("second layout setter");
                }
                OwnedLayout::Unchanged => {}
            }
            open.layout = layout?;
            Ok(())
        })
    }

    fn post_config_if_complete(&mut self, out: &mut Out<'_, '_, '_>) -> Step {
        if self.open.as_ref().is_none_or(|open| open.setters_to_come > 0) {
            return Ok(());
        }
        let Some(open) = self.open.take() else { return Ok(()) };
        let mut mkey = self.mkey(open.mkey)?.clone();
        let config = MkeyConfig { access: open.access, signature: open.signature, crypto: open.crypto };
        let before = mkey.clone();
        let max_entries = self.max_entries(open.mkey)?;
        let request = self.request(out)?;
        let prepared =
            self.how.way.prepare_with_any_data_unit(mkey.kind(), &config).map_err(Refusal::Config)?;
        // libmlx5 accepts an interleaved layout of this length, because it does not count the layout's
        // header. The library refuses the layout.
        let interleaved_to_the_brim = match &open.layout {
            OwnedLayout::Interleaved(_, entries) => entries.len() == max_entries,
            _ => false,
        };
        let asked = Asked {
            entries: spans(&open.layout),
            interleaved_to_the_brim,
            length: mapped(&open.layout).unwrap_or(before.length()),
            signature_kept: open.signature == SignatureChange::Keep,
            crypto_kept: open.crypto.is_none(),
            bsf_in_force: before.signature().is_some() || before.crypto().is_some(),
        };
        let objects =
            Objects { mkeys: std::slice::from_mut(&mut mkey), windows: &mut [], prepared: &[prepared] };
        let result = Request::Configure(0, 0, open.layout).perform(request, objects);
        if result.is_err() {
            assert_eq!(mkey, before, "a refused configuration must leave the mkey as it was");
        }
        self.configured += usize::from(result.is_ok());
        self.mkeys[open.mkey] = mkey;
        result.map_err(|error| Refusal::Configure { error, asked })
    }

    /// Returns the number of entries for which both mkey and request have room.
    fn max_entries(&self, mkey: usize) -> Result<usize, Refusal> {
        let max = self.max_entries.get(mkey).ok_or(Refusal::Inexpressible("mkey that is not there"))?;
        Ok(self.octowords.min(*max))
    }

    fn begin(&mut self, request: Request) -> Step {
        if self.open.is_some() {
            return inexpressible(rules::UNFINISHED);
        }
        self.data = Some(request);
        Ok(())
    }

    fn post_data(&mut self, out: &mut Out<'_, '_, '_>, data: Data) -> Step {
        let Some(mut request) = self.data.take() else { return inexpressible("payload without a request") };
        let begun = self.request(out)?;
        let lengths = match &data {
            Data::Sges(sges) => sges.iter().map(|sge| sge.length).collect(),
            Data::Inline(_) => Vec::new(),
        };
        match (&mut request, data) {
            (Request::Read(_, sges), Data::Sges(given)) => *sges = given,
            (Request::Read(..), Data::Inline(_)) => return inexpressible(rules::INLINE_READ),
            (
                Request::Send(data)
                | Request::SendImm(_, data)
                | Request::SendInvalidate(_, data)
                | Request::Write(_, data)
                | Request::WriteImm(_, _, data),
                given,
            ) => *data = given,
            (other, _) => unreachable!("{other:?} has no data"),
        }
        request.perform(begun, Objects::none()).map_err(|error| Refusal::Transfer { error, lengths })
    }
}

fn remote(rkey: u32, address: u64) -> Remote {
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

fn block_signature(
    memory: &Option<DomainSpec>,
    wire: &Option<DomainSpec>,
    check_mask: u8,
    copy_mask: Option<u8>,
) -> Result<BlockSignature, Refusal> {
    let memory = memory.as_ref().map(domain).transpose()?;
    let wire = wire.as_ref().map(domain).transpose()?;
    let signature = match (memory, wire) {
        (Some(memory), Some(wire)) => BlockSignature::both(memory, wire),
        (Some(memory), None) => BlockSignature::memory(memory),
        (None, Some(wire)) => BlockSignature::wire(wire),
        (None, None) => return inexpressible("signature of no domain"),
    };
    let signature = signature.with_check_mask(check_mask);
    match copy_mask {
        Some(mask) => signature
            .with_copy_mask(mask)
            .map_err(|error| Refusal::CopyMask { error, memory_only: wire.is_none() }),
        None => Ok(signature),
    }
}

fn domain(spec: &DomainSpec) -> Result<Domain, Refusal> {
    none(&spec.comp_mask, "comp_mask")?;
    none(&spec.flags_raw, "unknown T10-DIF flag")?;
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
