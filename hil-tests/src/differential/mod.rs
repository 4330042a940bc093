//! Random requests, issued by the installed libmlx5 and by the library, and compared byte by byte.
//!
//! The reference writes into the ring of a queue pair that the device does not execute; the library into an array, with
//! the same numbers and limits. What the reference keeps to itself, the numbers of an mkey's PSVs and of the DEK, is read
//! from what it wrote first, and must stay the same from then on.
//!
//! Not reached: the end of the ring and full queues (the reference frees room with completions, which never come; both
//! are in `vectors/`), error counts behind a signature error, and what differs on purpose (`vectors/DIFFERENCES.md`; sums
//! of lengths over 2^31, D24). Chains that both sides refuse are not compared further: the mkey is then made anew.

mod case;
mod ffi;

use case::{Config, Flags, Kind, Limits, Mapping, Payload, Random, SignatureStep, Work};
use ffi::{Device, PATTERN, RefMkey, RefQueue};
use mlx5_mkey::inspect::Requests;
use mlx5_mkey::mkey::{
    Access, BlockSignature, InterleavedEntry, Layout, ListEntry, Mkey, MkeyAttributes, MkeyConfig,
    SignatureAttributes, SignatureChange, XtsEngine,
};
use mlx5_mkey::queue::{Doorbell, DoorbellRecord, Request, SendQueue, SendQueueConfig};
use mlx5_mkey::types::{DekId, Key, PsvIndex, Qpn};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::{Payload as Data, Sge};
use std::fmt::Write as _;
use std::io;
use std::rc::Rc;

/// The device that is opened: that of the stand-in.
const DEVICE: &str = "mlx5_0";
/// Largest ring of the reference, in blocks.
const MAX_BLOCKS: usize = 8192;
/// What queue pairs are asked for; they may get more.
const REQUESTS: u32 = 64;
const INLINE: [u32; 8] = [508, 508, 508, 700, 700, 380, 200, 0];
const SGES: [u32; 4] = [16, 1, 4, 30];
/// Blocks and requests that no chain exceeds.
const MOST_BLOCKS: usize = 128;
const MOST_REQUESTS: u32 = 16;
/// Differences that are described; the rest is counted.
const DESCRIBED: usize = 5;
/// Chains that an mkey lives through, at most.
const LIFE: u32 = 8;

/// What came of a run.
#[derive(Debug, Default)]
pub struct Tally {
    /// Chains of requests.
    pub chains: u64,
    /// Configurations of mkeys in them.
    pub configurations: u64,
    /// Those of them that both sides posted.
    pub posted: u64,
    /// Blocks that both sides wrote, and that were compared.
    pub blocks: u64,
    /// Chains that differ.
    pub differ: u64,
    /// Chains that both sides refuse.
    pub refused: u64,
    /// The first differences, described.
    pub differences: Vec<String>,
}

/// Runs chains until so many configurations have been tried.
///
/// # Errors
/// What the installed libraries could not do.
pub fn run(count: u64, seed: u64) -> io::Result<Tally> {
    let mut random = Random::new(seed);
    let device = Device::open(DEVICE)?;
    let mut tally = Tally::default();
    let dek = learn_dek(&device)?;
    let mut queue = Queue::create(&device, &mut random)?;
    let mut pair: Option<Pair> = None;
    while tally.configurations < count {
        if queue.is_nearly_full() {
            queue = Queue::create(&device, &mut random)?;
        }
        let mut this = match pair.take() {
            Some(pair) => pair,
            None => Pair::create(&device, &mut random)?,
        };
        if random.percent(25) {
            this.retag(random.next() as u8)?;
        }
        let limits = Limits {
            kind: this.kind,
            max_entries: this.max_entries,
            max_inline_data: queue.reference.max_inline_data,
            max_sge: queue.reference.max_sge,
            dek,
            key: this.reference.key(),
        };
        let chain = case::chain(&mut random, &limits);
        tally.chains += 1;
        let configurations =
            chain.iter().filter(|(_, work)| matches!(work, Work::Configure(_))).count() as u64;
        tally.configurations += configurations;
        match queue.try_chain(&chain, &mut this) {
            Outcome::Same(blocks) => {
                tally.posted += configurations;
                tally.blocks += blocks as u64;
                this.life += 1;
                if this.life < LIFE && this.is_known() {
                    pair = Some(this);
                }
            }
            Outcome::Refused => tally.refused += 1,
            Outcome::Differs(what) => {
                tally.differ += 1;
                if tally.differences.len() < DESCRIBED {
                    tally.differences.push(format!(
                        "chain {}, mkey with {} entries, {:?}, chain {} of its life: {what}\n{chain:#x?}",
                        tally.chains, this.max_entries, this.kind, this.life
                    ));
                }
                queue = Queue::create(&device, &mut random)?;
            }
        }
    }
    Ok(tally)
}

/// Has the reference configure an mkey for encryption and reads the number of the DEK from it.
fn learn_dek(device: &Rc<Device>) -> io::Result<DekId> {
    let kind = Kind { signature: false, crypto: true };
    let mkey = RefMkey::create(device, kind, 4)?;
    let mut queue = RefQueue::create(device, REQUESTS, INLINE[0], SGES[0])?;
    queue.wipe();
    let flags = Flags { fence: false, signaled: false, solicited: false };
    let errno = queue.issue(&[(flags, Work::Configure(case::crypto_only(DekId::from_low_bits(0))))], &mkey);
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    let ring = queue.ring();
    // The crypto BSF is the last block of the request; the DEK stands at byte 32.
    let end = usize::from(ring[7] & 0x3f) * 16;
    Ok(DekId::from_low_bits(word(&ring, end - 64 + 32)))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// An mkey of the reference, and what the library knows of it.
struct Pair {
    kind: Kind,
    max_entries: u16,
    reference: RefMkey,
    /// PSVs of the memory and the wire domain, as soon as the reference has told.
    psvs: [Option<u32>; 2],
    /// Made when the reference has issued its first chain.
    ours: Option<Mkey>,
    life: u32,
}

impl Pair {
    fn create(device: &Rc<Device>, random: &mut Random) -> io::Result<Self> {
        let kind = Kind { signature: random.percent(65), crypto: random.percent(55) };
        let max_entries = (1 + random.below(8) as u16) * 4;
        let reference = RefMkey::create(device, kind, max_entries)?;
        Ok(Self { kind, max_entries, reference, psvs: [None; 2], ours: None, life: 0 })
    }

    /// Gives the key another tag, which the next configuration writes.
    fn retag(&mut self, tag: u8) -> io::Result<()> {
        self.reference.set_tag(tag);
        match &mut self.ours {
            Some(mkey) => mkey.set_tag(tag).map_err(|error| io::Error::other(format!("{error:?}"))),
            None => Ok(()),
        }
    }

    /// Nothing of what the reference keeps to itself is missing for the next chain.
    fn is_known(&self) -> bool {
        !self.kind.signature || self.psvs.iter().all(Option::is_some)
    }

    /// Reads the PSVs' numbers from the requests that set them, memory first.
    fn learn(&mut self, chain: &[(Flags, Work)], requests: &[u8]) {
        let mut set = Requests::new(requests)
            .filter(|(_, request)| request.bytes()[3] == SET_PSV)
            .filter_map(|(_, request)| request.bytes().get(16..20).map(|bytes| word(bytes, 0)));
        for (_, work) in chain {
            let Work::Configure(Config { signature: SignatureStep::Set { memory, wire, .. }, .. }) = work
            else {
                continue;
            };
            for (at, there) in [memory.is_some(), wire.is_some()].into_iter().enumerate() {
                if there {
                    let number = set.next();
                    self.psvs[at] = self.psvs[at].or(number);
                }
            }
        }
    }

    fn mkey(&self) -> Result<Mkey, String> {
        let psv = |at: usize| PsvIndex::from_low_bits(self.psvs[at].unwrap_or(0));
        Mkey::new(MkeyAttributes {
            key: Key::from_raw(self.reference.key()),
            max_entries: self.max_entries,
            signature: self.kind.signature.then(|| SignatureAttributes::new(psv(0), psv(1))),
            crypto: self.kind.crypto.then_some(XtsEngine::MultiBlock),
            tag_update: true,
        })
        .map_err(|error| format!("{error:?}"))
    }
}

/// A queue pair of the reference, and the state that the library's queue is given.
struct Queue {
    reference: RefQueue,
    producer: u32,
    outstanding: u32,
    small_fence: bool,
}

enum Outcome {
    /// Nothing differs, in so many blocks.
    Same(usize),
    Refused,
    Differs(String),
}

struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _control: [u8; 8]) {}
}

type Ours<'r> = SendQueue<'r, Silent, MAX_BLOCKS>;

impl Queue {
    fn create(device: &Rc<Device>, random: &mut Random) -> io::Result<Self> {
        let (inline, sges) = (random.pick(&INLINE), random.pick(&SGES));
        let reference = RefQueue::create(device, REQUESTS, inline, sges)?;
        if reference.blocks > MAX_BLOCKS || reference.blocks < 2 * MOST_BLOCKS {
            return Err(io::Error::other(format!("a ring of {} blocks", reference.blocks)));
        }
        Ok(Self { reference, producer: 0, outstanding: 0, small_fence: false })
    }

    /// The reference frees room only with completions, which never come.
    fn is_nearly_full(&self) -> bool {
        self.producer as usize + MOST_BLOCKS > self.reference.blocks
            || self.outstanding + MOST_REQUESTS > self.reference.max_requests
    }

    fn try_chain(&mut self, chain: &[(Flags, Work)], pair: &mut Pair) -> Outcome {
        self.reference.wipe();
        let before = self.reference.counter();
        let errno = self.reference.issue(chain, &pair.reference);
        let theirs = self.reference.ring();
        let counter = self.reference.counter();
        let end = u32::from_be_bytes(counter) as usize;
        let start = self.producer as usize;
        if errno == 0 {
            match theirs.get(start * 64..end * 64) {
                Some(requests) => pair.learn(chain, requests),
                None => return Outcome::Differs(format!("the reference counts from {start} to {end}")),
            }
        } else if counter != before {
            return Outcome::Differs("the reference has refused and counted on".into());
        }

        let mut ring = vec![Wqebb([!PATTERN; 64]); self.reference.blocks];
        let record = DoorbellRecord::new();
        let config = SendQueueConfig {
            max_inline_data: self.reference.max_inline_data,
            max_sge: self.reference.max_sge,
            max_requests: self.reference.max_requests - self.outstanding,
            first_block: self.producer,
            small_fence: self.small_fence,
            ..SendQueueConfig::new(Qpn::from_low_bits(self.reference.number))
        };
        let mut queue = match Ours::new(config, &mut ring, &record, Silent) {
            Ok(queue) => queue,
            Err(error) => return Outcome::Differs(format!("queue: {error:?}")),
        };
        let mut mkey = match pair.ours.take().map_or_else(|| pair.mkey(), Ok) {
            Ok(mkey) => mkey,
            Err(error) => return Outcome::Differs(error),
        };
        let posted = chain.iter().enumerate().try_for_each(|(number, (flags, work))| {
            let mut request = queue.request(number as u64);
            if flags.fence {
                request = request.fenced();
            }
            if flags.signaled {
                request = request.signaled();
            }
            if flags.solicited {
                request = request.solicited();
            }
            post(request, work, &mut mkey)
        });
        queue.ring_doorbell();
        let (producer, outstanding, fence) = (queue.producer(), queue.outstanding(), queue.next_fence());
        drop(queue);
        match (errno, posted) {
            (0, Err(error)) => {
                let theirs = in_words(theirs.get(start * 64..end * 64).unwrap_or_default());
                Outcome::Differs(format!("the reference posts it, the library refuses: {error}\n{theirs}"))
            }
            (errno, Ok(())) if errno != 0 => {
                Outcome::Differs(format!("the library posts it, the reference refuses with errno {errno}"))
            }
            (0, Ok(())) => {
                let [_, ours_counted] = record.bytes();
                let ours: Vec<u8> = ring.iter().flat_map(|block| block.0).collect();
                let difference = if ours_counted != counter {
                    Some(format!("counter {ours_counted:02x?}, the reference has {counter:02x?}"))
                } else {
                    compare(&ours, &theirs, start, end)
                };
                self.producer = producer;
                self.outstanding += outstanding;
                self.small_fence = fence != 0;
                pair.ours = Some(mkey);
                match difference {
                    None => Outcome::Same(end - start),
                    Some(what) => {
                        let (ours, theirs) = (
                            in_words(&ours[start * 64..producer as usize * 64]),
                            in_words(&theirs[start * 64..end * 64]),
                        );
                        Outcome::Differs(format!("{what}\nlibrary:\n{ours}\nreference:\n{theirs}"))
                    }
                }
            }
            (_, Err(error)) if error.starts_with("RingFull") || error.starts_with("TooManyRequests") => {
                Outcome::Differs(format!("the reference refuses it with errno {errno}, the library: {error}"))
            }
            (_, Err(_) | Ok(())) => Outcome::Refused,
        }
    }
}

fn in_words(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (offset, request) in Requests::new(bytes) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "block {}:\n{request}", offset / 64);
    }
    text
}

const RDMA_WRITE_IMM: u8 = 0x09;
const SEND_IMM: u8 = 0x0b;
const SEND_INVALIDATE: u8 = 0x01;
const SET_PSV: u8 = 0x20;
const UMR: u8 = 0x25;

/// Compares two rings in which the blocks from `start` to `end` were written.
fn compare(ours: &[u8], theirs: &[u8], start: usize, end: usize) -> Option<String> {
    let outside = |ring: &[u8], pattern: u8| {
        let (before, behind) = (&ring[..start * 64], &ring[end * 64..]);
        before == vec![pattern; before.len()] && behind == vec![pattern; behind.len()]
    };
    if !outside(ours, !PATTERN) {
        return Some("blocks written beside the requests".into());
    }
    if !outside(theirs, PATTERN) {
        return Some("blocks written beside the requests, by the reference".into());
    }
    let mut block = start;
    while block < end {
        let from = block * 64;
        let octowords = usize::from(theirs[from + 7] & 0x3f);
        let length = octowords * 16;
        if length == 0 {
            return Some(format!("block {block} of the reference has no size"));
        }
        let opcode = theirs[from + 3];
        for at in 0..length {
            let (our, their) = (ours[from + at], theirs[from + at]);
            // A byte that the reference may leave as it was, and did.
            let untouched = their == PATTERN && may_be_untouched(opcode, at, length, &theirs[from..]);
            if our != their && !untouched {
                return Some(format!(
                    "block {block} byte {at} of {length}: {our:#04x}, the reference has {their:#04x}"
                ));
            }
        }
        block += length.div_ceil(64);
    }
    None
}

/// Returns whether the reference leaves this byte of a request as it finds it.
fn may_be_untouched(opcode: u8, at: usize, length: usize, request: &[u8]) -> bool {
    /// Control and UMR segment, and the mkey's segment: no more, as of a LOCAL_INV.
    const INVALIDATE_BYTES: usize = 128;
    match opcode {
        // Only its key (4..8) and the state (0) are set.
        UMR => length == INVALIDATE_BYTES && ((65..68).contains(&at) || at >= 72),
        RDMA_WRITE_IMM | SEND_IMM | SEND_INVALIDATE => in_inline_padding(opcode, at, length, request),
        _ => (12..16).contains(&at) || opcode != SET_PSV && in_inline_padding(opcode, at, length, request),
    }
}

/// Returns whether this byte lies behind inline data that end within the request's last 16 bytes.
fn in_inline_padding(opcode: u8, at: usize, length: usize, request: &[u8]) -> bool {
    // RDMA WRITE (8) and READ (16) have a remote address behind the control segment.
    let header = if matches!(opcode, 0x08 | RDMA_WRITE_IMM | 0x10) { 32 } else { 16 };
    if length <= header {
        return false;
    }
    let count = word(request, header);
    let data = (count & 0x3ff) as usize;
    let inline = count >> 31 == 1;
    let end = header + 4 + data;
    inline && end.next_multiple_of(16) == length && at >= end
}

/// Posts one request with the library.
fn post(request: Request<'_, '_, Silent, MAX_BLOCKS>, work: &Work, mkey: &mut Mkey) -> Result<(), String> {
    let posted = match work {
        Work::Configure(config) => return configure(request, config, mkey),
        Work::Invalidate(key) => request.invalidate(Key::from_raw(*key)),
        Work::Read(remote, list) => request.rdma_read(*remote, &sges(list)?),
        Work::Send(payload)
        | Work::SendImm(_, payload)
        | Work::SendInvalidate(_, payload)
        | Work::Write(_, payload)
        | Work::WriteImm(_, _, payload) => {
            let list;
            let data = match payload {
                Payload::Inline(bytes) => Data::Inline(bytes),
                Payload::Sges(entries) => {
                    list = sges(entries)?;
                    Data::Sges(&list)
                }
            };
            match work {
                Work::SendImm(imm, _) => request.send_imm(*imm, data),
                Work::SendInvalidate(key, _) => request.send_invalidate(Key::from_raw(*key), data),
                Work::Write(remote, _) => request.rdma_write(*remote, data),
                Work::WriteImm(remote, imm, _) => request.rdma_write_imm(*remote, *imm, data),
                _ => request.send(data),
            }
        }
    };
    posted.map_err(|error| format!("{error:?}"))
}

fn sges(list: &[(u64, u32, u32)]) -> Result<Vec<Sge>, String> {
    list.iter()
        .map(|&(address, length, key)| Sge::new(address, length, Key::from_raw(key)))
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{error:?}"))
}

fn configure(
    request: Request<'_, '_, Silent, MAX_BLOCKS>,
    config: &Config,
    mkey: &mut Mkey,
) -> Result<(), String> {
    let mut list = Vec::new();
    let mut strides = Vec::new();
    let layout = match &config.layout {
        None => None,
        Some(Mapping::List(entries)) => {
            for &(address, length, key) in entries {
                let entry = ListEntry::new(address, length, Key::from_raw(key));
                list.push(entry.map_err(|error| format!("{error:?}"))?);
            }
            Some(Layout::list(&list))
        }
        Some(Mapping::Interleaved(repeat, entries)) => {
            for &(address, bytes, skip, key) in entries {
                let entry = InterleavedEntry::new(address, bytes, skip, Key::from_raw(key));
                strides.push(entry.map_err(|error| format!("{error:?}"))?);
            }
            Some(Layout::interleaved(*repeat, &strides).map_err(|error| format!("{error:?}"))?)
        }
    };
    let signature = match &config.signature {
        SignatureStep::Keep => SignatureChange::Keep,
        SignatureStep::Reset => SignatureChange::Reset,
        SignatureStep::Set { memory, wire, check_mask, copy_mask } => {
            let signature = match (*memory, *wire) {
                (Some(memory), Some(wire)) => BlockSignature::both(memory, wire),
                (Some(memory), None) => BlockSignature::memory(memory),
                (None, Some(wire)) => BlockSignature::wire(wire),
                (None, None) => return Err("signature of no domain".into()),
            };
            let signature = signature.with_check_mask(*check_mask);
            SignatureChange::Set(match copy_mask {
                Some(mask) => signature.with_copy_mask(*mask).map_err(|error| format!("{error:?}"))?,
                None => signature,
            })
        }
    };
    let access = config.access.map(|bits| {
        // IBV_ACCESS_LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC.
        [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC]
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| bits >> bit & 1 == 1)
            .fold(Access::NONE, |rights, (_, right)| rights | right)
    });
    let config = MkeyConfig { access, layout, signature, crypto: config.crypto };
    request.configure_mkey(mkey, &config).map_err(|error| format!("{error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SEND with 5 bytes of inline data behind an empty block: written by the library, and by the reference.
    fn rings() -> (Vec<u8>, Vec<u8>) {
        let (mut ours, mut theirs) = (vec![!PATTERN; 192], vec![PATTERN; 192]);
        for ring in [&mut ours, &mut theirs] {
            ring[64..76].copy_from_slice(&[0, 0, 1, 0x0a, 0, 0, 7, 2, 0, 0, 0, 0]);
            ring[80..89].copy_from_slice(&[0x80, 0, 0, 5, 1, 2, 3, 4, 5]);
        }
        (ours, theirs)
    }

    #[test]
    fn only_what_the_reference_left_alone_may_differ() {
        let (ours, theirs) = rings();
        assert_eq!(compare(&ours, &theirs, 1, 2), None);
        // Control segment but for its immediate data, and inline data.
        for at in (64..76).chain(80..89) {
            let mut wrong = ours.clone();
            wrong[at] ^= 1;
            assert!(compare(&wrong, &theirs, 1, 2).is_some(), "byte {at}");
        }
        // Blocks beside it.
        for at in [0, 63, 128, 191] {
            let mut wrong = ours.clone();
            wrong[at] ^= 1;
            assert!(compare(&wrong, &theirs, 1, 2).is_some(), "byte {at}");
        }
        // The reference has written the immediate data after all.
        let mut wrong = theirs.clone();
        wrong[76] = 0;
        assert!(compare(&ours, &wrong, 1, 2).is_some());
    }
}
