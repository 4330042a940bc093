//! Digests: a CRC32C over all data of a transaction, stored behind the data on the wire or in memory. The
//! data pass through one mkey or through several.

use super::fixture::{
    ALL_RIGHTS, BOTH, CRYPTO, KEY_128, MkeyFixture, SIGNATURE, crypto, domain, entry, flipped, part, pattern,
    same,
};
use super::scenario::{Scenario, scenario};
use crate::board::{Board, DekSpec, MkeySpec};
use crate::expected::{self, Images};
use crate::qp_pair::{QpPairFixture, Rx, Tx, Verdict, Within, text};
use crate::{ensure, ensure_eq};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;
use mlx5_mkey::mkey::{
    BlockSignature, Crc32cCombine, Crc64Combine, Crypto, Digest, DigestPart, DigestSpan, Direction, Layout,
    MkeyConfig, Signature, SignatureChange, SignatureError, SignatureErrorKind, SignatureOrder, UmrForm,
    XtsEngine,
};
use mlx5_mkey::types::{BlockSize, DomainKind, Seed};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};

pub(super) const ALL: &[Scenario] = &[
    scenario!(m69_a_digest_on_the_wire, SIGNATURE, ["M69"]),
    scenario!(m69_a_digest_in_memory, SIGNATURE, ["M69"]),
    scenario!(m69_data_and_digest_in_requests_of_their_own, SIGNATURE, ["M69"]),
    scenario!(m69_a_wrong_digest_is_reported, SIGNATURE, ["M69"]),
    scenario!(m69_a_digest_and_a_block_signature_take_turns, SIGNATURE, ["M69"]),
    scenario!(m70_a_digest_over_several_mkeys, SIGNATURE, ["M70"]),
    scenario!(m70_a_transaction_after_a_wrong_digest, SIGNATURE, ["M70"]),
    scenario!(m71_a_digest_over_ciphertext, BOTH_UNIT, ["M71"]),
    scenario!(m73_what_a_minimal_umr_leaves_out_stays, SIGNATURE, ["M73"]),
    scenario!(m73_minimal_umrs_of_a_cipher, CRYPTO_UNIT, ["M73"]),
    scenario!(m72_crcs_of_blocks_make_the_crc_of_all, SIGNATURE, ["M72"]),
];

use SignatureOrder::{AfterCryptoOnTx, BeforeCryptoOnTx};

const SEEDS: [Seed; 2] = [Seed::Ones, Seed::Zeros];
const DOMAINS: [DomainKind; 2] = [DomainKind::Wire, DomainKind::Memory];

/// Returns the digest of `data`, in the byte order in which it is stored behind the data.
pub(super) fn crc(seed: Seed, data: &[u8]) -> Vec<u8> {
    expected::signature(&Signature::Crc32c(seed), data, 0)
}

/// Returns the bytes in memory and on the wire of an mkey with a digest. In the domain that holds the digest,
/// it follows the data.
pub(super) fn images(digest: &Digest, data: &[u8]) -> Images {
    let (plain, protected) = (data.to_vec(), [data, &crc(digest.seed, data)].concat());
    match digest.domain {
        DomainKind::Wire => Images { memory: plain, wire: protected },
        DomainKind::Memory => Images { memory: protected, wire: plain },
    }
}

/// Writes the bytes to new memory, and configures the fixture's mkey over it, with a digest.
pub(super) fn install(
    fixture: &mut MkeyFixture<'_>,
    memory: &[u8],
    digest: Digest,
    crypto: Option<&Crypto>,
) -> Verdict {
    let signature = SignatureChange::Digest(digest);
    fixture.install_as(memory, &MkeyConfig { signature, crypto: crypto.copied(), ..ALL_RIGHTS })?;
    let wire = fixture.pair.mkeys.get(fixture.mkey).and_then(mlx5_mkey::mkey::Mkey::wire_length);
    ensure_eq!(wire, digest.wire_bytes(memory.len() as u64), "length on the wire");
    Ok(())
}

fn both_ways(board: &mut dyn Board, domain: DomainKind) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    for (seed, length) in
        SEEDS.into_iter().flat_map(|seed| [63, 512, 4097, 20_000].map(|length| (seed, length)))
    {
        let digest = Digest { domain, seed, span: DigestSpan::Mkey };
        let images = images(&digest, &pattern(length, 1));
        install(&mut fixture, &images.memory, digest, None)?;
        fixture.both_ways(&images).within(format_args!("{length} bytes, {seed:?}"))?;
    }
    Ok(())
}

/// A digest on the wire: the device adds it to outgoing data, and checks and strips it from incoming data.
fn m69_a_digest_on_the_wire(board: &mut dyn Board) -> Verdict {
    both_ways(board, DomainKind::Wire)
}

/// A digest in memory: the device checks and strips it from outgoing data, and writes it after incoming data.
fn m69_a_digest_in_memory(board: &mut dyn Board) -> Verdict {
    both_ways(board, DomainKind::Memory)
}

/// One request can move the data, and another one the digest. In the mkey's space, the digest begins where
/// the data end.
fn m69_data_and_digest_in_requests_of_their_own(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(3000, 2);
    install(&mut fixture, &data, Digest::wire(), None)?;
    for way in Tx::ALL {
        fixture.out(way, 0, &data)?;
        fixture.out(way, data.len() as u64, &crc(Seed::Ones, &data))?;
    }
    // A layout of another length keeps the digest, which then covers the data of the new layout.
    let part = part(&data, 0..1000);
    let entries = [entry(&fixture.memory, 0..1000)];
    fixture.change(&MkeyConfig::UNCHANGED, &entries)?;
    fixture.out(Tx::Send, 0, &[part, &crc(Seed::Ones, part)].concat())
}

/// Checks the fields of a digest error: `bad` is the digest that the device found, `good` the one that it
/// computed.
fn reported(error: &SignatureError, domain: DomainKind, good: &[u8], bad: &[u8]) -> Verdict {
    ensure_eq!(error.kind, SignatureErrorKind::Digest, "kind of error");
    ensure_eq!(error.domain, domain, "domain of the error");
    let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).map_err(|_| "no CRC".to_string());
    ensure_eq!(error.found, u64::from(number(bad)?), "what was found");
    ensure_eq!(error.computed, u64::from(number(good)?), "what was computed");
    Ok(())
}

/// A transfer with a wrong digest completes, and the mkey reports the error. The next configuration makes the
/// device check again, even if it keeps the digest.
fn m69_a_wrong_digest_is_reported(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(1500, 3);
    for (round, domain) in [DOMAINS, DOMAINS].into_iter().flatten().enumerate() {
        let digest = Digest { domain, seed: Seed::Ones, span: DigestSpan::Mkey };
        let images = images(&digest, &data);
        let good = crc(Seed::Ones, &data);
        let bad = flipped(&good, round, 0x20);
        let protected = [&data[..], &bad].concat();
        install(&mut fixture, &images.memory, digest, None)?;
        let error = match domain {
            DomainKind::Wire => {
                let error = fixture.take_bad(Rx::PeerWrite, &protected)?;
                fixture.holds(&data)?;
                error
            }
            DomainKind::Memory => {
                fixture.write(&protected);
                fixture.out_bad(Tx::Send, data.len())?
            }
        };
        reported(&error, domain, &good, &bad)?;
        fixture.write(&images.memory);
        fixture.change(&MkeyConfig::UNCHANGED, Layout::Unchanged)?;
        fixture.both_ways(&images).within(format_args!("{domain:?}: after an error"))?;
    }
    Ok(())
}

/// An mkey has either a digest or a block signature. Setting one of them removes the other.
fn m69_a_digest_and_a_block_signature_take_turns(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let (digest, block) = (Digest::wire(), BlockSignature::wire(domain(Signature::Crc64Xp10(Seed::Ones))));
    for salt in 0..3 {
        let data = pattern(2048, salt);
        let blocks = expected::images(&data, Some(&block), None);
        fixture.install(&blocks.memory, Some(&block), None)?;
        fixture.both_ways(&blocks)?;
        let images = images(&digest, &data);
        install(&mut fixture, &images.memory, digest, None)?;
        fixture.both_ways(&images)?;
        fixture.install(&data, None, None)?;
        fixture.both_ways(&Images { memory: data.clone(), wire: data })?;
    }
    Ok(())
}

/// The part of a transaction of 3000 bytes that each of its three mkeys covers.
const PARTS: [(DigestPart, Range<usize>); 3] =
    [(DigestPart::First, 0..1000), (DigestPart::Middle, 1000..1001), (DigestPart::Last, 1001..3000)];

/// Posts the configurations of the three mkeys of a transaction, and returns the number of posted
/// configurations. The caller rings the doorbell. One prepared configuration serves all three: the function
/// changes it in place for each mkey.
fn begin(pair: &mut QpPairFixture<'_>, memory: &crate::qp_pair::Region, seed: Seed) -> Result<usize, String> {
    let psv = pair.mkeys.first().and_then(|mkey| mkey.psv_index(DomainKind::Wire)).ok_or("no PSV")?;
    let span = DigestSpan::Transaction { part: DigestPart::Whole, psv };
    let signature = SignatureChange::Digest(Digest { domain: DomainKind::Wire, seed, span });
    let config = MkeyConfig { signature, ..ALL_RIGHTS };
    let mut prepared: PreparedConfig = pair.prepare(0, &config).map_err(text)?;
    for (mkey, (part, range)) in PARTS.into_iter().enumerate() {
        prepared.set_digest(DigestSpan::Transaction { part, psv }).map_err(text)?;
        pair.post_prepared(mkey, &prepared, &[entry(memory, range)]).map_err(text)?;
    }
    Ok(PARTS.len())
}

/// Mkeys of a transaction share a PSV: the CRC continues from the data of one mkey to the data of the next.
/// After the data of the last mkey the device emits the CRC of all data.
fn m70_a_digest_over_several_mkeys(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    for _ in PARTS {
        pair.mkey(SIGNATURE);
    }
    for (round, seed) in [SEEDS, SEEDS].into_iter().flatten().enumerate() {
        let data = pattern(3000, round as u8);
        let (memory, far) = (pair.region(&data), pair.region(&[0; 3004]));
        let mut posted = begin(&mut pair, &memory, seed)?;
        for (mkey, (part, range)) in PARTS.into_iter().enumerate() {
            let length = range.len() as u32 + if part.ends() { Digest::BYTES } else { 0 };
            let remote = Remote { address: far.address + range.start as u64, rkey: far.key };
            let sge = Sge { address: 0, length, lkey: pair.key(mkey) };
            pair.near.request(1).signaled().rdma_write(remote, &[sge]).map_err(text)?;
            posted += 1;
        }
        let done = pair.complete_near(posted)?;
        ensure_eq!(done.len(), posted, "completions");
        ensure!(pair.signature_errors.is_empty(), "a signature error");
        same(&pair.bytes(&far), &[&data[..], &crc(seed, &data)].concat())
            .within(format_args!("round {round}"))?;
    }
    Ok(())
}

/// The digest of every second transaction is wrong, and the last mkey reports the error. Before each later
/// transaction, a SET_PSV of the shared PSV is needed so that the device reports errors again.
fn m70_a_transaction_after_a_wrong_digest(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    for _ in PARTS {
        pair.mkey(SIGNATURE);
    }
    for round in 0..4usize {
        let data = pattern(3000, round as u8);
        let memory = pair.region(&[0xcc; 3000]);
        let good = crc(Seed::Ones, &data);
        let found = if round % 2 == 0 { flipped(&good, 1, 4) } else { good.clone() };
        let far = pair.region(&[&data[..], &found].concat());
        let mut posted = begin(&mut pair, &memory, Seed::Ones)?;
        if round > 0 {
            let psv = pair.mkeys.first().and_then(|mkey| mkey.psv_index(DomainKind::Wire)).ok_or("no PSV")?;
            pair.near.request(2).signaled().set_psv(psv, Seed::Ones).map_err(text)?;
            posted += 1;
        }
        for (mkey, (part, range)) in PARTS.into_iter().enumerate() {
            let length = range.len() as u32 + if part.ends() { Digest::BYTES } else { 0 };
            let remote = Remote { address: far.address + range.start as u64, rkey: far.key };
            let sge = Sge { address: 0, length, lkey: pair.key(mkey) };
            pair.near.request(1).signaled().fenced().rdma_read(remote, &[sge]).map_err(text)?;
            posted += 1;
        }
        ensure_eq!(pair.complete_near(posted)?.len(), posted, "completions");
        same(&pair.bytes(&memory), &data)?;
        match pair.check(PARTS.len() - 1).map_err(text)? {
            Some(error) if round % 2 == 0 => reported(&error, DomainKind::Wire, &good, &found)?,
            None if round % 2 == 1 => {}
            other => return Err(format!("round {round}: {other:?}")),
        }
    }
    Ok(())
}

/// A digest over ciphertext, in the two forms that devices are known to support. In both, encrypted data are
/// followed by a digest in plaintext.
fn m71_a_digest_over_ciphertext(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, BOTH);
    let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    let single = fixture.pair.board.capabilities().xts == Some(XtsEngine::SingleBlock);
    for (domain, direction, [order, other]) in [
        (DomainKind::Wire, Direction::EncryptOnTx, [AfterCryptoOnTx, BeforeCryptoOnTx]),
        (DomainKind::Memory, Direction::DecryptOnTx, [BeforeCryptoOnTx, AfterCryptoOnTx]),
    ] {
        let cipher = crypto(direction, order, BlockSize::B512, dek);
        // If the engine encrypts only one data unit per mkey, the data and a digest in memory together must
        // fit into one data unit.
        let data = pattern(if single { 496 } else { 2048 }, 5);
        let ciphertext = expected::encrypt(&KEY_128, BlockSize::B512, cipher.tweak, &data);
        let protected = [&ciphertext[..], &crc(Seed::Ones, &ciphertext)].concat();
        let images = match domain {
            DomainKind::Wire => Images { memory: data, wire: protected },
            DomainKind::Memory => Images { memory: protected, wire: data },
        };
        let digest = Digest { domain, ..Digest::wire() };
        install(&mut fixture, &images.memory, digest, Some(&cipher))?;
        fixture.both_ways(&images).within(format_args!("{domain:?}"))?;
        let wrong = crypto(direction, other, BlockSize::B512, dek);
        let config =
            MkeyConfig { access: None, signature: SignatureChange::Digest(digest), crypto: Some(wrong) };
        let refused = fixture.pair.prepare(fixture.mkey, &config).err();
        ensure_eq!(refused, Some(mlx5_mkey::error::ConfigError::DigestNotOverCiphertext), "another order");
    }
    Ok(())
}

/// The device computes the CRC of each block. From these the library computes the CRC of all data.
fn m72_crcs_of_blocks_make_the_crc_of_all(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(8 * 512, 6);
    for seed in SEEDS {
        for signature in [Signature::Crc32c(seed), Signature::Crc64Xp10(seed)] {
            let block = BlockSignature::wire(domain(signature));
            fixture.install(&data, Some(&block), None)?;
            let bytes = signature.bytes() as usize;
            let wire = fixture.pair.tx(Tx::Send, fixture.mkey, 0, 8 * (512 + bytes))?.ok()?;
            let crcs = wire.chunks(512 + bytes).map(|block| {
                let crc = part(block, 512..512 + bytes).iter().rev();
                crc.fold(0, |crc, byte| crc << 8 | u64::from(*byte))
            });
            let (of_32, of_64) = (Crc32cCombine::behind(512, seed), Crc64Combine::behind(512, seed));
            let all = crcs.reduce(|all, crc| match bytes {
                4 => u64::from(of_32.combine(all as u32, crc as u32)),
                _ => of_64.combine(all, crc),
            });
            let expected = expected::signature(&signature, &data, 0);
            ensure_eq!(part(&all.unwrap_or(0).to_le_bytes(), 0..bytes), &expected[..], "{signature:?}");
        }
    }
    Ok(())
}

/// Minimal UMRs set and remove digests and signatures. Such a UMR contains neither access rights nor key:
/// both stay as they were at creation.
fn m73_what_a_minimal_umr_leaves_out_stays(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, MkeySpec { form: UmrForm::Minimal, ..SIGNATURE });
    let block = BlockSignature::wire(domain(Signature::Crc64Xp10(Seed::Ones)));
    for salt in 0..2 {
        let data = pattern(1024, salt);
        for (signature, images) in [
            (SignatureChange::Digest(Digest::wire()), images(&Digest::wire(), &data)),
            (SignatureChange::Set(block), expected::images(&data, Some(&block), None)),
            (SignatureChange::Reset, Images { memory: data.clone(), wire: data.clone() }),
            (SignatureChange::Digest(Digest::memory()), images(&Digest::memory(), &data)),
        ] {
            fixture.install_as(&images.memory, &MkeyConfig { signature, ..MkeyConfig::UNCHANGED })?;
            fixture.both_ways(&images).within(format_args!("{signature:?}"))?;
        }
    }
    Ok(())
}

/// Minimal UMRs with crypto properties: the BSF contains the exact length of the data. This holds also if a
/// later layout has another length and keeps the crypto properties.
fn m73_minimal_umrs_of_a_cipher(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, MkeySpec { form: UmrForm::Minimal, ..CRYPTO });
    let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    let cipher = crypto(Direction::EncryptOnTx, BeforeCryptoOnTx, BlockSize::B512, dek);
    for (length, given) in [(256, Some(cipher)), (512, None), (128, None), (512, Some(cipher))] {
        let data = pattern(length, 1);
        let wire = expected::encrypt(&KEY_128, BlockSize::B512, cipher.tweak, &data);
        fixture.install_as(&data, &MkeyConfig { crypto: given, ..MkeyConfig::UNCHANGED })?;
        fixture.both_ways(&Images { memory: data, wire }).within(format_args!("{length} bytes"))?;
    }
    Ok(())
}
