//! A run of the differential test: creates queue pairs and mkeys, posts chains of requests by libmlx5 (the
//! reference) and by the library, and compares the results.

use super::case::{self, Limits, Random, Window, Work};
use super::compare::{Outcome, compare, explained, in_words, straight};
use super::counting::{InForce, Issued};
use super::coverage::Tally;
use super::execute::Twins;
use super::ffi;
use super::learn::{learn_dek, learn_opaque};
use super::lifted::Lifted;
use super::pair::Pair;
use super::post::{Chain, post_chain};
use super::queues::{self, Queues};
use super::sizes::{COMPLETIONS, ENTRIES, PATTERN};
use crate::request::Flags;
use crate::way::Way;
use libmlx5::{Completions, Device};
use mlx5_mkey::mkey::Mkey;
use mlx5_mkey::queue::{DoorbellRecord, SendSlot};
use mlx5_mkey::types::{DekId, Key};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::Cqe;
use mlx5_mkey::wqe::Local;
use std::error::Error;
use std::io;
use std::rc::Rc;

/// The name of the device behind the stand-in for the kernel, which libmlx5 opens.
const DEVICE: &str = "mlx5_0";
/// The most chains of requests on a queue pair: one of these numbers, at random. Rings of `LONG_RING` blocks
/// or more get `CHAINS_OF_LONG`, because long rings take long to compare.
const CHAINS: [u32; 3] = [50, 200, 500];
const LONG_RING: usize = 2048;
const CHAINS_OF_LONG: u32 = 16;
/// Rings shorter than this number of blocks get `CHAINS_OF_SHORT`, because few requests fit.
const SHORT_RING: usize = 16;
const CHAINS_OF_SHORT: u32 = 50;
/// Number of differences that the report describes. Further ones are only counted.
const DESCRIBED: usize = 5;

/// The result of posting a chain of requests with libmlx5 and with the library, which do not differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    Refused {
        full: bool,
    },
    /// Only libmlx5 has no room, because of a limit that the library's queue lacks.
    Lifted,
}

pub(super) struct Session {
    device: Rc<Device>,
    pub(super) completions: Completions,
    pub(super) random: Random,
    pub(super) tally: Tally,
    dek: DekId,
    opaque: Local,
    single_block: bool,
    twins: Twins,
    window: Window,
    /// Completions of the software devices that were not passed to libmlx5 and the library yet.
    pub(super) pending: Vec<Cqe>,
    /// The id (`wr_id`) of the next request.
    next_id: u64,
}

impl Session {
    pub(super) fn new(seed: u64, single_block: bool) -> io::Result<Self> {
        let device = Device::open(DEVICE, ENTRIES)?;
        let dek = learn_dek(&device)?;
        let opaque = learn_opaque(&device)?;
        Ok(Self {
            completions: Completions::new(&device)?,
            device,
            random: Random::new(seed),
            tally: Tally::default(),
            dek,
            opaque,
            single_block,
            twins: new_twins(single_block, dek)?,
            window: Window::NEW,
            pending: Vec::new(),
            next_id: 0,
        })
    }

    /// Creates a queue pair and runs chains of requests on it. `kept` is the mkey of the last chain, if the
    /// next one can use it.
    pub(super) fn run_queue(&mut self, count: u64, kept: &mut Option<Pair>) -> Outcome<()> {
        let reference = queues::create(&self.device, &mut self.random, &mut self.tally.coverage)?;
        // A lazy run polls only when many completions wait or the mkey is used for the last time. This fills
        // the queue at times.
        let lazy = self.random.percent(50);
        let chains = match reference.blocks {
            ..SHORT_RING => CHAINS_OF_SHORT,
            LONG_RING.. => CHAINS_OF_LONG,
            _ => self.random.pick(&CHAINS),
        };
        let lifted = Lifted::draw(&mut self.random);
        self.twins.set_queue(reference.number, reference.blocks)?;
        self.window = Window::NEW;
        let (mut ring, record) = (vec![Wqebb::ZERO; reference.blocks], DoorbellRecord::new());
        let mut slots = vec![SendSlot::EMPTY; reference.blocks];
        let memory = (&mut ring[..], &mut slots[..]);
        let mut queues = Queues::new(reference, self.opaque, lifted, memory, &record)?;
        for _ in 0..chains {
            if self.tally.configurations >= count {
                break;
            }
            let mut pair = match kept.take() {
                Some(pair) => pair,
                None => self.create_pair()?,
            };
            match self.run_and_poll(&mut queues, &mut pair, lazy) {
                Ok(Verdict::Same) if !pair.is_spent() => *kept = Some(pair),
                Ok(verdict) if self.note(verdict, &queues) => {}
                Ok(_) => return Ok(()),
                Err(what) => return self.differ(what, &pair),
            }
        }
        // No later chain uses this queue. Its waiting completions are therefore polled now.
        match kept.take() {
            Some(mut pair) => self.poll(&mut queues, &mut pair).or_else(|what| self.differ(what, &pair)),
            None => Ok(()),
        }
    }

    fn create_pair(&mut self) -> io::Result<Pair> {
        let pair = Pair::create(&self.device, &mut self.random)?;
        self.twins.set_mkey(Key::from_raw(pair.reference.key()), pair.kind, pair.max_entries)?;
        Ok(pair)
    }

    /// Runs a chain of requests, and polls unless completions may wait.
    fn run_and_poll(&mut self, queues: &mut Queues<'_>, pair: &mut Pair, lazy: bool) -> Outcome<Verdict> {
        let verdict = self.run_chain(queues, pair, lazy)?;
        // After a refused chain, libmlx5's mkey keeps a part of the chain's changes, and so differs from the
        // library's.
        pair.torn |= verdict != Verdict::Same;
        // The mkey must exist until its completions are polled.
        if !lazy || pair.is_spent() || self.pending.len() >= COMPLETIONS / 2 {
            self.poll(queues, pair)?;
        }
        Ok(verdict)
    }

    /// Counts a result without a difference. Returns whether the queue pair can be used further.
    fn note(&mut self, verdict: Verdict, queues: &Queues<'_>) -> bool {
        match verdict {
            Verdict::Same => true,
            Verdict::Lifted => {
                self.tally.coverage.lifted += 1;
                !queues.is_stuck()
            }
            Verdict::Refused { full } => {
                self.tally.refused += 1;
                !(full && queues.is_stuck())
            }
        }
    }

    /// Counts a difference, and makes new software devices, which are equal again.
    ///
    /// # Errors
    /// The error itself if it is no difference.
    fn differ(&mut self, what: Box<dyn Error>, pair: &Pair) -> Outcome<()> {
        if what.is::<io::Error>() {
            return Err(what);
        }
        self.tally.differ += 1;
        if self.tally.differences.len() < DESCRIBED {
            self.tally.differences.push(format!(
                "chain {}, mkey with {} entries, {:?}, chain {} of its life: {what}",
                self.tally.chains, pair.max_entries, pair.kind, pair.life
            ));
        }
        self.pending.clear();
        self.twins = new_twins(self.single_block, self.dek)?;
        Ok(())
    }

    fn run_chain(&mut self, queues: &mut Queues<'_>, pair: &mut Pair, lazy: bool) -> Outcome<Verdict> {
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
            key: Key::from_raw(pair.reference.key()),
            fresh: pair.ours.is_none(),
            single_block: self.single_block,
            wire_bytes: u32::try_from(wire).unwrap_or(0),
            room: lazy.then(|| queues.reference.max_requests.saturating_sub(queues.ours.outstanding())),
            qpn: queues.reference.number,
            max_blocks: queues.max_blocks(),
            fenced: queues.ours.next_fence() != 0,
            before_end: queues.before_end(),
            window: self.window,
        };
        let way = self.random.pick(&Way::ALL);
        let works = case::chain(&mut self.random, &limits);
        self.tally.chains += 1;
        self.tally.configurations += configurations(&works);
        let chain = Chain { way, first: self.next_id, works: &works };
        self.next_id += works.len() as u64;
        let verdict = self.compare_chain(queues, pair, &chain);
        pair.life += 1;
        explained(verdict, || format!("by {}, {:?}\n{works:#x?}", way.name(), queues.lifted))
    }

    /// Posts a chain of requests by libmlx5 and by the library, compares the rings, and executes both on the
    /// software devices. If libmlx5 refuses the chain, checks that the library refuses it as well.
    fn compare_chain(
        &mut self,
        queues: &mut Queues<'_>,
        pair: &mut Pair,
        chain: &Chain<'_>,
    ) -> Outcome<Verdict> {
        let reference = &mut queues.reference;
        reference.fill(PATTERN);
        let before = reference.counter();
        let errno = ffi::issue(reference, chain.first, chain.works, &pair.reference);
        let counter = reference.counter();
        if errno != 0 {
            if counter != before {
                return Err("the reference has refused and counted on".into());
            }
            let verdict = self.refuse(queues, &pair.mkey(self.single_block), chain, errno)?;
            self.tally.coverage.ways[chain.way as usize].full +=
                u64::from(matches!(verdict, Verdict::Refused { full: true }));
            return Ok(verdict);
        }
        let issued = Issued::new(reference.ring(), counter, queues.ours.producer())?;
        pair.learn(chain.works, &issued.requests);
        let mut mkey = pair.mkey(self.single_block);
        let in_force = InForce::of(&mkey);
        let ours = post_alike(queues, chain, &mut mkey, &issued)?;
        pair.ours = Some(mkey);
        self.tally.posted += configurations(chain.works);
        pair.note_posted(chain.works);
        self.tally.blocks += issued.count as u64;
        self.tally.coverage.limits[queues.lifted.number()] += 1;
        self.twins.add_psvs(&pair.known_psvs())?;
        let executed = self.twins.execute((&issued.ring, counter), (&ours, counter));
        queues.before = ours;
        let executed = explained(executed, || format!("reference:\n{}", in_words(&issued.requests)))?;
        let done = self.tally.coverage.note(pair, chain, in_force, &issued, &executed);
        self.window = done.iter().fold(self.window, |window, (_, work)| window.behind(work));
        self.pending.extend(executed.completions);
        Ok(Verdict::Same)
    }
}

/// Posts a chain of requests with the library, and compares ring and counter of the doorbell record with
/// those of libmlx5. Returns the content of the library's ring.
fn post_alike(
    queues: &mut Queues<'_>,
    chain: &Chain<'_>,
    mkey: &mut Mkey,
    issued: &Issued,
) -> Result<Vec<u8>, String> {
    let Issued { ring: theirs, counter, start, count, requests } = issued;
    if let Err((number, error)) = post_chain(&mut queues.ours, chain, mkey) {
        let words = in_words(requests);
        return Err(format!(
            "the reference posts it, the library refuses request {number}: {error:?}\n{words}"
        ));
    }
    let ours = queues.ring();
    let [_, our_counter] = queues.ours.record().bytes();
    let difference = if our_counter == *counter {
        compare(&ours, &queues.before, theirs, *start, *count)
    } else {
        Some(format!("counter {our_counter:02x?}, the reference has {counter:02x?}"))
    };
    let Some(what) = difference else { return Ok(ours) };
    let (ours, theirs) = (in_words(&straight(&ours, *start, *count)), in_words(requests));
    Err(format!("{what}\nlibrary:\n{ours}\nreference:\n{theirs}"))
}

fn configurations(chain: &[(Flags, Work)]) -> u64 {
    chain.iter().filter(|(_, work)| matches!(work, Work::Configure(_))).count() as u64
}

fn new_twins(single_block: bool, dek: DekId) -> io::Result<Twins> {
    use mlx5_softdev::XtsEngine;
    let engine = if single_block { XtsEngine::SingleBlock } else { XtsEngine::MultiBlock };
    Twins::new(engine, dek, &libmlx5::DEK_KEY)
}
