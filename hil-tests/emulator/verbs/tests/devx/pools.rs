//! Tests of mkeys that share PSVs, of mkeys that threads share, and of pools of memory windows.

use super::{
    Bench, Counts, Inside, TIMEOUT, device_and_domain, next_work, nop, page, preloaded, rdma_write, t10_dif,
    verbs,
};
use mlx5_mkey::devx::{
    Buffer, CqReader, Device, DevxError, MkeyCache, MkeySpec, MkeyStore, ProtectionDomain, QueuePair,
    QueuePairSpec,
};
use mlx5_mkey::error::{ConfigError, PoolError, PostError};
use mlx5_mkey::mkey::{Access, BlockSignature, Mkey, MkeyConfig, SignatureChange};
use mlx5_mkey::queue::{
    Completion, MkeyPool, Outcome as Done, PoolSlot, PooledMkey, QpRouter, WindowPool, WorkCompletion,
};
use mlx5_mkey::types::{Key, MkeyIndex};
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// The offset in a page of a block without a T10-DIF.
const PLAIN: usize = 0;
/// The offset in a page of the same block with its T10-DIF.
const SIGNED: usize = 1024;
/// The offset in a page at which the second write of a round stores the block. The device has then checked
/// the T10-DIF and replaced it by one with another reference tag.
const FOUND: usize = 2048;

/// Configures the mkey at `position` over the block at offset `from`, with `signature`, and writes the data
/// through the mkey to offset `to`. If there is a signature error, returns the position of its mkey, and the
/// number of the block.
fn pass(
    bench: &mut Bench,
    mkeys: &mut [Mkey],
    position: usize,
    page: &Buffer,
    signature: BlockSignature,
    (from, to): (usize, usize),
) -> Option<(usize, u64)> {
    let signature = SignatureChange::Set(signature);
    let config = MkeyConfig { access: Some(Access::ALL), signature, crypto: None };
    let prepared = PreparedConfig::new(mkeys[position].kind(), &config).unwrap();
    let bytes = if from == SIGNED { 520 } else { 512 };
    let Bench { queue, completions, .. } = bench;
    let layout = [page.entry(from..from + bytes).unwrap()];
    queue.request(1).configure_mkey(&mut mkeys[position], &prepared, &layout).unwrap();
    let remote = Remote { address: page.address() + to as u64, rkey: page.rkey() };
    let sge = Sge { address: 0, length: 520, lkey: mkeys[position].key() };
    rdma_write(queue, 2, remote, sge);
    let mut router = QpRouter { queues: &mut *queue, mkeys };
    let mut error = None;
    loop {
        match completions.wait(&mut router, TIMEOUT).unwrap().expect("a completion") {
            Completion::Work(work) => {
                assert!(matches!(work.outcome, Done::Sent { .. }), "{work:?}");
                return error;
            }
            Completion::SignatureError { position, .. } => {
                assert_eq!(error, None, "one error");
                error = Some((position, router.mkeys[position].take_error().unwrap().unwrap().block_index()));
            }
        }
    }
}

/// Adds a T10-DIF to a block through an mkey, and changes a byte of the block if `corrupt` is set. Then the
/// device checks and replaces the T10-DIF. Returns the signature error as [`pass`] does.
fn round(
    bench: &mut Bench,
    mkeys: &mut [Mkey],
    position: usize,
    page: &mut Buffer,
    corrupt: bool,
) -> Option<(usize, u64)> {
    let [of_memory, of_wire] = [0x1000, 0x2000].map(|base| t10_dif(0xf11e, base + position as u32));
    assert_eq!(pass(bench, mkeys, position, page, BlockSignature::wire(of_memory), (PLAIN, SIGNED)), None);
    page.write(FOUND, &[0; 520]).unwrap();
    if corrupt {
        page.write(SIGNED + 7, &[0xee]).unwrap();
    }
    let replaced = BlockSignature::both(of_memory, of_wire);
    let error = pass(bench, mkeys, position, page, replaced, (SIGNED, FOUND));
    for (at, base) in [(SIGNED, 0x10), (FOUND, 0x20)] {
        let mut tags = [0; 6];
        page.read(at + 514, &mut tags).unwrap();
        assert_eq!(tags, [0xf1, 0x1e, 0, 0, base, position as u8], "those of this mkey");
    }
    let [mut sent, mut found] = [[0; 512]; 2];
    page.read(PLAIN, &mut sent).unwrap();
    page.read(FOUND, &mut found).unwrap();
    assert_eq!(sent != found, corrupt);
    error
}

/// Returns a queue pair whose completion queue has a channel, a page with a block of data, and the counts of
/// objects afterwards.
fn begin() -> (Bench, Buffer, Counts) {
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let page = page(&bench.pd, &[0x5a; 512]).unwrap();
    bench.completions.channel().unwrap();
    (bench, page, Counts::now())
}

fn signed(bench: &Bench) -> MkeySpec<'_> {
    MkeySpec { max_entries: 4, signature: Some(&bench.cq), ..MkeySpec::default() }
}

#[test]
fn mkeys_of_one_pair_of_psvs_are_used_in_turn() {
    let Inside = preloaded() else { return };
    let (mut bench, mut page, before) = begin();
    let psvs = bench.pd.create_psvs().unwrap();
    let mut mkeys = psvs.create_mkeys(4, signed(&bench)).unwrap();
    assert_eq!(Counts::now().objects - before.objects, 2 + 4);
    let positions = [0, 1, 2, 3, 2, 1, 1, 0];
    for (number, &position) in positions.iter().enumerate() {
        // Rounds 2 and 3 both have an error: PSVs that are set again after an error must also report the
        // next error.
        let corrupt = [2, 3, 6].contains(&number);
        let named = round(&mut bench, &mut mkeys, position, &mut page, corrupt);
        assert_eq!(named, corrupt.then_some((position, 0)), "round {number}");
    }
    // The PSVs exist as long as an mkey uses them.
    drop(psvs);
    assert_eq!(Counts::now().objects - before.objects, 2 + 4);
    assert_eq!(round(&mut bench, &mut mkeys, 3, &mut page, false), None);
    drop(mkeys);
    assert_eq!(Counts::now(), before);
    let psvs = bench.pd.create_psvs().unwrap();
    drop(psvs.create_mkeys(4, signed(&bench)).unwrap());
    assert_eq!(Counts::now().objects - before.objects, 2);
    drop(psvs);
    assert_eq!(Counts::now(), before);
    // Without shared PSVs, each mkey has PSVs of its own.
    let own = bench.pd.create_mkeys(4, signed(&bench)).unwrap();
    assert_eq!(Counts::now().objects - before.objects, 4 * 3);
    drop(own);
    // PSVs keep their protection domain alive.
    let pd = bench.device.alloc_pd().unwrap();
    let psvs = pd.create_psvs().unwrap();
    let with = Counts::now();
    drop(pd);
    assert_eq!(Counts::now(), with);
    drop(psvs);
    assert_eq!(Counts::now(), before);
}

/// The completion of a signature error names the position of the mkey in its pool or cache, also after two
/// caches have exchanged their mkeys.
#[test]
fn errors_of_mkeys_in_pools_and_caches_are_named() {
    let Inside = preloaded() else { return };
    let (mut bench, mut page, before) = begin();
    let psvs = bench.pd.create_psvs().unwrap();
    let (mkeys, handles) = psvs.create_mkeys(4, signed(&bench)).unwrap().into_parts();
    let mut pool = MkeyPool::new(mkeys, vec![PoolSlot::EMPTY; 4]).unwrap();
    let mut positions = HashSet::new();
    for number in 0..8 {
        let in_use: Vec<_> = (0..number % 4).map(|_| pool.take().unwrap().0).collect();
        let (handle, _) = pool.take().unwrap();
        let corrupt = number % 3 == 1;
        let named = round(&mut bench, pool.mkeys(), handle.position(), &mut page, corrupt);
        assert_eq!(named, corrupt.then_some((handle.position(), 0)), "round {number}");
        positions.insert(handle.position());
        in_use.into_iter().chain([handle]).for_each(|handle| pool.put_unused(handle).unwrap());
    }
    assert_eq!(positions.len(), 4);
    drop((pool, handles, psvs));
    assert_eq!(Counts::now(), before);
    // Two caches with one completion queue take mkeys in turn, so that each cache gets mkeys that were in
    // the other cache before.
    let store = MkeyStore::new(&bench.pd, 2, signed(&bench)).unwrap();
    let mut caches = [cache(&store), cache(&store)];
    for number in 0..12 {
        let cache = &mut caches[number % 2];
        let kept = (number % 4 > 1).then(|| cache.take().unwrap().0);
        let (handle, _) = cache.take().unwrap();
        let corrupt = number % 3 == 1;
        let named = round(&mut bench, cache.mkeys(), handle.position(), &mut page, corrupt);
        assert_eq!(named, corrupt.then_some((handle.position(), 0)), "round {number}");
        kept.into_iter().chain([handle]).for_each(|handle| cache.put_unused(handle).unwrap());
        cache.give_back();
        assert_eq!(store.available(), 2);
    }
    drop((caches, store));
    assert_eq!(Counts::now(), before);
}

#[test]
fn refused_pools_leave_nothing_behind() {
    let Inside = preloaded() else { return };
    let bench = Bench::new(QueuePairSpec::default()).unwrap();
    let before = Counts::now();
    for nth in [1, 2] {
        verbs::fail(nth, libc::ENOMEM, 0);
        assert!(bench.pd.create_psvs().is_err());
        assert!(verbs::has_failed());
        assert_eq!(Counts::now(), before);
    }
    let psvs = bench.pd.create_psvs().unwrap();
    let with = Counts::now();
    for nth in [1, 3] {
        verbs::fail(nth, libc::EREMOTEIO, 8);
        assert!(matches!(psvs.create_mkeys(4, signed(&bench)), Err(DevxError::Command(_))));
        assert!(verbs::has_failed());
        assert_eq!(Counts::now(), with);
    }
    // The failing call creates the second PSV of the second mkey.
    verbs::fail(5, libc::ENOMEM, 0);
    assert!(MkeyStore::new(&bench.pd, 4, signed(&bench)).is_err());
    assert!(verbs::has_failed());
    assert_eq!(Counts::now(), with);
    drop(psvs);
    assert_eq!(Counts::now(), before);
}

/// The number of mkeys in a store that threads share.
const MKEYS: usize = 6;
/// Returns a cache of at most four mkeys.
fn cache(store: &MkeyStore) -> MkeyCache {
    MkeyCache::new(store, 4)
}

fn store(pd: &ProtectionDomain) -> MkeyStore {
    let spec = MkeySpec { max_entries: 4, update_tag: true, ..MkeySpec::default() };
    MkeyStore::new(pd, MKEYS, spec).unwrap()
}

fn prepared(store: &MkeyStore) -> PreparedConfig {
    let config = MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED };
    PreparedConfig::new(store.kind().unwrap(), &config).unwrap()
}

/// The objects that each thread has for itself.
struct Worker {
    queue: QueuePair,
    completions: CqReader,
    page: Buffer,
    mkeys: MkeyCache,
    prepared: PreparedConfig,
}

impl Worker {
    fn new(device: &Device, pd: &ProtectionDomain, store: &MkeyStore) -> Self {
        let (cq, completions) = device.create_cq(128).unwrap();
        let queue: QueuePair = device.create_qp(pd, &cq, &cq, QueuePairSpec::default()).unwrap();
        queue.control().connect_loopback().unwrap();
        let page = page(pd, &[0; 64]).unwrap();
        Self { queue, completions, page, mkeys: cache(store), prepared: prepared(store) }
    }

    /// Takes an mkey from the cache, and configures it over 64 bytes of the page.
    fn begin(&mut self, from: usize) -> Option<PooledMkey> {
        let (handle, mkey) = self.mkeys.take()?;
        let layout = [self.page.entry(from..from + 64).unwrap()];
        self.queue.request(1).configure_mkey(mkey, &self.prepared, &layout).unwrap();
        Some(handle)
    }

    fn key(&mut self, handle: PooledMkey) -> Key {
        self.mkeys.get_mut(handle).unwrap().key()
    }

    /// Posts an RDMA WRITE of 64 bytes of the page to the start of the space of `rkey`.
    fn write(&mut self, from: usize, rkey: Key) {
        let remote = Remote { address: 0, rkey };
        let sge = self.page.sge(from..from + 64).unwrap();
        self.queue.request(2).signaled().rdma_write(remote, &[sge]).unwrap();
    }

    fn invalidate(&mut self, handle: PooledMkey) {
        self.mkeys.invalidate(handle, self.queue.request(3).signaled()).unwrap();
    }

    /// Rings the doorbell, and takes completions up to the completion with this id. Returns whether all of
    /// them were without an error.
    fn completed(&mut self, id: u64) -> bool {
        let completions = self.completions_to(id);
        completions.iter().all(|work| matches!(work.outcome, Done::Sent { .. }))
    }

    /// Rings the doorbell, and takes completions up to the completion with this id.
    fn completions_to(&mut self, id: u64) -> Vec<WorkCompletion> {
        self.queue.ring_doorbell();
        let mut taken = Vec::new();
        while taken.last().is_none_or(|work: &WorkCompletion| work.id != id) {
            let mut router = QpRouter { queues: &mut self.queue, mkeys: self.mkeys.mkeys() };
            let completion = self.completions.wait(&mut router, TIMEOUT).unwrap().expect("a completion");
            taken.push(completion.work().unwrap());
        }
        taken
    }

    /// Waits until the mkey's invalidation has completed, and puts the mkey back.
    fn put(&mut self, handle: PooledMkey) {
        let completions = self.completions_to(3);
        self.mkeys.put(handle, completions.last().unwrap()).unwrap();
    }

    /// Reads 64 bytes by an RDMA READ with `rkey`. Returns whether the key permits the READ.
    fn reads(&mut self, rkey: Key) -> bool {
        self.page.write(1024, &[0; 64]).unwrap();
        let sge = self.page.sge(1024..1088).unwrap();
        self.queue.request(2).signaled().rdma_read(Remote { address: 0, rkey }, &[sge]).unwrap();
        let may = self.completed(2);
        let mut found = [0; 64];
        self.page.read(1024, &mut found).unwrap();
        assert_eq!(found == [7; 64], may);
        may
    }

    /// Resets and reconnects the queue pair.
    fn reconnect(&mut self) {
        self.queue.reset(&mut [&mut self.completions]).unwrap();
        self.queue.control().connect_loopback().unwrap();
    }

    /// Uses an mkey once, from configuration to return. Returns its key.
    fn use_one(&mut self) -> Key {
        let handle = self.begin(0).unwrap();
        let key = self.key(handle);
        self.write(1024, key);
        assert!(self.completed(2));
        self.invalidate(handle);
        self.put(handle);
        key
    }
}

#[test]
fn threads_exchange_mkeys() {
    let Inside = preloaded() else { return };
    const ROUNDS: usize = 2000;
    let (device, pd) = device_and_domain();
    let empty = Counts::now();
    let store = store(&pd);
    let with_store = Counts::now();
    assert_eq!(with_store.objects - empty.objects, MKEYS as u64);
    // `in_use` has the mkeys in use. `used` counts how often each thread has used each mkey.
    let in_use = Mutex::new(HashSet::<MkeyIndex>::new());
    let used = Mutex::new(HashMap::<MkeyIndex, [usize; 2]>::new());
    std::thread::scope(|threads| {
        for thread in 0..2 {
            let mut worker = Worker::new(&device, &pd, &store);
            let (in_use, used) = (&in_use, &used);
            threads.spawn(move || {
                for number in 0..ROUNDS {
                    // Each thread takes at most three mkeys at a time, so that the other thread also gets
                    // some.
                    let count = 1 + number % 3;
                    let handles: Vec<_> = (0..count).filter_map(|at| worker.begin(at * 64)).collect();
                    for (at, &handle) in handles.iter().enumerate() {
                        let key = worker.key(handle);
                        assert!(in_use.lock().unwrap().insert(key.index()), "given twice");
                        used.lock().unwrap().entry(key.index()).or_default()[thread] += 1;
                        let byte = (number * 2 + thread + at * 7) as u8;
                        worker.page.write(1024 + at * 64, &[byte; 64]).unwrap();
                        worker.write(1024 + at * 64, key);
                    }
                    let indices: Vec<_> = handles.iter().map(|handle| worker.key(*handle).index()).collect();
                    handles.iter().for_each(|handle| worker.invalidate(*handle));
                    let completions: Vec<_> = handles.iter().flat_map(|_| worker.completions_to(3)).collect();
                    let last = *completions.last().unwrap();
                    assert!(matches!(last.outcome, Done::Sent { .. }), "round {number}");
                    for (at, index) in indices.iter().enumerate() {
                        let byte = (number * 2 + thread + at * 7) as u8;
                        let mut found = [0; 64];
                        worker.page.read(at * 64, &mut found).unwrap();
                        assert_eq!(found, [byte; 64], "round {number}: through its own mkey");
                        assert!(in_use.lock().unwrap().remove(index));
                    }
                    handles.iter().for_each(|mkey| worker.mkeys.put(*mkey, &last).unwrap());
                    if number % 16 == 0 {
                        worker.mkeys.give_back();
                    }
                }
            });
        }
    });
    assert_eq!((store.available(), in_use.lock().unwrap().len()), (MKEYS, 0), "none is lost");
    let used = used.lock().unwrap();
    assert!(used.len() <= MKEYS && used.values().any(|by| by.iter().all(|times| *times > 0)), "{used:?}");
    assert_eq!(Counts::now(), with_store);
    drop(store);
    assert_eq!(Counts::now(), empty);
}

#[test]
fn no_peer_reaches_what_another_thread_took() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let spec = MkeySpec { max_entries: 4, update_tag: true, ..MkeySpec::default() };
    let store = MkeyStore::new(&pd, 1, spec).unwrap();
    let mut workers = [0, 1].map(|_| Worker::new(&device, &pd, &store));
    let mut peer = Worker::new(&device, &pd, &store);
    let mut known = Vec::new();
    for round in 0..4 {
        let worker = &mut workers[round % 2];
        worker.page.write(0, &[7; 64]).unwrap();
        let handle = worker.begin(0).unwrap();
        let key = worker.key(handle);
        assert!(!known.contains(&key));
        // The keys of earlier uses must be refused while the mkey is in use again.
        for old in &known {
            refuses(&mut peer, *old);
        }
        let worker = &mut workers[round % 2];
        worker.invalidate(handle);
        worker.put(handle);
        worker.mkeys.give_back();
        assert_eq!(store.available(), 1);
        known.push(key);
        refuses(&mut peer, key);
        let mut found = [0; 64];
        workers[round % 2].page.read(0, &mut found).unwrap();
        assert_eq!(found, [7; 64]);
    }
    assert!(known.iter().all(|key| key.index() == known[0].index()), "one mkey all the time");
}

/// Checks that the peer cannot write with the key, and reconnects the peer, which the refusal has stopped.
fn refuses(peer: &mut Worker, key: Key) {
    peer.write(1024, key);
    assert!(!peer.completed(2), "{key}");
    peer.reconnect();
}

#[test]
fn a_cache_keeps_what_is_in_use() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let store = store(&pd);
    let with_store = Counts::now();
    let mut one = Worker::new(&device, &pd, &store);
    let mut other = Worker::new(&device, &pd, &store);
    let with_all = Counts::now();
    let handles: Vec<_> = std::iter::from_fn(|| one.begin(0)).collect();
    assert_eq!((handles.len(), store.available()), (4, 2), "as many as the cache takes");
    let keys: Vec<_> = handles.iter().map(|handle| one.key(*handle)).collect();
    let positions: Vec<_> = handles.iter().map(|handle| handle.position()).collect();
    assert_eq!(positions.iter().map(|at| one.mkeys.mkeys()[*at].key()).collect::<Vec<_>>(), keys);
    // A cache refuses the handle of another cache, even if it has an mkey of its own at the same position.
    let kept = other.mkeys.take().unwrap().0;
    assert_eq!(kept.position(), positions[0]);
    let [first, second, third, fourth] = <[_; 4]>::try_from(handles).unwrap_or_else(|_| panic!());
    assert!(other.mkeys.get_mut(first).is_none());
    let outstanding = other.queue.outstanding();
    let refused = other.mkeys.invalidate(first, other.queue.request(1));
    assert_eq!(refused, Err(PoolError::OtherPool.into()));
    assert_eq!(other.queue.outstanding(), outstanding);
    assert_eq!(other.mkeys.put_unused(first), Err(PoolError::OtherPool));
    other.mkeys.put_unused(kept).unwrap();
    other.mkeys.give_back();
    one.mkeys.give_back();
    assert_eq!(store.available(), 2, "its key is in service");
    // If the send queue has no room for the invalidation, the mkey stays in use.
    one.queue.ring_doorbell();
    while one.queue.request(4).nop().is_ok() {}
    let refused = one.mkeys.invalidate(second, one.queue.request(3));
    assert!(matches!(refused, Err(PostError::SendRingFull { .. })));
    one.queue.control().fail().unwrap();
    one.reconnect();
    // An invalidation that was not executed can be posted again.
    one.mkeys.invalidate(second, one.queue.request(3)).unwrap();
    one.reconnect();
    one.invalidate(second);
    one.put(second);
    one.mkeys.give_back();
    assert_eq!(store.available(), 3);
    // The mkeys in use have kept their positions.
    for (handle, at) in [(third, 2), (fourth, 3)] {
        assert_eq!((one.key(handle), handle.position()), (keys[at], positions[at]));
        assert_eq!(one.mkeys.mkeys()[positions[at]].key(), keys[at]);
    }
    // Other caches can use an mkey that was put back unused.
    let (unused, mkey) = one.mkeys.take().unwrap();
    let index = mkey.key().index();
    one.mkeys.put_unused(unused).unwrap();
    one.mkeys.give_back();
    // The store's other mkeys were returned earlier, so the store hands them out first.
    let use_another = |_| {
        other.mkeys.give_back();
        other.use_one().index()
    };
    let others: Vec<_> = (0..3).map(use_another).collect();
    assert_eq!(others.last(), Some(&index), "what came back first is fetched first: {others:?}");
    assert!(one.mkeys.in_use().eq([first, third, fourth]), "also those that nobody asks for");
    drop(one);
    assert_eq!(store.available(), 2, "one is in the other cache, and three are gone");
    drop(other);
    assert_eq!(store.available(), 3);
    let destroyed = with_store.objects - Counts::now().objects;
    assert_eq!((destroyed, with_all.refused, Counts::now().refused), (3, 0, 0));
    let mut last = cache(&store);
    drop(store);
    assert_eq!(std::iter::from_fn(|| last.take().map(drop)).count(), 3, "a cache keeps the store");
}

/// A queue pair has two completion queues, and an error in received data arrives at the queue that the mkey
/// was not made for. The router of the poll that finds the error does not have the mkey. A later check of the
/// mkey reports the error, at either queue.
#[test]
fn an_error_at_the_other_completion_queue_is_told() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let (send_cq, mut sends) = device.create_cq(128).unwrap();
    let (receive_cq, mut receives) = device.create_cq(128).unwrap();
    let spec = QueuePairSpec::default();
    let mut queue: QueuePair = device.create_qp(&pd, &send_cq, &receive_cq, spec).unwrap();
    queue.control().connect_loopback().unwrap();
    verbs::reuse_numbers();
    let page = page(&pd, &[0x5a; 2048]).unwrap();
    let spec = MkeySpec { max_entries: 4, signature: Some(&send_cq), ..MkeySpec::default() };
    let mut object = pd.create_mkey(spec).unwrap();
    let signature = SignatureChange::Set(BlockSignature::wire(t10_dif(0xf11e, 1)));
    let config = MkeyConfig { access: Some(Access::LOCAL_WRITE), signature, crypto: None };
    let prepared = PreparedConfig::new(object.mkey.kind(), &config).unwrap();
    let index = object.mkey.key().index();
    // Receives 520 bytes without a valid T10-DIF, and checks them. Neither router has the mkey.
    let mut receive = |mkey: &mut Mkey, sends: &mut CqReader, receives: &mut CqReader| {
        let place = [page.entry(1024..1536).unwrap()];
        queue.request(1).configure_mkey(mkey, &prepared, &place).unwrap();
        nop(&mut queue, 2);
        assert_eq!(next_work(sends, &mut queue).id, 2);
        let sge = Sge { address: 0, length: 520, lkey: mkey.key() };
        queue.post_receive(7, &[sge]).unwrap();
        queue.publish_receives();
        queue.request(3).signaled().send(&[page.sge(0..520).unwrap()]).unwrap();
        queue.ring_doorbell();
        assert_eq!(next_work(sends, &mut queue).id, 3);
        let mut router = QpRouter { queues: &mut queue, mkeys: &mut [] };
        let unknown = receives.wait(&mut router, TIMEOUT).unwrap_err().to_string();
        assert!(unknown.contains("mkey"), "{unknown}");
        assert_eq!(next_work(receives, &mut queue).id, 7);
    };
    for reader in [0, 1] {
        receive(&mut object.mkey, &mut sends, &mut receives);
        assert_eq!(object.mkey.take_error(), Ok(None), "nobody has told it");
        let asked = if reader == 0 { &mut sends } else { &mut receives };
        let wrong = asked.check(&mut object.mkey).unwrap().expect("an error");
        assert_eq!(wrong.block_index(), 0);
        assert_eq!((sends.check(&mut object.mkey), receives.check(&mut object.mkey)), (Ok(None), Ok(None)));
    }
    // Another mkey of the same number gets none of these errors.
    receive(&mut object.mkey, &mut sends, &mut receives);
    drop(object);
    assert_eq!(sends.take_entry(), None);
    let mut others = pd.create_mkeys(4, spec).unwrap();
    assert!(others.iter().all(|mkey| mkey.key().index() != index), "entries may still be there");
    sends.check(&mut others[0]).unwrap();
    let mut others = pd.create_mkeys(4, spec).unwrap();
    let other = others.iter_mut().find(|mkey| mkey.key().index() == index).expect("the same number");
    assert_eq!(sends.check(other), Ok(None));
}

/// A flushed LOCAL_INV revokes no key. A memory window is free only after the LOCAL_INV was executed, and
/// from then on the device refuses the peer.
#[test]
fn a_revocation_is_done_when_it_was_executed() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let store = store(&pd);
    let mut worker = Worker::new(&device, &pd, &store);
    let mut other = Worker::new(&device, &pd, &store);
    worker.page.write(0, &[7; 64]).unwrap();
    let (windows, handles) = pd.create_windows(1).unwrap();
    let mut pool = WindowPool::new(windows, vec![PoolSlot::EMPTY; 1]).unwrap();
    let (handle, window) = pool.take().unwrap();
    let range = worker.page.entry(0..64).unwrap();
    worker.queue.request(1).signaled().bind_window(window, range, Access::REMOTE_READ, 0).unwrap();
    let key = window.key();
    assert!(worker.completed(1));
    assert!(worker.reads(key));
    let qpn = worker.queue.qpn().get();
    let refused = pool.invalidate(handle, other.queue.request(3));
    assert_eq!(refused, Err(ConfigError::WindowOfOtherQueuePair { qpn }.into()));
    assert_eq!(other.queue.outstanding(), 0, "nothing is posted");
    // The queue pair fails before it executes the revocation.
    worker.write(0, Key::from_raw(0));
    pool.invalidate(handle, worker.queue.request(3).signaled()).unwrap();
    let completions = worker.completions_to(3);
    let flushed = completions.last().unwrap();
    assert!(matches!(flushed.outcome, Done::Failed(why) if why.syndrome == Syndrome::FLUSHED));
    assert_eq!(pool.put(handle, flushed), Err(PoolError::KeyInService));
    worker.reconnect();
    assert!(worker.reads(key), "the key is in service");
    // A reset discards the revocation before the device executes it.
    pool.invalidate(handle, worker.queue.request(3).signaled()).unwrap();
    worker.reconnect();
    assert!(worker.reads(key), "the key is in service");
    assert_eq!((pool.put_unused(handle), pool.available()), (Err(PoolError::KeyInService), 0));
    pool.invalidate(handle, worker.queue.request(3).signaled()).unwrap();
    let completions = worker.completions_to(3);
    assert!(!worker.reads(key), "the peer is refused before the window is free");
    worker.reconnect();
    assert_eq!((pool.available(), pool.put(handle, completions.last().unwrap())), (0, Ok(())));
    // The memory window can be used again like a new one.
    let (handle, window) = pool.take().unwrap();
    worker.queue.request(1).signaled().bind_window(window, range, Access::REMOTE_READ, 0).unwrap();
    let again = window.key();
    assert!(worker.completed(1) && worker.reads(again));
    assert_eq!(pool.in_use().next(), Some(handle));
    drop(handles);
}
