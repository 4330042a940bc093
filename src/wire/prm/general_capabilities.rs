//! General capabilities of the device (PRM `cmd_hca_cap`), as far as this library uses them.

use crate::wire::low::low8;
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Number of the virtual HCA, and whether a second structure of capabilities exists (PRM `cmd_hca_cap`,
/// offset 0x4 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapIdentity {
    /// Number of the virtual HCA: the device as this PCI function sees it.
    pub vhca_id: u16,
    #[bits(15)]
    __: u16,
    /// The device has more general capabilities in a second structure (PRM `hca_cap_2`).
    pub hca_cap_2: bool,
}

/// General capabilities about memory copies by the device (PRM `cmd_hca_cap`, offset 0xc bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapDma {
    __: u16,
    /// Base-2 logarithm of the longest copy in bytes; 0 if the device does not report it.
    #[bits(5, into = low8::<5>)]
    pub log_dma_mmo_max_size: u8,
    #[bits(11)]
    __: u16,
}

/// General capabilities about queue pairs (PRM `cmd_hca_cap`, offset 0x10 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapQueuePairs {
    /// Base-2 logarithm of the largest number of queue pairs.
    #[bits(5, into = low8::<5>)]
    pub log_max_qp: u8,
    #[bits(11)]
    __: u16,
    /// Base-2 logarithm of the largest number of entries of a send or receive queue.
    pub log_max_qp_sz: u8,
    __: u8,
}

/// General capabilities about completion queues (PRM `cmd_hca_cap`, offset 0x18 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapCompletionQueues {
    /// Base-2 logarithm of the largest number of completion queues.
    #[bits(5, into = low8::<5>)]
    pub log_max_cq: u8,
    #[bits(9)]
    __: u16,
    /// A UMR may set whether reads through the mkey may pass writes.
    pub relaxed_ordering_read_umr: bool,
    /// A UMR may set whether writes through the mkey may pass one another.
    pub relaxed_ordering_write_umr: bool,
    /// Base-2 logarithm of the largest number of entries of a completion queue.
    pub log_max_cq_sz: u8,
    __: u8,
}

/// General capabilities about mkeys (PRM `cmd_hca_cap`, offset 0x1c bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapMkeys {
    __: u16,
    /// Base-2 logarithm of the largest number of mkeys.
    #[bits(6, into = low8::<6>)]
    pub log_max_mkey: u8,
    /// Mkeys may allow reads to pass writes.
    pub relaxed_ordering_read: bool,
    /// Mkeys may allow writes to pass one another.
    pub relaxed_ordering_write: bool,
    __: u8,
}

/// General capabilities about the limits of mkeys (PRM `cmd_hca_cap`, offset 0x20 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapMkeyLimits {
    /// Base-2 logarithm of the largest number of translation entries of an mkey.
    #[bits(6, into = low8::<6>)]
    pub log_max_klm_list_size: u8,
    /// The device has a null mkey, through which nothing is read or written.
    pub null_mkey: bool,
    /// A UMR may give a translation offset of more than 16 bits.
    pub umr_extended_translation_offset: bool,
    /// Base-2 logarithm of the largest number of octowords of an mkey's BSFs.
    #[bits(6, into = low8::<6>)]
    pub log_max_bsf_list_size: u8,
    #[bits(2)]
    __: u8,
    /// Base-2 logarithm of the largest length of an mkey in bytes.
    #[bits(7, into = low8::<7>)]
    pub log_max_mrw_sz: u8,
    /// The device has mkeys whose translation entries all have one length (KSM).
    pub fixed_buffer_size: bool,
    /// Largest depth to which indirect mkeys may nest.
    pub max_indirection: u8,
}

/// General capabilities about the extension of the queue pair context (PRM `cmd_hca_cap`, offset 0x24 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapExtension {
    #[bits(29)]
    __: u32,
    /// Commands about queue pairs may carry an extension of the context.
    pub qpc_extension: bool,
    #[bits(2)]
    __: u8,
}

/// General capabilities about kinds of signature, and reads in flight (PRM `cmd_hca_cap`, offset 0x28 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapSignatureTypes {
    /// Base-2 logarithm of the largest number of RDMA READs and atomics that a responder has in flight.
    #[bits(6, into = low8::<6>)]
    pub log_max_ra_res_qp: u8,
    #[bits(6)]
    __: u8,
    /// Send queues can copy memory (memory-to-memory operation).
    pub dma_mmo_sq: bool,
    #[bits(3)]
    __: u8,
    /// Base-2 logarithm of the largest number of RDMA READs and atomics that a requester has in flight.
    #[bits(6, into = low8::<6>)]
    pub log_max_ra_req_qp: u8,
    #[bits(1)]
    __: u8,
    /// Mkeys can have CRC-32C signatures.
    pub sig_crc32c: bool,
    /// Mkeys can have CRC-64 XP10 signatures.
    pub sig_crc64_xp10: bool,
    #[bits(7)]
    __: u8,
}

/// General capabilities about address tables (PRM `cmd_hca_cap`, offset 0x2c bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapTables {
    /// Size of the GID table, as a code n: 8 * 2^n entries (kernel `mlx5_get_gid_table_len`).
    pub gid_table_size: u16,
    __: u16,
}

/// General capabilities about ports (PRM `cmd_hca_cap`, offset 0x34 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapPorts {
    /// Number of the device's ports.
    pub num_ports: u8,
    /// Kind of the ports: 0 is InfiniBand, 1 is Ethernet.
    #[bits(2, into = low8::<2>)]
    pub port_type: u8,
    #[bits(6)]
    __: u8,
    /// How long the device may take to acknowledge, as a code n of the InfiniBand specification: 4.096 us *
    /// 2^n.
    #[bits(5, into = low8::<5>)]
    pub local_ca_ack_delay: u8,
    #[bits(11)]
    __: u16,
}

/// General capabilities about messages (PRM `cmd_hca_cap`, offset 0x38 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapMessages {
    #[bits(24)]
    __: u32,
    /// Base-2 logarithm of the longest message in bytes.
    #[bits(5, into = low8::<5>)]
    pub log_max_msg: u8,
    #[bits(3)]
    __: u8,
}

/// General capabilities about block sizes and completion entries (PRM `cmd_hca_cap`, offset 0x3c bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapBlocks {
    /// Version of completion entries: entries of version 1 carry a user index.
    #[bits(4, into = low8::<4>)]
    pub cqe_version: u8,
    #[bits(11)]
    __: u16,
    /// Signatures may cover blocks of 4048 bytes.
    pub sig_block_4048: bool,
    __: u16,
}

/// General capabilities about offloads, first word (PRM `cmd_hca_cap`, offset 0x40 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapOffloads {
    #[bits(1)]
    __: u8,
    /// The device has atomics.
    pub atomic: bool,
    /// The device has RoCE.
    pub roce: bool,
    #[bits(5)]
    __: u8,
    /// Signature handover: mkeys can have signatures.
    pub sho: bool,
    #[bits(1)]
    __: u8,
    /// Completion entries may carry the data of short messages.
    pub sctr_data_cqe: bool,
    /// Work requests may carry a checksum of themselves (WQE signature).
    pub wq_signature: bool,
    #[bits(1)]
    __: u8,
    /// A signature error has a kind of completion entry of its own.
    pub sigerr_cqe: bool,
    #[bits(2)]
    __: u8,
    /// The send queue of a queue pair can stop at a signature error.
    pub drain_sigerr: bool,
    #[bits(3)]
    __: u8,
    /// Code of the fence that a request after a UMR needs: 0 the strong one, 1 the small one, 2 none.
    #[bits(2, into = low8::<2>)]
    pub umr_fence: u8,
    /// A UMR may not write the translation entries of an indirect mkey (kernel `umr_can_use_indirect_mkey`).
    pub umr_indirect_mkey_disabled: bool,
    /// A UMR may not change the right to atomics.
    pub umr_modify_atomic_disabled: bool,
    /// A UMR may not change the page size of an mkey.
    pub umr_modify_entity_size_disabled: bool,
    #[bits(7)]
    __: u8,
}

/// General capabilities about offloads, second word (PRM `cmd_hca_cap`, offset 0x44 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapTransports {
    /// The device has reliable connections.
    pub rc: bool,
    #[bits(13)]
    __: u16,
    /// The keys in the list of an indirect mkey need not grant the rights that the mkey grants to the peer.
    pub imaicl: bool,
    #[bits(16)]
    __: u16,
    /// Completion queues may ignore overrun.
    pub cq_oi: bool,
}

/// General capabilities about pages (PRM `cmd_hca_cap`, offset 0x48 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapPages {
    /// Base-2 logarithm of the smallest page in bytes.
    pub log_pg_sz: u8,
    #[bits(5)]
    __: u8,
    /// User memory (umem) can be registered under user id 0, the id of the privileged user.
    pub umem_uid_0: bool,
    #[bits(2)]
    __: u8,
    /// Base-2 logarithm of the size of the UAR space in MiB.
    #[bits(6, into = low8::<6>)]
    pub uar_sz: u8,
    #[bits(1)]
    __: u8,
    /// Reliable connections can loop back while RoCE is off.
    pub fl_rc_qp_when_roce_disabled: bool,
    #[bits(7)]
    __: u8,
    /// UAR pages may have 4096 bytes, independent of the page size of the system.
    pub uar_4k: bool,
}

/// General capabilities about BlueFlame (PRM `cmd_hca_cap`, offset 0x4c bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapBlueFlame {
    __: u16,
    /// Base-2 logarithm of the size of a BlueFlame register in bytes, both halves together.
    #[bits(5, into = low8::<5>)]
    pub log_bf_reg_size: u8,
    #[bits(10)]
    __: u16,
    /// Software may write requests into the BlueFlame registers of a UAR page.
    pub bf: bool,
}

/// General capabilities about send requests (PRM `cmd_hca_cap`, offset 0x50 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapSendRequest {
    /// The longest request of a send queue in bytes.
    pub max_wqe_sz_sq: u16,
    __: u16,
}

/// General capabilities about receive requests (PRM `cmd_hca_cap`, offset 0x54 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapReceiveRequest {
    /// The longest request of a receive queue in bytes.
    pub max_wqe_sz_rq: u16,
    __: u16,
}

/// General capabilities about protection domains (PRM `cmd_hca_cap`, offset 0x64 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapProtectionDomains {
    __: u16,
    /// Base-2 logarithm of the largest number of protection domains.
    #[bits(5, into = low8::<5>)]
    pub log_max_pd: u8,
    #[bits(11)]
    __: u16,
}

/// General capabilities about signatures of transactions (PRM `cmd_hca_cap`, offset 0x74 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapDigests {
    #[bits(7)]
    __: u8,
    /// One mkey may have both a signature of a transaction and AES-XTS.
    pub with_crypto: bool,
    #[bits(24)]
    __: u32,
}

/// General capabilities about AES-XTS engines (PRM `cmd_hca_cap`, offset 0x7c bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapXts {
    #[bits(13)]
    __: u16,
    /// The device has the engine with any number of data units per mkey and big-endian tweaks.
    pub aes_xts_multi_block_be_tweak: bool,
    /// The device has the engine with one data unit per mkey and little-endian tweaks.
    pub aes_xts_single_block_le_tweak: bool,
    /// The tweak grows by 2^64 from data unit to data unit.
    pub aes_xts_tweak_inc_64: bool,
    __: u16,
}

/// General capabilities about time stamps (PRM `cmd_hca_cap`, offset 0x88 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapTimestamps {
    #[bits(28)]
    __: u32,
    /// The formats of time stamps that receive queues support: 0 free-running, 1 real time, 2 both.
    #[bits(2, into = low8::<2>)]
    pub rq_ts_format: u8,
    /// The formats of time stamps that send queues support: 0 free-running, 1 real time, 2 both.
    #[bits(2, into = low8::<2>)]
    pub sq_ts_format: u8,
}

/// General capabilities about crypto (PRM `cmd_hca_cap`, offset 0x8c bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapCrypto {
    #[bits(22)]
    __: u32,
    /// The device encrypts. QUERY_HCA_CAP returns its crypto capabilities.
    pub crypto: bool,
    /// The device has the engine with any number of data units per mkey and little-endian tweaks.
    pub aes_xts_multi_block_le_tweak: bool,
    __: u8,
}

/// General capabilities about signature errors and UAR pages (PRM `cmd_hca_cap`, offset 0x90 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapSignatureErrors {
    /// Base-2 logarithm of the size of a UAR page in bytes, less 12.
    pub log_uar_page_sz: u16,
    #[bits(15)]
    __: u16,
    /// Completion entries for signature errors name the domain and the type of the signature.
    pub sigerr_domain_and_sig_type: bool,
}

/// General capabilities about memory copies by queue pairs (PRM `cmd_hca_cap`, offset 0xe8 bytes).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CapDmaQueues {
    #[bits(23)]
    __: u32,
    /// Queue pairs can copy memory (memory-to-memory operation).
    pub dma_mmo_qp: bool,
    __: u8,
}

/// General capabilities, 256 bytes (PRM `cmd_hca_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GeneralCapabilityBits {
    /// Not read by this library.
    pub reserved0: U32,
    /// Number of the virtual HCA, and whether a second structure of capabilities exists, see [`CapIdentity`].
    pub identity: U32,
    /// Not read by this library.
    pub reserved1: U32,
    /// Memory copies by the device, see [`CapDma`].
    pub dma: U32,
    /// Queue pairs, see [`CapQueuePairs`].
    pub queue_pairs: U32,
    /// Not read by this library.
    pub reserved2: U32,
    /// Completion queues, see [`CapCompletionQueues`].
    pub completion_queues: U32,
    /// Mkeys, see [`CapMkeys`].
    pub mkeys: U32,
    /// Limits of mkeys, see [`CapMkeyLimits`].
    pub mkey_limits: U32,
    /// Extension of the queue pair context, see [`CapExtension`].
    pub extension: U32,
    /// Kinds of signature, and reads in flight, see [`CapSignatureTypes`].
    pub signature_types: U32,
    /// Address tables, see [`CapTables`].
    pub tables: U32,
    /// Not read by this library.
    pub reserved3: U32,
    /// Ports, see [`CapPorts`].
    pub ports: U32,
    /// Messages, see [`CapMessages`].
    pub messages: U32,
    /// Block sizes and completion entries, see [`CapBlocks`].
    pub blocks: U32,
    /// Offloads, first word, see [`CapOffloads`].
    pub offloads: U32,
    /// Offloads, second word, see [`CapTransports`].
    pub transports: U32,
    /// Pages, see [`CapPages`].
    pub pages: U32,
    /// BlueFlame registers, see [`CapBlueFlame`].
    pub blue_flame: U32,
    /// Limit of send requests, see [`CapSendRequest`].
    pub send_request: U32,
    /// Limit of receive requests, see [`CapReceiveRequest`].
    pub receive_request: U32,
    /// Not read by this library.
    pub reserved4: [U32; 3],
    /// Protection domains, see [`CapProtectionDomains`].
    pub protection_domains: U32,
    /// Not read by this library.
    pub reserved5: [U32; 3],
    /// Signatures of transactions, see [`CapDigests`].
    pub digests: U32,
    /// Not read by this library.
    pub reserved10: U32,
    /// AES-XTS engines, see [`CapXts`].
    pub xts: U32,
    /// Which general objects can be created: bit n stands for type n, see [`super::object::ObjectType`].
    pub general_obj_types: U64,
    /// Time stamps, see [`CapTimestamps`].
    pub timestamps: U32,
    /// Crypto, see [`CapCrypto`].
    pub crypto: U32,
    /// Signature errors and UAR pages, see [`CapSignatureErrors`].
    pub signature_errors: U32,
    /// Not read by this library.
    pub reserved6: U32,
    /// Frequency of the time stamps' clock in MHz.
    pub device_frequency_mhz: U32,
    /// Frequency of the time stamps' clock in kHz.
    pub device_frequency_khz: U32,
    /// Not read by this library.
    pub reserved7: U32,
    /// Number of UARs in a UAR page.
    pub num_of_uars_per_page: U32,
    /// Not read by this library.
    pub reserved8: [U32; 16],
    /// Memory copies by queue pairs, see [`CapDmaQueues`].
    pub dma_queues: U32,
    /// Not read by this library.
    pub reserved9: [U32; 5],
}

crate::fmt::defmt_as_bytes!(GeneralCapabilityBits);

const _: () = assert!(size_of::<GeneralCapabilityBits>() == 256);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, identity) == 0x4);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, dma) == 0xc);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, queue_pairs) == 0x10);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, completion_queues) == 0x18);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, mkeys) == 0x1c);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, mkey_limits) == 0x20);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, extension) == 0x24);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, signature_types) == 0x28);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, tables) == 0x2c);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, ports) == 0x34);
const _: () =
    assert!(CapCompletionQueues::new().with_relaxed_ordering_write_umr(true).into_bits() == 1 << 15);
const _: () = assert!(CapMkeys::new().with_relaxed_ordering_write(true).into_bits() == 1 << 23);
const _: () = assert!(CapMkeyLimits::new().with_fixed_buffer_size(true).into_bits() == 1 << 23);
const _: () = assert!(CapTransports::new().with_imaicl(true).into_bits() == 1 << 14);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, messages) == 0x38);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, blocks) == 0x3c);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, offloads) == 0x40);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, transports) == 0x44);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, pages) == 0x48);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, blue_flame) == 0x4c);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, send_request) == 0x50);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, receive_request) == 0x54);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, protection_domains) == 0x64);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, xts) == 0x7c);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, general_obj_types) == 0x80);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, timestamps) == 0x88);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, crypto) == 0x8c);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, signature_errors) == 0x90);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, device_frequency_mhz) == 0x98);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, device_frequency_khz) == 0x9c);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, num_of_uars_per_page) == 0xa4);
const _: () = assert!(core::mem::offset_of!(GeneralCapabilityBits, dma_queues) == 0xe8);
