//! A program without std and alloc that uses the library: linked by `cargo xtask test` to show that it needs neither.
//!
//! Had the library pulled std in, there would be two panic handlers; had it pulled alloc in, there would be no allocator.

#![no_std]

use mlx5_mkey::mkey::{Access, Layout, ListEntry, Mkey, MkeyAttributes, MkeyConfig};
use mlx5_mkey::queue::{CompletionQueue, Doorbell, DoorbellRecord, Endpoint, SendQueue, SendQueueConfig};
use mlx5_mkey::types::{Key, Qpn};
use mlx5_mkey::wire::{Wqebb, cqe::Cqe};
use mlx5_mkey::wqe::{Remote, Sge};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: [u8; 8]) {}
}

/// Configures an mkey over two pieces of memory, writes through it, and takes the completion.
#[unsafe(no_mangle)]
pub extern "C" fn freestanding(ring: &mut [Wqebb; 64], entries: &mut [Cqe; 64]) -> u64 {
    let (sq_record, cq_record) = (DoorbellRecord::new(), DoorbellRecord::new());
    let qpn = Qpn::from_low_bits(1);
    let Ok(mut queue) = SendQueue::<_, 64>::new(SendQueueConfig::new(qpn), ring, &sq_record, Silent) else {
        return 0;
    };
    let Ok(mut completions) = CompletionQueue::new(entries, &cq_record) else { return 0 };
    let Ok(mkey) = Mkey::new(MkeyAttributes::plain(Key::from_raw(0x100), 4)) else { return 0 };
    let mut mkeys = [mkey];
    let (Ok(first), Ok(second)) =
        (ListEntry::new(0x1000, 64, Key::from_raw(0x200)), ListEntry::new(0x9000, 4096, Key::from_raw(0x300)))
    else {
        return 0;
    };
    let pieces = [first, second];
    let config = MkeyConfig {
        access: Some(Access::LOCAL_WRITE),
        layout: Some(Layout::list(&pieces)),
        ..MkeyConfig::KEEP
    };
    let [mkey] = &mut mkeys;
    let Ok(data) = Sge::new(0, 4160, mkey.key()) else { return 0 };
    let remote = Remote { address: 0, rkey: Key::from_raw(0x400) };
    let _ = queue.request(1).configure_mkey(mkey, &config);
    let _ = queue.request(2).signaled().rdma_write(remote, &[data]);
    queue.ring_doorbell();
    let mut endpoint = Endpoint::<_, 64, 1> { send: &mut queue, receive: None, mkeys: &mut mkeys };
    match completions.poll(&mut endpoint) {
        Some(Ok(completion)) => completion.id,
        _ => 0,
    }
}
