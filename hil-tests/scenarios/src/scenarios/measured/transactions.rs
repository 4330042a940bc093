//! Measurements of transactions (digests) on hardware: the offset of an error, parts of a transaction that
//! drivers never request, and fields of the BSF that the library never writes.

use super::super::changed::{BSF, configure_as};
use super::super::digest::{crc, images, install};
use super::super::fixture::{
    ALL_RIGHTS, BOTH, KEY_128, MkeyFixture, SIGNATURE, crypto, flipped, part, pattern,
};
use super::measurement::{Measurement, Tell, compared, measurement, send, told};
use crate::board::{Board, DekSpec};
use crate::expected::{self, Images};
use crate::qp_pair::{Rx, Tx, Verdict, text};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::mkey::{Access, Digest, Direction, MkeyConfig, SignatureChange, SignatureOrder, XtsEngine};
use mlx5_mkey::queue::Outcome;
use mlx5_mkey::types::{BlockSize, DomainKind, Seed};
use mlx5_mkey::wire::bsf::BfsPsv;
use mlx5_mkey::wqe::Sge;

pub(super) const ALL: &[Measurement] = &[
    measurement!(gap14_offset_of_a_wrong_digest, SIGNATURE),
    measurement!(gap15_parts_of_transactions, SIGNATURE),
    measurement!(gap16_fields_of_transactions, SIGNATURE),
];

/// Reports the offset that the device gives to a wrong digest, which stands behind data of various lengths.
fn gap14_offset_of_a_wrong_digest(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    for domain in [DomainKind::Wire, DomainKind::Memory] {
        for length in [512, 1500] {
            let mut fixture = MkeyFixture::new(board, SIGNATURE);
            let digest = Digest { domain, ..Digest::wire() };
            let data = pattern(length, 1);
            let images = images(&digest, &data);
            install(&mut fixture, &images.memory, digest, None)?;
            let protected = [&data[..], &flipped(&crc(Seed::Ones, &data), 0, 1)].concat();
            let error = match domain {
                DomainKind::Wire => fixture.take_bad(Rx::PeerWrite, &protected),
                DomainKind::Memory => {
                    fixture.write(&protected);
                    fixture.out_bad(Tx::Send, length)
                }
            };
            let value = error.map_or_else(|what| what, |error| format!("{}", error.offset));
            tell(&format!("offset of a wrong digest behind {length} bytes, {domain:?}"), &value);
        }
    }
    Ok(())
}

/// Reports the results of requests for parts of a transaction that drivers never request, of a SET_PSV
/// between data and digest, and of a message with the data of two transactions.
fn gap15_parts_of_transactions(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    const LENGTH: usize = 1000;
    let data = pattern(LENGTH, 1);
    let protected = images(&Digest::wire(), &data).wire;
    for range in [0..LENGTH, 0..500, 0..1002, 500..1000, 500..1004, 1000..1002, 1002..1004] {
        let mut fixture = MkeyFixture::new(board, SIGNATURE);
        install(&mut fixture, &data, Digest::wire(), None)?;
        let found = send(&mut fixture, Tx::Send, range.start as u64, range.len());
        let what = format!("bytes {range:?} of a transaction of 1000 bytes");
        tell(&what, &compared(found, part(&protected, range)));
    }
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    install(&mut fixture, &data, Digest::wire(), None)?;
    let sent = compared(send(&mut fixture, Tx::Send, 0, LENGTH), &data);
    let mkey = fixture.pair.mkeys.get(fixture.mkey);
    let psv = mkey.and_then(|mkey| mkey.psv_index(DomainKind::Wire)).ok_or("no PSV")?;
    fixture.pair.near.request(1).signaled().set_psv(psv, Seed::Ones).map_err(text)?;
    let set = told(&fixture.pair.complete_near(1)?);
    let value = match send(&mut fixture, Tx::Send, LENGTH as u64, 4) {
        Ok(found) if found == part(&protected, LENGTH..LENGTH + 4) => "the digest of the data".into(),
        Ok(found) if found == crc(Seed::Ones, &[]) => "the digest of no data".into(),
        found => compared(found, &[]),
    };
    tell(
        "the digest after a SET_PSV behind the data",
        &format!("data: {sent}; SET_PSV: {set}; then {value}"),
    );
    tell("a message with two transactions", &two_transactions(board, &data, &protected)?);
    Ok(())
}

/// Sends the data and the digests of two mkeys in one message. Returns the result in words.
fn two_transactions(board: &mut dyn Board, data: &[u8], protected: &[u8]) -> Result<String, String> {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let length = protected.len();
    let mut sges = Vec::new();
    for _ in 0..2 {
        fixture.renew_mkey();
        install(&mut fixture, data, Digest::wire(), None)?;
        let lkey = fixture.pair.key(fixture.mkey);
        sges.push(Sge { address: 0, length: length as u32, lkey });
    }
    let far = fixture.pair.region(&vec![0; 2 * length]);
    fixture.pair.far.queues().post_receive(1, &[far.sge()]).map_err(text)?;
    fixture.pair.far.queues().publish_receives();
    fixture.pair.near.request(2).signaled().send(&sges[..]).map_err(text)?;
    let done = fixture.pair.complete_near(1)?;
    Ok(match done.as_slice() {
        [one] if matches!(one.outcome, Outcome::Sent { .. }) => {
            compared(Ok(fixture.pair.bytes(&far)), &[protected, protected].concat())
        }
        other => told(other),
    })
}

/// Offsets, in the request, of fields of a BSF with a transaction: the check mask, the block size selector of
/// the memory domain, the raw data size, the format of the memory domain, the bits that select transactions,
/// the size of an epilogue, and the formats with PSVs of the transaction for wire and memory.
const CHECK_MASK: usize = BSF + 1;
const MEMORY_SELECTOR: usize = BSF + 3;
const RAW_SIZE: usize = BSF + 4;
const MEMORY_FORMAT: usize = BSF + 12;
const BITS: usize = BSF + 16;
const EPILOGUE: usize = BSF + 23;
const WIRE_FORMAT: usize = BSF + 24;
const MEMORY_TRANSACTION: usize = BSF + 28;

/// Offset, in a request with a transaction and a cipher, of the encryption order in the crypto BSF.
const ENCRYPTION_ORDER: usize = BSF + 64 + 1;

/// Reports the result of a transfer with a digest on the wire, when a field of the BSF has a value that
/// drivers never write.
fn gap16_fields_of_transactions(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let data = pattern(1000, 1);
    let Images { wire, .. } = images(&Digest::wire(), &data);
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let mkey = fixture.pair.mkeys.get(fixture.mkey);
    let psv = mkey.and_then(|mkey| mkey.psv_index(DomainKind::Memory)).ok_or("no PSV")?.get();
    let of_memory = |at: usize, format: u8| (at..).zip((psv | u32::from(format) << 24).to_be_bytes());
    let crc = BfsPsv::CRC32C;
    let both = [(BITS, 0x33)].into_iter().chain(of_memory(MEMORY_TRANSACTION, crc | BfsPsv::SEED_ZERO));
    let blocks = [(MEMORY_SELECTOR, 1)].into_iter().chain(of_memory(MEMORY_FORMAT, crc | BfsPsv::REPEAT));
    let fields: [(&str, Vec<(usize, u8)>); 11] = [
        ("as drivers write it", Vec::new()),
        ("with check mask 00", vec![(CHECK_MASK, 0)]),
        ("with check mask FF", vec![(CHECK_MASK, 0xff)]),
        ("with a raw data size of all ones", (RAW_SIZE..).zip([0xff; 4]).collect()),
        ("with raw data size 0", (RAW_SIZE..).zip([0; 4]).collect()),
        ("with bits of the memory domain", vec![(BITS, 0x33)]),
        ("with CRC32 as its kind", vec![(WIRE_FORMAT, BfsPsv::CRC32)]),
        ("with CRC64 as its kind", vec![(WIRE_FORMAT, BfsPsv::CRC64_XP10)]),
        ("with an epilogue of 4 bytes", vec![(EPILOGUE, 4)]),
        ("beside a transaction in memory", both.collect()),
        ("beside blocks of 512 bytes in memory", blocks.collect()),
    ];
    fixture.memory = fixture.pair.region(&data);
    for (what, changes) in fields {
        let signature = SignatureChange::Digest(Digest::wire());
        let config = MkeyConfig { signature, ..ALL_RIGHTS };
        let done = configure_as(&mut fixture, &config, &changes)?;
        let found = done.and_then(|()| send(&mut fixture, Tx::Send, 0, wire.len()));
        tell(&format!("a digest on the wire, {what}"), &compared(found, &wire));
    }
    if board.capabilities().xts.is_some() {
        encryption_orders(board, tell)?;
    }
    Ok(())
}

/// Reports the result of a transfer with a cipher and a digest over ciphertext on the wire, with each
/// encryption order.
fn encryption_orders(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let single = board.capabilities().xts == Some(XtsEngine::SingleBlock);
    let data = pattern(if single { 496 } else { 1024 }, 1);
    for order in 0..4 {
        let mut fixture = MkeyFixture::new(board, BOTH);
        let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
        let direction = Direction::EncryptOnTx;
        let cipher = crypto(direction, SignatureOrder::AfterCryptoOnTx, BlockSize::B512, dek);
        let ciphertext = expected::encrypt(&KEY_128, BlockSize::B512, cipher.tweak, &data);
        let wire = [&ciphertext[..], &crc(Seed::Ones, &ciphertext)].concat();
        fixture.memory = fixture.pair.region(&data);
        let signature = SignatureChange::Digest(Digest::wire());
        let config = MkeyConfig { access: Some(Access::ALL), signature, crypto: Some(cipher) };
        let done = configure_as(&mut fixture, &config, &[(ENCRYPTION_ORDER, order)])?;
        let found = done.and_then(|()| send(&mut fixture, Tx::Send, 0, wire.len()));
        tell(&format!("a digest over ciphertext, encryption order {order}"), &compared(found, &wire));
    }
    Ok(())
}
