//! Signature and crypto properties in one mkey: the ten combinations in the table of the man page
//! `mlx5dv_wr_set_mkey_crypto` (rows A to J), and all other combinations.

use super::fixture::{BOTH, DIF, KEY_128, KEY_256, MkeyFixture, crypto, domain, pattern};
use super::scenario::{Scenario, scenario};
use crate::board::{Board, DekSpec};
use crate::expected;
use crate::qp_pair::{Tx, Verdict, Within};
use crate::way::block_signature;
use crate::{ensure, ensure_eq};
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{
    BlockSignature, Crypto, Direction, Domain, Layout, MkeyConfig, Signature, SignatureChange,
    SignatureOrder, T10Dif,
};
use mlx5_mkey::types::{BlockSize, Seed};

pub(super) const ALL: &[Scenario] = &[
    scenario!(r143_row_a_cipher_alone_outgoing, BOTH, ["R143", "R135", "R140", "R155"]),
    scenario!(r144_row_b_wire_signature_over_ciphertext, BOTH, ["R144", "R128", "R136", "R140"]),
    scenario!(r145_row_c_wire_signature_inside_the_cipher, BOTH, ["R145", "R131", "R132", "R137", "R140"]),
    scenario!(r146_row_d_memory_signature_stripped_then_cipher, BOTH, ["R146", "R128", "R140"]),
    scenario!(r147_row_e_signature_replaced_then_cipher, BOTH, ["R147", "R128", "R140"]),
    scenario!(r148_row_f_cipher_alone_incoming, BOTH, ["R148", "R129", "R130", "R135", "R140"]),
    scenario!(r149_row_g_decrypt_then_wire_signature, BOTH, ["R149", "R128", "R140"]),
    scenario!(r150_row_h_memory_signature_inside_the_cipher, BOTH, ["R150", "R128", "R140"]),
    scenario!(r151_row_i_decrypt_then_replace_signature, BOTH, ["R151", "R128", "R140"]),
    scenario!(r152_row_j_memory_signature_over_ciphertext, BOTH, ["R152", "R128", "R137", "R140"]),
    scenario!(r153_leftover_combinations, BOTH, ["R153", "R172", "R142"]),
    scenario!(r171_rows_on_a_single_unit, BOTH_SINGLE, ["R171", "R144", "R145", "R149"]),
];

use Direction::{DecryptOnTx, EncryptOnTx};
use SignatureOrder::{AfterCryptoOnTx, BeforeCryptoOnTx};

const FIRST: Domain = domain(Signature::T10Dif(DIF));
const SECOND: Domain =
    domain(Signature::T10Dif(T10Dif { app_tag: 0x4321, ref_tag: 7, seed: Seed::Zeros, ..DIF }));

/// Checks a row of the table with T10-DIF and CRC64, and with keys of both sizes. The bytes in memory and on
/// the wire must be those that the table prescribes, in both directions and by each kind of request.
fn row(
    board: &mut dyn Board,
    direction: Direction,
    order: SignatureOrder,
    memory: Option<Domain>,
    wire: Option<Domain>,
) -> Verdict {
    let keys: [&[u8]; 2] = [&KEY_128, &KEY_256];
    let crc64 = |first: Domain| Domain { signature: Signature::Crc64Xp10(Seed::Ones), ..first };
    let mut fixture = MkeyFixture::new(board, BOTH);
    for key in keys {
        let dek = fixture.pair.board.create_dek(DekSpec { key, keytag: None });
        for change in [core::convert::identity as fn(Domain) -> Domain, crc64] {
            // If both domains have a signature, only the one of memory varies. The signature of the wire
            // stays a T10-DIF, so that rows E and I also convert one kind of signature into another.
            let memory = memory.map(change);
            let wire = if memory.is_some() { wire } else { wire.map(change) };
            let signature = block_signature(memory, wire);
            let crypto = crypto(direction, order, unit(direction, order, memory, wire), dek);
            let data = pattern(3 * 512, key.len() as u8);
            let images = expected::images(&data, signature.as_ref(), Some((&crypto, key)));
            ensure!(images.wire != images.memory, "the images are the same");
            fixture.install(&images.memory, signature.as_ref(), Some(&crypto))?;
            let what = format_args!("key of {} bytes, memory {memory:?}, wire {wire:?}", key.len());
            fixture.both_ways(&images).within(what)?;
        }
    }
    Ok(())
}

/// Returns the data unit size: 520 bytes if the cipher covers the signature too, otherwise 512.
fn unit(
    direction: Direction,
    order: SignatureOrder,
    memory: Option<Domain>,
    wire: Option<Domain>,
) -> BlockSize {
    let inside = match (direction, order) {
        (EncryptOnTx, BeforeCryptoOnTx) => wire.is_some(),
        (DecryptOnTx, AfterCryptoOnTx) => memory.is_some(),
        _ => false,
    };
    if inside { BlockSize::B520 } else { BlockSize::B512 }
}

/// Row A: data in memory, enc(data) on the wire. Both signature orders, although encoded differently, have
/// this effect.
fn r143_row_a_cipher_alone_outgoing(board: &mut dyn Board) -> Verdict {
    row(board, EncryptOnTx, AfterCryptoOnTx, None, None)?;
    row(board, EncryptOnTx, BeforeCryptoOnTx, None, None)
}

/// Row B: data in memory, enc(data) + SIG on the wire. SIG covers ciphertext and is not encrypted.
fn r144_row_b_wire_signature_over_ciphertext(board: &mut dyn Board) -> Verdict {
    row(board, EncryptOnTx, AfterCryptoOnTx, None, Some(FIRST))
}

/// Row C: data in memory, enc(data + SIG) on the wire; the man page's example 2.
fn r145_row_c_wire_signature_inside_the_cipher(board: &mut dyn Board) -> Verdict {
    row(board, EncryptOnTx, BeforeCryptoOnTx, None, Some(FIRST))
}

/// Row D: data + SIG in memory, enc(data) on the wire.
fn r146_row_d_memory_signature_stripped_then_cipher(board: &mut dyn Board) -> Verdict {
    row(board, EncryptOnTx, BeforeCryptoOnTx, Some(FIRST), None)
}

/// Row E: data + SIG1 in memory, enc(data + SIG2) on the wire.
fn r147_row_e_signature_replaced_then_cipher(board: &mut dyn Board) -> Verdict {
    row(board, EncryptOnTx, BeforeCryptoOnTx, Some(FIRST), Some(SECOND))
}

/// Row F: enc(data) in memory, data on the wire; the man page's example 1. Both signature orders, although
/// encoded differently, have this effect.
fn r148_row_f_cipher_alone_incoming(board: &mut dyn Board) -> Verdict {
    row(board, DecryptOnTx, AfterCryptoOnTx, None, None)?;
    row(board, DecryptOnTx, BeforeCryptoOnTx, None, None)
}

/// Row G: enc(data) in memory, data + SIG on the wire.
fn r149_row_g_decrypt_then_wire_signature(board: &mut dyn Board) -> Verdict {
    row(board, DecryptOnTx, AfterCryptoOnTx, None, Some(FIRST))
}

/// Row H: enc(data + SIG) in memory, data on the wire.
fn r150_row_h_memory_signature_inside_the_cipher(board: &mut dyn Board) -> Verdict {
    row(board, DecryptOnTx, AfterCryptoOnTx, Some(FIRST), None)
}

/// Row I: enc(data + SIG1) in memory, data + SIG2 on the wire.
fn r151_row_i_decrypt_then_replace_signature(board: &mut dyn Board) -> Verdict {
    row(board, DecryptOnTx, AfterCryptoOnTx, Some(FIRST), Some(SECOND))
}

/// Row J: enc(data) + SIG in memory, data on the wire. SIG covers ciphertext and is not encrypted.
fn r152_row_j_memory_signature_over_ciphertext(board: &mut dyn Board) -> Verdict {
    row(board, DecryptOnTx, BeforeCryptoOnTx, Some(FIRST), None)
}

/// How the library and the man page treat a combination of direction, order and domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// A row of the man page's table.
    Row,
    /// A combination that libmlx5 accepts although the man page's table lacks it.
    ///
    /// Assumption: the device signs and encrypts in the order that the request encodes, as `expected::images`
    /// does. `gap05_rows_that_are_in_no_table` measures it; no hardware has been measured yet.
    Leftover,
    /// A combination that no device supports. The library refuses it when it is posted.
    Refused,
}

/// Each of the sixteen combinations of direction, signature order and domains with a signature has the status
/// that the table in this function says.
fn r153_leftover_combinations(board: &mut dyn Board) -> Verdict {
    use Status::{Leftover, Refused, Row};
    // The four columns are: no signature, a signature in memory only, on the wire only, in both domains.
    let table = [
        (EncryptOnTx, AfterCryptoOnTx, [Row, Leftover, Row, Refused]),
        (EncryptOnTx, BeforeCryptoOnTx, [Row, Row, Row, Row]),
        (DecryptOnTx, AfterCryptoOnTx, [Row, Row, Row, Row]),
        (DecryptOnTx, BeforeCryptoOnTx, [Row, Row, Leftover, Refused]),
    ];
    let mut fixture = MkeyFixture::new(board, BOTH);
    let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    let data = pattern(1024, 1);
    for (direction, order, statuses) in table {
        let signatures = [
            None,
            Some(BlockSignature::memory(FIRST)),
            Some(BlockSignature::wire(FIRST)),
            Some(BlockSignature::both(FIRST, SECOND)),
        ];
        for (signature, status) in signatures.into_iter().zip(statuses) {
            let (memory, wire) = match &signature {
                Some(block) => (block.memory_domain(), block.wire_domain()),
                None => (None, None),
            };
            let crypto: Crypto = crypto(direction, order, unit(direction, order, memory, wire), dek);
            let what =
                format!("{direction:?}, {order:?}, memory {}, wire {}", memory.is_some(), wire.is_some());
            if status == Refused {
                let config = MkeyConfig {
                    signature: signature.map_or(SignatureChange::Reset, SignatureChange::Set),
                    crypto: Some(crypto),
                    ..MkeyConfig::UNCHANGED
                };
                let refused = Err(PostError::Config(ConfigError::BothSignaturesOutsideCipher));
                let posted = fixture.pair.try_configure(fixture.mkey, &config, Layout::List(&[]));
                ensure_eq!(posted, refused, "{what}");
                continue;
            }
            let images = expected::images(&data, signature.as_ref(), Some((&crypto, &KEY_128)));
            fixture.renew_mkey();
            fixture.install(&images.memory, signature.as_ref(), Some(&crypto))?;
            let done = fixture.both_ways(&images);
            fixture.right(status == Row, what, done)?;
        }
    }
    Ok(())
}

/// If the AES-XTS engine encrypts only one data unit per mkey, the device supports those rows in which the
/// mkey's memory, signature included, is at most one data unit long. The library refuses the other rows.
fn r171_rows_on_a_single_unit(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, BOTH);
    let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    let data = pattern(512, 1);
    let rows = [
        ("A", EncryptOnTx, AfterCryptoOnTx, None, true),
        ("B", EncryptOnTx, AfterCryptoOnTx, Some(BlockSignature::wire(FIRST)), true),
        ("C", EncryptOnTx, BeforeCryptoOnTx, Some(BlockSignature::wire(FIRST)), true),
        ("D", EncryptOnTx, BeforeCryptoOnTx, Some(BlockSignature::memory(FIRST)), false),
        ("E", EncryptOnTx, BeforeCryptoOnTx, Some(BlockSignature::both(FIRST, SECOND)), true),
        ("F", DecryptOnTx, AfterCryptoOnTx, None, true),
        ("G", DecryptOnTx, AfterCryptoOnTx, Some(BlockSignature::wire(FIRST)), true),
        ("H", DecryptOnTx, AfterCryptoOnTx, Some(BlockSignature::memory(FIRST)), true),
        ("I", DecryptOnTx, AfterCryptoOnTx, Some(BlockSignature::both(FIRST, SECOND)), true),
        ("J", DecryptOnTx, BeforeCryptoOnTx, Some(BlockSignature::memory(FIRST)), false),
    ];
    for (name, direction, order, signature, fits) in rows {
        let domains = signature.map(|block| (block.memory_domain(), block.wire_domain()));
        let (memory, wire) = domains.unwrap_or((None, None));
        let crypto = crypto(direction, order, unit(direction, order, memory, wire), dek);
        let images = expected::images(&data, signature.as_ref(), Some((&crypto, &KEY_128)));
        let installed = fixture.install(&images.memory, signature.as_ref(), Some(&crypto));
        ensure_eq!(installed.is_ok(), fits, "row {name} is taken ({installed:?})");
        if fits {
            fixture.both_ways(&images).within(format_args!("row {name}"))?;
        }
    }
    // The library refuses a layout longer than a data unit, and the earlier configuration still works.
    let crypto = crypto(EncryptOnTx, AfterCryptoOnTx, BlockSize::B512, dek);
    let images = fixture.install_images(&data, None, Some((&crypto, &KEY_128)))?;
    let long = fixture.pair.region(&[0; 513]);
    let entries = [super::fixture::entry(&long, 0..513)];
    let refused =
        Err(PostError::Config(ConfigError::LengthOverDataUnit { length: 513, unit: BlockSize::B512 }));
    let posted = fixture.pair.try_configure(fixture.mkey, &MkeyConfig::UNCHANGED, &entries);
    ensure_eq!(posted, refused, "513 bytes in units of 512");
    fixture.out(Tx::Send, 0, &images.wire)
}
