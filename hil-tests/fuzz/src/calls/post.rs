//! Posting: what must come of it, and what the ring must hold then, read by the library's other half.

use super::lists::{self, OwnList};
use super::mkey::{Change, MkeyModel, Wanted};
use super::window::{self, WindowModel};
use super::{Prepared, World};
use crate::input::Input;
use crate::values::{self, OwnLayout};
use hil_scenarios::way::Poster;
use hil_tests::model::QueueModel;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::inspect::{Body, DataSegmentView, Umr, WorkRequest};
use mlx5_mkey::mkey::{Access, BlockSignature, KlmEntry, Layout, MemoryWindow, Mkey, MkeyKind};
use mlx5_mkey::queue::{RequestKind, SendQueueConfig, SendRequest};
use mlx5_mkey::types::{Key, PsvIndex, Seed};
use mlx5_mkey::wire::ctrl::{FmCeSe, Opcode};
use mlx5_mkey::wire::data::DataSegment;
use mlx5_mkey::wire::psv::SetPsvSegment;
use mlx5_mkey::wqe::{Local, Payload, Remote, Sge};

/// What a request carries.
#[derive(Clone, Debug)]
enum Data {
    Sges(Vec<Sge>),
    Inline(Vec<u8>),
}

impl Data {
    fn of(&self) -> Payload<'_> {
        match self {
            Self::Sges(sges) => Payload::Sges(sges),
            Self::Inline(bytes) => Payload::Inline(bytes),
        }
    }

    fn octowords(&self) -> u32 {
        match self {
            Self::Sges(sges) => sges.len() as u32,
            Self::Inline(bytes) if bytes.is_empty() => 0,
            Self::Inline(bytes) => (bytes.len() as u32 + 4).div_ceil(16),
        }
    }
}

/// A request. Mkeys and prepared configurations by their numbers.
#[derive(Clone, Debug)]
enum Op {
    Nop,
    Send(Data),
    SendImm(u32, Data),
    SendInvalidate(Key, Data),
    Write(Remote, Data),
    WriteImm(Remote, u32, Data),
    Read(Remote, Vec<Sge>),
    CompareSwap(Remote, u64, u64, Sge),
    FetchAdd(Remote, u64, Sge),
    Invalidate(Key),
    InvalidateMkey(usize),
    Configure(usize, usize, OwnLayout),
    /// To, from, bytes.
    Memcpy(Local, Local, u32),
    /// What the caller built.
    Raw(Vec<u8>),
    /// A window by its number, where its space begins.
    BindWindow(usize, KlmEntry, Access, u64),
    InvalidateWindow(usize),
    SetPsv(PsvIndex, Seed),
    ConfigureByPointer(usize, usize, OwnList),
    /// An mkey, the first entry.
    Replace(usize, u32, Vec<KlmEntry>),
    ReplaceByPointer(usize, u32, OwnList),
    Append(usize, OwnList),
}

/// What requests change, as it is known.
#[derive(Clone, Copy)]
struct Known<'a> {
    mkeys: &'a [MkeyModel],
    windows: &'a [WindowModel],
    prepared: &'a [Prepared],
}

/// What requests change.
struct Objects<'a> {
    mkeys: &'a mut [Mkey],
    windows: &'a mut [MemoryWindow],
    prepared: &'a [Prepared],
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
struct Flags {
    fenced: bool,
    signaled: bool,
    solicited: bool,
}

/// The parts of a request, and what it changes of an mkey.
type Plan = (Vec<(RequestKind, u32)>, Option<Change>);

/// A request that was posted.
struct Posted {
    op: Op,
    flags: Flags,
    begin: u64,
    /// It has the small fence unless it asks for another.
    fence: bool,
    parts: Vec<(RequestKind, u32)>,
    change: Option<Change>,
    /// The key of its mkey or window before it.
    key: Key,
    /// What an mkey maps after it, and the entries that it had before, of a list that grows.
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

/// A control segment, and as many bytes behind it as it says, or fewer, or more.
fn raw(input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = input.bytes(16);
    let size = bytes.get(7).map_or(0, |octowords| usize::from(*octowords) * 16);
    let length = if input.one_in(4) { input.below(1100) as usize } else { size };
    bytes.resize(length, input.any());
    bytes
}

impl Op {
    fn choose(input: &mut Input<'_>, known: Known<'_>, all: bool) -> Self {
        if all && input.one_in(2) {
            return Self::choose_new(input, known);
        }
        let (mkeys, prepared) = (known.mkeys.len(), known.prepared.len());
        let mkey = |input: &mut Input<'_>| input.below(mkeys as u32) as usize;
        match input.below(20) {
            0 => match input.below(3) {
                0 => Self::Nop,
                1 => Self::Raw(raw(input)),
                _ => Self::Memcpy(place(input), place(input), input.any()),
            },
            1 => Self::Send(data(input)),
            2 => Self::SendImm(input.any(), data(input)),
            3 => Self::SendInvalidate(values::key(input), data(input)),
            4..7 => Self::Write(values::remote(input), data(input)),
            7 => Self::WriteImm(values::remote(input), input.any(), data(input)),
            8 => Self::Read(values::remote(input), values::sges(input)),
            9 => Self::CompareSwap(values::remote(input), input.any(), input.any(), values::sge(input)),
            10 => Self::FetchAdd(values::remote(input), input.any(), values::sge(input)),
            11 => Self::Invalidate(values::key(input)),
            12 => Self::InvalidateMkey(mkey(input)),
            _ if prepared == 0 => Self::Nop,
            _ => {
                let with = input.below(prepared as u32) as usize;
                Self::Configure(mkey(input), with, values::layout(input))
            }
        }
    }

    fn choose_new(input: &mut Input<'_>, known: Known<'_>) -> Self {
        let which = input.below(16);
        let (mut mkey, window) = (input.pick(&[1, 2, 1, 2, 1, 2, 1, 0]), input.below(2) as usize);
        // What changes a list mostly finds one.
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
            Self::ConfigureByPointer(mkey, with, OwnList::choose(input, &kind))
        };
        let first = |input: &mut Input<'_>| match input.below(4) {
            0 => values::edge(input) as u32,
            _ => input.pick(&[0, 4, 8, 1, 0xfffc, 0x1_0000]),
        };
        match which {
            0..2 => {
                let (range, access) = (values::klm(input), values::access(input));
                let start = if input.one_in(4) { values::edge(input) } else { range.address };
                Self::BindWindow(window, range, access, start)
            }
            2 => Self::InvalidateWindow(window),
            3 => Self::SetPsv(PsvIndex::from_low_bits(input.any()), input.pick(&[Seed::Zeros, Seed::Ones])),
            4..8 | 12.. if listed.is_empty() && !input.one_in(8) => configure(input),
            4..6 => {
                let first = first(input);
                let count = if input.one_in(8) { input.below(70) } else { input.below(6) };
                Self::Replace(mkey, first, (0..count).map(|_| values::klm(input)).collect())
            }
            6..8 => Self::ReplaceByPointer(mkey, first(input), OwnList::choose(input, &kind)),
            8..12 => configure(input),
            _ => Self::Append(mkey, OwnList::choose(input, &kind)),
        }
    }

    /// What must come of it.
    fn plan(
        &self,
        config: &SendQueueConfig,
        model: &QueueModel,
        known: Known<'_>,
    ) -> Result<Plan, PostError> {
        let configure = |mkey: usize, with: usize, layout| -> Result<Plan, PostError> {
            let Prepared { kind, config: wanted, .. } = &known.prepared[with];
            let change = known.mkeys[mkey].plan(kind, wanted, layout, config.max_inline_data)?;
            let last = change.psvs.len();
            let kind = |at| match at == last {
                true => RequestKind::MkeyConfigure,
                false => RequestKind::MkeyConfigurePart,
            };
            let blocks = |at| if at == 0 { change.umr_blocks } else { 1 };
            Ok(((0..=last).map(|at| (kind(at), blocks(at))).collect(), Some(change)))
        };
        // An empty list is no pointer.
        let by_pointer = |count| (vec![(RequestKind::MkeyConfigure, if count == 0 { 2 } else { 3 })], None);
        let (parts, change) = match self {
            Self::Configure(mkey, with, layout) => configure(*mkey, *with, Wanted::InRequest(layout))?,
            Self::ConfigureByPointer(mkey, with, list) => configure(*mkey, *with, Wanted::Registered(list))?,
            Self::Replace(mkey, first, entries) => {
                let count = entries.len() as u32;
                known.mkeys[*mkey].replace(*first, count, None)?;
                let max = (config.max_inline_data + 4) / 64 * 4;
                if count > max {
                    return Err(ConfigError::TooManyEntries { max }.into());
                }
                let wrong = |entry: &KlmEntry| entry.length == 0 || entry.length > KlmEntry::MAX_BYTES;
                if let Some(index) = entries.iter().position(wrong) {
                    let length = entries[index].length;
                    return Err(ConfigError::EntryLength { index: index as u16, length }.into());
                }
                (vec![(RequestKind::MkeyConfigure, 2 + count.div_ceil(4))], None)
            }
            Self::ReplaceByPointer(mkey, first, list) => {
                known.mkeys[*mkey].replace(*first, list.count(), list.entry_size())?;
                by_pointer(list.count())
            }
            Self::Append(mkey, list) => {
                known.mkeys[*mkey].append(list)?;
                by_pointer(list.count())
            }
            Self::BindWindow(window, range, _, start) => {
                known.windows[*window].plan(range, *start)?;
                (vec![(RequestKind::BindWindow, 3)], None)
            }
            Self::SetPsv(..) => (vec![(RequestKind::SetPsv, 1)], None),
            Self::Invalidate(_) | Self::InvalidateMkey(_) | Self::InvalidateWindow(_) => {
                (vec![(RequestKind::LocalInvalidate, 2)], None)
            }
            Self::Raw(bytes) => (vec![(RequestKind::Raw, raw_octowords(bytes)?.div_ceil(4))], None),
            Self::Memcpy(.., bytes) => {
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
                let blocks = self.octowords().div_ceil(4);
                self.check_data(config)?;
                (vec![(self.kind(), blocks)], None)
            }
        };
        let blocks = parts.iter().map(|(_, blocks)| blocks).sum();
        model.room(parts.len() as u32, blocks)?;
        Ok((parts, change))
    }

    fn kind(&self) -> RequestKind {
        match self {
            Self::Nop => RequestKind::Nop,
            Self::Send(_) | Self::SendImm(..) | Self::SendInvalidate(..) => RequestKind::Send,
            Self::Write(..) | Self::WriteImm(..) => RequestKind::RdmaWrite,
            Self::Read(..) => RequestKind::RdmaRead,
            Self::CompareSwap(..) => RequestKind::CompareSwap,
            Self::FetchAdd(..) => RequestKind::FetchAdd,
            other => panic!("{other:?} moves no data"),
        }
    }

    /// Whether what follows gets the small fence.
    fn needs_fence_after(&self) -> bool {
        match self {
            Self::Configure(..)
            | Self::ConfigureByPointer(..)
            | Self::Replace(..)
            | Self::ReplaceByPointer(..)
            | Self::Append(..)
            | Self::BindWindow(..)
            | Self::SetPsv(..)
            | Self::Invalidate(_)
            | Self::InvalidateMkey(_)
            | Self::InvalidateWindow(_) => true,
            Self::Raw(bytes) => matches!(bytes[3], 0x20 | 0x25),
            _ => false,
        }
    }

    /// Octowords of a request that moves data, or does nothing.
    fn octowords(&self) -> u32 {
        match self {
            Self::Send(data) | Self::SendImm(_, data) | Self::SendInvalidate(_, data) => 1 + data.octowords(),
            Self::Write(_, data) | Self::WriteImm(_, _, data) => 2 + data.octowords(),
            Self::Read(_, sges) => 2 + sges.len() as u32,
            Self::CompareSwap(..) | Self::FetchAdd(..) => 4,
            _ => 1,
        }
    }

    /// Refuses data that no request of this queue carries.
    fn check_data(&self, config: &SendQueueConfig) -> Result<(), PostError> {
        let sges = match self {
            Self::Send(Data::Sges(sges))
            | Self::SendImm(_, Data::Sges(sges))
            | Self::SendInvalidate(_, Data::Sges(sges))
            | Self::Write(_, Data::Sges(sges))
            | Self::WriteImm(_, _, Data::Sges(sges))
            | Self::Read(_, sges) => sges,
            Self::Send(Data::Inline(bytes))
            | Self::SendImm(_, Data::Inline(bytes))
            | Self::SendInvalidate(_, Data::Inline(bytes))
            | Self::Write(_, Data::Inline(bytes))
            | Self::WriteImm(_, _, Data::Inline(bytes)) => {
                let (length, max) = (bytes.len() as u32, config.max_inline_data);
                let error = PostError::InlineTooLong { length: length as u16, max: max as u16 };
                return if length > max { Err(error) } else { Ok(()) };
            }
            Self::CompareSwap(.., sge) | Self::FetchAdd(.., sge) => std::slice::from_ref(sge),
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

    fn perform(&mut self, request: SendRequest<'_, '_>, objects: Objects<'_>) -> Result<(), PostError> {
        let Objects { mkeys, windows, prepared } = objects;
        match self {
            Self::BindWindow(window, range, access, start) => {
                request.bind_window(&mut windows[*window], *range, *access, *start)
            }
            Self::InvalidateWindow(window) => request.invalidate_window(&mut windows[*window]),
            Self::SetPsv(psv, seed) => request.set_psv(*psv, *seed),
            Self::ConfigureByPointer(mkey, with, list) => list.with(|list| {
                request.configure_mkey_by_pointer(&mut mkeys[*mkey], &prepared[*with].value, list)
            }),
            Self::Replace(mkey, first, entries) => {
                request.replace_entries(&mut mkeys[*mkey], *first, entries)
            }
            Self::ReplaceByPointer(mkey, first, list) => {
                list.with(|list| request.replace_entries_by_pointer(&mut mkeys[*mkey], *first, list))
            }
            Self::Append(mkey, list) => {
                list.with(|list| request.append_entries_by_pointer(&mut mkeys[*mkey], list))
            }
            Self::Nop => request.nop(),
            Self::Send(data) => request.send(data.of()),
            Self::SendImm(imm, data) => request.send_imm(*imm, data.of()),
            Self::SendInvalidate(key, data) => request.send_invalidate(*key, data.of()),
            Self::Write(remote, data) => request.rdma_write(*remote, data.of()),
            Self::WriteImm(remote, imm, data) => request.rdma_write_imm(*remote, *imm, data.of()),
            Self::Read(remote, sges) => request.rdma_read(*remote, sges),
            Self::CompareSwap(remote, compare, swap, sge) => {
                request.compare_swap(*remote, *compare, *swap, sge)
            }
            Self::FetchAdd(remote, add, sge) => request.fetch_add(*remote, *add, sge),
            Self::Invalidate(key) => request.invalidate(*key),
            Self::Memcpy(to, from, bytes) => request.memcpy(*to, *from, *bytes),
            Self::Raw(bytes) => request.raw(bytes),
            Self::InvalidateMkey(mkey) => request.invalidate_mkey(&mut mkeys[*mkey]),
            Self::Configure(mkey, with, layout) => {
                let layout = match layout {
                    OwnLayout::Unchanged => Layout::Unchanged,
                    OwnLayout::List(entries) => Layout::List(entries),
                    OwnLayout::Interleaved(repeat, entries) => {
                        Layout::Interleaved { repeat: *repeat, entries }
                    }
                };
                request.configure_mkey(&mut mkeys[*mkey], &prepared[*with].value, layout)
            }
        }
    }

    /// The opcode, and the last word of the control segment.
    fn code(&self, key: Key) -> (Opcode, u32) {
        match self {
            Self::Nop => (Opcode::NOP, 0),
            Self::Send(_) => (Opcode::SEND, 0),
            Self::SendImm(imm, _) => (Opcode::SEND_IMM, *imm),
            Self::SendInvalidate(key, _) => (Opcode::SEND_INVAL, key.get()),
            Self::Write(..) => (Opcode::RDMA_WRITE, 0),
            Self::WriteImm(_, imm, _) => (Opcode::RDMA_WRITE_IMM, *imm),
            Self::Read(..) => (Opcode::RDMA_READ, 0),
            Self::CompareSwap(..) => (Opcode::ATOMIC_CS, 0),
            Self::FetchAdd(..) => (Opcode::ATOMIC_FA, 0),
            Self::Invalidate(key) => (Opcode::UMR, key.get()),
            Self::SetPsv(..) => (Opcode::SET_PSV, 0),
            Self::InvalidateMkey(_)
            | Self::InvalidateWindow(_)
            | Self::BindWindow(..)
            | Self::Configure(..)
            | Self::ConfigureByPointer(..)
            | Self::Replace(..)
            | Self::ReplaceByPointer(..)
            | Self::Append(..) => (Opcode::UMR, key.get()),
            Self::Memcpy(..) => (Opcode::MMO, 0),
            Self::Raw(bytes) => {
                let imm = bytes[12..16].try_into().expect("four bytes");
                (Opcode(bytes[3]), u32::from_be_bytes(imm))
            }
        }
    }
}

impl Op {
    /// The mkey and the window that it changes, or parts of them.
    const fn of(&self) -> (Option<usize>, Option<usize>) {
        match self {
            Self::InvalidateMkey(mkey)
            | Self::Configure(mkey, ..)
            | Self::ConfigureByPointer(mkey, ..)
            | Self::Replace(mkey, ..)
            | Self::ReplaceByPointer(mkey, ..)
            | Self::Append(mkey, _) => (Some(*mkey), None),
            Self::BindWindow(window, ..) | Self::InvalidateWindow(window) => (None, Some(*window)),
            _ => (None, None),
        }
    }

    /// It was posted. Returns the key that its mkey or window had before, and how a list has grown.
    fn note(
        &self,
        change: Option<&Change>,
        mkeys: &mut [MkeyModel],
        windows: &mut [WindowModel],
    ) -> (Key, Option<(u64, u32)>) {
        let (mkey, window) = self.of();
        if let Some(window) = window.map(|window| &mut windows[window]) {
            let key = window.key;
            match self {
                Self::BindWindow(..) => window.bind(),
                _ => window.bound = false,
            }
            return (key, None);
        }
        let Some(mkey) = mkey.map(|mkey| &mut mkeys[mkey]) else { return (Key::from_raw(0), None) };
        let mut grown = None;
        match (self, change) {
            (Self::InvalidateMkey(_), _) => mkey.invalidated(),
            (_, Some(change)) => mkey.apply(change),
            (Self::Replace(_, first, entries), None) => mkey.replaced(*first, entries.len() as u32),
            (Self::ReplaceByPointer(_, first, list), None) => mkey.replaced(*first, list.count()),
            (Self::Append(_, list), None) if list.count() > 0 => {
                let first = mkey.append(list).expect("it was posted");
                mkey.appended(first, list);
                grown = Some((mkey.length(), first));
            }
            _ => {}
        }
        (mkey.key, grown)
    }
}

impl<const N: usize> World<'_, N> {
    /// Posts a request, or some in a batch.
    pub(super) fn post(&mut self, input: &mut Input<'_>) {
        let batch: bool = input.any();
        let count = if batch { input.below(5) } else { 1 };
        let mut posted = Vec::new();
        let Self { queue, config, model, mkeys, known, prepared, fence, next_id, all, .. } = self;
        let Self { windows, known_windows, .. } = self;
        let mut poster = if batch { Poster::Batch(queue.batch()) } else { Poster::Queue(queue) };
        for _ in 0..count {
            let before = Known { mkeys: known, windows: known_windows, prepared };
            let mut op = Op::choose(input, before, *all);
            let bits: u8 = input.any();
            let flags = Flags { fenced: bits & 4 != 0, signaled: bits & 1 != 0, solicited: bits & 8 != 0 };
            // Names come twice now and then.
            *next_id += u64::from(bits >> 4 != 0);
            let plan = op.plan(config, model, before);
            let mut request = poster.request(*next_id);
            request = if flags.fenced { request.fenced() } else { request };
            request = if flags.signaled { request.signaled() } else { request };
            request = if flags.solicited { request.solicited() } else { request };
            let done = op.perform(request, Objects { mkeys, windows, prepared });
            assert_eq!(done, plan.as_ref().map(drop).map_err(|error| *error), "{op:?}");
            let Ok((parts, change)) = plan else { continue };
            let (key, grown) = op.note(change.as_ref(), known, known_windows);
            let begin = model.producer();
            model.post(*next_id, flags.signaled, &parts);
            let fenced = std::mem::replace(fence, op.needs_fence_after());
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

    /// The blocks in the ring say what was asked for.
    fn verify(&mut self, posted: &Posted) {
        let mut begin = posted.begin;
        for (at, (_, count)) in posted.parts.iter().enumerate() {
            let mut bytes = Vec::new();
            for block in begin..begin + u64::from(*count) {
                let slot = self.slot(block);
                self.blocks[slot] = self.queue.block(block as u32);
                bytes.extend(self.blocks[slot].0);
            }
            let request = WorkRequest::parse(&bytes).expect("a block");
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
        let (opcode, imm) = if at == 0 { op.code(*key) } else { (Opcode::SET_PSV, 0) };
        assert_eq!((request.opcode(), control.imm.get()), (opcode, imm));
        let is = control.flags();
        let fence = match () {
            () if flags.fenced => FmCeSe::FM_FENCE,
            () if *fence || at > 0 => FmCeSe::FM_SMALL,
            () => FmCeSe::FM_NONE,
        };
        // The UMR before SET_PSVs never completes by itself; the last of them does what was asked for.
        let last = at + 1 == parts.len();
        let completes = last && flags.signaled || self.config.signal_all && (last || at > 0);
        let completes = if completes { FmCeSe::CE_ALWAYS } else { 0 };
        let mut wanted = (fence, completes, flags.solicited);
        if let Op::Raw(bytes) = op {
            let own = FmCeSe::from_bits(bytes[11]);
            let fence = if own.fm() == FmCeSe::FM_NONE { fence } else { own.fm() };
            wanted = (fence, completes.max(own.ce()), flags.solicited || own.solicited());
        }
        assert_eq!((is.fm(), is.ce(), is.solicited()), wanted, "{posted:?}");
    }

    fn verify_body(&self, posted: &Posted, request: &WorkRequest<'_>) {
        match (&posted.op, request.body()) {
            (Op::Raw(bytes), _) => {
                let octowords = raw_octowords(bytes).expect("it was posted");
                assert_eq!(request.bytes()[16..], bytes[16..octowords as usize * 16]);
            }
            (Op::Memcpy(to, from, bytes), Body::Memcpy(copy)) => {
                let of = |segment: &DataSegment| Local {
                    address: segment.address.get(),
                    lkey: Key::from_raw(segment.lkey.get()),
                };
                assert_eq!((of(copy.target()), of(copy.source())), (*to, *from));
                assert_eq!(copy.length(), u64::from(*bytes));
            }
            (Op::Nop, Body::Nop) => {}
            (Op::Configure(mkey, with, layout), Body::Configure(umr)) => {
                let change = posted.change.as_ref().expect("a configuration changes an mkey");
                self.verify_umr(&umr, *mkey, &self.prepared[*with], layout, change);
            }
            (Op::Invalidate(_) | Op::InvalidateMkey(_) | Op::InvalidateWindow(_), Body::Invalidate(_)) => {}
            (Op::SetPsv(psv, seed), Body::SetPsv(segment)) => {
                let start = if *seed == Seed::Ones { 0xffff_ffff_0000_0000 } else { 0 };
                let said = (segment.psv_index.get(), segment.transient_signature.get());
                assert_eq!((said, segment.syndrome.get()), ((psv.get(), start), 0));
            }
            (Op::BindWindow(_, range, access, start), Body::Configure(umr)) => {
                window::verify(&umr, posted.key, range, *access, *start);
            }
            (Op::Replace(_, first, entries), Body::Configure(umr)) => {
                lists::verify_part(&umr, *first, None);
                lists::verify_entries(&umr, entries);
            }
            (Op::ReplaceByPointer(_, first, list), Body::Configure(umr)) => {
                lists::verify_part(&umr, *first, None);
                if list.count() > 0 {
                    list.verify(&umr);
                }
            }
            (Op::Append(_, list), Body::Configure(umr)) => {
                let Some((length, first)) = posted.grown else {
                    return assert_eq!((list.count(), umr.mask().into_bits()), (0, 0));
                };
                lists::verify_part(&umr, first, Some(length));
                list.verify(&umr);
            }
            (Op::ConfigureByPointer(mkey, with, list), Body::Configure(umr)) => {
                let change = posted.change.as_ref().expect("a configuration changes an mkey");
                if list.count() == 0 {
                    let nothing = OwnLayout::List(Vec::new());
                    return self.verify_umr(&umr, *mkey, &self.prepared[*with], &nothing, change);
                }
                let Prepared { kind, config, .. } = &self.prepared[*with];
                assert_eq!((umr.access(), umr.length()), (config.access, Some(change.length)));
                assert_eq!(umr.error_count(), change.count.map(|count| count & 1 != 0));
                assert_eq!(u32::from(umr.control().bsf_octowords.get()), change.bsfs * 4);
                list.verify(&umr);
                list.with_bsfs(request.bytes(), change.bsfs as usize, |umr| {
                    verify_bsfs(&umr, &self.known[*mkey], kind, change);
                });
            }
            (op, Body::DataPath(transfer)) => {
                let remote = transfer.remote().map(|remote| (remote.address.get(), remote.rkey.get()));
                let atomic = transfer.atomic().map(|atomic| (atomic.swap_add.get(), atomic.compare.get()));
                let (sges, inline) = segments(transfer.data_segments().map(|(_, segment)| segment));
                let wanted = wanted(op);
                assert_eq!((remote, atomic, sges, inline), wanted, "{op:?}");
            }
            (_, body) => panic!("{posted:?} {body:?}"),
        }
    }

    fn verify_umr(
        &self,
        umr: &Umr<'_>,
        mkey: usize,
        prepared: &Prepared,
        layout: &OwnLayout,
        change: &Change,
    ) {
        assert_eq!(umr.access(), prepared.config.access);
        assert_eq!(umr.error_count(), change.count.map(|count| count & 1 != 0));
        match (layout, umr.layout()) {
            (OwnLayout::Unchanged, _) => assert_eq!(umr.length(), None),
            (OwnLayout::List(entries), _) => {
                assert_eq!(umr.length(), Some(change.length));
                lists::verify_entries(umr, entries);
            }
            (OwnLayout::Interleaved(_, entries), Some(view)) => {
                assert_eq!(umr.length(), Some(change.length));
                assert!(view.interleaved_entries().eq(entries.iter().copied().map(Ok)));
            }
            (_, None) => panic!("no layout"),
        }
        verify_bsfs(umr, &self.known[mkey], &prepared.kind, change);
    }
}

/// The BSFs in a request are what the mkey shall have.
fn verify_bsfs(umr: &Umr<'_>, known: &MkeyModel, kind: &MkeyKind, change: &Change) {
    if !change.writes_bsfs {
        assert!(umr.signature_bsf().is_none() && umr.crypto_bsf().is_none());
        return;
    }
    if let Some(attributes) = known.attributes.signature {
        let signature = change.whole.signature.signature();
        // A copy mask that is given and is what it would be anyway is not told apart.
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

/// Returns the size of a request that the caller built.
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

/// What a transfer must have: remote address and key, operands, data segments, inline data.
type Transfer = (Option<(u64, u32)>, Option<(u64, u64)>, Vec<Sge>, Vec<u8>);

fn wanted(op: &Op) -> Transfer {
    let at = |remote: &Remote| Some((remote.address, remote.rkey.get()));
    let (remote, atomic, data) = match op {
        Op::Send(data) | Op::SendImm(_, data) | Op::SendInvalidate(_, data) => (None, None, data.clone()),
        Op::Write(remote, data) | Op::WriteImm(remote, _, data) => (at(remote), None, data.clone()),
        Op::Read(remote, sges) => (at(remote), None, Data::Sges(sges.clone())),
        Op::CompareSwap(remote, compare, swap, sge) => {
            (at(remote), Some((*swap, *compare)), Data::Sges(vec![*sge]))
        }
        Op::FetchAdd(remote, add, sge) => (at(remote), Some((*add, 0)), Data::Sges(vec![*sge])),
        other => panic!("{other:?} moves no data"),
    };
    match data {
        Data::Sges(sges) => (remote, atomic, sges, Vec::new()),
        Data::Inline(bytes) => (remote, atomic, Vec::new(), bytes),
    }
}

/// The data segments of a transfer.
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
