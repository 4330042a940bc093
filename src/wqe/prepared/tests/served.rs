//! Tests that an mkey accepts a prepared configuration of its own kind, and refuses those of other kinds.

use super::*;
use crate::wire::bsf::BfsPsv;
use crate::wire::mkey_context::QpnMkey;
use crate::wire::psv::SetPsvSegment;
use crate::wire::umr::UmrHead;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Returns the structure at byte offset `at` of a request.
fn part<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned>(
    request: &mut [u8],
    at: usize,
) -> &mut T {
    T::mut_from_bytes(&mut request[at..at + size_of::<T>()]).unwrap()
}

/// Puts zeros over the numbers that belong to one mkey, and returns these numbers: the key in the UMR's
/// control segment, the tag in the mkey context, and the PSV numbers of the BSF and of the SET_PSV requests.
fn take_names(requests: &mut [Vec<u8>], signature: bool) -> (Key, u8, Vec<u32>) {
    let (umr, set_psvs) = requests.split_first_mut().unwrap();
    let key = core::mem::take(&mut part::<UmrHead>(umr, 0).ctrl.imm);
    let context: &mut MkeyContext = part(umr, WQEBB_BYTES);
    let tag = QpnMkey::from_bits(context.qpn_mkey.get());
    context.qpn_mkey = U32::new(tag.with_tag(0).into_bits());
    let mut psvs = Vec::new();
    // The BSF stands behind the two blocks of the head and one block of entries.
    if signature && umr.len() > 3 * WQEBB_BYTES {
        let bsf: &mut SignatureBsf = part(umr, 3 * WQEBB_BYTES);
        for word in [&mut bsf.memory_bfs_psv, &mut bsf.wire_bfs_psv] {
            let selector = BfsPsv::from_bits(word.get());
            psvs.push(selector.psv());
            *word = U32::new(selector.with_psv(0).into_bits());
        }
    }
    for request in set_psvs {
        psvs.push(core::mem::take(&mut part::<SetPsvSegment>(request, 16).psv_index).get());
    }
    (Key::from_raw(key.get()), tag.tag(), psvs)
}

#[test]
fn one_prepared_value_serves_mkeys_of_other_keys_tags_and_psvs() {
    let names = [
        (PLAIN.key, [0x11, 0x22]),
        (Key::from_raw(0xffff_ff56), [0x00fe_dcba, 0x0001_0000]),
        (Key::from_raw(0x0000_01ff), [0x33, 0]),
    ];
    for (mkey, config) in all_configs() {
        let kind = mkey.kind();
        let prepared = PreparedConfig::with_any_data_unit(kind, &config).unwrap();
        let mut nameless = None;
        for (key, [memory, wire]) in names {
            let [memory_psv, wire_psv] = [memory, wire].map(PsvIndex::from_low_bits);
            let signature = kind.signature.map(|_| SignatureAttributes::new(memory_psv, wire_psv));
            let attributes =
                MkeyAttributes { key, signature, crypto: kind.crypto, tag_update: true, ..PLAIN };
            let mut mkey = Mkey::new(attributes);
            let domain = |kind, psv| config.signature.signature()?.domain(kind).map(|_| psv);
            let set = [domain(DomainKind::Memory, memory), domain(DomainKind::Wire, wire)];
            // The first post also writes the error count. The second tests a UMR without the count.
            for first in [true, false] {
                let mut requests = configured(&mut mkey, &prepared, LIST);
                let (named, tag, psvs) = take_names(&mut requests, signature.is_some());
                assert_eq!((named, tag), (key, key.tag()));
                let in_bsf = set.into_iter().map(Option::unwrap_or_default).take(psvs.len().min(2));
                let expected: Vec<_> = in_bsf.chain(set.into_iter().flatten()).collect();
                assert_eq!(psvs, expected, "{config:?}");
                if !first {
                    assert_eq!(&requests, nameless.get_or_insert(requests.clone()));
                }
            }
        }
    }
}

/// Returns attributes of mkeys of all kinds.
fn all_kinds() -> Vec<MkeyAttributes> {
    let with = |capabilities| {
        Some(SignatureAttributes { capabilities, ..attributes(true, None).signature.unwrap() })
    };
    let signatures = (0..16).map(|bits| {
        let [block_4048, crc32c, crc64_xp10, digest_with_xts] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        with(SignatureCapabilities { block_4048, crc32c, crc64_xp10, digest_with_xts })
    });
    let signatures: Vec<_> = signatures.chain([None]).collect();
    let mut kinds = Vec::new();
    for crypto in ENGINES.map(Some).into_iter().chain([None]) {
        for signature in signatures.iter().copied() {
            for max_entries in [16, 4, 0xffff, 0x1_0010, u32::MAX] {
                kinds.push(MkeyAttributes { max_entries, signature, crypto, ..PLAIN });
            }
        }
    }
    kinds
}

#[test]
fn an_mkey_of_another_kind_is_refused() {
    let kinds = all_kinds();
    for (made_for, whole) in kinds.iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let config = match whole {
            true => MkeyConfig {
                access: Some(Access::ALL),
                signature: made_for.signature.map_or(SignatureChange::Keep, |_| SignatureChange::Reset),
                crypto: made_for.crypto.map(|_| crypto(1)),
            },
            false => MkeyConfig::UNCHANGED,
        };
        let prepared = PreparedConfig::with_any_data_unit(made_for.kind(), &config).unwrap();
        for posted_on in &kinds {
            let fresh = Mkey::new(*posted_on);
            // `told` is an mkey with a known state whose error count the device knows. `forgotten` is an mkey
            // with an unknown state.
            let (mut told, mut forgotten) = (fresh.clone(), fresh.clone());
            told.error_count_pending = false;
            forgotten.forget();
            for (mut mkey, known) in [(fresh, true), (told, true), (forgotten, false)] {
                if made_for.kind() != posted_on.kind() {
                    assert_eq!(refusal(&mut mkey, &prepared, LIST), ConfigError::OtherKind);
                } else if whole || known {
                    configured(&mut mkey, &prepared, LIST);
                }
            }
        }
    }
}

#[test]
fn m3_a_tag_that_the_device_cannot_write_is_refused() {
    let key = Key::from_raw(0x0012_3456);
    let mut mkey = Mkey::new(MkeyAttributes { key, ..PLAIN });
    let config = MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED };
    let prepared = PreparedConfig::with_any_data_unit(mkey.kind(), &config).unwrap();
    let refused = ConfigError::TagUpdateUnsupported { tag: 0x56 };
    for lose in [|_: &mut Mkey| (), Mkey::forget] {
        lose(&mut mkey);
        assert_eq!(refusal(&mut mkey, &prepared, LIST), refused);
    }
    mkey.set_tag(0).unwrap();
    configured(&mut mkey, &prepared, LIST);
}

#[test]
fn words_and_fields_agree() {
    let attributes = attributes(true, Some(XtsEngine::MultiBlock));
    let key = Key::from_raw(0x0012_3456);
    let mut mkey = Mkey::new(MkeyAttributes { key, tag_update: true, ..attributes });
    let (access, signature) = (Some(Access::ALL), SignatureChange::Set(BlockSignature::wire(dif(1, 2))));
    let config = MkeyConfig { access, signature, crypto: Some(crypto(3)) };
    let prepared = PreparedConfig::with_any_data_unit(mkey.kind(), &config).unwrap();
    let mut requests = configured(&mut mkey, &prepared, LIST);
    let head: UmrHead = *part(&mut requests[0], 0);
    let mask = MkeyMask::new().with_free(true).with_mkey(true).with_len(true).with_bsf_enable(true);
    let mask = mask.with_local_write(true).with_remote_read(true).with_remote_write(true).with_atomic(true);
    let expected = UmrControlSegment {
        flags: UmrFlags::new().with_inline(true).into_bits(),
        klm_octowords: U16::new(4),
        bsf_octowords: U16::new(8),
        mkey_mask: U64::new(mask.with_sig_err(true).into_bits()),
        ..UmrControlSegment::default()
    };
    assert_eq!((head.umr, head.ctrl.imm.get()), (expected, key.get()));
    let flags = FlagsPd::new().with_bsf_enable(true).with_sig_err_count(true);
    let expected = MkeyContext {
        access: Access::ALL.to_wire().into_bits(),
        qpn_mkey: U32::new(QpnMkey::new().with_qpn(QpnMkey::ANY).with_tag(0x56).into_bits()),
        flags_pd: U32::new(flags.into_bits()),
        len: U64::new(1024),
        ..MkeyContext::default()
    };
    assert_eq!(part::<MkeyContext>(&mut requests[0], WQEBB_BYTES), &expected);
    // A UMR that keeps the layout writes neither translation entries nor a length.
    let mut requests = configured(&mut mkey, &prepared, Layout::Unchanged);
    let head: UmrHead = *part(&mut requests[0], 0);
    assert_eq!((head.umr.klm_octowords.get(), head.umr.mask().len()), (0, false));
    let context: MkeyContext = *part(&mut requests[0], WQEBB_BYTES);
    assert_eq!((context.len.get(), mkey.length()), (0, 1024));
}
