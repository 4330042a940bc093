//! Control segments (PRM `wqe_ctrl_seg`): the first 16 bytes of each request.

use crate::types::Qpn;
use crate::wire::ctrl::{FmCeSe, Opcode, OpcodeWord};
use crate::wire::{Block, Octoword};
use crate::wqe::error::PostError;
use zerocopy::big_endian::U64;
use zerocopy::transmute;

/// Fence, completion and event flags of a request (PRM `fm_ce_se`), at their place in the third dword of a
/// control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct RequestFlags(pub(crate) u32);

impl RequestFlags {
    /// No fence, no event, and a completion only after an error.
    pub(crate) const NONE: Self = Self::new(FmCeSe::new());
    /// Makes the request wait until earlier changes of mkeys are done (small fence). Some devices need
    /// [`RequestFlags::AFTER_UMR_STRONG`] instead.
    pub(crate) const AFTER_UMR: Self = Self::new(FmCeSe::new().with_fm(FmCeSe::FM_SMALL));
    /// Makes the request wait until all earlier requests are done (strong fence), for devices on which the
    /// small fence is not enough after a change of an mkey.
    pub(crate) const AFTER_UMR_STRONG: Self = Self::new(FmCeSe::new().with_fm(FmCeSe::FM_STRONG));
    /// Makes the request wait until earlier reads and atomics are done.
    pub(crate) const FENCED: Self = Self::new(FmCeSe::new().with_fm(FmCeSe::FM_FENCE));
    /// Asks for a completion of the request.
    pub(crate) const SIGNALED: Self = Self::new(FmCeSe::new().with_ce(FmCeSe::CE_ALWAYS));
    /// Raises a solicited event at the receiver.
    pub(crate) const SOLICITED: Self = Self::new(FmCeSe::new().with_solicited(true));

    const FENCES: Self = Self::new(FmCeSe::new().with_fm(0b111));

    const fn new(flags: FmCeSe) -> Self {
        Self(flags.into_bits() as u32)
    }

    /// Returns the union of both sets of flags.
    #[inline]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the union of both sets of flags. If both have a fence, the fence of `self` stays.
    #[inline]
    pub(crate) const fn with_default(self, default: Self) -> Self {
        let own_fence = self.0 & Self::FENCES.0 != 0;
        Self(self.0 | if own_fence { default.0 & !Self::FENCES.0 } else { default.0 })
    }

    /// Returns the flags without the one that asks for a completion.
    #[inline]
    pub(crate) const fn silent(self) -> Self {
        Self(self.0 & !Self::SIGNALED.0)
    }

    /// Returns the flags as the byte of a control segment.
    pub(crate) const fn bits(self) -> FmCeSe {
        FmCeSe::from_bits(self.0 as u8)
    }

    /// Returns the fence mode, such as [`FmCeSe::FM_SMALL`].
    pub(crate) const fn fence_mode(self) -> u8 {
        self.bits().fm()
    }
}

/// The fields of a control segment, without opcode and size.
#[derive(Clone, Copy)]
pub(crate) struct ControlFields {
    /// Number of the queue pair, shifted to its place in the first 8 bytes of a control segment, see
    /// [`qpn_bits`].
    pub(crate) qpn: u64,
    /// Number of the request's first block.
    pub(crate) begin: u64,
    /// Flags of the request and of its queue.
    pub(crate) flags: RequestFlags,
    /// Flags of the last SET_PSV after a configuration, which carries the configuration's completion. The
    /// flags of `always` are not yet among them.
    pub(crate) set_psv: RequestFlags,
    /// Asks for a completion if each request of the queue gets one (`signal_all`), otherwise empty.
    pub(crate) always: RequestFlags,
    /// Number of SET_PSVs after the request. Only a configuration has any.
    pub(crate) psvs: usize,
}

/// A request that a queue can post.
// This is a trait instead of a closure, because the compiler may call a closure instead of inlining it. With
// these calls, an RDMA WRITE takes twice as many instructions on x86-64.
pub(crate) trait Request {
    /// Writes the request into `blocks`. The caller has reserved exactly as many blocks as the request takes.
    ///
    /// # Errors
    /// The reason why the request can never be posted.
    fn write(&mut self, blocks: &mut [Block], fields: ControlFields) -> Result<(), PostError>;
}

impl<W: FnMut(&mut [Block], ControlFields) -> Result<(), PostError>> Request for W {
    fn write(&mut self, blocks: &mut [Block], fields: ControlFields) -> Result<(), PostError> {
        self(blocks, fields)
    }
}

/// Returns the number of a queue pair, shifted to its place in the first 8 bytes of a control segment.
pub(crate) const fn qpn_bits(qpn: Qpn) -> u64 {
    (qpn.get() as u64) << 8
}

/// Writes a control segment as two words of 8 bytes, because the code that rings the doorbell soon loads the
/// first word again. A CPU core forwards a store to a load only if the store covers all bytes of the load.
/// After several smaller stores, this load would wait until they have reached the cache.
#[inline]
pub(crate) fn write(
    segment: &mut Octoword,
    opcode: Opcode,
    octowords: usize,
    fields: ControlFields,
    imm: u32,
) {
    let ControlFields { qpn, begin, flags, .. } = fields;
    // The two words hold the fields of OpcodeWord, QpnDs and ControlSegment. Block numbers count modulo 2^16;
    // a size has 6 bits.
    let first = u64::from(begin as u16) << 40 | u64::from(opcode.0) << 32 | qpn | octowords as u64;
    let second = u64::from(flags.0) << 32 | u64::from(imm);
    *segment = transmute!([U64::new(first), U64::new(second)]);
}

/// Returns the number of the first block, modulo 2^16, from the first 8 bytes of a work request.
pub(crate) const fn begin([_, high, low, ..]: [u8; 8]) -> u16 {
    u16::from_be_bytes([high, low])
}

/// Returns the first 4 bytes of a NOP that begins at block number `begin`.
pub(crate) const fn nop_start(begin: u64) -> [u8; 4] {
    OpcodeWord::new().with_opcode(Opcode::NOP.0).with_wqe_index(begin as u16).into_bits().to_be_bytes()
}

/// Splits blocks into the work requests that they hold. Each request ends where its size says, because the
/// device ignores the rest of the last block.
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
