//! Types for numbers in commands: numbers of objects, codes of timers, and sizes. Each type has a range of
//! values, and its constructor refuses others.

use crate::types::{OutOfRange, QueueError};
use crate::wire::data::DataSegment;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($inner:ident) = $what:literal, $max:literal;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::command::", stringify!($name), ";")]
        #[doc = concat!("assert_eq!(", stringify!($name), "::new(5)?.get(), 5);")]
        #[doc = concat!("assert!(", stringify!($name), "::new(", stringify!($max), " + 1).is_err());")]
        /// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name($inner);

        impl $name {
            /// The largest value.
            pub const MAX: Self = Self($max);

            #[doc = concat!("Takes a value up to ", stringify!($max), ".")]
            ///
            /// # Errors
            /// [`OutOfRange`] for a larger value.
            pub const fn new(value: $inner) -> Result<Self, OutOfRange> {
                if value > $max {
                    return Err(OutOfRange { what: $what, value: value as u64, min: 0, max: $max });
                }
                Ok(Self(value))
            }

            /// Returns the value.
            pub const fn get(self) -> $inner {
                self.0
            }
        }
    )+ };
}

numbers! {
    /// The number of a protection domain (PRM `pd`, 24 bits).
    Pdn(u32) = "protection domain number", 0xff_ffff;
    /// The number of a UAR page, which holds doorbell registers (PRM `uar_page`, 24 bits).
    UarPage(u32) = "UAR page number", 0xff_ffff;
    /// The number of an event queue (PRM `eqn`, 8 bits).
    Eqn(u32) = "event queue number", 0xff;
    /// A number that the program chooses for a queue pair, and that its completion entries contain (PRM
    /// `user_index`, 24 bits).
    UserIndex(u32) = "user index", 0xff_ffff;
    /// The number of a packet in a connection (PRM `next_send_psn`, `next_rcv_psn`, 24 bits).
    Psn(u32) = "packet number", 0xff_ffff;
    /// The number of a credential on the device (PRM `credential_pointer`, 24 bits).
    CredentialId(u32) = "credential id", 0xff_ffff;
    /// The number of an import key on the device (PRM `session_import_kek_ptr`, 24 bits).
    ImportKekId(u32) = "import KEK id", 0xff_ffff;
    /// The flow label of a path (PRM `flow_label`, 20 bits).
    FlowLabel(u32) = "flow label", 0xf_ffff;
    /// The code n of a time-out for acknowledgements: 4.096 us * 2^n, or no time-out for 0 (PRM
    /// `ack_timeout`, 5 bits).
    AckTimeout(u8) = "acknowledgement time-out", 31;
    /// How long a peer waits before a retry if it found no receive request, as a code of the InfiniBand
    /// specification: 1 is 0.01 ms, 12 is 0.64 ms, 0 is 655 ms (PRM `min_rnr_nak`, 5 bits).
    RnrTimer(u8) = "receiver-not-ready timer", 31;
    /// A number of retries (PRM `retry_count`, `rnr_retry`, 3 bits). For receiver-not-ready retries, 7 means
    /// no limit.
    Retries(u8) = "retries", 7;
    /// Base-2 logarithm of the largest number of RDMA READs and atomics in flight (PRM `log_sra_max`,
    /// `log_rra_max`, 3 bits).
    LogMaxRdAtomic(u8) = "logarithm of reads in flight", 7;
    /// Base-2 logarithm of the number of packets after which the sender asks for an acknowledgement (PRM
    /// `log_ack_req_freq`, 4 bits; drivers write 8 at most). With 0, each packet asks for one.
    LogAckInterval(u8) = "logarithm of packets for an acknowledgement", 8;
    /// Base-2 logarithm of the longest message in bytes (PRM `log_msg_max`, 5 bits).
    LogMessage(u8) = "logarithm of the message size", 31;
    /// InfiniBand service level (PRM `sl`) or Ethernet priority (PRM `eth_prio`). The Ethernet priority has 3
    /// bits, so this type has 3 bits for both.
    Priority(u8) = "priority", 7;
}

macro_rules! powers_of_two {
    ($($(#[$doc:meta])* $name:ident = $least:literal, $max:literal, $unit:literal;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::command::", stringify!($name), ";")]
        #[doc = concat!("assert_eq!(", stringify!($name), "::new(64)?.get(), 64);")]
        #[doc = concat!("assert!(", stringify!($name), "::new(100).is_err());")]
        /// # Ok::<(), mlx5_mkey::error::QueueError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(u8);

        impl $name {
            #[doc = concat!("Takes a number of ", $unit, ": a power of two from ")]
            #[doc = concat!(stringify!($least), " to ")]
            #[doc = concat!(stringify!($max), ".")]
            ///
            /// # Errors
            /// [`QueueError::Size`] for any other number.
            pub const fn new(count: u32) -> Result<Self, QueueError> {
                if !count.is_power_of_two() || count < $least || count > $max {
                    return Err(QueueError::Size { what: $unit, entries: count as usize, max: $max });
                }
                Ok(Self(count.trailing_zeros() as u8))
            }

            #[doc = concat!("Returns the number of ", $unit, ".")]
            pub const fn get(self) -> u32 {
                1 << self.0
            }

            /// Returns the base-2 logarithm of the number, as in the PRM's field.
            pub(super) const fn log(self) -> u8 {
                self.0
            }
        }
    )+ };
}

powers_of_two! {
    /// The number of entries of a completion queue (PRM `log_cq_size`). The limit of a device may be lower
    /// ([`GeneralCapabilities::log_max_cq_entries`](super::GeneralCapabilities::log_max_cq_entries)).
    CqSize = 1, 4194304, "entries of a completion queue";
    /// The number of entries of an event queue (PRM `log_eq_size`).
    EqSize = 1, 4194304, "entries of an event queue";
    /// The size of a send queue in blocks of 64 bytes (PRM `log_sq_size`).
    SendRingSize = 1, 32768, "blocks of a send queue";
    /// The number of receive requests that a receive queue holds (PRM `log_rq_size`).
    SlotCount = 1, 32768, "slots of a receive queue";
    /// The size of a receive request in the ring in bytes: 16 for each data segment (PRM `log_rq_stride`).
    SlotStride = 16, 2048, "bytes of a receive slot";
}

impl SlotStride {
    /// Returns the size of receive requests with `entries` data segments: a power of two from 1 to 128.
    ///
    /// # Errors
    /// [`QueueError::Size`] for any other number.
    pub const fn of_entries(entries: u32) -> Result<Self, QueueError> {
        const BYTES: u32 = size_of::<DataSegment>() as u32;
        match Self::new(entries.saturating_mul(BYTES)) {
            Ok(stride) => Ok(stride),
            Err(_) => {
                let (what, max) = ("entries of a receive slot", 2048 / BYTES as usize);
                Err(QueueError::Size { what, entries: entries as usize, max })
            }
        }
    }
}

impl UarPage {
    /// Returns the offset of the UAR page in BAR 0, in bytes. The page's number counts pages of 4 KiB
    /// (rdma-core `uar2iova`).
    ///
    /// Assumption: the unit is 4 KiB unless a driver sets `log_uar_page_sz` by SET_HCA_CAP. A kernel with
    /// larger pages sets this field.
    pub const fn offset(self) -> u64 {
        self.0 as u64 * 4096
    }
}

impl AckTimeout {
    /// A time-out of 67 ms (code 14), as in `ibv_rc_pingpong`, perftest and pyverbs.
    pub const MS_67: Self = Self(14);
}

impl RnrTimer {
    /// A wait of 0.64 ms (code 12), as in `ibv_rc_pingpong`, perftest and pyverbs.
    pub const US_640: Self = Self(12);
}

impl LogMaxRdAtomic {
    /// 16 RDMA READs and atomics in flight, the largest number that mlx5 devices report (`max_qp_rd_atom`).
    /// perftest uses this number for RDMA READ.
    pub const SIXTEEN: Self = Self(4);
}

impl LogAckInterval {
    /// The sender asks for an acknowledgement every 256 packets, as in Linux (`MLX5_IB_ACK_REQ_FREQ`) and by
    /// default in UCX (`LOG_ACK_REQ_FREQ`).
    pub const PACKETS_256: Self = Self(8);
}

impl LogMessage {
    /// Messages of up to 1 GiB, the longest of a reliable connection (`max_msg_sz`).
    pub const GIB_1: Self = Self(30);
}

/// The number by which commands name user memory that is registered with the device (PRM `umem_id`).
///
/// ```
/// use mlx5_mkey::command::{UmemId, UmemSlice};
/// // The number that `mlx5dv_devx_umem_reg` returned.
/// let umem = UmemId(9);
/// let ring = UmemSlice { umem, offset: 0 };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct UmemId(pub u32);

/// A position in registered user memory (umem): the beginning of a ring, for example.
///
/// ```
/// use mlx5_mkey::command::{UmemId, UmemSlice};
/// // 256 entries of 64 bytes, and the doorbell record after them.
/// let entries = UmemSlice { umem: UmemId(9), offset: 0 };
/// let record = UmemSlice { offset: 256 * 64, ..entries };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct UmemSlice {
    /// Number of the user memory.
    pub umem: UmemId,
    /// Offset of the place in the user memory, in bytes.
    pub offset: u64,
}

/// Base-2 logarithm of a page size in bytes: 12 (4096 bytes) to 31.
///
/// ```
/// use mlx5_mkey::command::LogPageSize;
/// // Huge pages of 2 MiB.
/// let huge = LogPageSize::new(21)?;
/// assert!(huge > LogPageSize::P4K);
/// assert!(LogPageSize::new(11).is_err());
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LogPageSize(u8);

impl LogPageSize {
    /// Pages of 4096 bytes, the smallest that the device accepts.
    pub const P4K: Self = Self(12);

    /// Pages of 65536 bytes.
    pub const P64K: Self = Self(16);

    /// Creates the value from a logarithm, 12 to 31.
    ///
    /// # Errors
    /// [`OutOfRange`] for a smaller or larger logarithm.
    pub const fn new(log: u8) -> Result<Self, OutOfRange> {
        if log < 12 || log > 31 {
            return Err(OutOfRange {
                what: "logarithm of the page size",
                value: log as u64,
                min: 12,
                max: 31,
            });
        }
        Ok(Self(log))
    }

    /// Returns the logarithm.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the base-2 logarithm of the page size in units of 4096 bytes, as in queue contexts.
    pub(super) const fn over_4k(self) -> u8 {
        self.0 - 12
    }
}

impl Default for LogPageSize {
    fn default() -> Self {
        Self::P4K
    }
}
