//! The allowed orders of barriers and memory accesses, as sequences of steps.

use super::code::{Access, Code, Step};
use std::collections::BTreeSet;

fn is_word(register: &str) -> bool {
    register.starts_with('w')
}

/// Matches a barrier. Returns the barrier and the code after it.
fn barrier(code: &[Step]) -> Option<(&str, &[Step])> {
    match code {
        [Step::Barrier(barrier), rest @ ..] => Some((barrier, rest)),
        _ => None,
    }
}

/// Matches the first store, after any loads. Returns the store and the code after it. The loads do not matter
/// to the device: they read fields of the queue, or the ring's eight bytes for the doorbell register.
fn store(code: &[Step]) -> Option<(&Access, &[Step])> {
    match code {
        [Step::Store(access), rest @ ..] => Some((access, rest)),
        [Step::Load(_), rest @ ..] => store(rest),
        _ => None,
    }
}

/// Matches `dsb st`, the doorbell, `dsb st`. Returns the code after this sequence. The doorbell is a store of
/// eight bytes, or a call if the library's user implements the doorbell.
fn after_doorbell(code: &[Step]) -> Option<&[Step]> {
    let (before, code) = barrier(code)?;
    let reads = code.iter().take_while(|step| matches!(step, Step::Load(_))).count();
    let code = match code.get(reads..)? {
        [Step::Store(bytes), rest @ ..] if !is_word(&bytes.register) => rest,
        [Step::Call, rest @ ..] => rest,
        _ => return None,
    };
    let (behind, rest) = barrier(code)?;
    (before == "dsb st" && behind == "dsb st").then_some(rest)
}

/// Matches the publish sequence: `dmb oshst`, the second word of the doorbell record, the doorbell with its
/// barriers. Returns the code after the sequence, or `None` if the code differs or a branch interrupts the
/// sequence.
fn after_publish(code: &[Step]) -> Option<&[Step]> {
    let (first, code) = barrier(code)?;
    let (counter, code) = store(code)?;
    let is_record = first == "dmb oshst" && is_word(&counter.register) && counter.place.ends_with(", #6]");
    if is_record { after_doorbell(code) } else { None }
}

/// Checks that the function publishes its requests, and that no other access which a device can see follows
/// its first barrier. Code that is placed after the return may access memory, but must then jump back to the
/// first barrier.
pub(super) fn doorbell(code: &[Step]) -> Result<(), String> {
    let start =
        code.iter().position(|step| *step == Step::Barrier("dmb oshst".into())).ok_or("no dmb oshst")?;
    let published = code.get(start..).unwrap_or_default();
    let ends = |rest: &[Step]| {
        let mut parts = rest.split_inclusive(|step| matches!(step, Step::Return | Step::Again(_)));
        let seen =
            |step: &Step| !matches!(step, Step::Branch(_) | Step::Jump(_) | Step::Return | Step::Again(_));
        let first = parts.next().unwrap_or_default();
        !first.iter().any(seen)
            && parts.all(|part| {
                let writes =
                    part.iter().position(seen).map_or(&[][..], |at| part.get(at..).unwrap_or_default());
                match writes {
                    [] => true,
                    [accesses @ .., Step::Again(_)] => {
                        accesses.iter().all(|step| matches!(step, Step::Load(_) | Step::Store(_)))
                    }
                    _ => false,
                }
            })
    };
    if after_publish(published).is_some_and(ends) { Ok(()) } else { Err(format!("{published:?}")) }
}

/// Checks that the function consists of this barrier, a store of the doorbell record's first word, and the
/// return.
pub(super) fn record(code: &[Step], barrier: &str) -> Result<(), String> {
    match code {
        [Step::Barrier(first), Step::Store(counter), Step::Return]
            if first == barrier && counter.is_progress() =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}")),
    }
}

/// Checks that the function loads the owner bit, executes `dmb oshld`, then loads the rest of the CQE.
pub(super) fn entry(code: &[Step]) -> Result<(), String> {
    let (mut loads, mut others) = (0, Vec::new());
    for step in code {
        match step {
            Step::Load(_) if !others.is_empty() => loads += 1,
            Step::Load(access) if access.is_owner() => {}
            Step::Barrier(barrier) => others.push(barrier.as_str()),
            Step::Load(access) => return Err(format!("{} is read before the barrier", access.place)),
            _ => {}
        }
    }
    if others == ["dmb oshld"] && loads > 0 {
        Ok(())
    } else {
        Err(format!("{loads} loads after the barriers {others:?}"))
    }
}

/// Checks the function that cancels requests: `dmb oshst` must be the last step before each return. The
/// device then sees the blocks that replace cancelled requests before another function tells it to continue.
pub(super) fn cancels(code: &[Step]) -> Result<(), String> {
    let is_end = |at: usize| matches!(code.get(at), Some(Step::Return));
    let ends: Vec<_> = (0..code.len()).filter(|at| is_end(*at)).collect();
    let is_behind_barrier = |end: &usize| {
        let before = end.checked_sub(1).and_then(|before| code.get(before));
        before == Some(&Step::Barrier("dmb oshst".into()))
    };
    if !ends.is_empty() && ends.iter().all(is_behind_barrier) {
        Ok(())
    } else {
        Err("a return without dmb oshst before it".into())
    }
}

/// The end of an address operand for the arm word in a completion queue's doorbell record.
const ARM_WORD: &str = ", #4]";

/// Matches the arm sequence: `dmb osh`, both words of the doorbell record, the doorbell with its barriers.
/// Returns the code after the sequence, or `None` if the code differs or a branch interrupts the sequence.
fn after_arm(code: &[Step]) -> Option<&[Step]> {
    let (first, code) = barrier(code)?;
    let (index, code) = store(code)?;
    let (word, code) = store(code)?;
    let record = index.place.strip_suffix(']').filter(|record| !record.contains(','));
    let is_record = is_word(&index.register)
        && is_word(&word.register)
        && record.and_then(|record| word.place.strip_prefix(record)) == Some(ARM_WORD);
    if first == "dmb osh" && is_record { after_doorbell(code) } else { None }
}

/// Checks that the function contains the arm sequence of a completion queue, and no other barrier.
pub(super) fn arms(code: &[Step]) -> Result<(), String> {
    let start = code.iter().position(|step| matches!(step, Step::Barrier(_))).unwrap_or_default();
    let rest = after_arm(code.get(start..).unwrap_or_default());
    if rest.is_some_and(|rest| !rest.iter().any(|step| matches!(step, Step::Barrier(_)))) {
        Ok(())
    } else {
        Err(format!("no arm sequence: {code:?}"))
    }
}

/// Checks that the function only rings the command queue's doorbell: `dsb st`, a store of one word, `dsb st`.
pub(super) fn commands(code: &[Step]) -> Result<(), String> {
    let start = code.iter().take_while(|step| matches!(step, Step::Load(_))).count();
    match code.get(start..).unwrap_or_default() {
        [Step::Barrier(before), Step::Store(word), Step::Barrier(behind), Step::Return]
            if before == "dsb st" && is_word(&word.register) && behind == "dsb st" =>
        {
            Ok(())
        }
        _ => Err(format!("no command doorbell between two barriers: {code:?}")),
    }
}

/// Checks that each barrier is part of an allowed order, and that no barrier is missing at an access to a CQE
/// or a doorbell record.
pub(super) fn orders(code: &Code) -> Result<(), String> {
    // A function that rings the doorbell of the command queue has an order of its own. `known` would refuse
    // this order, because this doorbell is a store of four bytes.
    if commands(&code.steps).is_ok() {
        return Ok(());
    }
    known(code)?;
    for (at, step) in code.steps.iter().enumerate() {
        match step {
            Step::Load(owner) if owner.is_owner() && owner.is_in_ring() => read_behind(code, at, owner)?,
            Step::Store(record) if record.is_progress() => written_behind(code, at, record)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks that each barrier is part of an allowed order, which `order` matches.
pub(super) fn known(code: &Code) -> Result<(), String> {
    let mut at = 0;
    // The last load of an owner bit, until the rest of the CQE has been read.
    let mut owner: Option<&Access> = None;
    while let Some(step) = code.steps.get(at) {
        at += 1;
        match step {
            Step::Barrier(_) => {
                let straight = code.straight(at - 1);
                let rest = order(&straight, owner).ok_or_else(|| {
                    format!("a barrier in no known order: {:?}", straight.get(..6).unwrap_or(&straight))
                })?;
                // The steps that belong to the order are skipped, but only up to the first jump. Steps after
                // a jump are checked at their own place in the code.
                let ordered = straight.len() - rest.len();
                let same = straight.iter().zip(code.steps.get(at - 1..).unwrap_or_default());
                at += same.take(ordered).take_while(|(one, other)| one == other).count() - 1;
                owner = None;
            }
            Step::Load(access)
                if owner.is_some_and(|owner| access.is_of_entry(owner) && access.place != owner.place) =>
            {
                owner = None;
            }
            Step::Load(access) if access.is_owner() => owner = Some(access),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that every path from an owner bit to the rest of its CQE contains `dmb oshld`.
fn read_behind(code: &Code, at: usize, owner: &Access) -> Result<(), String> {
    let (mut seen, mut waiting) = (BTreeSet::new(), code.behind(at));
    while let Some(at) = waiting.pop() {
        match code.steps.get(at) {
            Some(Step::Barrier(barrier)) if barrier == "dmb oshld" => continue,
            Some(Step::Load(access)) if access.is_of_entry(owner) && access.place != owner.place => {
                let (read, tested) = (&access.place, &owner.place);
                return Err(format!(
                    "{read} is read after the owner bit ({tested}) without dmb oshld between"
                ));
            }
            _ if seen.insert(at) => waiting.extend(code.behind(at)),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that every path to a store into a doorbell record contains a barrier before the store.
fn written_behind(code: &Code, at: usize, record: &Access) -> Result<(), String> {
    let before = |at: usize| (0..code.steps.len()).filter(move |from| code.behind(*from).contains(&at));
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![at]);
    while let Some(at) = waiting.pop() {
        let mut ways = before(at).peekable();
        if ways.peek().is_none() {
            return Err(format!("{} of a record is written without a barrier before", record.place));
        }
        for from in ways {
            match code.steps.get(from) {
                Some(Step::Barrier(barrier)) if ["dmb osh", "dmb oshst"].contains(&barrier.as_str()) => {}
                Some(Step::Load(_) | Step::Branch(_) | Step::Jump(_) | Step::Again(_)) => {
                    if seen.insert(from) {
                        waiting.push(from);
                    }
                }
                _ => return Err(format!("{} of a record is written without a barrier before", record.place)),
            }
        }
    }
    Ok(())
}

/// Returns the code after an allowed order of barriers and accesses, if `code` begins with such an order.
/// `owner` is the last load of an owner bit.
fn order<'c>(code: &'c [Step], owner: Option<&Access>) -> Option<&'c [Step]> {
    let [Step::Barrier(first), behind @ ..] = code else { return None };
    if let Some(rest) = after_arm(code).or_else(|| after_publish(code)) {
        return Some(rest);
    }
    match (first.as_str(), behind) {
        ("dmb oshst" | "dmb osh", [Step::Store(counter), rest @ ..])
            if is_word(&counter.register) && !counter.place.contains(',') =>
        {
            Some(rest)
        }
        // The compiler has placed the load of the doorbell record's address between the barrier and the
        // store.
        ("dmb oshst" | "dmb osh", [Step::Load(pointer), Step::Store(counter), rest @ ..])
            if is_word(&counter.register) && counter.place == format!("[{}]", pointer.register) =>
        {
            Some(rest)
        }
        // The compiler has placed the loads of the doorbell record's address and of the counter between the
        // barrier and the store, in any order.
        ("dmb oshst" | "dmb osh", [Step::Load(one), Step::Load(other), Step::Store(counter), rest @ ..])
            if is_word(&counter.register)
                && [(one, other), (other, one)].iter().any(|(own, pointer)| {
                    own.register == counter.register && counter.place == format!("[{}]", pointer.register)
                }) =>
        {
            Some(rest)
        }
        // The publish sequence with a doorbell of the user that does nothing: the compiler has removed the
        // doorbell and left its barriers.
        ("dmb oshst", [Step::Store(counter), Step::Barrier(before), Step::Barrier(behind), rest @ ..])
            if is_word(&counter.register)
                && counter.place.ends_with(", #6]")
                && before == "dsb st"
                && behind == "dsb st" =>
        {
            Some(rest)
        }
        // The function has cancelled requests and returns. Another function then tells the device to
        // continue.
        ("dmb oshst", [Step::Return, ..]) => Some(behind),
        ("dmb oshld", [Step::Load(access), ..]) if owner.is_some_and(|owner| access.is_of_entry(owner)) => {
            Some(behind)
        }
        _ => None,
    }
}
