//! The version of the interface between driver and firmware (ISSI): a command that asks which versions the
//! firmware supports, and one that chooses a version.

use super::{Command, number_commands};
use crate::command::error::CommandError;
use crate::types::OutOfRange;
use crate::wire::prm::command::{NumberRequest, Opcode, RequestHeader};
use crate::wire::prm::function::QueryIssiReply;

/// A version of the interface between driver and firmware (ISSI, PRM `issi`).
///
/// ```
/// use mlx5_mkey::command::Issi;
/// assert_eq!(Issi::new(1)?, Issi::ONE);
/// assert!(Issi::new(32).is_err());
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Issi(u8);

impl Issi {
    /// ISSI 1, which Linux and rdma-core choose. The commands of this library have the format of ISSI 1.
    pub const ONE: Self = Self(1);

    /// Creates the value from the number of a version, at most 31.
    ///
    /// # Errors
    /// [`OutOfRange`] for a larger number.
    pub const fn new(version: u8) -> Result<Self, OutOfRange> {
        if version > 31 {
            return Err(OutOfRange { what: "ISSI", value: version as u64, min: 0, max: 31 });
        }
        Ok(Self(version))
    }

    /// Returns the number of the version.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }
}

number_commands! {
    /// The command that chooses the version of the interface between driver and firmware (SET_ISSI).
    SetIssi(Issi) = SET_ISSI;
}

/// The command that asks which ISSI versions the firmware supports (QUERY_ISSI).
///
/// ```
/// use mlx5_mkey::command::{Command, Issi, QueryIssi};
/// let mut reply = [0; QueryIssi::OUTPUT];
/// reply[0x6f] = 0b11;
/// assert!(QueryIssi.decode(&reply)?.knows(Issi::ONE));
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryIssi;

/// The reply to QUERY_ISSI: the ISSI version in force, and the versions that the firmware supports.
///
/// ```
/// use mlx5_mkey::command::{Issi, IssiInfo};
/// assert!(IssiInfo { current: 0, supported: 0b11 }.knows(Issi::ONE));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct IssiInfo {
    /// The ISSI version in force.
    pub current: u16,
    /// The ISSI versions that the firmware supports: bit n stands for version n.
    pub supported: u32,
}

impl IssiInfo {
    /// Returns whether the firmware supports a version.
    pub const fn knows(&self, version: Issi) -> bool {
        self.supported >> version.get() & 1 != 0
    }
}

impl Command for QueryIssi {
    const OPCODE: Opcode = Opcode::QUERY_ISSI;
    type Input = NumberRequest;
    type Output = QueryIssiReply;
    type Reply = IssiInfo;

    fn write(&self, input: &mut NumberRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
    }

    fn read(&self, output: &QueryIssiReply) -> Result<IssiInfo, CommandError> {
        Ok(IssiInfo { current: output.current_issi.get(), supported: output.supported_issi_dw0.get() })
    }
}
