//! Send requests that the device has read, with the fields for their completions.

use mlx5_mkey::wire::ctrl::Opcode;

/// The fields of a send request that its completion reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) counter: u16,
    pub(crate) blocks: u16,
    pub(crate) opcode: Opcode,
    /// Completion mode of the control segment.
    pub(crate) ce: u8,
}

impl Posted {
    /// Returns the number of the block after the request.
    pub(crate) const fn end(self) -> u16 {
        self.counter.wrapping_add(self.blocks)
    }
}

/// Returns whether a request sends data to the peer and gets no data back.
pub(crate) const fn pushes(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL | Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM
    )
}

/// Returns whether a request is a masked atomic.
pub(crate) const fn is_masked(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::ATOMIC_MASKED_CS | Opcode::ATOMIC_MASKED_FA)
}

/// Returns whether a request is an atomic, with or without masks.
pub(crate) const fn is_atomic(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::ATOMIC_CS | Opcode::ATOMIC_FA) || is_masked(opcode)
}

/// Returns whether a request sends a message to the peer.
pub(crate) const fn sends(opcode: Opcode) -> bool {
    pushes(opcode) || matches!(opcode, Opcode::RDMA_READ) || is_atomic(opcode)
}
