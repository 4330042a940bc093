//! The command that asks for the device's capabilities of atomics, and its reply.

use super::Command;
use crate::command::error::CommandError;
use crate::wire::prm::atomic_capabilities::{AtomicCapabilityBits, AtomicOperations, AtomicOrder};
use crate::wire::prm::command::{Opcode, RequestHeader};
use crate::wire::prm::query_hca_cap::{ATOMIC, CURRENT, QueryHcaCapReply, QueryHcaCapRequest};

/// The device's capabilities of atomics (PRM `atomic_caps`).
///
/// ```
/// use mlx5_mkey::command::{AtomicCapabilities, PeerAtomics, QpAccess};
/// /// Returns the rights of the peer: all that the device has.
/// fn rights(device: &AtomicCapabilities) -> QpAccess {
///     let atomics = if device.masked { PeerAtomics::Masked } else { PeerAtomics::Plain };
///     QpAccess { atomics, ..QpAccess::READ_WRITE }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct AtomicCapabilities {
    /// Reliable connections support both masked atomics (compare-and-swap, fetch-and-add), of 4 and of 8
    /// bytes ([`SendRequest::masked_atomic`](crate::queue::SendRequest::masked_atomic)).
    pub masked: bool,
    /// Whether the device returns old values of 8 bytes in the host's byte order. If false, it returns them
    /// in big endian. It always returns old values of 4 bytes in big endian (UCX `ext_atomic_arg_sizes_be`).
    pub host_order: bool,
}

impl AtomicCapabilities {
    /// Creates the value from the words of the device's reply.
    pub fn from_wire(bits: &AtomicCapabilityBits) -> Self {
        const LENGTHS: u16 = 4 | 8;
        let operations = AtomicOperations::from_bits(bits.operations.get());
        let both = operations.masked_compare_swap() && operations.masked_fetch_add();
        Self {
            masked: both && bits.size_qp.get() & LENGTHS == LENGTHS,
            host_order: AtomicOrder::from_bits(bits.order.get()).req_8b_endianness_mode() == 1,
        }
    }
}

/// The command that asks for the current capabilities of atomics (QUERY_HCA_CAP, atomic). It is meant for
/// devices with [`super::GeneralCapabilities::atomic`] only.
///
/// ```
/// use mlx5_mkey::command::{Command, QueryAtomicCapabilities};
/// let mut mailbox = [0; 16];
/// let request = QueryAtomicCapabilities.encode(&mut mailbox)?;
/// assert_eq!(request[..8], [0x01, 0x00, 0, 0, 0, 0, 0, 0x07]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryAtomicCapabilities;

impl Command for QueryAtomicCapabilities {
    const OPCODE: Opcode = Opcode::QUERY_HCA_CAP;
    type Input = QueryHcaCapRequest;
    type Output = QueryHcaCapReply;
    type Reply = AtomicCapabilities;

    fn write(&self, input: &mut QueryHcaCapRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.header.op_mod.set(ATOMIC | CURRENT);
    }

    fn read(&self, output: &QueryHcaCapReply) -> Result<AtomicCapabilities, CommandError> {
        Ok(AtomicCapabilities::from_wire(zerocopy::transmute_ref!(&output.known)))
    }
}
