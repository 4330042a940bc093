//! Parses the bytes of send and receive rings. The device does not trust a ring: malformed bytes become a
//! refusal.

use crate::datagram::AddressVector;
use crate::memory::Memory;
use crate::message::{Change, Width};
use crate::object::posted::{Posted, is_atomic, is_masked};
use crate::object::qp::{Qp, QpAttributes, ReceiveRing, Transport};
use crate::object::read_ahead::ReadAhead;
use crate::object::srq::SrqAttributes;
use crate::refusal::Reason;
use alloc::vec;
use alloc::vec::Vec;
use mlx5_mkey::wire::ctrl::{ControlSegment, FmCeSe, Opcode, OpcodeWord};
use mlx5_mkey::wire::data::{
    AtomicSegment, DataSegment, InlineHeader, MaskedAtomic32Segment, MaskedAtomic64Segment,
    RemoteAddressSegment,
};
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wire::mkey_context::MkeyContext;
use mlx5_mkey::wire::psv::SetPsvSegment;
use mlx5_mkey::wire::umr::UmrControlSegment;
use mlx5_mkey::wire::{MAX_WQE_OCTOWORDS, OCTOWORD_BYTES, WQEBB_BYTES};
use zerocopy::FromBytes;

/// A data segment of a send request.
#[derive(Clone, Debug)]
pub(crate) enum SendSegment {
    Memory(DataSegment),
    Inline(Vec<u8>),
}

/// A change of an mkey (PRM UMR).
#[derive(Clone, Debug)]
pub(crate) struct Umr {
    /// The key of the mkey, from the control segment.
    pub(crate) key: u32,
    pub(crate) control: UmrControlSegment,
    pub(crate) context: MkeyContext,
    /// The octoword of the first entry that is replaced. `None` replaces all entries.
    pub(crate) translation_offset: Option<u64>,
    pub(crate) lists: UmrLists,
}

/// The two lists of a UMR: its translation entries, as octowords, and its BSFs. The padding that fills the
/// last block of 64 bytes of entries is left out.
#[derive(Clone, Debug)]
pub(crate) enum UmrLists {
    /// The lists are in the request.
    Inline { translations: Vec<[u8; OCTOWORD_BYTES]>, bsfs: Vec<[u8; 64]> },
    /// The lists are in memory, at the address of this entry. The entry's length is ignored: drivers write
    /// there the number of bytes, the number of entries, or nothing (DEVICE.md, "UMR by pointer").
    InMemory(Klm),
}

/// The operation of a send request.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Nop,
    Umr(Umr),
    SetPsv(SetPsvSegment),
    Send {
        segments: Vec<SendSegment>,
    },
    /// A SEND that carries its own address vector (UD).
    Datagram {
        address: AddressVector,
        segments: Vec<SendSegment>,
    },
    Write {
        remote: RemoteAddressSegment,
        segments: Vec<SendSegment>,
    },
    Read {
        remote: RemoteAddressSegment,
        scatter: Vec<DataSegment>,
    },
    Atomic {
        remote: RemoteAddressSegment,
        width: Width,
        change: Change,
        scatter: Vec<DataSegment>,
    },
    /// A copy from memory to memory.
    Copy {
        from: DataSegment,
        to: DataSegment,
    },
}

/// A copy of a send request in the ring.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) control: ControlSegment,
    pub(crate) posted: Posted,
    bytes: Vec<u8>,
}

/// The opcode modifier of an MMO request that copies memory (`MLX5_OPC_MOD_MMO_DMA`).
const MODIFIER_COPY: u8 = 1;

/// The most blocks of a send ring that are read at once.
const READ_AHEAD: u16 = 32;

impl ReadAhead {
    /// Returns at least `count` blocks of the send ring, from block `counter` on. Doorbells have announced
    /// `rung` blocks from `counter` on.
    fn blocks(
        &mut self,
        memory: &impl Memory,
        qp: &QpAttributes,
        counter: u16,
        count: u16,
        rung: u16,
    ) -> Result<&[[u8; WQEBB_BYTES]], Reason> {
        let passed = usize::from(counter.wrapping_sub(self.first));
        if self.blocks.len().saturating_sub(passed) < usize::from(count) {
            self.first = counter;
            self.blocks.resize(usize::from(rung.min(READ_AHEAD).max(count)), [0; WQEBB_BYTES]);
            read(memory, qp, counter, &mut self.blocks).inspect_err(|_| self.blocks.clear())?;
            return Ok(&self.blocks);
        }
        Ok(self.blocks.get(passed..).unwrap_or_default())
    }
}

/// Fills `rest` with blocks of a send ring from block `next` on, in as few pieces as the ring's end allows.
fn read(
    memory: &impl Memory,
    qp: &QpAttributes,
    mut next: u16,
    mut rest: &mut [[u8; WQEBB_BYTES]],
) -> Result<(), Reason> {
    let size = 1u16 << qp.log_sq_blocks.min(15);
    while !rest.is_empty() {
        let slot = next & (size - 1);
        let (part, behind) = rest.split_at_mut(rest.len().min(usize::from(size - slot)));
        let unreadable = Reason::RingUnreadable { address: qp.sq };
        let address = qp.sq.checked_add(u64::from(slot) * WQEBB_BYTES as u64).ok_or(unreadable)?;
        memory.read(address, part.as_flattened_mut()).map_err(|_| unreadable)?;
        (next, rest) = (next.wrapping_add(part.len() as u16), behind);
    }
    Ok(())
}

/// Returns the bytes of a request that is not executed: as many as its size field says, up to the last block
/// that it takes. An unreadable ring has none.
pub(crate) fn unparsed(memory: &impl Memory, qp: &QpAttributes, posted: Posted) -> Vec<u8> {
    let mut blocks = vec![[0; WQEBB_BYTES]; usize::from(posted.blocks)];
    if read(memory, qp, posted.counter, &mut blocks).is_err() {
        return Vec::new();
    }
    let mut bytes = blocks.into_flattened();
    let octowords = bytes.get(7).map_or(0, |size| size & MAX_WQE_OCTOWORDS);
    bytes.truncate(usize::from(octowords.max(1)) * OCTOWORD_BYTES);
    bytes
}

/// Reads the request that starts at block `counter`. Doorbells have announced `rung` blocks from `counter`
/// on.
///
/// `Err` has the fields that a completion of the malformed request reports.
pub(crate) fn fetch(
    memory: &impl Memory,
    qpn: u32,
    qp: &mut Qp,
    counter: u16,
    rung: u16,
) -> Result<Wqe, (Posted, Reason)> {
    let mut posted = Posted { counter, blocks: 1, opcode: Opcode::NOP, ce: FmCeSe::CE_ALWAYS };
    let Qp { attributes, read_ahead, .. } = qp;
    let first = read_ahead.blocks(memory, attributes, counter, 1, rung).map_err(|reason| (posted, reason))?;
    let control = match ControlSegment::read_from_prefix(first.as_flattened()) {
        Ok((control, _)) => control,
        Err(_) => return Err((posted, Reason::SegmentMissing { octowords: 0 })),
    };
    let word = control.opcode_word();
    let size = control.qpn_ds_word().ds();
    let octowords = size & MAX_WQE_OCTOWORDS;
    posted.opcode = Opcode(word.opcode());
    posted.ce = control.flags().ce();
    posted.blocks = u16::from(octowords.div_ceil(4)).max(1);
    // A request names its own queue and block. A request with another queue or block was built for another
    // place, or the block was never written.
    let (named, index) = (control.qpn_ds_word().qpn(), word.wqe_index());
    // The modifier of a UMR or SET_PSV selects the kind of object: 0 is an mkey or PSV, and other values are
    // a TIS or TIR, which this device does not have. Assumption: the device ignores the modifier of opcodes
    // without modifiers (DEVICE.md, "Opcode modifiers").
    let other_modifier = match posted.opcode {
        Opcode::MMO => word.opmod() != MODIFIER_COPY,
        opcode if is_masked(opcode) => width(opcode, word).is_none(),
        Opcode::UMR | Opcode::SET_PSV => word.opmod() != 0,
        _ => false,
    };
    let broken = if named != qpn {
        Some(Reason::AnotherQueue { qpn: named })
    } else if index != counter {
        Some(Reason::AnotherIndex { index, place: counter })
    } else if other_modifier {
        Some(Reason::Modifier { opmod: word.opmod() })
    } else if size == 0 || size > MAX_WQE_OCTOWORDS {
        Some(Reason::SizeField { octowords: size })
    } else if posted.blocks > rung {
        Some(Reason::LongerThanRung { blocks: posted.blocks, rung })
    } else {
        None
    };
    if let Some(reason) = broken {
        posted.blocks = posted.blocks.min(rung);
        return Err((posted, reason));
    }
    let blocks = read_ahead.blocks(memory, attributes, counter, posted.blocks, rung);
    let bytes = blocks.map_err(|reason| (posted, reason))?.as_flattened();
    let bytes = bytes
        .get(..usize::from(octowords) * OCTOWORD_BYTES)
        .ok_or((posted, Reason::SegmentMissing { octowords: octowords.into() }))?;
    Ok(Wqe { control, posted, bytes: bytes.to_vec() })
}

impl Wqe {
    /// Returns the bytes of the request, from its control segment on.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Parses the segments of a request on a queue pair of this transport.
    pub(crate) fn parse(&self, transport: Transport) -> Result<Operation, Reason> {
        let mut rest = Reader { bytes: &self.bytes, octowords: self.bytes.len() as u64 / 16 };
        rest.take::<ControlSegment>()?;
        Ok(match self.posted.opcode {
            Opcode::NOP => Operation::Nop,
            Opcode::UMR => Operation::Umr(umr(self.control.imm.get(), rest)?),
            Opcode::SET_PSV => {
                let segment = rest.take()?;
                rest.end()?;
                Operation::SetPsv(segment)
            }
            Opcode::SEND | Opcode::SEND_IMM if transport == Transport::UnreliableDatagram => {
                Operation::Datagram { address: rest.take()?, segments: segments(rest)? }
            }
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL => {
                Operation::Send { segments: segments(rest)? }
            }
            Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM => {
                Operation::Write { remote: rest.take()?, segments: segments(rest)? }
            }
            Opcode::RDMA_READ => Operation::Read { remote: rest.take()?, scatter: scatter(rest)? },
            opcode if is_atomic(opcode) => {
                let word = self.control.opcode_word();
                let width = width(opcode, word).ok_or(Reason::Modifier { opmod: word.opmod() })?;
                let (remote, change) = (rest.take()?, change(opcode, width, &mut rest)?);
                Operation::Atomic { remote, width, change, scatter: scatter(rest)? }
            }
            Opcode::MMO => {
                // Assumption: a copy ignores the opaque buffer, into which other MMO operations write their
                // results.
                rest.skip(OCTOWORD_BYTES)?;
                let operation = Operation::Copy { from: rest.take()?, to: rest.take()? };
                rest.end()?;
                operation
            }
            Opcode(opcode) => return Err(Reason::Opcode { opcode }),
        })
    }
}

/// Returns the number of bytes that an atomic changes. An atomic without masks changes 8 bytes. For an atomic
/// with masks, the opcode modifier tells the number. Returns `None` for an unknown modifier.
const fn width(opcode: Opcode, word: OpcodeWord) -> Option<Width> {
    match word.opmod() {
        _ if !is_masked(opcode) => Some(Width::Eight),
        OpcodeWord::OPMOD_ATOMIC_4 => Some(Width::Four),
        OpcodeWord::OPMOD_ATOMIC_8 => Some(Width::Eight),
        _ => None,
    }
}

/// Reads the operands of an atomic (UCX `uct_rc_mlx5_txqp_dptr_post`). An addition of 4 bytes has 8 reserved
/// bytes behind its operands.
fn change(opcode: Opcode, width: Width, rest: &mut Reader<'_>) -> Result<Change, Reason> {
    let (swap_add, compare, swap_mask, compare_mask) = match width {
        Width::Four => {
            let MaskedAtomic32Segment { swap_add, compare, swap_mask, compare_mask } = rest.take()?;
            let word = |word: zerocopy::big_endian::U32| u64::from(word.get());
            (word(swap_add), word(compare), word(swap_mask), word(compare_mask))
        }
        Width::Eight if opcode == Opcode::ATOMIC_MASKED_CS => {
            let MaskedAtomic64Segment { operands, swap_mask, compare_mask } = rest.take()?;
            (operands.swap_add.get(), operands.compare.get(), swap_mask.get(), compare_mask.get())
        }
        Width::Eight => {
            let AtomicSegment { swap_add, compare } = rest.take()?;
            (swap_add.get(), compare.get(), 0, 0)
        }
    };
    let change = match opcode {
        Opcode::ATOMIC_CS | Opcode::ATOMIC_MASKED_CS => {
            Change::CompareSwap { compare, compare_mask, swap: swap_add, swap_mask }
        }
        _ => Change::FetchAdd { add: swap_add, boundary: compare },
    };
    Ok(if is_masked(opcode) { change } else { change.without_masks() })
}

/// Reads the segments of a request one after the other.
struct Reader<'a> {
    bytes: &'a [u8],
    /// Number of octowords of the whole request.
    octowords: u64,
}

impl Reader<'_> {
    const fn ended(&self) -> Reason {
        Reason::SegmentMissing { octowords: self.octowords }
    }

    fn take<T: FromBytes>(&mut self) -> Result<T, Reason> {
        let (value, rest) = T::read_from_prefix(self.bytes).map_err(|_| self.ended())?;
        self.bytes = rest;
        Ok(value)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Reason> {
        self.bytes = self.bytes.get(bytes..).ok_or(self.ended())?;
        Ok(())
    }

    /// Refuses bytes after the last segment: the sizes in the segments do not cover them.
    fn end(&self) -> Result<(), Reason> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(Reason::SegmentsLeft { octowords: left.div_ceil(OCTOWORD_BYTES) as u64 }),
        }
    }
}

/// Parses data segments and inline data. Inline data is padded to 16 bytes.
fn segments(mut rest: Reader<'_>) -> Result<Vec<SendSegment>, Reason> {
    let mut segments = Vec::new();
    while !rest.bytes.is_empty() {
        let (header, data) = InlineHeader::read_from_prefix(rest.bytes).map_err(|_| rest.ended())?;
        let count = header.byte_count.get();
        if count & InlineHeader::INLINE == 0 {
            segments.push(SendSegment::Memory(rest.take()?));
            continue;
        }
        let length = (count & !InlineHeader::INLINE) as usize;
        let overrun = Reason::InlineOverrun { length: length as u64, room: data.len() as u64 };
        segments.push(SendSegment::Inline(data.get(..length).ok_or(overrun)?.to_vec()));
        // The request may end inside the padding of the last inline segment.
        rest.skip((length + 4).next_multiple_of(OCTOWORD_BYTES).min(rest.bytes.len()))?;
    }
    Ok(segments)
}

fn scatter(mut rest: Reader<'_>) -> Result<Vec<DataSegment>, Reason> {
    let mut segments = Vec::new();
    while !rest.bytes.is_empty() {
        let segment: DataSegment = rest.take()?;
        if segment.byte_count.get() & InlineHeader::INLINE != 0 {
            return Err(Reason::InlineInScatter);
        }
        segments.push(segment);
    }
    Ok(segments)
}

fn umr(key: u32, mut rest: Reader<'_>) -> Result<Umr, Reason> {
    let control: UmrControlSegment = rest.take()?;
    let context: MkeyContext = rest.take()?;
    let second = control.bsf_octowords.get();
    let translation_offset = control.first_entry();
    let offset = translation_offset.is_some();
    if !offset && !second.is_multiple_of(4) {
        return Err(Reason::BsfOctowords { octowords: second });
    }
    if !control.flag_bits().inline() {
        // A UMR without lists needs no pointer to them.
        let lists = if control.klm_octowords.get() == 0 && (offset || second == 0) {
            UmrLists::Inline { translations: Vec::new(), bsfs: Vec::new() }
        } else {
            UmrLists::InMemory(rest.take()?)
        };
        rest.end()?;
        return Ok(Umr { key, control, context, translation_offset, lists });
    }
    let mut translations = Vec::new();
    for _ in 0..control.klm_octowords.get() {
        translations.push(rest.take()?);
    }
    if !translations.len().is_multiple_of(4) {
        // The last block of translation entries is padded, unless the request ends with it.
        let padding = translations.len().wrapping_neg() % 4 * OCTOWORD_BYTES;
        rest.skip(padding.min(rest.bytes.len()))?;
    }
    let mut bsfs = Vec::new();
    if !offset {
        for _ in 0..second / 4 {
            bsfs.push(rest.take()?);
        }
    }
    rest.end()?;
    Ok(Umr { key, control, context, translation_offset, lists: UmrLists::Inline { translations, bsfs } })
}

/// Splits the lists of a UMR in memory into entries and BSFs. The BSFs begin at a multiple of 64 bytes.
pub(crate) fn lists(bytes: &[u8], octowords: u16) -> (Vec<[u8; OCTOWORD_BYTES]>, Vec<[u8; 64]>) {
    let end = usize::from(octowords) * OCTOWORD_BYTES;
    let (translations, _) = bytes.get(..end).unwrap_or_default().as_chunks();
    let (bsfs, _) = bytes.get(end.next_multiple_of(64)..).unwrap_or_default().as_chunks();
    (translations.to_vec(), bsfs.to_vec())
}

/// Reads the receive request with number `counter` from its ring, and returns its data segments up to the end
/// of its list.
pub(crate) fn receive(
    memory: &impl Memory,
    ring: ReceiveRing,
    counter: u16,
) -> Result<Vec<DataSegment>, Reason> {
    let mask = (1u16 << ring.log_slots.min(15)) - 1;
    let slot = u64::from(counter & mask) * u64::from(ring.stride);
    let unreadable = Reason::RingUnreadable { address: ring.address };
    let address = ring.address.checked_add(slot).ok_or(unreadable)?;
    let mut bytes = alloc::vec![0; usize::from(ring.stride)];
    memory.read(address, &mut bytes).map_err(|_| unreadable)?;
    receive_list(&bytes)
}

/// Reads a receive request from its slot of a shared receive queue: the number of the next slot in the linked
/// list, and the data segments. Returns `None` if the slot is outside of the memory.
pub(crate) fn shared_receive(
    memory: &impl Memory,
    srq: &SrqAttributes,
    slot: u16,
) -> Option<(u16, Vec<DataSegment>)> {
    let address = srq.ring.checked_add(u64::from(slot) * u64::from(srq.stride))?;
    let mut bytes = vec![0; usize::from(srq.stride)];
    memory.read(address, &mut bytes).ok()?;
    let (&[_, _, high, low, ..], segments) = bytes.split_first_chunk::<OCTOWORD_BYTES>()?;
    Some((u16::from_be_bytes([high, low]), receive_list(segments).ok()?))
}

fn receive_list(bytes: &[u8]) -> Result<Vec<DataSegment>, Reason> {
    let mut segments = Vec::new();
    for chunk in bytes.chunks_exact(OCTOWORD_BYTES) {
        let segment =
            DataSegment::read_from_bytes(chunk).map_err(|_| Reason::SegmentMissing { octowords: 1 })?;
        if segment.lkey.get() == DataSegment::END_OF_LIST_KEY {
            break;
        }
        segments.push(segment);
    }
    Ok(segments)
}
