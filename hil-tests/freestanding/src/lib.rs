//! Uses every generic part of the library, without std and alloc. Nothing runs this code: `cargo xtask test`
//! builds it for a machine without an operating system and inspects the compiled code.
//!
//! If the library used std, this crate would fail to build; if the library used alloc, the allocator would be
//! missing. Each exported function is an entry, which calls some functions of the library. The values of its
//! arguments are hidden from the compiler, as in a real program. This file uses the library's own doorbells
//! and routers, `foreign` uses doorbells and routers that a user writes, and `commands` uses each command.

#![cfg_attr(target_os = "none", no_std)]
// The inspection finds entries by their symbol names. No other code defines these symbols.
#![allow(unsafe_code)]
// The names of most entries say what they call.
#![allow(missing_docs)]

pub mod commands;
pub mod foreign;

use core::fmt::{self, Write};
use embedded_hal::delay::DelayNs;
use mlx5_mkey::command::{AllocPd, Pdn};
use mlx5_mkey::error::{CommandQueueError, CompletionError, ConfigError, PostError};
use mlx5_mkey::hca::{CommandMemory, CommandQueue, CommandQueueConfig, MappedRegisters, PageRange};
use mlx5_mkey::inspect::{
    Body, DeviceContext, QueueKind, Requests, Style, WorkRequest, cqe::CompletionEntry,
};
use mlx5_mkey::mkey::{InterleavedEntry, Keytag, KlmEntry, Layout, Mkey, MkeyConfig, MkeyKind};
use mlx5_mkey::queue::{
    ArmFor, BlueFlame, ClockInfo, CompletedReceive, CompletedSend, Completion, CompletionQueue,
    CqDoorbellRecord, DeviceClock, Doorbell, DoorbellRecord, LastRequest, Outcome, QpRouter, QpTable,
    ReceiveQueue, ReceiveQueueConfig, SendQueue, SendQueueConfig, SendSlot, SharedSendQueue, UarCqDoorbell,
    UarDoorbell, real_time,
};
use mlx5_mkey::types::{DekId, DomainKind, Key, Qpn, Tweak};
use mlx5_mkey::wire::{
    Wqebb,
    cqe::{Cqe, Cqe128},
    data::DataSegment,
};
use mlx5_mkey::wqe::{Local, MaskedAtomic, PreparedConfig, Remote, Sge};

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// A send queue with the doorbell of a real device.
type Queue<'r> = SendQueue<'r, UarDoorbell>;

#[unsafe(no_mangle)]
pub fn entry_new_send<'r>(
    ring: &'r mut [Wqebb],
    slots: &'r mut [SendSlot],
    record: &'r DoorbellRecord,
    doorbell: UarDoorbell,
) -> Option<Queue<'r>> {
    SendQueue::new(SendQueueConfig::new(Qpn::from_low_bits(1)), ring, slots, record, doorbell).ok()
}

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
pub fn entry_configure(
    queue: &mut Queue<'_>,
    id: u64,
    mkey: &mut Mkey,
    prepared: &PreparedConfig,
    layout: Layout<'_>,
) -> Result<(), PostError> {
    queue.request(id).fenced().solicited().configure_mkey(mkey, prepared, layout)
}

/// Posts a batch: configurations with both kinds of layout and without one, a transfer of one block, and a
/// transfer that is as long as a request can be.
#[unsafe(no_mangle)]
pub fn entry_batch(
    queue: &mut Queue<'_>,
    mkey: &mut Mkey,
    prepared: &PreparedConfig,
    (list, entries): (&[KlmEntry], &[InterleavedEntry]),
    remote: Remote,
    sges: &[Sge],
) -> Result<(), PostError> {
    let mut batch = queue.batch();
    batch.request(1).configure_mkey(mkey, prepared, list)?;
    batch.request(2).configure_mkey(mkey, prepared, Layout::Interleaved { repeat: 2, entries })?;
    batch.request(3).configure_mkey(mkey, prepared, Layout::Unchanged)?;
    batch.request(4).nop()?;
    batch.request(5).signaled().rdma_write(remote, sges)
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

#[unsafe(no_mangle)]
pub fn entry_prepare(kind: MkeyKind, config: &MkeyConfig) -> Option<PreparedConfig> {
    PreparedConfig::new(kind, config).or_else(|_| PreparedConfig::with_any_data_unit(kind, config)).ok()
}

#[unsafe(no_mangle)]
pub fn entry_invalidate(queue: &mut Queue<'_>, mkey: &mut Mkey, key: Key) -> Result<(), PostError> {
    queue.request(1).invalidate_mkey(mkey)?;
    queue.request(2).invalidate(key)
}

/// Posts each request that moves data.
#[unsafe(no_mangle)]
pub fn entry_data_path(
    queue: &mut Queue<'_>,
    remote: Remote,
    sges: &[Sge],
    old: Local,
    imm: u32,
) -> Result<(), PostError> {
    queue.request(1).send(sges)?;
    queue.request(2).send_imm(imm, sges)?;
    queue.request(3).send_invalidate(Key::from_raw(imm), sges)?;
    queue.request(4).signaled().rdma_write(remote, sges)?;
    queue.request(5).rdma_write_imm(remote, imm, sges)?;
    queue.request(6).rdma_read(remote, sges)?;
    queue.request(7).compare_swap(remote, 1, 2, old)?;
    queue.request(8).fetch_add(remote, 1, old)?;
    let atomic = MaskedAtomic::FetchAdd64 { add: 1, boundary: imm.into() };
    queue.request(9).masked_atomic(remote, atomic, old)
}

#[unsafe(no_mangle)]
pub fn entry_raw(
    queue: &mut Queue<'_>,
    wqe: &[u8],
    (to, from): (Local, Local),
    bytes: u32,
) -> Result<(), PostError> {
    queue.request(1).signaled().raw(wqe)?;
    queue.request(2).memcpy(to, from, bytes)
}

/// Calls the functions by which a program observes a send queue: they read its state, a block, its doorbell
/// and its doorbell record. Also cancels requests, and retires one by a completion.
#[unsafe(no_mangle)]
pub fn entry_keep_books(queue: &mut Queue<'_>, id: u64, done: CompletedSend<'_>) -> Option<u64> {
    let (counter, qpn) = (done.counter(), done.qpn());
    let block = queue.block(u32::from(counter));
    let _ = queue.cancel(id, counter);
    let known = u64::from(queue.free_blocks() ^ queue.outstanding() ^ queue.producer());
    let bell = usize::from(queue.next_fence()) + size_of_val(queue.doorbell()) + queue.record().bytes().len();
    let first = queue.retire(done)?.id ^ u64::from(qpn.get());
    Some(first ^ known ^ bell as u64 ^ u64::from(block.0.first().copied()?))
}

#[unsafe(no_mangle)]
pub fn entry_share(shared: SharedSendQueue<'_, UarDoorbell>) -> Result<u32, PostError> {
    shared.with(|queue| queue.request(1).nop())?;
    let mut queue = shared.into_inner().map_doorbell(|_| Silent(0));
    queue.ring_doorbell();
    Ok(queue.producer())
}

#[unsafe(no_mangle)]
pub fn entry_last_request(last: &LastRequest<'_>) -> usize {
    last.blocks().count()
}

#[unsafe(no_mangle)]
pub fn entry_new_receive<'r>(
    ring: &'r mut [DataSegment],
    ids: &'r mut [u64],
    record: &'r DoorbellRecord,
    entries_per_slot: u32,
) -> Option<ReceiveQueue<'r>> {
    let qpn = Qpn::from_low_bits(1);
    ReceiveQueue::new(ReceiveQueueConfig { qpn, entries_per_slot }, ring, ids, record).ok()
}

#[unsafe(no_mangle)]
pub fn entry_post_receive(queue: &mut ReceiveQueue<'_>, id: u64, sges: &[Sge]) -> Result<u32, PostError> {
    queue.post(id, sges)?;
    Ok(queue.free_slots())
}

#[unsafe(no_mangle)]
pub fn entry_publish(queue: &mut ReceiveQueue<'_>) {
    queue.publish();
}

#[unsafe(no_mangle)]
pub fn entry_retire_receive(queue: &mut ReceiveQueue<'_>, done: CompletedReceive<'_>) -> Option<u64> {
    let told = u64::from(done.counter()) ^ u64::from(done.qpn().get());
    Some(queue.retire(done)? ^ told)
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
pub fn entry_arm(completions: &mut CompletionQueue<'_>, doorbell: &mut UarCqDoorbell, entries: ArmFor) {
    completions.arm(doorbell, entries);
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

/// Calls functions that are always inlined and therefore absent from the library's own object code.
#[unsafe(no_mangle)]
pub fn entry_inlined(completion: Completion, mkey: &Mkey) -> Option<u64> {
    let known = mkey.length() ^ u64::from(mkey.key().get());
    Some(known ^ completion.work()?.id)
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

#[unsafe(no_mangle)]
pub fn entry_change_table<'q, 'r>(
    table: &mut QpTable<'_, Queues<'q, 'r>>,
    queues: Queues<'q, 'r>,
    qpn: Qpn,
) -> Option<Queues<'q, 'r>> {
    let at = table.next_user_index();
    table.insert(queues).ok()?;
    let (send, _) = table.get_mut(qpn)?;
    send.request(at.into()).nop().ok()?;
    table.iter_mut().for_each(|(send, _)| send.ring_doorbell());
    table.remove(qpn)
}

#[unsafe(no_mangle)]
pub fn entry_inspect(
    bytes: &[u8],
    (queue, device): (QueueKind, DeviceContext),
    style: Style,
    out: &mut Silent,
) -> fmt::Result {
    for (offset, request) in Requests::new(bytes).on_queue(queue) {
        request.findings(&device, |finding| out.0 ^= finding.offset as u32);
        out.0 ^= request.fields().fold(offset as u32, |sum, field| sum ^ field.value() as u32);
        write!(out, "{}{}", request.summary(device), request.pretty(device, style))?;
    }
    for entry in [CompletionEntry::parse(bytes), CompletionEntry::parse_128(bytes)].into_iter().flatten() {
        entry.findings(|finding| out.0 ^= finding.offset as u32);
        out.0 ^= entry.fields().fold(0, |sum, field| sum ^ field.value() as u32);
        write!(out, "{}{}{:?}", entry.summary(None), entry.pretty(None, style), entry.inline_data())?;
    }
    let Ok(request) = WorkRequest::parse(bytes).map(|request| request.on_queue(queue)) else { return Ok(()) };
    if let Body::DataPath(transfer) = request.body() {
        let (ethernet, address) = (transfer.ethernet(), transfer.address());
        write!(out, "{ethernet:?} {address:?} {:?} {:?}", transfer.atomic_bytes(), request.queue())?;
    }
    write!(out, "{:?} {:?} {:?}", request, request.worst(&device), request.refusal(&device).is_some())
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

#[unsafe(no_mangle)]
pub fn entry_execute(
    commands: &mut CommandQueue<'_, MappedRegisters>,
    delay: &mut Silent,
) -> Result<Pdn, CommandQueueError> {
    commands.execute(&AllocPd, delay)
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
