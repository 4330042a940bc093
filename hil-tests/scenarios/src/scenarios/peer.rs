//! Operations that the peer begins: operations that the queue pair denies, receives and their byte counts,
//! solicited events, atomics, invalidations.

use super::fixture::{DIF, MkeyFixture, PLAIN, domain, entry, fails, part, pattern, same};
use super::keys::{refuses_invalidation, send_invalidate};
use super::scenario::{Scenario, scenario};
use crate::assumption::assumed;
use crate::board::{Board, EndSpec, MkeySpec, QpEvent};
use crate::qp_pair::{QpPairFixture, Rx, Tx, Verdict, Within, text};
use crate::{ensure, ensure_eq};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::mkey::{Access, BlockSignature, MkeyConfig, Signature};
use mlx5_mkey::queue::{Failure, Message, Outcome};
use mlx5_mkey::types::{Key, Seed};
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wqe::{Remote, Sge};

pub(super) const ALL: &[Scenario] = &[
    scenario!(r030_what_a_queue_pair_denies_no_key_gives, NOTHING, ["R30"]),
    scenario!(r016_a_receive_counts_bytes_of_the_wire, SIGNATURE, ["R16"]),
    scenario!(r016_who_asks_for_an_event_is_heard, NOTHING, ["R16"]),
    scenario!(r016_atomics_need_an_aligned_address, NOTHING, ["R16"]),
    scenario!(r012_the_peer_needs_the_tag_to_invalidate, NOTHING, ["R12"]),
];

/// Checks `failed`, the failure of a peer's operation that the near queue pair denies: the peer's completion
/// reports an invalid request, and so does an event of the near queue pair. Reconnects both ends.
///
/// Assumption: the device reports an operation that the queue pair does not allow as an invalid request, not
/// as an access error.
fn is_denied(fixture: &mut MkeyFixture<'_>, what: &str, failed: Option<Failure>) -> Verdict {
    let Some(failure) = failed else { return Err(format!("{what} went through")) };
    let what = format_args!("syndrome of {what} that the queue pair denies");
    if assumed(fixture.pair.board, what, failure.syndrome, Syndrome::REMOTE_INVALID_REQUEST)? {
        let event = fixture.pair.board.event(&fixture.pair.near);
        ensure_eq!(event, Some(QpEvent::InvalidRequest), "event of the responder");
    }
    fixture.pair.reconnect();
    Ok(())
}

/// An operation of the peer that its key allows still fails if the queue pair denies the operation.
fn r030_what_a_queue_pair_denies_no_key_gives(board: &mut dyn Board) -> Verdict {
    const BYTES: usize = 64;
    let (data, new) = (words(), pattern(BYTES, 2));
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    for denied in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        let spec = EndSpec { denied, ..EndSpec::default() };
        fixture.pair.reconnect_as(spec);
        if denied == Access::REMOTE_READ {
            let moved = fixture.pair.tx(Tx::PeerRead, fixture.mkey, 0, BYTES)?;
            ensure_eq!(moved.wire, [0xee; BYTES], "the buffer of a reader who is denied");
            is_denied(&mut fixture, "an RDMA READ", moved.requester)?;
        } else {
            fixture.out(Tx::PeerRead, 0, &data)?;
        }
        fixture.pair.reconnect_as(spec);
        if denied == Access::REMOTE_WRITE {
            let moved = fixture.pair.rx(Rx::PeerWrite, fixture.mkey, 0, &new)?;
            fixture.holds(&data)?;
            is_denied(&mut fixture, "an RDMA WRITE", moved.requester)?;
        } else {
            fixture.store(Rx::PeerWrite, &new, &new)?;
            fixture.write(&data);
        }
        fixture.pair.reconnect_as(spec);
        let (failed, old) = add(&mut fixture, 0)?;
        if denied == Access::REMOTE_ATOMIC {
            ensure_eq!(old, [0xee; 8], "the old value for who is denied");
            fixture.holds(&data)?;
            is_denied(&mut fixture, "an atomic", failed)?;
        } else {
            ensure_eq!(failed, None, "an atomic, where {denied:?} is denied");
            same(&old, part(&data, 0..8))?;
            fixture.write(&data);
        }
    }
    Ok(())
}

/// Returns the bytes of eight 64-bit words that have the same value in both byte orders.
fn words() -> Vec<u8> {
    (1..=8).flat_map(|word| [word; 8]).collect()
}

/// Lets the peer perform a fetch-and-add of one on eight bytes of the mkey. Returns the peer's failure, if
/// any, and the old value that it received.
fn add(fixture: &mut MkeyFixture<'_>, address: u64) -> Result<(Option<Failure>, Vec<u8>), String> {
    let old = fixture.pair.region(&[0xee; 8]);
    let remote = Remote { address, rkey: fixture.pair.key(fixture.mkey) };
    fixture.pair.far.request(5).signaled().fetch_add(remote, 1, old.place()).map_err(text)?;
    let failed = match fixture.pair.complete_far(1)?.as_slice() {
        [one] => match one.outcome {
            Outcome::Failed(failure) => Some(failure),
            _ => None,
        },
        other => return Err(format!("completions {other:?}")),
    };
    Ok((failed, fixture.pair.bytes(&old)))
}

/// If an mkey has a signature, a message has different lengths in memory and on the wire. The length of the
/// message is the length on the wire.
///
/// Assumption: the completion of the receive reports this length.
fn r016_a_receive_counts_bytes_of_the_wire(board: &mut dyn Board) -> Verdict {
    let own = domain(Signature::T10Dif(DIF));
    let other = domain(Signature::Crc32c(Seed::Ones));
    let data = pattern(1024, 1);
    for (name, signature) in [
        ("wire", BlockSignature::wire(own)),
        ("memory", BlockSignature::memory(own)),
        ("both", BlockSignature::both(own, other)),
    ] {
        let (mut fixture, images) = MkeyFixture::signed(board, &data, &signature)?;
        let far = fixture.pair.region(&images.wire);
        let length = images.wire.len() as u32;
        let inside = Sge { address: 0, length, lkey: fixture.pair.key(fixture.mkey) };
        let outside = Sge { address: far.address, length, lkey: far.key };
        fixture.pair.receive(1, &[inside])?;
        fixture.pair.far.request(2).signaled().send(&[outside]).map_err(text)?;
        fixture.pair.run_far()?;
        let received = fixture.pair.wait_near(1)?;
        let Some(Outcome::Received { message: Message::Send, bytes }) =
            received.first().map(|one| one.outcome)
        else {
            return Err(format!("{name}: completions {received:?}"));
        };
        let what = format_args!("bytes of a receive with a signature in {name}");
        assumed(fixture.pair.board, what, bytes, length)?;
        ensure_eq!(fixture.pair.wait_far(1)?.len(), 1, "{name}: completions of the sender");
        fixture.holds(&images.memory).within(name)?;
    }
    Ok(())
}

/// The completion entry of a receive has the solicited bit exactly if the sender asked for a solicited event.
/// A completion queue can be armed for solicited completions alone.
fn r016_who_asks_for_an_event_is_heard(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let region = pair.region(&[7; 8]);
    let sge = region.sge();
    let remote = region.remote();
    for solicited in [true, false] {
        for write in [false, true] {
            pair.reconnect();
            pair.receive(1, &[sge])?;
            let request = pair.far.request(2).signaled();
            let request = if solicited { request.solicited() } else { request };
            let posted = if write { request.rdma_write_imm(remote, 3, &[sge]) } else { request.send(&[sge]) };
            posted.map_err(text)?;
            pair.run_far()?;
            let told = pair.wait_entry()?.op_own_bits().solicited();
            ensure_eq!(told, solicited, "whether the entry is solicited (RDMA WRITE: {write})");
            ensure_eq!(pair.wait_far(1)?.len(), 1, "completions of the sender");
        }
    }
    Ok(())
}

/// An atomic operation fails if its address is no multiple of eight (InfiniBand 9.4.5 demands alignment).
///
/// Assumption: the address in the mkey's space has to be aligned, not the address in memory. The syndrome is
/// an assumption too.
fn r016_atomics_need_an_aligned_address(board: &mut dyn Board) -> Verdict {
    let data = words();
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    let entries = [entry(&fixture.memory, 0..64)];
    fixture.change(&MkeyConfig::UNCHANGED, &entries)?;
    for address in [1, 4, 7, 12] {
        let (failed, old) = add(&mut fixture, address)?;
        let syndrome = failed.map(|failure| failure.syndrome);
        let what = format_args!("an atomic at {address}");
        if assumed(fixture.pair.board, what, syndrome, Some(Syndrome::REMOTE_INVALID_REQUEST))? {
            fixture.holds(&data).within(format_args!("atomic at {address}"))?;
            ensure_eq!(old, [0xee; 8], "old value at {address}");
        }
        fixture.write(&data);
        fixture.pair.reconnect();
    }
    let (failed, old) = add(&mut fixture, 8)?;
    ensure!(failed.is_none(), "an atomic at 8: {failed:?}");
    same(&old, part(&data, 8..16))
}

/// The peer cannot invalidate a key by its index with a wrong tag.
fn r012_the_peer_needs_the_tag_to_invalidate(board: &mut dyn Board) -> Verdict {
    let data = pattern(64, 1);
    let mut fixture = MkeyFixture::plain(board, MkeySpec { remote_invalidate: true, ..PLAIN }, &data)?;
    let key = fixture.pair.key(fixture.mkey);
    for tag in [key.tag() ^ 1, key.tag() ^ 0x80, key.tag().wrapping_add(3)] {
        refuses_invalidation(&mut fixture, Key::new(key.index(), tag))?;
        fixture.out_each(0, &data).within(format_args!("behind tag {tag:#x}"))?;
    }
    let (_, far) = send_invalidate(&mut fixture, key)?;
    ensure!(matches!(far, Outcome::Sent { .. }), "with the right tag: {far:?}");
    let moved = fixture.pair.tx(Tx::PeerRead, fixture.mkey, 0, 64)?;
    fails("behind an invalidation", &moved, Some(Syndrome::REMOTE_ACCESS), None)
}
