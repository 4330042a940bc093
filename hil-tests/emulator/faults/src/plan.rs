//! The plan, which decides on each fault: by a list, by a seed for a random choice, or both.

use super::word::{Ending, Fault, Place};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// The kind of a program's call to the device: object and method, or a command of the older `write`
/// interface, or the opening of the device's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(u64);

impl CallId {
    /// The kind of the call that opens the device's file.
    pub const OPEN: Self = Self(u64::MAX);
    /// The value for visits to places other than calls.
    pub const NONE: Self = Self(u64::MAX - 1);

    /// Returns the kind of a call of this method of this object. `command` is the number of the command that
    /// the call carries, or 0 if it carries none.
    pub fn new(object: u16, method: u16, command: u64) -> Self {
        Self(u64::from(object) << 48 | u64::from(method) << 32 | command & 0xffff_ffff)
    }
}

/// A generator of pseudo-random numbers (SplitMix64).
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

/// A fault at one visit to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The place of the fault.
    pub place: Place,
    /// The visit to the place at which the fault happens, counted from 1.
    pub nth: u64,
    /// The kind of fault.
    pub fault: Fault,
    /// Whether all later calls of the same kind ([`CallId`]) fail in the same way.
    pub stays: bool,
}

/// The random faults of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seeded {
    dice: Dice,
    /// For each place, one visit in this many has a fault. 0 stands for no faults at the place.
    one_in: [u64; Place::ALL.len()],
    /// The visit, counted over all places from 1, at which the device ends. 0 stands for never.
    ends_at: u64,
}

impl Seeded {
    /// Makes the choices of a seed. Most seeds spare some places, so that programs also get past these
    /// places.
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let one_in = Place::ALL.map(|place| {
            let (comes, rarity) = (dice.below(2) > 0, dice.below(8));
            // Few visits concern signature errors, so their faults are more frequent.
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
    rules: Vec<Rule>,
    seeded: Option<Seeded>,
    /// The seed causes no fault in this many first visits to each place.
    after: u64,
    /// Whether the seed may cause faults at each place.
    only: [bool; Place::ALL.len()],
    asked: [u64; Place::ALL.len()],
    /// The fault of a rule that stays, and the kind of call that it applies to.
    broken: Option<(CallId, Fault)>,
    /// The past faults, as words of a plan.
    trace: VecDeque<String>,
}

/// The most faults in a trace. The oldest are dropped.
const TRACE: usize = 256;

impl Default for Plan {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            seeded: None,
            after: 0,
            only: [true; Place::ALL.len()],
            asked: [0; Place::ALL.len()],
            broken: None,
            trace: VecDeque::new(),
        }
    }
}

impl Plan {
    /// Returns a plan with one fault.
    pub fn of(rule: Rule) -> Self {
        Self { rules: vec![rule], ..Self::default() }
    }

    /// Parses a plan: words separated by commas.
    ///
    /// # Errors
    /// A sentence that names the invalid word.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            plan.add(word).ok_or_else(|| format!("`{word}` is no fault"))?;
        }
        Ok(plan)
    }

    fn add(&mut self, word: &str) -> Option<()> {
        let (left, right) = word.split_once('=')?;
        match left {
            "seed" => self.seeded = Some(Seeded::new(right.parse().ok()?)),
            "after" => self.after = right.parse().ok()?,
            "only" => {
                self.only = [false; Place::ALL.len()];
                for name in right.split('+') {
                    *self.only.get_mut(Place::named(name)? as usize)? = true;
                }
            }
            _ => {
                let (place, nth) = left.split_once('@')?;
                let place = Place::named(place)?;
                let (nth, stays) = nth.strip_suffix('+').map_or((nth, false), |nth| (nth, true));
                let (nth, fault) = (nth.parse().ok()?, Fault::parse(right)?);
                (nth > 0 && fault.fits(place)).then_some(())?;
                self.rules.push(Rule { place, nth, fault, stays });
            }
        }
        Some(())
    }

    /// Counts a visit to a place. Returns the fault of this visit, if any.
    pub fn at(&mut self, place: Place, id: CallId) -> Option<Fault> {
        let asked = self.asked.get_mut(place as usize)?;
        *asked += 1;
        let nth = *asked;
        let rule = self.rules.iter().find(|rule| rule.place == place && rule.nth == nth).copied();
        if let Some(Rule { fault, stays: true, .. }) = rule {
            self.broken = Some((id, fault));
        }
        let of_method = self.broken.filter(|(method, _)| place == Place::Call && *method == id);
        let listed = rule.map(|rule| rule.fault).or(of_method.map(|(_, fault)| fault));
        let fault = listed.or_else(|| self.draw(place, nth))?;
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{}@{nth}={fault}", place.name()));
        Some(fault)
    }

    /// Returns the seed's fault for a visit, if any.
    fn draw(&mut self, place: Place, nth: u64) -> Option<Fault> {
        let seeded = self.seeded.as_mut()?;
        if nth <= self.after || !self.only.get(place as usize).copied().unwrap_or(false) {
            return None;
        }
        if seeded.ends_at > 0 && self.asked.iter().sum::<u64>() >= seeded.ends_at {
            seeded.ends_at = 0;
            let fate = if seeded.dice.below(2) == 0 { Ending::Removed } else { Ending::Failed };
            return Some(Fault::Ends(fate));
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

    /// Returns a number below `end` for details that a fault leaves open. Without a seed, the number depends
    /// on the count of visits.
    pub fn below(&mut self, end: u64) -> u64 {
        let mut asked = Dice(self.asked.iter().sum());
        self.seeded.as_mut().map_or(&mut asked, |seeded| &mut seeded.dice).below(end)
    }

    /// Returns how many visits to a place remain until the visit of its first rule, or 0 if the place has no
    /// rule.
    pub fn left(&self, place: Place) -> u64 {
        let rule = self.rules.iter().find(|rule| rule.place == place);
        let asked = self.asked.get(place as usize).copied().unwrap_or(0);
        rule.map_or(0, |rule| rule.nth.saturating_sub(asked))
    }

    /// Returns the past faults as a plan that repeats them.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn asked(plan: &mut Plan, place: Place, times: usize) -> Vec<Option<Fault>> {
        (0..times).map(|_| plan.at(place, CallId::NONE)).collect()
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

    /// An error without a name in the list is traced by its number, and the trace is a plan.
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
        let failed = methods.map(|id| plan.at(Place::Call, id).is_some());
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
