//! Memory windows.

use super::*;
use crate::mkey::MemoryWindow;
use crate::queue::WindowPool;

const RANGE: KlmEntry =
    KlmEntry { address: 0x1122_3344_5566_7788, length: 0x7fff_0001, key: Key::from_raw(0x8765_43ab) };

/// As rdma-core's `set_bind_wr` writes a window of type 2.
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
    // Inline, translation offset, check free; four octowords; free, QPN, MKEY, rights, start address, length.
    golden[16..24].copy_from_slice(&[0xb0, 0, 0, 0, 0, 4, 0, 0]);
    golden[24..32].copy_from_slice(&[0, 0, 0, 0, 0x20, 0x3c, 0x60, 0x41]);
    golden[64..72].copy_from_slice(&[0, 0, 0x28, 0, 0, 0, 0x77, 0]);
    golden[80..88].copy_from_slice(&RANGE.address.to_be_bytes());
    golden[88..96].copy_from_slice(&[0, 0, 0, 0, 0x7f, 0xff, 0, 1]);
    golden[128..136].copy_from_slice(&[0x7f, 0xff, 0, 1, 0x87, 0x65, 0x43, 0xab]);
    golden[136..144].copy_from_slice(&RANGE.address.to_be_bytes());
    let bytes: Vec<u8> = (0..3).flat_map(|block| queue.block(block).0).collect();
    assert_eq!(bytes, golden);
    queue.request(2).invalidate_window(&mut window).unwrap();
    assert!(!window.is_bound());
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
    window.note_bound(KEY);
    let bound = Err(ConfigError::WindowBound.into());
    assert_eq!(queue.request(1).bind_window(&mut window, RANGE, Access::NONE, 0), bound);
    assert_eq!(queue.producer(), 2);
}

#[test]
fn m81_a_pool_takes_unbound_windows_in_turn() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let keys = [0x100, 0x200, 0x300].map(Key::from_raw);
    let mut pool: WindowPool<2> = WindowPool::new(keys.map(MemoryWindow::new));
    assert_eq!(pool.insert(MemoryWindow::new(KEY)), Err(MemoryWindow::new(KEY)), "it is full");
    let refused = pool.put(MemoryWindow::new(KEY), queue.request(1));
    assert_eq!(refused, Err((PostError::PoolFull, MemoryWindow::new(KEY))));
    let mut window = pool.take().unwrap();
    assert_eq!((window.key(), pool.len()), (keys[0], 1));
    window.note_bound(window.next_key());
    let key = window.key();
    let Err(window) = pool.insert(window) else { panic!("it is bound") };
    pool.put(window, queue.request(1)).unwrap();
    assert_eq!(pool.take().map(|window| window.key()), Some(keys[1]));
    assert_eq!(pool.take(), Some(MemoryWindow::new(key)));
    assert!(pool.take().is_none() && pool.is_empty());
    // A ring without room: the window is as it was.
    for _ in 0..6 {
        queue.request(1).nop().unwrap();
    }
    let mut window = MemoryWindow::new(KEY);
    window.note_bound(KEY);
    let Err((error, window)) = pool.put(window, queue.request(1)) else { panic!("there is no room") };
    assert!(matches!(error, PostError::SendRingFull { .. }) && window.is_bound());
}
