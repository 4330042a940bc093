//! Posting: what must come of it, and what the ring must hold then, read by the library's other half.

use super::mkey::{Change, MkeyModel};
use super::{Prepared, World};
use crate::input::Input;
use crate::values::{self, OwnLayout};
use hil_scenarios::way::Poster;
use hil_tests::model::QueueModel;
use mlx5_mkey::error::PostError;
use mlx5_mkey::inspect::{Body, DataSegmentView, LayoutView, Umr, WorkRequest};
use mlx5_mkey::mkey::{BlockSignature, Layout, Mkey};
use mlx5_mkey::queue::{RequestKind, SendQueueConfig, SendRequest};
use mlx5_mkey::types::Key;
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
    /// The key of its mkey.
    key: Key,
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
    fn choose(input: &mut Input<'_>, mkeys: usize, prepared: usize) -> Self {
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

    /// What must come of it.
    fn plan(
        &self,
        config: &SendQueueConfig,
        model: &QueueModel,
        mkeys: &[MkeyModel],
        prepared: &[Prepared],
    ) -> Result<Plan, PostError> {
        let (parts, change) = match self {
            Self::Configure(mkey, with, layout) => {
                let Prepared { kind, config: wanted, .. } = &prepared[*with];
                let change = mkeys[*mkey].plan(kind, wanted, layout, config.max_inline_data)?;
                let last = change.psvs.len();
                let kind = |at| match at == last {
                    true => RequestKind::MkeyConfigure,
                    false => RequestKind::MkeyConfigurePart,
                };
                let blocks = |at| if at == 0 { change.umr_blocks } else { 1 };
                ((0..=last).map(|at| (kind(at), blocks(at))).collect(), Some(change))
            }
            Self::Invalidate(_) | Self::InvalidateMkey(_) => (vec![(RequestKind::LocalInvalidate, 2)], None),
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
            Self::Invalidate(_) | Self::InvalidateMkey(_) => RequestKind::LocalInvalidate,
            Self::Configure(..) => RequestKind::MkeyConfigure,
            Self::Memcpy(..) => RequestKind::Memcpy,
            Self::Raw(_) => RequestKind::Raw,
        }
    }

    /// Whether what follows gets the small fence.
    fn needs_fence_after(&self) -> bool {
        match self {
            Self::Configure(..) | Self::Invalidate(_) | Self::InvalidateMkey(_) => true,
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

    fn perform(
        &self,
        request: SendRequest<'_, '_>,
        mkeys: &mut [Mkey],
        prepared: &[Prepared],
    ) -> Result<(), PostError> {
        match self {
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
            Self::InvalidateMkey(_) | Self::Configure(..) => (Opcode::UMR, key.get()),
            Self::Memcpy(..) => (Opcode::MMO, 0),
            Self::Raw(bytes) => {
                let imm = bytes[12..16].try_into().expect("four bytes");
                (Opcode(bytes[3]), u32::from_be_bytes(imm))
            }
        }
    }
}

impl<const N: usize> World<'_, N> {
    /// Posts a request, or some in a batch.
    pub(super) fn post(&mut self, input: &mut Input<'_>) {
        let batch: bool = input.any();
        let count = if batch { input.below(5) } else { 1 };
        let mut posted = Vec::new();
        let Self { queue, config, model, mkeys, known, prepared, fence, next_id, .. } = self;
        let mut poster = if batch { Poster::Batch(queue.batch()) } else { Poster::Queue(queue) };
        for _ in 0..count {
            let op = Op::choose(input, mkeys.len(), prepared.len());
            let bits: u8 = input.any();
            let flags = Flags { fenced: bits & 4 != 0, signaled: bits & 1 != 0, solicited: bits & 8 != 0 };
            // Names come twice now and then.
            *next_id += u64::from(bits >> 4 != 0);
            let plan = op.plan(config, model, known, prepared);
            let mut request = poster.request(*next_id);
            request = if flags.fenced { request.fenced() } else { request };
            request = if flags.signaled { request.signaled() } else { request };
            request = if flags.solicited { request.solicited() } else { request };
            let done = op.perform(request, mkeys, prepared);
            assert_eq!(done, plan.as_ref().map(drop).map_err(|error| *error), "{op:?}");
            let Ok((parts, change)) = plan else { continue };
            let of = match &op {
                Op::InvalidateMkey(mkey) | Op::Configure(mkey, ..) => Some(&mut known[*mkey]),
                _ => None,
            };
            let key = of.as_ref().map_or(Key::from_raw(0), |known| known.key);
            match (of, &change) {
                (Some(known), Some(change)) => known.apply(change),
                (Some(known), None) => known.invalidated(),
                _ => {}
            }
            let begin = model.producer();
            model.post(*next_id, flags.signaled, &parts);
            let before = std::mem::replace(fence, op.needs_fence_after());
            posted.push(Posted { op, flags, begin, fence: before, parts, change, key });
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
            (Op::Invalidate(_) | Op::InvalidateMkey(_), Body::Invalidate(_)) => {}
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
        let (known, kind) = (&self.known[mkey], &prepared.kind);
        assert_eq!(umr.access(), prepared.config.access);
        assert_eq!(umr.error_count(), change.count.map(|count| count & 1 != 0));
        match (layout, umr.layout()) {
            (OwnLayout::Unchanged, _) => assert_eq!(umr.length(), None),
            (OwnLayout::List(entries), view) => {
                assert_eq!(umr.length(), Some(change.length));
                let written = view.iter().flat_map(LayoutView::list_entries);
                // Where the first key is the code of an interleaved layout, the list cannot be told from one.
                let is_ambiguous = entries.first().is_some_and(|first| first.key == Key::from_raw(0x400));
                assert!(is_ambiguous || written.take(entries.len()).eq(entries.iter().copied()));
            }
            (OwnLayout::Interleaved(_, entries), Some(view)) => {
                assert_eq!(umr.length(), Some(change.length));
                assert!(view.interleaved_entries().eq(entries.iter().copied().map(Ok)));
            }
            (_, None) => panic!("no layout"),
        }
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
