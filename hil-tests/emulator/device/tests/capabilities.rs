//! Tests of the capabilities of the device, at the offsets of the PRM.

use mlx5_softdev::capabilities::{capabilities, nic_vport};
use mlx5_softdev::{CryptoMode, DeviceProfile};

/// `general_obj_types` has DEKs on devices with crypto, and logins on devices that take wrapped keys.
#[test]
fn objects_are_told_that_there_are() {
    for (crypto, expected) in [
        (CryptoMode::None, 0),
        (CryptoMode::Plaintext, 1 << 0xc),
        (CryptoMode::Wrapped, 1 << 0xc | 1 << 0x1f),
    ] {
        let told = capabilities(1, &DeviceProfile { crypto, ..DeviceProfile::default() }).unwrap();
        assert_eq!(u64::from_be_bytes(told[0x80..0x88].try_into().unwrap()), expected, "{crypto:?}");
    }
}

/// `atomic_caps` has compare-and-swap and fetch-and-add of 8 bytes, with old values in the host's byte order,
/// and masked atomics of 4 and 8 bytes where the device has them. The second structure of general
/// capabilities has only the fields for send queues without a doorbell record, where the device has them.
#[test]
fn kinds_with_little_in_them_are_there() {
    let profile = DeviceProfile::default();
    let plain = DeviceProfile { masked_atomics: false, ..profile };
    for (op_mod, profile, numbers) in
        [(6, &profile, [15, 12, 12]), (7, &profile, [15, 12, 12]), (7, &plain, [3, 8, 0])]
    {
        let mut told = capabilities(op_mod, profile).unwrap();
        assert_eq!((told.len(), told[8]), (0x1000, 0x42));
        for (at, number) in [0x12, 0x16, 0x1a].into_iter().zip(numbers) {
            assert_eq!(told[at..at + 2], [0, number]);
        }
        told[8..0x1c].fill(0);
        assert_eq!(told, [0; 0x1000]);
    }
    for op_mod in [0x20 << 1, 0x20 << 1 | 1] {
        assert_eq!(capabilities(op_mod, &profile), Some(vec![0; 0x1000]));
    }
    let alone = DeviceProfile { doorbell_alone: true, ..profile };
    let [general, more] = [0, 0x20].map(|kind| capabilities(kind << 1 | 1, &alone).unwrap());
    assert_eq!((general[4] & 0x80, more[0x5c]), (0x80, 0xcf));
}

/// `nic_vport_context` has `roce_en`, the MTU, three GUIDs and the MAC address.
#[test]
fn a_port_says_who_it_is() {
    let mut told = nic_vport(0x0102_0304_0506_0708, [0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6]);
    assert_eq!((told.len(), told[3], &told[0x26..0x28]), (0x100, 1, &[5, 0xf2][..]));
    for guid in [0x28, 0x30, 0x38] {
        assert_eq!(told[guid..guid + 8], [1, 2, 3, 4, 5, 6, 7, 8]);
    }
    assert_eq!(told[0xf6..0xfc], [0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6]);
    for (from, to) in [(3, 4), (0x26, 0x40), (0xf6, 0xfc)] {
        told[from..to].fill(0);
    }
    assert_eq!(told, [0; 0x100], "and no more");
}
