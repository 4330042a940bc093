//! The profile of the device: the properties in which real devices differ.

/// The name of the device's board (PSID). The names of NVIDIA's boards begin with `MT_`. By this name,
/// programs of this project recognise that a device is no hardware.
pub const PSID: &str = "MLX5SOFTDEV00001";

/// The kind of AES-XTS engine: the number of data units that it takes in a transfer, and the byte order of
/// the tweak in the BSF (DEVICE.md, "Engines").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XtsEngine {
    /// Many data units in a transfer; the BSF holds the tweak in big endian (capability
    /// `aes_xts_multi_block_be_tweak`).
    #[default]
    MultiBlock,
    /// Many data units in a transfer; the BSF holds the tweak in little endian (capability
    /// `aes_xts_multi_block_le_tweak`).
    MultiBlockLittleEndian,
    /// One data unit in a transfer; the BSF holds the tweak in little endian (capability
    /// `aes_xts_single_block_le_tweak`).
    SingleBlock,
}

/// The fence that a request behind a UMR needs if it uses the UMR's mkey (PRM `umr_fence`). This device
/// executes requests in order, and only reports the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UmrFence {
    /// A strong fence (0).
    #[default]
    Strong,
    /// A small fence (1).
    Small,
    /// No fence (2).
    None,
}

/// The formats of time stamps that queue pairs can have (PRM `qp_ts_format`, `sq_ts_format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamps {
    /// Ticks of the free-running clock (0).
    #[default]
    FreeRunning,
    /// Real time (1).
    RealTime,
    /// Both formats (2). Assumption: the device then prefers the free-running clock.
    Both,
}

impl Timestamps {
    /// Returns whether a queue pair can be created with this format (PRM `ts_format`): 0 free-running, 1 the
    /// format that the device prefers, 2 real time.
    pub const fn take(self, format: u8) -> bool {
        match format {
            0 => !matches!(self, Self::RealTime),
            1 => true,
            2 => !matches!(self, Self::FreeRunning),
            _ => false,
        }
    }

    /// Returns whether stamps of this format are in real time.
    pub(crate) const fn are_real_time(self, format: u8) -> bool {
        format == 2 || format == 1 && matches!(self, Self::RealTime)
    }
}

/// The kind of network of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Port {
    /// Ethernet, that is RoCE (PRM `port_type` 1).
    #[default]
    Ethernet,
    /// InfiniBand (0). Only a driver that uses the command interface learns the kind of network
    /// ([`crate::Device::read_register`]).
    InfiniBand,
}

/// The LID that commands report for an InfiniBand port, and for its subnet manager.
pub(crate) const LID: u16 = 1;

/// The key of the port's only partition.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// The import method of data encryption keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CryptoMode {
    /// No crypto at all: neither DEKs nor crypto mkeys.
    None,
    /// Keys in plaintext.
    #[default]
    Plaintext,
    /// Keys wrapped with an import KEK (RFC 3394), under a login.
    Wrapped,
}

/// The treatment of a transfer that ends inside a protected block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartialBlocks {
    /// The bytes pass, and an incomplete signature is not checked.
    ///
    /// Assumption: no public source describes this case. The reference provider's tests move 512 wire bytes
    /// of a 520-byte block.
    #[default]
    Pass,
    /// The request fails.
    Refuse,
}

/// The properties of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceProfile {
    /// The major version of the firmware, by which people tell the devices apart: 22 for a ConnectX-6 Dx, 24
    /// for a BlueField-2, 28 for a ConnectX-7, 32 for a BlueField-3. The version is completed by 99.0000, a
    /// number that no released firmware has.
    pub firmware: u16,
    /// The AES-XTS engine.
    pub xts: XtsEngine,
    /// Whether a tweak grows by 2^64 for each data unit (capability `aes_xts_tweak_inc_64`). If the upper
    /// half of the tweak is all ones, the tweak grows by one instead, and the upper half counts as 0.
    ///
    /// Assumption: the tweak grows by one if its upper half is all ones. Software that counts blocks in the
    /// lower half writes all ones to the upper half (DEVICE.md, "Tweaks that grow by 2^64").
    pub tweak_inc_64: bool,
    /// The import method of keys.
    pub crypto: CryptoMode,
    /// The treatment of transfers that end inside a protected block.
    pub partial_blocks: PartialBlocks,
    /// Whether a peer needs remote rights also for the keys that the entries of an indirect key name (PRM
    /// `imaicl` is 0).
    pub inner_remote_rights: bool,
    /// The fence that requests behind a UMR need.
    pub umr_fence: UmrFence,
    /// Whether mkeys may relax the order of writes and reads, from their creation or by a UMR (capabilities
    /// `relaxed_ordering_…`). This device keeps the order nevertheless.
    pub relaxed_ordering: bool,
    /// Whether a UMR may write entries from number 65,536 on (capability `umr_extended_translation_offset`).
    pub extended_offsets: bool,
    /// Whether completion queues can ignore overruns (capability `cq_oi`).
    pub cq_oi: bool,
    /// Whether completion entries carry the user index of their queue pair (capability `cqe_version` is 1).
    /// Otherwise CREATE_QP accepts only the indices 0 and 0xffffff, which mean none.
    ///
    /// Assumption: the device refuses other indices.
    pub user_indices: bool,
    /// Whether mkeys can give the right to atomics (capability `atomic`).
    pub atomic: bool,
    /// Whether a device with atomics also has masked atomics, of 4 and of 8 bytes (`atomic_operations`,
    /// `atomic_size_qp`).
    pub masked_atomics: bool,
    /// Whether a send queue can do without its doorbell record: the doorbell alone announces its requests
    /// (`send_dbr_mode_no_dbr_ext`, `send_dbr_mode_no_dbr_int`).
    pub doorbell_alone: bool,
    /// Whether mkeys can have entries of one length (KSM; capability `fixed_buffer_size`).
    pub fixed_entries: bool,
    /// Whether the device announces block signatures to Linux (capability `sho`). A device that does not
    /// announce them still has them.
    pub signatures: bool,
    /// Whether the device has CRC32C signatures of blocks (capability `sig_crc32c`).
    pub crc32c: bool,
    /// Whether queue pairs can be made to drain on signature errors (`drain_sigerr`).
    pub drain_sigerr: bool,
    /// The longest copy of memory without a peer, as a logarithm of bytes (`log_dma_mmo_max_size`); `None`
    /// for a device that does not copy (`dma_mmo_qp`).
    pub log_max_copy: Option<u8>,
    /// Whether consecutive copies without a strong fence between them are executed in another order than
    /// their requests (DEVICE.md, "Copies without an order"). Completions keep their order.
    pub unordered_copies: bool,
    /// The kind of network of the port.
    pub port: Port,
    /// The GID of the port: the source address of sent datagrams, and the destination address of received
    /// datagrams.
    pub port_gid: [u8; 16],
    /// The formats of time stamps that queue pairs can have.
    pub timestamps: Timestamps,
    /// Logarithm of the most RDMA READs and atomics in flight, as requester and as responder
    /// (`log_max_ra_req_qp`, `log_max_ra_res_qp`).
    pub log_max_reads: u8,
    /// The longest message in bytes; at most 2^31 (InfiniBand).
    pub max_message_bytes: u32,
    /// The limit for the ranges of memory that one data segment falls into. It bounds the time of a request.
    /// Each key that an entry of an mkey names counts as a range too. 16 skipped entries (before the data, or
    /// without bytes) count as one range.
    pub max_ranges: u32,
}

impl Default for DeviceProfile {
    fn default() -> Self {
        Self {
            firmware: 22,
            xts: XtsEngine::default(),
            tweak_inc_64: false,
            crypto: CryptoMode::default(),
            partial_blocks: PartialBlocks::default(),
            inner_remote_rights: false,
            umr_fence: UmrFence::default(),
            relaxed_ordering: true,
            extended_offsets: true,
            cq_oi: true,
            user_indices: true,
            atomic: true,
            masked_atomics: true,
            doorbell_alone: false,
            fixed_entries: true,
            signatures: true,
            crc32c: true,
            drain_sigerr: true,
            log_max_copy: Some(21),
            timestamps: Timestamps::default(),
            log_max_reads: 4,
            unordered_copies: false,
            port: Port::Ethernet,
            port_gid: [0; 16],
            max_message_bytes: 1 << 31,
            max_ranges: 1 << 20,
        }
    }
}

impl DeviceProfile {
    /// Returns the logarithm of the longest message for the capability `log_max_msg`: at most 1 GiB, as real
    /// devices report.
    pub const fn log_max_message(&self) -> u8 {
        match self.max_message_bytes.checked_ilog2() {
            Some(log) if log < 30 => log as u8,
            Some(_) => 30,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_takes_the_formats_that_it_has() {
        let of = |timestamps: Timestamps| [0, 1, 2, 3].map(|format| timestamps.take(format));
        assert_eq!(of(Timestamps::FreeRunning), [true, true, false, false]);
        assert_eq!(of(Timestamps::RealTime), [false, true, true, false]);
        assert_eq!(of(Timestamps::Both), [true, true, true, false]);
        let real = |timestamps: Timestamps| [0, 1, 2].map(|format| timestamps.are_real_time(format));
        assert_eq!(real(Timestamps::RealTime), [false, true, true]);
        assert_eq!(real(Timestamps::Both), [false, false, true]);
    }

    #[test]
    fn messages_are_told_as_a_power_of_two() {
        let log =
            |max_message_bytes| DeviceProfile { max_message_bytes, ..Default::default() }.log_max_message();
        assert_eq!([0, 1, (1 << 24) + 1, 1 << 30, 1 << 31].map(log), [0, 0, 24, 30, 30]);
    }
}
