//! Configurations that are prepared once and posted for several mkeys of one kind (a pool).

use super::fixture::{
    ALL_RIGHTS, BOTH, DIF, KEY_128, MkeyFixture, PLAIN, cipher_over_dif, domain, flipped, pattern, reports,
};
use super::keys::invalidate;
use super::scenario::{Scenario, scenario};
use crate::board::{Board, MkeySpec};
use crate::expected::{self, Images};
use crate::qp_pair::{Region, Rx, Verdict, Within, text};
use crate::{ensure, ensure_eq};
use alloc::vec::Vec;
use mlx5_mkey::mkey::{BlockSignature, MkeyConfig, Signature, SignatureChange, SignatureErrorKind};
use mlx5_mkey::queue::{Outcome, RequestKind};
use mlx5_mkey::types::{DomainKind, Seed, Tweak};
use mlx5_mkey::wqe::PreparedConfig;

pub(super) const ALL: &[Scenario] = &[
    scenario!(r010_a_pool_shares_a_configuration, NOTHING, ["R10", "R34"]),
    scenario!(r010_a_pool_shares_signature_and_cipher, BOTH_UNIT, ["R10", "R58", "R176", "R180"]),
];

/// Number of mkeys of the pool.
const MKEYS: u8 = 4;

/// An mkey of the pool: its position among the pair's mkeys, and its memory.
struct Member {
    mkey: usize,
    memory: Region,
}

/// Creates the mkeys of a pool, and `bytes` bytes of memory for each.
fn pool(fixture: &mut MkeyFixture<'_>, spec: MkeySpec, bytes: usize) -> Vec<Member> {
    let mut member =
        |_| Member { mkey: fixture.pair.mkey(spec), memory: fixture.pair.region(&vec![0; bytes]) };
    (0..MKEYS).map(&mut member).collect()
}

/// Makes the functions of the fixture use this mkey and its memory.
fn choose(fixture: &mut MkeyFixture<'_>, member: &Member) {
    (fixture.mkey, fixture.memory) = (member.mkey, member.memory);
}

/// Configures all mkeys of the pool, each over its own memory, with one doorbell. Checks that each then moves
/// the data of its own memory.
fn configure(
    fixture: &mut MkeyFixture<'_>,
    members: &[Member],
    prepared: &PreparedConfig,
    images: impl Fn(u8) -> Images,
) -> Verdict {
    for (salt, member) in (0..).zip(members) {
        choose(fixture, member);
        fixture.write(&images(salt).memory);
        let entries = fixture.entries();
        fixture.pair.post_prepared(fixture.mkey, prepared, &entries).map_err(text)?;
    }
    let done = fixture.pair.complete_near(members.len())?;
    ensure_eq!(done.len(), members.len(), "completions");
    ensure!(
        done.iter()
            .all(|work| matches!(work.outcome, Outcome::Sent { kind: RequestKind::MkeyConfigure, .. })),
        "configuring completed with {done:?}"
    );
    for (salt, member) in (0..).zip(members) {
        choose(fixture, member);
        fixture.both_ways(&images(salt)).within(format_args!("mkey {salt} of the pool"))?;
    }
    Ok(())
}

/// One prepared configuration is posted for all mkeys of a pool, for each with another layout.
fn r010_a_pool_shares_a_configuration(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    let mut members = pool(&mut fixture, PLAIN, 300);
    let prepared = fixture.pair.prepare(fixture.mkey, &ALL_RIGHTS).map_err(text)?;
    for round in 0..u8::try_from(members.len()).unwrap_or(MKEYS) {
        let images = |salt| {
            let data = pattern(300, round << 4 | salt);
            Images { memory: data.clone(), wire: data }
        };
        configure(&mut fixture, &members, &prepared, images).within(format_args!("round {round}"))?;
        // In the next round each mkey maps the memory of another.
        let first = members.first().map(|member| member.memory).ok_or("an empty pool")?;
        let mut memories: Vec<Region> = members.iter().skip(1).map(|member| member.memory).collect();
        memories.push(first);
        members.iter_mut().zip(memories).for_each(|(member, memory)| member.memory = memory);
    }
    Ok(())
}

/// One prepared configuration with signature and crypto properties is posted for all mkeys of a pool,
/// although each has its own PSVs and its own count of errors. Mkeys with an error, and invalidated mkeys,
/// can be configured with it too. Then the configuration is changed in place, and posted for all mkeys again.
fn r010_a_pool_shares_signature_and_cipher(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, BOTH);
    let members = pool(&mut fixture, BOTH, 520);
    let mut cipher = cipher_over_dif(fixture.pair.board);
    let (memory, mut dif) = (domain(Signature::Crc64Xp10(Seed::Ones)), DIF);
    let signature = BlockSignature::both(memory, domain(Signature::T10Dif(dif)));
    let config =
        MkeyConfig { signature: SignatureChange::Set(signature), crypto: Some(cipher), ..ALL_RIGHTS };
    let mut prepared = fixture.pair.prepare(fixture.mkey, &config).map_err(text)?;
    for round in 0..4u8 {
        let signature = BlockSignature::both(memory, domain(Signature::T10Dif(dif)));
        let images = |salt| {
            let data = pattern(512, round << 4 | salt);
            expected::images(&data, Some(&signature), Some((&cipher, &KEY_128)))
        };
        configure(&mut fixture, &members, &prepared, images).within(format_args!("round {round}"))?;
        let [.., first, last] = members.as_slice() else { return Err("a small pool".into()) };
        choose(&mut fixture, first);
        let error = fixture.take_bad(Rx::PeerWrite, &flipped(&images(0).wire, 9, 1))?;
        reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 0, 520)?;
        for other in members.iter().filter(|other| other.mkey != first.mkey) {
            choose(&mut fixture, other);
            fixture.no_error("another mkey of the pool")?;
        }
        choose(&mut fixture, last);
        invalidate(&mut fixture)?;
        if round % 2 == 1 {
            (cipher.tweak, dif.app_tag, dif.ref_tag) =
                (Tweak::from_lba(round.into()), round.into(), !DIF.ref_tag);
            prepared.set_tweak(cipher.tweak).map_err(text)?;
            prepared.set_app_tag(DomainKind::Wire, dif.app_tag).map_err(text)?;
            prepared.set_ref_tag(DomainKind::Wire, dif.ref_tag).map_err(text)?;
        }
    }
    Ok(())
}
