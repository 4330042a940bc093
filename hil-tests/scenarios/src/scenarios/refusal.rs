//! Requests that the library refuses. A refusal leaves the send ring, its counters and the mkey unchanged,
//! and the earlier configuration still works.

use super::fixture::{
    BOTH, CRYPTO, DIF, KEY_128, MkeyFixture, PLAIN, SIGNATURE, cipher_over_dif, crypto, domain, entry,
    flipped, part, pattern, reports, same,
};
use super::scenario::{Scenario, scenario};
use crate::board::{Board, DekSpec, MkeySpec, SEND_BLOCKS};
use crate::expected::Images;
use crate::qp_pair::{Rx, Tx, Verdict, Within, ids, text};
use crate::{ensure, ensure_eq};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, InterleavedEntry, KlmEntry, Layout, MkeyConfig, MkeyKind,
    Signature, SignatureCapabilities, SignatureChange, SignatureErrorKind, SignatureOrder, XtsEngine,
};
use mlx5_mkey::types::{BlockSize, DomainKind, Seed};

pub(super) const ALL: &[Scenario] = &[
    scenario!(r021_a_configuration_for_another_kind, NOTHING, ["R21", "R187"]),
    scenario!(r037_more_entries_than_a_request_holds, NOTHING, ["R37", "R41"]),
    scenario!(r051_lengths_over_32_bits, SIGNATURE, ["R51"]),
    scenario!(r052_more_entries_than_the_mkey_holds, NOTHING, ["R52", "R42"]),
    scenario!(r119_a_signature_for_an_mkey_without, SIGNATURE, ["R119"]),
    scenario!(r123_crypto_for_an_mkey_without, CRYPTO, ["R123", "R163"]),
    scenario!(r172_two_signatures_outside_the_cipher, BOTH, ["R172"]),
    scenario!(r173_layout_and_bsfs_share_their_room, BOTH, ["R173"]),
    scenario!(r180_a_refused_configuration_loses_no_error_count, SIGNATURE, ["R180", "R187"]),
    scenario!(r187_a_full_ring_refuses_and_changes_nothing, SIGNATURE, ["R187", "R178"]),
];

/// Checks that the library refuses a configuration with this error, and that nothing has changed.
fn refused(
    fixture: &mut MkeyFixture<'_>,
    what: &str,
    config: &MkeyConfig,
    layout: Layout<'_>,
    error: PostError,
) -> Verdict {
    refused_by(fixture, what, error, |fixture| fixture.pair.try_configure(fixture.mkey, config, layout))
}

/// Checks that the library refuses a request with this error, and that nothing has changed.
fn refused_by(
    fixture: &mut MkeyFixture<'_>,
    what: &str,
    error: PostError,
    post: impl FnOnce(&mut MkeyFixture<'_>) -> Result<(), PostError>,
) -> Verdict {
    let state = |fixture: &mut MkeyFixture<'_>| {
        let counters = fixture.pair.near.counters();
        (counters, fixture.pair.mkeys.get(fixture.mkey).cloned())
    };
    let before = state(fixture);
    ensure_eq!(post(fixture), Err(error), "{what}");
    ensure!(state(fixture) == before, "{what}: refused, and yet something has changed");
    fixture.pair.run_near()?;
    ensure_eq!(fixture.pair.poll_near()?, vec![], "{what}: completions of nothing");
    Ok(())
}

fn config(error: ConfigError) -> PostError {
    PostError::Config(error)
}

/// Checks that an mkey created for `entries` entries refuses a list of `LIST` entries and a layout of
/// `STREAMS` streams. The errors name `max` as the limit for lists, and `max` - 1 for streams, because the
/// header of an interleaved layout takes the place of one entry.
fn too_many<const LIST: usize, const STREAMS: usize>(
    board: &mut dyn Board,
    entries: u32,
    max: u32,
) -> Verdict {
    let data = pattern(64, 1);
    let mut fixture = MkeyFixture::plain(board, MkeySpec { entries, ..PLAIN }, &data)?;
    let entries = [entry(&fixture.memory, 0..1); LIST];
    let change = MkeyConfig::UNCHANGED;
    let error = config(ConfigError::TooManyEntries { max });
    refused(&mut fixture, &format!("{LIST} entries"), &change, Layout::List(&entries), error)?;
    let (address, key) = (fixture.memory.address, fixture.memory.key);
    let streams = [InterleavedEntry { address, bytes: 1, skip: 0, key }; STREAMS];
    let layout = Layout::Interleaved { repeat: 1, entries: &streams };
    let error = config(ConfigError::TooManyEntries { max: max - 1 });
    refused(&mut fixture, &format!("{STREAMS} streams"), &change, layout, error)?;
    fixture.both_ways(&Images { memory: data.clone(), wire: data })
}

/// The library refuses layouts that do not fit into a request. Behind its first two blocks, a request has
/// space for 52 entries. The header of an interleaved layout takes the space of one.
fn r037_more_entries_than_a_request_holds(board: &mut dyn Board) -> Verdict {
    too_many::<53, 52>(board, 60, 52)
}

/// If an mkey has a signature, the library refuses a layout of 4 GiB or more. Without a signature it accepts
/// the layout.
fn r051_lengths_over_32_bits(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let images = fixture.install_images(&pattern(512, 1), Some(&signature), None)?;
    let huge =
        KlmEntry { address: fixture.memory.address, length: KlmEntry::MAX_BYTES, key: fixture.memory.key };
    let entries = [huge, huge];
    let error = config(ConfigError::LengthOver32Bits { mebibytes: 4096 });
    let layout = Layout::List(&entries);
    refused(&mut fixture, "4 GiB with a signature", &MkeyConfig::UNCHANGED, layout, error)?;
    fixture.both_ways(&images)?;
    // The third entry maps four bytes of real memory, at offset 4 GiB of the mkey's space.
    let entries = [huge, huge, entry(&fixture.memory, 8..12)];
    let signature = SignatureChange::Reset;
    fixture.change(&MkeyConfig { signature, ..MkeyConfig::UNCHANGED }, &entries)?;
    fixture.out_each(1 << 32, part(&images.memory, 8..12))
}

/// An mkey that was created for four entries refuses longer layouts.
fn r052_more_entries_than_the_mkey_holds(board: &mut dyn Board) -> Verdict {
    too_many::<5, 4>(board, 4, 4)
}

/// The library refuses a signature for an mkey that was created without signatures.
fn r119_a_signature_for_an_mkey_without(board: &mut dyn Board) -> Verdict {
    let data = pattern(64, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    let signature = SignatureChange::Set(BlockSignature::wire(domain(Signature::T10Dif(DIF))));
    let change = MkeyConfig { access: Some(Access::NONE), signature, ..MkeyConfig::UNCHANGED };
    refused(&mut fixture, "signature", &change, Layout::Unchanged, config(ConfigError::NotASignatureMkey))?;
    fixture.both_ways(&Images { memory: data.clone(), wire: data })
}

/// The library refuses crypto properties for an mkey that was created without crypto.
fn r123_crypto_for_an_mkey_without(board: &mut dyn Board) -> Verdict {
    let data = pattern(64, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    let order = SignatureOrder::AfterCryptoOnTx;
    let crypto = crypto(Direction::EncryptOnTx, order, BlockSize::B512, dek);
    let change = MkeyConfig { access: Some(Access::NONE), crypto: Some(crypto), ..MkeyConfig::UNCHANGED };
    refused(&mut fixture, "crypto", &change, Layout::Unchanged, config(ConfigError::NotACryptoMkey))?;
    fixture.both_ways(&Images { memory: data.clone(), wire: data })
}

/// The library refuses signatures in both domains if the cipher covers neither of them. This holds whether
/// one configuration sets signatures and crypto properties together, or two set them one after the other.
fn r172_two_signatures_outside_the_cipher(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, BOTH);
    let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    let own = domain(Signature::T10Dif(DIF));
    let both = BlockSignature::both(own, own);
    for (direction, inside, outside) in [
        (Direction::EncryptOnTx, SignatureOrder::BeforeCryptoOnTx, SignatureOrder::AfterCryptoOnTx),
        (Direction::DecryptOnTx, SignatureOrder::AfterCryptoOnTx, SignatureOrder::BeforeCryptoOnTx),
    ] {
        let good = crypto(direction, inside, BlockSize::B520, dek);
        let bad = crypto(direction, outside, BlockSize::B512, dek);
        let data = pattern(1024, 1);
        let images = fixture.install_images(&data, Some(&both), Some((&good, &KEY_128)))?;
        let error = config(ConfigError::BothSignaturesOutsideCipher);
        let change = MkeyConfig { crypto: Some(bad), ..MkeyConfig::UNCHANGED };
        refused(&mut fixture, "crypto behind the signatures", &change, Layout::Unchanged, error)?;
        fixture.both_ways(&images)?;
        let images = fixture.install_images(&data, None, Some((&bad, &KEY_128)))?;
        let change = MkeyConfig { signature: SignatureChange::Set(both), ..MkeyConfig::UNCHANGED };
        refused(&mut fixture, "signatures behind the crypto", &change, Layout::Unchanged, error)?;
        fixture.both_ways(&images)?;
    }
    Ok(())
}

/// Returns a signature if mkeys of this `spec` can have one, and crypto properties if they can have those.
/// Creates a DEK for the crypto properties.
fn protection(fixture: &mut MkeyFixture<'_>, spec: MkeySpec) -> (Option<BlockSignature>, Option<Crypto>) {
    let signature = spec.signature.then_some(BlockSignature::wire(domain(Signature::T10Dif(DIF))));
    let data_unit = if spec.signature { BlockSize::B520 } else { BlockSize::B512 };
    let cipher = spec.crypto.then(|| Crypto { data_unit, ..cipher_over_dif(fixture.pair.board) });
    (signature, cipher)
}

/// Configures the fixture's mkey over `data` with this signature and these crypto properties. Returns the
/// bytes in memory and on the wire.
fn protect(
    fixture: &mut MkeyFixture<'_>,
    data: &[u8],
    signature: Option<BlockSignature>,
    crypto: Option<Crypto>,
) -> Result<Images, String> {
    let cipher = crypto.as_ref().map(|crypto| (crypto, &KEY_128[..]));
    fixture.install_images(data, signature.as_ref(), cipher)
}

/// Returns kinds of mkey that differ from this one in a single property: the number of entries, signature
/// capabilities, or the AES-XTS engine.
fn other_kinds(kind: MkeyKind) -> impl Iterator<Item = MkeyKind> {
    let entries = [kind.max_entries - 1, kind.max_entries + 1, kind.max_entries ^ 0x100];
    let all = SignatureCapabilities::ALL;
    let signatures = [
        None,
        Some(all),
        Some(SignatureCapabilities { block_4048: !all.block_4048, ..all }),
        Some(SignatureCapabilities { crc32c: !all.crc32c, ..all }),
        Some(SignatureCapabilities { crc64_xp10: !all.crc64_xp10, ..all }),
        Some(SignatureCapabilities { digest_with_xts: !all.digest_with_xts, ..all }),
    ];
    let engines = [
        None,
        Some(XtsEngine::MultiBlock),
        Some(XtsEngine::MultiBlockLittleEndian),
        Some(XtsEngine::SingleBlock),
        Some(XtsEngine::Unspecified),
    ];
    let others = entries.map(|max_entries| MkeyKind { max_entries, ..kind }).into_iter();
    let others = others.chain(signatures.map(|signature| MkeyKind { signature, ..kind }));
    let others = others.chain(engines.map(|crypto| MkeyKind { crypto, ..kind }));
    others.filter(move |other| *other != kind)
}

/// The library refuses a configuration that was prepared for one kind of mkey, if it is posted for an mkey of
/// another kind. This holds for configurations that change a part of the mkey and for complete ones.
fn r021_a_configuration_for_another_kind(board: &mut dyn Board) -> Verdict {
    let has = board.capabilities();
    let made = |spec: &MkeySpec| (has.signature || !spec.signature) && (has.xts.is_some() || !spec.crypto);
    for spec in [PLAIN, SIGNATURE, CRYPTO, BOTH].into_iter().filter(made) {
        let mut fixture = MkeyFixture::new(board, spec);
        let (signature, crypto) = protection(&mut fixture, spec);
        let images = protect(&mut fixture, &pattern(512, 1), signature, crypto)?;
        let elsewhere = [entry(&fixture.pair.region(&[0; 64]), 0..64)];
        let kind = fixture.pair.mkeys.get(fixture.mkey).ok_or("no such mkey")?.kind();
        let keeping = MkeyConfig { access: Some(Access::NONE), ..MkeyConfig::UNCHANGED };
        for other in other_kinds(kind) {
            let signature =
                if other.signature.is_some() { SignatureChange::Reset } else { SignatureChange::Keep };
            let crypto = crypto.filter(|_| other.crypto.is_some());
            for change in [keeping, MkeyConfig { signature, crypto, ..keeping }] {
                let prepared = fixture.pair.near.way().prepare(other, &change).map_err(text)?;
                let what = format!("{change:?}, prepared for {other:?}, on {kind:?}");
                let error = config(ConfigError::OtherKind);
                refused_by(&mut fixture, &what, error, |fixture| {
                    fixture.pair.post_prepared(fixture.mkey, &prepared, &elsewhere)
                })?;
            }
        }
        fixture.both_ways(&images).within(format_args!("{spec:?}"))?;
    }
    Ok(())
}

/// In a request, entries and BSFs together have 832 bytes: 48 entries leave space for one BSF, 44 entries for
/// two (signature and crypto).
fn r173_layout_and_bsfs_share_their_room(board: &mut dyn Board) -> Verdict {
    let data = pattern(512, 1);
    for (spec, most) in [(SIGNATURE, 48usize), (CRYPTO, 48), (BOTH, 44)] {
        let mut fixture = MkeyFixture::new(board, MkeySpec { entries: 52, ..spec });
        let (signature, crypto) = protection(&mut fixture, spec);
        let images = protect(&mut fixture, &data, signature, crypto)?;
        let entries = |count: usize| -> Vec<KlmEntry> {
            let ends = (1..count).map(|number| number * 10).chain([512]);
            let starts = (0..count).map(|number| number * 10);
            starts.zip(ends).map(|(start, end)| entry(&fixture.memory, start..end)).collect()
        };
        let (fitting, over) = (entries(most), entries(most + 1));
        let change = MkeyConfig {
            access: None,
            signature: signature.map_or(SignatureChange::Keep, SignatureChange::Set),
            crypto,
        };
        let bytes = 832 + 64;
        let error = config(ConfigError::BsfDoesNotFit { bytes, max: 832 });
        refused(&mut fixture, "an entry too many", &change, Layout::List(&over), error)?;
        fixture.both_ways(&images)?;
        fixture.change(&change, &fitting[..])?;
        fixture.both_ways(&images).within(format_args!("{most} entries"))?;
    }
    Ok(())
}

/// After a signature error, the next configuration makes the device report errors again. If the library
/// refuses this configuration, the configuration after it has the same effect.
fn r180_a_refused_configuration_loses_no_error_count(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let images = fixture.install_images(&pattern(1024, 1), Some(&signature), None)?;
    let bad = flipped(&images.wire, 520, 1);
    for round in 0..3 {
        let error = fixture.take_bad(Rx::Receive, &bad).within(format_args!("round {round}"))?;
        reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 1, 520)?;
        let entries = [entry(&fixture.memory, 0..1); 9];
        let layout = Layout::List(&entries);
        let too_many = config(ConfigError::TooManyEntries { max: 8 });
        refused(&mut fixture, "9 entries", &MkeyConfig::UNCHANGED, layout, too_many)?;
        fixture.change(&MkeyConfig::UNCHANGED, Layout::Unchanged)?;
        fixture.write(&images.memory);
        fixture.both_ways(&images)?;
    }
    Ok(())
}

/// A configuration of three work requests needs five blocks. If fewer are free in the send ring, the library
/// posts none of the three. The requests that were posted before are executed.
fn r187_a_full_ring_refuses_and_changes_nothing(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let (first, second) = (domain(Signature::T10Dif(DIF)), domain(Signature::Crc32(Seed::Ones)));
    let old = BlockSignature::wire(first);
    let images = fixture.install_images(&pattern(1024, 1), Some(&old), None)?;
    let new = BlockSignature::both(second, first);
    let change = MkeyConfig { signature: SignatureChange::Set(new), ..MkeyConfig::UNCHANGED };
    for free in 0..5u16 {
        let mut id = 0;
        while fixture.pair.near.counters().free_blocks > u32::from(free) {
            id += 1;
            fixture.pair.near.request(id).signaled().nop().map_err(text)?;
        }
        ensure_eq!(
            fixture.pair.try_configure(fixture.mkey, &change, Layout::Unchanged),
            Err(PostError::SendRingFull { needed: 5, free }),
            "with {free} blocks free"
        );
        ensure_eq!(fixture.pair.near.counters().free_blocks, u32::from(free), "free blocks");
        let done = fixture.pair.complete_near(usize::try_from(id).unwrap_or(usize::MAX))?;
        ensure_eq!(ids(&done), Vec::from_iter(1..=id), "completions of what was posted");
        ensure_eq!(fixture.pair.near.counters().free_blocks, SEND_BLOCKS as u32, "free blocks in the end");
        fixture.out(Tx::Send, 0, &images.wire).within(format_args!("with {free} blocks free"))?;
    }
    let images = fixture.install_images(&pattern(1024, 2), Some(&new), None)?;
    let wire = fixture.pair.tx(Tx::Write, fixture.mkey, 0, images.wire.len())?.ok()?;
    same(&wire, &images.wire)
}
