//! Tests of a send queue: bytes of requests, filling and emptying of rings, and refusals.

use super::*;
use crate::mkey::error::{ConfigError, ConfigPart};
use crate::mkey::{
    Access, BlockSignature, Domain, KlmEntry, Layout, Mkey, MkeyAttributes, MkeyConfig, Signature,
    SignatureAttributes, SignatureChange,
};
use crate::queue::LastRequest;
use crate::queue::RequestKind;
use crate::types::{BlockSize, Key, PsvIndex, Seed, UmrFence};
use crate::wire::ctrl::{FmCeSe, Opcode};
use crate::wire::umr::UmrHead;
use crate::wqe::error::PostError;
use crate::wqe::{Payload, PreparedConfig, Remote, Sge};
use std::collections::VecDeque;
use std::string::ToString;
use std::vec;
use std::vec::Vec;
use zerocopy::transmute;

mod fields;
mod lists;
mod raw;
mod refusals;
mod ring_end;
mod window;

const KEY: Key = Key::from_raw(0x0012_3400);

/// A doorbell that records, whenever it rings, the start of the last request and the send counter of the
/// doorbell record.
struct Witness<'r> {
    record: &'r DoorbellRecord,
    seen: Vec<([u8; 8], [u8; 4])>,
}

impl Doorbell for Witness<'_> {
    fn ring(&mut self, last: &LastRequest<'_>) {
        let in_ring = last.blocks().next().and_then(|block| block.0.first_chunk().copied());
        assert_eq!(Some(last.control()), in_ring, "the doorbell and the ring");
        self.seen.push((last.control(), self.record.bytes()[1]));
    }
}

type Queue<'r> = SendQueue<'r, Witness<'r>>;

fn queue<'r>(ring: &'r mut [Wqebb], record: &'r DoorbellRecord, first_block: u32) -> Queue<'r> {
    let config = SendQueueConfig { first_block, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
    Queue::new(config, ring, SendSlot::leaked(64), record, Witness { record, seen: Vec::new() }).unwrap()
}

fn signature_mkey_attributes() -> MkeyAttributes {
    let psv = PsvIndex::from_low_bits;
    let signature = Some(SignatureAttributes::new(psv(1), psv(2)));
    MkeyAttributes { signature, ..MkeyAttributes::plain(KEY, 16) }
}

fn signature_mkey() -> Mkey {
    Mkey::new(signature_mkey_attributes())
}

fn prepare(mkey: &Mkey, config: &MkeyConfig) -> PreparedConfig {
    PreparedConfig::with_any_data_unit(mkey.kind(), config).unwrap()
}

/// Returns a configuration that sets a signature.
fn signing(signature: BlockSignature) -> PreparedConfig {
    let config = MkeyConfig { signature: SignatureChange::Set(signature), ..MkeyConfig::UNCHANGED };
    prepare(&signature_mkey(), &config)
}

const ENTRY: KlmEntry = KlmEntry { address: 0, length: 512, key: KEY };

const SGE: Sge = Sge { address: 0, length: 1, lkey: KEY };

const CRC32: Domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
const BOTH: BlockSignature = BlockSignature::both(CRC32, CRC32);

#[test]
fn m63_the_record_is_written_before_the_doorbell_rings() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0x1_fffe);
    queue.request(1).nop().unwrap();
    queue.request(2).nop().unwrap();
    queue.request(3).nop().unwrap();
    assert_eq!(queue.doorbell().seen, [], "nothing is rung before it is asked for");
    queue.ring_doorbell();
    queue.ring_doorbell();
    // Opcode 0, block 0x0000 (the third after 0xfffe), queue pair 0x77, one octoword. The counter is 0x20001,
    // of which the record has 16 bits.
    let control = [0, 0, 0, 0, 0, 0, 0x77, 1];
    assert_eq!(queue.doorbell().seen, [(control, [0, 0, 0, 1])]);
}

#[test]
fn a_queue_checks_its_limits_when_it_is_made() {
    let record = DoorbellRecord::new();
    let size = |entries| QueueError::Size { what: "blocks of a send queue", entries, max: 32768 };
    let few = QueueError::TooFewSlots { what: "slots of a send queue", needed: 128, slots: 64 };
    for (blocks, error) in [(0, size(0)), (3, size(3)), (65536, size(65536)), (128, few)] {
        let mut ring = vec![Wqebb::ZERO; blocks];
        let witness = Witness { record: &record, seen: Vec::new() };
        let result = Queue::new(
            SendQueueConfig::new(Qpn::default()),
            &mut ring,
            SendSlot::leaked(64),
            &record,
            witness,
        );
        assert_eq!(result.err(), Some(error));
    }
    let config = SendQueueConfig { max_inline_data: 829, ..SendQueueConfig::new(Qpn::default()) };
    let mut ring = vec![Wqebb::ZERO; 8];
    let witness = Witness { record: &record, seen: Vec::new() };
    let result = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, witness);
    assert_eq!(result.err(), Some(QueueError::InlineLimit { bytes: 829, max: 828 }));
}

#[test]
fn a_refused_request_changes_nothing() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 4], DoorbellRecord::new());
    let before_ring = ring.clone();
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = signature_mkey();
    let before = mkey.clone();
    // The UMR alone would fit, but not with the two SET_PSVs after it.
    let result = queue.request(1).signaled().configure_mkey(&mut mkey, &signing(BOTH), Layout::Unchanged);
    let full = PostError::SendRingFull { needed: 5, free: 4 };
    assert_eq!(result, Err(full));
    assert_eq!(std::format!("{full}"), "send ring full: 5 blocks needed, 4 free");
    let result = queue.request(2).send(&[SGE; 31]);
    assert_eq!(result, Err(PostError::TooManySges { sges: 31, max: 30 }));
    let result = queue.request(3).send(Payload::Inline(&[0; 829]));
    assert_eq!(result, Err(PostError::InlineTooLong { length: 829, max: 828 }));
    assert_eq!(mkey, before);
    assert_eq!((queue.producer(), queue.outstanding(), queue.next_fence()), (0, 0, FmCeSe::FM_NONE));
    queue.ring_doorbell();
    assert_eq!(queue.doorbell().seen, []);
    assert_eq!(ring, before_ring);
}

#[test]
fn the_limit_of_requests_counts_set_psvs() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    let config = SendQueueConfig { max_requests: 2, ..SendQueueConfig::new(Qpn::default()) };
    let witness = Witness { record: &record, seen: Vec::new() };
    let mut queue = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, witness).unwrap();
    let mut mkey = signature_mkey();
    let result = queue.request(1).configure_mkey(&mut mkey, &signing(BOTH), Layout::Unchanged);
    assert_eq!(result, Err(PostError::TooManyRequests { needed: 3, free: 2 }));
    queue.request(1).nop().unwrap();
    queue.request(2).nop().unwrap();
    assert_eq!(queue.request(3).nop(), Err(PostError::TooManyRequests { needed: 1, free: 0 }));
}

#[test]
fn room_and_requests_are_counted_over_many_laps() {
    // Requests of 1 to 3 blocks complete one by one, or some at once. One queue is often filled to its limit
    // of requests, the other to the ring's end. A model gives the expected results of both.
    for max_requests in [5, u32::MAX] {
        let (mut ring, record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
        let config = SendQueueConfig {
            max_requests,
            first_block: u32::MAX - 40,
            ..SendQueueConfig::new(Qpn::default())
        };
        let witness = Witness { record: &record, seen: Vec::new() };
        let mut queue = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, witness).unwrap();
        let mut expected: VecDeque<(u16, u32, u64)> = VecDeque::new();
        let (mut dice, mut begin) = (1_u32, config.first_block as u16);
        for id in 0..2000 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let blocks = 1 + (dice >> 16) % 3;
            let free = 16 - expected.iter().map(|(_, blocks, _)| blocks).sum::<u32>();
            let requests = expected.len() as u32;
            assert_eq!((queue.free_blocks(), queue.outstanding()), (free, requests));
            let result = queue.request(id).send(&[SGE; 11][..4 * blocks as usize - 1]);
            if requests == max_requests {
                assert_eq!(result, Err(PostError::TooManyRequests { needed: 1, free: 0 }));
            } else if blocks > free {
                let (needed, free) = (blocks as u16, free as u16);
                assert_eq!(result, Err(PostError::SendRingFull { needed, free }));
            } else {
                assert_eq!(result, Ok(()));
                expected.push_back((begin, blocks, id));
                begin = begin.wrapping_add(blocks as u16);
            }
            queue.ring_doorbell();
            if dice >> 24 < 100 && !expected.is_empty() {
                let last = (dice >> 8) as usize % expected.len();
                let (counter, _, id) = expected.drain(..=last).next_back().unwrap();
                assert_eq!(queue.retire_at(counter), Some((id, RequestKind::Send)));
                assert_eq!(queue.retire_at(counter), None);
            }
            if let Some((counter, 2.., _)) = expected.get(1) {
                assert_eq!(queue.retire_at(counter.wrapping_add(1)), None, "the middle of a request");
            }
        }
    }
}

#[test]
fn a_batch_posts_what_its_queue_posts() {
    // Requests of 1 to 3 blocks and configurations, in batches of up to 7, over many laps of a ring that is
    // often full. One queue has no limit of requests, the other a low one.
    for max_requests in [5, u32::MAX] {
        let (mut rings, record) = ([vec![Wqebb::ZERO; 16], vec![Wqebb::ZERO; 16]], DoorbellRecord::new());
        let start = SendQueueConfig::new(Qpn::from_low_bits(0x77));
        let config = SendQueueConfig { max_requests, first_block: u32::MAX - 40, ..start };
        let [one, other] = &mut rings;
        let witness = || Witness { record: &record, seen: Vec::new() };
        let mut plain = Queue::new(config, one, SendSlot::leaked(64), &record, witness()).unwrap();
        let mut batched = Queue::new(config, other, SendSlot::leaked(64), &record, witness()).unwrap();
        let mut mkeys = [signature_mkey(), signature_mkey()];
        let (access, signature) = (Some(Access::ALL), SignatureChange::Set(BOTH));
        let whole = prepare(&mkeys[0], &MkeyConfig { access, signature, crypto: None });
        let keeping = prepare(&mkeys[0], &MkeyConfig { access, ..MkeyConfig::UNCHANGED });
        let mut dice = 1_u32;
        for _ in 0..2000 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut batch = batched.batch();
            let [mine, its] = &mut mkeys;
            for at in 0..dice >> 29 {
                let sges = &[SGE; 11][..(dice >> (3 * at)) as usize % 12];
                let (kind, id) = ((dice >> (2 * at)) % 5, u64::from(at));
                let (request, same) = (plain.request(id).signaled(), batch.request(id).signaled());
                let results = match kind {
                    0 => (
                        request.configure_mkey(mine, &whole, &[ENTRY]),
                        same.configure_mkey(its, &whole, &[ENTRY]),
                    ),
                    1 => (
                        request.configure_mkey(mine, &keeping, &[ENTRY; 5]),
                        same.configure_mkey(its, &keeping, &[ENTRY; 5]),
                    ),
                    2 => (request.invalidate(KEY), same.invalidate(KEY)),
                    _ => (request.send(sges), same.send(sges)),
                };
                assert_eq!(results.0, results.1);
                assert_eq!(batch.free_blocks(), plain.free_blocks());
            }
            drop(batch);
            plain.ring_doorbell();
            let known = |queue: &Queue<'_>| {
                (queue.producer(), queue.free_blocks(), queue.outstanding(), queue.next_fence())
            };
            assert_eq!(known(&plain), known(&batched));
            assert_eq!(plain.doorbell().seen.last(), batched.doorbell().seen.last());
            assert!((0..16).all(|at| plain.block(at) == batched.block(at)));
            for back in 1..=(dice >> 13) as u16 % 16 {
                let counter = (plain.producer() as u16).wrapping_sub(17 - back);
                assert_eq!(plain.retire_at(counter), batched.retire_at(counter));
            }
        }
        assert_eq!(mkeys[0], mkeys[1]);
        assert_eq!(plain.doorbell().seen.len(), batched.doorbell().seen.len());
    }
}

#[test]
fn a_completion_retires_the_unsignalled_requests_before_it() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0xfffd);
    let sges = [SGE; 5];
    queue.request(10).nop().unwrap();
    queue.request(11).send(&sges).unwrap();
    queue.request(12).signaled().nop().unwrap();
    assert_eq!(queue.retire_at(0xfffd), None, "not published yet");
    queue.ring_doorbell();
    queue.request(13).signaled().nop().unwrap();
    assert_eq!(queue.retire_at(0xffff), None, "the middle of a request");
    assert_eq!(queue.retire_at(1), None, "posted but not published");
    assert_eq!(queue.retire_at(0xfffc), None, "before the queue");
    assert_eq!(queue.retire_at(0), Some((12, RequestKind::Nop)));
    assert_eq!((queue.free_blocks(), queue.outstanding()), (7, 1));
    assert_eq!(queue.retire_at(0), None, "completed once");
    assert_eq!(queue.retire_at(0xfffe), None, "retired with it");
    queue.ring_doorbell();
    assert_eq!(queue.retire_at(1), Some((13, RequestKind::Nop)));
    assert_eq!((queue.free_blocks(), queue.outstanding()), (8, 0));
}

#[test]
fn m17_cancelled_requests_become_nops_and_keep_their_name() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let sges = [SGE; 5];
    for id in [1, 2, 1] {
        queue.request(id).signaled().send(&sges).unwrap();
    }
    queue.ring_doorbell();
    assert_eq!(queue.cancel(1, 1), Err(PostError::NotOutstanding { counter: 1 }));
    assert_eq!(queue.cancel(1, 2), Ok(1), "the first has been executed");
    assert_eq!(queue.cancel(1, 6), Ok(0), "nothing is left");
    assert_eq!(queue.retire_at(4), Some((1, RequestKind::Send)));
    queue.request(3).send(&sges[..1]).unwrap();
    assert_eq!(queue.cancel(3, 6), Ok(1), "posted, but not published");
    queue.ring_doorbell();
    let rung = queue.doorbell().seen.last().unwrap().0;
    assert_eq!(rung, [0, 0, 6, Opcode::NOP.0, 0, 0, 0x77, 2], "the doorbell repeats the start of the NOP");
    assert_eq!(ring[0].0[..4], [0, 0, 0, Opcode::SEND.0]);
    assert_eq!(ring[2].0[..4], [0, 0, 2, Opcode::SEND.0]);
    assert_eq!(ring[4].0[..4], [0, 0, 4, Opcode::NOP.0]);
}

#[test]
fn r177_a_configuration_completes_once_also_where_all_is_signalled() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    let config = SendQueueConfig { signal_all: true, ..SendQueueConfig::new(Qpn::default()) };
    let witness = Witness { record: &record, seen: Vec::new() };
    let mut queue = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, witness).unwrap();
    queue.request(42).configure_mkey(&mut signature_mkey(), &signing(BOTH), Layout::Unchanged).unwrap();
    queue.ring_doorbell();
    // The configuration consists of a UMR in blocks 0 to 2, the SET_PSV of the memory domain in block 3, and
    // the SET_PSV of the wire domain in block 4.
    assert_eq!(queue.retire_at(3), Some((42, RequestKind::MkeyConfigurePart)));
    assert_eq!(queue.retire_at(4), Some((42, RequestKind::MkeyConfigure)));
}

#[test]
fn r179_the_error_count_is_told_once() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = signature_mkey();
    let prepared = signing(BOTH);
    // The first post computes how many blocks are free before the ring's end. The later posts use this
    // number.
    queue.request(0).nop().unwrap();
    for told in [true, false, false] {
        let begin = queue.producer();
        queue.request(1).configure_mkey(&mut mkey, &prepared, Layout::Unchanged).unwrap();
        let head: UmrHead = transmute!(queue.block(begin).0);
        assert_eq!(head.umr.mask().sig_err(), told);
        assert_eq!(mkey.error_count().map(|count| count.pending), Some(false));
    }
}

#[test]
fn d16_an_invalidated_mkey_wants_everything() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = signature_mkey();
    queue.request(1).invalidate_mkey(&mut mkey).unwrap();
    let (list, mut config) = (Layout::List(&[ENTRY]), MkeyConfig::UNCHANGED);
    let mut refused = |config: &MkeyConfig, layout, missing| {
        let result = queue.request(2).configure_mkey(&mut mkey, &prepare(&signature_mkey(), config), layout);
        assert_eq!(result, Err(PostError::Config(ConfigError::StateUnknown { missing })));
    };
    refused(&config, list, ConfigPart::Access);
    config.access = Some(Access::NONE);
    refused(&config, Layout::Unchanged, ConfigPart::Layout);
    refused(&config, list, ConfigPart::Signature);
    config.signature = SignatureChange::Reset;
    let whole = prepare(&signature_mkey(), &config);
    refused(&config, Layout::Unchanged, ConfigPart::Layout);
    assert_eq!(queue.request(2).configure_mkey(&mut mkey, &whole, list), Ok(()));
    let unchanged = prepare(&mkey, &MkeyConfig::UNCHANGED);
    assert_eq!(queue.request(3).configure_mkey(&mut mkey, &unchanged, Layout::Unchanged), Ok(()));
}

#[test]
fn an_mkey_is_held_to_the_limits_of_the_queue_in_any_state() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    // A request has room for 4 bytes more of layout and BSFs than of inline data: here 64 bytes, one block.
    let config = SendQueueConfig { max_inline_data: 60, ..SendQueueConfig::new(Qpn::default()) };
    let witness = Witness { record: &record, seen: Vec::new() };
    let mut queue = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, witness).unwrap();
    let entries = [KlmEntry { length: 1, ..ENTRY }; 5];
    let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 16));
    let prepared = prepare(&mkey, &MkeyConfig::UNCHANGED);
    for _ in 0..2 {
        queue.request(1).configure_mkey(&mut mkey, &prepared, &entries[..4]).unwrap();
        let result = queue.request(2).configure_mkey(&mut mkey, &prepared, &entries);
        let error = ConfigError::TooManyEntries { max: 4 };
        assert_eq!(result, Err(PostError::Config(error)));
    }
    assert_eq!((mkey.length(), queue.producer()), (4, 6));
    let (access, signature) = (Some(Access::NONE), SignatureChange::Set(BOTH));
    let prepared = prepare(&signature_mkey(), &MkeyConfig { access, signature, crypto: None });
    let mut forgotten = signature_mkey();
    forgotten.forget();
    for mut mkey in [signature_mkey(), forgotten] {
        queue.request(3).configure_mkey(&mut mkey, &prepared, &[]).unwrap();
    }
    // Here a request has room for 28 + 4 bytes of layout and BSFs, too few for a single BSF of 64 bytes.
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    let config = SendQueueConfig { max_inline_data: 28, ..SendQueueConfig::new(Qpn::default()) };
    let witness = Witness { record: &record, seen: Vec::new() };
    let mut queue = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, witness).unwrap();
    let result = queue.request(1).configure_mkey(&mut signature_mkey(), &prepared, &[]);
    assert_eq!(result, Err(PostError::Config(ConfigError::BsfDoesNotFit { bytes: 64, max: 32 })));
}

#[test]
fn no_request_is_longer_than_the_device_reads() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let entries = [KlmEntry { length: 1, ..ENTRY }; 53];
    let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 64));
    let prepared = prepare(&mkey, &MkeyConfig::UNCHANGED);
    let result = queue.request(1).configure_mkey(&mut mkey, &prepared, &entries);
    assert_eq!(result, Err(PostError::Config(ConfigError::TooManyEntries { max: 52 })));
    queue.request(1).configure_mkey(&mut mkey, &prepared, &entries[..52]).unwrap();
    queue.request(2).rdma_write(Remote { address: 0, rkey: KEY }, Payload::Inline(&[1; 828])).unwrap();
    assert_eq!(ring[0].0[7], 60);
    assert_eq!(ring[15].0[7], 2 + 52);
}

#[test]
fn what_was_outstanding_is_handed_back_and_the_queue_begins_anew() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = signature_mkey();
    for id in 1..=3 {
        queue.request(id).signaled().nop().unwrap();
    }
    queue.request(4).configure_mkey(&mut mkey, &signing(BOTH), Layout::Unchanged).unwrap();
    queue.ring_doorbell();
    queue.request(5).send(&[SGE; 11]).unwrap();
    assert_eq!(queue.retire_at(1), Some((2, RequestKind::Nop)));
    let mut seen = Vec::new();
    queue.restart(|request| seen.push((request.id, request.kind)));
    let part = RequestKind::MkeyConfigurePart;
    assert_eq!(
        seen,
        [
            (3, RequestKind::Nop),
            (4, part),
            (4, part),
            (4, RequestKind::MkeyConfigure),
            (5, RequestKind::Send)
        ]
    );
    assert_eq!((queue.outstanding(), queue.free_blocks(), queue.producer()), (0, 16, 0));
    assert_eq!((record.bytes()[1], queue.next_fence()), ([0; 4], FmCeSe::FM_NONE));
    queue.restart(|request| panic!("{request:?} a second time"));
    // The request takes the blocks of older requests of one block, which retiring must no longer find.
    queue.request(6).send(&[SGE; 11]).unwrap();
    queue.ring_doorbell();
    assert_eq!(record.bytes()[1], [0, 0, 0, 3]);
    for counter in (1..=u16::MAX).rev() {
        assert_eq!(queue.retire_at(counter), None, "{counter}");
    }
    assert_eq!(queue.retire_at(0), Some((6, RequestKind::Send)));
}

#[test]
fn a_ring_for_requests_is_a_power_of_two() {
    use crate::wqe::RequestSize;
    for (blocks, ring) in [(0, 1), (1, 1), (2, 2), (3, 4), (224, 256), (256, 256), (257, 512)] {
        assert_eq!(RequestSize { blocks, requests: 1 }.ring_blocks(), ring, "{blocks}");
    }
    assert_eq!(RequestSize::nop().times(u32::MAX).ring_blocks(), usize::MAX, "there is none");
}

#[test]
fn requests_take_what_their_size_says() {
    use crate::mkey::{Crypto, Direction, Keytag, SignatureOrder, XtsEngine};
    use crate::types::Tweak;
    use crate::wqe::{Local, MaskedAtomic, MemcpyConfig, RequestSize};
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    let memcpy = Some(MemcpyConfig { opaque: Local { address: 0, lkey: KEY }, log_max_bytes: 0 });
    let config = SendQueueConfig { memcpy, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
    let witness = Witness { record: &record, seen: Vec::new() };
    let mut queue = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, witness).unwrap();
    let mut check = |what: &str, size: RequestSize, post: &mut dyn FnMut(&mut Queue<'_>)| {
        queue.restart(|_| {});
        post(&mut queue);
        let taken = RequestSize { blocks: queue.producer(), requests: queue.outstanding() };
        assert_eq!(taken, size, "{what}");
    };
    let remote = Remote { address: 0, rkey: KEY };
    for sges in 1..=30 {
        let sge = &[SGE; 30][..sges];
        check("send", RequestSize::send(sges), &mut |queue| queue.request(1).send(sge).unwrap());
        check("write", RequestSize::rdma(sges), &mut |queue| {
            queue.request(1).rdma_write(remote, sge).unwrap()
        });
        check("read", RequestSize::rdma(sges), &mut |queue| queue.request(1).rdma_read(remote, sge).unwrap());
    }
    for bytes in 0..=828 {
        let data = Payload::Inline(&[0; 828][..bytes]);
        check("send", RequestSize::send_inline(bytes), &mut |queue| queue.request(1).send(data).unwrap());
        check("write", RequestSize::rdma_inline(bytes), &mut |queue| {
            queue.request(1).rdma_write(remote, data).unwrap();
        });
    }
    let local = Local { address: 0, lkey: KEY };
    check("memcpy", RequestSize::memcpy(), &mut |queue| {
        queue.request(1).memcpy(local, local, 1).unwrap();
    });
    for octowords in 1..=63 {
        let mut bytes = [0; 1008];
        bytes[7] = octowords;
        let size = RequestSize::raw(octowords.into());
        check("raw", size, &mut |queue| queue.request(1).raw(&bytes).unwrap());
    }
    check("nop", RequestSize::nop(), &mut |queue| queue.request(1).nop().unwrap());
    check("atomic", RequestSize::atomic(), &mut |queue| {
        queue.request(1).fetch_add(remote, 1, local).unwrap()
    });
    for atomic in [
        MaskedAtomic::CompareSwap32 { compare: 1, compare_mask: 2, swap: 3, swap_mask: 4 },
        MaskedAtomic::CompareSwap64 { compare: 1, compare_mask: 2, swap: 3, swap_mask: 4 },
        MaskedAtomic::FetchAdd32 { add: 1, boundary: 2 },
        MaskedAtomic::FetchAdd64 { add: 1, boundary: 2 },
    ] {
        check("masked atomic", RequestSize::masked_atomic(&atomic), &mut |queue| {
            queue.request(1).masked_atomic(remote, atomic, local).unwrap();
        });
    }
    let psv = PsvIndex::from_low_bits(5);
    check("SET_PSV", RequestSize::set_psv(), &mut |queue| {
        queue.request(1).set_psv(psv, Seed::Ones).unwrap();
    });
    check("LOCAL_INV", RequestSize::invalidate(), &mut |queue| queue.request(1).invalidate(KEY).unwrap());
    let dek = crate::types::DekId::from_low_bits(7);
    let crypto = Crypto {
        direction: Direction::EncryptOnTx,
        order: SignatureOrder::BeforeCryptoOnTx,
        data_unit: BlockSize::B512,
        tweak: Tweak::new(0),
        dek,
        keytag: Keytag::default(),
    };
    let attributes = signature_mkey_attributes();
    for (engine, crypto) in [(None, None), (Some(XtsEngine::MultiBlock), Some(crypto))] {
        for (domains, change) in [None, Some(BlockSignature::wire(CRC32)), Some(BOTH)].into_iter().enumerate()
        {
            let signature = change.and(attributes.signature);
            let mut mkey = Mkey::new(MkeyAttributes { signature, crypto: engine, ..attributes });
            let signature = change.map_or(SignatureChange::Keep, SignatureChange::Set);
            let prepared = prepare(&mkey, &MkeyConfig { access: Some(Access::ALL), signature, crypto });
            for entries in 1..=16 {
                let size = RequestSize::configure_mkey(&mkey.kind(), entries, domains as u32);
                check("configure", size, &mut |queue| {
                    queue.request(1).configure_mkey(&mut mkey, &prepared, &[ENTRY; 16][..entries]).unwrap();
                });
            }
        }
    }
}

#[test]
fn m77_the_fence_after_a_change_of_an_mkey_is_what_the_device_needs() {
    let fences = [
        (UmrFence::Strong, FmCeSe::FM_STRONG),
        (UmrFence::Small, FmCeSe::FM_SMALL),
        (UmrFence::None, FmCeSe::FM_NONE),
    ];
    for (umr_fence, code) in fences {
        let (mut ring, record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
        let config = SendQueueConfig { umr_fence, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
        let mut queue = Queue::new(
            config,
            &mut ring,
            SendSlot::leaked(64),
            &record,
            Witness { record: &record, seen: Vec::new() },
        )
        .unwrap();
        let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 16));
        let prepared = prepare(&mkey, &MkeyConfig::UNCHANGED);
        let fence = |queue: &Queue<'_>, block| FmCeSe::from_bits(queue.block(block).0[11]).fm();
        queue.request(1).configure_mkey(&mut mkey, &prepared, &[ENTRY]).unwrap();
        assert_eq!(queue.next_fence(), code);
        queue.request(2).nop().unwrap();
        queue.request(3).nop().unwrap();
        queue.request(4).set_psv(PsvIndex::from_low_bits(1), Seed::Ones).unwrap();
        queue.request(5).fenced().nop().unwrap();
        let found = [3, 4, 5, 6].map(|block| fence(&queue, block));
        assert_eq!(found, [code, FmCeSe::FM_NONE, FmCeSe::FM_NONE, FmCeSe::FM_FENCE], "{umr_fence:?}");
    }
}

#[test]
fn the_doorbell_is_told_whether_a_request_is_alone() {
    struct Alone(Vec<bool>);
    impl Doorbell for Alone {
        fn ring(&mut self, last: &LastRequest<'_>) {
            self.0.push(last.is_alone());
        }
    }
    let (mut ring, record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
    let config = SendQueueConfig::new(Qpn::from_low_bits(0x77));
    let mut queue =
        SendQueue::new(config, &mut ring, SendSlot::leaked(64), &record, Alone(Vec::new())).unwrap();
    for requests in [1, 2, 1, 3] {
        for id in 0..requests {
            queue.request(id).nop().unwrap();
        }
        queue.ring_doorbell();
    }
    assert_eq!(queue.doorbell().0, [true, false, true, false]);
}
