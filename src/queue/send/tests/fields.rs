//! Tests of the fields that few configurations change: PCIe ordering, invalidation by the peer, start
//! address.

use super::*;
use crate::mkey::{RelaxedOrdering, UmrForm};

const START: u64 = 0x7f00_0000_1234;

/// Returns mask and mkey context of a configuration with one entry, posted to a plain mkey.
fn posted(change: impl FnOnce(PreparedConfig) -> PreparedConfig) -> (u64, [u8; 64]) {
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let form = UmrForm::Minimal;
    let mut mkey = Mkey::new(MkeyAttributes { form, ..MkeyAttributes::plain(KEY, 4) });
    let prepared = change(prepare(&mkey, &MkeyConfig::UNCHANGED));
    queue.request(1).configure_mkey(&mut mkey, &prepared, &[ENTRY]).unwrap();
    let head: UmrHead = transmute!(queue.block(0).0);
    (head.umr.mkey_mask.get(), queue.block(1).0)
}

/// The bits of the mask and the places in the context are those of the kernel's `mlx5_ifc.h` and
/// `MLX5_MKEY_MASK_*`.
#[test]
fn m82_fields_and_their_mask_bits_are_those_of_the_kernel() {
    const BASE: u64 = 1 << 29 | 1;
    let (base, context) = posted(|prepared| prepared);
    assert_eq!(base, BASE);
    let changed = |at: usize, bits: u8| {
        let mut context = context;
        context[at] |= bits;
        context
    };
    let both = RelaxedOrdering { write: true, read: true };
    let mut relaxed = changed(1, 0x04);
    relaxed[0x3b] |= 0x40;
    let with = |ordering, on| posted(|prepared| prepared.with_relaxed_ordering(ordering, on));
    assert_eq!(with(both, true), (BASE | 1 << 25 | 1 << 47, relaxed));
    assert_eq!(with(both, false), (BASE | 1 << 25 | 1 << 47, context));
    let write = RelaxedOrdering { read: false, ..both };
    assert_eq!(with(write, true), (BASE | 1 << 25, changed(1, 0x04)));
    let read = RelaxedOrdering { write: false, ..both };
    assert_eq!(with(read, true), (BASE | 1 << 47, changed(0x3b, 0x40)));
    let invalidate = |on| posted(|prepared| prepared.with_remote_invalidate(on));
    assert_eq!(invalidate(true), (BASE | 1 << 8, changed(12, 0x01)));
    assert_eq!(invalidate(false), (BASE | 1 << 8, context));
    let mut moved = context;
    moved[16..24].copy_from_slice(&START.to_be_bytes());
    let (mask, context) = posted(|prepared| prepared.with_start_address(START).unwrap());
    assert_eq!((mask, context), (BASE | 1 << 6, moved));
    // One configuration makes all changes. The second call of `with_remote_invalidate` replaces the first.
    let all = posted(|prepared| {
        let prepared = prepared.with_remote_invalidate(true).with_relaxed_ordering(both, true);
        prepared.with_start_address(START).unwrap().with_remote_invalidate(false)
    });
    (moved[1], moved[0x3b]) = (4, 0x40);
    assert_eq!(all, (BASE | 1 << 6 | 1 << 8 | 1 << 25 | 1 << 47, moved));
}

#[test]
fn m82_spaces_that_cannot_be_are_refused() {
    let signed = signature_mkey();
    let prepared = prepare(&signed, &MkeyConfig::UNCHANGED);
    assert_eq!(prepared.with_start_address(4096).map(drop), Err(ConfigError::StartWithBsf));
    assert!(prepared.with_start_address(0).is_ok());
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 4));
    let at = |start| prepare(&mkey, &MkeyConfig::UNCHANGED).with_start_address(start).unwrap();
    let (last, behind) = (at(u64::MAX - 511), at(u64::MAX - 510));
    let posted = queue.request(1).configure_mkey(&mut mkey, &behind, &[ENTRY]);
    assert_eq!(posted, Err(ConfigError::SpaceBehindEnd.into()));
    assert_eq!((queue.producer(), mkey.length()), (0, 0));
    queue.request(1).configure_mkey(&mut mkey, &last, &[ENTRY]).unwrap();
}
