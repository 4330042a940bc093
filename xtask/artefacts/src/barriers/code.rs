//! Functions of a disassembly, as what they do to memory that a device sees.

use std::collections::{BTreeMap, BTreeSet};

/// What an instruction does to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// `dmb` and `dsb`, as they are written.
    Barrier(String),
    /// Access to memory that none of the first argument, the place for the result and the stack pointer points to: what a
    /// device sees.
    Load(Access),
    Store(Access),
    /// Calls another function.
    Call,
    /// May go to this address, of the same function or another.
    Branch(Option<u64>),
    /// Goes to this address.
    Jump(Option<u64>),
    /// The same, before the function's first barrier, where all ways lead to it.
    Again(Option<u64>),
    /// Goes back to the caller.
    Return,
}

/// A load or a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// The first that is loaded or stored.
    pub(super) register: String,
    /// As it is written, with brackets.
    pub(super) place: String,
    /// What is stored.
    value: Value,
    /// What the place is counted from.
    base: Value,
}

/// What is in a register: where it comes from, and a number that no other value of the function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value(Origin, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Two registers added: a place in a ring.
    Sum,
    /// Loaded: where a record is.
    Memory,
    /// The low bits of a counter, 16 or 24.
    Masked,
    /// The same in the device's byte order.
    Counter,
    /// A place in memory that is nobody else's.
    Own,
    Other,
}

/// Where a doorbell record has the counter of the send queue: the lower half of its second word.
const SEND_COUNTER: &str = ", #6]";

/// Where an entry has the word that ends with its owner bit and is read at once.
const OWNER: i64 = 56;
/// Where the entry is in a slot of 128 bytes.
const LONG: i64 = 64;

impl Access {
    /// Returns whether this is the first word of a doorbell record, or the send queue's counter, and not zero: what tells a device
    /// of progress.
    pub(super) fn is_progress(&self) -> bool {
        let is_counter = self.value.0 == Origin::Counter && !self.place.contains(',');
        let is_send_counter = self.base.0 == Origin::Memory
            && self.place.ends_with(SEND_COUNTER)
            && self.register.starts_with('w')
            && self.register != "wzr";
        is_send_counter || is_counter && !self.is_in_ring()
    }

    /// Returns whether this reads what may be the owner bit of an entry.
    pub(super) fn is_owner(&self) -> bool {
        [OWNER, LONG + OWNER].contains(&self.offset()) && self.register.starts_with('x')
    }

    /// Returns whether this reads the same entry as that, of which it has the owner bit.
    pub(super) fn is_of_entry(&self, owner: &Self) -> bool {
        let entry = owner.offset() - OWNER;
        self.base == owner.base && (entry..entry + 64).contains(&self.offset())
    }

    /// Returns whether the place was found in a ring, not only in a struct.
    pub(super) fn is_in_ring(&self) -> bool {
        self.base.0 == Origin::Sum
    }

    /// Returns how far the place is from where its register points.
    fn offset(&self) -> i64 {
        let inner = self.place.trim_start_matches('[').split(']').next().unwrap_or_default();
        inner.split_once(", #").and_then(|(_, offset)| offset.parse().ok()).unwrap_or_default()
    }
}

/// Returns the functions of a disassembly: their names, and the lines of their instructions.
pub(super) fn functions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n\n").filter_map(|section| {
        let (head, body) = section.trim_start().split_once(">:\n")?;
        Some((head.split_once(" <")?.1, body))
    })
}

/// What is known of the registers, by their numbers.
struct Registers<'t> {
    values: BTreeMap<&'t str, Value>,
    /// Point to memory that is nobody else's: the queue, which is the first argument, the result and the stack.
    own: BTreeSet<&'t str>,
    /// Values so far.
    count: usize,
}

impl<'t> Registers<'t> {
    fn set(&mut self, register: &'t str, origin: Origin) {
        self.count += 1;
        self.values.insert(number(register), Value(origin, self.count));
    }

    fn get(&mut self, register: &'t str) -> Value {
        self.count += 1;
        *self.values.entry(number(register)).or_insert(Value(Origin::Other, self.count))
    }

    /// Notes what an instruction that is neither a load nor a store leaves in its first register.
    fn compute(&mut self, mnemonic: &str, first: &'t str, others: &'t str) {
        if mnemonic == "mov" && self.own.contains(number(others)) {
            self.own.insert(number(first));
            return;
        }
        if mnemonic == "mov" && others.starts_with(['x', 'w']) {
            let value = self.get(others);
            self.values.insert(number(first), value);
        } else {
            let mut operands = others.split(", ");
            let source = operands.next().unwrap_or_default();
            let second = operands.next().unwrap_or_default();
            let is_own = mnemonic == "add" && self.own.contains(number(source)) && second.starts_with('#');
            let origin = match mnemonic {
                _ if is_own => Origin::Own,
                "add" if second.starts_with('x') => Origin::Sum,
                "and" if ["#0xffffff", "#0xffff"].contains(&second) => Origin::Masked,
                "rev" if self.get(source).0 == Origin::Masked => Origin::Counter,
                _ => Origin::Other,
            };
            self.set(first, origin);
            if is_own {
                self.own.insert(number(first));
                return;
            }
        }
        self.own.remove(number(first));
    }

    /// Returns what a load or store does that a device sees.
    fn access(&mut self, mnemonic: &str, registers: &'t str, place: &'t str) -> Option<Step> {
        let base = place.split([',', ']']).next().unwrap_or_default();
        let first = registers.split(", ").next().unwrap_or_default();
        let (is_store, is_own) = (mnemonic.starts_with("st"), self.own.contains(number(base)));
        let (value, counted_from) = (self.get(first), self.get(base));
        let access = Access { register: first.into(), place: format!("[{place}"), value, base: counted_from };
        if !is_store {
            for register in registers.split(", ").filter(|register| !register.is_empty()) {
                // The stack gives back what was in a register before, if that was no place that was made here.
                if base != "sp" || self.get(register).0 == Origin::Own {
                    self.own.remove(number(register));
                }
                self.set(register, Origin::Memory);
            }
        }
        if place.ends_with('!') || place.contains("], ") {
            let origin = counted_from.0;
            self.set(base, origin);
        }
        (!is_own).then_some(if is_store { Step::Store(access) } else { Step::Load(access) })
    }

    /// Forgets what a call does not leave as it was.
    fn call(&mut self) {
        let is_kept = |register: &str| (19..30).any(|kept| register.parse() == Ok(kept));
        self.own.retain(|register| is_kept(register));
        self.values.retain(|register, _| is_kept(register));
    }
}

/// What a function does, step by step.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    /// Of each step, where its instruction is.
    addresses: Vec<u64>,
}

impl Code {
    /// Returns the steps that may come behind this one.
    pub(super) fn behind(&self, at: usize) -> Vec<usize> {
        let target = |address: &Option<u64>| {
            let is_inside = |address: &u64| {
                self.addresses.first() <= Some(address) && Some(address) <= self.addresses.last()
            };
            let address = address.filter(is_inside)?;
            Some(self.addresses.partition_point(|found| *found < address))
        };
        match self.steps.get(at) {
            None | Some(Step::Return) => Vec::new(),
            Some(Step::Jump(to) | Step::Again(to)) => target(to).into_iter().collect(),
            Some(Step::Branch(to)) => target(to).into_iter().chain([at + 1]).collect(),
            Some(_) => vec![at + 1],
        }
    }

    /// Returns the steps that come from this one on, up to where the function may go different ways.
    pub(super) fn straight(&self, at: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut next = Some(at);
        while let Some((at, step)) = next.and_then(|at| Some((at, self.steps.get(at)?)))
            && steps.len() < LONGEST
        {
            let is_jump = matches!(step, Step::Jump(Some(_)));
            if !is_jump {
                steps.push(step.clone());
            }
            next = match self.behind(at)[..] {
                [only] => Some(only),
                _ => None,
            };
        }
        steps
    }
}

/// No order of barriers has more steps.
const LONGEST: usize = 12;

/// Returns the steps of a function; the queue, its first argument, its result and the stack are nobody else's and left out.
/// So is `isb`, with which a spin lock waits: it orders no accesses to memory.
pub(super) fn steps(name: &str, body: &str) -> Code {
    let mut registers = Registers { values: BTreeMap::new(), own: BTreeSet::from(["0", "8"]), count: 0 };
    let mut code = Code::default();
    // The first barrier, and the last instruction before it that may lead elsewhere.
    let (mut barrier, mut way_out) = (None, None);
    for line in body.lines() {
        // It is moved, and stays what it is.
        registers.own.insert("sp");
        let mut columns = line.split('\t').skip(1).map(str::trim);
        let (mnemonic, operands) = (columns.next().unwrap_or_default(), columns.next().unwrap_or_default());
        let (first, others) = operands.split_once(", ").unwrap_or((operands, ""));
        let is_call = matches!(mnemonic, "bl" | "blr");
        let jumps = mnemonic.starts_with(['b', 'c', 't']) && operands.contains('<') && !is_call;
        let leaves = mnemonic == "ret" || jumps;
        let step = match mnemonic {
            "dmb" | "dsb" => {
                barrier = barrier.or(address(line, ':'));
                Some(Step::Barrier(format!("{mnemonic} {operands}")))
            }
            "b" if barrier.is_some() && leads_to(name, operands, way_out, barrier) => {
                Some(Step::Again(inside(name, operands)))
            }
            "b" | "br" => Some(Step::Jump(inside(name, operands))),
            "isb" | "cmp" | "cmn" | "ccmp" | "tst" => None,
            "ret" => Some(Step::Return),
            _ if is_call => {
                registers.call();
                Some(Step::Call)
            }
            _ if jumps => Some(Step::Branch(inside(name, operands))),
            _ => match operands.split_once('[') {
                Some((list, place)) => registers.access(mnemonic, list.trim_end_matches(", "), place),
                None => {
                    registers.compute(mnemonic, first, others);
                    None
                }
            },
        };
        if barrier.is_none() && leaves {
            way_out = address(line, ':');
        }
        if let Some(step) = step {
            code.steps.push(step);
            code.addresses.push(address(line, ':').unwrap_or_default());
        }
    }
    code
}

/// Returns the address in the function with this name that a branch goes to.
fn inside(name: &str, operands: &str) -> Option<u64> {
    let (before, place) = operands.split_once('<')?;
    let is_own = place.strip_prefix(name).is_some_and(|rest| rest.starts_with(['+', '>']));
    address(before.rsplit(", ").next()?, ' ').filter(|_| is_own)
}

/// Returns the address that a text begins with, which ends with this.
fn address(text: &str, end: char) -> Option<u64> {
    u64::from_str_radix(text.trim_start().split(end).next()?, 16).ok()
}

/// Returns whether a branch goes to a place of the function with this name that is behind `way_out` and not behind `barrier`.
fn leads_to(name: &str, operands: &str, way_out: Option<u64>, barrier: Option<u64>) -> bool {
    let target = inside(name, operands);
    target > way_out && target <= barrier
}

/// Returns what the names of both widths of a register share.
fn number(register: &str) -> &str {
    register.trim_start_matches(['x', 'w'])
}
