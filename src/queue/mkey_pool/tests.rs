use super::*;
use crate::mkey::{Access, KlmEntry, SignatureAttributes, SignatureFault};
use crate::queue::{
    CompletionQueue, CqDoorbellRecord, Doorbell, DoorbellRecord, Failure, LastRequest, Message, Outcome,
    RequestKind, RequestNumber, SendQueue, SendQueueConfig, SendSlot,
};
use crate::types::{PsvIndex, Qpn};
use crate::wire::Wqebb;
use crate::wire::cqe::{Cqe, CqeOpcode, OpOwn, Syndrome};
use crate::wqe::PreparedConfig;
use std::collections::HashSet;
use std::vec;
use std::vec::Vec as List;
use zerocopy::byteorder::big_endian::{U16, U32};

struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: &LastRequest<'_>) {}
}

const QPN: Qpn = Qpn::from_low_bits(0x77);

/// Returns the successful completion of the request with this number. All requests have the same name
/// (`wr_id`), so that a pool can recognize a request only by its number.
fn sent(number: RequestNumber) -> WorkCompletion {
    let outcome = Outcome::Sent { kind: RequestKind::LocalInvalidate, bytes: 0 };
    WorkCompletion { id: 1, qpn: QPN, number, outcome }
}

/// Returns the number that the next request of a queue will have.
fn next_number(queue: &mut SendQueue<'_, Silent>) -> RequestNumber {
    queue.request(1).number()
}

fn plain(index: u32) -> Mkey {
    Mkey::new(MkeyAttributes::plain(Key::from_raw(index << 8), 4))
}

fn tagged(index: u32) -> Mkey {
    let attributes = MkeyAttributes::plain(Key::from_raw(index << 8), 4);
    Mkey::new(MkeyAttributes { tag_update: true, ..attributes })
}

/// Returns the send queue of queue pair [`QPN`] over this ring.
fn queue_of<'r>(ring: &'r mut [Wqebb], record: &'r DoorbellRecord) -> SendQueue<'r, Silent> {
    let slots = SendSlot::leaked(ring.len());
    SendQueue::new(SendQueueConfig::new(QPN), ring, slots, record, Silent).unwrap()
}

/// Returns a pool of these mkeys, whose number is known at run time.
fn pool_of(mkeys: impl IntoIterator<Item = Mkey>) -> MkeyPool<'static> {
    let mkeys: List<_> = mkeys.into_iter().collect();
    let slots = vec![PoolSlot::EMPTY; mkeys.len()];
    MkeyPool::new(mkeys.leak(), slots.leak()).unwrap()
}

#[test]
fn an_mkey_is_in_use_or_not() {
    let mut mkeys = [tagged(1), plain(2), plain(3)];
    let too_many = MkeyPool::new(&mut mkeys, &mut [PoolSlot::EMPTY; 2]).map(drop);
    assert_eq!(
        too_many,
        Err(QueueError::TooFewSlots { what: "slots of a pool", needed: 3, slots: 2 }),
        "none is left out"
    );
    let mut pool = pool_of([tagged(1), plain(2)]);
    assert_eq!((pool.available(), pool.mkeys().len()), (2, 2));
    let (tagged, mkey) = pool.take().unwrap();
    assert_eq!((tagged.position(), mkey.key().get()), (0, 0x101));
    let (fixed, mkey) = pool.take().unwrap();
    assert_eq!((fixed.position(), mkey.key().get()), (1, 0x200), "the device cannot change tags");
    assert!(pool.take().is_none());
    pool.put_unused(fixed).unwrap();
    let again = pool.take().unwrap().0;
    assert_eq!((again.position(), pool.get_mut(fixed)), (1, None), "another use");
    assert_eq!(pool.put_unused(fixed), Err(PoolError::NotInUse), "twice");
    assert_eq!(pool.available(), 0);
}

#[test]
fn an_invalidation_is_done_when_it_has_completed() {
    let (mut ring, record) = ([Wqebb::ZERO; 4], DoorbellRecord::new());
    let mut queue = queue_of(&mut ring, &record);
    let mut pool = pool_of([tagged(1), plain(2)]);
    let (one, other) = (pool.take().unwrap().0, pool.take().unwrap().0);
    let in_service = Err(PoolError::KeyInService);
    let nop = next_number(&mut queue);
    queue.request(1).nop().unwrap();
    let first = next_number(&mut queue);
    assert_eq!(pool.put(one, &sent(first)), in_service, "nothing was posted");
    pool.invalidate(one, queue.request(1)).unwrap();
    assert_eq!((queue.outstanding(), pool.available()), (2, 0), "posted, not executed");
    assert_eq!(pool.put_unused(one), Err(PoolError::KeyInService));
    let failure = Failure { syndrome: Syndrome::FLUSHED, vendor: 0, hardware: 0, hardware_type: 0 };
    let flushed = WorkCompletion { outcome: Outcome::Failed(failure), ..sent(first) };
    let elsewhere = WorkCompletion { qpn: Qpn::from_low_bits(0x78), ..sent(first) };
    for completion in [flushed, elsewhere, sent(nop)] {
        assert_eq!(pool.put(one, &completion), in_service, "{completion:?}");
    }
    assert_eq!(pool.available(), 0);
    let full = pool.invalidate(other, queue.request(1));
    assert_eq!(full, Err(PostError::SendRingFull { needed: 2, free: 1 }));
    assert_eq!(pool.put(other, &sent(first)), in_service, "nothing was posted");
    // The reset of the queue pair drops the first invalidation of `one`. Only the completion of the second
    // invalidation proves that the key is invalid.
    queue.restart(|_| ());
    let second = next_number(&mut queue);
    pool.invalidate(one, queue.request(1)).unwrap();
    assert_eq!(pool.put(one, &sent(first)), in_service, "a request before the reset");
    assert_eq!(pool.put(one, &sent(second)), Ok(()));
    assert_eq!(pool.put(one, &sent(second)), Err(PoolError::NotInUse), "once");
    // Now the peer invalidates the key by a message.
    let received = |key| {
        let message = Message::SendInvalidate(Key::from_raw(key));
        WorkCompletion { outcome: Outcome::Received { message, bytes: 0 }, ..sent(RequestNumber::NONE) }
    };
    assert_eq!(pool.put(other, &received(0x201)), in_service, "another key");
    assert_eq!(pool.put(other, &received(0x200)), Ok(()));
    assert_eq!(pool.available(), 2);
}

#[test]
fn invalidations_of_one_name_are_told_apart() {
    let (mut ring, record) = ([Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue_of(&mut ring, &record);
    let mut pool = pool_of([plain(1), plain(2)]);
    let handles = [pool.take().unwrap().0, pool.take().unwrap().0];
    let in_service = Err(PoolError::KeyInService);
    handles.iter().for_each(|handle| pool.invalidate(*handle, queue.request(1).signaled()).unwrap());
    queue.ring_doorbell();
    let first = complete(&mut queue, 0);
    assert_eq!(pool.put(handles[1], &first), in_service, "the second has not completed");
    assert_eq!(pool.put(handles[0], &first), Ok(()));
    assert_eq!(pool.put(handles[1], &complete(&mut queue, 2)), Ok(()));
    // The success of a later request proves that a silent one was executed.
    let silent = pool.take().unwrap().0;
    pool.invalidate(silent, queue.request(1)).unwrap();
    queue.request(2).signaled().nop().unwrap();
    queue.ring_doorbell();
    assert_eq!(pool.put(silent, &complete(&mut queue, 6)), Ok(()));
}

#[test]
fn a_cancelled_invalidation_proves_nothing() {
    let (mut ring, record) = ([Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue_of(&mut ring, &record);
    let mut pool = pool_of([plain(1)]);
    let handle = pool.take().unwrap().0;
    pool.invalidate(handle, queue.request(1).signaled()).unwrap();
    queue.ring_doorbell();
    assert_eq!(queue.cancel(1, 0), Ok(1));
    assert_eq!(pool.put(handle, &complete(&mut queue, 0)), Err(PoolError::KeyInService), "a NOP");
    pool.invalidate(handle, queue.request(1).signaled()).unwrap();
    queue.ring_doorbell();
    assert_eq!(pool.put(handle, &complete(&mut queue, 2)), Ok(()));
}

#[test]
fn an_invalidation_proves_nothing_once_the_mkey_is_configured_again() {
    let (mut ring, record) = ([Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut queue = queue_of(&mut ring, &record);
    let mut pool = pool_of([plain(1)]);
    let handle = pool.take().unwrap().0;
    let first = next_number(&mut queue);
    pool.invalidate(handle, queue.request(1)).unwrap();
    let mkey = pool.get_mut(handle).unwrap();
    let prepared = PreparedConfig::access(mkey, Access::REMOTE_READ).unwrap();
    let memory = [KlmEntry { address: 0, length: 64, key: Key::from_raw(7) }];
    queue.request(2).configure_mkey(mkey, &prepared, &memory).unwrap();
    assert_eq!(pool.put(handle, &sent(first)), Err(PoolError::KeyInService));
    let second = next_number(&mut queue);
    pool.invalidate(handle, queue.request(3)).unwrap();
    assert_eq!(pool.put(handle, &sent(second)), Ok(()));
}

#[test]
fn a_cancelled_request_leaves_the_proofs_of_others() {
    let (mut ring, record) = ([Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue_of(&mut ring, &record);
    let mut pool = pool_of([plain(1)]);
    let handle = pool.take().unwrap().0;
    pool.invalidate(handle, queue.request(1).signaled()).unwrap();
    queue.request(2).nop().unwrap();
    queue.ring_doorbell();
    assert_eq!(queue.cancel(2, 0), Ok(1));
    assert_eq!(pool.put(handle, &complete(&mut queue, 0)), Ok(()));
}

/// Returns the successful completion of the request that begins at this block.
fn complete(queue: &mut SendQueue<'_, Silent>, block: u16) -> WorkCompletion {
    let mut entries = [Cqe {
        sop_qpn: U32::new(QPN.get()),
        wqe_counter: U16::new(block),
        op_own: OpOwn::new().with_opcode(CqeOpcode::REQUESTER.0).into_bits(),
        ..Cqe::UNWRITTEN
    }];
    let record = CqDoorbellRecord::new();
    let mut completions = CompletionQueue::new(&mut entries, &record).unwrap();
    completions.poll(queue).unwrap().unwrap().work().unwrap()
}

#[test]
fn a_handle_is_of_one_pool() {
    // Two pools, for two cards. Their mkeys have the same keys.
    let mut pools = [(); 2].map(|()| pool_of([plain(1)]));
    let [here, there] = pools.each_mut().map(|pool| pool.take().unwrap().0);
    assert_ne!(here, there);
    let (mut ring, record) = ([Wqebb::ZERO; 2], DoorbellRecord::new());
    let mut queue = queue_of(&mut ring, &record);
    let [_, pool] = &mut pools;
    assert!(pool.get_mut(here).is_none());
    assert_eq!(pool.invalidate(here, queue.request(1)), Err(PoolError::OtherPool.into()));
    assert_eq!(queue.outstanding(), 0, "nothing is posted");
    assert_eq!(pool.put_unused(here), Err(PoolError::OtherPool));
    assert_eq!(pool.put(here, &sent(RequestNumber::NONE)), Err(PoolError::OtherPool));
    assert_eq!(pool.available(), 0, "the one in use stays in use");
    assert_eq!(pool.put_unused(there), Ok(()));
}

#[test]
fn what_was_put_back_first_is_taken_first() {
    let mut pool = pool_of((1..=64).map(tagged));
    let mut keys = HashSet::new();
    // One I/O after another takes an mkey and puts it back, until a key comes for the second time.
    while let Some((handle, mkey)) = pool.take()
        && keys.insert(mkey.key())
    {
        pool.put_unused(handle).unwrap();
    }
    assert_eq!(keys.len(), 64 * 256, "uses before a key comes back");
}

#[test]
fn a_lost_handle_is_found() {
    /// Takes an mkey and loses its handle, because the request for the mkey is refused.
    fn begin(pool: &mut MkeyPool<'_>) -> Result<PooledMkey, PostError> {
        let (handle, _) = pool.take().ok_or(PoolError::NotInUse)?;
        Err::<(), _>(PostError::SendRingFull { needed: 3, free: 0 })?;
        Ok(handle)
    }
    let mut pool = pool_of([plain(1), plain(2)]);
    let kept = pool.take().unwrap().0;
    assert!(begin(&mut pool).is_err());
    assert!(pool.take().is_none());
    let lost: List<_> = pool.in_use().filter(|handle| *handle != kept).collect();
    assert_eq!(lost.len(), 1);
    pool.put_unused(lost[0]).unwrap();
    assert_eq!((pool.available(), pool.in_use().collect()), (1, List::from([kept])));
}

fn indices(pool: &mut MkeyPool<'_>) -> [u32; 3] {
    core::array::from_fn(|position| pool.mkeys()[position].key().index().get())
}

#[test]
fn mkeys_come_and_go_around_those_in_use() {
    let mut pool = MkeyPool::empty(vec![plain(9); 3].leak(), vec![PoolSlot::EMPTY; 3].leak()).unwrap();
    assert!(pool.take().is_none() && pool.remove_unused().is_none() && pool.mkeys()[0] != plain(9));
    for index in 1..4 {
        assert_eq!(pool.insert(plain(index)), Ok(index as usize - 1));
    }
    assert_eq!(pool.insert(plain(4)), Err(plain(4)), "it is full");
    let first = pool.take().unwrap().0;
    assert_eq!(pool.remove_unused(), Some((1, plain(2))));
    assert_eq!(pool.remove_unused(), Some((2, plain(3))));
    assert_eq!(pool.remove_unused(), None, "the first one is in use");
    assert_eq!((pool.available(), indices(&mut pool), first.position()), (0, [1, 0, 0], 0));
    assert_eq!(pool.insert(plain(5)), Ok(2));
    assert_eq!(pool.insert(plain(6)), Ok(1));
    assert_eq!(pool.insert(plain(7)), Err(plain(7)));
    assert_eq!((pool.available(), indices(&mut pool)), (2, [1, 6, 5]));
    assert_eq!(pool.get_mut(first), Some(&mut plain(1)));
    pool.put_unused(first).unwrap();
    let taken: [u32; 3] = core::array::from_fn(|_| pool.take().unwrap().1.key().index().get());
    assert_eq!(taken, [5, 6, 1], "each once");
}

#[test]
fn an_error_of_an_earlier_use_is_not_told() {
    let psvs = SignatureAttributes::new(PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2));
    let attributes =
        MkeyAttributes { signature: Some(psvs), ..MkeyAttributes::plain(Key::from_raw(0x700), 4) };
    let mut pool = pool_of([Mkey::new(attributes)]);
    let (handle, mkey) = pool.take().unwrap();
    let fault = SignatureFault {
        mkey: mkey.key().index(),
        syndrome: 0,
        sig_type: 0,
        domain: 0,
        expected: 0,
        actual: 0,
        offset: 0,
    };
    assert!(mkey.record(&fault));
    pool.put_unused(handle).unwrap();
    let (_handle, mkey) = pool.take().unwrap();
    assert_eq!(mkey.take_error(), Ok(None));
    assert!(mkey.error_count().is_some_and(|count| count.pending && count.seen == 2), "the device is told");
}
