//! Send requests that a device has read: what a completion says of them.

use mlx5_mkey::wire::ctrl::Opcode;

/// What a completion has to say about a send request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) counter: u16,
    pub(crate) blocks: u16,
    pub(crate) opcode: Opcode,
    /// Completion mode of the control segment.
    pub(crate) ce: u8,
}

impl Posted {
    /// The block behind it.
    pub(crate) const fn end(self) -> u16 {
        self.counter.wrapping_add(self.blocks)
    }
}

/// Whether a request carries its data to the peer and gets none back.
pub(crate) const fn pushes(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL | Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM
    )
}
