//! Uses every generic part of the library, without std and alloc. Nothing runs this code: `cargo xtask test`
//! builds it for a machine without an operating system and inspects the compiled code.
//!
//! If the library used std, this crate would fail to build; if the library used alloc, the allocator would be
//! missing. Each exported function is an entry, which calls some functions of the library. The values of its
//! arguments are hidden from the compiler, as in a real program. `foreign` calls each generic function with
//! doorbells, routers and other types that a user writes, and `commands` uses each command. This file has the
//! entries whose barriers are checked, with the library's own doorbells and routers, and calls the functions
//! that are always inlined.

#![cfg_attr(target_os = "none", no_std)]
// The inspection finds entries by their symbol names. No other code defines these symbols.
#![allow(unsafe_code)]
// The names of most entries say what they call.
#![allow(missing_docs)]

pub mod commands;
pub mod foreign;

use core::fmt::{self, Write};
use embedded_hal::delay::DelayNs;
use mlx5_mkey::error::{CommandQueueError, CompletionError, ConfigError};
use mlx5_mkey::hca::{CommandMemory, CommandQueue, CommandQueueConfig, MappedRegisters, PageRange};
use mlx5_mkey::mkey::{Keytag, Mkey};
use mlx5_mkey::queue::{
    BlueFlame, ClockInfo, Completion, CompletionQueue, CqDoorbellRecord, DeviceClock, Doorbell, LastRequest,
    Outcome, QpRouter, QpTable, ReceiveQueue, SendQueue, UarCqDoorbell, UarDoorbell, real_time,
};
use mlx5_mkey::types::{DekId, DomainKind, Qpn, Tweak};
use mlx5_mkey::wire::cqe::{Cqe, Cqe128};
use mlx5_mkey::wqe::PreparedConfig;

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// A send queue with the doorbell of a real device.
type Queue<'r> = SendQueue<'r, UarDoorbell>;

#[unsafe(no_mangle)]
pub fn entry_ring_doorbell(queue: &mut Queue<'_>) {
    queue.ring_doorbell();
}

#[unsafe(no_mangle)]
pub fn entry_post_and_ring(queue: &mut Queue<'_>) {
    if queue.request(1).nop().is_ok() {
        queue.ring_doorbell();
    }
}

#[unsafe(no_mangle)]
pub fn entry_publish(queue: &mut ReceiveQueue<'_>) {
    queue.publish();
}

/// Takes a completion together with its completion entry. Calls all functions that convert timestamps and
/// values of the device's clock into nanoseconds.
#[unsafe(no_mangle)]
pub fn entry_poll_with_entry(
    completions: &mut CompletionQueue<'_>,
    queues: Queues<'_, '_>,
    mkeys: &mut [Mkey],
    (clock, register, khz): (&ClockInfo, &DeviceClock, u32),
) -> Option<u64> {
    let (entry, _) = completions.poll_with_entry(&mut QpRouter { queues, mkeys })?;
    let stamp = entry.timestamp.get();
    let own = ClockInfo::of_frequency(khz)?.nanoseconds(register.ticks());
    Some(clock.nanoseconds(stamp) ^ own ^ u64::from(real_time(stamp).subsec_nanos()))
}

/// Publishes a request by writing all of it to the register.
#[unsafe(no_mangle)]
pub fn entry_blue_flame(doorbell: &mut BlueFlame, last: &LastRequest<'_>) -> bool {
    doorbell.ring(last);
    last.is_alone()
}

#[unsafe(no_mangle)]
pub fn entry_take(completions: &mut CompletionQueue<'_>) -> Option<Cqe> {
    completions.take_entry()
}

#[unsafe(no_mangle)]
pub fn entry_release(completions: &mut CompletionQueue<'_>) {
    completions.release();
}

#[unsafe(no_mangle)]
pub fn entry_poll_or_arm(
    completions: &mut CompletionQueue<'_>,
    queues: Queues<'_, '_>,
    mkeys: &mut [Mkey],
    doorbell: &mut UarCqDoorbell,
) -> bool {
    completions.event_received();
    completions.poll_or_arm(&mut QpRouter { queues, mkeys }, doorbell).is_some()
}

/// The two queues of a queue pair.
type Queues<'q, 'r> = (&'q mut Queue<'r>, &'q mut ReceiveQueue<'r>);

/// Defines three functions that take completions, of one queue pair or of many: one completion, a batch, and
/// one completion with waiting.
macro_rules! poll {
    ($poll:ident, $batch:ident, $wait:ident: $queues:ty, |$given:ident, $mkeys:ident| $router:expr) => {
        #[unsafe(no_mangle)]
        pub fn $poll(
            completions: &mut CompletionQueue<'_>,
            $given: $queues,
            $mkeys: &mut [Mkey],
        ) -> Option<Result<u64, CompletionError>> {
            completions.poll(&mut $router).map(|completion| completion.map(sum))
        }

        #[unsafe(no_mangle)]
        pub fn $batch(completions: &mut CompletionQueue<'_>, $given: $queues, $mkeys: &mut [Mkey]) -> u64 {
            let mut all = 0;
            completions.poll_batch(16, &mut $router, |completion| all ^= completion.map_or(1, sum));
            all
        }

        #[unsafe(no_mangle)]
        pub fn $wait(
            completions: &mut CompletionQueue<'_>,
            $given: $queues,
            $mkeys: &mut [Mkey],
            delay: &mut Silent,
        ) -> Result<u64, CompletionError> {
            completions.wait(&mut $router, delay, 3, 10).map(sum)
        }
    };
}

poll! {
    entry_poll, entry_poll_batch, entry_wait:
    Queues<'_, '_>, |queues, mkeys| QpRouter { queues, mkeys }
}
poll! {
    entry_poll_table, entry_poll_batch_table, entry_wait_table:
    &mut QpTable<'_, Queues<'_, '_>>, |table, mkeys| table.router(mkeys)
}

/// Makes a completion queue of 128-byte entries that continues where another reader of the same queue has
/// stopped.
#[unsafe(no_mangle)]
pub fn entry_long_completions<'r>(
    ring: &'r mut [Cqe128],
    record: &'r CqDoorbellRecord,
    words: [u32; 2],
) -> Option<CompletionQueue<'r, Cqe128>> {
    let mut completions = CompletionQueue::new(ring, record).ok()?.starting_at(words);
    if completions.is_empty() {
        completions.event_received();
    }
    Some(completions)
}

#[unsafe(no_mangle)]
pub fn entry_print_completions(completions: &CompletionQueue<'_, Cqe128>, out: &mut Silent) -> fmt::Result {
    write!(out, "{completions:?}")
}

#[unsafe(no_mangle)]
pub fn entry_poll_long(
    completions: &mut CompletionQueue<'_, Cqe128>,
    queues: Queues<'_, '_>,
    mkeys: &mut [Mkey],
) -> Option<Result<u64, CompletionError>> {
    completions.discard(|entry| entry.wqe_counter.get() == 0);
    completions.poll(&mut QpRouter { queues, mkeys }).map(|completion| completion.map(sum))
}

#[unsafe(no_mangle)]
pub fn entry_discard(completions: &mut CompletionQueue<'_>, qpn: Qpn) -> usize {
    completions.discard(|entry| entry.is_of(qpn))
}

/// Calls functions that are always inlined and therefore absent from the library's own object code, as
/// [`entry_change_prepared`] does.
#[unsafe(no_mangle)]
pub fn entry_inlined(completion: Completion, mkey: &Mkey) -> Option<u64> {
    let known = mkey.length() ^ u64::from(mkey.key().get());
    Some(known ^ completion.work()?.id)
}

#[unsafe(no_mangle)]
pub fn entry_change_prepared(
    prepared: &mut PreparedConfig,
    domain: DomainKind,
    dek: DekId,
    lba: u64,
) -> Result<(), ConfigError> {
    prepared.set_tweak(Tweak::from_lba(lba))?;
    prepared.set_dek(dek, Keytag(lba.to_be_bytes()))?;
    prepared.set_ref_tag(domain, lba as u32)?;
    prepared.set_app_tag(domain, lba as u16)
}

/// Sums the fields of a completion.
fn sum(completion: Completion) -> u64 {
    match completion {
        Completion::Work(work) => match work.outcome {
            Outcome::Sent { bytes, .. } | Outcome::Received { bytes, .. } => work.id ^ u64::from(bytes),
            Outcome::Failed(_) => work.id,
        },
        Completion::SignatureError { position, .. } => position as u64,
    }
}

/// A doorbell, a delay and a printer, all without an effect.
pub struct Silent(u32);

impl Silent {
    fn note(&mut self, number: u32) {
        self.0 ^= number;
    }
}

impl Doorbell for Silent {
    fn ring(&mut self, _: &LastRequest<'_>) {
        self.0 ^= 1;
    }
}

impl DelayNs for Silent {
    fn delay_ns(&mut self, _: u32) {}
}

impl Write for Silent {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 ^= text.len() as u32;
        Ok(())
    }
}

/// Panics on purpose. The check that no entry can panic must find this panic, which proves that the check
/// works.
#[unsafe(no_mangle)]
pub fn control_that_panics(bytes: &[u8], at: usize) -> u8 {
    #[allow(clippy::indexing_slicing)]
    bytes[at]
}

/// Takes a device with memory-mapped registers from reset to the state in which it creates objects. The
/// firmware gets contiguous pages.
#[unsafe(no_mangle)]
pub fn entry_start_mapped<'m>(
    bar: MappedRegisters,
    memory: &'m mut CommandMemory<16>,
    address: u64,
    (first, count, bitmap): (u64, u32, &mut [u64]),
    delay: &mut Silent,
) -> Result<(CommandQueue<'m, MappedRegisters>, u32), CommandQueueError> {
    let mut pages = PageRange::new(first, count, bitmap)?;
    let mut commands = CommandQueue::new(bar, memory, CommandQueueConfig::new(address), delay)?;
    commands.start(&mut pages, delay)?;
    Ok((commands, pages.taken()))
}
