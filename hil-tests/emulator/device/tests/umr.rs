//! Tests of UMRs: of the effect of each bit of the mask, and of refused requests (DEVICE.md, "UMR").

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::bsf::{CryptoBsf, SignatureBsf};
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wire::ctrl::{FmCeSe, Opcode};
use mlx5_mkey::wire::mkey_context::{FlagsPd, MkeyContext};
use mlx5_mkey::wire::umr::UmrControlSegment;
use mlx5_softdev::*;

const INLINE: u8 = 0x80;
const OFFSET: u8 = 0x10;

/// Returns a UMR of this key, without lists.
fn umr(key: Key, control: UmrControlSegment, context: MkeyContext) -> Wqe {
    Wqe::new(Opcode::UMR, key.get()).with(&control).with(&context)
}

/// Returns the control segment of a UMR that changes only its lists. Their sizes are in octowords.
fn sizes(flags: u8, entries: u16, bsfs: u16) -> UmrControlSegment {
    UmrControlSegment {
        flags,
        klm_octowords: entries.into(),
        bsf_octowords: bsfs.into(),
        ..Default::default()
    }
}

/// Returns a UMR of this key that changes only its lists.
fn lists(key: Key, control: UmrControlSegment) -> Wqe {
    umr(key, control, MkeyContext::default())
}

/// Executes a UMR on queue pair A. `Err` is the kind of refusal.
fn execute(host: &mut Host, wqe: Wqe) -> Result<(), Refusal> {
    host.execute(A, wqe);
    if host.device.query(host.q[A].qpn).unwrap().state == QpState::ReadyToSend {
        host.good(A);
        return Ok(());
    }
    let seen = host.bad(A);
    host.recover();
    assert_eq!(seen.syndrome(), Syndrome::LOCAL_QP_OPERATION);
    Err(seen.why())
}

const UNSUPPORTED: Result<(), Refusal> = Err(Refusal::UmrUnsupported);

/// Returns the properties of an mkey as texts.
fn held(host: &Host, key: Key) -> Vec<String> {
    let text = format!("{:?}", host.device.query_mkey(key.index()).unwrap());
    text.split(", ").map(|property| property.trim_end_matches([' ', '}', ')']).to_owned()).collect()
}

/// Each bit of the mask changes one property of the mkey. Bits that no source describes have no effect. The
/// bit of the protection domain only makes the device compare the domain.
#[test]
fn each_bit_of_the_mask_changes_its_own_property() {
    for relaxed_ordering in [true, false] {
        let mut host = Host::with(DeviceProfile { relaxed_ordering, ..Default::default() }, |_| {});
        let flags = FlagsPd::new().with_pd(host.pd).with_remote_invalidate(true).with_sig_err_count(true);
        // Each written value differs from the value in a new key.
        let context = MkeyContext {
            access: LW | RR | RW | AT,
            ordering: 0xff,
            page: 0xff,
            flags_pd: flags.into_bits().into(),
            qpn_mkey: (0x77 << 8 | 0x5a).into(),
            start_addr: 4096.into(),
            len: 96.into(),
            ..Default::default()
        };
        for bit in 0..64 {
            let expected: Option<&[&str]> = match bit {
                0 => Some(&["length: 96"]),
                25 | 47 if !relaxed_ordering => None,
                7 => Some(&[]),
                6 => Some(&["start: 4096"]),
                8 => Some(&["remote_invalidate: true"]),
                9 => Some(&["errors_expected: true"]),
                12 => Some(&["bsf_enabled: false"]),
                13 => Some(&["MkeyView(Mkey { tag: 90"]),
                14 => Some(&["qpn: Some(119"]),
                17 => Some(&["access: Access { local_read: false"]),
                18 => Some(&["local_write: true"]),
                19 => Some(&["remote_read: true"]),
                20 => Some(&["remote_write: true"]),
                21 => Some(&["remote_atomic: true"]),
                25 => Some(&["relaxed_ordering: [true"]),
                29 => Some(&["free: false"]),
                47 => Some(&["true]"]),
                _ => Some(&[]),
            };
            let attributes = MkeyAttributes {
                signature: true,
                access: Access::LOCAL_READ,
                ..MkeyAttributes::new(host.pd, 4)
            };
            let key = host.device.create_mkey(attributes).unwrap();
            let before = held(&host, key);
            let control = UmrControlSegment { mkey_mask: (1 << bit).into(), ..sizes(INLINE, 0, 0) };
            let done = execute(&mut host, umr(key, control, context));
            let after = held(&host, key);
            let changed: Vec<_> =
                before.iter().zip(&after).filter(|(old, new)| old != new).map(|(_, new)| new).collect();
            assert_eq!(changed, expected.unwrap_or_default(), "bit {bit}");
            assert_eq!(done, if expected.is_some() { Ok(()) } else { UNSUPPORTED }, "bit {bit}");
        }
    }
}

/// A UMR without entries and BSFs has no pointer, also if its flags say that its lists are in memory.
#[test]
fn without_lists_there_is_nothing_to_point_at() {
    let mut host = Host::new();
    let mkey = host.mkey(false, false);
    let (at, region) = host.filled(&[7; 64]);
    host.configure(Config::new(&mkey).access(LW).list(&[(at, 64, region)]));
    let malformed = Err(Refusal::Malformed);
    for (flags, first, done) in [(0, 0, Ok(())), (OFFSET, 0, Ok(())), (OFFSET, 4, Ok(())), (0, 4, malformed)]
    {
        assert_eq!(execute(&mut host, lists(mkey.key, sizes(flags, 0, first))), done, "{flags:#x} {first}");
        assert_eq!(host.send_from(mkey.key, 0, 64), [7; 64]);
        host.good(A);
    }
}

/// The BSFs begin after a multiple of 64 bytes of entries, also if the UMR counts fewer entries.
#[test]
fn entries_that_fill_no_block_are_padded_before_the_bsf() {
    let mut host = Host::new();
    let data = pattern(512, 3);
    let (at, region) = host.filled(&data);
    for count in 1..=8_u16 {
        let mkey = host.mkey(true, false);
        let piece = 512 / u32::from(count);
        let entries: Vec<_> = (0..count)
            .map(|number| {
                let bytes = if number + 1 == count { 512 - piece * u32::from(number) } else { piece };
                (at + u64::from(number) * u64::from(piece), bytes, region)
            })
            .collect();
        let config =
            Config::new(&mkey).access(LW).list(&entries).signature(Sig::None, Sig::t10(0x1234, 100), 0xff);
        let psvs = config.psvs.clone();
        let Wqe(mut bytes) = config.umr().ce(2);
        // The count of entries excludes the padding behind them.
        bytes[20..22].copy_from_slice(&count.to_be_bytes());
        assert_eq!(execute(&mut host, Wqe(bytes)), Ok(()), "{count}");
        for (psv, transient) in psvs {
            host.post(A, set_psv(psv, transient));
        }
        assert_eq!(host.send_from(mkey.key, 0, 520), with_pi(&data, 0x1234, 100), "{count}");
        host.good(A);
    }
    // A request that ends with its entries need not be padded.
    let mkey = host.mkey(false, false);
    host.configure(Config::new(&mkey).access(LW).list(&[(at, 512, region); 4]));
    let short = lists(mkey.key, sizes(INLINE, 1, 0)).with(&klm(at, 512, region));
    assert_eq!(execute(&mut host, short), Ok(()));
    assert_eq!(host.send_from(mkey.key, 0, 512), data);
}

#[test]
fn what_replaces_a_part_of_a_block_empties_the_rest_of_it() {
    let mut host = Host::new();
    let data = pattern(120, 3);
    let (at, region) = host.filled(&data);
    let mkey = host.mkey(false, false);
    let entries: Vec<_> = (0..12).map(|number| (at + number * 10, 10, region)).collect();
    host.configure(Config::new(&mkey).access(LW).list(&entries));
    // One entry replaces entries 4 to 7. Entries 8 to 11 stay.
    let control = sizes(INLINE | OFFSET, 1, 4);
    let wqe = lists(mkey.key, control).with(&klm(at, 40, region)).with(&[0_u8; 48][..]);
    assert_eq!(execute(&mut host, wqe), Ok(()));
    let space = [&data[..40], &data[..40], &data[80..]].concat();
    assert_eq!(host.send_from(mkey.key, 0, 120), space);
    host.good(A);
    // Entries 8 to 11 have kept their numbers.
    let wqe = lists(mkey.key, sizes(INLINE | OFFSET, 1, 8)).with(&klm(at, 40, region)).with(&[0_u8; 48][..]);
    assert_eq!(execute(&mut host, wqe), Ok(()));
    let space = [&data[..40], &data[..40], &data[..40]].concat();
    assert_eq!(host.send_from(mkey.key, 0, 120), space);
}

#[test]
fn bsfs_come_in_one_order_and_name_their_size() {
    let mut host = Host::new();
    let (at, region) = host.filled(&[7; 64]);
    let both = host.mkey(true, true);
    let signature = |size: u8| SignatureBsf { bsf_size_sbs: size, ..Default::default() };
    let crypto = |size: u8| CryptoBsf { bsf_size_type: size | 1, ..Default::default() };
    let wqe = |bsfs: u16| lists(both.key, sizes(INLINE, 0, bsfs));
    for (what, wqe, done) in [
        ("both", wqe(8).with(&signature(0xc0)).with(&crypto(0xc0)), Ok(())),
        ("an empty one names no size", wqe(8).with(&signature(0)).with(&crypto(0xc0)), Ok(())),
        ("an empty one alone", wqe(4).with(&signature(0)), Ok(())),
        ("crypto first", wqe(8).with(&crypto(0xc0)).with(&signature(0xc0)), UNSUPPORTED),
        ("signature twice", wqe(8).with(&signature(0xc0)).with(&signature(0xc0)), UNSUPPORTED),
        ("crypto twice", wqe(8).with(&crypto(0xc0)).with(&crypto(0xc0)), UNSUPPORTED),
        ("one with the size of two", wqe(4).with(&signature(0xc0)), UNSUPPORTED),
        ("full of ones", wqe(8).with(&[0x3e_u8; 64]).with(&crypto(0xc0)), UNSUPPORTED),
        ("half of one", wqe(2), UNSUPPORTED),
    ] {
        assert_eq!(execute(&mut host, wqe), done, "{what}");
    }
    // A refused UMR leaves the space of its mkey as it was.
    let plain = host.mkey(false, false);
    host.configure(Config::new(&plain).access(LW).list(&[(at, 64, region)]));
    assert_eq!(execute(&mut host, lists(plain.key, sizes(INLINE, 0, 4)).with(&signature(0x80))), UNSUPPORTED);
    assert_eq!(host.send_from(plain.key, 0, 64), [7; 64]);
}

/// The fault `local_inv_ignored` affects only LOCAL_INV, and no other UMRs.
#[test]
fn a_device_that_leaves_keys_usable_changes_them_otherwise() {
    let mut host = Host::with_faults(|faults| faults.local_inv_ignored = true);
    let (at, region) = host.filled(&[7; 64]);
    let mkey = host.mkey(false, false);
    host.configure(Config::new(&mkey).access(LW).list(&[(at, 64, region)]));
    // The free bit is set in the context, but the mask does not select it.
    let context = MkeyContext { free: 0x40, access: RR, ..Default::default() };
    let control = UmrControlSegment { mkey_mask: (1_u64 << 19).into(), ..sizes(INLINE, 0, 0) };
    assert_eq!(execute(&mut host, umr(mkey.key, control, context)), Ok(()));
    assert_eq!(host.read_from(mkey.key, 0, 64), [7; 64]);
    host.good(B);
    host.post(A, local_inv(mkey.key));
    assert_eq!(host.send_from(mkey.key, 0, 64), [7; 64]);
    host.good(A);
}

#[test]
fn an_mkey_with_signatures_has_a_length_of_32_bits() {
    let mut host = Host::new();
    let (at, region) = host.region(520, Access::ALL);
    let mkey = host.mkey(true, false);
    for (length, end) in [(u64::from(u32::MAX), Ok(())), (1 << 32, UNSUPPORTED)] {
        let mut config = Config::new(&mkey).access(LW).list(&[(at, 520, region)]);
        config.context.len = length.into();
        let config = config.signature(Sig::None, Sig::t10(1, 2), 0xff);
        let umr = config.umr().ce(FmCeSe::CE_ALWAYS);
        assert_eq!(execute(&mut host, umr), end, "{length}");
    }
}
