//! When the key of an mkey works and when it is refused: before the first configuration, after an
//! invalidation by the owner or the peer, after the next configuration, and with a new tag.

use super::fixture::{
    ALL_RIGHTS, BOTH, DIF, KEY_128, MkeyFixture, PLAIN, SIGNATURE, cipher_over_dif, domain, entry, fails,
    flipped, pattern, refuses_rx, refuses_tx, reports, same, tx_refusal,
};
use super::scenario::{Scenario, scenario};
use crate::assumption::assumed;
use crate::board::{Board, MkeySpec};
use crate::expected;
use crate::qp_pair::{QpPairFixture, Rx, Tx, Verdict, Within, syndromes, text};
use crate::{ensure, ensure_eq};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::error::{ConfigError, ConfigPart, PoolError, PostError};
use mlx5_mkey::mkey::{
    BlockSignature, Layout, Mkey, MkeyAttributes, MkeyConfig, Signature, SignatureChange, SignatureErrorKind,
};
use mlx5_mkey::queue::{Message, MkeyPool, Outcome, PoolSlot, RequestKind};
use mlx5_mkey::types::{DomainKind, Key};
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wqe::{Remote, Sge};

pub(super) const ALL: &[Scenario] = &[
    scenario!(r012_an_invalidated_key_refuses_all, NOTHING, ["R12"]),
    scenario!(r012_only_a_whole_configuration_brings_a_key_back, BOTH_UNIT, ["R12", "R121", "R165"]),
    scenario!(r012_the_chain_behind_an_invalidation_sees_it, NOTHING, ["R12", "R17"]),
    scenario!(r012_the_peer_invalidates, NOTHING, ["R12"]),
    scenario!(r012_the_peer_may_not_invalidate_every_key, NOTHING, ["R12"]),
    scenario!(r012_signatures_work_behind_an_invalidation, SIGNATURE, ["R12", "R121", "R180"]),
    scenario!(r010_another_tag_is_another_key, NOTHING, ["R10", "R12"]),
    scenario!(r012_what_a_pool_took_back_no_peer_reaches, NOTHING, ["R10", "R12"]),
    scenario!(r012_a_flushed_invalidation_leaves_the_key_in_service, NOTHING, ["R12"]),
    scenario!(r032_a_key_without_a_configuration, NOTHING, ["R32"]),
    scenario!(r048_a_key_that_nobody_made, NOTHING, ["R48"]),
];

/// Checks that every transfer through the mkey (by SEND, RDMA WRITE and RDMA READ) is refused, and that the
/// memory stays unchanged.
pub(super) fn refuses_all(fixture: &mut MkeyFixture<'_>, length: usize) -> Verdict {
    let before = fixture.pair.bytes(&fixture.memory);
    for way in Tx::ALL {
        let moved = fixture.pair.tx(way, fixture.mkey, 0, length)?;
        let (requester, receiver) = tx_refusal(way);
        fails(format_args!("{way:?}"), &moved, requester, receiver)?;
        fixture.pair.reconnect();
        ensure!(moved.wire.iter().all(|byte| *byte == 0xee), "{way:?}: bytes moved");
    }
    for way in Rx::ALL {
        refuses_rx(&mut fixture.pair, way, fixture.mkey, 0, &pattern(length, 0x44))?;
        fixture.holds(&before).within(format_args!("{way:?}"))?;
    }
    Ok(())
}

/// Posts a LOCAL_INV of the mkey, and waits for the completion.
pub(super) fn invalidate(fixture: &mut MkeyFixture<'_>) -> Verdict {
    let mkey = fixture.pair.mkeys.get_mut(fixture.mkey).ok_or("no such mkey")?;
    fixture.pair.near.request(9).signaled().invalidate_mkey(mkey).map_err(text)?;
    let completions = fixture.pair.complete_near(1)?;
    ensure!(
        matches!(completions.as_slice(), [completion] if completion.id == 9
            && matches!(completion.outcome, Outcome::Sent { kind: RequestKind::LocalInvalidate, .. })),
        "invalidation completed with {completions:?}"
    );
    Ok(())
}

/// All transfers through an mkey fail after LOCAL_INV. A complete configuration makes its key usable again.
fn r012_an_invalidated_key_refuses_all(board: &mut dyn Board) -> Verdict {
    let data = pattern(100, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    invalidate(&mut fixture)?;
    refuses_all(&mut fixture, 100)?;
    let new = pattern(100, 2);
    fixture.install(&new, None, None)?;
    fixture.both_ways(&expected::Images { memory: new.clone(), wire: new })
}

/// The library no longer knows the properties of an invalidated mkey. It therefore refuses a configuration
/// that lacks access rights, layout, signature or crypto properties.
fn r012_only_a_whole_configuration_brings_a_key_back(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, BOTH);
    let crypto = cipher_over_dif(fixture.pair.board);
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let images = fixture.install_images(&pattern(512, 1), Some(&signature), Some((&crypto, &KEY_128)))?;
    invalidate(&mut fixture)?;
    let entries = fixture.entries();
    let whole = MkeyConfig { signature: SignatureChange::Set(signature), crypto: Some(crypto), ..ALL_RIGHTS };
    let list = Layout::List(&entries);
    for (config, layout, missing) in [
        (MkeyConfig::UNCHANGED, Layout::Unchanged, ConfigPart::Access),
        (MkeyConfig { access: None, ..whole }, list, ConfigPart::Access),
        (whole, Layout::Unchanged, ConfigPart::Layout),
        (MkeyConfig { signature: SignatureChange::Keep, ..whole }, list, ConfigPart::Signature),
        (MkeyConfig { crypto: None, ..whole }, list, ConfigPart::Crypto),
    ] {
        let refused = Err(PostError::Config(ConfigError::StateUnknown { missing }));
        ensure_eq!(fixture.pair.try_configure(fixture.mkey, &config, layout), refused, "without {missing}");
    }
    refuses_all(&mut fixture, 520)?;
    fixture.change(&whole, list)?;
    fixture.both_ways(&images)
}

/// Of requests that are published together, the one before a LOCAL_INV of the mkey succeeds, and the one
/// after it fails.
fn r012_the_chain_behind_an_invalidation_sees_it(board: &mut dyn Board) -> Verdict {
    let data = pattern(64, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    let target = fixture.pair.region(&[0; 128]);
    let sge = Sge { address: 0, length: 64, lkey: fixture.pair.key(fixture.mkey) };
    let remote = |offset| Remote { address: target.address + offset, rkey: target.key };
    fixture.pair.near.request(1).signaled().rdma_write(remote(0), &[sge]).map_err(text)?;
    let mkey = fixture.pair.mkeys.get_mut(fixture.mkey).ok_or("no such mkey")?;
    fixture.pair.near.request(2).invalidate_mkey(mkey).map_err(text)?;
    fixture.pair.near.request(3).rdma_write(remote(64), &[sge]).map_err(text)?;
    let done = syndromes(&fixture.pair.complete_near(2)?);
    ensure!(matches!(done[..], [(1, None), (3, Some(_))]), "completions and their syndromes: {done:?}");
    same(&fixture.pair.bytes(&target), &[&data[..], &[0; 64]].concat())
}

/// SENDs a message with invalidation of `key` from the far queue pair. Returns the outcomes of the near queue
/// pair, which receives the message, and of the far one.
pub(super) fn send_invalidate(fixture: &mut MkeyFixture<'_>, key: Key) -> Result<(Outcome, Outcome), String> {
    let (note, inbox) = (fixture.pair.region(&[7; 8]), fixture.pair.region(&[0; 8]));
    fixture.pair.receive(1, &[inbox.sge()])?;
    fixture.pair.far.request(2).signaled().send_invalidate(key, &[note.sge()]).map_err(text)?;
    fixture.pair.run_far()?;
    let (near, far) = (fixture.pair.wait_near(1)?, fixture.pair.wait_far(1)?);
    match (near.as_slice(), far.as_slice()) {
        ([near], [far]) => Ok((near.outcome, far.outcome)),
        other => Err(format!("completions {other:?}")),
    }
}

/// The peer invalidates a key by SEND with invalidation. The receiver's completion names the key, which then
/// refuses all transfers.
fn r012_the_peer_invalidates(board: &mut dyn Board) -> Verdict {
    let mut fixture =
        MkeyFixture::plain(board, MkeySpec { remote_invalidate: true, ..PLAIN }, &pattern(64, 1))?;
    let key = fixture.pair.key(fixture.mkey);
    let (near, far) = send_invalidate(&mut fixture, key)?;
    ensure_eq!(near, Outcome::Received { message: Message::SendInvalidate(key), bytes: 8 }, "receiver");
    ensure!(matches!(far, Outcome::Sent { .. }), "sender: {far:?}");
    fixture.pair.mkeys.get_mut(fixture.mkey).ok_or("no such mkey")?.forget();
    refuses_all(&mut fixture, 64)?;
    let new = pattern(64, 2);
    fixture.install(&new, None, None)?;
    fixture.out(Tx::PeerRead, 0, &new)
}

/// The peer cannot invalidate an mkey that was created without this permission: its key stays usable, and
/// sender and receiver get an error.
fn r012_the_peer_may_not_invalidate_every_key(board: &mut dyn Board) -> Verdict {
    let data = pattern(64, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    let key = fixture.pair.key(fixture.mkey);
    refuses_invalidation(&mut fixture, key)?;
    fixture.out_each(0, &data)
}

/// Checks that a SEND with invalidation of this key fails on both sides, and reconnects them.
///
/// Assumption: the syndromes are remote access at the sender, and local access at the receiver.
pub(super) fn refuses_invalidation(fixture: &mut MkeyFixture<'_>, key: Key) -> Verdict {
    let (near, far) = send_invalidate(fixture, key)?;
    for (side, outcome, expected) in
        [("sender", far, Syndrome::REMOTE_ACCESS), ("receiver", near, Syndrome::LOCAL_ACCESS)]
    {
        let Outcome::Failed(failure) = outcome else { return Err(format!("{side}: {outcome:?}")) };
        let what = format_args!("the {side}'s syndrome of a refused invalidation");
        assumed(fixture.pair.board, what, failure.syndrome, expected)?;
    }
    fixture.pair.reconnect();
    Ok(())
}

/// An mkey is invalidated while it has a signature error, and configured again. Later signature errors are
/// reported as before.
fn r012_signatures_work_behind_an_invalidation(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let images = expected::images(&pattern(1024, 1), Some(&signature), None);
    for round in 0..3 {
        fixture.install(&images.memory, Some(&signature), None)?;
        fixture.both_ways(&images)?;
        if round != 1 {
            let error = fixture.take_bad(Rx::PeerWrite, &flipped(&images.wire, 521, 1))?;
            reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 1, 520)
                .within(format_args!("round {round}"))?;
        }
        invalidate(&mut fixture)?;
    }
    Ok(())
}

/// The owner of an mkey chooses the low byte of its key, the tag. After the configuration with a new tag the
/// old key is refused and the new one works, with or without an invalidation in between.
fn r010_another_tag_is_another_key(board: &mut dyn Board) -> Verdict {
    let data = pattern(64, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    let old = fixture.pair.mkeys.get(fixture.mkey).cloned().ok_or("no such mkey")?;
    for tag in [0x5a, 0xff, 0x01] {
        let mkey = fixture.pair.mkeys.get_mut(fixture.mkey).ok_or("no such mkey")?;
        mkey.set_tag(tag).map_err(text)?;
        if tag == 0xff {
            invalidate(&mut fixture)?;
        }
        fixture.install(&data, None, None)?;
        ensure_eq!(fixture.pair.key(fixture.mkey).tag(), tag, "tag");
        fixture.out_each(0, &data).within(format_args!("tag {tag:#x}"))?;
        // `old`, the copy of the mkey from before the change, simulates a program that still uses the first
        // tag.
        fixture.pair.mkeys.push(old.clone());
        let stale = fixture.pair.mkeys.len() - 1;
        for way in Tx::ALL {
            refuses_tx(&mut fixture.pair, way, stale, 0, 64).within("with the old key")?;
        }
    }
    Ok(())
}

/// An mkey of a pool is used for one memory after another, each time with a new key. The device refuses the
/// keys of earlier uses, both after the mkey was put back and while it is used again.
fn r012_what_a_pool_took_back_no_peer_reaches(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let number = pair.mkey(PLAIN);
    let (mut mkeys, mut slots) = ([pair.mkeys.get(number).ok_or("no mkey")?.clone()], [PoolSlot::EMPTY; 1]);
    let mut pool = MkeyPool::new(&mut mkeys, &mut slots).map_err(text)?;
    let prepared = pair.prepare(number, &ALL_RIGHTS).map_err(text)?;
    // The keys of all earlier uses, each of which the peer knows.
    let mut known = Vec::new();
    for round in 0..3_u8 {
        let data = pattern(64, round);
        let memory = pair.region(&data);
        let (handle, mkey) = pool.take().ok_or("the pool is empty")?;
        let entries = [entry(&memory, 0..64)];
        pair.near.request(1).signaled().configure_mkey(mkey, &prepared, &entries).map_err(text)?;
        pair.near.ring_doorbell();
        pair.mkeys.push(mkey.clone());
        known.push(pair.mkeys.len() - 1);
        pair.run_device()?;
        ensure_eq!(pair.wait_near(1)?.len(), 1, "configurations");
        let [old @ .., new] = &known[..] else { return Err("no use".into()) };
        same(&pair.tx(Tx::PeerRead, *new, 0, 64)?.ok()?, &data)?;
        refuses_peers(&mut pair, old).within(format_args!("use {round}, an old key"))?;
        pool.invalidate(handle, pair.near.request(2).signaled()).map_err(text)?;
        pair.near.ring_doorbell();
        ensure_eq!(pool.available(), 0, "mkeys whose invalidation has not completed");
        pair.run_device()?;
        let completions = pair.wait_near(1)?;
        let [done] = completions.as_slice() else { return Err(format!("{completions:?}")) };
        pool.put(handle, done).map_err(text)?;
        refuses_peers(&mut pair, &known).within(format_args!("behind use {round}"))?;
        ensure!(pair.bytes(&memory) == data, "use {round}: memory has changed");
    }
    Ok(())
}

/// If the request that invalidates a key is flushed, the key stays usable. So the pool does not hand out the
/// mkey again until another invalidation, on another queue pair, has completed.
fn r012_a_flushed_invalidation_leaves_the_key_in_service(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let number = pair.mkey(PLAIN);
    let (mut mkeys, mut slots) = ([pair.mkeys.get(number).ok_or("no mkey")?.clone()], [PoolSlot::EMPTY; 1]);
    let mut pool = MkeyPool::new(&mut mkeys, &mut slots).map_err(text)?;
    let prepared = pair.prepare(number, &ALL_RIGHTS).map_err(text)?;
    let data = pattern(64, 1);
    let memory = pair.region(&data);
    let (handle, mkey) = pool.take().ok_or("the pool is empty")?;
    let entries = [entry(&memory, 0..64)];
    pair.near.request(1).signaled().configure_mkey(mkey, &prepared, &entries).map_err(text)?;
    pair.near.ring_doorbell();
    pair.mkeys.push(mkey.clone());
    let known = pair.mkeys.len() - 1;
    pair.run_device()?;
    ensure_eq!(pair.wait_near(1)?.len(), 1, "configurations");
    // The first of these requests fails, which takes the queue pair to the error state. The device then
    // flushes the second one, the invalidation.
    let nothing = Remote { address: 0, rkey: Key::from_raw(0) };
    pair.near.request(2).signaled().rdma_write(nothing, &[memory.sge()]).map_err(text)?;
    pool.invalidate(handle, pair.near.request(3).signaled()).map_err(text)?;
    let completions = pair.complete_near(2)?;
    let [_, flushed] = completions.as_slice() else { return Err(format!("{completions:?}")) };
    ensure_eq!(syndromes(&[*flushed]), [(3, Some(Syndrome::FLUSHED))], "the invalidation");
    ensure_eq!(pool.put(handle, flushed), Err(PoolError::KeyInService), "put back, flushed");
    pair.reconnect();
    same(&pair.tx(Tx::PeerRead, known, 0, 64)?.ok()?, &data)?;
    pool.invalidate(handle, pair.near.request(4).signaled()).map_err(text)?;
    let completions = pair.complete_near(1)?;
    refuses_peers(&mut pair, &[known])?;
    ensure_eq!(pool.available(), 0, "mkeys that were put back");
    let [done] = completions.as_slice() else { return Err(format!("{completions:?}")) };
    pool.put(handle, done).map_err(text)
}

/// Checks that the peer can neither read nor write through these mkeys.
fn refuses_peers(pair: &mut QpPairFixture<'_>, mkeys: &[usize]) -> Verdict {
    for &mkey in mkeys {
        refuses_tx(pair, Tx::PeerRead, mkey, 0, 64)?;
        refuses_rx(pair, Rx::PeerWrite, mkey, 0, &pattern(64, 0x44))?;
    }
    Ok(())
}

/// An mkey, with signature capability or without, refuses all transfers before its first configuration.
fn r032_a_key_without_a_configuration(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    refuses_all(&mut fixture, 1)?;
    if fixture.pair.board.capabilities().signature {
        fixture.mkey = fixture.pair.mkey(SIGNATURE);
        refuses_all(&mut fixture, 1)?;
    }
    Ok(())
}

/// A key whose index belongs to no mkey refuses all transfers.
fn r048_a_key_that_nobody_made(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::plain(board, PLAIN, &pattern(64, 1))?;
    let attributes = MkeyAttributes::plain(Key::from_raw(0xffff_fe00), 8);
    fixture.pair.mkeys.push(Mkey::new(attributes));
    fixture.mkey = fixture.pair.mkeys.len() - 1;
    refuses_all(&mut fixture, 64)
}
