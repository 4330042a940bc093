//! Tests of the library's module `devx` over the real libibverbs and libmlx5, with the stand-in preloaded.
//! This file tests events, borrowed contexts, and failures.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
mod verbs;
mod adopt;
mod bare;
mod chaos;
mod completions;
mod connect;
mod contexts;
mod deks;
mod dmabuf;
mod failures;
mod keeping;
mod linux;
mod pools;
mod queries;
mod recovery;
mod room;
mod secrets;
mod umem;
mod verbs_qp;

use mlx5_mkey::command::{
    Credential, CredentialId, DekKey, ImportKekId, Init2Init, KeyImport, LoginState, QpState, UserIndex,
    XtsKey,
};
use mlx5_mkey::devx::{
    Buffer, ConnectOptions, Cq, CqReader, CqSpec, Device, DevxError, Event, EventKind, Events, MkeyObject,
    MkeySpec, ProtectionDomain, QueuePair, QueuePairSpec,
};
use mlx5_mkey::error::{CommandError, CompletionError, PostError};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Domain, Escape, Guard, KlmEntry, MkeyConfig, Signature, SignatureChange, T10Dif,
};
use mlx5_mkey::queue::{self, Completion, QpRouter, QpTable, RequestKind, WorkCompletion};
use mlx5_mkey::types::{BlockSize, Key, Seed};
use mlx5_mkey::wire::prm::command::Opcode;
use mlx5_mkey::wqe::{Local, PreparedConfig, Remote, Sge};
use mlx5_softdev::factory;
use mlx5_testing::preload::{Side::Inside, built, preloaded, preloaded_with, prepared};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use verbs::{Counts, Opened};

type Outcome<T = ()> = Result<T, DevxError>;

/// How long a test waits for something that must happen.
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));
/// How long a test waits for something that must not happen.
const MOMENT: Option<Duration> = Some(Duration::from_millis(20));

/// A queue pair that is connected to itself, and the objects that it needs.
struct Bench {
    device: Device,
    pd: ProtectionDomain,
    cq: Cq,
    completions: CqReader,
    queue: QueuePair,
}

impl Bench {
    fn new(spec: QueuePairSpec) -> Outcome<Self> {
        Self::on(Device::open(None)?, spec, 128)
    }

    /// Makes a queue pair that stops at signature errors, with a command that the test itself sends. `devx`
    /// refuses to make this queue pair, because Linux cannot resume it.
    fn draining() -> Self {
        let mut bench = Self::new(QueuePairSpec::default()).unwrap();
        bench.queue.reset(&mut [&mut bench.completions]).unwrap();
        let qp = bench.queue.qpn();
        let drain = Init2Init { drain_signature_errors: Some(true), ..Init2Init::new(qp) };
        verbs::modify(bench.queue.control(), &drain).unwrap();
        bench.queue.control().connect_loopback().unwrap();
        bench
    }

    fn on(device: Device, spec: QueuePairSpec, entries: u32) -> Outcome<Self> {
        let pd = device.alloc_pd()?;
        let (cq, completions) = device.create_cq(entries)?;
        let queue = device.create_qp(&pd, &cq, &cq, spec)?;
        queue.control().connect_loopback()?;
        Ok(Self { device, pd, cq, completions, queue })
    }

    /// Posts the request of [`write`] with a given remote key.
    fn write(&mut self, page: &Buffer, rkey: Key) {
        write_by(&mut self.queue, 1, page, rkey);
    }

    /// Waits for the next completion, which must be of a request.
    fn next(&mut self) -> WorkCompletion {
        next_work(&mut self.completions, &mut self.queue)
    }

    /// Waits for the completion of an RDMA WRITE, which must be without an error.
    fn completed(&mut self) {
        let work = self.next();
        assert!(
            matches!(work.outcome, queue::Outcome::Sent { kind: RequestKind::RdmaWrite, .. }),
            "{work:?}"
        );
    }
}

/// Takes completions until there are `count`.
fn take(reader: &mut CqReader, queue: &mut QueuePair, count: usize) -> Vec<Completion> {
    let end = Instant::now() + TIMEOUT.unwrap();
    let mut router = QpRouter { queues: queue, mkeys: &mut [] };
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(reader.poll(&mut router).transpose().unwrap());
        assert!(Instant::now() < end, "{} completions, no more", taken.len());
        std::thread::yield_now();
    }
    taken
}

/// Waits for the next completion, which must be of a request.
fn next_work(reader: &mut CqReader, queue: &mut QueuePair) -> WorkCompletion {
    take(reader, queue, 1)[0].work().unwrap()
}

/// Posts a NOP, a request that only completes.
fn nop(queue: &mut QueuePair, id: u64) {
    queue.request(id).signaled().nop().unwrap();
    queue.ring_doorbell();
}

/// Returns the errno with which the kernel has refused a call, or `None` if `devx` has refused it without the
/// kernel.
fn errno<T>(outcome: Outcome<T>) -> Option<i32> {
    match outcome.map(drop) {
        Err(DevxError::Call { cause, .. }) => cause.raw_os_error(),
        other => panic!("{other:?}"),
    }
}

/// Opens the device, and makes a protection domain.
fn device_and_domain() -> (Device, ProtectionDomain) {
    let device = Device::open(None).unwrap();
    let pd = device.alloc_pd().unwrap();
    (device, pd)
}

/// Waits until the device has executed all posted requests.
fn executed(queue: &QueuePair) {
    while queue.control().query().unwrap().next_send_block != queue.producer() as u16 {
        std::thread::yield_now();
    }
}

#[test]
fn who_asks_hears_what_has_become_of_what_it_rang() {
    let Inside = preloaded() else { return };
    // The query itself executes the requests. If it waited for another thread to execute them, each round
    // would take long on a busy machine.
    let Bench { mut queue, mut completions, .. } = Bench::new(QueuePairSpec::default()).unwrap();
    for id in 0..500 {
        nop(&mut queue, id);
        let next = queue.control().query().unwrap().next_send_block;
        assert_eq!(next, queue.producer() as u16, "round {id}");
        assert_eq!(next_work(&mut completions, &mut queue).id, id);
    }
}

/// Returns a page that is registered with all rights and begins with these bytes.
fn page(pd: &ProtectionDomain, bytes: &[u8]) -> Outcome<Buffer> {
    let mut page = pd.alloc_buffer(4096, Access::ALL)?;
    page.write(0, bytes)?;
    Ok(page)
}

/// Returns the spec of a queue pair that stops at signature errors.
fn draining() -> QueuePairSpec {
    QueuePairSpec { drain_on_signature_error: true, ..QueuePairSpec::default() }
}

/// Waits for the next event, which must arrive.
fn next(events: &Events) -> Event {
    events.wait(TIMEOUT).unwrap().expect("an event")
}

/// Returns the domain of blocks of 512 bytes with a T10-DIF of these tags.
fn t10_dif(app_tag: u16, ref_tag: u32) -> Domain {
    let (guard, seed, escape) = (Guard::Crc, Seed::Zeros, Escape::Never);
    let dif = T10Dif { guard, seed, app_tag, ref_tag, ref_remap: true, escape };
    Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 }
}

/// Configures an mkey that checks a T10-DIF in memory, over a page without a T10-DIF, and posts an RDMA WRITE
/// of the mkey's data. The check fails.
fn send_badly_signed(bench: &mut Bench, page: &Buffer) -> MkeyObject {
    let spec = MkeySpec { max_entries: 4, signature: Some(&bench.cq), ..MkeySpec::default() };
    let mut object = bench.pd.create_mkey(spec).unwrap();
    let entry = KlmEntry { address: page.address(), length: 520, key: page.lkey() };
    let signature = SignatureChange::Set(BlockSignature::memory(t10_dif(1, 2)));
    let config = MkeyConfig { access: Some(Access::LOCAL_WRITE), signature, crypto: None };
    let prepared = PreparedConfig::new(object.mkey.kind(), &config).unwrap();
    bench.queue.request(1).configure_mkey(&mut object.mkey, &prepared, &[entry]).unwrap();
    let remote = Remote { address: page.address() + 1024, rkey: page.rkey() };
    let sge = Sge { address: 0, length: 512, lkey: object.mkey.key() };
    bench.queue.request(2).signaled().rdma_write(remote, &[sge]).unwrap();
    bench.queue.request(3).fenced().signaled().nop().unwrap();
    bench.queue.ring_doorbell();
    object
}

#[test]
fn a_drained_queue_is_told_of() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::draining();
    let events = bench.device.events().unwrap();
    let control = bench.queue.control();
    control.notify(&events, &[EventKind::SQ_DRAINED], 77).unwrap();
    assert_eq!(events.wait(Some(Duration::ZERO)).unwrap(), None);
    let page = page(&bench.pd, &[0x5a; 2048]).unwrap();
    let _mkey = send_badly_signed(&mut bench, &page);
    assert_eq!(next(&events), Event { cookie: 77, kind: EventKind::SQ_DRAINED });
    assert_eq!(bench.queue.control().query().unwrap().state, QpState::SQ_DRAINED);
    assert_eq!(events.wait(MOMENT).unwrap(), None, "told once");
    // Linux cannot resume the queue pair, so the queue pair is reset.
    let refused = bench.queue.control().resume().unwrap_err();
    assert!(matches!(refused, DevxError::KernelRefuses { command: Opcode::SQD_RTS_QP, .. }), "{refused}");
    assert_eq!(bench.queue.control().query().unwrap().state, QpState::SQ_DRAINED, "as it was");
    let outstanding = bench.queue.reset(&mut [&mut bench.completions]).unwrap();
    assert_eq!(outstanding.sends.last(), Some(&3));
    bench.queue.control().connect_loopback().unwrap();
    assert_eq!(bench.queue.control().query().unwrap().state, QpState::RTS);
}

#[test]
fn errors_of_queues_are_told_of() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let events = bench.device.events().unwrap();
    bench.queue.control().notify(&events, &EventKind::QP_ERRORS, u64::MAX).unwrap();
    bench.cq.notify_error(&events, 1).unwrap();
    let page = page(&bench.pd, &[1; 64]).unwrap();
    bench.write(&page, Key::from_raw(0xffff_fe00));
    assert_eq!(next(&events), Event { cookie: u64::MAX, kind: EventKind::QP_ACCESS });
    assert_eq!(bench.queue.control().query().unwrap().state, QpState::ERROR);

    let Bench { device, pd, .. } = bench;
    let mut small = Bench::on(device, QueuePairSpec::default(), 128).unwrap();
    small.cq.notify_error(&events, 2).unwrap();
    verbs::overrun(small.cq.number());
    nop(&mut small.queue, 1);
    assert_eq!(next(&events), Event { cookie: 2, kind: EventKind::CQ_ERROR });

    let (cq, _completions) = small.device.create_cq(128).unwrap();
    let queue: QueuePair = small.device.create_qp(&pd, &cq, &cq, QueuePairSpec::default()).unwrap();
    queue.control().connect_loopback().unwrap();
    queue.control().notify(&events, &EventKind::QP_ERRORS, 3).unwrap();
    verbs::ring_nonsense(queue.control().addresses().record, 1000);
    assert_eq!(next(&events), Event { cookie: 3, kind: EventKind::QP_CATASTROPHIC });
    // The device has no event with this number.
    let refused = queue.control().notify(&events, &[EventKind(0x77)], 4);
    assert_eq!(errno(refused), Some(libc::EINVAL));
    assert_eq!(events.wait(MOMENT).unwrap(), None, "each told once");
}

#[test]
fn an_event_goes_to_one_of_those_who_wait() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::draining();
    let events = Arc::new(bench.device.events().unwrap());
    bench.queue.control().notify(&events, &[EventKind::SQ_DRAINED], 9).unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let events = events.clone();
            std::thread::spawn(move || {
                let mut seen = 0;
                loop {
                    match events.wait(None) {
                        Ok(Some(event)) => seen += event.cookie,
                        Ok(None) => panic!("no time was set"),
                        Err(DevxError::EventsClosed) => return seen,
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    let page = page(&bench.pd, &[0x5a; 2048]).unwrap();
    let _mkey = send_badly_signed(&mut bench, &page);
    while bench.queue.control().query().unwrap().state != QpState::SQ_DRAINED {
        std::thread::yield_now();
    }
    // The event has already arrived, so one thread gets the event before the others see that the channel
    // is closed.
    events.closer().close();
    let seen: u64 = waiting.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(seen, 9, "handed out once");
    assert!(matches!(events.wait(None), Err(DevxError::EventsClosed)), "closed for good");
}

#[test]
fn closing_ends_the_waiting() {
    let Inside = preloaded() else { return };
    let device = Device::open(None).unwrap();
    let events = device.events().unwrap();
    let closer = events.closer();
    drop(device);
    let waiting = std::thread::spawn(move || (events.wait(None).map(drop), events.wait(MOMENT).map(drop)));
    // The result is the same whether or not the thread already waits.
    std::thread::sleep(Duration::from_millis(20));
    closer.close();
    closer.clone().close();
    let (first, second) = waiting.join().unwrap();
    assert!(matches!(first, Err(DevxError::EventsClosed)));
    assert!(matches!(second, Err(DevxError::EventsClosed)));
    assert_eq!(Counts::now(), Counts::NONE);
}

#[test]
fn a_borrowed_context_stays_open() {
    let Inside = preloaded() else { return };
    let opened = Opened::new();
    let before = Counts::now();
    for _ in 0..3 {
        let mut bench = Bench::on(opened.adopt().unwrap(), QueuePairSpec::default(), 128).unwrap();
        let page = page(&bench.pd, &[7; 64]).unwrap();
        bench.write(&page, page.rkey());
        bench.completed();
        assert!(Counts::now().objects > before.objects);
    }
    // All objects are gone, destroyed in an order that the device accepts. The context remains.
    assert_eq!(Counts::now(), before);
    assert!(opened.works());
    opened.close();
    assert_eq!(Counts::now(), Counts::NONE);
}

#[test]
fn queue_pairs_of_one_completion_queue_are_told_apart() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let (cq, mut completions) = device.create_cq(CqSpec::entries_for(3, 64, 16, 0)).unwrap();
    let page = page(&pd, &[7; 64]).unwrap();
    let mut table = QpTable::on_heap(4);
    for _ in 0..3 {
        let user_index = UserIndex::new(table.next_user_index()).unwrap();
        let spec = QueuePairSpec { user_index, ..QueuePairSpec::default() };
        let queue: QueuePair = device.create_qp(&pd, &cq, &cq, spec).unwrap();
        queue.control().connect_loopback().unwrap();
        assert!(table.insert(queue).is_ok());
    }
    let qpns: Vec<_> = table.iter_mut().map(|queue| queue.qpn()).collect();
    let mut completed = |table: &mut QpTable<'_, QueuePair>| {
        let end = Instant::now() + TIMEOUT.unwrap();
        loop {
            if let Some(completion) = completions.poll(&mut table.router(&mut [])) {
                return completion.map(|completion| completion.work().map(|work| (work.qpn, work.id)));
            }
            assert!(Instant::now() < end, "no completion");
        }
    };
    for (id, qpn) in (0..).zip(&qpns) {
        write(table.get_mut(*qpn).unwrap(), id, &page);
        assert_eq!(completed(&mut table), Ok(Some((*qpn, id))));
    }
    // A removed queue pair is unknown. The queue pair that took its place in the table is still found.
    let mut gone = table.remove(qpns[0]).unwrap();
    write(&mut gone, 7, &page);
    assert_eq!(completed(&mut table), Err(CompletionError::UnknownQueuePair { qpn: qpns[0].get() }));
    write(table.get_mut(qpns[2]).unwrap(), 8, &page);
    assert_eq!(completed(&mut table), Ok(Some((qpns[2], 8))));
}

/// Posts an RDMA WRITE of 64 bytes from the start of a page to offset 512, and rings the doorbell.
fn write(queue: &mut QueuePair, id: u64, page: &Buffer) {
    write_by(queue, id, page, page.rkey());
}

/// Posts the request of [`write`] with a given remote key.
fn write_by(queue: &mut QueuePair, id: u64, page: &Buffer, rkey: Key) {
    let remote = Remote { address: page.address() + 512, rkey };
    rdma_write(queue, id, remote, page.sge(0..64).unwrap());
}

/// Posts an RDMA WRITE of one piece of memory, and rings the doorbell.
fn rdma_write(queue: &mut QueuePair, id: u64, remote: Remote, sge: Sge) {
    queue.request(id).signaled().rdma_write(remote, &[sge]).unwrap();
    queue.ring_doorbell();
}

#[test]
fn sizes_that_no_queue_pair_has_are_refused() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let (cq, _completions) = device.create_cq(16).unwrap();
    // For (1 << 28) + 1, the byte count would wrap in 32 bits to the byte count of one entry.
    for entries_per_slot in [0, 3, 1 << 28, (1 << 28) + 1, u32::MAX] {
        let spec = QueuePairSpec { entries_per_slot, ..QueuePairSpec::default() };
        let refused = device.create_qp(&pd, &cq, &cq, spec).map(drop);
        assert!(matches!(refused, Err(DevxError::Queue(_))), "{entries_per_slot}: {refused:?}");
    }
    for (send_blocks, receive_slots) in [(0, 16), (63, 16), (1 << 16, 16), (64, 0), (64, 3), (64, 1 << 16)] {
        let spec = QueuePairSpec { send_blocks, receive_slots, ..QueuePairSpec::default() };
        let refused = device.create_qp(&pd, &cq, &cq, spec).map(drop);
        assert!(matches!(refused, Err(DevxError::Queue(_))), "{spec:?}: {refused:?}");
    }
    assert!(matches!(device.create_cq(3), Err(DevxError::Queue(_))));
}

/// Drops a protection domain before the only object that was made in it. Checks that the domain lives as long
/// as the object.
fn outlives_its_domain<T>(device: &Device, make: impl FnOnce(&ProtectionDomain) -> Outcome<T>) {
    let before = Counts::now();
    let pd = device.alloc_pd().unwrap();
    let made = make(&pd).unwrap();
    let with = Counts::now();
    drop(pd);
    assert_eq!(Counts::now(), with, "the domain is still there");
    drop(made);
    assert_eq!(Counts::now(), before, "and went with what was made in it");
}

#[test]
fn what_is_made_in_a_domain_keeps_it() {
    let Inside = preloaded() else { return };
    let device = Device::open(None).unwrap();
    let (cq, _completions) = device.create_cq(8).unwrap();
    let spec = MkeySpec { max_entries: 4, signature: Some(&cq), crypto: true, ..MkeySpec::default() };
    outlives_its_domain(&device, |pd| pd.create_mkey(spec));
    drop((cq, _completions));
    outlives_its_domain(&device, |pd| pd.create_dek(plain(&PLAIN), *b"disk 003"));
    outlives_its_domain(&device, |pd| page(pd, &[1; 64]));
    outlives_its_domain(&device, |pd| {
        let (cq, _) = device.create_cq(128)?;
        device.create_qp(pd, &cq, &cq, QueuePairSpec::default())
    });
    drop(device);
    assert_eq!(Counts::now(), Counts::NONE);
}

/// An AES-XTS key in plaintext.
const PLAIN: [u8; 64] = {
    let mut key = [7; 64];
    key[63] = 8;
    key
};

/// Returns a key that is imported in plaintext.
fn plain(key: &[u8; 64]) -> DekKey<'_> {
    DekKey::Plain256 { key: XtsKey::new(key).unwrap(), keytag: None }
}

/// Makes a DEK, and drops it. Logs in first if the device imports wrapped keys.
fn load_key(device: &Device, pd: &ProtectionDomain) -> Outcome {
    if device.crypto().key_import() != KeyImport::Wrapped {
        return pd.create_dek(plain(&PLAIN), *b"disk 001").map(drop);
    }
    let credential = factory::wrapped(&factory::CREDENTIAL).unwrap();
    let key = factory::wrapped(&PLAIN).unwrap();
    let login = device.login(
        CredentialId::new(0)?,
        ImportKekId::new(0)?,
        Credential::wrapped(credential.first_chunk().unwrap()),
    )?;
    let dek = pd.create_dek(DekKey::Wrapped256(key.first_chunk().unwrap()), *b"disk 002")?;
    assert_eq!(login.state()?, LoginState::VALID);
    drop((login, dek));
    Ok(())
}

/// Makes one object of each kind, and drops all of them.
fn everything() -> Outcome {
    let device = Device::open(None)?;
    let events = device.events()?;
    let copying = QueuePairSpec { memcpy: true, ..QueuePairSpec::default() };
    let mut bench = Bench::on(device, copying, 256)?;
    bench.completions.channel()?;
    bench.queue.control().notify(&events, &[EventKind::SQ_DRAINED, EventKind::QP_ACCESS], 5)?;
    bench.cq.notify_error(&events, 6)?;
    let page = page(&bench.pd, &[3; 64])?;
    let region = dmabuf::any(&bench.pd)?;
    let spec = MkeySpec { max_entries: 4, signature: Some(&bench.cq), crypto: true, ..MkeySpec::default() };
    let mkey = bench.pd.create_mkey(spec)?;
    load_key(&bench.device, &bench.pd)?;
    assert_ne!(bench.device.gid(1, 0)?, [0; 16]);
    let other: QueuePair =
        bench.device.create_qp(&bench.pd, &bench.cq, &bench.cq, QueuePairSpec::default())?;
    let options = ConnectOptions::default();
    other.control().connect(&other.control().address(&options)?, &options)?;
    bench.queue.control().query()?;
    drop((mkey, page, region, other, bench, events));
    Ok(())
}

/// The planned failures of a call: the errno, and the device's status if the call is a command.
const FAILURES: [(i32, u8); 3] = [(libc::ENOMEM, 0), (libc::EPERM, 0), (libc::EREMOTEIO, 8)];

#[test]
fn a_failure_half_way_leaves_nothing_behind() {
    half_way("plaintext");
}

#[test]
fn a_failure_half_way_leaves_nothing_behind_of_a_login() {
    half_way("wrapped");
}

/// Calls [`everything`] repeatedly: in the first round its first call to the device fails, in the second
/// round its second call, until a round has no failing call. Checks that each failure leaves no object
/// behind.
fn half_way(crypto: &str) {
    let Inside = preloaded_with(&[("MLX5_UVERBS_CRYPTO", crypto)]) else { return };
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // These objects are made before the failures, and must work after each failure.
    let mut other = Bench::new(QueuePairSpec::default()).unwrap();
    let page = page(&other.pd, &[9; 64]).unwrap();
    everything().unwrap();
    let (before, open) = (Counts::now(), descriptors());
    assert_eq!(before.refused, 0);
    for (errno, status) in FAILURES {
        let mut failed = 0;
        for nth in 1.. {
            verbs::fail(nth, errno, status);
            let outcome = everything();
            let reached = verbs::has_failed();
            assert_eq!(Counts::now(), before, "call {nth}, errno {errno}: {outcome:?}");
            assert_eq!(descriptors(), open, "call {nth}, errno {errno}");
            other.write(&page, page.rkey());
            other.completed();
            if let Err(error) = &outcome {
                failed += 1;
                let refused = matches!(error, DevxError::Command(CommandError::Status { .. }));
                let kernel = matches!(error, DevxError::Call { .. } | DevxError::Open { .. });
                assert!(kernel || refused && status != 0, "call {nth}: {error:?}");
            }
            if !reached {
                outcome.unwrap();
                assert!(failed >= 25, "only {failed} of {nth} calls can fail");
                break;
            }
            everything().unwrap();
        }
    }
}

/// Returns the message of the error of `Device::open`.
fn refusal(name: Option<&str>) -> String {
    match Device::open(name) {
        Ok(_) => panic!("it opens"),
        Err(error) => error.to_string(),
    }
}

fn says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "`{message}` does not say `{word}`");
    }
}

/// Checks that a call is refused because the device lacks what `words` name.
fn unsupported<T>(outcome: Outcome<T>, words: &str) {
    match outcome.map(drop) {
        Err(error @ DevxError::Command(CommandError::Unsupported { .. })) => {
            says(&error.to_string(), &["the device has no", words]);
        }
        other => panic!("{other:?}"),
    }
}

const PACKAGES: &str = "libibverbs1 and ibverbs-providers";

/// Makes the loader look for libraries in `directory` first, and preload none.
fn with_libraries(command: &mut Command, directory: &Path) {
    command.env_remove("LD_PRELOAD").env("LD_LIBRARY_PATH", directory);
}

#[test]
fn a_missing_library_is_named() {
    let prepare = |command: &mut Command, directory: &Path| {
        std::fs::write(directory.join("libibverbs.so.1"), "no library").unwrap();
        with_libraries(command, directory);
    };
    let Inside = prepared(prepare) else { return };
    says(&refusal(None), &["cannot load libibverbs.so.1", "Install", PACKAGES]);
}

#[test]
fn a_library_without_a_function_is_named() {
    let prepare = |command: &mut Command, directory: &Path| {
        // A library without the needed functions takes the place of an old libmlx5.
        std::fs::copy(built().join("libmlx5_uverbs.so"), directory.join("libmlx5.so.1")).unwrap();
        with_libraries(command, directory);
    };
    let Inside = prepared(prepare) else { return };
    let message = refusal(None);
    says(&message, &["libmlx5.so.1 is too old", "mlx5dv_is_supported", "version 25 or later", PACKAGES]);
}

#[test]
fn a_function_of_a_later_version_is_missed_where_it_is_called() {
    let prepare = |command: &mut Command, directory: &Path| {
        // The library is the installed one with one changed function name.
        let mut library = std::fs::read(verbs::libibverbs()).unwrap();
        let name = b"\0ibv_reg_dmabuf_mr\0";
        let at = library.windows(name.len()).position(|bytes| bytes == name).unwrap();
        library[at + 1] = b'x';
        std::fs::write(directory.join("libibverbs.so.1"), library).unwrap();
        command.env("LD_LIBRARY_PATH", directory);
    };
    let Inside = prepared(prepare) else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let refused = match dmabuf::any(&bench.pd) {
        Err(error @ DevxError::Library(_)) => error.to_string(),
        other => panic!("{:?}", other.map(drop)),
    };
    says(&refused, &["libibverbs.so.1 is too old", "ibv_reg_dmabuf_mr", "version 34 or later", PACKAGES]);
    // All other functions work.
    let page = page(&bench.pd, &[9; 64]).unwrap();
    bench.write(&page, page.rkey());
    bench.completed();
}

#[test]
fn a_machine_without_a_device_is_told_of() {
    // A directory without devices replaces the kernel's list, so that the devices of this machine do not
    // matter.
    let no_devices = [("SYSFS_PATH", "/proc/self/fdinfo")];
    let Inside = preloaded_with(&no_devices) else { return };
    says(&refusal(None), &["no mlx5 device; the kernel shows no RDMA device at all", "mlx5_ib"]);
    says(&refusal(Some("mlx5_3")), &["no mlx5 device named mlx5_3"]);
}

#[test]
fn a_device_that_cannot_be_opened_says_what_it_takes() {
    let Inside = preloaded() else { return };
    says(&refusal(Some("mlx5_3")), &["no mlx5 device named mlx5_3", "there are: mlx5_0"]);
    for (nth, errno, words) in [
        (1, libc::EACCES, ["read and write access", "/dev/infiniband"]),
        (2, libc::EINVAL, ["firmware", "CONFIG_INFINIBAND_USER_ACCESS"]),
        (2, libc::ENOMEM, ["ulimit -n", "used up"]),
        (2, libc::EIO, ["kernel's log", "reset"]),
    ] {
        verbs::fail(nth, errno, 0);
        says(&refusal(Some("mlx5_0")), &["cannot open mlx5_0 for DEVX", words[0], words[1]]);
        assert!(verbs::has_failed());
    }
    Device::open(Some("mlx5_0")).unwrap();
}

#[test]
fn a_device_that_lacks_something_says_what() {
    for crypto in ["none", "plaintext", "wrapped"] {
        let variables =
            [("MLX5_UVERBS_CRYPTO", crypto), ("MLX5_UVERBS_DRAIN", "no"), ("MLX5_UVERBS_MEMCPY", "no")];
        let Inside = preloaded_with(&variables) else { continue };
        lacking();
    }
}

/// Requests features that the device lacks, and checks the error messages.
fn lacking() {
    let crypto = std::env::var("MLX5_UVERBS_CRYPTO").unwrap();
    let (device, pd) = device_and_domain();
    let can = if crypto == "none" { "no AES-XTS" } else { "; AES-XTS, any number of data units per mkey; " };
    says(&device.to_string(), &["signatures T10-DIF, CRC32, CRC32C, CRC64-XP10", can]);
    let (cq, _completions) = device.create_cq(128).unwrap();
    let with = |spec| device.create_qp(&pd, &cq, &cq, spec);
    unsupported(with(draining()), "draining on signature errors");
    let copying = QueuePairSpec { memcpy: true, ..QueuePairSpec::default() };
    unsupported(with(copying), "copies in memory");
    let mut queue = with(QueuePairSpec::default()).unwrap();
    assert_eq!(queue.control().query().unwrap().state, QpState::INIT);
    let place = Local { address: 0, lkey: Key::default() };
    assert_eq!(queue.request(1).memcpy(place, place, 1), Err(PostError::MemcpyUnsupported));
    let plain = pd.create_dek(plain(&PLAIN), [0; 8]).map(drop);
    let wrapped = pd.create_dek(DekKey::Wrapped128(&[1; 40]), [0; 8]).map(drop);
    let (id, kek) = (CredentialId::new(0).unwrap(), ImportKekId::new(0).unwrap());
    let login = device.login(id, kek, Credential::wrapped(&[1; 48])).map(drop);
    match crypto.as_str() {
        "none" => {
            unsupported(plain, "keys for AES-XTS");
            unsupported(wrapped, "keys for AES-XTS");
            unsupported(login, "logins");
            let spec = MkeySpec { max_entries: 4, crypto: true, ..MkeySpec::default() };
            unsupported(pd.create_mkey(spec), "AES-XTS");
        }
        "plaintext" => {
            plain.unwrap();
            unsupported(wrapped, "wrapped keys: it is not commissioned");
            unsupported(login, "logins: it is not commissioned");
        }
        _ => {
            unsupported(plain, "plaintext keys: it is commissioned");
            // The login is not valid, because it presents a wrong credential.
            login.unwrap();
            let refused = wrapped.unwrap_err().to_string();
            says(&refused, &["CREATE_GENERAL_OBJECT refused", "syndrome"]);
        }
    }
    assert_eq!(Counts::now().refused, 0);
}
