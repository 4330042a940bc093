//! Memory windows of type 2: keys that a queue pair binds for its peer and invalidates later.

use super::fixture::{PLAIN, part, pattern, same};
use super::scenario::{Scenario, scenario};
use crate::board::{Board, MkeySpec};
use crate::qp_pair::{QpPairFixture, Region, Verdict, text};
use crate::{ensure, ensure_eq};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{Access, KlmEntry, MemoryWindow};
use mlx5_mkey::queue::{Message, Outcome, PoolSlot, RequestKind, WindowPool, WorkCompletion};
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wqe::Remote;

pub(super) const ALL: &[Scenario] = &[
    scenario!(m81_a_window_gives_rights_until_it_is_revoked, NOTHING, ["M81"]),
    scenario!(m81_windows_of_a_pool_never_answer_to_an_old_key, NOTHING, ["M81"]),
    scenario!(m81_the_peer_invalidates_a_window, NOTHING, ["M81"]),
];

/// A memory window is an mkey with these properties.
const WINDOW: MkeySpec = MkeySpec { entries: 4, remote_invalidate: true, ..PLAIN };

fn window(pair: &mut QpPairFixture<'_>) -> MemoryWindow {
    MemoryWindow::new(pair.board.create_mkey(WINDOW).key())
}

/// Returns a region whose own key gives no right to a peer.
fn private(pair: &mut QpPairFixture<'_>, bytes: &[u8]) -> Region {
    let address = pair.board.alloc(bytes.len());
    pair.board.write(address, bytes);
    let key = pair.board.register(address, bytes.len(), Access::LOCAL_WRITE);
    Region { address, length: bytes.len(), key }
}

/// Binds a window by the near queue pair, and waits for the completion.
fn bind(
    pair: &mut QpPairFixture<'_>,
    window: &mut MemoryWindow,
    range: KlmEntry,
    access: Access,
    start: u64,
) -> Verdict {
    pair.near.request(1).signaled().bind_window(window, range, access, start).map_err(text)?;
    pair.near.ring_doorbell();
    done(pair, RequestKind::BindWindow).map(drop)
}

/// Waits for the completion of the near end, which must be the only one and a success of this kind.
fn done(pair: &mut QpPairFixture<'_>, kind: RequestKind) -> Result<WorkCompletion, String> {
    pair.run_device()?;
    let completions = pair.wait_near(1)?;
    let [completion] = completions.as_slice() else { return Err(format!("{completions:?}")) };
    ensure_eq!(completion.outcome, Outcome::Sent { kind, bytes: 0 }, "completion");
    Ok(*completion)
}

/// The operation that the peer tries with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Read,
    Write,
}

/// Lets the peer read or write `length` bytes by a key, and checks that the operation succeeds exactly if
/// `is_allowed`. After a refusal, reconnects both ends.
fn ask(
    pair: &mut QpPairFixture<'_>,
    ask: Ask,
    (address, rkey): (u64, Key),
    length: usize,
    is_allowed: bool,
) -> Result<Vec<u8>, String> {
    let bytes = pattern(length, if ask == Ask::Write { 99 } else { 98 });
    let buffer = pair.region(&bytes);
    let remote = Remote { address, rkey };
    let request = pair.far.request(2).signaled();
    match ask {
        Ask::Read => request.rdma_read(remote, &[buffer.sge()]),
        Ask::Write => request.rdma_write(remote, &[buffer.sge()]),
    }
    .map_err(text)?;
    let outcomes: Vec<_> = pair.complete_far(1)?.iter().map(|completion| completion.outcome).collect();
    match outcomes.as_slice() {
        [Outcome::Sent { .. }] if is_allowed => {}
        [Outcome::Failed(failure)] if !is_allowed && failure.syndrome == Syndrome::REMOTE_ACCESS => {
            pair.reconnect();
        }
        other => return Err(format!("{ask:?} of {length} at {address:#x} by {rkey:?}: {other:?}")),
    }
    Ok(pair.bytes(&buffer))
}

/// A window gives the peer exactly the bound rights until it is invalidated. The window's space begins at the
/// address of the bound range, or at 0.
fn m81_a_window_gives_rights_until_it_is_revoked(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(300, 1);
    let region = private(&mut pair, &data);
    ask(&mut pair, Ask::Read, (region.address, region.key), 8, false)?;
    let range = KlmEntry { address: region.address + 100, length: 100, key: region.key };
    for start in [range.address, 0] {
        for (access, [may_read, may_write]) in [
            (Access::REMOTE_READ, [true, false]),
            (Access::REMOTE_WRITE, [false, true]),
            (Access::REMOTE_READ | Access::REMOTE_WRITE, [true, true]),
        ] {
            pair.board.write(region.address, &data);
            let mut window = window(&mut pair);
            let unbound = window.key();
            bind(&mut pair, &mut window, range, access, start)?;
            let key = window.key();
            ensure!(key != unbound && key.index() == unbound.index(), "{key:?} behind {unbound:?}");
            let again = pair.near.request(1).bind_window(&mut window, range, access, start);
            ensure_eq!(again, Err(PostError::Config(ConfigError::WindowBound)), "bound twice");
            if may_write {
                let written = ask(&mut pair, Ask::Write, (start + 90, key), 10, true)?;
                let memory = [part(&data, 0..190), &written, part(&data, 200..300)].concat();
                same(&pair.bytes(&region), &memory)?;
            }
            if may_read {
                let memory = pair.bytes(&region);
                same(&ask(&mut pair, Ask::Read, (start, key), 100, true)?, part(&memory, 100..200))?;
            }
            pair.near.request(1).signaled().invalidate_window(&window).map_err(text)?;
            pair.near.ring_doorbell();
            done(&mut pair, RequestKind::LocalInvalidate)?;
            window.note_invalidated();
            let what = if may_read { Ask::Read } else { Ask::Write };
            ask(&mut pair, what, (start, key), 1, false)?;
            // An invalidated window belongs to no queue pair, so the queue pair after the reconnection can
            // bind it. `ask` below reconnects once more, and the next queue pair cannot invalidate the
            // window.
            bind(&mut pair, &mut window, range, access, start)?;
            let owner = window.queue_pair();
            ask(&mut pair, what, (start, key), 1, false)?;
            let refused = pair.near.request(1).invalidate_window(&window);
            let of_other = owner.map(|qpn| ConfigError::WindowOfOtherQueuePair { qpn: qpn.get() });
            ensure_eq!(refused.err(), of_other.map(PostError::Config), "revoked by another queue pair");
            for (what, may) in [(Ask::Read, may_read), (Ask::Write, may_write)] {
                let mut other = self::window(&mut pair);
                bind(&mut pair, &mut other, range, access, start)?;
                ask(&mut pair, what, (start, other.key()), 1, may)?;
                if may {
                    ask(&mut pair, what, (start + 100, other.key()), 1, false)?;
                }
            }
        }
    }
    Ok(())
}

/// A pool's windows are bound, used by the peer for a read, and invalidated, six times. Each use has another
/// key, and the device refuses keys of earlier uses.
fn m81_windows_of_a_pool_never_answer_to_an_old_key(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(64, 1);
    let region = private(&mut pair, &data);
    let range = KlmEntry { address: region.address, length: 64, key: region.key };
    let (mut windows, mut slots) = ([window(&mut pair), window(&mut pair)], [PoolSlot::EMPTY; 2]);
    let mut pool = WindowPool::new(&mut windows, &mut slots).map_err(text)?;
    let mut keys: Vec<Key> = Vec::new();
    for _ in 0..6 {
        let (handle, window) = pool.take().ok_or("no window is free")?;
        bind(&mut pair, window, range, Access::REMOTE_READ, 0)?;
        let key = window.key();
        ensure!(!keys.contains(&key), "{key:?} again");
        same(&ask(&mut pair, Ask::Read, (0, key), 64, true)?, &data)?;
        keys.push(key);
        pool.invalidate(handle, pair.near.request(1).signaled()).map_err(text)?;
        pair.near.ring_doorbell();
        ensure_eq!(pool.available(), 1, "windows whose revocation has not completed");
        let completion = done(&mut pair, RequestKind::LocalInvalidate)?;
        pool.put(handle, &completion).map_err(text)?;
    }
    for key in keys {
        ask(&mut pair, Ask::Read, (0, key), 1, false)?;
    }
    ensure_eq!(pool.available(), 2, "windows to take");
    Ok(())
}

/// The peer invalidates a window by SEND with invalidation. Its owner binds it again.
fn m81_the_peer_invalidates_a_window(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(64, 1);
    let region = private(&mut pair, &data);
    let range = KlmEntry { address: region.address, length: 64, key: region.key };
    let mut window = window(&mut pair);
    bind(&mut pair, &mut window, range, Access::REMOTE_READ, 0)?;
    let key = window.key();
    let inbox = pair.region(&[0; 8]);
    pair.receive(1, &[inbox.sge()])?;
    let message = inbox.sge();
    pair.far.request(2).signaled().send_invalidate(key, &[message]).map_err(text)?;
    pair.run_far()?;
    let received: Vec<_> = pair.wait_near(1)?.iter().map(|completion| completion.outcome).collect();
    ensure_eq!(received, [Outcome::Received { message: Message::SendInvalidate(key), bytes: 8 }], "receiver");
    ensure_eq!(pair.wait_far(1)?.len(), 1, "completions of the sender");
    window.note_invalidated();
    bind(&mut pair, &mut window, range, Access::REMOTE_READ, 0)?;
    same(&ask(&mut pair, Ask::Read, (0, window.key()), 64, true)?, &data)?;
    ask(&mut pair, Ask::Read, (0, key), 1, false).map(drop)
}
