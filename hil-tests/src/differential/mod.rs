//! Random requests, issued by the installed libmlx5 and by the library: compared byte by byte, then executed.
//!
//! The reference writes into the ring of a queue pair that its device does not execute; the library into an array, with
//! the same numbers and limits. What the reference keeps to itself, the numbers of an mkey's PSVs and of the DEK, is read
//! from what it wrote first, and must stay the same from then on.
//!
//! Then both rings are copied as they stand to software devices that were alike so far, and must be alike afterwards
//! (`execute`). The completions go back to the reference's completion queue and to one of the library's, which frees room
//! in the rings and tells both sides of signature errors; what they say of them must be the same.
//!
//! The library's queue is made with the reference's limits, or without one or both of them; each chain is posted in one of the
//! ways (`way.rs`), in a ring of each size that libmlx5 makes.
//!
//! Not reached: what differs on purpose (`vectors/DIFFERENCES.md`; sums of lengths over 2^31, D24). Chains that both sides
//! refuse are not compared further: the mkey is then made anew.

mod case;
mod check;
mod compare;
mod execute;
mod ffi;
mod post;

use crate::way::{Configured, Way};
use case::{Config, Flags, Kind, Limits, Random, SignatureStep, Work};
use check::{Answers, Unread};
use compare::{SET_PSV, compare, in_words, straight, word};
use execute::{Executed, Twins};
use libmlx5::abi::QpCap;
use libmlx5::{Completions, Device, RefMkey, RefQueue};
use mlx5_mkey::inspect::Requests;
use mlx5_mkey::mkey::{Mkey, MkeyAttributes, SignatureAttributes, XtsEngine};
use mlx5_mkey::queue::{
    Completion, CompletionQueue, DoorbellRecord, Outcome, QpRouter, SendQueueConfig, WorkCompletion,
};
use mlx5_mkey::types::{DekId, Key, PsvIndex, Qpn};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, Syndrome};
use post::{Ours, Silent, post_chain};
use std::io;
use std::rc::Rc;

/// The device that is opened: that of the stand-in.
const DEVICE: &str = "mlx5_0";
/// Bytes that the reference's ring holds before a chain.
const PATTERN: u8 = 0xcc;
/// Smallest and largest ring of the reference, in blocks: a power of two.
const MIN_BLOCKS: usize = 4;
const MAX_BLOCKS: usize = 1 << 15;
/// Sizes of rings.
const SIZES: usize = (MAX_BLOCKS / MIN_BLOCKS).ilog2() as usize + 1;
/// What queue pairs are asked for; they may get more.
const INLINE: [u32; 8] = [508, 508, 508, 700, 700, 700, 380, 200];
const SGES: [u32; 4] = [16, 1, 4, 30];
/// How many chains a queue pair lives through, at most; with a ring that is long to compare, few.
const CHAINS: [u32; 3] = [50, 200, 500];
const LONG_RING: usize = 2048;
const CHAINS_OF_LONG: u32 = 16;
/// With one into which few requests fit, few chains, too.
const SHORT_RING: usize = 16;
const CHAINS_OF_SHORT: u32 = 50;
/// Entries that the completion queue of the reference is asked for.
const ENTRIES: u16 = 1000;
/// Completions that are taken at once, at most.
const COMPLETIONS: usize = 512;
/// Differences that are described; the rest is counted.
const DESCRIBED: usize = 5;
/// Chains that an mkey lives through, at most.
const LIFE: u32 = 8;
/// And one that had a signature error: it goes on.
const LIFE_BEHIND_ERRORS: u32 = 24;
/// `ENOMEM`, which the reference says of a full queue.
const ENOMEM: i32 = 12;

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
    /// Chains that were not issued, since the library wants again what a template had.
    pub of_template: u64,
    /// Times that `mlx5dv_mkey_check` had no error to name, on both sides.
    pub without_error: u64,
    /// Errors that both sides named, but read by different signatures: only that there is one was compared (`check`).
    pub presence_only: u64,
    /// The first differences, described.
    pub differences: Vec<String>,
    /// What must not be missing.
    pub coverage: Coverage,
}

/// How often what must not be missing from a run was there.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Configurations that both devices executed.
    pub executed: u64,
    /// Those of them in chains that moved data through the mkey.
    pub moved: u64,
    /// Chains that ended in an error completion.
    pub failed: u64,
    /// Signature errors that both sides were told of.
    pub signature_errors: u64,
    /// Those of them on an mkey that had one before and was configured since.
    pub errors_again: u64,
    /// Those of them that both sides named alike when asked, value by value (`mlx5dv_mkey_check`).
    pub checked: u64,
    /// Configurations by a template of mkeys that had a signature error before.
    pub templates_behind_errors: u64,
    /// Atomics.
    pub atomics: u64,
    /// Configurations through the reference's older calls.
    pub older: u64,
    /// Configurations of the cipher.
    pub crypto: u64,
    /// Chains that the reference refused for a limit that the library's queue did not have.
    pub lifted: u64,
    /// By way of posting.
    pub ways: [OfWay; Way::ALL.len()],
    /// Chains that both sides posted, by the limits of the library's queue: [`Lifted::NAMES`].
    pub limits: [u64; Lifted::NAMES.len()],
    /// Queue pairs by the size of their ring, from the smallest on.
    pub rings: [u64; SIZES],
}

/// What must not be missing from a way of posting.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfWay {
    /// Configurations that both devices executed, with a completion of their own and without.
    pub signaled: u64,
    /// See above.
    pub silent: u64,
    /// Those of them by a template.
    pub by_template: u64,
    /// Configurations that begin before the ring's end and end behind it.
    pub wrapped: u64,
    /// Configurations of mkeys that had a signature error before.
    pub behind_errors: u64,
    /// Chains for which the queue was too full.
    pub full: u64,
}

impl Coverage {
    /// Each count with its name.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let mut counts: Vec<(String, u64)> = [
            ("configurations executed", self.executed),
            ("configurations that moved data", self.moved),
            ("chains with an error completion", self.failed),
            ("signature errors", self.signature_errors),
            ("signature errors on an mkey that had one before", self.errors_again),
            ("signature errors named alike by mkey_check", self.checked),
            ("templates behind a signature error", self.templates_behind_errors),
            ("atomics executed", self.atomics),
            ("configurations by mr_list or mr_interleaved", self.older),
            ("cipher configurations executed", self.crypto),
            ("chains that the reference alone has no room for", self.lifted),
        ]
        .map(|(what, count)| (what.to_owned(), count))
        .into();
        for (way, of) in Way::ALL.into_iter().zip(&self.ways) {
            let mut add = |what: &str, count| counts.push((format!("{}: {what}", way.name()), count));
            add("configurations with a completion", of.signaled);
            add("configurations without", of.silent);
            add("configurations over the ring's end", of.wrapped);
            add("configurations behind a signature error", of.behind_errors);
            add("chains that a full queue refused", of.full);
            if way.templates() {
                add("configurations by a template", of.by_template);
            }
        }
        let limits = Lifted::NAMES.into_iter().zip(self.limits);
        counts.extend(limits.map(|(what, count)| (format!("chains with {what}"), count)));
        let rings = self.rings.iter().enumerate();
        counts.extend(rings.map(|(log, count)| (format!("rings of {} blocks", MIN_BLOCKS << log), *count)));
        counts
    }
}

/// Which limits of the reference's queue the library's does not have.
#[derive(Clone, Copy, Debug)]
pub struct Lifted {
    requests: bool,
    inline: bool,
}

impl Lifted {
    /// The names of all combinations.
    pub const NAMES: [&'static str; 4] =
        ["the reference's limits", "requests unlimited", "inline data unlimited", "no limits"];

    fn number(self) -> usize {
        usize::from(self.requests) + 2 * usize::from(self.inline)
    }

    /// Returns the settings of the library's queue, for so many requests more than are outstanding.
    fn config(self, reference: &RefQueue, outstanding: u32) -> SendQueueConfig {
        let qpn = Qpn::from_low_bits(reference.number);
        SendQueueConfig {
            max_inline_data: if self.inline {
                SendQueueConfig::MAX_INLINE_DATA
            } else {
                reference.max_inline_data
            },
            max_sge: reference.max_sge,
            max_requests: if self.requests { u32::MAX } else { reference.max_requests - outstanding },
            ..SendQueueConfig::new(qpn)
        }
    }
}

/// Runs chains until so many configurations have been tried, on a device whose engine takes one data unit, or many.
///
/// # Errors
/// What the installed libraries could not do.
pub fn run(count: u64, seed: u64, single_block: bool) -> io::Result<Tally> {
    let device = Device::open(DEVICE, ENTRIES)?;
    let dek = learn_dek(&device)?;
    let twins = new_twins(single_block, dek)?;
    let (random, tally) = (Random::new(seed), Tally::default());
    let completions = Completions::new(&device)?;
    let mut session = Session {
        device,
        completions,
        random,
        tally,
        dek,
        single_block,
        twins,
        pending: Vec::new(),
        next_id: 0,
    };
    let mut pair = None;
    while session.tally.configurations < count {
        session.run_queue(count, &mut pair)?;
    }
    Ok(session.tally)
}

fn new_twins(single_block: bool, dek: DekId) -> io::Result<Twins> {
    use mlx5_softdev::XtsEngine;
    let engine = if single_block { XtsEngine::SingleBlock } else { XtsEngine::MultiBlock };
    Twins::new(engine, dek, &libmlx5::DEK_KEY)
}

/// Has the reference configure an mkey for encryption and reads the number of the DEK from it.
fn learn_dek(device: &Rc<Device>) -> io::Result<DekId> {
    let kind = Kind { signature: false, crypto: true };
    let mkey = RefMkey::create(device, kind.signature, kind.crypto, 4)?;
    let mut queue = RefQueue::create(device, capacity(64, INLINE[0], SGES[0]))?;
    queue.fill(PATTERN);
    let flags = Flags { fence: false, signaled: false, solicited: false };
    let chain = [(flags, Work::Configure(case::crypto_only(DekId::from_low_bits(0))))];
    let errno = ffi::issue(&mut queue, 0, &chain, &mkey);
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    let ring = queue.ring();
    // The crypto BSF is the last block of the request; the DEK stands at byte 32.
    let end = usize::from(ring[7] & 0x3f) * 16;
    Ok(DekId::from_low_bits(word(&ring, end - 64 + 32)))
}

/// What a queue pair is asked for.
fn capacity(max_send_wr: u32, max_inline_data: u32, max_send_sge: u32) -> QpCap {
    QpCap { max_send_wr, max_send_sge, max_inline_data, ..QpCap::default() }
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
    /// There was a signature error; and the mkey was configured behind it.
    erred: bool,
    rearmed: bool,
    /// A template has configured the mkey.
    templates: bool,
    /// A signature error that nobody has asked for yet.
    unread: Option<Unread>,
    /// Requests posted since the last poll, and whether one behind the first configured the mkey: an error that is polled
    /// now may come from before.
    unpolled: usize,
    reconfigured: bool,
    /// The reference keeps something that the library does not: it must not be used again.
    torn: bool,
}

impl Pair {
    fn create(device: &Rc<Device>, random: &mut Random) -> io::Result<Self> {
        let kind = Kind { signature: random.percent(65), crypto: random.percent(55) };
        let max_entries = (1 + random.below(8) as u16) * 4;
        let reference = RefMkey::create(device, kind.signature, kind.crypto, max_entries)?;
        Ok(Self {
            kind,
            max_entries,
            reference,
            psvs: [None; 2],
            ours: None,
            life: 0,
            erred: false,
            rearmed: false,
            templates: false,
            unread: None,
            unpolled: 0,
            reconfigured: false,
            torn: false,
        })
    }

    /// Gives the key another tag, which the next configuration writes.
    fn retag(&mut self, tag: u8) -> io::Result<()> {
        self.reference.set_tag(tag);
        match &mut self.ours {
            Some(mkey) => mkey.set_tag(tag).map_err(|error| io::Error::other(format!("{error:?}"))),
            None => Ok(()),
        }
    }

    /// Notes that a chain was posted: which signature an error is read by may change with it.
    fn note(&mut self, chain: &[(Flags, Work)]) {
        for (_, work) in chain {
            let configures = matches!(work, Work::Configure(_));
            self.reconfigured |= configures && self.unpolled > 0;
            self.unread = self.unread.map(|unread| Unread { stale: unread.stale || configures, ..unread });
            self.unpolled += 1;
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

    fn mkey(&self, single_block: bool) -> Mkey {
        let psv = |at: usize| PsvIndex::from_low_bits(self.psvs[at].unwrap_or(0));
        let engine = if single_block { XtsEngine::SingleBlock } else { XtsEngine::MultiBlock };
        Mkey::new(MkeyAttributes {
            key: Key::from_raw(self.reference.key()),
            max_entries: self.max_entries,
            signature: self.kind.signature.then(|| SignatureAttributes::new(psv(0), psv(1))),
            crypto: self.kind.crypto.then_some(engine),
            tag_update: true,
        })
    }
}

/// The queues of both sides.
struct Queues<'r> {
    reference: RefQueue,
    ours: Ours<'r>,
    lifted: Lifted,
    /// The library's ring as it was before the chain.
    before: Vec<u8>,
}

impl Queues<'_> {
    /// Copies the library's ring.
    fn ring(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.before.len());
        for block in 0..self.reference.blocks {
            bytes.extend_from_slice(&self.ours.block(block as u32).0);
        }
        bytes
    }
}

/// What comes of a chain.
enum Verdict {
    Same,
    Refused {
        full: bool,
    },
    /// The library's queue has room.
    Lifted,
    /// The library wants again what a template had: not issued.
    OfTemplate,
    Differs(String),
}

struct Session {
    device: Rc<Device>,
    completions: Completions,
    random: Random,
    tally: Tally,
    dek: DekId,
    single_block: bool,
    twins: Twins,
    /// Completions that neither side has been given yet.
    pending: Vec<Cqe>,
    /// Name of the next request.
    next_id: u64,
}

impl Session {
    /// Makes a queue pair and runs chains on it.
    fn run_queue(&mut self, count: u64, kept: &mut Option<Pair>) -> io::Result<()> {
        let reference = self.create_queue()?;
        let random = &mut self.random;
        // Completions wait until the queue is full.
        let lazy = random.percent(50);
        let chains = match reference.blocks {
            ..SHORT_RING => CHAINS_OF_SHORT,
            LONG_RING.. => CHAINS_OF_LONG,
            _ => random.pick(&CHAINS),
        };
        let lifted = Lifted { requests: random.percent(50), inline: random.percent(50) };
        self.twins.set_queue(reference.number, reference.blocks)?;
        let mut ring = vec![Wqebb([!PATTERN; 64]); reference.blocks];
        let before = vec![!PATTERN; reference.blocks * 64];
        let record = DoorbellRecord::new();
        let ours = Ours::new(lifted.config(&reference, 0), &mut ring, &record, Silent)
            .map_err(|error| io::Error::other(format!("queue: {error:?}")))?;
        let mut queues = Queues { reference, ours, lifted, before };
        for _ in 0..chains {
            if self.tally.configurations >= count {
                break;
            }
            let mut pair = match kept.take() {
                Some(pair) => pair,
                None => {
                    let pair = Pair::create(&self.device, &mut self.random)?;
                    let key = Key::from_raw(pair.reference.key());
                    self.twins.set_mkey(key, pair.kind, pair.max_entries)?;
                    pair
                }
            };
            let mut verdict = self.run_chain(&mut queues, &mut pair, lazy)?;
            // The reference keeps what a refused chain has half set up.
            pair.torn |= matches!(verdict, Verdict::Refused { .. } | Verdict::Lifted);
            // The mkeys of completions that wait must not go before them.
            let life = if pair.erred { LIFE_BEHIND_ERRORS } else { LIFE };
            let last = pair.torn || pair.life >= life || !pair.is_known();
            let poll = !lazy || last || self.pending.len() >= COMPLETIONS / 2;
            if poll
                && !matches!(verdict, Verdict::Differs(_))
                && let Some(what) = self.poll(&mut queues, &mut pair)?
            {
                verdict = Verdict::Differs(format!("completions: {what}"));
            }
            match verdict {
                Verdict::Same | Verdict::OfTemplate => {
                    self.tally.of_template += u64::from(matches!(verdict, Verdict::OfTemplate));
                    // What was polled may have torn it.
                    if !last && !pair.torn {
                        *kept = Some(pair);
                    }
                }
                Verdict::Lifted => {
                    self.tally.coverage.lifted += 1;
                    if is_stuck(&queues) {
                        return Ok(());
                    }
                }
                Verdict::Refused { full } => {
                    self.tally.refused += 1;
                    if full && is_stuck(&queues) {
                        return Ok(());
                    }
                }
                Verdict::Differs(what) => {
                    self.tally.differ += 1;
                    if self.tally.differences.len() < DESCRIBED {
                        self.tally.differences.push(format!(
                            "chain {}, mkey with {} entries, {:?}, chain {} of its life: {what}",
                            self.tally.chains, pair.max_entries, pair.kind, pair.life
                        ));
                    }
                    self.pending.clear();
                    self.twins = new_twins(self.single_block, self.dek)?;
                    return Ok(());
                }
            }
        }
        // What waits belongs to this queue.
        if let Some(mut pair) = kept.take()
            && let Some(what) = self.poll(&mut queues, &mut pair)?
        {
            self.tally.differ += 1;
            self.tally.differences.push(format!("completions: {what}"));
        }
        Ok(())
    }

    fn run_chain(&mut self, queues: &mut Queues<'_>, pair: &mut Pair, lazy: bool) -> io::Result<Verdict> {
        if self.random.percent(25) {
            pair.retag(self.random.next() as u8)?;
        }
        let wire = pair.ours.as_ref().and_then(Mkey::wire_length).unwrap_or(0);
        let limits = Limits {
            kind: pair.kind,
            max_entries: pair.max_entries,
            max_inline_data: queues.reference.max_inline_data,
            max_sge: queues.reference.max_sge,
            dek: self.dek,
            key: pair.reference.key(),
            single_block: self.single_block,
            wire_bytes: u32::try_from(wire).unwrap_or(0),
            room: lazy.then(|| queues.reference.max_requests.saturating_sub(queues.ours.outstanding())),
        };
        let way = self.random.pick(&Way::ALL);
        let chain = case::chain(&mut self.random, &limits);
        self.tally.chains += 1;
        self.tally.configurations += configurations(&chain);
        let verdict = self.compare_chain(queues, pair, way, &chain)?;
        pair.life += 1;
        Ok(match verdict {
            Verdict::Differs(what) => {
                let (name, lifted) = (way.name(), queues.lifted);
                Verdict::Differs(format!("by {name}, {lifted:?}: {what}\n{chain:#x?}"))
            }
            other => other,
        })
    }

    /// Has both sides issue a chain, compares their rings, and executes them.
    fn compare_chain(
        &mut self,
        queues: &mut Queues<'_>,
        pair: &mut Pair,
        way: Way,
        chain: &[(Flags, Work)],
    ) -> io::Result<Verdict> {
        if (pair.templates || way.templates()) && self.wants_again(queues, pair, way, chain)? {
            return Ok(Verdict::OfTemplate);
        }
        let first = self.next_id;
        self.next_id += chain.len() as u64;
        let reference = &mut queues.reference;
        reference.fill(PATTERN);
        let counter_before = reference.counter();
        let errno = ffi::issue(reference, first, chain, &pair.reference);
        let (theirs, counter) = (reference.ring(), reference.counter());
        if errno != 0 {
            if counter != counter_before {
                return Ok(Verdict::Differs("the reference has refused and counted on".into()));
            }
            let verdict = self.refuse(queues, pair, way, chain, errno);
            self.tally.coverage.ways[way as usize].full +=
                u64::from(matches!(verdict, Verdict::Refused { full: true }));
            return Ok(verdict);
        }
        let blocks = reference.blocks;
        let producer = queues.ours.producer();
        let count = usize::from((u32::from_be_bytes(counter) as u16).wrapping_sub(producer as u16));
        let start = producer as usize % blocks;
        if count > blocks {
            return Ok(Verdict::Differs(format!("the reference counts {count} blocks")));
        }
        let requests = straight(&theirs, start, count);
        pair.learn(chain, &requests);
        let mut mkey = pair.ours.take().unwrap_or_else(|| pair.mkey(self.single_block));
        let configured = match post_chain(&mut queues.ours, way, first, chain, &mut mkey) {
            Ok(configured) => configured,
            Err((number, error)) => {
                let words = in_words(&requests);
                let what = format!("the reference posts it, the library refuses request {number}: {error}");
                return Ok(Verdict::Differs(format!("{what}\n{words}")));
            }
        };
        pair.ours = Some(mkey);
        let ours = queues.ring();
        let [_, our_counter] = queues.ours.record().bytes();
        let difference = if our_counter == counter {
            compare(&ours, &queues.before, &theirs, start, count)
        } else {
            Some(format!("counter {our_counter:02x?}, the reference has {counter:02x?}"))
        };
        if let Some(what) = difference {
            let ours = in_words(&straight(&ours, start, count));
            let theirs = in_words(&requests);
            return Ok(Verdict::Differs(format!("{what}\nlibrary:\n{ours}\nreference:\n{theirs}")));
        }
        self.tally.posted += configurations(chain);
        pair.note(chain);
        self.tally.blocks += count as u64;
        self.tally.coverage.limits[queues.lifted.number()] += 1;
        self.twins.add_psvs(&pair.psvs.iter().flatten().copied().collect::<Vec<_>>())?;
        let executed = self.twins.execute((&theirs, counter), (&ours, our_counter))?;
        queues.before = ours;
        match executed {
            Ok(executed) => {
                let posted = Posted { way, configured, start, blocks, requests: &requests };
                self.count(pair, chain, &posted, &executed);
                self.pending.extend(executed.completions);
                Ok(Verdict::Same)
            }
            Err(what) => Ok(Verdict::Differs(format!("{what}\nreference:\n{}", in_words(&requests)))),
        }
    }

    /// Makes a queue pair with a ring of the size that there were fewest of.
    fn create_queue(&mut self) -> io::Result<RefQueue> {
        let rings = &self.tally.coverage.rings;
        let fewest = rings.iter().min().copied().unwrap_or_default();
        let wanted: Vec<usize> = (0..SIZES).filter(|log| rings[*log] == fewest).collect();
        let log = self.random.pick(&wanted);
        let blocks = MIN_BLOCKS << log;
        let (inline, sges) = (self.random.pick(&INLINE), self.random.pick(&SGES));
        // How many blocks libmlx5 reckons for a request depends on what it may hold.
        for (inline, sges) in [(inline, sges), (200, 4), (0, 1)] {
            for shift in 0..=5 {
                let requests = (blocks >> shift).max(1) as u32;
                let queue = RefQueue::create(&self.device, capacity(requests, inline, sges));
                if let Ok(queue) = queue
                    && queue.blocks == blocks
                {
                    self.tally.coverage.rings[log] += 1;
                    return Ok(queue);
                }
            }
        }
        Err(io::Error::other(format!("libmlx5 makes no ring of {blocks} blocks")))
    }

    /// Returns whether the library refuses the chain because a template's signature or crypto properties are to be written
    /// again, which it has not copied ([`ConfigError::StateUnknown`]).
    ///
    /// [`ConfigError::StateUnknown`]: mlx5_mkey::error::ConfigError::StateUnknown
    fn wants_again(
        &self,
        queues: &Queues<'_>,
        pair: &Pair,
        way: Way,
        chain: &[(Flags, Work)],
    ) -> io::Result<bool> {
        if configurations(chain) == 0 {
            return Ok(false);
        }
        let mut mkey = pair.ours.clone().unwrap_or_else(|| pair.mkey(self.single_block));
        let mut ring = vec![Wqebb::ZERO; queues.reference.blocks];
        let record = DoorbellRecord::new();
        let mut trial = Ours::new(queues.lifted.config(&queues.reference, 0), &mut ring, &record, Silent)
            .map_err(|error| io::Error::other(format!("queue: {error:?}")))?;
        let refused = post_chain(&mut trial, way, 0, chain, &mut mkey).err();
        Ok(refused.is_some_and(|(_, error)| error.contains("StateUnknown")))
    }

    /// Sees that the library refuses a chain, too, and changes nothing.
    fn refuse(
        &self,
        queues: &mut Queues<'_>,
        pair: &Pair,
        way: Way,
        chain: &[(Flags, Work)],
        errno: i32,
    ) -> Verdict {
        let mut mkey = pair.ours.clone().unwrap_or_else(|| pair.mkey(self.single_block));
        // Tried on a queue like this, for the requests before the one that is refused cannot be taken back.
        let mut ring = vec![Wqebb::ZERO; queues.reference.blocks];
        let record = DoorbellRecord::new();
        let same = Lifted { requests: false, inline: false };
        let config = same.config(&queues.reference, queues.ours.outstanding());
        let mut trial = match Ours::new(config, &mut ring, &record, Silent) {
            Ok(queue) => queue,
            Err(error) => return Verdict::Differs(format!("queue: {error:?}")),
        };
        let untouched = mkey.clone();
        let (number, error) = match post_chain(&mut trial, way, 0, chain, &mut mkey) {
            Err(refused) => refused,
            Ok(_) => {
                let what = format!("the library posts it, the reference refuses with errno {errno}");
                return Verdict::Differs(what);
            }
        };
        let full = error.starts_with("RingFull") || error.starts_with("TooManyRequests");
        if full && errno != ENOMEM {
            return Verdict::Differs(format!(
                "the reference refuses with errno {errno}, the library: {error}"
            ));
        }
        if queues.lifted.number() != 0 && is_limit(&error) {
            return if errno == ENOMEM { Verdict::Lifted } else { Verdict::Refused { full } };
        }
        if number == 0 {
            let (mut again, producer) = (untouched.clone(), queues.ours.producer());
            let refused = post_chain(&mut queues.ours, way, 0, chain, &mut again);
            let changed =
                again != untouched || queues.ours.producer() != producer || queues.ring() != queues.before;
            if refused.is_ok() || changed {
                return Verdict::Differs(format!("the library refuses and has changed something: {error}"));
            }
        }
        Verdict::Refused { full }
    }

    fn count(&mut self, pair: &mut Pair, chain: &[(Flags, Work)], posted: &Posted<'_>, executed: &Executed) {
        let coverage = &mut self.tally.coverage;
        let spans = posted.spans();
        let first_block = |span: &Span| (posted.start + span.start) as u16;
        let end = executed.failed.and_then(|block| {
            let before = |span: &Span| {
                let (behind, blocks) = (block.wrapping_sub(first_block(span)), posted.blocks as u16);
                usize::from(behind & blocks.wrapping_sub(1)) < span.blocks
            };
            spans.iter().position(before)
        });
        let done = end.unwrap_or(chain.len());
        let configured = configurations(chain.get(..done).unwrap_or_default());
        coverage.executed += configured;
        coverage.moved += if executed.moved { configured } else { 0 };
        coverage.failed += u64::from(executed.failed.is_some());
        coverage.signature_errors += executed.signature_errors;
        coverage.errors_again += if pair.rearmed { executed.signature_errors } else { 0 };
        pair.rearmed |= pair.erred && configured > 0;
        pair.templates |= posted.configured.by_template > 0;
        let way = &mut coverage.ways[posted.way as usize];
        way.by_template += posted.configured.by_template;
        if pair.erred {
            way.behind_errors += configured;
            coverage.templates_behind_errors += posted.configured.by_template;
        }
        for ((flags, work), span) in chain.iter().zip(&spans).take(done) {
            match work {
                Work::Configure(config) => {
                    way.signaled += u64::from(flags.signaled);
                    way.silent += u64::from(!flags.signaled);
                    let first = (posted.start + span.start) % posted.blocks;
                    way.wrapped += u64::from(first + span.blocks > posted.blocks);
                    coverage.older += u64::from(config.older);
                    coverage.crypto += u64::from(config.crypto.is_some());
                }
                Work::CompareSwap(..) | Work::FetchAdd(..) => coverage.atomics += 1,
                _ => {}
            }
        }
    }

    /// Gives both sides the completions that wait, and says what they make of them if it is not the same.
    fn poll(&mut self, queues: &mut Queues<'_>, pair: &mut Pair) -> io::Result<Option<String>> {
        let mut ring = vec![Cqe::UNWRITTEN; COMPLETIONS];
        let record = DoorbellRecord::new();
        for (entry, slot) in self.pending.iter().zip(&mut ring) {
            self.completions.deliver(zerocopy::transmute!(*entry))?;
            // The library's queue is a new one each time, in its first lap.
            *slot = Cqe { op_own: entry.op_own & !1, ..*entry };
        }
        if self.pending.len() > COMPLETIONS {
            return Err(io::Error::other("more completions than there is room for"));
        }
        let errors = self.pending.iter().filter(|entry| entry.opcode() == CqeOpcode::SIGNATURE_ERROR).count();
        self.pending.clear();
        let theirs: Vec<_> = self.completions.poll()?.iter().map(|done| (done.wr_id, done.status)).collect();
        let Some(mkey) = &mut pair.ours else {
            return Ok((!theirs.is_empty()).then(|| "of an mkey that was never configured".into()));
        };
        let mut completions = CompletionQueue::new(&mut ring, &record)
            .map_err(|error| io::Error::other(format!("completion queue: {error:?}")))?;
        let mut ours = Vec::new();
        let mut reported = 0;
        let mut router = QpRouter { queues: &mut queues.ours, mkeys: core::slice::from_mut(mkey) };
        while let Some(completion) = completions.poll(&mut router) {
            match completion {
                Ok(Completion::Work(work)) => ours.push(as_reference(&work)),
                Ok(Completion::SignatureError { .. }) => reported += 1,
                Err(error) => return Ok(Some(format!("{error:?}"))),
            }
        }
        if reported != errors {
            return Ok(Some(format!("{reported} signature errors reported, the device wrote {errors}")));
        }
        if ours != theirs {
            return Ok(Some(format!("{ours:x?}, the reference has {theirs:x?}")));
        }
        if errors != 0 {
            pair.erred = true;
            let (late, stale) = (pair.reconfigured, errors > 1);
            pair.unread = Some(match pair.unread {
                Some(first) => Unread { stale: true, ..first },
                None => Unread { late, stale },
            });
        }
        (pair.unpolled, pair.reconfigured) = (0, false);
        if self.random.percent(40) {
            return Ok(None);
        }
        let mut unread = pair.unread.take().unwrap_or_default();
        unread.stale |= pair.torn;
        let (ours, theirs) = (mkey.check(), pair.reference.check());
        // What the reference cannot read it keeps for the next time.
        pair.torn |= pair.kind.signature && theirs.is_err();
        match check::compare(&ours, &theirs, unread) {
            Answers::NoError => self.tally.without_error += 1,
            Answers::SameError => self.tally.coverage.checked += 1,
            Answers::BothErrors => self.tally.presence_only += 1,
            Answers::Differ => {
                let what = format!("mkey_check: {ours:x?}, the reference has {theirs:x?}, {unread:?}");
                return Ok(Some(what));
            }
        }
        Ok(None)
    }
}

/// A chain that the library posted.
struct Posted<'c> {
    way: Way,
    configured: Configured,
    /// Its first block in the ring, and the blocks of that.
    start: usize,
    blocks: usize,
    /// The bytes of its work requests.
    requests: &'c [u8],
}

/// The blocks of one request of a chain, with its SET_PSVs; counted from the chain's begin.
struct Span {
    start: usize,
    blocks: usize,
}

impl Posted<'_> {
    fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for (offset, request) in Requests::new(self.requests) {
            let blocks = request.bytes().len().div_ceil(64);
            match spans.last_mut() {
                Some(span) if request.bytes()[3] == SET_PSV => span.blocks += blocks,
                _ => spans.push(Span { start: offset / 64, blocks }),
            }
        }
        spans
    }
}

/// Returns whether no request fits and no completion will come: all were taken.
fn is_stuck(queues: &Queues<'_>) -> bool {
    queues.ours.outstanding() >= queues.reference.max_requests
}

/// Returns whether the library has refused a chain for a limit that its queue may not have.
fn is_limit(error: &str) -> bool {
    ["TooManyRequests", "InlineTooLong", "Config(TooManyEntries", "Config(BsfDoesNotFit"]
        .iter()
        .any(|name| error.starts_with(name))
}

fn configurations(chain: &[(Flags, Work)]) -> u64 {
    chain.iter().filter(|(_, work)| matches!(work, Work::Configure(_))).count() as u64
}

/// Puts a completion as verbs do: name and `enum ibv_wc_status`.
fn as_reference(completion: &WorkCompletion) -> (u64, u32) {
    let status = match completion.outcome {
        Outcome::Failed(failure) => match failure.syndrome {
            Syndrome(code @ (1 | 2 | 4 | 5 | 6)) => code.into(),
            Syndrome(code @ 0x10..=0x16) => u32::from(code) - 9,
            Syndrome(_) => 21,
        },
        _ => 0,
    };
    (completion.id, status)
}
