//! The peer's rights on a queue pair: RDMA READ, RDMA WRITE, atomics.

use crate::command::error::CommandError;
use crate::command::{AtomicCapabilities, GeneralCapabilities};
use crate::wire::prm::command::Opcode;
use crate::wire::prm::qp_context::QpcRights;

/// The atomics that a queue pair allows its peer.
///
/// ```
/// use mlx5_mkey::command::{PeerAtomics, QpAccess};
/// assert_eq!(QpAccess::READ_WRITE.atomics, PeerAtomics::None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum PeerAtomics {
    /// No atomics.
    #[default]
    None,
    /// The atomics of the InfiniBand specification (`MLX5_ATOMIC_MODE_IB_COMP` of the kernel). Assumption:
    /// this mode is right for queue pairs of user programs too; not yet checked on a real device.
    Plain,
    /// The atomics of [`PeerAtomics::Plain`], and masked atomics of 4 and of 8 bytes (`MLX5_ATOMIC_MODE_8B`
    /// of the kernel, as UCX sets it).
    Masked,
}

/// The operations that a queue pair allows its peer. The mkey decides which memory the peer may access.
///
/// ```
/// use mlx5_mkey::command::{PeerAtomics, QpAccess, Rst2Init};
/// use mlx5_mkey::types::Qpn;
/// let access = QpAccess { atomics: PeerAtomics::Plain, ..QpAccess::READ_WRITE };
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
    /// The atomics that the peer may use.
    pub atomics: PeerAtomics,
}

impl QpAccess {
    /// The peer may RDMA READ and RDMA WRITE.
    pub const READ_WRITE: Self = Self { remote_read: true, remote_write: true, atomics: PeerAtomics::None };

    /// Checks that the device supports the rights. `atomics` are the device's capabilities of atomics. Pass
    /// `None` for a device without atomics, or if you have not asked the device for them: the function then
    /// refuses masked atomics.
    ///
    /// # Errors
    /// [`CommandError::Unsupported`] for atomics that the device lacks ([`GeneralCapabilities::atomic`],
    /// [`AtomicCapabilities::masked`]).
    pub const fn check(
        self,
        device: &GeneralCapabilities,
        atomics: Option<&AtomicCapabilities>,
    ) -> Result<(), CommandError> {
        let what = match self.atomics {
            PeerAtomics::Plain | PeerAtomics::Masked if !device.atomic => "atomics",
            PeerAtomics::Masked if !matches!(atomics, Some(AtomicCapabilities { masked: true, .. })) => {
                "masked atomics"
            }
            _ => return Ok(()),
        };
        Err(CommandError::Unsupported { command: Opcode::RST2INIT_QP, what })
    }

    pub(super) const fn to_wire(self) -> QpcRights {
        let (allowed, mode) = match self.atomics {
            PeerAtomics::None => (false, 0),
            PeerAtomics::Plain => (true, QpcRights::ATOMIC_MODE_IB),
            PeerAtomics::Masked => (true, QpcRights::ATOMIC_MODE_8_BYTES),
        };
        let rights = QpcRights::new().with_rre(self.remote_read).with_rwe(self.remote_write);
        rights.with_rae(allowed).with_atomic_mode(mode)
    }

    pub(super) const fn from_wire(rights: QpcRights) -> Self {
        Self {
            remote_read: rights.rre(),
            remote_write: rights.rwe(),
            atomics: match (rights.rae(), rights.atomic_mode()) {
                (false, _) => PeerAtomics::None,
                (true, ..QpcRights::ATOMIC_MODE_8_BYTES) => PeerAtomics::Plain,
                (true, _) => PeerAtomics::Masked,
            },
        }
    }
}
