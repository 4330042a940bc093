//! Parses objdump's disassembly for Arm. Each function becomes a list of steps: barriers, calls, branches,
//! and accesses to memory that a device can see.

use std::collections::{BTreeMap, BTreeSet};

/// An instruction that matters for the order of memory accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The instruction `dmb` or `dsb`, with its operand.
    Barrier(String),
    /// A load from memory that a device can see. An access is not listed if its address comes from the first
    /// argument (a queue), the result pointer or the stack pointer: no device sees that memory.
    Load(Access),
    Store(Access),
    /// A call of another function.
    Call,
    /// A conditional branch, with its target if that is in this function.
    Branch(Option<u64>),
    /// An unconditional jump, with its target if that is in this function.
    Jump(Option<u64>),
    /// An unconditional jump back to the function's first barrier, or to code before it from which all paths
    /// lead to this barrier.
    Again(Option<u64>),
    Return,
}

/// A load or a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// The first loaded or stored register.
    pub(super) register: String,
    /// The address operand, with its brackets, such as `[x8, #4]`.
    pub(super) place: String,
    /// The value of `register` before the access. A store writes this value.
    value: Value,
    /// The value of the register that contains the address.
    base: Value,
}

/// A value in a register: its origin, and a number that is unique in the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value(Origin, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The sum of two registers: the address of an entry in a ring.
    Sum,
    /// Loaded from memory, such as the address of a doorbell record.
    Memory,
    /// The low 16 or 24 bits of a counter, before their byte order is changed.
    Masked,
    /// The low 16 or 24 bits of a counter, in the device's byte order.
    Counter,
    /// The address of memory that no device sees.
    Own,
    Other,
}

/// The end of an address operand for the send queue's counter in a doorbell record: the lower half of the
/// second word.
const SEND_COUNTER: &str = ", #6]";

/// The offset in a CQE of its last eight bytes. They contain the owner bit, and one load reads them all.
const OWNER: i64 = 56;
/// The offset of the CQE in a slot of 128 bytes.
const LONG: i64 = 64;

impl Access {
    /// Returns whether this access stores a counter that tells the device of progress: to the first word of a
    /// doorbell record, or to the send queue's half word there. A store of zero to this half word only resets
    /// the record, and does not count.
    pub(super) fn is_progress(&self) -> bool {
        let is_counter = self.value.0 == Origin::Counter && !self.place.contains(',');
        let is_send_counter = self.base.0 == Origin::Memory
            && self.place.ends_with(SEND_COUNTER)
            && self.register.starts_with('w')
            && self.register != "wzr";
        is_send_counter || is_counter && !self.is_in_ring()
    }

    /// Returns whether this access may read the owner bit of a CQE: a load of eight bytes at the owner bit's
    /// offset.
    pub(super) fn is_owner(&self) -> bool {
        [OWNER, LONG + OWNER].contains(&self.offset()) && self.register.starts_with('x')
    }

    /// Returns whether this access reads the same CQE as `owner`, the access that reads the owner bit.
    pub(super) fn is_of_entry(&self, owner: &Self) -> bool {
        let entry = owner.offset() - OWNER;
        self.base == owner.base && (entry..entry + 64).contains(&self.offset())
    }

    /// Returns whether the address was computed as one in a ring (by a sum of registers), not as that of a
    /// struct's field.
    pub(super) fn is_in_ring(&self) -> bool {
        self.base.0 == Origin::Sum
    }

    fn offset(&self) -> i64 {
        let inner = self.place.trim_start_matches('[').split(']').next().unwrap_or_default();
        inner.split_once(", #").and_then(|(_, offset)| offset.parse().ok()).unwrap_or_default()
    }
}

/// Returns each function of a disassembly: its name, and the lines of its instructions.
pub(super) fn functions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n\n").filter_map(|section| {
        let (head, body) = section.trim_start().split_once(">:\n")?;
        Some((head.split_once(" <")?.1, body))
    })
}

/// The known contents of registers, by the number of the register.
struct Registers<'t> {
    values: BTreeMap<&'t str, Value>,
    /// Numbers of the registers that point to memory that no device sees: the queue (the first argument), the
    /// result, and the stack.
    own: BTreeSet<&'t str>,
    /// The number of values so far. Each new value gets this number, so that equal numbers mean equal values.
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

    /// Records the result of an instruction that accesses no memory.
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

    /// Records the result of a load or a store. Returns the access as a step if a device can see the memory.
    fn access(&mut self, mnemonic: &str, registers: &'t str, place: &'t str) -> Option<Step> {
        let base = place.split([',', ']']).next().unwrap_or_default();
        let first = registers.split(", ").next().unwrap_or_default();
        let (is_store, is_own) = (mnemonic.starts_with("st"), self.own.contains(number(base)));
        let (value, counted_from) = (self.get(first), self.get(base));
        let access = Access { register: first.into(), place: format!("[{place}"), value, base: counted_from };
        if !is_store {
            for register in registers.split(", ").filter(|register| !register.is_empty()) {
                // A load from the stack restores a saved register. If the register pointed to private memory
                // before, it is taken to point there again, unless this function computed the pointer itself.
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

    /// Forgets the contents of registers that a call may change.
    fn call(&mut self) {
        let is_kept = |register: &str| (19..30).any(|kept| register.parse() == Ok(kept));
        self.own.retain(|register| is_kept(register));
        self.values.retain(|register, _| is_kept(register));
    }
}

#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    /// The address of each step's instruction.
    addresses: Vec<u64>,
}

impl Code {
    /// Returns the indices of the steps that can follow directly after the step with index `at`.
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

    /// Returns the steps from index `at` up to and including the next branch, at most [`LONGEST`]. Jumps
    /// inside of the function are followed and left out.
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

/// The largest number of steps that is needed to recognise an allowed order of barriers and accesses.
const LONGEST: usize = 12;

/// Returns the steps of a function. Accesses to memory that no device sees are left out: the queue (the first
/// argument), the result, and the stack. `isb` is left out too: spin locks execute it while they wait, and it
/// orders no memory accesses.
pub(super) fn steps(name: &str, body: &str) -> Code {
    let mut registers = Registers { values: BTreeMap::new(), own: BTreeSet::from(["0", "8"]), count: 0 };
    let mut code = Code::default();
    // The address of the first barrier, and the address of the last branch, jump or return before this
    // barrier.
    let (mut barrier, mut way_out) = (None, None);
    for line in body.lines() {
        // Instructions may change the stack pointer, but it always points to the stack.
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

/// Returns the target of a branch, if it is inside of the function `name`.
fn inside(name: &str, operands: &str) -> Option<u64> {
    let (before, place) = operands.split_once('<')?;
    let is_own = place.strip_prefix(name).is_some_and(|rest| rest.starts_with(['+', '>']));
    address(before.rsplit(", ").next()?, ' ').filter(|_| is_own)
}

/// Returns the hexadecimal number before the character `end`.
fn address(text: &str, end: char) -> Option<u64> {
    u64::from_str_radix(text.trim_start().split(end).next()?, 16).ok()
}

/// Returns whether a branch targets an address of this function after `way_out` and up to `barrier`. From
/// these addresses every path leads to the barrier, because no branch, jump or return is between them.
fn leads_to(name: &str, operands: &str, way_out: Option<u64>, barrier: Option<u64>) -> bool {
    let target = inside(name, operands);
    target > way_out && target <= barrier
}

/// Returns the register's number, which its 64-bit and its 32-bit name share (`x8`, `w8`).
fn number(register: &str) -> &str {
    register.trim_start_matches(['x', 'w'])
}
