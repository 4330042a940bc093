//! The transitions of a queue pair that MODIFY_QP makes: Linux's table of states and attributes
//! (`ib_modify_qp_is_ok`, `optab` of mlx5_ib).

use crate::ground::abi::ModifyQp;
use crate::ground::errno::Errno;
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
    pub(in super::super) const ALTERNATE: u32 = 1 << 14;
    pub(in super::super) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(in super::super) const SQ_PSN: u32 = 1 << 16;
    pub(in super::super) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(in super::super) const MIGRATION: u32 = 1 << 18;
    pub(in super::super) const DESTINATION: u32 = 1 << 20;
    /// The attributes that MODIFY_QP knows (`IB_QP_ATTR_STANDARD_BITS`).
    pub(in super::super) const KNOWN: u32 = (1 << 21) - 1;
    /// The attribute that only the extended MODIFY_QP knows.
    pub(in super::super) const RATE_LIMIT: u32 = 1 << 25;
}

/// The attributes that a transition needs, and the attributes that it may have in addition.
type Attributes = (u32, u32);

/// A transition: old state, new state, and the attributes for each kind of queue pair: reliable connection,
/// unreliable connection, datagrams.
type Step = (QpState, QpState, [Attributes; 3]);

const INITIAL: u32 = mask::PKEY | mask::PORT | mask::ACCESS;
const INITIAL_DATAGRAM: u32 = mask::PKEY | mask::PORT | mask::QKEY;
const PEER: u32 = mask::ADDRESS | mask::MTU | mask::DESTINATION | mask::RQ_PSN;
const LATE_RIGHTS: u32 = mask::ALTERNATE | mask::ACCESS | mask::PKEY;
const SENDING: u32 = mask::CURRENT_STATE | mask::ALTERNATE | mask::ACCESS | mask::MIGRATION;
const SENDING_DATAGRAM: u32 = mask::CURRENT_STATE | mask::QKEY;

/// The attributes of transitions from one sending state (RTS, SQD, SQE) to another.
const BETWEEN: [Attributes; 3] = [(0, SENDING | mask::MIN_RNR_TIMER), (0, SENDING), (0, SENDING_DATAGRAM)];

/// The transitions to all states but RESET and ERR. InfiniBand also has the transitions RTS to SQD and SQD to
/// SQD, for which mlx5_ib has no command.
const STEPS: &[Step] = &[
    (QpState::Reset, QpState::Init, [(INITIAL, 0), (INITIAL, 0), (INITIAL_DATAGRAM, 0)]),
    (QpState::Init, QpState::Init, [(0, INITIAL), (0, INITIAL), (0, INITIAL_DATAGRAM)]),
    (
        QpState::Init,
        QpState::ReadyToReceive,
        [
            (PEER | mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER, LATE_RIGHTS),
            (PEER, LATE_RIGHTS),
            (0, mask::PKEY | mask::QKEY),
        ],
    ),
    (
        QpState::ReadyToReceive,
        QpState::ReadyToSend,
        [
            (
                mask::TIMEOUT | mask::RETRIES | mask::RNR_RETRIES | mask::SQ_PSN | mask::MAX_RD_ATOMIC,
                SENDING | mask::MIN_RNR_TIMER,
            ),
            (mask::SQ_PSN, SENDING),
            (mask::SQ_PSN, SENDING_DATAGRAM),
        ],
    ),
    (QpState::ReadyToSend, QpState::ReadyToSend, BETWEEN),
    (QpState::SendQueueDrained, QpState::ReadyToSend, BETWEEN),
    (
        QpState::SendQueueError,
        QpState::ReadyToSend,
        [(0, 0), (0, mask::CURRENT_STATE | mask::ACCESS), (0, SENDING_DATAGRAM)],
    ),
];

/// Returns whether Linux allows a transition from one state to another with the attributes `asked`.
pub(super) fn is_allowed(asked: u32, transport: Transport, from: QpState, to: QpState) -> bool {
    let kind = match transport {
        // Only the kernel makes queue pairs of the kind `Umr`.
        Transport::ReliableConnection | Transport::Umr => 0,
        Transport::UnreliableConnection => 1,
        Transport::UnreliableDatagram => 2,
    };
    let attributes = match (from, to) {
        (_, QpState::Reset) => Some((0, 0)),
        (QpState::Reset, QpState::Error) => None,
        (_, QpState::Error) => Some((0, 0)),
        _ => STEPS
            .iter()
            .find(|(first, second, _)| (*first, *second) == (from, to))
            .and_then(|(.., kinds)| kinds.get(kind).copied()),
    };
    attributes.is_some_and(|(needed, taken)| {
        asked & needed == needed && asked & !(needed | taken | mask::STATE) == 0
    })
}

/// Checks the values of a call's attributes, apart from states and from the path to the peer. `most_reads` is
/// the largest number of RDMA READs and atomics in flight that the device supports.
///
/// # Errors
/// The errno with which the kernel refuses the call.
pub(super) fn check_values(asked: &ModifyQp, most_reads: u32) -> Result<(), Errno> {
    const MTU_256: u8 = 1;
    const MTU_4096: u8 = 5;
    let (has, values) = (|bit: u32| asked.mask & bit != 0, asked.values);
    let is_bad = has(mask::PORT) && values.port != 1
        || has(mask::PKEY) && values.pkey_index != 0
        || has(mask::MTU) && !(MTU_256..=MTU_4096).contains(&values.path_mtu)
        || has(mask::MAX_RD_ATOMIC) && u32::from(values.max_rd_atomic) > most_reads
        || has(mask::MAX_DEST_RD_ATOMIC) && u32::from(values.max_dest_rd_atomic) > most_reads
        // A RoCE port has no alternate paths (`_ib_modify_qp`).
        || has(mask::ALTERNATE);
    if is_bad { Err(Errno::INVAL) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attributes that programs set for the changes to INIT, RTR and RTS, by the kind of queue pair
    /// (`libibverbs/examples`).
    const WAYS: &[(Transport, [u32; 3])] = &[
        (Transport::ReliableConnection, [0x39, 0x12_9181, 0x1_2e01]),
        (Transport::UnreliableConnection, [0x39, 0x10_1181, 0x1_0001]),
        (Transport::UnreliableDatagram, [0x71, 0x1, 0x1_0001]),
    ];

    #[test]
    fn each_kind_goes_its_own_way() {
        for (transport, way) in WAYS {
            for (step, asked) in QpState::ALL.windows(2).zip(way) {
                let &[from, to] = step else { continue };
                let allowed = |asked| is_allowed(asked, *transport, from, to);
                assert!(allowed(*asked), "{transport:?} to {to:?}");
                for bit in (1..u32::BITS).map(|bit| 1 << bit).filter(|bit| asked & bit != 0) {
                    assert!(!allowed(asked & !bit), "{transport:?} to {to:?} without {bit:#x}");
                }
            }
        }
    }

    /// The masks of the kernel's table (`qp_state_table` of 6.1), written as numbers.
    #[test]
    fn the_masks_are_those_of_linux() {
        use QpState::{
            Init, ReadyToReceive as Rtr, ReadyToSend as Rts, Reset, SendQueueDrained, SendQueueError,
        };
        let expected: &[Step] = &[
            (Reset, Init, [(0x38, 0), (0x38, 0), (0x70, 0)]),
            (Init, Init, [(0, 0x38), (0, 0x38), (0, 0x70)]),
            (Init, Rtr, [(0x12_9180, 0x4018), (0x10_1180, 0x4018), (0, 0x50)]),
            (Rtr, Rts, [(0x1_2e00, 0x4_c00a), (0x1_0000, 0x4_400a), (0x1_0000, 0x42)]),
            (Rts, Rts, [(0, 0x4_c00a), (0, 0x4_400a), (0, 0x42)]),
            (SendQueueDrained, Rts, [(0, 0x4_c00a), (0, 0x4_400a), (0, 0x42)]),
            (SendQueueError, Rts, [(0, 0), (0, 0xa), (0, 0x42)]),
        ];
        assert_eq!(STEPS, expected);
    }

    #[test]
    fn other_steps_and_attributes_are_refused() {
        let rc = Transport::ReliableConnection;
        let steps = |asked| {
            let allowed =
                |from: &QpState| QpState::ALL.iter().filter(|to| is_allowed(asked, rc, *from, **to)).count();
            QpState::ALL.iter().map(allowed).collect::<Vec<_>>()
        };
        // Without attributes, these transitions are allowed: to RESET from each state, to ERR from each state
        // but RESET, INIT to INIT, and to RTS from the three sending states.
        assert_eq!(steps(mask::STATE), [1, 3, 2, 3, 3, 3, 2]);
        // With access rights, these transitions are allowed: INIT to INIT, and RTS or SQD to RTS. A
        // transition to RESET or ERR may have no access rights.
        assert_eq!(steps(mask::STATE | mask::ACCESS), [0, 1, 0, 1, 1, 0, 0]);
        assert_eq!(steps(mask::STATE | mask::SQD_NOTIFY), [0; 7]);
        assert_eq!(steps(mask::STATE | mask::RATE_LIMIT), [0; 7]);
    }
}
