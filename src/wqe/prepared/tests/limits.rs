//! Tests of the limits of layouts: layouts that just fit, and layouts that are too long.

use super::*;
use crate::mkey::InterleavedEntry;
use crate::wqe::layout::AnyLayout;

const STREAM: InterleavedEntry =
    InterleavedEntry { address: 0, bytes: 64, skip: 0, key: Key::from_raw(0x5600) };

const GIB_2: u32 = KlmEntry::MAX_BYTES;

/// Returns a configuration that changes only the layout of an mkey.
fn unchanged(mkey: &Mkey) -> PreparedConfig {
    PreparedConfig::new(mkey.kind(), &MkeyConfig::UNCHANGED).unwrap()
}

#[test]
fn a_layout_fits_or_not_however_it_is_posted() {
    let (list, entries) = ([entry(0, 64); 6], [STREAM; 5]);
    let layouts = [
        Layout::List(&list[..5]),
        Layout::List(&list),
        Layout::Interleaved { repeat: 1, entries: &entries[..4] },
        Layout::Interleaved { repeat: 1, entries: &entries },
    ];
    // The limits let requests hold four to six octowords of entries: one block, or more than one.
    for (max_inline_data, most) in [(60, 4), (76, 5), (92, 6)] {
        for layout in layouts {
            let (octowords, header) =
                (AnyLayout::form(&layout).octowords, usize::from(!matches!(layout, Layout::List(_))));
            let max = (most - header) as u32;
            let refused = Err(PostError::Config(ConfigError::TooManyEntries { max }));
            let expected = if octowords <= most { Ok(()) } else { refused };
            let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
            let config = SendQueueConfig { max_inline_data, ..SendQueueConfig::new(Qpn::default()) };
            let mut queue = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, Silent).unwrap();
            let mut mkey = mkey(false, None);
            let prepared = unchanged(&mkey);
            // For the first post, the queue computes its free blocks. For the second, it already knows enough
            // free blocks. The third post is in a batch.
            assert_eq!(queue.request(1).configure_mkey(&mut mkey, &prepared, layout), expected);
            queue.request(1).nop().unwrap();
            assert_eq!(queue.request(1).configure_mkey(&mut mkey, &prepared, layout), expected);
            assert_eq!(queue.batch().request(2).configure_mkey(&mut mkey, &prepared, layout), expected);
        }
    }
}

#[test]
fn an_mkey_has_room_for_its_entries() {
    let mut mkey = mkey(false, None);
    let prepared = unchanged(&mkey);
    let refused = |max| ConfigError::TooManyEntries { max };
    let (list, entries) = ([entry(0, 64); 17], [STREAM; 16]);
    for _ in 0..2 {
        assert_eq!(refusal(&mut mkey, &prepared, Layout::List(&list)), refused(16));
        let layout = Layout::Interleaved { repeat: 1, entries: &entries };
        assert_eq!(refusal(&mut mkey, &prepared, layout), refused(15));
        configured(&mut mkey, &prepared, Layout::List(&list[..16]));
        configured(&mut mkey, &prepared, Layout::Interleaved { repeat: 1, entries: &entries[..15] });
    }
}

#[test]
fn list_entries_span_1_byte_to_2_gib() {
    let mut mkey = mkey(false, None);
    let prepared = unchanged(&mkey);
    let good = [entry(0, 1), entry(0, GIB_2), entry(0, 512)];
    for index in 0..3 {
        for length in [0, GIB_2 + 1, u32::MAX] {
            // The error names the first of the wrong entries.
            let mut list = good;
            list[index..].fill(entry(0, length));
            let refused = ConfigError::EntryLength { index: index as u16, length };
            assert_eq!(refusal(&mut mkey, &prepared, Layout::List(&list)), refused);
        }
    }
    configured(&mut mkey, &prepared, Layout::List(&good));
    assert_eq!(mkey.length(), 1 + (1 << 31) + 512);
}

#[test]
fn r50_a_stride_has_16_bits() {
    let mut mkey = mkey(false, None);
    let prepared = unchanged(&mkey);
    let stream = |bytes, skip| InterleavedEntry { bytes, skip, ..STREAM };
    for (bytes, skip) in [(u16::MAX, 1), (1, u16::MAX), (u16::MAX, u16::MAX)] {
        let stride = u32::from(bytes) + u32::from(skip);
        let layout = Layout::Interleaved { repeat: 1, entries: &[STREAM, stream(bytes, skip)] };
        let refused = ConfigError::StrideOver16Bits { index: 1, stride };
        assert_eq!(refusal(&mut mkey, &prepared, layout), refused);
    }
    let entries = [stream(u16::MAX, 0), stream(0, u16::MAX), stream(1, u16::MAX - 1)];
    configured(&mut mkey, &prepared, Layout::Interleaved { repeat: 1, entries: &entries });
    assert_eq!(mkey.length(), 0x1_0000);
}

#[test]
fn lengths_are_summed_in_64_bits() {
    let list = [entry(0, GIB_2); 4];
    let entries = [InterleavedEntry { bytes: u16::MAX, ..STREAM }; 15];
    let reset = MkeyConfig { signature: SignatureChange::Reset, ..MkeyConfig::UNCHANGED };
    let cases = [(mkey(false, None), MkeyConfig::UNCHANGED), (mkey(true, None), MkeyConfig::UNCHANGED)];
    for (mut mkey, config) in cases.into_iter().chain([(mkey(true, None), reset)]) {
        let prepared = PreparedConfig::with_any_data_unit(mkey.kind(), &config).unwrap();
        for _ in 0..2 {
            configured(&mut mkey, &prepared, Layout::List(&list));
            assert_eq!(mkey.length(), 1 << 33, "lengths are summed in 64 bits");
            configured(&mut mkey, &prepared, Layout::Interleaved { repeat: u32::MAX, entries: &entries });
            assert_eq!(mkey.length(), 15 * 65535 * u64::from(u32::MAX));
        }
    }
}

/// Returns the largest number of bytes that an mkey may map with this configuration, and the error for longer
/// layouts. Returns `None` if there is no limit.
fn limit(mkey: &Mkey, config: &MkeyConfig) -> Option<(u32, ConfigError)> {
    if config.crypto.is_some() && mkey.kind().crypto == Some(XtsEngine::SingleBlock) {
        let unit = BlockSize::B4096;
        return Some((4096, ConfigError::LengthOverDataUnit { length: 4097, unit }));
    }
    // On an mkey with signature and crypto, the reset of the signature writes a BSF too.
    let has_both = mkey.kind().signature.is_some() && mkey.kind().crypto.is_some();
    let resets_bsf = has_both && config.signature == SignatureChange::Reset;
    (config.crypto.is_some() || config.signature.signature().is_some() || resets_bsf)
        .then_some((u32::MAX, ConfigError::LengthOver32Bits { mebibytes: 4096 }))
}

#[test]
fn with_signature_or_crypto_lengths_are_limited() {
    for (mut mkey, config) in all_configs() {
        let prepared = PreparedConfig::with_any_data_unit(mkey.kind(), &config).unwrap();
        let limit = limit(&mkey, &config);
        let (most, _) = limit.unwrap_or((u32::MAX, ConfigError::OtherKind));
        let half = most / 2 + 1;
        for _ in 0..2 {
            let over = [entry(0, half), entry(0, most - half), entry(0, 1)];
            if let Some((_, refused)) = limit {
                assert_eq!(refusal(&mut mkey, &prepared, Layout::List(&over)), refused, "{config:?}");
            } else {
                configured(&mut mkey, &prepared, Layout::List(&over));
            }
            configured(&mut mkey, &prepared, Layout::List(&over[..2]));
            assert_eq!(mkey.length(), most.into());
        }
    }
}

#[test]
fn a_layout_that_stays_is_held_to_the_limit_too() {
    let mut mkey = mkey(true, Some(XtsEngine::SingleBlock));
    let plain = unchanged(&mkey);
    configured(&mut mkey, &plain, Layout::List(&[entry(0, GIB_2); 2]));
    let encrypt = MkeyConfig { crypto: Some(crypto(1)), ..MkeyConfig::UNCHANGED };
    let encrypt = PreparedConfig::with_any_data_unit(mkey.kind(), &encrypt).unwrap();
    let over = |length| ConfigError::LengthOverDataUnit { length, unit: BlockSize::B4096 };
    assert_eq!(refusal(&mut mkey, &encrypt, Layout::Unchanged), over(u32::MAX));
    let signature = SignatureChange::Set(BlockSignature::wire(dif(1, 2)));
    let sign = MkeyConfig { signature, ..MkeyConfig::UNCHANGED };
    let sign = PreparedConfig::with_any_data_unit(mkey.kind(), &sign).unwrap();
    let refused = ConfigError::LengthOver32Bits { mebibytes: 4096 };
    assert_eq!(refusal(&mut mkey, &sign, Layout::Unchanged), refused);
    // The properties in force also limit later layouts.
    configured(&mut mkey, &encrypt, LIST);
    assert_eq!(refusal(&mut mkey, &plain, Layout::List(&[entry(0, 4097)])), over(4097));
}

/// If the cipher is around the signature, a data unit must be a block with its signature. Only
/// `with_any_data_unit` allows other units.
#[test]
fn data_units_are_blocks_with_their_signatures() {
    use Direction::{DecryptOnTx, EncryptOnTx};
    use SignatureOrder::{AfterCryptoOnTx, BeforeCryptoOnTx};
    let mut mkey = mkey(true, Some(XtsEngine::MultiBlock));
    let kind = mkey.kind();
    let blocks = |block_size| Domain { block_size, ..dif(1, 2) };
    let cases = [
        (EncryptOnTx, BeforeCryptoOnTx, true, true),
        (EncryptOnTx, AfterCryptoOnTx, true, false),
        (DecryptOnTx, AfterCryptoOnTx, false, true),
        (DecryptOnTx, BeforeCryptoOnTx, false, false),
    ];
    for (direction, order, on_wire, is_inside) in cases {
        for (block_size, data_unit, fits) in [
            (BlockSize::B4096, BlockSize::B4096, false),
            (BlockSize::B512, BlockSize::B512, false),
            (BlockSize::B512, BlockSize::B520, true),
            (BlockSize::B512, BlockSize::B4160, false),
        ] {
            let block = blocks(block_size);
            let signature = if on_wire { BlockSignature::wire(block) } else { BlockSignature::memory(block) };
            let signature = SignatureChange::Set(signature);
            let crypto = Some(Crypto { direction, order, data_unit, ..crypto(5) });
            let config = MkeyConfig { access: Some(Access::ALL), signature, crypto };
            let refused = Err(ConfigError::DataUnitNotBlock { block: block.stride(), unit: data_unit });
            let expected = if fits || !is_inside { Ok(()) } else { refused };
            assert_eq!(PreparedConfig::new(kind, &config).map(drop), expected, "{config:?}");
            let any = PreparedConfig::with_any_data_unit(kind, &config).unwrap();
            if let Ok(prepared) = PreparedConfig::new(kind, &config) {
                assert_eq!(PreparedConfig { any_data_unit: false, ..any }, prepared);
            }
        }
    }
    // If the configuration keeps one of signature and crypto, only posting can refuse the combination.
    let signature = SignatureChange::Set(BlockSignature::wire(dif(1, 2)));
    let signed = MkeyConfig { access: Some(Access::ALL), signature, crypto: None };
    let unit =
        |data_unit| MkeyConfig { crypto: Some(Crypto { data_unit, ..crypto(5) }), ..MkeyConfig::UNCHANGED };
    let refused = ConfigError::DataUnitNotBlock { block: 520, unit: BlockSize::B512 };
    configured(&mut mkey, &PreparedConfig::new(kind, &signed).unwrap(), LIST);
    let odd = PreparedConfig::new(kind, &unit(BlockSize::B512)).unwrap();
    assert_eq!(refusal(&mut mkey, &odd, LIST), refused);
    configured(&mut mkey, &PreparedConfig::with_any_data_unit(kind, &unit(BlockSize::B512)).unwrap(), LIST);
    // A data unit that `with_any_data_unit` put in force may stay in force.
    let same = unchanged(&mkey);
    configured(&mut mkey, &same, LIST);
    let renewed = PreparedConfig::new(kind, &signed).unwrap();
    assert_eq!(refusal(&mut mkey, &renewed, LIST), refused);
    configured(&mut mkey, &PreparedConfig::new(kind, &unit(BlockSize::B520)).unwrap(), LIST);
}
