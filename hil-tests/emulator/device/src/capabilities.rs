//! The capabilities of the device (QUERY_HCA_CAP) and the identity of its port, as bits and numbers at their
//! offsets.

use crate::profile::{CryptoMode, DeviceProfile, Port, XtsEngine};
use alloc::vec;
use alloc::vec::Vec;

/// A field of a capability structure: its first bit, its width in bits, and its value. Bit 0 is the most
/// significant bit of byte 0.
pub(crate) struct Field {
    bit: usize,
    width: usize,
    value: u64,
}

pub(crate) const fn flag(byte: usize, bit: usize) -> Field {
    Field { bit: byte * 8 + bit, width: 1, value: 1 }
}

pub(crate) const fn number(byte: usize, bit: usize, width: usize, value: u64) -> Field {
    Field { bit: byte * 8 + bit, width, value }
}

/// The general object types of this device, as bits of `general_obj_types`: DEK 0x0c and crypto login 0x1f.
const OBJECT_DEK: u64 = 1 << 0x0c;
const OBJECT_LOGIN: u64 = 1 << 0x1f;

/// Logarithm of the largest number of translation entries of an mkey. Since it exceeds 16, the number of an
/// entry may need more than 16 bits.
pub const LOG_MAX_ENTRIES: u8 = 18;

/// The fields of `cmd_hca_cap` that have the same value in all profiles.
const GENERAL: &[Field] = &[
    number(0x10, 0, 8, 15),                     // log_max_srq_sz
    number(0x11, 0, 8, 15),                     // log_max_qp_sz
    number(0x13, 3, 5, 16),                     // log_max_qp
    number(0x15, 3, 5, 15),                     // log_max_srq
    number(0x19, 0, 8, 22),                     // log_max_cq_sz
    number(0x1b, 3, 5, 16),                     // log_max_cq
    number(0x1d, 2, 6, 24),                     // log_max_mkey
    number(0x20, 0, 8, 4),                      // max_indirection
    number(0x22, 2, 6, 8),                      // log_max_bsf_list_size
    number(0x23, 2, 6, LOG_MAX_ENTRIES as u64), // log_max_klm_list_size
    flag(0x28, 7),                              // sig_crc64_xp10
    number(0x37, 0, 8, 1),                      // num_ports
    flag(0x3e, 0),                              // sig_block_4048
    flag(0x42, 2),                              // sigerr_cqe
    flag(0x43, 5),                              // roce
    flag(0x47, 5),                              // ud
    flag(0x47, 6),                              // uc
    flag(0x47, 7),                              // rc
    number(0x4b, 0, 8, 12),                     // log_pg_sz
    flag(0x4c, 0),                              // bf
    number(0x4d, 3, 5, 9),                      // log_bf_reg_size
    number(0x52, 0, 16, 1008),                  // max_wqe_sz_sq
    number(0x56, 0, 16, 512),                   // max_wqe_sz_rq
    number(0x65, 3, 5, 24),                     // log_max_pd
    number(0x70, 3, 5, 15),                     // log_max_rmp
    flag(0x90, 0),                              // sigerr_domain_and_sig_type
    number(0x98, 0, 32, 1000),                  // device_frequency_mhz
    number(0x9c, 0, 32, 1_000_000),             // device_frequency_khz
];

/// The fields of `cmd_hca_cap` for relaxed ordering.
const RELAXED_ORDERING: &[Field] = &[
    flag(0x1a, 0), // relaxed_ordering_write_umr
    flag(0x1a, 1), // relaxed_ordering_read_umr
    flag(0x1d, 0), // relaxed_ordering_write
    flag(0x1d, 1), // relaxed_ordering_read
];

/// The fields of `atomic_caps`: compare-and-swap and fetch-and-add of 8 bytes, whose old values arrive in the
/// host's byte order.
const ATOMIC: &[Field] = &[
    number(8, 0, 2, 1),     // atomic_req_8B_endianness_mode
    flag(8, 6),             // supported_atomic_req_8B_endianness_mode_1
    number(0x12, 0, 16, 3), // atomic_operations
    number(0x16, 0, 16, 8), // atomic_size_qp, in bytes
];

/// The fields of `atomic_caps` of a device that also has masked atomics, of 4 and of 8 bytes. UCX posts
/// masked atomics only if `atomic_size_dc`, the field for dynamically connected queue pairs, allows them too.
const MASKED_ATOMICS: &[Field] = &[
    number(0x12, 0, 16, 0xf), // atomic_operations
    number(0x16, 0, 16, 0xc), // atomic_size_qp
    number(0x1a, 0, 16, 0xc), // atomic_size_dc
];

/// The fields of `cmd_hca_cap_2` of a device whose send queues can do without a doorbell record.
const DOORBELL_ALONE: &[Field] = &[
    flag(0x5c, 0),          // send_dbr_mode_no_dbr_int
    flag(0x5c, 1),          // send_dbr_mode_no_dbr_ext
    number(0x5c, 3, 5, 15), // log_max_send_dbr_less_qp_sq
];

/// The fields of `roce_cap` that have the same value in all profiles.
const ROCE: &[Field] = &[
    flag(0, 6),                  // fl_rc_qp_when_roce_enabled
    number(0x18, 0, 16, 0xffff), // r_roce_max_src_udp_port
    number(0x1a, 0, 16, 0xc000), // r_roce_min_src_udp_port
];

/// The kinds of capabilities: `op_mod` of QUERY_HCA_CAP without its lowest bit. The lowest bit selects
/// current or maximal values.
const KIND_GENERAL: u16 = 0;
const KIND_ATOMIC: u16 = 3;
const KIND_ROCE: u16 = 4;
const KIND_CRYPTO: u16 = 0x1a;
const KIND_GENERAL_2: u16 = 0x20;

/// Kinds of capabilities that this device does not have: Ethernet offloads, paging, IPoIB, IPoIB enhanced,
/// flow tables, flow tables of the switch, switch, vectors, quality of service, debugging, memory of the
/// device, TLS, vDPA, events, IPsec, SHAMPO, PSP, MACsec, selection of ports, virtualization, RDMA, TLP
/// (`enum mlx5_cap_type`). Their structures are all zeros.
const KINDS_WITHOUT: [u16; 22] = [
    0x1, 0x2, 0x5, 0x6, 0x7, 0x8, 0x9, 0xb, 0xc, 0xd, 0xf, 0x11, 0x13, 0x14, 0x15, 0x1d, 0x1e, 0x1f, 0x25,
    0x26, 0x28, 0x2a,
];

/// The number of bytes of a capability structure.
const BYTES: usize = 0x1000;

/// Returns the capability structure that the `op_mod` of QUERY_HCA_CAP selects. Capabilities that this device
/// does not have read as 0. Returns `None` for an unknown kind of capabilities, and for the crypto
/// capabilities of a device without crypto.
pub fn capabilities(op_mod: u16, profile: &DeviceProfile) -> Option<Vec<u8>> {
    let mut bytes = vec![0; BYTES];
    let crypto = profile.crypto != CryptoMode::None;
    let timestamps = profile.timestamps as u64;
    match op_mod >> 1 {
        KIND_GENERAL => {
            put_all(&mut bytes, GENERAL);
            if profile.port == Port::Ethernet {
                put(&mut bytes, &number(0x36, 6, 2, 1)); // port_type; InfiniBand is 0
            }
            if profile.cq_oi {
                put(&mut bytes, &flag(0x44, 0)); // cq_oi
            }
            if profile.user_indices {
                put(&mut bytes, &number(0x3f, 4, 4, 1)); // cqe_version
            }
            if profile.atomic {
                put(&mut bytes, &flag(0x43, 6)); // atomic
            }
            if profile.fixed_entries {
                put(&mut bytes, &flag(0x21, 0)); // fixed_buffer_size: KSM
            }
            if profile.signatures {
                put(&mut bytes, &flag(0x42, 7)); // sho
            }
            if profile.crc32c {
                put(&mut bytes, &flag(0x29, 0)); // sig_crc32c
            }
            if profile.drain_sigerr {
                put(&mut bytes, &flag(0x41, 7)); // drain_sigerr
            }
            put(&mut bytes, &number(0x41, 2, 2, profile.umr_fence as u64));
            put(&mut bytes, &number(0x29, 2, 6, profile.log_max_reads.into())); // log_max_ra_req_qp
            put(&mut bytes, &number(0x2b, 2, 6, profile.log_max_reads.into())); // log_max_ra_res_qp
            put(&mut bytes, &number(0x38, 3, 5, profile.log_max_message().into())); // log_max_msg
            put(&mut bytes, &number(0x88, 0, 2, timestamps)); // sq_ts_format
            put(&mut bytes, &number(0x88, 2, 2, timestamps)); // rq_ts_format
            if profile.relaxed_ordering {
                put_all(&mut bytes, RELAXED_ORDERING);
            }
            if profile.extended_offsets {
                put(&mut bytes, &flag(0x23, 0)); // umr_extended_translation_offset
            }
            if !profile.inner_remote_rights {
                put(&mut bytes, &flag(0x46, 1)); // imaicl
            }
            if let Some(log) = profile.log_max_copy {
                put(&mut bytes, &number(0xd, 3, 5, log.into())); // log_dma_mmo_max_size
                put(&mut bytes, &flag(0x24, 2)); // qpc_extension
                put(&mut bytes, &flag(0xe9, 0)); // dma_mmo_qp
            }
            if profile.doorbell_alone {
                put(&mut bytes, &flag(4, 0)); // hca_cap_2
            }
            let mut objects = 0;
            if crypto {
                put(&mut bytes, &flag(0x8d, 1)); // crypto
                let engine = match profile.xts {
                    XtsEngine::SingleBlock => flag(0x7e, 1), // aes_xts_single_block_le_tweak
                    XtsEngine::MultiBlock => flag(0x7e, 2),  // aes_xts_multi_block_be_tweak
                    XtsEngine::MultiBlockLittleEndian => flag(0x8d, 0), // aes_xts_multi_block_le_tweak
                };
                put(&mut bytes, &engine);
                put(&mut bytes, &flag(0x77, 0)); // a transaction signature with AES-XTS (PRM 0x74.7)
                if profile.tweak_inc_64 {
                    put(&mut bytes, &flag(0x7e, 0)); // aes_xts_tweak_inc_64
                }
                objects |= OBJECT_DEK;
            }
            if profile.crypto == CryptoMode::Wrapped {
                objects |= OBJECT_LOGIN;
            }
            put(&mut bytes, &number(0x80, 0, 64, objects)); // general_obj_types
        }
        KIND_ATOMIC if profile.atomic => {
            put_all(&mut bytes, ATOMIC);
            if profile.masked_atomics {
                put_all(&mut bytes, MASKED_ATOMICS);
            }
        }
        KIND_ATOMIC => {}
        KIND_ROCE => {
            put_all(&mut bytes, ROCE);
            put(&mut bytes, &number(3, 6, 2, timestamps)); // qp_ts_format
        }
        KIND_CRYPTO if crypto => {
            if profile.crypto == CryptoMode::Wrapped {
                put(&mut bytes, &flag(0, 0)); // wrapped_crypto_operational
                put(&mut bytes, &number(3, 0, 8, 4)); // wrapped_import_method: AES-XTS
            }
            put(&mut bytes, &flag(0, 3)); // synchronize_dek
            put(&mut bytes, &number(5, 3, 5, 12)); // log_max_num_deks
            put(&mut bytes, &number(6, 3, 5, 1)); // log_max_num_import_keks
            put(&mut bytes, &number(7, 3, 5, 1)); // log_max_num_creds
            put(&mut bytes, &number(0xa, 0, 8, 2)); // num_nv_import_keks
            put(&mut bytes, &number(0xb, 0, 8, 1)); // num_nv_credentials
        }
        KIND_GENERAL_2 if profile.doorbell_alone => put_all(&mut bytes, DOORBELL_ALONE),
        KIND_GENERAL_2 => {}
        kind if KINDS_WITHOUT.contains(&kind) => {}
        _ => return None,
    }
    Some(bytes)
}

/// Returns the context of the function's port (PRM `nic_vport_context`): RoCE is on, with the port's GUID and
/// MAC address.
pub fn nic_vport(guid: u64, mac: [u8; 6]) -> Vec<u8> {
    let mut bytes = vec![0; 0x100];
    let address = mac.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    put_all(
        &mut bytes,
        &[
            flag(3, 7),                   // roce_en
            number(0x26, 0, 16, 1522),    // mtu: 1500, and the frame around it
            number(0x28, 0, 64, guid),    // system_image_guid
            number(0x30, 0, 64, guid),    // port_guid
            number(0x38, 0, 64, guid),    // node_guid
            number(0xf6, 0, 48, address), // permanent_address
        ],
    );
    bytes
}

pub(crate) fn put_all(bytes: &mut [u8], fields: &[Field]) {
    for field in fields {
        put(bytes, field);
    }
}

fn put(bytes: &mut [u8], field: &Field) {
    for index in 0..field.width {
        let bit = field.bit + index;
        if field.value >> (field.width - 1 - index) & 1 == 1
            && let Some(byte) = bytes.get_mut(bit / 8)
        {
            *byte |= 0x80 >> (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Timestamps, UmrFence};

    #[test]
    fn fields_stand_in_their_bits() {
        let caps = capabilities(1, &DeviceProfile::default()).unwrap();
        assert_eq!(caps[0x90], 0x80);
        assert_eq!(caps[0x52..0x54], [3, 0xf0]);
        assert_eq!(caps[0x7e] & 0x60, 0x20);
        assert_eq!(caps[0x80..0x88], [0, 0, 0, 0, 0, 0, 0x10, 0]);
    }

    #[test]
    fn switches_of_the_profile_are_told() {
        let told = |profile: DeviceProfile| {
            let caps = capabilities(1, &profile).unwrap();
            let relaxed = (caps[0x1a] & 0xc0, caps[0x1d] & 0xc0);
            (
                caps[0x23],
                caps[0x41] >> 4 & 3,
                caps[0x46] >> 6 & 1,
                caps[0x7e] & 0xe0,
                caps[0x8d] >> 7,
                relaxed,
            )
        };
        assert_eq!(told(DeviceProfile::default()), (0x92, 0, 1, 0x20, 0, (0xc0, 0xc0)));
        let other = DeviceProfile {
            xts: XtsEngine::MultiBlockLittleEndian,
            tweak_inc_64: true,
            inner_remote_rights: true,
            umr_fence: UmrFence::None,
            relaxed_ordering: false,
            extended_offsets: false,
            ..DeviceProfile::default()
        };
        assert_eq!(told(other), (0x12, 2, 0, 0x80, 1, (0, 0)));
    }

    #[test]
    fn what_a_profile_lacks_is_not_told() {
        let told = |profile: DeviceProfile| {
            let (general, atomic) = (capabilities(1, &profile).unwrap(), capabilities(7, &profile).unwrap());
            let general =
                (general[0x21] & 0x80, general[0x3f] & 0xf, general[0x43] & 2, general[0x44] & 0x80);
            (general, atomic.iter().any(|byte| *byte != 0))
        };
        let full = DeviceProfile::default();
        assert_eq!(told(full), ((0x80, 1, 2, 0x80), true));
        assert_eq!(told(DeviceProfile { fixed_entries: false, ..full }).0, (0, 1, 2, 0x80));
        assert_eq!(told(DeviceProfile { user_indices: false, ..full }).0, (0x80, 0, 2, 0x80));
        assert_eq!(told(DeviceProfile { atomic: false, ..full }), ((0x80, 1, 0, 0x80), false));
        assert_eq!(told(DeviceProfile { cq_oi: false, ..full }).0, (0x80, 1, 2, 0));
    }

    #[test]
    fn what_is_not_there_is_zero_and_what_nobody_knows_is_refused() {
        let profile = DeviceProfile::default();
        for kind in [0x7, 0xc, 0xf, 0x28] {
            for op_mod in [kind << 1, kind << 1 | 1] {
                assert_eq!(capabilities(op_mod, &profile), Some(vec![0; 0x1000]), "{kind:#x}");
            }
        }
        for kind in [0xa, 0x10, 0x2b, 0x7fff] {
            assert_eq!(capabilities(kind << 1, &profile), None, "{kind:#x}");
        }
    }

    #[test]
    fn time_stamps_and_limits_are_told() {
        let told = |profile: DeviceProfile| {
            let (general, roce) = (capabilities(1, &profile).unwrap(), capabilities(9, &profile).unwrap());
            (general[0x88] & 0xf0, roce[3], general[0x29] & 0x3f, general[0x2b], general[0x38])
        };
        assert_eq!(told(DeviceProfile::default()), (0, 0, 4, 4, 30));
        let other = DeviceProfile {
            timestamps: Timestamps::RealTime,
            log_max_reads: 2,
            max_message_bytes: 1 << 24,
            ..DeviceProfile::default()
        };
        assert_eq!(told(other), (0x50, 1, 2, 2, 24));
        assert_eq!(told(DeviceProfile { timestamps: Timestamps::Both, ..other }).0, 0xa0);
    }

    #[test]
    fn copies_are_told_with_their_length() {
        let told = |log_max_copy| {
            let caps = capabilities(1, &DeviceProfile { log_max_copy, ..DeviceProfile::default() }).unwrap();
            (caps[0xd], caps[0x24], caps[0xe9])
        };
        assert_eq!((told(Some(21)), told(None)), ((21, 0x20, 0x80), (0, 0, 0)));
    }

    #[test]
    fn the_two_import_modes_exclude_each_other() {
        let wrapped = DeviceProfile { crypto: CryptoMode::Wrapped, ..DeviceProfile::default() };
        let caps = capabilities(0x35, &wrapped).unwrap();
        assert_eq!((caps[0] >> 7, caps[3]), (1, 4));
        let caps = capabilities(0x35, &DeviceProfile::default()).unwrap();
        assert_eq!((caps[0] >> 7, caps[3]), (0, 0));
        let none = DeviceProfile { crypto: CryptoMode::None, ..DeviceProfile::default() };
        assert!(capabilities(0x35, &none).is_none());
    }
}
