//! Tests that a refused request changes nothing, in a batch and outside.

use super::*;
use crate::mkey::InterleavedEntry;
use crate::queue::SendRequest;
use crate::wqe::Local;

/// The state of a queue that device and user can see: counters, fence, record, doorbells, and the posted
/// blocks.
type Known = ([u32; 4], u8, [[u8; 4]; 2], usize, Vec<Wqebb>);

fn known(queue: &Queue<'_>) -> Known {
    let published = queue.state.ring.published as u32;
    let counters = [queue.producer(), queue.outstanding(), queue.free_blocks(), published];
    let tail = queue.producer() - (64 - queue.free_blocks());
    let blocks = (tail..queue.producer()).map(|at| queue.block(at)).collect();
    (counters, queue.next_fence(), queue.record().bytes(), queue.doorbell().seen.len(), blocks)
}

type PostOne = fn(SendRequest<'_, '_>, &mut Mkey) -> Result<(), PostError>;

const STREAM: InterleavedEntry = InterleavedEntry { address: 0, bytes: 512, skip: 0, key: KEY };

const REMOTE: Remote = Remote { address: 0, rkey: KEY };

/// Posts a complete configuration with this layout.
fn configure(request: SendRequest<'_, '_>, mkey: &mut Mkey, layout: Layout<'_>) -> Result<(), PostError> {
    let (access, signature) = (Some(Access::ALL), SignatureChange::Set(BOTH));
    let prepared = prepare(&signature_mkey(), &MkeyConfig { access, signature, crypto: None });
    request.configure_mkey(mkey, &prepared, layout)
}

const fn config(error: ConfigError) -> PostError {
    PostError::Config(error)
}

/// Returns a raw request whose size field has this number of octowords.
const fn sized(octowords: u8) -> [u8; 1008] {
    let mut bytes = [0; 1008];
    bytes[7] = octowords;
    bytes
}

const HERE: Local = Local { address: 0, lkey: KEY };

const CASES: [(PostOne, PostError); 19] = [
    (
        |request, mkey| configure(request, mkey, Layout::List(&[ENTRY; 17])),
        config(ConfigError::TooManyEntries { max: 16 }),
    ),
    (
        |request, mkey| configure(request, mkey, Layout::Interleaved { repeat: 1, entries: &[STREAM; 16] }),
        config(ConfigError::TooManyEntries { max: 15 }),
    ),
    (
        |request, mkey| configure(request, mkey, Layout::List(&[ENTRY, ENTRY, wrong(0), ENTRY, ENTRY])),
        config(ConfigError::EntryLength { index: 2, length: 0 }),
    ),
    (
        |request, mkey| configure(request, mkey, Layout::List(&[ENTRY, ENTRY, wrong(1 << 31 | 1), ENTRY])),
        config(ConfigError::EntryLength { index: 2, length: 1 << 31 | 1 }),
    ),
    (
        |request, mkey| {
            let entries = &[STREAM, InterleavedEntry { skip: u16::MAX, ..STREAM }, STREAM];
            configure(request, mkey, Layout::Interleaved { repeat: 1, entries })
        },
        config(ConfigError::StrideOver16Bits { index: 1, stride: 512 + 65535 }),
    ),
    (
        |request, mkey| configure(request, mkey, Layout::List(&[wrong(1 << 31); 2])),
        config(ConfigError::LengthOver32Bits { mebibytes: 4096 }),
    ),
    (
        |request, mkey| {
            let other = prepare(&Mkey::new(MkeyAttributes::plain(KEY, 16)), &MkeyConfig::UNCHANGED);
            request.configure_mkey(mkey, &other, &[ENTRY])
        },
        config(ConfigError::OtherKind),
    ),
    (
        |request, mkey| configure(request, mkey, Layout::List(&[ENTRY; 53])),
        config(ConfigError::TooManyEntries { max: 16 }),
    ),
    (|request, _| request.send(&[SGE, SGE, Sge { length: 0, ..SGE }, SGE]), PostError::SgeEmpty { index: 2 }),
    (
        |request, _| request.rdma_write(REMOTE, &[SGE, Sge { length: 1 << 31, ..SGE }]),
        PostError::SgeTooLong { index: 1, mebibytes: 2048 },
    ),
    (|request, _| request.rdma_read(REMOTE, &[SGE; 31]), PostError::TooManySges { sges: 31, max: 30 }),
    (
        |request, _| request.rdma_write(REMOTE, Payload::Inline(&[0; 829])),
        PostError::InlineTooLong { length: 829, max: 828 },
    ),
    (
        |request, _| request.send(Payload::Inline(&[0; 0x1_0000])),
        PostError::InlineTooLong { length: 0xffff, max: 828 },
    ),
    (|request, _| request.rdma_read(REMOTE, &[Sge { length: 0, ..SGE }]), PostError::SgeEmpty { index: 0 }),
    (
        |request, _| request.rdma_read(REMOTE, &[Sge { length: u32::MAX, ..SGE }]),
        PostError::SgeTooLong { index: 0, mebibytes: 4095 },
    ),
    (|request, _| request.raw(&sized(0)), PostError::RawSize { octowords: 0 }),
    (|request, _| request.raw(&sized(64)), PostError::RawSize { octowords: 64 }),
    (|request, _| request.raw(&sized(63)[..1007]), PostError::RawTooShort { needed: 1008, have: 1007 }),
    (|request, _| request.memcpy(HERE, HERE, 1), PostError::MemcpyUnsupported),
];

const fn wrong(length: u32) -> KlmEntry {
    KlmEntry { length, ..ENTRY }
}

/// Posts `number` requests before a refused one, and publishes about half of them. Depending on `number`, the
/// refused request gets a fence or not, and the queue already knows enough free blocks for it or not.
fn prologue(queue: &mut Queue<'_>, mkey: &mut Mkey, number: u32) {
    for at in 0..number {
        match at % 3 {
            0 => queue.request(1).nop().unwrap(),
            1 => configure(queue.request(2), mkey, Layout::List(&[ENTRY; 5])).unwrap(),
            _ => queue.request(3).send(&[SGE; 11]).unwrap(),
        }
        if at < number / 2 {
            queue.ring_doorbell();
        }
    }
}

#[test]
fn what_is_refused_has_changed_nothing() {
    let states: [fn(&mut Mkey); 2] = [|_| (), Mkey::forget];
    // Some queues start at block 56 of 64, so that the refused request would wrap around the ring's end.
    for (number, first_block) in (0..7).flat_map(|number| [(number, 0), (number, 56)]) {
        for (post, error) in CASES {
            for state in states {
                let (mut rings, record) = ([[Wqebb([0xa5; 64]); 64]; 2], DoorbellRecord::new());
                let [ring, other_ring] = &mut rings;
                let mut queue = queue(ring, &record, first_block);
                let mut mkey = signature_mkey();
                prologue(&mut queue, &mut mkey, number);
                state(&mut mkey);
                let (before, queue_before) = (mkey.clone(), known(&queue));
                assert_eq!(post(queue.request(9).signaled(), &mut mkey), Err(error));
                assert_eq!((known(&queue), &mkey), (queue_before, &before));
                refuse_in_batch(&mut queue, &mut mkey, post, error);
                // A second queue gets the same requests without the refused one, and must end in the same
                // state.
                let other_record = DoorbellRecord::new();
                let mut other = super::queue(other_ring, &other_record, first_block);
                let mut other_mkey = signature_mkey();
                prologue(&mut other, &mut other_mkey, number);
                state(&mut other_mkey);
                epilogue(&mut other, &mut other_mkey);
                assert_eq!(mkey, other_mkey);
                assert_eq!((known(&queue).0, known(&queue).1), (known(&other).0, known(&other).1));
                let meant = |queue: &Queue<'_>| ring_end::meant(&known(queue).4);
                assert_eq!(meant(&queue), meant(&other));
            }
        }
    }
}

/// Posts requests after a refused one.
fn epilogue(queue: &mut Queue<'_>, mkey: &mut Mkey) {
    let mut batch = queue.batch();
    configure(batch.request(4), mkey, Layout::List(&[ENTRY; 2])).unwrap();
    batch.request(5).nop().unwrap();
}

/// Posts the requests of [`epilogue`], with refused requests before, between and after them.
fn refuse_in_batch(queue: &mut Queue<'_>, mkey: &mut Mkey, post: PostOne, error: PostError) {
    let mut batch = queue.batch();
    let refuse = |batch: &mut Batch<'_, '_, _>, mkey: &mut Mkey| {
        let (before, queue_before) = (mkey.clone(), known(batch.queue));
        assert_eq!(post(batch.request(9).signaled(), mkey), Err(error));
        assert_eq!((known(batch.queue), &*mkey), (queue_before, &before));
    };
    refuse(&mut batch, mkey);
    configure(batch.request(4), mkey, Layout::List(&[ENTRY; 2])).unwrap();
    refuse(&mut batch, mkey);
    batch.request(5).nop().unwrap();
    refuse(&mut batch, mkey);
}

#[test]
fn a_configuration_is_posted_as_a_whole_or_not_at_all() {
    // The configuration consists of three work requests: a UMR of five blocks, and two SET_PSVs.
    for (free, first_block) in (0..9).flat_map(|free| [(free, 0), (free, 60), (free, 64 - free)]) {
        for limits_requests in [false, true] {
            let (mut ring, record) = ([Wqebb([0xa5; 64]); 64], DoorbellRecord::new());
            let mut start = SendQueueConfig { first_block, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
            let posted = if limits_requests { 3 } else { 64 - free };
            if limits_requests {
                start.max_requests = posted + free;
            }
            let witness = Witness { record: &record, seen: Vec::new() };
            let mut queue = Queue::new(start, &mut ring, SendSlot::leaked(64), &record, witness).unwrap();
            for _ in 0..posted {
                queue.request(1).nop().unwrap();
            }
            queue.ring_doorbell();
            let mut mkey = signature_mkey();
            let (before, queue_before) = (mkey.clone(), known(&queue));
            let (short, free) = (free < if limits_requests { 3 } else { 7 }, free as u16);
            let error = match limits_requests {
                true => PostError::TooManyRequests { needed: 3, free },
                false => PostError::SendRingFull { needed: 7, free },
            };
            for _ in 0..if short { 2 } else { 0 } {
                let result = configure(queue.request(2), &mut mkey, Layout::List(&[ENTRY; 5]));
                assert_eq!(result, Err(error));
                let result = configure(queue.batch().request(2), &mut mkey, Layout::List(&[ENTRY; 5]));
                assert_eq!(result, Err(error));
                assert_eq!((known(&queue), &mkey), (queue_before.clone(), &before));
            }
            if !short {
                configure(queue.request(2), &mut mkey, Layout::List(&[ENTRY; 5])).unwrap();
                assert_eq!((queue.producer(), mkey.length()), (queue_before.0[0] + 7, 5 * 512));
            }
        }
    }
}

#[test]
fn what_can_never_be_posted_is_refused_for_that_by_a_full_queue() {
    for (nops, max_requests) in [(64, u32::MAX), (61, u32::MAX), (3, 3), (3, 4)] {
        let (mut ring, record) = ([Wqebb([0xa5; 64]); 64], DoorbellRecord::new());
        let start = SendQueueConfig { max_requests, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
        let witness = Witness { record: &record, seen: Vec::new() };
        let mut queue = Queue::new(start, &mut ring, SendSlot::leaked(64), &record, witness).unwrap();
        let mut mkey = signature_mkey();
        for _ in 0..nops {
            queue.request(1).nop().unwrap();
        }
        let full = configure(queue.request(2), &mut mkey, Layout::List(&[ENTRY; 5]));
        assert!(matches!(full, Err(PostError::SendRingFull { .. } | PostError::TooManyRequests { .. })));
        let (before, queue_before) = (mkey.clone(), known(&queue));
        for (post, error) in CASES {
            assert_eq!(post(queue.request(9), &mut mkey), Err(error), "{nops} of {max_requests}");
            assert_eq!((known(&queue), &mkey), (queue_before.clone(), &before));
        }
    }
}
