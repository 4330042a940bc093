//! Tests of requests as SPDK and DPDK write them. Both projects run on real devices.

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::mkey_context::MkeyContext;
use mlx5_softdev::*;

const LEN: u64 = 1;
const FREE: u64 = 1 << 29;
const TWEAK: u128 = 0x77;

/// SPDK's UMRs write the length and the free bit of a free mkey. DPDK's UMRs write only the length of an mkey
/// in use. Neither sets the enable bit of the BSF. The raw data size in the BSF equals the length. The list
/// may map more bytes than the length: the entries behind the length stay, but are unused.
#[test]
fn length_and_bsf_are_all_that_a_umr_needs() {
    let data = pattern(1536, 1);
    for (mask, free) in [(LEN | FREE, true), (LEN, false)] {
        let mut host = Host::new();
        let dek = host.dek(&XTS_KEY);
        let (at, key) = host.filled(&data);
        let attributes = MkeyAttributes { crypto: true, free, ..MkeyAttributes::new(host.pd, 4) };
        let created = host.device.create_mkey(attributes).unwrap();
        let mkey = Mkey { key: created, ..host.mkey(false, true) };
        for length in [1536, 512, 1024] {
            let entries = [(at, 512, key), (at + 512, 1024, key), (0xdead, 0, Key::from_raw(0xffff_ff00))];
            let config = Config::new(&mkey).list(&entries).crypto(2, 1, TWEAK.to_be_bytes(), dek);
            let mut config = Config { mask, ..config };
            config.context = MkeyContext { len: u64::from(length).into(), ..Default::default() };
            config.crypto.as_mut().unwrap().raw_data_size = length.into();
            host.configure(config);
            let wire = xts128(&XTS_KEY, &data[..length as usize], 512, TWEAK);
            assert_eq!(host.send_from(created, 0, length), wire, "{length} bytes");
            host.good(A);
            host.poll_recv(B);
        }
        // A transfer cannot use the entries behind the mkey's length.
        host.send_from(created, 0, 1536);
        assert_eq!(host.bad(A).why(), Refusal::Bounds);
    }
}
