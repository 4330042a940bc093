//! Tests that requests have the same bytes wherever they begin in the ring, even across its end, and that no
//! other block is written.

use super::*;
use crate::mkey::InterleavedEntry;
use crate::queue::SendRequest;
use crate::wqe::control::split_requests;
use crate::wqe::{Local, MaskedAtomic, MemcpyConfig};

/// Returns the bytes that the device reads from these blocks.
pub(super) fn meant(blocks: &[Wqebb]) -> Vec<Vec<u8>> {
    let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.0).collect();
    split_requests(&bytes)
}

struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: &LastRequest<'_>) {}
}

const REMOTE: Remote = Remote { address: 0x0123_4567_89ab_cdef, rkey: KEY };

const STREAM: InterleavedEntry = InterleavedEntry { address: 0, bytes: 512, skip: 8, key: KEY };

/// Posts a configuration.
fn configure<'l>(
    request: SendRequest<'_, '_>,
    mkey: &mut Mkey,
    signature: SignatureChange,
    layout: impl Into<Layout<'l>>,
) -> Result<(), PostError> {
    let access = Some(Access::ALL);
    request.configure_mkey(
        mkey,
        &prepare(mkey, &MkeyConfig { access, signature, crypto: None }),
        layout.into(),
    )
}

type PostOne = fn(SendRequest<'_, '_>, &mut Mkey) -> Result<(), PostError>;

/// A raw request of the maximum size.
const RAW: [u8; 1008] = {
    let mut bytes = [0x3c; 1008];
    bytes[7] = 63;
    bytes
};

const HERE: Local = Local { address: 7, lkey: KEY };

/// Requests of all kinds, with 1 to 16 blocks.
const REQUESTS: [PostOne; 20] = [
    |request, mkey| configure(request, mkey, SignatureChange::Set(BOTH), &[ENTRY; 5]),
    |request, _| request.nop(),
    |request, mkey| configure(request, mkey, SignatureChange::Keep, &[ENTRY; 1]),
    |request, mkey| {
        configure(request, mkey, SignatureChange::Set(BlockSignature::wire(CRC32)), Layout::Unchanged)
    },
    |request, _| request.send(&[SGE; 11]),
    |request, mkey| {
        let layout = Layout::Interleaved { repeat: 3, entries: &[STREAM; 4] };
        configure(request, mkey, SignatureChange::Reset, layout)
    },
    |request, _| request.send_imm(0x1234, Payload::Inline(&[0x77; 100])),
    |request, mkey| configure(request, mkey, SignatureChange::Set(BOTH), &[ENTRY; 16]),
    |request, _| request.send_invalidate(KEY, &[]),
    |request, _| request.rdma_write(REMOTE, &[SGE; 6]),
    |request, _| request.rdma_write_imm(REMOTE, 7, Payload::Inline(&[0x88; 828])),
    |request, _| request.rdma_read(REMOTE, &[SGE; 3]),
    |request, _| request.fenced().compare_swap(REMOTE, 1, 2, HERE),
    |request, _| request.solicited().fetch_add(REMOTE, 1, HERE),
    |request, _| {
        let atomic = MaskedAtomic::CompareSwap64 { compare: 1, compare_mask: 2, swap: 3, swap_mask: 4 };
        request.masked_atomic(REMOTE, atomic, HERE)
    },
    |request, _| request.invalidate(KEY),
    |request, mkey| request.signaled().invalidate_mkey(mkey),
    |request, mkey| configure(request, mkey, SignatureChange::Reset, &[]),
    |request, _| request.raw(&RAW),
    |request, _| request.memcpy(HERE, HERE, 9),
];

#[test]
fn requests_are_the_same_wherever_they_begin() {
    let mut crossed = [0; REQUESTS.len()];
    for first_block in 0..16 {
        let (record, other_record) = (DoorbellRecord::new(), DoorbellRecord::new());
        let (mut ring, mut long_ring) = ([Wqebb([0xa5; 64]); 16], vec![Wqebb([0xa5; 64]); 1024]);
        let memcpy = Some(MemcpyConfig { opaque: HERE, log_max_bytes: 21 });
        let config =
            SendQueueConfig { first_block, memcpy, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
        let mut queue = SendQueue::new(config, &mut ring, SendSlot::leaked(16), &record, Silent).unwrap();
        // A second queue gets the same requests, over a ring that is so long that no request reaches its end.
        let mut other =
            SendQueue::new(config, &mut long_ring, SendSlot::leaked(1024), &other_record, Silent).unwrap();
        let mut mkeys = [signature_mkey(), signature_mkey()];
        for (count, post) in crossed.iter_mut().zip(REQUESTS) {
            let before: Vec<_> = (0..16).map(|at| queue.block(at)).collect();
            let (begin, [mine, its]) = (queue.producer(), &mut mkeys);
            post(queue.request(1), mine).unwrap();
            post(other.request(1), its).unwrap();
            let blocks = begin..queue.producer();
            assert_eq!((blocks.end, &*mine), (other.producer(), &*its));
            let [found, expected] = [
                blocks.clone().map(|at| queue.block(at)).collect::<Vec<_>>(),
                blocks.clone().map(|at| other.block(at)).collect(),
            ];
            assert_eq!(meant(&found), meant(&expected));
            for at in blocks.end..begin + 16 {
                assert_eq!(queue.block(at), before[at as usize % 16], "not of the request");
            }
            *count += u32::from((blocks.end - 1) / 16 > begin / 16);
            queue.ring_doorbell();
            retire_all(&mut queue);
        }
    }
    let blocks_less_1 = [6, 0, 2, 3, 2, 3, 1, 8, 0, 1, 13, 1, 0, 0, 1, 1, 1, 1, 15, 0];
    assert_eq!(crossed, blocks_less_1, "each has crossed the ring's end at each of its blocks");
}

/// Retires all requests, so that the whole ring is free.
fn retire_all(queue: &mut SendQueue<'_, Silent>) {
    let end = queue.producer();
    let retired =
        (1..=16).map(|back| end.wrapping_sub(back) as u16).find_map(|counter| queue.retire_at(counter));
    assert!(retired.is_some() && queue.outstanding() == 0);
}
