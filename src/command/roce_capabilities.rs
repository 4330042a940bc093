//! The RoCE capabilities of the device, among them the time stamps that queue pairs can have.

use super::{Command, TimestampFormat};
use crate::command::error::CommandError;
use crate::wire::codes::codes;
use crate::wire::prm::command::{Opcode, RequestHeader};
use crate::wire::prm::query_hca_cap::{CURRENT, QueryHcaCapReply, QueryHcaCapRequest, ROCE};
use crate::wire::prm::roce_capabilities::{RoceCapabilityBits, RoceFlags};

codes! {
    /// The formats of time stamps that queue pairs can have (PRM `qp_ts_format`, `sq_ts_format`; kernel
    /// `MLX5_TIMESTAMP_FORMAT_CAP_*`). The type can also hold codes without a name, because a reply may
    /// contain any code.
    TimestampSupport(u8), "time stamp formats {:#x}";

    /// Queue pairs can have time stamps of the free-running clock only.
    FREE_RUNNING = 0, "free-running";
    /// Queue pairs can have time stamps in real time only.
    REAL_TIME = 1, "real time";
    /// Queue pairs can have time stamps of either format.
    BOTH = 2, "free-running and real time";
}

impl TimestampSupport {
    /// Returns whether a queue pair can have this format. Every queue pair can have the device's preferred
    /// format ([`TimestampFormat::DeviceDefault`]), which is the only format that UCX uses.
    pub const fn supports(self, format: TimestampFormat) -> bool {
        match format {
            TimestampFormat::DeviceDefault => true,
            TimestampFormat::FreeRunning => matches!(self, Self::FREE_RUNNING | Self::BOTH),
            TimestampFormat::RealTime => matches!(self, Self::REAL_TIME | Self::BOTH),
        }
    }

    /// Returns the format for users without a preference: the free-running clock if the device supports it,
    /// otherwise the device's preferred format (kernel `get_ts_format`). Without this check, a device that
    /// supports real time only would refuse queue pairs that ask for the free-running clock.
    ///
    /// ```
    /// use mlx5_mkey::command::{TimestampFormat, TimestampSupport};
    /// assert_eq!(TimestampSupport::BOTH.usual_format(), TimestampFormat::FreeRunning);
    /// assert_eq!(TimestampSupport::REAL_TIME.usual_format(), TimestampFormat::DeviceDefault);
    /// ```
    pub const fn usual_format(self) -> TimestampFormat {
        if self.supports(TimestampFormat::FreeRunning) {
            TimestampFormat::FreeRunning
        } else {
            TimestampFormat::DeviceDefault
        }
    }
}

/// RoCE capabilities (PRM `roce_cap`).
///
/// ```
/// use mlx5_mkey::command::{RoceCapabilities, TimestampFormat};
/// /// Returns the time stamps for a new queue pair.
/// fn timestamps(device: &RoceCapabilities) -> TimestampFormat {
///     device.timestamps.usual_format()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RoceCapabilities {
    /// The formats of time stamps that queue pairs can have.
    pub timestamps: TimestampSupport,
    /// Queue pairs of reliable connections can connect to queue pairs of the same device while RoCE is on
    /// ([`super::Path::Loopback`]).
    pub loopback_with_roce: bool,
    /// Queue pairs of reliable connections can connect to queue pairs of the same device while RoCE is off.
    pub loopback_without_roce: bool,
    /// The lowest UDP source port of RoCE v2; 0 if the device does not report it.
    pub min_udp_source_port: u16,
    /// The highest UDP source port of RoCE v2.
    pub max_udp_source_port: u16,
}

impl RoceCapabilities {
    /// Creates the value from the words of the device's reply.
    pub fn from_wire(bits: &RoceCapabilityBits) -> Self {
        let flags = RoceFlags::from_bits(bits.flags.get());
        Self {
            timestamps: TimestampSupport(flags.qp_ts_format()),
            loopback_with_roce: flags.fl_rc_qp_when_roce_enabled(),
            loopback_without_roce: flags.fl_rc_qp_when_roce_disabled(),
            min_udp_source_port: bits.min_src_udp_port.get(),
            max_udp_source_port: bits.max_src_udp_port.get(),
        }
    }
}

/// The command that asks for the current RoCE capabilities (QUERY_HCA_CAP, RoCE). It is meant for devices
/// with [`super::GeneralCapabilities::roce`] only.
///
/// ```
/// use mlx5_mkey::command::{Command, QueryRoceCapabilities};
/// let mut mailbox = [0; 16];
/// let request = QueryRoceCapabilities.encode(&mut mailbox)?;
/// assert_eq!(request[..8], [0x01, 0x00, 0, 0, 0, 0, 0, 0x09]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryRoceCapabilities;

impl Command for QueryRoceCapabilities {
    const OPCODE: Opcode = Opcode::QUERY_HCA_CAP;
    type Input = QueryHcaCapRequest;
    type Output = QueryHcaCapReply;
    type Reply = RoceCapabilities;

    fn write(&self, input: &mut QueryHcaCapRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.header.op_mod.set(ROCE | CURRENT);
    }

    fn read(&self, output: &QueryHcaCapReply) -> Result<RoceCapabilities, CommandError> {
        Ok(RoceCapabilities::from_wire(zerocopy::transmute_ref!(&output.known)))
    }
}
