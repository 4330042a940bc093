//! Types that a user of the library defines: doorbells, routers and others. The entries of this module call
//! each function of the library that takes such a type. They also use queues of a size for which the library
//! itself compiles no code.

use crate::Silent;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};
use embedded_hal::delay::DelayNs;
use mlx5_mkey::command::{AllocPd, CreateListMkey, Function, Pdn};
use mlx5_mkey::error::{CommandQueueError, CompletionError, PostError, QueueError};
use mlx5_mkey::hca::*;
use mlx5_mkey::inspect::{DeviceContext, WorkRequest, cqe::CompletionEntry};
use mlx5_mkey::mkey::{Access, KlmEntry, Layout, MemoryWindow, Mkey, SignatureFault};
use mlx5_mkey::queue::*;
use mlx5_mkey::types::{Key, Qpn};
use mlx5_mkey::wire::{Wqebb, cqe::Cqe, data::DataSegment};
use mlx5_mkey::wqe::{Payload, PreparedConfig, Remote, Sge};

/// A user's own doorbell, which reads whole requests. It calls a function pointer, whose effect the compiler
/// does not know.
#[derive(Debug)]
pub struct Bell(fn(&mut dyn Iterator<Item = Wqebb>, [u8; 8]));

impl Doorbell for Bell {
    #[inline(never)]
    fn ring(&mut self, last: &LastRequest<'_>) {
        (self.0)(&mut last.blocks(), last.control());
    }
}

/// A user's own doorbell of a completion queue, a function pointer as in [`Bell`].
pub struct CqBell(fn([u8; 4]));

impl CqDoorbell for CqBell {
    #[inline(never)]
    fn ring(&mut self, arm: [u8; 4]) {
        (self.0)(arm);
    }
}

/// A user's own delay, a function pointer as in [`Bell`].
pub struct Pause(fn(u32));

impl DelayNs for Pause {
    fn delay_ns(&mut self, time: u32) {
        (self.0)(time);
    }
}

/// A user's own implementation of [`QpQueues`], which retires the requests of a queue pair.
pub struct Books {
    qpn: fn() -> Qpn,
    send: fn(CompletedSend<'_>) -> Option<Retired>,
    receive: fn(CompletedReceive<'_>) -> Option<u64>,
}

impl QpQueues for Books {
    fn qpn(&self) -> Qpn {
        (self.qpn)()
    }

    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        (self.send)(done)
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        (self.receive)(done)
    }
}

/// A user's own router, which finds the [`Books`] of a queue pair.
pub struct Switch {
    books: fn(CqeOrigin) -> Option<&'static mut Books>,
    fault: fn(&SignatureFault) -> Option<usize>,
}

impl CompletionRouter for Switch {
    type Queues = Books;

    fn queues(&mut self, origin: CqeOrigin) -> Option<&mut Books> {
        (self.books)(origin)
    }

    fn signature_error(&mut self, fault: &SignatureFault) -> Option<usize> {
        (self.fault)(fault)
    }
}

/// A value that becomes a layout when a request is posted.
pub struct Later<'a>(fn() -> Layout<'a>);

impl<'a> From<Later<'a>> for Layout<'a> {
    fn from(later: Later<'a>) -> Self {
        (later.0)()
    }
}

/// A value that becomes a payload when a request is posted.
#[derive(Clone, Copy)]
pub struct Data<'a>(fn() -> Payload<'a>);

impl<'a> From<Data<'a>> for Payload<'a> {
    fn from(data: Data<'a>) -> Self {
        (data.0)()
    }
}

/// A user's own source of mkeys.
pub struct Supply(fn() -> Option<Mkey>);

impl Iterator for Supply {
    type Item = Mkey;

    fn next(&mut self) -> Option<Mkey> {
        (self.0)()
    }
}

/// A number of blocks for which the library itself compiles no generic code.
const BLOCKS: usize = 1024;

type Queue<'r> = SendQueue<'r, Bell>;
type Receive<'r> = ReceiveQueue<'r>;

#[unsafe(no_mangle)]
pub fn entry_foreign_send<'r>(
    config: SendQueueConfig,
    ring: &'r mut [Wqebb],
    record: &'r DoorbellRecord,
    (slots, bell): (&'r mut [SendSlot; BLOCKS], Bell),
) -> Result<Queue<'r>, QueueError> {
    *slots = SendSlot::array();
    SendQueue::new(config, ring, slots, record, bell)
}

#[unsafe(no_mangle)]
pub fn entry_list_layouts<'a>(slice: &'a [KlmEntry], array: &'a [KlmEntry; 4]) -> [Layout<'a>; 2] {
    [Layout::from(slice), Layout::from(array)]
}

/// Posts each request that carries a layout or payload of a user's own type.
#[unsafe(no_mangle)]
pub fn entry_foreign_post(
    queue: &mut Queue<'_>,
    mkey: &mut Mkey,
    prepared: &PreparedConfig,
    (later, data): (Later<'_>, Data<'_>),
    remote: Remote,
    key: Key,
) -> Result<(), PostError> {
    queue.request(1).configure_mkey(mkey, prepared, Layout::from(later))?;
    queue.request(2).fenced().signaled().solicited().send(data)?;
    queue.request(3).send_imm(1, data)?;
    queue.request(4).send_invalidate(key, data)?;
    queue.request(5).rdma_write(remote, data)?;
    queue.request(6).rdma_write_imm(remote, 1, data)
}

#[unsafe(no_mangle)]
pub fn entry_foreign_arrays(
    queue: &mut Queue<'_>,
    mkey: &mut Mkey,
    prepared: &PreparedConfig,
    entries: &[KlmEntry; 33],
    sges: &[Sge; 7],
) -> Result<(), PostError> {
    let mut batch = queue.batch();
    if batch.free_blocks() < 20 {
        return Ok(());
    }
    batch.request(1).configure_mkey(mkey, prepared, entries)?;
    batch.request(2).send(sges)?;
    batch.request(3).send(sges.as_slice())
}

/// A user's own entry of a list.
pub struct Page {
    address: u64,
    key: Key,
}

/// Posts a change of access rights and a list of a user's own entries. Then polls with the send queue itself
/// as router.
#[unsafe(no_mangle)]
pub fn entry_foreign_pages(
    queue: &mut Queue<'_>,
    mkey: &mut Mkey,
    prepared: &PreparedConfig,
    pages: &[Page],
    completions: &mut CompletionQueue<'_>,
) -> Result<bool, PostError> {
    let mut other = Mkey::plain(mkey.key(), 8);
    let readable = PreparedConfig::access(&other, Access::REMOTE_READ)?;
    queue.request(2).configure_mkey(&mut other, &readable, Layout::Unchanged)?;
    let to_klm = |page: &Page| KlmEntry { address: page.address, length: 4096, key: page.key };
    queue.request(1).configure_mkey_from(mkey, prepared, pages, to_klm)?;
    Ok(completions.poll(queue).is_some())
}

#[unsafe(no_mangle)]
pub fn entry_foreign_books(
    queue: &mut Queue<'_>,
    done: CompletedSend<'_>,
    id: u64,
    each: fn(Retired),
) -> Option<u32> {
    queue.ring_doorbell();
    let (bell, record) = (queue.doorbell() as *const Bell, queue.record());
    let known = queue.free_blocks()
        ^ queue.outstanding()
        ^ queue.producer()
        ^ SendQueue::qpn(queue).get()
        ^ done.qpn().get();
    let first = queue.block(known).0;
    let cancelled = queue.cancel(id, done.counter()).ok()?;
    let retired = queue.retire(done)?;
    if queue.next_fence() == 0 {
        queue.restart(each);
    }
    let sum = retired.id as u32 ^ cancelled as u32 ^ bell.addr() as u32 ^ record.bytes().len() as u32;
    Some(sum ^ u32::from(*first.first()?))
}

#[unsafe(no_mangle)]
pub fn entry_foreign_share<'r>(
    queue: Queue<'r>,
    bell: &'static mut Bell,
    work: fn(&mut SendQueue<'r, &'static mut Bell>) -> u64,
) -> (u64, SendQueue<'r, &'static mut Bell>) {
    let shared = SharedSendQueue::new(queue.map_doorbell(|_| bell));
    (shared.with(work), shared.into_inner())
}

/// A user's own function that consumes the ids of requests.
pub struct Named(fn(u64));

#[unsafe(no_mangle)]
pub fn entry_foreign_receive<'r>(
    config: ReceiveQueueConfig,
    (ring, ids): (&'r mut [DataSegment], &'r mut [u64]),
    record: &'r DoorbellRecord,
    (id, sges, done): (u64, &[Sge], CompletedReceive<'_>),
    each: Named,
) -> Option<Receive<'r>> {
    let mut queue = Receive::new(config, ring, ids, record).ok()?.starting_at(id as u16);
    queue.post(id, sges).ok()?;
    queue.publish();
    let known = done.qpn().get() ^ u32::from(done.counter());
    let retired = queue.retire(done)? ^ u64::from(known ^ queue.free_slots() ^ queue.qpn().get());
    if retired == 7 {
        queue.restart(|id| (each.0)(id));
    }
    Some(queue)
}

#[unsafe(no_mangle)]
pub fn entry_foreign_poll(
    completions: &mut CompletionQueue<'_>,
    switch: &mut Switch,
    bell: &mut CqBell,
    pause: &mut Pause,
    (each, mkey): (fn(Result<Completion, CompletionError>), &mut Mkey),
) -> bool {
    if completions.check(mkey).is_err() {
        completions.forget_mkey(mkey.key().index());
        completions.forget_lost_errors();
    }
    if let Some(completion) = completions.poll(switch) {
        each(completion);
    }
    if let Some((_, completion)) = completions.poll_with_entry(switch) {
        each(completion);
    }
    completions.poll_batch(100, switch, each);
    each(completions.wait(switch, pause, 5, 1));
    completions.arm(bell, ArmFor::Solicited);
    completions.poll_or_arm(switch, &mut &mut *bell).is_some()
}

#[unsafe(no_mangle)]
pub fn entry_foreign_discard(completions: &mut CompletionQueue<'_>, is_stale: &mut Stale) -> usize {
    completions.discard(|entry| (is_stale.0)(entry))
}

/// A user's choice of entries to discard.
pub struct Stale(fn(&Cqe) -> bool);

/// The queues of a queue pair.
type Both<'q, 'r> = (&'q mut Queue<'r>, &'q mut Receive<'r>);

#[unsafe(no_mangle)]
pub fn entry_foreign_route<'q, 'r>(
    router: &mut QpRouter<'_, Both<'q, 'r>>,
    table: &mut QpTableRouter<'_, '_, Both<'q, 'r>>,
    origin: CqeOrigin,
    fault: &SignatureFault,
    completed: fn() -> (CompletedSend<'static>, CompletedReceive<'static>),
) -> Option<u64> {
    let known = router.signature_error(fault)? ^ table.signature_error(fault)?;
    let mut sum = known as u64;
    for queues in [router.queues(origin)?, table.queues(origin)?] {
        let (sent, received) = completed();
        sum ^=
            queues.retire_send(sent)?.id ^ queues.retire_receive(received)? ^ u64::from(queues.qpn().get());
    }
    let (send, receive) = &mut router.queues;
    let (sent, received) = completed();
    Some(
        sum ^ send.retire_receive(received).unwrap_or(1)
            ^ receive.retire_send(sent).map_or(2, |retired| retired.id)
            ^ u64::from(QpQueues::qpn(*receive).get()),
    )
}

#[unsafe(no_mangle)]
pub fn entry_foreign_table(
    table: &mut QpTable<'_, Books>,
    (books, qpn): (Books, Qpn),
    mkeys: &mut [Mkey],
    completions: &mut CompletionQueue<'_>,
    each: fn(&mut Books),
) -> Option<Books> {
    let _ = completions.poll(&mut table.router(mkeys));
    if table.next_user_index() == 100 {
        return None;
    }
    table.insert(books).ok()?;
    table.iter_mut().for_each(each);
    each(table.get_mut(qpn)?);
    table.remove(qpn)
}

#[unsafe(no_mangle)]
pub fn entry_foreign_new_table<'m>(
    slots: &'m mut [TableSlot<Books>],
    array: &'m mut [TableSlot<Books>; 128],
) -> [QpTable<'m, Books>; 2] {
    [QpTable::new(slots), QpTable::new(array)]
}

#[unsafe(no_mangle)]
pub fn entry_foreign_pool(
    pool: &mut MkeyPool<'_>,
    mkey: Mkey,
    queue: &mut Queue<'_>,
    (each, done): (fn(&mut Mkey), &WorkCompletion),
) -> Option<(usize, Mkey)> {
    let position = pool.insert(mkey).ok()? ^ pool.available();
    pool.mkeys().iter_mut().for_each(each);
    let (one, _) = pool.take()?;
    let (other, _) = pool.take()?;
    each(pool.get_mut(one)?);
    if pool.invalidate(one, queue.request(position as u64)).is_err() || pool.put(one, done).is_err() {
        let lost = pool.in_use().next()?;
        pool.put_unused(lost).ok()?;
    }
    pool.put_unused(other).ok()?;
    pool.remove_unused()
}

/// A user's own type for the memory of a pool.
pub struct Own<'m, T>(&'m mut [T]);

impl<'m, T> From<Own<'m, T>> for Room<'m, T> {
    fn from(Own(memory): Own<'m, T>) -> Self {
        memory.into()
    }
}

#[unsafe(no_mangle)]
pub fn entry_foreign_new_pool<'m>(
    mkeys: [Own<'m, Mkey>; 2],
    slots: [Own<'m, PoolSlot>; 2],
    supply: Supply,
) -> Option<[MkeyPool<'m>; 2]> {
    let ([mkeys, other_mkeys], [slots, other_slots]) = (mkeys, slots);
    let mut filled = MkeyPool::empty(mkeys, slots).ok()?;
    for mkey in supply {
        filled.insert(mkey).ok()?;
    }
    Some([filled, MkeyPool::new(other_mkeys, other_slots).ok()?])
}

#[unsafe(no_mangle)]
pub fn entry_foreign_windows(
    pool: &mut WindowPool<'_>,
    range: KlmEntry,
    queue: &mut Queue<'_>,
    done: &WorkCompletion,
) -> Option<usize> {
    let (handle, window) = pool.take()?;
    queue.request(1).bind_window(window, range, Access::ALL, 0).ok()?;
    if pool.invalidate(handle, queue.request(2)).is_err() || pool.put(handle, done).is_err() {
        let lost = pool.in_use().next()?;
        pool.get_mut(lost)?.note_invalidated();
        if pool.put_unused(handle).is_err() {
            let mut window = pool.remove(handle).ok()?;
            window.note_invalidated();
            pool.insert(window).ok()?;
        }
    }
    Some(pool.available())
}

#[unsafe(no_mangle)]
pub fn entry_foreign_new_windows<'m>(
    windows: Own<'m, MemoryWindow>,
    slots: Own<'m, PoolSlot>,
) -> Option<WindowPool<'m>> {
    WindowPool::new(windows, slots).ok()
}

#[unsafe(no_mangle)]
pub fn entry_foreign_room<'r>(room: &'r mut Room<'_, TableSlot<Books>>) -> Option<&'r mut TableSlot<Books>> {
    if room.as_ref().is_empty() { None } else { room.as_mut().first_mut() }
}

#[unsafe(no_mangle)]
pub fn entry_foreign_print(
    out: &mut Silent,
    queue: &mut Queue<'_>,
    shared: &SharedSendQueue<'_, Bell>,
    receive: &Receive<'_>,
    (router, table): (&QpRouter<'_, Books>, &mut QpTable<'_, Books>),
    (pool, windows): (&MkeyPool<'_>, &WindowPool<'_>),
    (slot, room): (&TableSlot<Books>, &Room<'_, TableSlot<Books>>),
) -> fmt::Result {
    write!(out, "{slot:?} {room:?}")?;
    write!(out, "{queue:?} {shared:?} {receive:?} {router:?} {table:?} {pool:?} {windows:?}")?;
    write!(out, "{:?} {:?}", queue.batch(), table.router(&mut []))
}

#[unsafe(no_mangle)]
pub fn entry_foreign_findings(bytes: &[u8], device: &DeviceContext, out: &mut Silent) {
    if let Ok(request) = WorkRequest::parse(bytes) {
        request.findings(device, |finding| out.note(finding.offset as u32));
    }
    if let Ok(entry) = CompletionEntry::parse(bytes) {
        entry.findings(|finding| out.note(finding.offset as u32));
    }
}

/// A user's own registers, as plain atomic words.
pub struct Words<'r>(&'r [AtomicU32; 128]);

impl Registers for Words<'_> {
    #[inline]
    fn read(&mut self, register: Register) -> u32 {
        let word = self.0.get(register.offset() / 4);
        word.map_or(0, |word| u32::from_be(word.load(Ordering::Relaxed)))
    }

    #[inline]
    fn write(&mut self, register: Register, value: u32) {
        if let Some(word) = self.0.get(register.offset() / 4) {
            word.store(value.to_be(), Ordering::Relaxed);
        }
    }
}

/// A user's own source of pages for the firmware.
pub struct Pages {
    take: fn() -> Option<u64>,
    put_back: fn(u64) -> bool,
}

impl PageSource for Pages {
    fn take(&mut self) -> Option<u64> {
        (self.take)()
    }

    fn put_back(&mut self, address: u64) -> bool {
        (self.put_back)(address)
    }
}

/// A command queue over the user's own registers.
type Commands<'m> = CommandQueue<'m, Words<'m>>;

#[unsafe(no_mangle)]
pub fn entry_start<'m>(
    words: Words<'m>,
    memory: &'m mut CommandMemory<16>,
    config: CommandQueueConfig,
    mut pages: &mut Pages,
    delay: &mut Pause,
) -> Result<Commands<'m>, CommandQueueError> {
    let mut commands = CommandQueue::new(words, memory, config, delay)?;
    commands.start(&mut pages, delay)?;
    Ok(commands)
}

#[unsafe(no_mangle)]
pub fn entry_stop(
    commands: &mut Commands<'_>,
    pages: &mut Pages,
    delay: &mut Pause,
) -> Result<(Pdn, Function), CommandQueueError> {
    let pd = commands.execute(&AllocPd, delay)?;
    commands.stop(pages, delay)?;
    Ok((pd, commands.function()))
}

#[unsafe(no_mangle)]
pub fn entry_execute_in(
    commands: &mut Commands<'_>,
    command: &CreateListMkey<'_>,
    mailbox: &mut [u8],
    delay: &mut Pause,
) -> Result<Key, CommandQueueError> {
    commands.execute_in(command, mailbox, delay)
}

#[unsafe(no_mangle)]
pub fn entry_lent_registers(mut words: &mut Words<'_>, register: Register, value: u32) -> u32 {
    Registers::write(&mut words, register, value);
    Registers::read(&mut words, register)
}

#[unsafe(no_mangle)]
pub fn entry_print_commands(
    out: &mut Silent,
    commands: &Commands<'_>,
    error: &CommandQueueError,
) -> fmt::Result {
    write!(out, "{commands:?} {error}")
}
