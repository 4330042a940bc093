//! Tests of memory windows and of their pools.

use super::*;
use crate::mkey::MemoryWindow;
use crate::mkey::error::PoolError;
use crate::queue::{
    Failure, Message, Outcome, PoolSlot, PooledWindow, RequestNumber, WindowPool, WorkCompletion,
};
use crate::wire::cqe::Syndrome;

/// The number of the queue pair whose queue posts the requests.
const QPN: Qpn = Qpn::from_low_bits(0x77);

const RANGE: KlmEntry =
    KlmEntry { address: 0x1122_3344_5566_7788, length: 0x7fff_0001, key: Key::from_raw(0x8765_43ab) };

/// The bytes are those of rdma-core's `set_bind_wr` for a window of type 2.
#[test]
fn m81_windows_are_bound_as_rdma_core_does() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut window = MemoryWindow::new(Key::from_raw(0x1234_56ff));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    queue.request(1).signaled().bind_window(&mut window, RANGE, access, RANGE.address).unwrap();
    assert_eq!((window.key(), window.is_bound()), (Key::from_raw(0x1234_5600), true));
    let mut golden = [0; 3 * 64];
    golden[..16].copy_from_slice(&[0, 0, 0, 0x25, 0, 0, 0x77, 12, 0, 0, 0, 8, 0x12, 0x34, 0x56, 0xff]);
    // The UMR control segment has the flags inline, translation offset and check free, a size of four
    // octowords, and a mask that selects free, QPN, MKEY, rights, start address and length.
    golden[16..24].copy_from_slice(&[0xb0, 0, 0, 0, 0, 4, 0, 0]);
    golden[24..32].copy_from_slice(&[0, 0, 0, 0, 0x20, 0x3c, 0x60, 0x41]);
    golden[64..72].copy_from_slice(&[0, 0, 0x28, 0, 0, 0, 0x77, 0]);
    golden[80..88].copy_from_slice(&RANGE.address.to_be_bytes());
    golden[88..96].copy_from_slice(&[0, 0, 0, 0, 0x7f, 0xff, 0, 1]);
    golden[128..136].copy_from_slice(&[0x7f, 0xff, 0, 1, 0x87, 0x65, 0x43, 0xab]);
    golden[136..144].copy_from_slice(&RANGE.address.to_be_bytes());
    let bytes: Vec<u8> = (0..3).flat_map(|block| queue.block(block).0).collect();
    assert_eq!(bytes, golden);
    queue.request(2).invalidate_window(&window).unwrap();
    assert!(window.is_bound(), "until that is executed");
    assert_eq!(queue.block(3).0[12..16], [0x12, 0x34, 0x56, 0]);
    assert_eq!((queue.producer(), queue.outstanding()), (5, 2));
}

#[test]
fn m81_windows_that_cannot_be_bound_are_refused() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 4], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut window = MemoryWindow::new(KEY);
    for length in [0, (1 << 31) + 1] {
        let range = KlmEntry { length, ..RANGE };
        let refused = queue.request(1).bind_window(&mut window, range, Access::NONE, 0);
        assert_eq!(refused, Err(ConfigError::EntryLength { index: 0, length }.into()));
    }
    let most = KlmEntry { length: 1 << 31, ..RANGE };
    let (last, behind) = (u64::MAX - (1 << 31) + 1, u64::MAX - (1 << 31) + 2);
    let refused = queue.request(1).bind_window(&mut window, most, Access::NONE, behind);
    assert_eq!(refused, Err(ConfigError::SpaceBehindEnd.into()));
    queue.request(1).nop().unwrap();
    queue.request(1).nop().unwrap();
    let full = Err(PostError::SendRingFull { needed: 3, free: 2 });
    assert_eq!(queue.request(1).bind_window(&mut window, RANGE, Access::NONE, 0), full);
    assert_eq!(queue.request(1).bind_window(&mut window, most, Access::NONE, last), full);
    assert_eq!(window, MemoryWindow::new(KEY));
    window.note_bound(KEY, QPN, 0);
    let bound = Err(ConfigError::WindowBound.into());
    assert_eq!(queue.request(1).bind_window(&mut window, RANGE, Access::NONE, 0), bound);
    assert_eq!(queue.producer(), 2);
}

#[test]
fn m81_the_queue_pair_that_has_bound_a_window_revokes_it() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 4], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut window = MemoryWindow::new(KEY);
    assert_eq!(queue.request(1).invalidate_window(&window), Err(ConfigError::WindowNotBound.into()));
    window.note_bound(KEY, Qpn::from_low_bits(0x78), 0);
    let other = Err(ConfigError::WindowOfOtherQueuePair { qpn: 0x78 }.into());
    assert_eq!(queue.request(1).invalidate_window(&window), other);
    // A queue pair on another card has the same number. Only the queue pair that bound the window can
    // invalidate it.
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut card = super::queue(&mut ring, &record, 0);
    let mut window = MemoryWindow::new(KEY);
    card.request(1).bind_window(&mut window, RANGE, Access::REMOTE_READ, 0).unwrap();
    let other = Err(ConfigError::WindowOfOtherQueuePair { qpn: QPN.get() }.into());
    assert_eq!(queue.request(1).invalidate_window(&window), other);
    assert_eq!(queue.producer(), 0, "nothing is posted");
    assert_eq!(card.request(1).invalidate_window(&window), Ok(()));
}

/// Returns a pool of these windows.
fn pool_of<const N: usize>(windows: [MemoryWindow; N]) -> WindowPool<'static> {
    WindowPool::new(Vec::from(windows).leak(), vec![PoolSlot::EMPTY; N].leak()).unwrap()
}

/// Returns the successful completion of the request with this number.
fn sent(number: RequestNumber) -> WorkCompletion {
    let outcome = Outcome::Sent { kind: RequestKind::LocalInvalidate, bytes: 0 };
    WorkCompletion { id: 1, qpn: QPN, number, outcome }
}

#[test]
fn m81_a_pool_takes_unbound_windows_in_turn() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let keys = [0x100, 0x200, 0x300].map(Key::from_raw);
    let mut pool = pool_of([MemoryWindow::new(keys[0]), MemoryWindow::new(keys[1])]);
    let too_many = WindowPool::new(&mut keys.map(MemoryWindow::new), &mut [PoolSlot::EMPTY; 2]).map(drop);
    assert_eq!(
        too_many,
        Err(QueueError::TooFewSlots { what: "slots of a pool", needed: 3, slots: 2 }),
        "none is dropped"
    );
    let mut bound = MemoryWindow::new(KEY);
    bound.note_bound(KEY, QPN, 0);
    let refused = WindowPool::new(&mut [bound], &mut [PoolSlot::EMPTY; 1]).map(drop);
    assert_eq!(refused, Err(QueueError::WindowBound { key: KEY }));
    assert_eq!(pool.insert(MemoryWindow::new(KEY)), Err(MemoryWindow::new(KEY)), "it is full");
    let (first, window) = pool.take().unwrap();
    assert_eq!(window.key(), keys[0]);
    let bind = queue.request(1).number();
    queue.request(1).bind_window(window, RANGE, Access::REMOTE_READ, 0).unwrap();
    let (key, revoke) = (window.key(), queue.request(1).number());
    assert_eq!((first.position(), pool.available()), (0, 1));
    assert_eq!(pool.put_unused(first), Err(PoolError::KeyInService));
    pool.invalidate(first, queue.request(2)).unwrap();
    assert_eq!((pool.available(), pool.get_mut(first).map(|window| window.is_bound())), (1, Some(true)));
    assert_eq!(pool.put(first, &sent(bind)), Err(PoolError::KeyInService), "that of another request");
    let failure = Failure { syndrome: Syndrome::FLUSHED, vendor: 0, hardware: 0, hardware_type: 0 };
    let flushed = WorkCompletion { outcome: Outcome::Failed(failure), ..sent(revoke) };
    assert_eq!(pool.put(first, &flushed), Err(PoolError::KeyInService), "the key is in service");
    let last = queue.request(1).number();
    pool.invalidate(first, queue.request(3)).unwrap();
    assert_eq!(pool.put(first, &sent(revoke)), Err(PoolError::KeyInService), "the request that failed");
    assert_eq!(pool.put(first, &sent(last)), Ok(()));
    assert_eq!(pool.put(first, &sent(last)), Err(PoolError::NotInUse));
    let (second, window) = pool.take().unwrap();
    assert_eq!((window.key(), window.is_bound()), (keys[1], false));
    let (again, window) = pool.take().unwrap();
    assert_eq!((window.key(), window.is_bound()), (key, false));
    assert!(pool.take().is_none() && again != first && pool.in_use().eq([again, second]));
    // If the ring has no room, the window stays as before.
    while queue.request(4).nop().is_ok() {}
    let own = queue.request(4).state.ring.queue;
    window_of(&mut pool, again).note_bound(KEY, QPN, own);
    let refused = pool.invalidate(again, queue.request(4));
    assert!(matches!(refused, Err(PostError::SendRingFull { .. })));
    assert_eq!(pool.put(again, &sent(last)), Err(PoolError::KeyInService));
    // The peer reports by a message that it has invalidated a key. The key of another window proves nothing
    // about this window.
    let received = |key| {
        let message = Message::SendInvalidate(key);
        WorkCompletion { outcome: Outcome::Received { message, bytes: 0 }, ..sent(RequestNumber::NONE) }
    };
    assert_eq!(pool.put(again, &received(keys[1])), Err(PoolError::KeyInService));
    assert_eq!(pool.put(again, &received(KEY)), Ok(()));
    assert_eq!(pool.put_unused(second), Ok(()));
    assert_eq!(pool.take().map(|(_, window)| window.is_bound()), Some(false));
}

fn window_of<'p>(pool: &'p mut WindowPool<'_>, handle: PooledWindow) -> &'p mut MemoryWindow {
    pool.get_mut(handle).unwrap()
}

#[test]
fn m81_windows_are_of_one_pool_until_they_are_removed() {
    let mut pools = [(); 2].map(|()| pool_of([MemoryWindow::new(KEY)]));
    let [here, there] = pools.each_mut().map(|pool| pool.take().unwrap().0);
    let [_, pool] = &mut pools;
    assert!(pool.get_mut(here).is_none());
    for refused in
        [pool.put_unused(here), pool.put(here, &sent(RequestNumber::NONE)), pool.remove(here).map(drop)]
    {
        assert_eq!(refused, Err(PoolError::OtherPool));
    }
    let (mut ring, record) = (vec![Wqebb::ZERO; 4], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    assert_eq!(pool.invalidate(here, queue.request(1)), Err(PoolError::OtherPool.into()));
    // The queue pair of the window was destroyed.
    window_of(pool, there).note_bound(KEY, Qpn::from_low_bits(0x78), 0);
    let lost = pool.remove(there).unwrap();
    assert_eq!(
        pool.insert(lost),
        Err({
            let mut window = MemoryWindow::new(KEY);
            window.note_bound(KEY, Qpn::from_low_bits(0x78), 0);
            window
        })
    );
    assert_eq!(pool.put_unused(there), Err(PoolError::NotInUse));
    assert_eq!(pool.insert(MemoryWindow::new(KEY)), Ok(0), "in its place");
    assert_eq!(pool.available(), 1);
}
