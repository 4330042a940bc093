//! Steps that post requests. They compare the result of each request with the model, and the bytes in the
//! ring, as the library's `inspect` module decodes them, with the request.

use super::lists;
use super::mkey::{Change, MkeyModel, Wanted};
use super::window::{self, WindowModel};
use super::world::{Prepared, World};
use crate::input::Input;
use crate::values;
use hil_scenarios::request::{Data, Entries, Flags, Objects, OwnedLayout, Request};
use hil_scenarios::way::Poster;
use hil_tests::model::QueueModel;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::inspect::{Body, DataSegmentView, QueueKind, SegmentKind, Umr, WorkRequest};
use mlx5_mkey::mkey::{BlockSignature, MkeyKind};
use mlx5_mkey::queue::{RequestKind, SendQueueConfig};
use mlx5_mkey::types::{Key, PsvIndex, Seed};
use mlx5_mkey::wire::ctrl::{FmCeSe, Opcode};
use mlx5_mkey::wire::data::DataSegment;
use mlx5_mkey::wire::psv::SetPsvSegment;
use mlx5_mkey::wqe::{Local, MaskedAtomic, Payload, Remote, Sge};

/// The models of mkeys, windows and prepared configurations, on which the result of a request depends.
#[derive(Clone, Copy)]
struct Known<'a> {
    mkeys: &'a [MkeyModel],
    windows: &'a [WindowModel],
    prepared: &'a [Prepared],
}

/// The parts of a request, each with its kind and its blocks, and the change that the request makes to an
/// mkey.
type Plan = (Vec<(RequestKind, u32)>, Option<Change>);

/// A posted request, with the model's state at that time.
struct Posted {
    op: Request,
    flags: Flags,
    begin: u64,
    /// Whether the request gets the small fence (`MLX5_FENCE_MODE_INITIATOR_SMALL`) unless it asks for
    /// another fence.
    fence: bool,
    parts: Vec<(RequestKind, u32)>,
    change: Option<Change>,
    /// The key of the mkey or window before the request.
    key: Key,
    /// For a list that grows: the mapped bytes after the request, and the number of entries before the
    /// request.
    grown: Option<(u64, u32)>,
}

fn data(input: &mut Input<'_>) -> Data {
    if input.one_in(3) {
        let length = if input.one_in(4) { input.below(1100) } else { input.below(80) };
        Data::Inline(input.bytes(length as usize))
    } else {
        Data::Sges(values::sges(input))
    }
}

fn place(input: &mut Input<'_>) -> Local {
    Local { address: input.any(), lkey: values::key(input) }
}

/// Makes a place for the old value of an atomic. The unused length keeps the meaning of older inputs.
fn old(input: &mut Input<'_>) -> Local {
    let Sge { address, lkey, .. } = values::sge(input);
    Local { address, lkey }
}

/// Makes a raw request: a random control segment, followed by as many bytes as its size field says, by fewer,
/// or by more.
fn raw(input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = input.bytes(16);
    let size = bytes.get(7).map_or(0, |octowords| usize::from(*octowords) * 16);
    let length = if input.one_in(4) { input.below(1100) as usize } else { size };
    bytes.resize(length, input.any());
    bytes
}

fn masked(input: &mut Input<'_>) -> MaskedAtomic {
    match input.below(4) {
        0 => MaskedAtomic::CompareSwap32 {
            compare: input.any(),
            compare_mask: input.any(),
            swap: input.any(),
            swap_mask: input.any(),
        },
        1 => MaskedAtomic::CompareSwap64 {
            compare: input.any(),
            compare_mask: input.any(),
            swap: input.any(),
            swap_mask: input.any(),
        },
        2 => MaskedAtomic::FetchAdd32 { add: input.any(), boundary: input.any() },
        _ => MaskedAtomic::FetchAdd64 { add: input.any(), boundary: input.any() },
    }
}

/// Returns whether an atomic is a compare-and-swap (and not a fetch-and-add).
const fn swaps(atomic: &MaskedAtomic) -> bool {
    matches!(atomic, MaskedAtomic::CompareSwap32 { .. } | MaskedAtomic::CompareSwap64 { .. })
}

/// Returns the operands of an atomic in the order of its fields.
fn operands(atomic: &MaskedAtomic) -> Vec<u64> {
    match *atomic {
        MaskedAtomic::CompareSwap32 { compare, compare_mask, swap, swap_mask } => {
            [swap, compare, swap_mask, compare_mask].map(u64::from).into()
        }
        MaskedAtomic::CompareSwap64 { compare, compare_mask, swap, swap_mask } => {
            vec![swap, compare, swap_mask, compare_mask]
        }
        MaskedAtomic::FetchAdd32 { add, boundary } => [add, boundary].map(u64::from).into(),
        MaskedAtomic::FetchAdd64 { add, boundary } => vec![add, boundary],
    }
}

fn choose(input: &mut Input<'_>, known: Known<'_>, all: bool) -> Request {
    if all && input.one_in(2) {
        return choose_new(input, known);
    }
    let (mkeys, prepared) = (known.mkeys.len(), known.prepared.len());
    let mkey = |input: &mut Input<'_>| input.below(mkeys as u32) as usize;
    match input.below(20) {
        0 => match input.below(3) {
            0 => Request::Nop,
            1 => Request::Raw(raw(input)),
            _ => Request::Memcpy(place(input), place(input), input.any()),
        },
        1 => Request::Send(data(input)),
        2 => Request::SendImm(input.any(), data(input)),
        3 => Request::SendInvalidate(values::key(input), data(input)),
        4..7 => Request::Write(values::remote(input), data(input)),
        7 => Request::WriteImm(values::remote(input), input.any(), data(input)),
        8 => Request::Read(values::remote(input), values::sges(input)),
        9 => Request::CompareSwap(values::remote(input), input.any(), input.any(), old(input)),
        10 if input.one_in(2) => Request::Masked(values::remote(input), masked(input), old(input)),
        10 => Request::FetchAdd(values::remote(input), input.any(), old(input)),
        11 => Request::Invalidate(values::key(input)),
        12 => Request::InvalidateMkey(mkey(input)),
        _ if prepared == 0 => Request::Nop,
        _ => {
            let with = input.below(prepared as u32) as usize;
            Request::Configure(mkey(input), with, values::layout(input))
        }
    }
}

fn choose_new(input: &mut Input<'_>, known: Known<'_>) -> Request {
    let which = input.below(16);
    let (mut mkey, window) = (input.pick(&[1, 2, 1, 2, 1, 2, 1, 0]), input.below(2) as usize);
    // Requests that change a list mostly choose an mkey with a list.
    let listed: Vec<_> =
        (0..known.mkeys.len()).filter(|mkey| known.mkeys[*mkey].has_list().is_ok()).collect();
    if matches!(which, 4..8 | 12..) && !listed.is_empty() && !input.one_in(8) {
        mkey = input.pick(&listed);
    }
    let kind = known.mkeys[mkey].kind();
    let configure = |input: &mut Input<'_>| {
        let fitting = |with: &usize| known.prepared[*with].kind == kind;
        let fitting: Vec<_> = (0..known.prepared.len()).filter(fitting).collect();
        let with = if input.one_in(8) || fitting.is_empty() {
            input.below(known.prepared.len() as u32) as usize
        } else {
            input.pick(&fitting)
        };
        Request::ConfigureByPointer(mkey, with, lists::choose(input, &kind))
    };
    let first = |input: &mut Input<'_>| match input.below(4) {
        0 => values::edge(input) as u32,
        _ => input.pick(&[0, 4, 8, 1, 0xfffc, 0x1_0000]),
    };
    match which {
        0..2 => {
            let (range, access) = (values::klm(input), values::access(input));
            let start = if input.one_in(4) { values::edge(input) } else { range.address };
            Request::BindWindow(window, range, access, start)
        }
        2 => Request::InvalidateWindow(window),
        3 => Request::SetPsv(PsvIndex::from_low_bits(input.any()), input.pick(&[Seed::Zeros, Seed::Ones])),
        4..8 | 12.. if listed.is_empty() && !input.one_in(8) => configure(input),
        4..6 => {
            let first = first(input);
            let count = if input.one_in(8) { input.below(70) } else { input.below(6) };
            Request::Replace(mkey, first, (0..count).map(|_| values::klm(input)).collect())
        }
        6..8 => Request::ReplaceByPointer(mkey, first(input), lists::choose(input, &kind)),
        8..12 => configure(input),
        _ => Request::AppendByPointer(mkey, lists::choose(input, &kind)),
    }
}

/// Returns the expected result of a request.
fn plan(
    request: &Request,
    config: &SendQueueConfig,
    model: &QueueModel,
    known: Known<'_>,
) -> Result<Plan, PostError> {
    let configure = |mkey: usize, with: usize, layout| -> Result<Plan, PostError> {
        let Prepared { kind, config: wanted } = &known.prepared[with];
        let change = known.mkeys[mkey].plan(kind, wanted, layout, config.max_inline_data)?;
        let last = change.psvs.len();
        let kind = |at| match at == last {
            true => RequestKind::MkeyConfigure,
            false => RequestKind::MkeyConfigurePart,
        };
        let blocks = |at| if at == 0 { change.umr_blocks } else { 1 };
        Ok(((0..=last).map(|at| (kind(at), blocks(at))).collect(), Some(change)))
    };
    // A request for an empty list contains no pointer and fills 2 blocks instead of 3.
    let by_pointer = |count| (vec![(RequestKind::MkeyConfigure, if count == 0 { 2 } else { 3 })], None);
    if let Request::ConfigureByPointer(.., list)
    | Request::ReplaceByPointer(.., list)
    | Request::AppendByPointer(_, list) = request
        && let Entries::Klm(entries) = &list.entries
    {
        lists::check_lengths(entries)?;
    }
    let (parts, change) = match request {
        Request::Configure(mkey, with, layout) => configure(*mkey, *with, Wanted::InRequest(layout))?,
        Request::ConfigureByPointer(mkey, with, list) => configure(*mkey, *with, Wanted::Registered(list))?,
        Request::Replace(mkey, first, entries) => {
            let count = entries.len() as u32;
            known.mkeys[*mkey].replace(*first, count, None)?;
            let max = (config.max_inline_data + 4) / 64 * 4;
            if count > max {
                return Err(ConfigError::TooManyEntries { max }.into());
            }
            lists::check_lengths(entries)?;
            (vec![(RequestKind::MkeyConfigure, 2 + count.div_ceil(4))], None)
        }
        Request::ReplaceByPointer(mkey, first, list) => {
            known.mkeys[*mkey].replace(*first, lists::count(list), lists::entry_size(list))?;
            by_pointer(lists::count(list))
        }
        Request::AppendByPointer(mkey, list) => {
            known.mkeys[*mkey].append(list)?;
            by_pointer(lists::count(list))
        }
        Request::BindWindow(window, range, _, start) => {
            known.windows[*window].plan(range, *start)?;
            (vec![(RequestKind::BindWindow, 3)], None)
        }
        Request::SetPsv(..) => (vec![(RequestKind::SetPsv, 1)], None),
        Request::InvalidateWindow(window) if !known.windows[*window].bound => {
            return Err(ConfigError::WindowNotBound.into());
        }
        Request::Invalidate(_) | Request::InvalidateMkey(_) | Request::InvalidateWindow(_) => {
            (vec![(RequestKind::LocalInvalidate, 2)], None)
        }
        Request::Raw(bytes) => (vec![(RequestKind::Raw, raw_octowords(bytes)?.div_ceil(4))], None),
        Request::Memcpy(.., bytes) => {
            let most = config.memcpy.ok_or(PostError::MemcpyUnsupported)?.log_max_bytes.min(31);
            match bytes {
                0 => return Err(PostError::MemcpyEmpty),
                bytes if *bytes > 1 << most => {
                    let mebibytes = bytes.div_ceil(1 << 20) as u16;
                    return Err(PostError::MemcpyTooLong { mebibytes, log_max: most });
                }
                _ => (vec![(RequestKind::Memcpy, 1)], None),
            }
        }
        _ => {
            let (kind, octowords) = kind_and_octowords(request);
            check_data(request, config)?;
            (vec![(kind, octowords.div_ceil(4))], None)
        }
    };
    let blocks = parts.iter().map(|(_, blocks)| blocks).sum();
    model.room(parts.len() as u32, blocks)?;
    Ok((parts, change))
}

/// Returns whether the request after this one gets the small fence (`MLX5_FENCE_MODE_INITIATOR_SMALL`).
fn needs_fence_after(request: &Request) -> bool {
    let (opcode, _) = code(request, Key::from_raw(0));
    matches!(opcode, Opcode::UMR | Opcode::SET_PSV)
}

/// Returns kind and number of octowords of a request that moves data, or of a NOP.
fn kind_and_octowords(request: &Request) -> (RequestKind, u32) {
    let (kind, head) = match request {
        Request::Nop => (RequestKind::Nop, 1),
        Request::Send(_) | Request::SendImm(..) | Request::SendInvalidate(..) => (RequestKind::Send, 1),
        Request::Write(..) | Request::WriteImm(..) => (RequestKind::RdmaWrite, 2),
        Request::Read(..) => (RequestKind::RdmaRead, 2),
        Request::Masked(_, MaskedAtomic::CompareSwap64 { .. }, _) => (RequestKind::CompareSwap, 5),
        Request::CompareSwap(..) => (RequestKind::CompareSwap, 4),
        Request::Masked(_, atomic, _) if swaps(atomic) => (RequestKind::CompareSwap, 4),
        Request::FetchAdd(..) | Request::Masked(..) => (RequestKind::FetchAdd, 4),
        other => panic!("{other:?} moves no data"),
    };
    let data = match request.data() {
        Some(Payload::Sges(sges)) => sges.len() as u32,
        Some(Payload::Inline(bytes)) if !bytes.is_empty() => (bytes.len() as u32 + 4).div_ceil(16),
        _ => 0,
    };
    (kind, head + data)
}

/// Returns the error for data that exceed the limits of this queue.
fn check_data(request: &Request, config: &SendQueueConfig) -> Result<(), PostError> {
    let sges = match request.data() {
        Some(Payload::Sges(sges)) => sges,
        Some(Payload::Inline(bytes)) => {
            let (length, max) = (bytes.len() as u32, config.max_inline_data);
            let error = PostError::InlineTooLong { length: length as u16, max: max as u16 };
            return if length > max { Err(error) } else { Ok(()) };
        }
        _ => return Ok(()),
    };
    let max = config.max_sge.clamp(1, 60);
    if sges.len() > max {
        return Err(PostError::TooManySges { sges: sges.len() as u16, max: max as u16 });
    }
    for (index, sge) in (0..).zip(sges) {
        if sge.length == 0 {
            return Err(PostError::SgeEmpty { index });
        }
        if sge.length > 0x7fff_ffff {
            return Err(PostError::SgeTooLong { index, mebibytes: (sge.length >> 20) as u16 });
        }
    }
    Ok(())
}

fn code(request: &Request, key: Key) -> (Opcode, u32) {
    match request {
        Request::Nop => (Opcode::NOP, 0),
        Request::Send(_) => (Opcode::SEND, 0),
        Request::SendImm(imm, _) => (Opcode::SEND_IMM, *imm),
        Request::SendInvalidate(key, _) => (Opcode::SEND_INVAL, key.get()),
        Request::Write(..) => (Opcode::RDMA_WRITE, 0),
        Request::WriteImm(_, imm, _) => (Opcode::RDMA_WRITE_IMM, *imm),
        Request::Read(..) => (Opcode::RDMA_READ, 0),
        Request::CompareSwap(..) => (Opcode::ATOMIC_CS, 0),
        Request::FetchAdd(..) => (Opcode::ATOMIC_FA, 0),
        Request::Masked(_, atomic, _) if swaps(atomic) => (Opcode::ATOMIC_MASKED_CS, 0),
        Request::Masked(..) => (Opcode::ATOMIC_MASKED_FA, 0),
        Request::Invalidate(key) => (Opcode::UMR, key.get()),
        Request::SetPsv(..) => (Opcode::SET_PSV, 0),
        Request::InvalidateMkey(_)
        | Request::InvalidateWindow(_)
        | Request::BindWindow(..)
        | Request::Configure(..)
        | Request::ConfigureByPointer(..)
        | Request::Replace(..)
        | Request::ReplaceByPointer(..)
        | Request::AppendByPointer(..) => (Opcode::UMR, key.get()),
        Request::Memcpy(..) => (Opcode::MMO, 0),
        Request::Raw(bytes) => {
            let imm = bytes[12..16].try_into().expect("four bytes");
            (Opcode(bytes[3]), u32::from_be_bytes(imm))
        }
    }
}

/// Records a posted request. Returns the key that its mkey or window had before the request. If the request
/// appended entries to a registered list, also returns the mkey's new length and the index of the first
/// appended entry.
fn note(
    request: &Request,
    change: Option<&Change>,
    mkeys: &mut [MkeyModel],
    windows: &mut [WindowModel],
) -> (Key, Option<(u64, u32)>) {
    let mut grown = None;
    let key = match request {
        Request::BindWindow(window, ..) => {
            let key = windows[*window].key;
            windows[*window].bind();
            key
        }
        // The window stays bound in the model, because the request may fail.
        Request::InvalidateWindow(window) => windows[*window].key,
        Request::InvalidateMkey(mkey)
        | Request::Configure(mkey, ..)
        | Request::ConfigureByPointer(mkey, ..)
        | Request::Replace(mkey, ..)
        | Request::ReplaceByPointer(mkey, ..)
        | Request::AppendByPointer(mkey, _) => {
            let mkey = &mut mkeys[*mkey];
            match (request, change) {
                (Request::InvalidateMkey(_), _) => mkey.invalidated(),
                (_, Some(change)) => mkey.apply(change),
                (Request::Replace(_, first, entries), None) => mkey.replaced(*first, entries.len() as u32),
                (Request::ReplaceByPointer(_, first, list), None) => {
                    mkey.replaced(*first, lists::count(list));
                }
                (Request::AppendByPointer(_, list), None) if lists::count(list) > 0 => {
                    let first = mkey.append(list).expect("it was posted");
                    mkey.appended(first, list);
                    grown = Some((mkey.length(), first));
                }
                _ => {}
            }
            mkey.key
        }
        _ => Key::from_raw(0),
    };
    (key, grown)
}

impl World<'_> {
    /// Posts one request, or several in a batch.
    pub(super) fn post(&mut self, input: &mut Input<'_>) {
        let batch: bool = input.any();
        let count = if batch { input.below(5) } else { 1 };
        let mut posted = Vec::new();
        let Self {
            queue, config, model, mkeys, known, prepared, known_prepared, fence, next_id, all, ..
        } = self;
        let Self { windows, known_windows, .. } = self;
        let mut poster = if batch { Poster::Batch(queue.batch()) } else { Poster::Queue(queue) };
        for _ in 0..count {
            let before = Known { mkeys: known, windows: known_windows, prepared: known_prepared };
            let mut op = choose(input, before, *all);
            let bits: u8 = input.any();
            let flags = Flags { fenced: bits & 4 != 0, signaled: bits & 1 != 0, solicited: bits & 8 != 0 };
            // Some requests get the same id as the request before.
            *next_id += u64::from(bits >> 4 != 0);
            let plan = plan(&op, config, model, before);
            let request = flags.apply(poster.request(*next_id));
            let done = op.perform(request, Objects { mkeys, windows, prepared });
            assert_eq!(done, plan.as_ref().map(drop).map_err(|error| *error), "{op:?}");
            let Ok((parts, change)) = plan else { continue };
            let (key, grown) = note(&op, change.as_ref(), known, known_windows);
            let begin = model.producer();
            model.post(*next_id, &parts);
            let fenced = std::mem::replace(fence, needs_fence_after(&op));
            posted.push(Posted { op, flags, begin, fence: fenced, parts, change, key, grown });
        }
        if batch {
            poster.publish();
        } else {
            drop(poster);
        }
        posted.iter().for_each(|posted| self.verify(posted));
        if batch && self.model.producer() != self.model.published() {
            self.model.publish();
            let last = self.model.works().back().map(|work| work.begin);
            self.check_published(last.expect("something is posted"));
        }
    }

    /// Asserts that the blocks in the ring hold the request.
    fn verify(&mut self, posted: &Posted) {
        let mut begin = posted.begin;
        for (at, (_, count)) in posted.parts.iter().enumerate() {
            let mut bytes = Vec::new();
            for block in begin..begin + u64::from(*count) {
                let slot = self.slot(block);
                self.blocks[slot] = self.queue.block(block as u32);
                bytes.extend(self.blocks[slot].0);
            }
            let request = WorkRequest::parse(&bytes).expect("a block").on_queue(QueueKind::Connected);
            self.verify_control(posted, at, begin, &request);
            assert_eq!(request.blocks(), *count as usize);
            match at.checked_sub(1) {
                None => self.verify_body(posted, &request),
                Some(psv) => {
                    let Body::SetPsv(SetPsvSegment { psv_index, .. }) = request.body() else {
                        panic!("{posted:?}")
                    };
                    assert_eq!(
                        Some(&psv_index.get()),
                        posted.change.as_ref().map(|change| &change.psvs[psv])
                    );
                }
            }
            begin += u64::from(*count);
        }
    }

    fn verify_control(&self, posted: &Posted, at: usize, begin: u64, request: &WorkRequest<'_>) {
        let Posted { op, flags, fence, parts, key, .. } = posted;
        let control = request.control();
        assert_eq!(control.opcode_word().wqe_index(), begin as u16);
        assert_eq!(control.qpn_ds_word().qpn(), self.config.qpn.get());
        let (opcode, imm) = if at == 0 { code(op, *key) } else { (Opcode::SET_PSV, 0) };
        assert_eq!((request.opcode(), control.imm.get()), (opcode, imm));
        let is = control.flags();
        let fence = match () {
            () if flags.fenced => FmCeSe::FM_FENCE,
            () if *fence || at > 0 => FmCeSe::FM_SMALL,
            () => FmCeSe::FM_NONE,
        };
        // The UMR before SET_PSVs gets no completion of its own. The last SET_PSV completes the whole
        // request.
        let last = at + 1 == parts.len();
        let completes = last && flags.signaled || self.config.signal_all && (last || at > 0);
        let completes = if completes { FmCeSe::CE_ALWAYS } else { 0 };
        let mut wanted = (fence, completes, flags.solicited);
        if let Request::Raw(bytes) = op {
            let own = FmCeSe::from_bits(bytes[11]);
            let fence = if own.fm() == FmCeSe::FM_NONE { fence } else { own.fm() };
            wanted = (fence, completes.max(own.ce()), flags.solicited || own.solicited());
        }
        assert_eq!((is.fm(), is.ce(), is.solicited()), wanted, "{posted:?}");
    }

    fn verify_body(&self, posted: &Posted, request: &WorkRequest<'_>) {
        match (&posted.op, request.body()) {
            (Request::Raw(bytes), _) => {
                let octowords = raw_octowords(bytes).expect("it was posted");
                assert_eq!(request.bytes()[16..], bytes[16..octowords as usize * 16]);
            }
            (Request::Memcpy(to, from, bytes), Body::Memcpy(copy)) => {
                let of = |segment: &DataSegment| Local {
                    address: segment.address.get(),
                    lkey: Key::from_raw(segment.lkey.get()),
                };
                assert_eq!((of(copy.target()), of(copy.source())), (*to, *from));
                assert_eq!(copy.length(), u64::from(*bytes));
            }
            (Request::Nop, Body::Nop) => {}
            (Request::Configure(mkey, with, layout), Body::Configure(umr)) => {
                let change = posted.change.as_ref().expect("a configuration changes an mkey");
                self.verify_umr(&umr, *mkey, &self.known_prepared[*with], layout, change);
            }
            (
                Request::Invalidate(_) | Request::InvalidateMkey(_) | Request::InvalidateWindow(_),
                Body::Invalidate(_),
            ) => {}
            (Request::SetPsv(psv, seed), Body::SetPsv(segment)) => {
                let start = if *seed == Seed::Ones { 0xffff_ffff_0000_0000 } else { 0 };
                let said = (segment.psv_index.get(), segment.transient_signature.get());
                assert_eq!((said, segment.syndrome.get()), ((psv.get(), start), 0));
            }
            (Request::BindWindow(_, range, access, start), Body::Configure(umr)) => {
                window::verify(&umr, posted.key, range, *access, *start);
            }
            (Request::Replace(_, first, entries), Body::Configure(umr)) => {
                lists::verify_part(&umr, *first, None);
                lists::verify_entries(&umr, entries);
            }
            (Request::ReplaceByPointer(_, first, list), Body::Configure(umr)) => {
                lists::verify_part(&umr, *first, None);
                if lists::count(list) > 0 {
                    lists::verify(list, &umr);
                }
            }
            (Request::AppendByPointer(_, list), Body::Configure(umr)) => {
                let Some((length, first)) = posted.grown else {
                    return assert_eq!((lists::count(list), umr.mask().into_bits()), (0, 0));
                };
                lists::verify_part(&umr, first, Some(length));
                lists::verify(list, &umr);
            }
            (Request::ConfigureByPointer(mkey, with, list), Body::Configure(umr)) => {
                let change = posted.change.as_ref().expect("a configuration changes an mkey");
                if lists::count(list) == 0 {
                    let nothing = OwnedLayout::List(Vec::new());
                    return self.verify_umr(&umr, *mkey, &self.known_prepared[*with], &nothing, change);
                }
                let Prepared { kind, config } = &self.known_prepared[*with];
                assert_eq!((umr.access(), umr.length()), (config.access, Some(change.length)));
                assert_eq!(umr.error_count(), change.count.map(|count| count & 1 != 0));
                assert_eq!(u32::from(umr.control().bsf_octowords.get()), change.bsfs * 4);
                lists::verify(list, &umr);
                lists::with_bsfs(list, request.bytes(), change.bsfs as usize, |umr| {
                    verify_bsfs(&umr, &self.known[*mkey], kind, change);
                });
            }
            (op, Body::DataPath(transfer)) => {
                let remote = transfer.remote().map(|remote| (remote.address.get(), remote.rkey.get()));
                let atomic = transfer.atomic().map(|atomic| (atomic.swap_add.get(), atomic.compare.get()));
                let (sges, inline) = segments(transfer.data_segments().map(|(_, segment)| segment));
                let wanted = wanted(op);
                assert_eq!((remote, atomic, sges, inline), wanted, "{op:?}");
                if let Request::Masked(_, atomic, _) = op {
                    assert_eq!(transfer.atomic_bytes(), Some(atomic.bytes().into()));
                    let fields = request.segments().filter(|segment| MASKED.contains(&segment.kind));
                    let values = fields.flat_map(|segment| segment.fields()).map(|field| field.value());
                    assert_eq!(values.collect::<Vec<_>>(), operands(atomic));
                }
            }
            (_, body) => panic!("{posted:?} {body:?}"),
        }
    }

    fn verify_umr(
        &self,
        umr: &Umr<'_>,
        mkey: usize,
        prepared: &Prepared,
        layout: &OwnedLayout,
        change: &Change,
    ) {
        assert_eq!(umr.access(), prepared.config.access);
        assert_eq!(umr.error_count(), change.count.map(|count| count & 1 != 0));
        match (layout, umr.layout()) {
            (OwnedLayout::Unchanged, _) => assert_eq!(umr.length(), None),
            (OwnedLayout::List(entries), _) => {
                assert_eq!(umr.length(), Some(change.length));
                lists::verify_entries(umr, entries);
            }
            (OwnedLayout::Interleaved(_, entries), Some(view)) => {
                assert_eq!(umr.length(), Some(change.length));
                assert!(view.interleaved_entries().eq(entries.iter().copied().map(Ok)));
            }
            (_, None) => panic!("no layout"),
        }
        verify_bsfs(umr, &self.known[mkey], &prepared.kind, change);
    }
}

/// Asserts that a request has the BSFs of the configuration, or no BSFs if the configuration writes none.
fn verify_bsfs(umr: &Umr<'_>, known: &MkeyModel, kind: &MkeyKind, change: &Change) {
    if !change.writes_bsfs {
        assert!(umr.signature_bsf().is_none() && umr.crypto_bsf().is_none());
        return;
    }
    if let Some(attributes) = known.attributes.signature {
        let signature = change.whole.signature.signature();
        // The bytes cannot show whether a default copy mask was given explicitly.
        let parts = |it: BlockSignature| {
            (it.memory_domain(), it.wire_domain(), it.check_mask(), it.effective_copy_mask())
        };
        assert_eq!(umr.signature().map(|it| it.map(parts)), Ok(signature.copied().map(parts)));
        let (memory, wire) = (attributes.memory_psv, attributes.wire_psv);
        if let (Some(signature), Some(psvs)) = (signature, umr.psvs()) {
            assert!(signature.memory_domain().is_none() || psvs.0 == memory);
            assert!(signature.wire_domain().is_none() || psvs.1 == wire);
        }
    }
    if let Some(engine) = kind.crypto {
        assert_eq!(umr.crypto(engine), Ok(change.whole.crypto));
    }
}

/// Returns the number of octowords of a raw request, or the error for wrong bytes.
fn raw_octowords(bytes: &[u8]) -> Result<u32, PostError> {
    let have = bytes.len() as u16;
    match bytes.get(..16) {
        None => Err(PostError::RawTooShort { needed: 16, have }),
        Some(control) if !(1..64).contains(&control[7]) => Err(PostError::RawSize { octowords: control[7] }),
        Some(control) => {
            let needed = u16::from(control[7]) * 16;
            if have < needed { Err(PostError::RawTooShort { needed, have }) } else { Ok(control[7].into()) }
        }
    }
}

/// The kinds of segments with the operands of masked atomics.
const MASKED: [SegmentKind; 4] = [
    SegmentKind::MaskedSwap32,
    SegmentKind::MaskedSwap64,
    SegmentKind::MaskedAdd32,
    SegmentKind::MaskedAdd64,
];

/// The fields of a transfer: remote address and key, operands, data segments, inline data.
type Transfer = (Option<(u64, u32)>, Option<(u64, u64)>, Vec<Sge>, Vec<u8>);

fn wanted(op: &Request) -> Transfer {
    let at = |remote: &Remote| Some((remote.address, remote.rkey.get()));
    let sge = |old: &Local, length| vec![Sge { address: old.address, length, lkey: old.lkey }];
    let remote = match op {
        Request::Write(remote, ..) | Request::WriteImm(remote, ..) | Request::Read(remote, _) => at(remote),
        Request::Masked(remote, atomic, old) => {
            return (at(remote), None, sge(old, atomic.bytes()), Vec::new());
        }
        Request::CompareSwap(remote, compare, swap, old) => {
            return (at(remote), Some((*swap, *compare)), sge(old, 8), Vec::new());
        }
        Request::FetchAdd(remote, add, old) => {
            return (at(remote), Some((*add, 0)), sge(old, 8), Vec::new());
        }
        _ => None,
    };
    match op.data() {
        Some(Payload::Sges(sges)) => (remote, None, sges.to_vec(), Vec::new()),
        Some(Payload::Inline(bytes)) => (remote, None, Vec::new(), bytes.to_vec()),
        _ => panic!("{op:?} moves no data"),
    }
}

/// Collects the data segments of a transfer.
fn segments<'a>(views: impl Iterator<Item = DataSegmentView<'a>>) -> (Vec<Sge>, Vec<u8>) {
    let (mut sges, mut inline) = (Vec::new(), Vec::new());
    for view in views {
        match view {
            DataSegmentView::Memory(segment) => sges.push(Sge {
                address: segment.address.get(),
                length: segment.byte_count.get(),
                lkey: Key::from_raw(segment.lkey.get()),
            }),
            DataSegmentView::Inline { bytes, .. } => inline.extend(bytes),
        }
    }
    (sges, inline)
}

impl std::fmt::Debug for Posted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?} at block {}", self.op, self.flags, self.begin)
    }
}
