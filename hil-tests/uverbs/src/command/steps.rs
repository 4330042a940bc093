//! The way of a queue pair through its states: what each step needs to be told.

use crate::abi::ModifyQp;
use crate::errno::Errno;
use mlx5_softdev::{QpState, Transport};

/// Bits of `attr_mask` (`enum ib_qp_attr_mask`).
pub(super) mod mask {
    pub(in super::super) const STATE: u32 = 1;
    pub(in super::super) const CURRENT_STATE: u32 = 1 << 1;
    pub(in super::super) const SQD_NOTIFY: u32 = 1 << 2;
    pub(in super::super) const ACCESS: u32 = 1 << 3;
    pub(in super::super) const PKEY: u32 = 1 << 4;
    pub(in super::super) const PORT: u32 = 1 << 5;
    pub(in super::super) const QKEY: u32 = 1 << 6;
    pub(in super::super) const ADDRESS: u32 = 1 << 7;
    pub(in super::super) const MTU: u32 = 1 << 8;
    pub(in super::super) const TIMEOUT: u32 = 1 << 9;
    pub(in super::super) const RETRIES: u32 = 1 << 10;
    pub(in super::super) const RNR_RETRIES: u32 = 1 << 11;
    pub(in super::super) const RQ_PSN: u32 = 1 << 12;
    pub(in super::super) const MAX_RD_ATOMIC: u32 = 1 << 13;
    pub(in super::super) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(in super::super) const SQ_PSN: u32 = 1 << 16;
    pub(in super::super) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(in super::super) const DESTINATION: u32 = 1 << 20;
    pub(in super::super) const KNOWN: u32 = (1 << 21) - 1;

    /// What only requests with answers have.
    pub(in super::super) const OF_ANSWERS: u32 =
        TIMEOUT | RETRIES | RNR_RETRIES | MAX_RD_ATOMIC | MIN_RNR_TIMER | MAX_DEST_RD_ATOMIC;
}

/// What each step of a connection needs (InfiniBand, table 91 ff.).
const STEPS: &[(QpState, QpState, u32)] = &[
    (QpState::Reset, QpState::Init, mask::PKEY | mask::PORT | mask::ACCESS),
    (
        QpState::Init,
        QpState::ReadyToReceive,
        mask::ADDRESS
            | mask::MTU
            | mask::DESTINATION
            | mask::RQ_PSN
            | mask::MAX_DEST_RD_ATOMIC
            | mask::MIN_RNR_TIMER,
    ),
    (
        QpState::ReadyToReceive,
        QpState::ReadyToSend,
        mask::TIMEOUT | mask::RETRIES | mask::RNR_RETRIES | mask::SQ_PSN | mask::MAX_RD_ATOMIC,
    ),
];

/// Checks what is asked of a queue pair by itself, whatever its state.
///
/// # Errors
/// As the kernel.
pub(super) fn check(asked: &ModifyQp, transport: Transport) -> Result<(), Errno> {
    if asked.mask & !mask::KNOWN != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let has = |bit: u32| asked.mask & bit != 0;
    if has(foreign(transport))
        || has(mask::PORT) && asked.port != 1
        || has(mask::PKEY) && asked.pkey_index != 0
    {
        return Err(Errno::INVAL);
    }
    let address_is_good = asked.destination.port == 1
        && (asked.destination.is_global == 0 || asked.destination.source_gid_index == 0);
    if has(mask::ADDRESS) && !address_is_good { Err(Errno::INVAL) } else { Ok(()) }
}

/// What queue pairs of a kind do not have.
const fn foreign(transport: Transport) -> u32 {
    match transport {
        Transport::ReliableConnection => mask::QKEY,
        Transport::UnreliableConnection => mask::QKEY | mask::OF_ANSWERS,
    }
}

/// Whether all is said that a step needs.
pub(super) fn is_complete(asked: u32, transport: Transport, from: QpState, to: QpState) -> bool {
    let needed = STEPS.iter().find(|(first, second, _)| (*first, *second) == (from, to));
    needed.is_none_or(|(_, _, needed)| !asked & needed & !foreign(transport) == 0)
}
