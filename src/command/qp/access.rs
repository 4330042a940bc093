//! The peer's rights on a queue pair: RDMA READ, RDMA WRITE, atomics.

use crate::command::GeneralCapabilities;
use crate::command::error::CommandError;
use crate::wire::prm::command::Opcode;
use crate::wire::prm::qp_context::QpcRights;

/// The operations that a queue pair allows its peer. The mkey decides which memory the peer may access.
///
/// ```
/// use mlx5_mkey::command::{QpAccess, Rst2Init};
/// use mlx5_mkey::types::Qpn;
/// let access = QpAccess { remote_atomic: true, ..QpAccess::READ_WRITE };
/// let command = Rst2Init { qp: Qpn::new(0x11)?, port: 1, pkey_index: 0, access };
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QpAccess {
    /// The peer may RDMA READ.
    pub remote_read: bool,
    /// The peer may RDMA WRITE.
    pub remote_write: bool,
    /// The peer may use the atomics of the InfiniBand specification (`MLX5_ATOMIC_MODE_IB_COMP` of the
    /// kernel). Assumption: this mode is right for queue pairs of user programs too; not yet checked on a
    /// real device.
    pub remote_atomic: bool,
    /// If the peer may use atomics, it may also use masked ones, of 4 and of 8 bytes (`MLX5_ATOMIC_MODE_8B`
    /// of the kernel, which Linux and UCX choose on all devices with
    /// [`AtomicCapabilities::masked`](crate::command::AtomicCapabilities::masked)).
    pub masked_atomic: bool,
}

impl QpAccess {
    /// The peer may RDMA READ and RDMA WRITE.
    pub const READ_WRITE: Self =
        Self { remote_read: true, remote_write: true, remote_atomic: false, masked_atomic: false };

    /// Checks that the device supports the rights.
    ///
    /// # Errors
    /// [`CommandError::Unsupported`] for atomics on a device without atomics
    /// ([`GeneralCapabilities::atomic`]).
    pub const fn check(self, device: &GeneralCapabilities) -> Result<(), CommandError> {
        if self.remote_atomic && !device.atomic {
            return Err(CommandError::Unsupported { command: Opcode::RST2INIT_QP, what: "atomics" });
        }
        Ok(())
    }

    pub(super) const fn to_wire(self) -> QpcRights {
        QpcRights::new()
            .with_rre(self.remote_read)
            .with_rwe(self.remote_write)
            .with_rae(self.remote_atomic)
            .with_atomic_mode(match (self.remote_atomic, self.masked_atomic) {
                (false, _) => 0,
                (true, false) => QpcRights::ATOMIC_MODE_IB,
                (true, true) => QpcRights::ATOMIC_MODE_8_BYTES,
            })
    }
}
