//! What the library refuses: ring, counters and mkey are as before, and the old configuration goes on working.

use super::rig::{
    BOTH, CRYPTO, DIF, KEY_128, PLAIN, Rig, SIGNATURE, crypto, domain, flipped, part, pattern, piece,
    reports, same,
};
use super::{Scenario, scenario};
use crate::board::{Board, DekSpec, MkeySpec, SEND_BLOCKS};
use crate::expected;
use crate::lab::{Rx, Tx, Verdict};
use crate::{ensure, ensure_eq};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Direction, DomainKind, InterleavedEntry, Layout, ListEntry, MkeyConfig,
    ReadyCrypto, Signature, SignatureChange, SignatureErrorKind, SignatureOrder,
};
use mlx5_mkey::types::{BlockSize, Seed};

pub(super) const ALL: &[Scenario] = &[
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

fn text(error: impl core::fmt::Display) -> String {
    format!("{error}")
}

/// A configuration must be refused for this reason, and leave no trace.
fn refused(rig: &mut Rig<'_>, what: &str, config: &MkeyConfig<'_>, error: PostError) -> Verdict {
    let state = |rig: &mut Rig<'_>| {
        let queue = rig.lab.near.send.queue();
        let counters = (queue.producer(), queue.free_blocks(), queue.outstanding(), queue.next_fence());
        (counters, rig.lab.mkeys.get(rig.mkey).cloned())
    };
    let before = state(rig);
    ensure_eq!(rig.lab.try_configure(rig.mkey, config), Err(error), "{what}");
    ensure!(state(rig) == before, "{what}: refused, and yet something has changed");
    rig.lab.near.send.ring_doorbell();
    rig.lab.settle()?;
    ensure_eq!(rig.lab.poll_near()?, vec![], "{what}: completions of nothing");
    Ok(())
}

fn config(error: ConfigError) -> PostError {
    PostError::Config(error)
}

/// An mkey with room for `entries` takes lists of up to `max` entries, and streams one less: it refuses `LIST` and `STREAMS`.
fn too_many<const LIST: usize, const STREAMS: usize>(
    board: &mut dyn Board,
    entries: u16,
    max: usize,
) -> Verdict {
    let mut rig = Rig::new(board, MkeySpec { entries, ..PLAIN });
    let data = pattern(64, 1);
    rig.install(&data, None, None)?;
    let pieces = [piece(&rig.memory, 0..1)?; LIST];
    let layout = Some(Layout::list(&pieces));
    let error = config(ConfigError::TooManyEntries { entries: LIST, max });
    refused(&mut rig, &format!("{LIST} pieces"), &MkeyConfig { layout, ..MkeyConfig::KEEP }, error)?;
    let streams = [InterleavedEntry::new(rig.memory.address, 1, 0, rig.memory.key).map_err(text)?; STREAMS];
    let layout = Some(Layout::interleaved(1, &streams).map_err(text)?);
    let error = config(ConfigError::TooManyEntries { entries: STREAMS, max: max - 1 });
    refused(&mut rig, &format!("{STREAMS} streams"), &MkeyConfig { layout, ..MkeyConfig::KEEP }, error)?;
    rig.both_ways(&expected::Images { memory: data.clone(), wire: data })
}

/// The room behind the first two blocks of a request is 52 entries; an interleaved layout's header takes one.
fn r037_more_entries_than_a_request_holds(board: &mut dyn Board) -> Verdict {
    too_many::<53, 52>(board, 60, 52)
}

/// With a signature in force the length has 32 bits; without one it has 64 (D24).
fn r051_lengths_over_32_bits(board: &mut dyn Board) -> Verdict {
    let mut rig = Rig::new(board, SIGNATURE);
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let images = expected::images(&pattern(512, 1), Some(&signature), None);
    rig.install(&images.memory, Some(&signature), None)?;
    let huge = ListEntry::new(rig.memory.address, ListEntry::MAX_BYTES, rig.memory.key).map_err(text)?;
    let pieces = [huge, huge];
    let change = MkeyConfig { layout: Some(Layout::list(&pieces)), ..MkeyConfig::KEEP };
    let error = config(ConfigError::LengthOver32Bits { length: 1 << 32 });
    refused(&mut rig, "4 GiB with a signature", &change, error)?;
    rig.both_ways(&images)?;
    // Four good bytes at offset 4 GiB.
    let pieces = [huge, huge, piece(&rig.memory, 8..12)?];
    rig.change(&MkeyConfig {
        layout: Some(Layout::list(&pieces)),
        signature: SignatureChange::Reset,
        ..MkeyConfig::KEEP
    })?;
    for way in Tx::ALL {
        rig.out(way, 1 << 32, part(&images.memory, 8..12))?;
    }
    Ok(())
}

/// An mkey that was made for four entries.
fn r052_more_entries_than_the_mkey_holds(board: &mut dyn Board) -> Verdict {
    too_many::<5, 4>(board, 4, 4)
}

/// Only an mkey that was made for it takes a signature.
fn r119_a_signature_for_an_mkey_without(board: &mut dyn Board) -> Verdict {
    let mut rig = Rig::new(board, PLAIN);
    let data = pattern(64, 1);
    rig.install(&data, None, None)?;
    let signature = SignatureChange::Set(BlockSignature::wire(domain(Signature::T10Dif(DIF))));
    let change = MkeyConfig { access: Some(Access::NONE), signature: signature.as_ref(), ..MkeyConfig::KEEP };
    refused(&mut rig, "signature", &change, config(ConfigError::NotASignatureMkey))?;
    rig.both_ways(&expected::Images { memory: data.clone(), wire: data })
}

/// Only an mkey that was made for it takes crypto.
fn r123_crypto_for_an_mkey_without(board: &mut dyn Board) -> Verdict {
    let mut rig = Rig::new(board, PLAIN);
    let data = pattern(64, 1);
    rig.install(&data, None, None)?;
    let dek = rig.lab.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    let order = SignatureOrder::AfterCryptoOnTx;
    let crypto = ReadyCrypto::new(crypto(Direction::EncryptOnTx, order, BlockSize::B512, dek));
    let change = MkeyConfig { access: Some(Access::NONE), crypto: Some(&crypto), ..MkeyConfig::KEEP };
    refused(&mut rig, "crypto", &change, config(ConfigError::NotACryptoMkey))?;
    rig.both_ways(&expected::Images { memory: data.clone(), wire: data })
}

/// Signatures on both sides with the cipher outside of them, given at once or one after the other (D4).
fn r172_two_signatures_outside_the_cipher(board: &mut dyn Board) -> Verdict {
    let mut rig = Rig::new(board, BOTH);
    let dek = rig.lab.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    let own = domain(Signature::T10Dif(DIF));
    let both = BlockSignature::both(own, own);
    for direction in [Direction::EncryptOnTx, Direction::DecryptOnTx] {
        let inside = match direction {
            Direction::EncryptOnTx => SignatureOrder::BeforeCryptoOnTx,
            Direction::DecryptOnTx => SignatureOrder::AfterCryptoOnTx,
        };
        let outside = match inside {
            SignatureOrder::AfterCryptoOnTx => SignatureOrder::BeforeCryptoOnTx,
            SignatureOrder::BeforeCryptoOnTx => SignatureOrder::AfterCryptoOnTx,
        };
        let good = crypto(direction, inside, BlockSize::B520, dek);
        let bad = crypto(direction, outside, BlockSize::B512, dek);
        let data = pattern(1024, 1);
        let images = expected::images(&data, Some(&both), Some((&good, &KEY_128)));
        rig.install(&images.memory, Some(&both), Some(&good))?;
        let error = config(ConfigError::BothSignaturesOutsideCipher);
        let change = MkeyConfig { crypto: Some(&ReadyCrypto::new(bad)), ..MkeyConfig::KEEP };
        refused(&mut rig, "crypto behind the signatures", &change, error)?;
        rig.both_ways(&images)?;
        let images = expected::images(&data, None, Some((&bad, &KEY_128)));
        rig.install(&images.memory, None, Some(&bad))?;
        let change = MkeyConfig { signature: SignatureChange::Set(&both), ..MkeyConfig::KEEP };
        refused(&mut rig, "signatures behind the crypto", &change, error)?;
        rig.both_ways(&images)?;
    }
    Ok(())
}

/// 832 bytes for entries and BSFs together: 48 pieces leave room for one BSF, 44 for both.
fn r173_layout_and_bsfs_share_their_room(board: &mut dyn Board) -> Verdict {
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let data = pattern(512, 1);
    for (spec, most) in [(SIGNATURE, 48usize), (CRYPTO, 48), (BOTH, 44)] {
        let mut rig = Rig::new(board, MkeySpec { entries: 52, ..spec });
        let dek = rig.lab.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
        let (order, unit) = if spec.signature {
            (SignatureOrder::BeforeCryptoOnTx, BlockSize::B520)
        } else {
            (SignatureOrder::AfterCryptoOnTx, BlockSize::B512)
        };
        let crypto = crypto(Direction::EncryptOnTx, order, unit, dek);
        let signature = spec.signature.then_some(signature);
        let crypto = spec.crypto.then_some(crypto);
        let images =
            expected::images(&data, signature.as_ref(), crypto.as_ref().map(|crypto| (crypto, &KEY_128[..])));
        rig.install(&images.memory, signature.as_ref(), crypto.as_ref())?;
        let pieces = |count: usize| -> Result<Vec<ListEntry>, String> {
            let ends = (1..count).map(|number| number * 10).chain([512]);
            let starts = (0..count).map(|number| number * 10);
            starts.zip(ends).map(|(start, end)| piece(&rig.memory, start..end)).collect()
        };
        let (fitting, over) = (pieces(most)?, pieces(most + 1)?);
        let ready = crypto.map(ReadyCrypto::new);
        let change = MkeyConfig {
            access: None,
            layout: Some(Layout::list(&fitting)),
            signature: signature.as_ref().map_or(SignatureChange::Keep, SignatureChange::Set),
            crypto: ready.as_ref(),
        };
        let bytes = 832 + 64;
        let error = config(ConfigError::BsfDoesNotFit { bytes, max: 832 });
        let too_long = MkeyConfig { layout: Some(Layout::list(&over)), ..change };
        refused(&mut rig, "a piece too many", &too_long, error)?;
        rig.both_ways(&images)?;
        rig.change(&change)?;
        rig.both_ways(&images).map_err(|error| format!("{most} pieces: {error}"))?;
    }
    Ok(())
}

/// After an error the next configuration has to arm the mkey again; if it is refused, the one after it does.
fn r180_a_refused_configuration_loses_no_error_count(board: &mut dyn Board) -> Verdict {
    let mut rig = Rig::new(board, SIGNATURE);
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let images = expected::images(&pattern(1024, 1), Some(&signature), None);
    rig.install(&images.memory, Some(&signature), None)?;
    let bad = flipped(&images.wire, 520, 1);
    for round in 0..3 {
        let error = rig.take_bad(Rx::Receive, &bad).map_err(|error| format!("round {round}: {error}"))?;
        reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 1, 520)?;
        let pieces = [piece(&rig.memory, 0..1)?; 9];
        let layout = Some(Layout::list(&pieces));
        let too_many = config(ConfigError::TooManyEntries { entries: 9, max: 8 });
        refused(&mut rig, "9 pieces", &MkeyConfig { layout, ..MkeyConfig::KEEP }, too_many)?;
        rig.change(&MkeyConfig::KEEP)?;
        rig.write(&images.memory);
        rig.both_ways(&images)?;
    }
    Ok(())
}

/// A configuration of three work requests finds room for two: nothing of it is posted, and what was posted runs.
fn r187_a_full_ring_refuses_and_changes_nothing(board: &mut dyn Board) -> Verdict {
    let mut rig = Rig::new(board, SIGNATURE);
    let (first, second) = (domain(Signature::T10Dif(DIF)), domain(Signature::Crc32(Seed::Ones)));
    let old = BlockSignature::wire(first);
    let images = expected::images(&pattern(1024, 1), Some(&old), None);
    rig.install(&images.memory, Some(&old), None)?;
    let new = BlockSignature::both(second, first);
    let change = MkeyConfig { signature: SignatureChange::Set(&new), ..MkeyConfig::KEEP };
    for free in 0..5u32 {
        let mut id = 0;
        while rig.lab.near.send.free_blocks() > free {
            id += 1;
            rig.lab.near.send.request(id).signaled().nop().map_err(text)?;
        }
        ensure_eq!(
            rig.lab.try_configure(rig.mkey, &change),
            Err(PostError::RingFull { needed: 5, free }),
            "with {free} blocks free"
        );
        ensure_eq!(rig.lab.near.send.free_blocks(), free, "free blocks");
        rig.lab.near.send.ring_doorbell();
        rig.lab.settle()?;
        let ids: Vec<u64> = rig
            .lab
            .wait_near(usize::try_from(id).unwrap_or(usize::MAX))?
            .iter()
            .map(|completion| completion.id)
            .collect();
        ensure_eq!(ids, (1..=id).collect::<Vec<_>>(), "completions of what was posted");
        ensure_eq!(rig.lab.near.send.free_blocks(), SEND_BLOCKS as u32, "free blocks in the end");
        rig.out(Tx::Send, 0, &images.wire).map_err(|error| format!("with {free} blocks free: {error}"))?;
    }
    let images = expected::images(&pattern(1024, 2), Some(&new), None);
    rig.install(&images.memory, Some(&new), None)?;
    let wire = rig.lab.tx(Tx::Write, rig.mkey, 0, images.wire.len())?.ok()?;
    same(&wire, &images.wire)
}
