//! The command that asks for the general capabilities of the device, and its reply.

use super::{Command, TimestampSupport};
use crate::command::error::CommandError;
use crate::mkey::{RelaxedOrdering, SignatureCapabilities, XtsEngine};
use crate::types::UmrFence;
use crate::wire::codes::codes;
use crate::wire::prm::command::{Opcode, RequestHeader};
use crate::wire::prm::general_capabilities::{
    CapBlocks, CapBlueFlame, CapCompletionQueues, CapCrypto, CapDigests, CapDma, CapDmaQueues, CapIdentity,
    CapMessages, CapMkeyLimits, CapMkeys, CapOffloads, CapPages, CapPorts, CapProtectionDomains,
    CapQueuePairs, CapReceiveRequest, CapSendRequest, CapSignatureErrors, CapSignatureTypes, CapTimestamps,
    CapTransports, CapXts, GeneralCapabilityBits,
};
use crate::wire::prm::object::ObjectType;
use crate::wire::prm::query_hca_cap::{CURRENT, GENERAL, QueryHcaCapReply, QueryHcaCapRequest};

codes! {
    /// Kind of port (PRM `port_type`). The type can also hold codes without a name, because a reply may
    /// contain any code.
    PortType(u8), "port type {:#x}";

    /// The port is an InfiniBand port.
    INFINIBAND = 0, "InfiniBand";
    /// The port is an Ethernet port.
    ETHERNET = 1, "Ethernet";
}

/// General capabilities that matter to users of this library (PRM `cmd_hca_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct GeneralCapabilities {
    /// Base-2 logarithm of the largest number of queue pairs.
    pub log_max_qps: u8,
    /// Base-2 logarithm of the largest number of entries of a send or receive queue.
    pub log_max_qp_entries: u8,
    /// Base-2 logarithm of the largest number of completion queues.
    pub log_max_cqs: u8,
    /// Base-2 logarithm of the largest number of entries of a completion queue.
    pub log_max_cq_entries: u8,
    /// The device can create completion queues that ignore overrun: in a full queue, the device overwrites
    /// entries that software has not taken (PRM `cq_oi`).
    pub cq_ignore_overrun: bool,
    /// Base-2 logarithm of the largest number of mkeys.
    pub log_max_mkeys: u8,
    /// Base-2 logarithm of the largest number of protection domains.
    pub log_max_pds: u8,
    /// The largest number of levels of indirect mkeys: an indirect mkey may refer to others.
    pub max_indirection: u8,
    /// Base-2 logarithm of the largest length of an mkey in bytes.
    pub log_max_mkey_bytes: u8,
    /// Base-2 logarithm of the largest number of translation entries of an mkey.
    pub log_max_entries: u8,
    /// UMRs can change translation entries from number 65,536 on (PRM `umr_extended_translation_offset`).
    pub extended_translation_offset: bool,
    /// Base-2 logarithm of the largest number of octowords (16 bytes) that the BSFs of an mkey may have.
    pub log_max_bsf_octowords: u8,
    /// Base-2 logarithm of the longest message in bytes.
    pub log_max_message: u8,
    /// Base-2 logarithm of the largest number of RDMA READs and atomics of this side that a queue pair may
    /// have in flight (PRM `log_max_ra_req_qp`, requester).
    ///
    /// The kernel uses this field for the peer's RDMA READs, and `log_max_reads_in` for those of this side.
    /// If the two differ, the smaller number is safe for both.
    pub log_max_reads_out: u8,
    /// Base-2 logarithm of the largest number of RDMA READs and atomics of the peer that a queue pair may
    /// have in flight (PRM `log_max_ra_res_qp`, responder).
    pub log_max_reads_in: u8,
    /// The longest request of a send queue in bytes.
    pub max_send_request_bytes: u16,
    /// The longest request of a receive queue in bytes.
    pub max_receive_request_bytes: u16,
    /// Signature handover: mkeys can have signatures.
    pub signature_handover: bool,
    /// A completion entry for a signature error names the domain and the type of the signature.
    pub signature_error_domain: bool,
    /// A signature error has a kind of completion entry of its own (PRM `sigerr_cqe`).
    pub signature_error_cqe: bool,
    /// The send queue of a queue pair can stop at a signature error (PRM `drain_sigerr`).
    pub drain_signature_errors: bool,
    /// Signatures may cover blocks of 4048 bytes.
    pub block_4048: bool,
    /// Mkeys can have CRC-32C signatures.
    pub crc32c: bool,
    /// Mkeys can have CRC-64 XP10 signatures.
    pub crc64_xp10: bool,
    /// An mkey can have a digest (a CRC32C over all data of a transaction) and AES-XTS at the same time.
    pub digest_with_xts: bool,
    /// The device encrypts. [`crate::command::QueryCryptoCapabilities`] returns its crypto capabilities.
    pub crypto: bool,
    /// The device has an AES-XTS engine with one data unit per mkey and little-endian tweaks.
    pub xts_single_block: bool,
    /// The device has an AES-XTS engine with any number of data units per mkey and big-endian tweaks.
    pub xts_multi_block: bool,
    /// The device has an AES-XTS engine with any number of data units per mkey and little-endian tweaks.
    pub xts_multi_block_little_endian: bool,
    /// The tweak grows by 2^64 from data unit to data unit (PRM `aes_xts_tweak_inc_64`). On all other devices
    /// it grows by one. See [`GeneralCapabilities::xts_engine`].
    pub xts_tweak_inc_64: bool,
    /// Mask of the general objects that can be created: bit n stands for type n.
    pub object_types: u64,
    /// If true, UMRs may not write the translation entries of indirect mkeys (kernel
    /// `umr_can_use_indirect_mkey`).
    pub umr_indirect_mkey_disabled: bool,
    /// If true, UMRs may not change the right to atomics.
    pub umr_modify_atomic_disabled: bool,
    /// A request that follows a UMR and uses the mkey of the UMR needs a fence of this strength.
    pub umr_fence: UmrFence,
    /// Mkeys can be created that allow writes to pass one another.
    pub relaxed_ordering_write: bool,
    /// Mkeys can be created that allow reads to pass writes.
    pub relaxed_ordering_read: bool,
    /// A UMR may set whether writes through the mkey may pass one another (ConnectX-7 and later).
    pub relaxed_ordering_write_umr: bool,
    /// A UMR may set whether reads through the mkey may pass writes (ConnectX-7 and later).
    pub relaxed_ordering_read_umr: bool,
    /// The device has mkeys whose entries all have one length (KSM; PRM `fixed_buffer_size`).
    pub fixed_buffer_size: bool,
    /// The device has memory windows: an mkey may grant the peer rights that the keys in its list do not
    /// grant (PRM `imaicl`). The kernel offers memory windows if this bit is set.
    pub memory_windows: bool,
    /// The device has a null mkey: reads and writes through it touch no memory.
    pub null_mkey: bool,
    /// The device has atomics.
    pub atomic: bool,
    /// The device has reliable connections.
    pub reliable_connection: bool,
    /// The device has RoCE.
    pub roce: bool,
    /// Queue pairs of reliable connections can connect to queue pairs of the same device while RoCE is off.
    pub loopback_without_roce: bool,
    /// Kind of the device's ports.
    pub port_type: PortType,
    /// Number of the device's ports.
    pub ports: u8,
    /// Version of completion entries: entries of version 1 carry a user index.
    pub cqe_version: u8,
    /// UAR pages may have 4096 bytes, independent of the page size of the system.
    pub uar_4k: bool,
    /// Base-2 logarithm of the size of a UAR page in bytes.
    pub log_uar_page: u8,
    /// Number of UARs (sets of doorbell registers) in a UAR page.
    pub uars_per_page: u32,
    /// The formats of time stamps that queue pairs can have on a port without RoCE (PRM `sq_ts_format`). With
    /// RoCE, [`super::RoceCapabilities::timestamps`] applies instead.
    pub timestamps: TimestampSupport,
    /// Frequency of the time stamps' clock in kHz; 0 if the device does not report it.
    pub device_frequency_khz: u32,
    /// Base-2 logarithm of the size of a BlueFlame register in bytes, both halves together; `None` without
    /// BlueFlame.
    pub log_blue_flame: Option<u8>,
    /// Base-2 logarithm of the longest memory copy of a request in bytes, 0 if the device does not report the
    /// limit. `None` if requests cannot copy memory. See [`GeneralCapabilities::log_max_memcpy_bytes`].
    pub log_max_copy: Option<u8>,
    /// Memory copies have to be enabled for each queue pair ([`crate::command::Init2Init::memcpy`]; PRM
    /// `dma_mmo_qp`). If this field is false on a device with memory copies, every queue pair may copy
    /// (`dma_mmo_sq`).
    pub memcpy_per_qp: bool,
    /// Number of the virtual HCA: the device as this PCI function sees it.
    pub vhca_id: u16,
    /// The device has more general capabilities in a second structure (PRM `hca_cap_2`).
    pub has_second_page: bool,
}

impl GeneralCapabilities {
    /// Creates the value from the words of the device's reply.
    pub fn from_wire(bits: &GeneralCapabilityBits) -> Self {
        let queue_pairs = CapQueuePairs::from_bits(bits.queue_pairs.get());
        let completion_queues = CapCompletionQueues::from_bits(bits.completion_queues.get());
        let mkeys = CapMkeys::from_bits(bits.mkeys.get());
        let limits = CapMkeyLimits::from_bits(bits.mkey_limits.get());
        let transports = CapTransports::from_bits(bits.transports.get());
        let types = CapSignatureTypes::from_bits(bits.signature_types.get());
        let blocks = CapBlocks::from_bits(bits.blocks.get());
        let offloads = CapOffloads::from_bits(bits.offloads.get());
        let errors = CapSignatureErrors::from_bits(bits.signature_errors.get());
        let (xts, crypto) = (CapXts::from_bits(bits.xts.get()), CapCrypto::from_bits(bits.crypto.get()));
        let pages = CapPages::from_bits(bits.pages.get());
        let blue_flame = CapBlueFlame::from_bits(bits.blue_flame.get());
        let ports = CapPorts::from_bits(bits.ports.get());
        let identity = CapIdentity::from_bits(bits.identity.get());
        let memcpy_per_qp = CapDmaQueues::from_bits(bits.dma_queues.get()).dma_mmo_qp();
        let copies = memcpy_per_qp || types.dma_mmo_sq();
        Self {
            log_max_qps: queue_pairs.log_max_qp(),
            log_max_qp_entries: queue_pairs.log_max_qp_sz(),
            log_max_cqs: completion_queues.log_max_cq(),
            log_max_cq_entries: completion_queues.log_max_cq_sz(),
            cq_ignore_overrun: transports.cq_oi(),
            log_max_mkeys: mkeys.log_max_mkey(),
            log_max_pds: CapProtectionDomains::from_bits(bits.protection_domains.get()).log_max_pd(),
            max_indirection: limits.max_indirection(),
            log_max_mkey_bytes: limits.log_max_mrw_sz(),
            log_max_entries: limits.log_max_klm_list_size(),
            extended_translation_offset: limits.umr_extended_translation_offset(),
            log_max_bsf_octowords: limits.log_max_bsf_list_size(),
            log_max_message: CapMessages::from_bits(bits.messages.get()).log_max_msg(),
            log_max_reads_out: types.log_max_ra_req_qp(),
            log_max_reads_in: types.log_max_ra_res_qp(),
            max_send_request_bytes: CapSendRequest::from_bits(bits.send_request.get()).max_wqe_sz_sq(),
            max_receive_request_bytes: CapReceiveRequest::from_bits(bits.receive_request.get())
                .max_wqe_sz_rq(),
            signature_handover: offloads.sho(),
            signature_error_domain: errors.sigerr_domain_and_sig_type(),
            signature_error_cqe: offloads.sigerr_cqe(),
            drain_signature_errors: offloads.drain_sigerr(),
            block_4048: blocks.sig_block_4048(),
            crc32c: types.sig_crc32c(),
            crc64_xp10: types.sig_crc64_xp10(),
            digest_with_xts: CapDigests::from_bits(bits.digests.get()).with_crypto(),
            crypto: crypto.crypto(),
            xts_single_block: xts.aes_xts_single_block_le_tweak(),
            xts_multi_block: xts.aes_xts_multi_block_be_tweak(),
            xts_multi_block_little_endian: crypto.aes_xts_multi_block_le_tweak(),
            xts_tweak_inc_64: xts.aes_xts_tweak_inc_64(),
            object_types: bits.general_obj_types.get(),
            umr_indirect_mkey_disabled: offloads.umr_indirect_mkey_disabled(),
            umr_modify_atomic_disabled: offloads.umr_modify_atomic_disabled(),
            umr_fence: match offloads.umr_fence() {
                1 => UmrFence::Small,
                2 => UmrFence::None,
                // Code 0 and unknown codes count as the strong fence.
                _ => UmrFence::Strong,
            },
            relaxed_ordering_write: mkeys.relaxed_ordering_write(),
            relaxed_ordering_read: mkeys.relaxed_ordering_read(),
            relaxed_ordering_write_umr: completion_queues.relaxed_ordering_write_umr(),
            relaxed_ordering_read_umr: completion_queues.relaxed_ordering_read_umr(),
            fixed_buffer_size: limits.fixed_buffer_size(),
            memory_windows: transports.imaicl(),
            null_mkey: limits.null_mkey(),
            atomic: offloads.atomic(),
            reliable_connection: transports.rc(),
            roce: offloads.roce(),
            loopback_without_roce: pages.fl_rc_qp_when_roce_disabled(),
            port_type: PortType(ports.port_type()),
            ports: ports.num_ports(),
            cqe_version: blocks.cqe_version(),
            uar_4k: pages.uar_4k(),
            log_uar_page: u8::try_from(errors.log_uar_page_sz()).unwrap_or(u8::MAX).saturating_add(12),
            uars_per_page: bits.num_of_uars_per_page.get(),
            timestamps: TimestampSupport(CapTimestamps::from_bits(bits.timestamps.get()).sq_ts_format()),
            device_frequency_khz: bits.device_frequency_khz.get(),
            log_blue_flame: blue_flame.bf().then_some(blue_flame.log_bf_reg_size()),
            log_max_copy: copies.then_some(CapDma::from_bits(bits.dma.get()).log_dma_mmo_max_size()),
            memcpy_per_qp,
            vhca_id: identity.vhca_id(),
            has_second_page: identity.hca_cap_2(),
        }
    }

    /// Returns which block signatures mkeys can have, by the rule of rdma-core. Returns `None` if mkeys can
    /// have none.
    ///
    /// A device with signatures always supports T10-DIF (with both guards) and CRC-32, and blocks of 512,
    /// 520, 4096 and 4160 bytes. The result therefore lists only the other signatures and block sizes.
    pub const fn signatures(&self) -> Option<SignatureCapabilities> {
        if !self.signature_handover || !self.signature_error_domain {
            return None;
        }
        Some(SignatureCapabilities {
            block_4048: self.block_4048,
            crc32c: self.crc32c,
            crc64_xp10: self.crc64_xp10,
            digest_with_xts: self.digest_with_xts,
        })
    }

    /// Returns the AES-XTS engine, `None` if there is none. If the device has several engines, the function
    /// prefers one that encrypts many data units per mkey.
    ///
    /// The function also returns `None` for a device whose tweaks grow by 2^64
    /// ([`GeneralCapabilities::xts_tweak_inc_64`]). For such a device, NVIDIA's SPDK sets the upper half of
    /// the tweak to all ones and counts blocks in the lower half, and libdpcp limits tweaks to 2^64 - 2. No
    /// document confirms that the device works like this. If this library guessed wrong, nobody could decrypt
    /// the data. `mlxconfig` can switch off the growth by 2^64.
    pub const fn xts_engine(&self) -> Option<XtsEngine> {
        if !self.crypto || self.xts_tweak_inc_64 {
            None
        } else if self.xts_multi_block {
            Some(XtsEngine::MultiBlock)
        } else if self.xts_multi_block_little_endian {
            Some(XtsEngine::MultiBlockLittleEndian)
        } else if self.xts_single_block {
            Some(XtsEngine::SingleBlock)
        } else {
            None
        }
    }

    /// Returns the base-2 logarithm of the longest memory copy of a request in bytes, by the rule of
    /// rdma-core. Returns `None` if requests cannot copy memory. If the device does not report the limit, the
    /// result is 31 (2 GiB).
    pub const fn log_max_memcpy_bytes(&self) -> Option<u8> {
        match self.log_max_copy {
            Some(0) => Some(31),
            log => log,
        }
    }

    /// Returns which PCIe orderings (of writes, of reads) a configuration of an mkey can change, `None` if it
    /// can change neither.
    pub const fn relaxed_ordering_umr(&self) -> Option<RelaxedOrdering> {
        let ordering =
            RelaxedOrdering { write: self.relaxed_ordering_write_umr, read: self.relaxed_ordering_read_umr };
        if ordering.write || ordering.read { Some(ordering) } else { None }
    }

    /// Returns the largest number of translation entries of an mkey
    /// ([`GeneralCapabilities::log_max_entries`]).
    pub const fn max_entries(&self) -> u32 {
        match 1_u32.checked_shl(self.log_max_entries as u32) {
            Some(max) => max,
            None => u32::MAX,
        }
    }

    /// Returns the largest number of translation entries of an mkey that UMRs configure. It is at most 65,536
    /// on a device without [`GeneralCapabilities::extended_translation_offset`], where a UMR cannot name
    /// entries from number 65,536 on.
    pub const fn max_umr_entries(&self) -> u32 {
        const MAX_16_BIT_OFFSET: u32 = 1 << 16;
        let max = self.max_entries();
        if self.extended_translation_offset || max < MAX_16_BIT_OFFSET { max } else { MAX_16_BIT_OFFSET }
    }

    /// Returns whether the device can create general objects of type `kind`, such as DEKs.
    pub const fn can_create(&self, kind: ObjectType) -> bool {
        kind.0 < 64 && self.object_types >> kind.0 & 1 != 0
    }
}

/// The command that asks for the current values of the general capabilities (QUERY_HCA_CAP). A driver can
/// also ask for the largest values that it may set; this command does not.
///
/// ```
/// use mlx5_mkey::command::{Command, QueryGeneralCapabilities};
/// let mut mailbox = [0; 16];
/// let request = QueryGeneralCapabilities.encode(&mut mailbox)?;
/// assert_eq!(request[..8], [0x01, 0x00, 0, 0, 0, 0, 0, 0x01]);
/// assert_eq!(QueryGeneralCapabilities::OUTPUT, 4112);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryGeneralCapabilities;

impl Command for QueryGeneralCapabilities {
    const OPCODE: Opcode = Opcode::QUERY_HCA_CAP;
    type Input = QueryHcaCapRequest;
    type Output = QueryHcaCapReply;
    type Reply = GeneralCapabilities;

    fn write(&self, input: &mut QueryHcaCapRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.header.op_mod.set(GENERAL | CURRENT);
    }

    fn read(&self, output: &QueryHcaCapReply) -> Result<GeneralCapabilities, CommandError> {
        Ok(GeneralCapabilities::from_wire(zerocopy::transmute_ref!(&output.known)))
    }
}
