//! The order of barriers and accesses, read from the instructions that the compiler wrote for Arm.
//!
//! What each barrier is for stands in the library, `src/queue/barrier.rs`.

use std::collections::{BTreeMap, BTreeSet};

/// Checks the functions of the freestanding program that publish and consume, as objdump prints them: some that do nothing
/// else in all that they do, and of each function with barriers that those stand in a known order.
///
/// # Errors
/// What is not in order, and where.
pub(super) fn check(disassembly: &str) -> Result<String, String> {
    let checks: [(&str, Check); 5] = [
        ("entry_ring_doorbell", doorbell),
        ("entry_post_and_ring", doorbell),
        ("entry_publish", |code| record(code, "dmb oshst")),
        ("entry_release", |code| record(code, "dmb osh")),
        ("entry_take", entry),
    ];
    for (name, check) in checks {
        let (_, body) =
            functions(disassembly).find(|(found, _)| *found == name).ok_or(format!("{name} is missing"))?;
        check(&steps(name, body)).map_err(|what| format!("{name}: {what}"))?;
    }
    // The compiler may write arming as a function of its own.
    let arming =
        |name: &str| name == "entry_arm" || name.contains("CompletionQueue") && name.contains("3arm");
    if !functions(disassembly).any(|(name, body)| arming(name) && arms(&steps(name, body))) {
        return Err("entry_arm: no arm word between a consumer index and a doorbell".to_owned());
    }
    for (entry, router) in [("entry_poll", "QpRouter"), ("entry_poll_table", "QpTableRouter")] {
        // Polling is generic: the compiler may write a function of its own for each router.
        let of_it = |name: &str| name == entry || name.contains("CompletionQueue") && name.contains(router);
        let code =
            functions(disassembly).filter(|(name, _)| of_it(name)).flat_map(|(name, body)| steps(name, body));
        polls(&code.collect::<Vec<_>>()).map_err(|what| format!("{entry}: {what}"))?;
    }
    let mut count = 0;
    for (name, body) in functions(disassembly) {
        let code = steps(name, body);
        let of_library = name.starts_with("entry_") || name.contains("mlx5_mkey");
        if of_library && code.iter().any(|step| matches!(step, Step::Barrier(_))) {
            orders(&code).map_err(|what| format!("{:#}: {what}", rustc_demangle::demangle(name)))?;
            count += 1;
        }
    }
    Ok(format!(
        "blocks, dmb oshst, record, dsb st, doorbell, dsb st; owner bit, dmb oshld, entry, dmb osh, record; the same, arm \
         word, dsb st, doorbell, dsb st; in all {count} functions with barriers"
    ))
}

type Check = fn(&[Step]) -> Result<(), String>;

/// What an instruction does to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// `dmb` and `dsb`, as they are written.
    Barrier(String),
    /// Access to memory that none of the first argument, the place for the result and the stack pointer points to: what a
    /// device sees. First operand, place.
    Load(String, String),
    Store(String, String),
    /// Goes elsewhere.
    Branch,
    /// Goes on before the function's first barrier, where all ways lead to it.
    Again,
    /// Goes back to the caller.
    Return,
}

/// Returns the functions of a disassembly: their names, and the lines of their instructions.
fn functions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n\n").filter_map(|section| {
        let (head, body) = section.trim_start().split_once(">:\n")?;
        Some((head.split_once(" <")?.1, body))
    })
}

/// Returns the steps of a function; the queue, its first argument, its result and the stack are nobody else's and left out.
/// So is `isb`, with which a spin lock waits: it orders no accesses to memory.
fn steps(name: &str, body: &str) -> Vec<Step> {
    let mut own = BTreeSet::from(["0", "8"]);
    let mut steps = Vec::new();
    // The first barrier, and the last instruction before it that may lead elsewhere.
    let (mut barrier, mut way_out) = (None, None);
    for line in body.lines() {
        // It is moved, and stays what it is.
        own.insert("sp");
        let mut columns = line.split('\t').skip(1).map(str::trim);
        let (mnemonic, operands) = (columns.next().unwrap_or_default(), columns.next().unwrap_or_default());
        let (first, others) = operands.split_once(", ").unwrap_or((operands, ""));
        match mnemonic {
            "mov" if own.contains(number(others)) => _ = own.insert(number(first)),
            "dmb" | "dsb" => {
                barrier = barrier.or(address(line, ':'));
                steps.push(Step::Barrier(format!("{mnemonic} {operands}")));
            }
            "b" if barrier.is_some() && leads_to(name, operands, way_out, barrier) => steps.push(Step::Again),
            "isb" | "cmp" | "cmn" | "ccmp" | "tst" => {}
            "ret" => {
                if barrier.is_none() {
                    way_out = address(line, ':');
                }
                steps.push(Step::Return);
            }
            "bl" | "blr" => {
                steps.push(Step::Branch);
                // What a call leaves as it was.
                own.retain(|register| (19..30).any(|kept| register.parse() == Ok(kept)));
            }
            _ if mnemonic.starts_with(['b', 'c', 't']) && operands.contains('<') => {
                if barrier.is_none() {
                    way_out = address(line, ':');
                }
                steps.push(Step::Branch);
            }
            _ => {
                let Some((registers, place)) = operands.split_once('[') else {
                    own.remove(number(first));
                    continue;
                };
                let base = number(place.split([',', ']']).next().unwrap_or_default());
                let store = mnemonic.starts_with("st");
                if !own.contains(base) {
                    let access = (first.to_owned(), format!("[{place}"));
                    steps.push(match store {
                        true => Step::Store(access.0, access.1),
                        false => Step::Load(access.0, access.1),
                    });
                }
                // The stack gives back what was in a register before.
                if !store && base != "sp" {
                    registers.split(", ").for_each(|register| _ = own.remove(number(register)));
                }
            }
        }
    }
    steps
}

/// Returns the address that a text begins with, which ends with this.
fn address(text: &str, end: char) -> Option<u64> {
    u64::from_str_radix(text.trim_start().split(end).next()?, 16).ok()
}

/// Returns whether a branch goes to a place of the function with this name that is behind `way_out` and not behind `barrier`.
fn leads_to(name: &str, operands: &str, way_out: Option<u64>, barrier: Option<u64>) -> bool {
    let place = operands.split_once('<').map_or("", |(_, place)| place);
    let is_own = place.strip_prefix(name).is_some_and(|rest| rest.starts_with(['+', '>']));
    let target = address(operands, ' ');
    is_own && target > way_out && target <= barrier
}

/// Returns what the names of both widths of a register share.
fn number(register: &str) -> &str {
    register.trim_start_matches(['x', 'w'])
}

/// Where a doorbell record has the counter of the send queue: the lower half of its second word.
const SEND_COUNTER: &str = ", #6]";

fn is_word(register: &str) -> bool {
    register.starts_with('w')
}

/// Returns what comes behind `dmb oshst`, the record's second word, `dsb st`, eight bytes to the doorbell, `dsb st`, without
/// a branch between, where a function goes on so.
fn rung(code: &[Step]) -> Option<&[Step]> {
    let (first, code) = barrier(code)?;
    let (counter, record, code) = store(code)?;
    let (before, code) = barrier(code)?;
    let (bytes, _, code) = store(code)?;
    let (behind, rest) = barrier(code)?;
    let is_record = first == "dmb oshst" && is_word(counter) && record.ends_with(SEND_COUNTER);
    let is_rung = before == "dsb st" && !is_word(bytes) && behind == "dsb st";
    (is_record && is_rung).then_some(rest)
}

/// Returns the barrier that code begins with, and what comes behind it.
fn barrier(code: &[Step]) -> Option<(&str, &[Step])> {
    match code {
        [Step::Barrier(barrier), rest @ ..] => Some((barrier, rest)),
        _ => None,
    }
}

/// Returns the first store of code, and what comes behind it. Reads before it show a device nothing: the queue is read, and the
/// doorbell's bytes from the ring.
fn store(code: &[Step]) -> Option<(&str, &str, &[Step])> {
    match code {
        [Step::Store(value, place), rest @ ..] => Some((value, place, rest)),
        [Step::Load(..), rest @ ..] => store(rest),
        _ => None,
    }
}

/// As [`rung`], and nothing else that a device sees behind the first barrier: the code behind the function's end goes back to
/// that barrier when it has written anything.
fn doorbell(code: &[Step]) -> Result<(), String> {
    let start =
        code.iter().position(|step| *step == Step::Barrier("dmb oshst".into())).ok_or("no dmb oshst")?;
    let published = code.get(start..).unwrap_or_default();
    let ends = |rest: &[Step]| {
        let mut parts = rest.split_inclusive(|step| matches!(step, Step::Return | Step::Again));
        let seen = |step: &Step| !matches!(step, Step::Branch | Step::Return | Step::Again);
        let first = parts.next().unwrap_or_default();
        !first.iter().any(seen)
            && parts.all(|part| {
                let writes =
                    part.iter().position(seen).map_or(&[][..], |at| part.get(at..).unwrap_or_default());
                match writes {
                    [] => true,
                    [accesses @ .., Step::Again] => {
                        accesses.iter().all(|step| matches!(step, Step::Load(..) | Step::Store(..)))
                    }
                    _ => false,
                }
            })
    };
    if rung(published).is_some_and(ends) { Ok(()) } else { Err(format!("{published:?}")) }
}

/// A barrier, then the record's first word.
fn record(code: &[Step], barrier: &str) -> Result<(), String> {
    match code {
        [Step::Barrier(first), Step::Store(counter, _), Step::Return]
            if first == barrier && is_word(counter) =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}")),
    }
}

/// Where a completion queue's doorbell record has the arm word.
const ARM_WORD: &str = ", #4]";

/// Returns what comes behind `dmb osh`, the record's first word and its second, `dsb st`, eight bytes to the doorbell, `dsb st`,
/// without a branch between, where a function goes on so.
fn armed(code: &[Step]) -> Option<&[Step]> {
    let (first, code) = barrier(code)?;
    let (index, consumer, code) = store(code)?;
    let (word, arm, code) = store(code)?;
    let (before, code) = barrier(code)?;
    let (bytes, _, code) = store(code)?;
    let (behind, rest) = barrier(code)?;
    let record = consumer.strip_suffix(']').filter(|record| !record.contains(','));
    let is_record = is_word(index)
        && is_word(word)
        && record.and_then(|record| arm.strip_prefix(record)) == Some(ARM_WORD);
    let is_rung = before == "dsb st" && !is_word(bytes) && behind == "dsb st";
    (first == "dmb osh" && is_record && is_rung).then_some(rest)
}

/// Whether a completion queue is armed, somewhere in a function.
fn arms(code: &[Step]) -> bool {
    (0..code.len()).any(|start| code.get(start..).is_some_and(|code| armed(code).is_some()))
}

/// Returns whether it is the last byte of an entry, or the word that ends with it, which is read at once. A loop may count from
/// the entry behind.
fn is_owner(place: &str) -> bool {
    matches!(offset(place), 56 | 63 | -8 | -1)
}

/// Returns how far a place is from where its register points.
fn offset(place: &str) -> i64 {
    let inner = place.trim_start_matches('[').split(']').next().unwrap_or_default();
    inner.split_once(", #").and_then(|(_, offset)| offset.parse().ok()).unwrap_or_default()
}

/// Returns whether two places are the last word of an entry and the byte count (or the word with it), by one register that
/// points anywhere.
fn is_owner_of(word: &str, count: &str) -> bool {
    base(word) == base(count) && matches!(offset(word) - offset(count), 12 | 16)
}

/// The owner bit of an entry, `dmb oshld`, then the rest of it.
fn entry(code: &[Step]) -> Result<(), String> {
    let (mut loads, mut others) = (0, Vec::new());
    for step in code {
        match step {
            Step::Load(..) if !others.is_empty() => loads += 1,
            Step::Load(_, place) if is_owner(place) => {}
            Step::Barrier(barrier) => others.push(barrier.as_str()),
            Step::Branch | Step::Again | Step::Return | Step::Store(..) => {}
            Step::Load(_, place) => return Err(format!("{place} is read before the barrier")),
        }
    }
    if others == ["dmb oshld"] && loads > 0 {
        Ok(())
    } else {
        Err(format!("{loads} loads behind {others:?}"))
    }
}

/// Takes entries and gives their slots back, so that there are barriers to be found in a known order.
fn polls(code: &[Step]) -> Result<(), String> {
    let missing = ["dmb oshld", "dmb osh"]
        .into_iter()
        .find(|wanted| !code.iter().any(|step| matches!(step, Step::Barrier(barrier) if barrier == wanted)));
    missing.map_or(Ok(()), |barrier| Err(format!("polls without {barrier}")))
}

/// Each barrier in a known order, whatever else the function does.
fn orders(code: &[Step]) -> Result<(), String> {
    let (mut rest, mut owner) = (code, None);
    // What was read last by each register.
    let mut reads: BTreeMap<&str, &str> = BTreeMap::new();
    while let [step, behind @ ..] = rest {
        rest = match step {
            Step::Barrier(_) => {
                let fresh = match behind {
                    [Step::Load(_, count), ..] => {
                        owner.is_some() || reads.get(base(count)).is_some_and(|word| is_owner_of(word, count))
                    }
                    _ => false,
                };
                order(rest, fresh).ok_or_else(|| {
                    format!("no known order of a barrier: {:?}", rest.get(..6).unwrap_or(rest))
                })?
            }
            Step::Load(_, place) => {
                reads.insert(base(place), place);
                // What is read from elsewhere is the queue's own.
                if is_owner(place) {
                    owner = Some(base(place));
                } else if owner == Some(base(place)) {
                    owner = None;
                }
                behind
            }
            _ => behind,
        };
    }
    Ok(())
}

/// Returns the register that a place goes by.
fn base(place: &str) -> &str {
    place.trim_start_matches('[').split([',', ']']).next().unwrap_or_default()
}

/// Returns what comes behind the order that begins with this barrier, if it is known; `fresh` says whether an owner bit was
/// read and nothing else by the same register since.
fn order(code: &[Step], fresh: bool) -> Option<&[Step]> {
    let [Step::Barrier(first), behind @ ..] = code else { return None };
    if let Some(rest) = armed(code) {
        return Some(rest);
    }
    match (first.as_str(), behind) {
        ("dmb oshst" | "dmb osh", [Step::Store(counter, record), rest @ ..])
            if is_word(counter) && !record.contains(',') =>
        {
            Some(rest)
        }
        // First where the record is.
        ("dmb oshst" | "dmb osh", [Step::Load(pointer, _), Step::Store(counter, record), rest @ ..])
            if is_word(counter) && *record == format!("[{pointer}]") =>
        {
            Some(rest)
        }
        // And the counter, in any order.
        (
            "dmb oshst" | "dmb osh",
            [Step::Load(one, _), Step::Load(other, _), Step::Store(counter, record), rest @ ..],
        ) if is_word(counter)
            && [(one, other), (other, one)]
                .iter()
                .any(|(own, pointer)| *own == counter && *record == format!("[{pointer}]")) =>
        {
            Some(rest)
        }
        // A doorbell that is no device's.
        (
            "dmb oshst",
            [Step::Store(counter, record), Step::Barrier(before), Step::Barrier(behind), rest @ ..],
        ) if is_word(counter)
            && record.ends_with(SEND_COUNTER)
            && before == "dsb st"
            && behind == "dsb st" =>
        {
            Some(rest)
        }
        // Requests were cancelled; the device is told by other means.
        ("dmb oshst", [Step::Return, ..]) => Some(behind),
        ("dmb oshld", [Step::Load(..), ..]) if fresh => Some(behind),
        _ => rung(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
0000000000000000 <entry>:
   0:\tmov\tx25, x0
   4:\tstr\tw8, [x25, #1112]
   8:\tdmb\toshst
   c:\tldr\tx9, [x0, #1088]
  10:\tstrh\tw8, [x9, #6]
  14:\tdsb\tst
  18:\tstr\tx8, [x9, x10]
  1c:\tstr\tx8, [x25, #1080]
  20:\tdsb\tst
  24:\tldp\tx20, x19, [sp, #192]
  28:\tret

0000000000000000 <other>:
";

    fn doorbell_of(text: &str) -> Result<(), String> {
        let (name, body) = functions(text).next().unwrap();
        assert_eq!(name, "entry");
        doorbell(&steps(name, body))
    }

    #[test]
    fn the_order_of_a_doorbell() {
        assert_eq!(doorbell_of(GOOD), Ok(()));
        for (from, to) in [
            ("dmb\toshst", "dmb\tishst"),
            ("dsb\tst\n  18", "dmb\toshst\n  18"),
            ("  14:\tdsb\tst\n", ""),
            ("  20:\tdsb\tst\n", ""),
            ("strh\tw8, [x9, #6]", "str\tw8, [x9]"),
            ("str\tx8, [x9, x10]", "str\tw8, [x9, x10]"),
            ("str\tw8, [x25, #1112]\n   8:\tdmb\toshst", "dmb\toshst\n   8:\tstr\tw8, [x9]"),
            ("  24:", "  22:\tstr\tx8, [x9, x10]\n  24:"),
            ("  18:", "  16:\tcbz\tx9, 28 <entry+0x28>\n  18:"),
        ] {
            let bad = GOOD.replace(from, to);
            assert!(bad != GOOD && doorbell_of(&bad).is_err(), "{bad}");
        }
        // The doorbell's eight bytes may be read from the ring, and where that is.
        let read = GOOD.replace("  18:", "  15:\tldr\tx12, [x13]\n  16:\tldr\tx8, [x12, x11]\n  18:");
        assert!(read != GOOD && doorbell_of(&read) == Ok(()));
        // Behind the end, what was not quick is done, and then published as the rest is.
        let behind = |lines: &str| GOOD.replace("  28:\tret\n", &format!("  28:\tret\n{lines}"));
        let (write, back) = ("  2c:\tstr\tx9, [x10]\n", "  30:\tb\t8 <entry+0x8>\n");
        assert_eq!(doorbell_of(&behind(&format!("{write}{back}"))), Ok(()));
        for bad in [
            write.to_owned(),
            format!("{write}  30:\tb\tc <entry+0xc>\n"),
            format!("{write}  30:\tb\t0 <other>\n"),
            format!("{write}  30:\tb\t0 <entry_of_another>\n"),
            format!("{write}  2e:\tcbz\tx9, 28 <entry+0x28>\n{back}"),
            format!("{write}  2e:\tret\n{back}"),
            format!("{write}  2e:\tdmb\toshst\n{back}"),
        ] {
            assert!(doorbell_of(&behind(&bad)).is_err(), "{bad}");
        }
        // What comes before the barrier may pass it by.
        let around = behind(&format!("{write}  30:\tb\t0 <entry>\n"));
        assert_eq!(doorbell_of(&around), Ok(()));
        let around = around.replace("str\tw8, [x25, #1112]", "cbz\tx9, 28 <entry+0x28>");
        assert!(doorbell_of(&around).is_err(), "{around}");
    }

    #[test]
    fn an_entry_is_read_behind_its_owner_bit() {
        let of = |lines: &[&str]| entry(&steps("entry", &lines.join("\n")));
        let (owner, barrier, body) = ("0:\tldrb\tw12, [x9, #63]", "4:\tdmb\toshld", "8:\tldp\tx1, x2, [x9]");
        assert_eq!(of(&[owner, barrier, body]), Ok(()));
        for bad in
            [&[owner, body, barrier][..], &[owner, body], &[owner, barrier], &[owner, "4:\tdmb\tishld", body]]
        {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn polling_has_both_barriers() {
        let of = |lines: &[&str]| polls(&steps("entry_poll", &lines.join("\n")));
        let (taken, released) = ("0:\tdmb\toshld", "4:\tdmb\tosh");
        assert_eq!(of(&[taken, released]), Ok(()));
        for bad in [&[taken][..], &[released], &[taken, "4:\tdmb\toshst"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_queue_of_a_table_reads_where_its_record_and_doorbell_are() {
        let of = |lines: [&str; 7]| {
            let code: String = lines.map(|line| format!("0:\t{}\n", line.replacen(' ', "\t", 1))).concat();
            orders(&steps("entry", &code))
        };
        let lines = [
            "dmb oshst",
            "ldr x12, [x9, #1608]",
            "strh w11, [x12, #6]",
            "dsb st",
            "ldr x9, [x9, #1616]",
            "str x10, [x9]",
            "dsb st",
        ];
        assert_eq!(of(lines), Ok(()));
        // Another word of the record, a doorbell of four bytes, a weaker barrier.
        for (at, line) in [(2, "strh w11, [x12, #2]"), (5, "str w10, [x9]"), (3, "dmb oshst")] {
            let mut bad = lines;
            bad[at] = line;
            assert!(of(bad).is_err(), "{line}");
        }
    }

    #[test]
    fn barriers_stand_in_known_orders() {
        let of = |lines: &[&str]| {
            let lines: Vec<String> =
                lines.iter().map(|line| format!("0:\t{}", line.replacen(' ', "\t", 1))).collect();
            orders(&steps("entry", &lines.join("\n")))
        };
        let bell = ["dmb oshst", "strh w8, [x9, #6]", "dsb st", "str x8, [x9, x10]", "dsb st"];
        let [publish, record, complete, _, flush] = bell;
        let (queue, first) = ("ldr x9, [x0, #16]", "str w8, [x9]");
        let arm = ["dmb osh", first, "str w7, [x9, #4]", complete, "ldr x6, [x1]", "str x5, [x6]", flush];
        let (owner, fresh, body) = ("ldrb w8, [x9, #63]", "dmb oshld", "ldr x8, [x9, #40]");
        for good in [
            // Others may come behind, and a lock is let go.
            &[&bell[..], &["stlrb wzr, [x0]", first, "ret"]].concat()[..],
            &[publish, record, complete, flush],
            &[publish, queue, first],
            &arm,
            &["mov x22, x0", "ldr x0, [x22]", "bl 0 <other>", "dmb osh", "ldr x9, [x22, #16]", first],
            &[owner, "b.hi 78 <entry+0x78>", fresh, body, owner, fresh, body],
            &["ldr x8, [x9, #56]", "ldr x10, [x20, #8]", fresh, body],
            &["ldr x0, [x16]", "ldr x10, [x20, #8]", fresh, "ldur w0, [x16, #-12]"],
            &[
                "mov x19, x8",
                "and w8, w2, #0xffff",
                publish,
                "str x23, [x19, #8]",
                "ldr x19, [sp], #16",
                "ret",
            ],
            &["ldp x8, x0, [sp, #8]", "dmb osh", "ldr x9, [x0, #24]", first],
            &["dmb osh", "ldr x8, [x1, #24]", "ldr w9, [x1, #32]", "str w9, [x8]"],
            &["dmb osh", "ldr w9, [x1, #32]", "ldr x8, [x1, #24]", "str w9, [x8]"],
            &["sub sp, sp, #0x50", "dmb osh", "str x8, [sp, #16]", queue, first],
            &["isb", "ldrb w10, [x0]", "cbnz w10, 0 <entry>"],
        ] {
            assert_eq!(of(good), Ok(()), "{good:?}");
        }
        for bad in [
            &["dmb ish", first][..],
            &["dsb sy"],
            &[publish],
            &[publish, record],
            &[publish, record, complete],
            &[publish, record, "isb", flush],
            &["dmb osh", record],
            // The arm word in another place, or without a barrier on one of its sides; a doorbell of four bytes.
            &["dmb osh", first, "str w7, [x8, #4]", complete, "str x5, [x6]", flush],
            &["dmb osh", first, "str w7, [x9, #4]", "str x5, [x6]", flush],
            &["dmb osh", first, "str w7, [x9, #4]", complete, "str x5, [x6]"],
            &["dmb osh", first, "str w7, [x9, #4]", complete, "str w5, [x6]", flush],
            &["dmb osh", first, "str w7, [x9, #4]", "dmb oshst", "str x5, [x6]", flush],
            &["dmb osh", body, first],
            &["dmb osh", "ldr x8, [x1, #24]", "ldr w7, [x1, #32]", "str w9, [x8]"],
            &["dmb osh", "cbz x9, 0 <entry>", first],
            &[body, fresh, body],
            &[owner, fresh],
            &[owner, body, fresh, body],
            &["ldr x0, [x16]", "ldur w0, [x16, #-12]", fresh, "ldur w0, [x16, #-12]"],
            &["ldr x0, [x15]", fresh, "ldur w0, [x16, #-12]"],
            &["ldr x0, [x16]", fresh, "ldur w0, [x16, #-8]"],
            // What was a queue's or the result's is so no more.
            &["and w8, w2, #0xffff", publish, "str x23, [x8, #8]", "ret"],
            &["bl 0 <other>", publish, "str x23, [x0, #8]", "ret"],
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn functions_are_told_apart() {
        let names: Vec<_> = functions(GOOD).map(|(name, _)| name).collect();
        assert_eq!(names, ["entry", "other"]);
    }
}
