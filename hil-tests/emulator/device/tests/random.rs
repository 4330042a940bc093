//! Tests that the device neither panics nor hangs with random BSFs, rings that change and impossible lengths.
//! The fuzz target `device` has random rings, requests and messages.

use crate::common::*;
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;
use proptest::prelude::*;

fn small() -> DeviceProfile {
    DeviceProfile { max_message_bytes: 1 << 20, max_ranges: 1 << 12, ..Default::default() }
}

/// Rings both doorbells and runs the device several times. Then puts the queue pairs into the error state,
/// and takes their events.
fn survive(host: &mut Host) {
    for at in [A, B] {
        let _ = host.device.doorbell(host.q[at].qpn);
    }
    for _ in 0..4 {
        host.device.run();
    }
    for at in [A, B] {
        let _ = host.device.modify(host.q[at].qpn, QpState::Error);
    }
    host.device.run();
    host.device.take_events();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_bsfs(
        mut signature in any::<[[u8; 16]; 4]>(), mut crypto in any::<[[u8; 16]; 4]>(), same in any::<bool>(),
        selectors in (0u8..8, 0u8..8, 0u8..8), families in (0u8..8, 0u8..8),
        length in 0u32..6000, offset in 0u64..6000,
    ) {
        let mut host = Host::with(small(), |_| {});
        let (at, region) = host.filled(&pattern(8192, 3));
        let (dek, mkey) = (host.dek(&XTS_KEY), host.mkey(true, true));
        // The beginning of each BSF is valid, and the named PSVs, DEK and region exist. All other bytes are
        // random.
        let list = Config::new(&mkey).access(LW | RR | RW).list(&[(at, 8192, region)]);
        signature[0][0] = 0xc0 | if same { 0x10 } else { 0 };
        signature[0][2] = selectors.0;
        signature[0][3] = selectors.1;
        signature[0][8..12].copy_from_slice(&(u32::from(families.0 << 4 | 3) << 24 | mkey.wire_psv).to_be_bytes());
        signature[0][12..16].copy_from_slice(&(u32::from(families.1 << 4 | 3) << 24 | mkey.memory_psv).to_be_bytes());
        crypto[0][0] = 0xc1;
        crypto[0][1] &= 3;
        crypto[0][3] = 0;
        crypto[0][8] = selectors.2;
        crypto[2][0..4].copy_from_slice(&dek.to_be_bytes());
        let mut config = list.signature(Sig::None, Sig::None, 0).crypto(0, 1, [0; 16], dek);
        config.signature = Some(zerocopy::transmute!(signature));
        config.crypto = Some(zerocopy::transmute!(crypto));
        host.configure(config);
        host.send_from(mkey.key, offset, length.max(1));
        survive(&mut host);
    }
}

#[test]
fn a_ring_that_rings_its_own_doorbell_ends() {
    let mut host = Host::with(small(), |_| {});
    let record = host.q[A].attributes.doorbell_record;
    let sq = host.q[A].attributes.sq;
    let rkey = host.device.register(host.pd, record, 8, Access::ALL).unwrap();
    let source = host.device.register(host.pd, sq, 64, Access::ALL).unwrap();
    // The RDMA WRITE copies word 0 of its own block to the send counter in the doorbell record, which then
    // announces far more blocks than the ring has.
    host.execute(A, rdma(Opcode::RDMA_WRITE, 0, record + 4, rkey, &[segment(sq, 4, source)]));
    survive(&mut host);
}

#[test]
fn impossible_lengths_take_no_time() {
    let mut host = Host::with(small(), |_| {});
    let (at, region) = host.region(8192, Access::ALL);
    let mkey = host.mkey(false, false);
    host.configure(Config::new(&mkey).access(LW | RR | RW | AT).strided(u32::MAX, &[(at, 1, 0, region)]));
    for (offset, length) in [(0, 1 << 20), (0, 0), (u64::MAX, 8), (u64::from(u32::MAX) - 4, 64), (0, 1 << 13)]
    {
        host.execute(A, rdma(Opcode::RDMA_READ, 0, offset, mkey.key, &[segment(0, length, mkey.key)]));
        host.bad(A);
        host.recover();
    }
}

#[test]
fn an_inline_segment_without_bytes_takes_its_octoword() {
    let mut host = Host::new();
    host.post_receive(B, &[]);
    host.succeeds(A, send(Opcode::SEND, 0, &[]).with(&(0x80_u128 << 120).to_be_bytes()));
}
