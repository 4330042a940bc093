//! The plan, which decides at each visit to a place whether a fault happens: by a list of rules, by a seed
//! for a random choice, or both.

use crate::call::CallId;
use mlx5_faults::{Ending, Fault, Incident, Place, Rule, Subject};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// A visit to a place: one occurrence of an action at which a fault can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The place.
    pub place: Place,
    /// The kind of call, if the visit is a call.
    pub call: Option<CallId>,
    /// The number of the queue pair that the visit concerns, if any.
    pub queue_pair: Option<u32>,
}

impl Visit {
    /// Returns a visit that concerns neither a call nor a queue pair.
    pub const fn to(place: Place) -> Self {
        Self { place, call: None, queue_pair: None }
    }

    /// Returns a visit by a call.
    pub const fn by(place: Place, call: CallId) -> Self {
        Self { place, call: Some(call), queue_pair: None }
    }

    /// Returns a visit that concerns a queue pair.
    pub const fn of(place: Place, queue_pair: u32) -> Self {
        Self { place, call: None, queue_pair: Some(queue_pair) }
    }

    /// Returns whether a rule for this place and subject counts the visit.
    fn counts(&self, place: Place, subject: Subject) -> bool {
        self.place == place
            && match subject {
                Subject::Any => true,
                Subject::QueuePair(number) => self.queue_pair == Some(number),
                Subject::Call(kind) => self.call.is_some_and(|call| call.is(kind)),
            }
    }
}

/// A generator of pseudo-random numbers (SplitMix64), the source of a seed's choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }
}

/// Returns the places at which a seed causes faults.
fn seeded() -> [Place; Place::SEEDED] {
    std::array::from_fn(|at| Place::ALL.get(at).copied().unwrap_or(Place::Call))
}

/// The random faults of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seeded {
    dice: Dice,
    /// For each place, one visit in this many has a fault. With 0, no visit to the place has a fault.
    one_in: [u64; Place::SEEDED],
    /// The visit at which the device is removed or fails, counted from 1 over all places of a seed. 0 means
    /// never.
    ends_at: u64,
}

impl Seeded {
    /// Draws the seed's choices. Most seeds cause no faults at some of the places, so that programs also get
    /// past these places.
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let one_in = seeded().map(|place| {
            let (comes, rarity) = (dice.below(2) > 0, dice.below(8));
            // Visits that write signature errors are rare, so faults are more frequent at them.
            let times = if place == Place::Signature { 1 << (rarity / 2) } else { 8 << rarity };
            if comes { times } else { 0 }
        });
        let ends_at = if dice.below(6) == 0 { 1 + dice.below(300) } else { 0 };
        Self { dice, one_in, ends_at }
    }
}

/// The faults of a process, with the number of visits to each place so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The rules, each with the number of visits that it has counted.
    rules: Vec<(Rule, u64)>,
    /// The incidents that have happened and that the device has not taken.
    incidents: VecDeque<Incident>,
    seeded: Option<Seeded>,
    /// The seed causes no fault in this many first visits to each place.
    after: u64,
    /// Whether the seed may cause faults at each place.
    only: [bool; Place::SEEDED],
    asked: [u64; Place::ALL.len()],
    /// The kind of calls that a rule with `stays` makes fail from now on, and the fault of these calls.
    broken: Option<(CallId, Fault)>,
    /// The past faults, as words that [`Plan::parse`] reads.
    trace: VecDeque<String>,
}

/// The most faults in a trace. The oldest are dropped.
const TRACE: usize = 256;

impl Default for Plan {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            incidents: VecDeque::new(),
            seeded: None,
            after: 0,
            only: [true; Place::SEEDED],
            asked: [0; Place::ALL.len()],
            broken: None,
            trace: VecDeque::new(),
        }
    }
}

impl Plan {
    /// Returns a plan with one rule.
    pub fn of(rule: Rule) -> Self {
        let mut plan = Self::default();
        plan.add_rule(rule);
        plan
    }

    /// Parses a plan: words separated by commas or white space. A line that begins with `#` is a comment.
    ///
    /// # Errors
    /// A sentence that names the invalid word.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        plan.add(text)?;
        Ok(plan)
    }

    /// Adds the words of a text to the plan. The plan stays as it is if a word is invalid.
    ///
    /// # Errors
    /// A sentence that names the invalid word.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let mut extended = self.clone();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let words = lines.flat_map(|line| line.split(|one: char| one == ',' || one.is_whitespace()));
        for word in words.filter(|word| !word.is_empty()) {
            extended.add_word(word).ok_or_else(|| format!("`{word}` is no fault"))?;
        }
        *self = extended;
        Ok(())
    }

    fn add_word(&mut self, word: &str) -> Option<()> {
        let (left, right) = word.split_once('=')?;
        match left {
            "seed" => self.seeded = Some(Seeded::new(right.parse().ok()?)),
            "after" => self.after = right.parse().ok()?,
            "only" => {
                self.only = [false; Place::SEEDED];
                for name in right.split('+') {
                    *self.only.get_mut(Place::named(name)? as usize)? = true;
                }
            }
            _ => self.add_rule(Rule::parse(word).ok()?),
        }
        Some(())
    }

    fn add_rule(&mut self, rule: Rule) {
        match rule {
            Rule::Now(incident) => {
                self.note(rule.to_string());
                self.incidents.push_back(incident);
            }
            Rule::At { .. } => self.rules.push((rule, 0)),
        }
    }

    /// Counts a visit, and returns its fault, if any. If the fault is an incident, the visit itself succeeds:
    /// the plan keeps the incident for [`Plan::take_incident`].
    pub fn at(&mut self, visit: Visit) -> Option<Fault> {
        let place = visit.place;
        let asked = self.asked.get_mut(place as usize)?;
        *asked += 1;
        let nth = *asked;
        let mut listed = None;
        for (rule, counted) in &mut self.rules {
            let Rule::At { place: of, subject, nth, stays, fault } = *rule else { continue };
            if !visit.counts(of, subject) {
                continue;
            }
            *counted += 1;
            let is_call = place == Place::Call;
            if *counted == nth && stays && is_call {
                self.broken = visit.call.map(|call| (call, fault));
            }
            if *counted == nth || stays && !is_call && *counted > nth {
                listed = listed.or(Some(fault));
            }
        }
        let of_call = self.broken.filter(|(call, _)| place == Place::Call && visit.call == Some(*call));
        let fault = listed.or(of_call.map(|(_, fault)| fault)).or_else(|| self.draw(place, nth))?;
        self.note(format!("{}@{nth}={fault}", place.name()));
        match fault {
            Fault::Happens(incident) => {
                self.incidents.push_back(incident);
                None
            }
            fault => Some(fault),
        }
    }

    /// Returns the oldest incident that the device has not taken.
    pub fn take_incident(&mut self) -> Option<Incident> {
        self.incidents.pop_front()
    }

    fn note(&mut self, word: String) {
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(word);
    }

    /// Returns the seed's fault for a visit, if any.
    fn draw(&mut self, place: Place, nth: u64) -> Option<Fault> {
        let seeded = self.seeded.as_mut()?;
        if nth <= self.after || !self.only.get(place as usize).copied().unwrap_or(false) {
            return None;
        }
        let asked: u64 = self.asked.iter().take(Place::SEEDED).sum();
        if seeded.ends_at > 0 && asked >= seeded.ends_at {
            seeded.ends_at = 0;
            let fate = if seeded.dice.below(2) == 0 { Ending::Removed } else { Ending::Failed };
            return Some(Fault::Happens(Incident::Ends(fate)));
        }
        let one_in = seeded.one_in.get(place as usize).copied().unwrap_or(0);
        if one_in == 0 || seeded.dice.below(one_in) > 0 {
            return None;
        }
        let choices = Fault::of(place);
        let at = seeded.dice.below(choices.len() as u64) as usize;
        Some(match choices.get(at).copied()? {
            Fault::Fails { errno: libc::EREMOTEIO, .. } => {
                Fault::Fails { errno: libc::EREMOTEIO, status: 1 + seeded.dice.below(255) as u8 }
            }
            fault => fault,
        })
    }

    /// Returns whether the plan names a place, in a rule or in the word `only`. A seed alone names no place.
    pub fn names(&self, place: Place) -> bool {
        let is_only = self.only != [true; Place::SEEDED];
        let is_chosen = is_only && self.only.get(place as usize).copied().unwrap_or(false);
        let is_of = |rule: &Rule| matches!(rule, Rule::At { place: of, .. } if *of == place);
        is_chosen || self.rules.iter().any(|(rule, _)| is_of(rule))
    }

    /// Returns the incidents that rules name, and the past incidents that the device has not yet taken.
    pub fn named_incidents(&self) -> impl Iterator<Item = Incident> {
        let of = |(rule, _): &(Rule, u64)| match rule {
            Rule::At { fault: Fault::Happens(incident), .. } => Some(*incident),
            _ => None,
        };
        self.rules.iter().filter_map(of).chain(self.incidents.iter().copied())
    }

    /// Returns a number below `end` for details that a fault leaves open, such as the invalid field of a
    /// completion entry. Without a seed, the number depends on the count of visits.
    pub fn below(&mut self, end: u64) -> u64 {
        let mut asked = Dice(self.asked.iter().take(Place::SEEDED).sum());
        self.seeded.as_mut().map_or(&mut asked, |seeded| &mut seeded.dice).below(end)
    }

    /// Returns the number of visits to a place that remain until the first rule of this place causes its
    /// fault, or 0 if the place has no rule.
    pub fn left(&self, place: Place) -> u64 {
        let left = |(rule, counted): &(Rule, u64)| match rule {
            Rule::At { place: of, nth, .. } if *of == place => Some(nth.saturating_sub(*counted)),
            _ => None,
        };
        self.rules.iter().find_map(left).unwrap_or(0)
    }

    /// Returns the past faults, at most the last 256, as the words of a plan that repeats them.
    pub fn trace(&self) -> String {
        let mut text = String::new();
        for word in &self.trace {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{word}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_faults::{CallKind, DeviceEvent, QueueEvent, Status};

    fn asked(plan: &mut Plan, place: Place, times: usize) -> Vec<Option<Fault>> {
        (0..times).map(|_| plan.at(Visit::to(place))).collect()
    }

    #[test]
    fn a_list_says_when_each_fault_comes() {
        let mut plan = Plan::parse("call@2=ENOMEM,completion@1=twice,end@1=EBUSY,call@3=status:8").unwrap();
        let fails = |errno, status| Some(Fault::Fails { errno, status });
        let calls = [None, fails(libc::ENOMEM, 0), fails(libc::EREMOTEIO, 8), None];
        assert_eq!(asked(&mut plan, Place::Call, 4), calls);
        assert_eq!(asked(&mut plan, Place::Completion, 2), [Some(Fault::Twice), None]);
        assert_eq!(asked(&mut plan, Place::End, 2), [fails(libc::EBUSY, 0), None]);
        assert_eq!(plan.trace(), "call@2=ENOMEM,call@3=status:8,completion@1=twice,end@1=EBUSY");
    }

    /// The trace names an error without a name in `ERRORS` of `mlx5-faults` by its number. A plan can be
    /// parsed from the trace.
    #[test]
    fn a_trace_names_every_error_as_a_plan_does() {
        for errno in 1..134 {
            let fault = Fault::Fails { errno, status: 0 };
            let mut plan = Plan::parse(&format!("call@1={fault}")).unwrap();
            assert_eq!(asked(&mut plan, Place::Call, 1), [Some(fault)], "{fault}");
            assert_eq!(Plan::parse(&plan.trace()), Plan::parse(&format!("call@1={fault}")));
        }
    }

    #[test]
    fn a_fault_that_stays_is_that_of_one_method() {
        let mut plan = Plan::parse("call@2+=EIO").unwrap();
        let methods = [1, 2, 1, 2].map(|method| CallId::new(0, method, 0));
        let failed = methods.map(|id| plan.at(Visit::by(Place::Call, id)).is_some());
        assert_eq!(failed, [false, true, false, true]);
    }

    #[test]
    fn a_seed_says_the_same_each_time_and_a_trace_says_it_again() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..2000 {
            let mut runs = [0, 1].map(|_| Plan::parse(&format!("seed={seed},after=5")).unwrap());
            let faults = runs.each_mut().map(|plan| Place::ALL.map(|place| asked(plan, place, 30)));
            assert_eq!(faults[0], faults[1]);
            assert!(faults[0].iter().all(|place| place.iter().take(5).all(Option::is_none)));
            let mut again = Plan::parse(&runs[0].trace()).unwrap();
            assert_eq!(Place::ALL.map(|place| asked(&mut again, place, 30)), faults[0]);
            kinds.extend(faults[0].iter().flatten().flatten().map(|fault| fault.to_string()));
            kinds.extend(runs[0].take_incident().map(|incident| incident.to_string()));
        }
        // The seeds have caused each kind of fault, and most statuses.
        for kind in [
            "ENOMEM", "EINTR", "EBUSY", "short", "late", "twice", "dropped", "stranger", "overrun", "lost",
            "dies", "removed", "fatal", "unheard",
        ] {
            assert!(kinds.contains(kind), "{kind}");
        }
        assert!(kinds.len() > 50);
    }

    #[test]
    fn only_the_places_that_are_named_have_faults() {
        for seed in 0..200 {
            let mut plan = Plan::parse(&format!("seed={seed},only=completion+end")).unwrap();
            assert!(asked(&mut plan, Place::Call, 400).iter().all(Option::is_none));
        }
    }

    #[test]
    fn a_rule_counts_the_visits_of_its_subject_from_its_beginning_on() {
        let mut plan = Plan::parse("request:5@2=lost").unwrap();
        let asked = |plan: &mut Plan, number| plan.at(Visit::of(Place::Request, number));
        assert_eq!([5, 6, 6].map(|number| asked(&mut plan, number)), [None; 3]);
        plan.add("# Two more rules:\nrequest:6@1+=hangs\n request@3=rnr:2").unwrap();
        assert_eq!(asked(&mut plan, 5), Some(Fault::Lost));
        assert_eq!([6, 6].map(|number| asked(&mut plan, number)), [Some(Fault::Hangs); 2]);
        assert_eq!(asked(&mut plan, 5), None);
        assert_eq!(plan.trace(), "request@4=lost,request@5=hangs,request@6=hangs");
        let before = plan.clone();
        assert!(plan.add("request@1=lost,tea").is_err());
        assert_eq!(plan, before);
    }

    #[test]
    fn a_rule_counts_the_calls_of_its_kind() {
        let mut plan = Plan::parse("call:ALLOC_PD@2=ENOMEM").unwrap();
        let mut call = |command| plan.at(Visit::by(Place::Call, CallId::new(0, 0, command))).is_some();
        assert_eq!([3, 9, 9, 3, 3].map(&mut call), [false, false, false, true, false]);
    }

    #[test]
    fn incidents_wait_until_they_are_taken() {
        let mut plan = Plan::parse("now=port-down,completion@2=removed").unwrap();
        assert_eq!(plan.take_incident(), Some(Incident::PortDown));
        assert_eq!(asked(&mut plan, Place::Completion, 2), [None, None]);
        assert_eq!(plan.take_incident(), Some(Incident::Ends(Ending::Removed)));
        assert_eq!(plan.take_incident(), None);
        assert_eq!(plan.trace(), "now=port-down,completion@2=removed");
    }

    #[test]
    fn a_plan_names_places_by_rules_and_by_only() {
        let names = |text: &str| {
            let plan = Plan::parse(text).unwrap();
            Place::ALL.into_iter().filter(|place| plan.names(*place)).map(Place::name).collect::<Vec<_>>()
        };
        assert_eq!(names("seed=1"), [""; 0]);
        assert_eq!(names("seed=1,only=read+call"), ["call", "read"]);
        assert_eq!(names("wire@2=short,end@1=EBUSY"), ["end", "wire"]);
    }

    /// `EMULATOR.md` and the header for C name all calls, statuses and events. `EMULATOR.md` also names the
    /// faults from which a seed chooses, except for errors of the kernel.
    #[test]
    fn the_page_and_the_header_have_the_words_of_rules() {
        let page = include_str!("../../EMULATOR.md");
        let header = include_str!("../../faults/include/mlx5_faults.h");
        let calls = CallKind::ALL.into_iter().map(CallKind::name);
        let statuses = Status::ALL.iter().map(|status| status.name());
        let queues = QueueEvent::ALL.iter().map(|event| event.name());
        for word in calls.chain(statuses).chain(queues) {
            assert!(page.contains(&format!("`{word}`")), "EMULATOR.md lacks {word}");
            assert!(header.contains(&format!("\"{word}\"")), "mlx5_faults.h lacks {word}");
        }
        for word in DeviceEvent::ALL.iter().map(|event| event.name()) {
            assert!(page.contains(&format!("`{word}`")), "EMULATOR.md lacks {word}");
            assert!(header.contains(&format!("\"now={word}\"")), "mlx5_faults.h lacks {word}");
        }
        for place in Place::ALL {
            assert!(page.contains(&format!("\n| `{}` | ", place.name())), "no row of {}", place.name());
            let faults = Fault::of(place).iter().filter(|fault| !matches!(fault, Fault::Fails { .. }));
            for word in faults.map(Fault::to_string) {
                assert!(page.contains(&format!("`{word}`")), "EMULATOR.md lacks {word}");
            }
        }
    }

    #[test]
    fn nonsense_is_named() {
        for text in [
            "seed",
            "seed=x",
            "call=EIO",
            "call@0=EIO",
            "call@1=twice",
            "end@1=dies",
            "door@1=EIO",
            "only=all",
            "call@1=errno:",
            "call@1=errno:0",
            "call@1=errno:-5",
        ] {
            assert_eq!(Plan::parse(text), Err(format!("`{text}` is no fault")));
        }
        assert_eq!(Plan::parse(""), Ok(Plan::default()));
    }
}
