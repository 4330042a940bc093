//! Tests of signatures over transactions, as SPDK's drivers use them (DEVICE.md, "Transaction signatures" and
//! "Transaction signatures with AES-XTS").

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::bsf::{BfsPsv, TransactionBits};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;

const NONE: TransactionBits = TransactionBits::new();
const KEY: [u8; 32] = *b"0123456789abcdefFEDCBA9876543210";

fn crc32c(data: &[u8]) -> [u8; 4] {
    crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(data).to_le_bytes()
}

fn wire(init: bool, ends: bool) -> TransactionBits {
    NONE.with_wire_init(init).with_wire_check_gen(ends)
}

/// Returns the word of a BSF that selects a CRC32C that starts from all ones, and names a PSV.
fn format(psv: u32) -> u32 {
    BfsPsv::new().with_bfs(BfsPsv::CRC32C).with_psv(psv).into_bits()
}

/// Returns an mkey over `data` that takes part in a transaction on the wire.
fn on_wire(host: &mut Host, data: &[u8], psv: u32, bits: TransactionBits) -> (u64, Mkey) {
    let mkey = host.mkey(true, false);
    let (at, key) = host.filled(data);
    let length = data.len() as u32;
    host.configure(Config::new(&mkey).access(LW | RR | RW).list(&[(at, length, key)]).transaction(
        bits,
        format(psv),
        0,
        length,
    ));
    (at, mkey)
}

#[test]
fn a_crc_is_generated_behind_the_data() {
    for length in [1, 63, 512, 4097, 65536] {
        let mut host = Host::new();
        let data = pattern(length, 1);
        let psv = host.device.create_psvs(host.pd, 1).unwrap()[0];
        let (_, mkey) = on_wire(&mut host, &data, psv, wire(true, true));
        let expected = [&data[..], &crc32c(&data)].concat();
        assert_eq!(host.read_from(mkey.key, 0, length as u32 + 4), expected, "by a peer");
        assert_eq!(host.send_from(mkey.key, 0, length as u32 + 4), expected, "to a peer");
        // One request reads the data alone, and the next request reads the CRC alone.
        assert_eq!(host.read_from(mkey.key, 0, length as u32), data);
        assert_eq!(host.read_from(mkey.key, length as u64, 4), crc32c(&data));
        assert!(host.signature_errors().is_empty());
    }
}

#[test]
fn a_psv_carries_the_crc_over_several_mkeys() {
    let mut host = Host::new();
    let all = pattern(3000, 3);
    let psv = host.device.create_psvs(host.pd, 1).unwrap()[0];
    let (_, first) = on_wire(&mut host, &all[..1000], psv, wire(true, false));
    let (_, second) = on_wire(&mut host, &all[1000..1500], psv, wire(false, false));
    let (_, third) = on_wire(&mut host, &all[1500..], psv, wire(false, true));
    for _ in 0..3 {
        assert_eq!(host.read_from(first.key, 0, 1000), all[..1000]);
        assert_eq!(host.read_from(second.key, 0, 500), all[1000..1500]);
        assert_eq!(host.read_from(third.key, 0, 1504), [&all[1500..], &crc32c(&all)].concat());
    }
    // A separate request reads the CRC, as if the receive list had no room for it.
    host.read_from(first.key, 0, 1000);
    host.read_from(second.key, 0, 500);
    assert_eq!(host.read_from(third.key, 0, 1500), all[1500..]);
    assert_eq!(host.read_from(third.key, 1500, 4), crc32c(&all));
    assert!(host.signature_errors().is_empty());
}

/// Returns the address of a copy of `bytes`, and an mkey over it for a transaction in memory. The CRC is the
/// last 4 of the bytes.
fn in_memory(host: &mut Host, bytes: &[u8], crypto: Option<u32>) -> (u64, Mkey) {
    let mkey = host.mkey(true, crypto.is_some());
    let (at, key) = host.filled(bytes);
    let bits = NONE.with_memory_init(true).with_memory_check_gen(true);
    let length = bytes.len() as u32;
    let mut config = Config::new(&mkey).access(LW | RR | RW).list(&[(at, length, key)]).transaction(
        bits,
        0,
        format(mkey.memory_psv),
        length - 4,
    );
    if let Some(dek) = crypto {
        config = config.crypto(3, 1, 7u128.to_be_bytes(), dek);
    }
    host.configure(config);
    (at, mkey)
}

#[test]
fn both_forms_with_aes_xts_have_the_crc_over_ciphertext() {
    let mut host = Host::new();
    let data = pattern(2048, 6);
    let ciphertext = xts128(&KEY, &data, 512, 7);
    let protected = [&ciphertext[..], &crc32c(&ciphertext)].concat();
    let dek = host.dek(&KEY);
    // Memory holds the data, and the wire carries their ciphertext with its CRC.
    let mkey = host.mkey(true, true);
    let (at, key) = host.filled(&data);
    let config = Config::new(&mkey).access(LW | RR | RW).list(&[(at, 2048, key)]).transaction(
        wire(true, true),
        format(mkey.wire_psv),
        0,
        2048,
    );
    host.configure(config.crypto(2, 1, 7u128.to_be_bytes(), dek));
    assert_eq!(host.read_from(mkey.key, 0, 2052), protected);
    host.put(at, &[0; 2048]);
    host.write_into(mkey.key, 0, &protected);
    assert_eq!(host.get(at, 2048), data);
    // Memory holds ciphertext with its CRC, and the wire carries the data.
    let (at, mkey) = in_memory(&mut host, &protected, Some(dek));
    assert_eq!(host.read_from(mkey.key, 0, 2048), data);
    host.put(at, &[0; 2052]);
    host.write_into(mkey.key, 0, &data);
    assert_eq!(host.get(at, 2052), protected);
    assert!(host.signature_errors().is_empty());
}

/// Reads through an mkey whose transfer must be refused. Returns the reason.
fn refused(host: &mut Host, key: Key, offset: u64, length: u32) -> Refusal {
    let (at, plain) = host.region(length as usize, Access::ALL);
    host.post(A, send(Opcode::SEND, 0, &[segment(offset, length, key)]));
    host.post_receive(B, &[segment(at, length, plain)]);
    host.ring(A);
    let refusal = host.bad(A).why();
    host.recover();
    refusal
}

#[test]
fn what_no_driver_asks_for_is_refused() {
    let mut host = Host::new();
    let data = pattern(1024, 7);
    let (_, mkey) = on_wire(&mut host, &data, 2, wire(true, true));
    assert_eq!(refused(&mut host, mkey.key, 1024, 4), Refusal::Psv, "the CRC of nothing yet");
    for (offset, length) in [(0, 1023), (1, 1023), (512, 512), (0, 1026), (512, 516), (1024, 2)] {
        assert_eq!(refused(&mut host, mkey.key, offset, length), Refusal::PartialBlock);
    }
    assert_eq!(refused(&mut host, mkey.key, 0, 1029), Refusal::Bounds);
    let (_, open) = on_wire(&mut host, &data, 2, wire(true, false));
    assert_eq!(refused(&mut host, open.key, 0, 1028), Refusal::Bounds, "it does not end here");
    let psv = host.device.create_psvs(host.pd, 1).unwrap()[0];
    let (_, next) = on_wire(&mut host, &data, psv, wire(false, true));
    assert_eq!(refused(&mut host, next.key, 0, 1028), Refusal::Psv, "it never began");
    // One message cannot have data of two transactions, also if both use the same PSV.
    let (at, plain) = host.region(2048, Access::ALL);
    host.post_receive(B, &[segment(at, 2048, plain)]);
    host.execute(A, send(Opcode::SEND, 0, &[segment(0, 1024, open.key), segment(0, 1024, open.key)]));
    assert_eq!(host.bad(A).why(), Refusal::Bsf);
    host.recover();

    type Change = fn(&mut mlx5_mkey::wire::bsf::SignatureBsf);
    // The device executes the changes with `true`, since no public source shows a device that refuses them.
    let changes: &[(&str, bool, Change)] = &[
        ("another length", true, |bsf| bsf.raw_data_size = 1023.into()),
        ("all of the mask", true, |bsf| bsf.check_byte_mask = 0xf0),
        ("both domains", true, |bsf| bsf.ext_memory_tfs_psv = bsf.ext_wire_tfs_psv),
        ("bits of the other domain", true, |bsf| bsf.ext_init_gen_pro_size = 0x3100_0000.into()),
        ("an unknown bit", true, |bsf| bsf.ext_init_gen_pro_size = 0x7000_0000.into()),
        ("bits without a format", true, |bsf| bsf.ext_wire_tfs_psv = 0.into()),
        ("blocks as well", true, |bsf| (bsf.memory, bsf.memory_bfs_psv) = (1, 0x4200_0002.into())),
        ("an epilogue", false, |bsf| bsf.ext_epi_size = 1.into()),
        ("another CRC", false, |bsf| {
            bsf.ext_wire_tfs_psv = (0x2000_0000 | bsf.ext_wire_tfs_psv.get() & 0xff).into()
        }),
    ];
    for (what, executes, change) in changes {
        let mkey = host.mkey(true, false);
        let (at, key) = host.filled(&data);
        let mut config = Config::new(&mkey).list(&[(at, 1024, key)]).transaction(
            wire(true, true),
            format(mkey.wire_psv),
            0,
            1024,
        );
        change(config.signature.as_mut().unwrap());
        host.configure(config);
        if *executes {
            assert_eq!(host.send_from(mkey.key, 0, 1024), data, "{what}");
            host.good(A);
        } else {
            assert_eq!(refused(&mut host, mkey.key, 0, 1024), Refusal::Bsf, "{what}");
        }
    }
    // The device executes AES-XTS with encryption orders that SPDK does not use here, because no source shows
    // a device that refuses them.
    let dek = host.dek(&KEY);
    for order in [0, 1, 3] {
        let mkey = host.mkey(true, true);
        let (at, key) = host.filled(&data);
        let config = Config::new(&mkey).list(&[(at, 1024, key)]).transaction(
            wire(true, true),
            format(mkey.wire_psv),
            0,
            1024,
        );
        host.configure(config.crypto(order, 1, [0; 16], dek));
        host.send_from(mkey.key, 0, 1024);
        host.good(A);
    }
}
