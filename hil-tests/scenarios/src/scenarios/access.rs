//! Access rights of an mkey: the operations that each flag allows, and the side (owner or peer) that may
//! perform them.

use super::fixture::{MkeyFixture, PLAIN, fails, pattern, refuses_rx, rx_refusal, tx_refusal};
use super::scenario::{Scenario, scenario};
use crate::board::{Board, QpEvent};
use crate::qp_pair::{Rx, Tx, Verdict, Within, syndromes, text};
use crate::{ensure, ensure_eq};
use alloc::vec::Vec;
use mlx5_mkey::mkey::{Access, Layout, MkeyConfig};
use mlx5_mkey::queue::{Failure, Outcome};
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wqe::Remote;

pub(super) const ALL: &[Scenario] = &[
    scenario!(r028_write_replaces_read, NOTHING, ["R27", "R28", "R30"]),
    scenario!(r029_no_flags_leave_reading_by_the_owner, NOTHING, ["R29", "R31"]),
    scenario!(r030_refusal_is_told_to_both_sides, NOTHING, ["R30"]),
    scenario!(r031_truth_table_of_rights, NOTHING, ["R31", "R29", "R30", "R16"]),
];

const BYTES: usize = 96;

fn grant(fixture: &mut MkeyFixture<'_>, access: Access) -> Verdict {
    fixture.change(&MkeyConfig { access: Some(access), ..MkeyConfig::UNCHANGED }, Layout::Unchanged)
}

/// The man page's example: one configuration grants remote READ, a second remote WRITE. Only WRITE remains.
fn r028_write_replaces_read(board: &mut dyn Board) -> Verdict {
    let data = pattern(BYTES, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    grant(&mut fixture, Access::REMOTE_READ)?;
    fixture.out(Tx::PeerRead, 0, &data)?;
    grant(&mut fixture, Access::REMOTE_WRITE)?;
    let other = pattern(BYTES, 2);
    fixture.store(Rx::PeerWrite, &other, &other)?;
    let moved = fixture.pair.tx(Tx::PeerRead, fixture.mkey, 0, BYTES)?;
    fails("RDMA READ after it was taken away", &moved, Some(Syndrome::REMOTE_ACCESS), None)?;
    ensure_eq!(moved.wire, [0xee; BYTES], "the refused reader's buffer");
    Ok(())
}

/// An mkey without any access flag can be read only by its owner. No request can remove this right.
fn r029_no_flags_leave_reading_by_the_owner(board: &mut dyn Board) -> Verdict {
    let data = pattern(BYTES, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    grant(&mut fixture, Access::NONE)?;
    fixture.out(Tx::Send, 0, &data)?;
    fixture.out(Tx::Write, 0, &data)?;
    for way in Rx::ALL {
        refuses_rx(&mut fixture.pair, way, fixture.mkey, 0, &[0x11; BYTES])?;
        fixture.holds(&data)?;
    }
    Ok(())
}

/// A peer's RDMA READ without the right to it fails at the peer. At the responder, its posted receive request
/// fails as well, and an event reports the violation.
fn r030_refusal_is_told_to_both_sides(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::plain(board, PLAIN, &pattern(BYTES, 1))?;
    grant(&mut fixture, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let buffer = fixture.pair.region(&[0; BYTES]);
    fixture.pair.receive(77, &[buffer.sge()])?;
    let remote = Remote { address: 0, rkey: fixture.pair.key(fixture.mkey) };
    let request = fixture.pair.far.request(78).signaled().rdma_read(remote, &[buffer.sge()]);
    request.map_err(text)?;
    for (side, id, expected, found) in [
        ("requester", 78, Syndrome::REMOTE_ACCESS, fixture.pair.complete_far(1)?),
        ("responder", 77, Syndrome::LOCAL_ACCESS, fixture.pair.wait_near(1)?),
    ] {
        ensure_eq!(syndromes(&found), [(id, Some(expected))], "{side}");
    }
    ensure_eq!(
        fixture.pair.board.event(&fixture.pair.near),
        Some(QpEvent::AccessViolation),
        "event of the responder"
    );
    ensure_eq!(fixture.pair.board.event(&fixture.pair.far), None, "event of the requester");
    Ok(())
}

/// Tries every kind of access with each of the sixteen sets of access flags: an access succeeds if and only
/// if its flag is set.
fn r031_truth_table_of_rights(board: &mut dyn Board) -> Verdict {
    const FLAGS: [Access; 4] =
        [Access::LOCAL_WRITE, Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    let data = pattern(BYTES, 3);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    for set in 0..16u8 {
        let chosen = FLAGS.iter().enumerate().filter(|(bit, _)| set >> bit & 1 != 0);
        let access = chosen.fold(Access::NONE, |all, (_, flag)| all | *flag);
        grant(&mut fixture, access)?;
        for way in Tx::ALL {
            let allowed = way != Tx::PeerRead || access.contains(Access::REMOTE_READ);
            let moved = fixture.pair.tx(way, fixture.mkey, 0, BYTES)?;
            let (requester, receiver) = if allowed { (None, None) } else { tx_refusal(way) };
            fails(format_args!("{way:?} with flags {set:#06b}"), &moved, requester, receiver)?;
            let bytes = if allowed { data.clone() } else { vec![0xee; BYTES] };
            ensure_eq!(moved.wire, bytes, "{way:?} with flags {set:#06b}");
            if !allowed {
                fixture.pair.reconnect();
            }
        }
        for (way, flag) in [
            (Rx::Receive, Access::LOCAL_WRITE),
            (Rx::Read, Access::LOCAL_WRITE),
            (Rx::PeerWrite, Access::REMOTE_WRITE),
        ] {
            let allowed = access.contains(flag);
            let (old, new) = (pattern(BYTES, set), pattern(BYTES, set | 0x80));
            fixture.write(&old);
            let moved = fixture.pair.rx(way, fixture.mkey, 0, &new)?;
            let (requester, receiver) = if allowed { (None, None) } else { rx_refusal(way) };
            fails(format_args!("{way:?} with flags {set:#06b}"), &moved, requester, receiver)?;
            fixture.holds(if allowed { &new } else { &old })?;
            if !allowed {
                fixture.pair.reconnect();
            }
        }
        atomic(&mut fixture, access.contains(Access::REMOTE_ATOMIC))
            .within(format_args!("atomic with flags {set:#06b}"))?;
        fixture.write(&data);
    }
    Ok(())
}

/// Lets the peer perform a fetch-and-add on the eight bytes at offset 8, and checks that it succeeds exactly
/// if `allowed`. All values are the same in both byte orders, because the byte order of atomics depends on
/// the device.
fn atomic(fixture: &mut MkeyFixture<'_>, allowed: bool) -> Verdict {
    fixture.write(&[0; 16]);
    fixture.write(&replaced_word(7));
    let old = fixture.pair.region(&[0xee; 8]);
    let remote = Remote { address: 8, rkey: fixture.pair.key(fixture.mkey) };
    let request =
        fixture.pair.far.request(5).signaled().fetch_add(remote, u64::from_ne_bytes([3; 8]), old.place());
    request.map_err(text)?;
    let completions = fixture.pair.complete_far(1)?;
    fixture.pair.poll_near()?;
    let [completion] = completions.as_slice() else { return Err(format!("completions {completions:?}")) };
    match completion.outcome {
        Outcome::Sent { bytes: 8, .. } if allowed => {
            ensure_eq!(fixture.pair.bytes(&old), [7; 8], "old value");
            fixture.holds(&replaced_word(10))
        }
        Outcome::Failed(Failure { syndrome: Syndrome::REMOTE_ACCESS, .. }) => {
            ensure!(!allowed, "refused");
            fixture.holds(&replaced_word(7))?;
            fixture.pair.reconnect();
            Ok(())
        }
        outcome => Err(format!("{outcome:?}")),
    }
}

/// Returns sixteen bytes: eight zeros, then `byte` eight times.
fn replaced_word(byte: u8) -> Vec<u8> {
    [[0; 8], [byte; 8]].concat()
}
