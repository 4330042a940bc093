//! The states of a queue pair, and the attributes that each change of state needs.

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
    pub(in super::super) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(in super::super) const SQ_PSN: u32 = 1 << 16;
    pub(in super::super) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(in super::super) const DESTINATION: u32 = 1 << 20;
    pub(in super::super) const KNOWN: u32 = (1 << 21) - 1;

    /// The attributes that only queue pairs with one connected peer have.
    pub(in super::super) const OF_CONNECTIONS: u32 = ADDRESS | MTU | DESTINATION | RQ_PSN;

    /// The attributes that only reliable queue pairs have: their requests get answers.
    pub(in super::super) const OF_ANSWERS: u32 =
        TIMEOUT | RETRIES | RNR_RETRIES | MAX_RD_ATOMIC | MIN_RNR_TIMER | MAX_DEST_RD_ATOMIC;
}

/// The attributes that each change of state needs: old state, new state, attributes. A kind of queue pair
/// needs only those that it has (InfiniBand, table 91 ff.).
const STEPS: &[(QpState, QpState, u32)] = &[
    (QpState::Reset, QpState::Init, mask::PKEY | mask::PORT | mask::ACCESS | mask::QKEY),
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

/// Checks the attributes of a call, as far as the check does not depend on the queue pair's state. `gids` is
/// the number of GIDs of the port.
///
/// # Errors
/// The errno with which the kernel refuses the call.
pub(super) fn check(asked: &ModifyQp, transport: Transport, gids: usize) -> Result<(), Errno> {
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
        && (asked.destination.is_global == 0 || usize::from(asked.destination.source_gid_index) < gids);
    if has(mask::ADDRESS) && !address_is_good { Err(Errno::INVAL) } else { Ok(()) }
}

/// Returns the attributes that queue pairs of a kind lack.
const fn foreign(transport: Transport) -> u32 {
    match transport {
        // Only the kernel makes queue pairs of the kind `Umr`.
        Transport::ReliableConnection | Transport::Umr => mask::QKEY,
        Transport::UnreliableConnection => mask::QKEY | mask::OF_ANSWERS,
        Transport::UnreliableDatagram => mask::ACCESS | mask::OF_CONNECTIONS | mask::OF_ANSWERS,
    }
}

/// Returns whether `asked` has all attributes that the change of state needs.
pub(super) fn is_complete(asked: u32, transport: Transport, from: QpState, to: QpState) -> bool {
    let needed = STEPS.iter().find(|(first, second, _)| (*first, *second) == (from, to));
    needed.is_none_or(|(_, _, needed)| !asked & needed & !foreign(transport) == 0)
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
        let states = [QpState::Reset, QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend];
        for (transport, way) in WAYS {
            for (step, asked) in states.windows(2).zip(way) {
                let &[from, to] = step else { continue };
                let complete = |asked| is_complete(asked, *transport, from, to);
                assert!(complete(*asked), "{transport:?} to {to:?}");
                for bit in (1..u32::BITS).map(|bit| 1 << bit).filter(|bit| asked & bit != 0) {
                    assert!(!complete(asked & !bit), "{transport:?} to {to:?} without {bit:#x}");
                }
            }
        }
    }

    #[test]
    fn what_a_kind_does_not_have_is_refused() {
        let asked = |mask| {
            let mut asked = ModifyQp { mask, port: 1, ..ModifyQp::default() };
            asked.destination.port = 1;
            asked
        };
        for (transport, own) in WAYS {
            for mask in WAYS.iter().flat_map(|(_, way)| way) {
                let foreign = mask & !own.iter().fold(0, |all, one| all | one) != 0;
                let expected = if foreign { Err(Errno::INVAL) } else { Ok(()) };
                assert_eq!(check(&asked(*mask), *transport, 2), expected, "{transport:?} {mask:#x}");
            }
            assert_eq!(check(&asked(1 << 21), *transport, 2), Err(Errno::OPNOTSUPP));
        }
    }
}
