//! Control segments (PRM `wqe_ctrl_seg`): the first 16 bytes of each request.

use crate::types::Qpn;
use crate::wire::Octoword;
use crate::wire::ctrl::{FmCeSe, Opcode, OpcodeWord};
use zerocopy::big_endian::U64;
use zerocopy::transmute;

/// Fence, completion and event flags of a request (PRM `fm_ce_se`), as the third dword of a control segment
/// has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct RequestFlags(u32);

impl RequestFlags {
    /// No fence, no completion but that of an error, no event.
    pub(crate) const NONE: Self = Self::new(FmCeSe::new());
    /// Waits until changes of mkeys before it are done (small fence), so that the request does not overtake
    /// them. Devices that need more have [`RequestFlags::AFTER_UMR_STRONG`].
    pub(crate) const AFTER_UMR: Self = Self::new(FmCeSe::new().with_fm(FmCeSe::FM_SMALL));
    /// As [`RequestFlags::AFTER_UMR`], for devices that need a strong fence.
    pub(crate) const AFTER_UMR_STRONG: Self = Self::new(FmCeSe::new().with_fm(FmCeSe::FM_STRONG));
    /// Waits until the reads and atomics before it are done.
    pub(crate) const FENCED: Self = Self::new(FmCeSe::new().with_fm(FmCeSe::FM_FENCE));
    /// Gets a completion of its own.
    pub(crate) const SIGNALED: Self = Self::new(FmCeSe::new().with_ce(FmCeSe::CE_ALWAYS));
    /// Raises a solicited event at the receiver.
    pub(crate) const SOLICITED: Self = Self::new(FmCeSe::new().with_solicited(true));

    const FENCES: Self = Self::new(FmCeSe::new().with_fm(0b111));

    const fn new(flags: FmCeSe) -> Self {
        Self(flags.into_bits() as u32)
    }

    /// Returns the flags of both.
    #[inline]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the flags of both; of two fences, the own.
    #[inline]
    pub(crate) const fn with_default(self, default: Self) -> Self {
        self.with(if self.has(Self::FENCES) { default.without(Self::FENCES) } else { default })
    }

    /// Returns whether it has any of these.
    #[inline]
    const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    #[inline]
    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the flags without a completion.
    #[inline]
    pub(crate) const fn silent(self) -> Self {
        self.without(Self::SIGNALED)
    }

    /// Returns the flags as a control segment has them.
    pub(crate) const fn bits(self) -> FmCeSe {
        FmCeSe::from_bits(self.0 as u8)
    }

    /// Returns the fence mode.
    pub(crate) const fn fence_mode(self) -> u8 {
        self.bits().fm()
    }
}

/// The fields of a control segment, beside opcode and size.
#[derive(Clone, Copy)]
pub(crate) struct ControlFields {
    /// Where the first word of a control segment has it, see [`qpn_bits`].
    pub(crate) qpn: u64,
    /// The number of its first block.
    pub(crate) begin: u64,
    /// What the request asks for.
    pub(crate) flags: RequestFlags,
    /// What it gets beside: a completion, if each request of the queue does (`signal_all`), and a fence,
    /// unless it asks for one.
    pub(crate) default: RequestFlags,
}

impl ControlFields {
    /// Returns it for a work request that does not complete, also where all others do.
    #[inline]
    pub(crate) const fn silent(self) -> Self {
        Self { flags: self.flags.silent(), default: self.default.silent(), ..self }
    }
}

/// Returns the number of a queue pair where the first word of a control segment has it.
pub(crate) const fn qpn_bits(qpn: Qpn) -> u64 {
    (qpn.get() as u64) << 8
}

/// Writes a control segment: two words of 8 bytes, since the doorbell reads the first of them back. A core
/// passes a store on to a load only where the store has all bytes of the load; otherwise the load waits until
/// the store has reached the cache.
#[inline]
pub(crate) fn write(
    segment: &mut Octoword,
    opcode: Opcode,
    octowords: usize,
    fields: ControlFields,
    imm: u32,
) {
    let ControlFields { qpn, begin, flags, default } = fields;
    // See OpcodeWord, QpnDs and ControlSegment. Blocks count modulo 2^16, and a size has six bits.
    let first = u64::from(begin as u16) << 40 | u64::from(opcode.0) << 32 | qpn | octowords as u64;
    let second = u64::from(flags.with_default(default).0) << 32 | u64::from(imm);
    *segment = transmute!([U64::new(first), U64::new(second)]);
}

/// Returns the first dword of a NOP that begins at block number `begin`.
pub(crate) const fn nop_start(begin: u64) -> [u8; 4] {
    OpcodeWord::new().with_opcode(Opcode::NOP.0).with_wqe_index(begin as u16).into_bits().to_be_bytes()
}

/// Splits blocks into the work requests that they hold, each up to its size: after it the device does not
/// read its last block.
#[cfg(test)]
pub(crate) fn split_requests(blocks: &[u8]) -> std::vec::Vec<std::vec::Vec<u8>> {
    use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES};
    let (mut rest, mut requests) = (blocks, std::vec::Vec::new());
    while let Some(octowords) = rest.get(7) {
        let size = usize::from(*octowords) * OCTOWORD_BYTES;
        requests.push(rest[..size].to_vec());
        rest = &rest[size.next_multiple_of(WQEBB_BYTES)..];
    }
    requests
}
