//! From ring bytes to a typed operation. The ring is never trusted: what does not parse is a refusal.

use crate::datagram::AddressVector;
use crate::memory::Memory;
use crate::object::qp::{Posted, Qp, QpAttributes, ReceiveRing, Transport};
use crate::object::srq::SrqAttributes;
use crate::refusal::Refusal;
use alloc::vec;
use alloc::vec::Vec;
use mlx5_mkey::wire::ctrl::{ControlSegment, FmCeSe, Opcode};
use mlx5_mkey::wire::data::{AtomicSegment, DataSegment, InlineHeader, RemoteAddressSegment};
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
    /// The key, from the control segment.
    pub(crate) key: u32,
    pub(crate) control: UmrControlSegment,
    pub(crate) context: MkeyContext,
    /// First entry that is replaced, `None`: all of them.
    pub(crate) translation_offset: Option<u64>,
    pub(crate) lists: UmrLists,
}

/// Translation entries in octowords, without the padding of the last block of 64 bytes, and BSFs.
#[derive(Clone, Debug)]
pub(crate) enum UmrLists {
    /// In the request.
    Inline { translations: Vec<[u8; OCTOWORD_BYTES]>, bsfs: Vec<[u8; 64]> },
    /// In memory, where this says: the length that it gives is not looked at, since drivers write bytes, entries or nothing there
    /// (DEVICE.md, "UMR by pointer").
    InMemory(Klm),
}

/// What a send request does.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Nop,
    Umr(Umr),
    SetPsv(Vec<SetPsvSegment>),
    Send {
        segments: Vec<SendSegment>,
    },
    /// A SEND with an address of its own.
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
        operands: AtomicSegment,
        scatter: Vec<DataSegment>,
    },
    /// A copy from memory to memory.
    Copy {
        from: DataSegment,
        to: DataSegment,
    },
}

/// A send request as it stood in the ring.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) control: ControlSegment,
    pub(crate) posted: Posted,
    bytes: Vec<u8>,
}

/// The modifier of an MMO that copies (`MLX5_OPC_MOD_MMO_DMA`).
const MODIFIER_COPY: u8 = 1;

/// At most this number of blocks is read at once.
const READ_AHEAD: u16 = 32;

/// Blocks of a send ring that were read with one before them, and are not executed yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadAhead {
    first: u16,
    blocks: Vec<[u8; WQEBB_BYTES]>,
}

impl ReadAhead {
    /// Takes blocks from block `first` on that came with a doorbell.
    pub(crate) fn of(first: u16, blocks: &[[u8; WQEBB_BYTES]]) -> Self {
        Self { first, blocks: blocks.to_vec() }
    }

    /// Returns at least `count` blocks from block `counter` on, of which `rung` blocks from there on are rung.
    fn blocks(
        &mut self,
        memory: &impl Memory,
        qp: &QpAttributes,
        counter: u16,
        count: u16,
        rung: u16,
    ) -> Result<&[[u8; WQEBB_BYTES]], Refusal> {
        let passed = usize::from(counter.wrapping_sub(self.first));
        if self.blocks.len().saturating_sub(passed) < usize::from(count) {
            self.first = counter;
            self.blocks = read(memory, qp, counter, rung.min(READ_AHEAD).max(count))?;
            return Ok(&self.blocks);
        }
        Ok(self.blocks.get(passed..).unwrap_or_default())
    }
}

/// Reads `count` blocks of a send ring from block `counter` on, in as few pieces as the ring's end allows.
fn read(
    memory: &impl Memory,
    qp: &QpAttributes,
    counter: u16,
    count: u16,
) -> Result<Vec<[u8; WQEBB_BYTES]>, Refusal> {
    let size = 1u16 << qp.log_sq_blocks.min(15);
    let mut blocks = vec![[0; WQEBB_BYTES]; usize::from(count)];
    let (mut next, mut rest) = (counter, blocks.as_mut_slice());
    while !rest.is_empty() {
        let slot = next & (size - 1);
        let (part, behind) = rest.split_at_mut(rest.len().min(usize::from(size - slot)));
        let address = qp.sq.checked_add(u64::from(slot) * WQEBB_BYTES as u64).ok_or(Refusal::MemoryFault)?;
        memory.read(address, part.as_flattened_mut()).map_err(|_| Refusal::MemoryFault)?;
        (next, rest) = (next.wrapping_add(part.len() as u16), behind);
    }
    Ok(blocks)
}

/// Reads the request that starts at block `counter`, of which `rung` blocks from there on are rung.
///
/// `Err` carries what a completion can still say about it.
pub(crate) fn fetch(
    memory: &impl Memory,
    qpn: u32,
    qp: &mut Qp,
    counter: u16,
    rung: u16,
) -> Result<Wqe, (Posted, Refusal)> {
    let mut posted = Posted { counter, blocks: 1, opcode: Opcode::NOP, ce: FmCeSe::CE_ALWAYS };
    let Qp { attributes, read_ahead, .. } = qp;
    let first =
        read_ahead.blocks(memory, attributes, counter, 1, rung).map_err(|refusal| (posted, refusal))?;
    let control = match ControlSegment::read_from_prefix(first.as_flattened()) {
        Ok((control, _)) => control,
        Err(_) => return Err((posted, Refusal::Malformed)),
    };
    let word = control.opcode_word();
    let octowords = control.qpn_ds_word().ds() & MAX_WQE_OCTOWORDS;
    posted.opcode = Opcode(word.opcode());
    posted.ce = control.flags().ce();
    posted.blocks = u16::from(octowords.div_ceil(4)).max(1);
    // A request names its own queue and place; one that does not was built for another, or not at all.
    let own = control.qpn_ds_word().qpn() == qpn && word.wqe_index() == counter;
    let modifier = if posted.opcode == Opcode::MMO { MODIFIER_COPY } else { 0 };
    if !own || word.opmod() != modifier || octowords == 0 || posted.blocks > rung {
        posted.blocks = posted.blocks.min(rung);
        return Err((posted, Refusal::Malformed));
    }
    let blocks = read_ahead.blocks(memory, attributes, counter, posted.blocks, rung);
    let bytes = blocks.map_err(|refusal| (posted, refusal))?.as_flattened();
    let bytes = bytes.get(..usize::from(octowords) * OCTOWORD_BYTES).ok_or((posted, Refusal::Malformed))?;
    Ok(Wqe { control, posted, bytes: bytes.to_vec() })
}

impl Wqe {
    /// Parses the segments, of a queue pair that does this with messages.
    pub(crate) fn parse(&self, transport: Transport) -> Result<Operation, Refusal> {
        let mut rest = Reader(&self.bytes);
        rest.take::<ControlSegment>()?;
        Ok(match self.posted.opcode {
            Opcode::NOP => Operation::Nop,
            Opcode::UMR => Operation::Umr(umr(self.control.imm.get(), rest)?),
            Opcode::SET_PSV => {
                let mut segments = Vec::new();
                while !rest.0.is_empty() {
                    segments.push(rest.take()?);
                }
                if segments.is_empty() {
                    return Err(Refusal::Malformed);
                }
                Operation::SetPsv(segments)
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
            Opcode::ATOMIC_CS | Opcode::ATOMIC_FA => {
                Operation::Atomic { remote: rest.take()?, operands: rest.take()?, scatter: scatter(rest)? }
            }
            Opcode::MMO => {
                // Assumption: the opaque buffer, where other operations leave their results, is not looked at by a copy.
                rest.skip(OCTOWORD_BYTES)?;
                let operation = Operation::Copy { from: rest.take()?, to: rest.take()? };
                if !rest.0.is_empty() {
                    return Err(Refusal::Malformed);
                }
                operation
            }
            _ => return Err(Refusal::Malformed),
        })
    }
}

/// Segments one after the other.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<T: FromBytes>(&mut self) -> Result<T, Refusal> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Refusal::Malformed)?;
        self.0 = rest;
        Ok(value)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.0 = self.0.get(bytes..).ok_or(Refusal::Malformed)?;
        Ok(())
    }
}

/// Data segments and inline data; inline data is padded to 16 bytes.
fn segments(mut rest: Reader<'_>) -> Result<Vec<SendSegment>, Refusal> {
    let mut segments = Vec::new();
    while !rest.0.is_empty() {
        let (header, data) = InlineHeader::read_from_prefix(rest.0).map_err(|_| Refusal::Malformed)?;
        let count = header.byte_count.get();
        if count & InlineHeader::INLINE == 0 {
            segments.push(SendSegment::Memory(rest.take()?));
            continue;
        }
        let length = (count & !InlineHeader::INLINE) as usize;
        segments.push(SendSegment::Inline(data.get(..length).ok_or(Refusal::Malformed)?.to_vec()));
        // The padding of the last inline segment may be cut off by the request's end.
        rest.skip((length + 4).next_multiple_of(OCTOWORD_BYTES).min(rest.0.len()))?;
    }
    Ok(segments)
}

fn scatter(mut rest: Reader<'_>) -> Result<Vec<DataSegment>, Refusal> {
    let mut segments = Vec::new();
    while !rest.0.is_empty() {
        let segment: DataSegment = rest.take()?;
        if segment.byte_count.get() & InlineHeader::INLINE != 0 {
            return Err(Refusal::Malformed);
        }
        segments.push(segment);
    }
    Ok(segments)
}

fn umr(key: u32, mut rest: Reader<'_>) -> Result<Umr, Refusal> {
    let control: UmrControlSegment = rest.take()?;
    let context: MkeyContext = rest.take()?;
    let second = control.bsf_octowords.get();
    let translation_offset = control.first_entry();
    let offset = translation_offset.is_some();
    if !offset && !second.is_multiple_of(4) {
        return Err(Refusal::UmrUnsupported);
    }
    if !control.flag_bits().inline() {
        // Without lists there is nothing to point at.
        let lists = if control.klm_octowords.get() == 0 && (offset || second == 0) {
            UmrLists::Inline { translations: Vec::new(), bsfs: Vec::new() }
        } else {
            UmrLists::InMemory(rest.take()?)
        };
        return if rest.0.is_empty() {
            Ok(Umr { key, control, context, translation_offset, lists })
        } else {
            Err(Refusal::Malformed)
        };
    }
    let mut translations = Vec::new();
    for _ in 0..control.klm_octowords.get() {
        translations.push(rest.take()?);
    }
    if !translations.len().is_multiple_of(4) {
        // The last block is padded, unless the request ends with it.
        let padding = translations.len().wrapping_neg() % 4 * OCTOWORD_BYTES;
        rest.skip(padding.min(rest.0.len()))?;
    }
    let mut bsfs = Vec::new();
    if !offset {
        for _ in 0..second / 4 {
            bsfs.push(rest.take()?);
        }
    }
    // What the sizes do not cover is not there for a reason: refuse what was built wrong.
    if !rest.0.is_empty() {
        return Err(Refusal::Malformed);
    }
    Ok(Umr { key, control, context, translation_offset, lists: UmrLists::Inline { translations, bsfs } })
}

/// Cuts what a UMR has in memory into entries and BSFs, which begin on a block of 64 bytes.
pub(crate) fn lists(bytes: &[u8], octowords: u16) -> (Vec<[u8; OCTOWORD_BYTES]>, Vec<[u8; 64]>) {
    let end = usize::from(octowords) * OCTOWORD_BYTES;
    let (translations, _) = bytes.get(..end).unwrap_or_default().as_chunks();
    let (bsfs, _) = bytes.get(end.next_multiple_of(64)..).unwrap_or_default().as_chunks();
    (translations.to_vec(), bsfs.to_vec())
}

/// Reads receive slot `counter`: its segments up to the end of the list.
pub(crate) fn receive(
    memory: &impl Memory,
    ring: ReceiveRing,
    counter: u16,
) -> Result<Vec<DataSegment>, Refusal> {
    let mask = (1u16 << ring.log_slots.min(15)) - 1;
    let slot = u64::from(counter & mask) * u64::from(ring.stride);
    let address = ring.address.checked_add(slot).ok_or(Refusal::MemoryFault)?;
    let mut bytes = alloc::vec![0; usize::from(ring.stride)];
    memory.read(address, &mut bytes).map_err(|_| Refusal::MemoryFault)?;
    receive_list(&bytes)
}

/// Reads a slot of a shared receive queue: the number of the next one, and the segments. `None` where there is no memory.
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

fn receive_list(bytes: &[u8]) -> Result<Vec<DataSegment>, Refusal> {
    let mut segments = Vec::new();
    for chunk in bytes.chunks_exact(OCTOWORD_BYTES) {
        let segment = DataSegment::read_from_bytes(chunk).map_err(|_| Refusal::Malformed)?;
        if segment.lkey.get() == DataSegment::END_OF_LIST_KEY {
            break;
        }
        segments.push(segment);
    }
    Ok(segments)
}
