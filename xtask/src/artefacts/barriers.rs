//! The order of barriers and accesses, read from the instructions that the compiler wrote for Arm.
//!
//! What each barrier is for stands in the library, `src/queue/barrier.rs`.

use std::collections::BTreeSet;

/// Checks the functions of the freestanding program that publish and consume, as objdump prints them.
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
        let code = function(disassembly, name).ok_or(format!("{name} is missing"))?;
        check(&code).map_err(|what| format!("{name}: {what}"))?;
    }
    Ok("blocks, dmb oshst, record, dsb st, doorbell, dsb st; owner bit, dmb oshld, entry, dmb osh, record"
        .into())
}

type Check = fn(&[Step]) -> Result<(), String>;

/// What an instruction does to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// `dmb` and `dsb`, as they are written.
    Barrier(String),
    /// Access to memory that neither the argument nor the stack pointer points to: what a device sees. First operand, place.
    Load(String, String),
    Store(String, String),
    /// Goes elsewhere, or can be come to from elsewhere.
    Branch,
}

/// Returns the steps of a function; the queue, its first argument, and the stack are nobody else's and left out.
fn function(text: &str, name: &str) -> Option<Vec<Step>> {
    let (_, rest) = text.split_once(&format!(" <{name}>:\n"))?;
    let mut own = BTreeSet::from(["x0", "sp"]);
    let mut steps = Vec::new();
    for line in rest.lines().take_while(|line| !line.is_empty()) {
        let mut columns = line.split('\t').skip(1).map(str::trim);
        let (mnemonic, operands) = (columns.next()?, columns.next().unwrap_or_default());
        let (first, others) = operands.split_once(", ").unwrap_or((operands, ""));
        if mnemonic == "mov" && own.contains(others) {
            own.insert(first);
        } else if let "dmb" | "dsb" | "isb" = mnemonic {
            steps.push(Step::Barrier(format!("{mnemonic} {operands}")));
        } else if let Some((_, place)) = operands.split_once('[') {
            let base = place.split([',', ']']).next()?;
            let access = (first.to_owned(), format!("[{place}"));
            if !own.contains(base) {
                let store = mnemonic.starts_with("st");
                steps.push(if store {
                    Step::Store(access.0, access.1)
                } else {
                    Step::Load(access.0, access.1)
                });
            }
        } else if mnemonic.starts_with(['b', 'c', 't', 'r']) && operands.contains('<') || mnemonic == "ret" {
            steps.push(Step::Branch);
        }
    }
    Some(steps)
}

fn is_word(register: &str) -> bool {
    register.starts_with('w')
}

/// `dmb oshst`, the record's second word, `dsb st`, eight bytes to the doorbell, `dsb st`, without a branch between, and
/// nothing else that a device sees behind the first.
fn doorbell(code: &[Step]) -> Result<(), String> {
    let start =
        code.iter().position(|step| *step == Step::Barrier("dmb oshst".into())).ok_or("no dmb oshst")?;
    let published = code.get(start..).unwrap_or_default();
    let in_order = match published {
        [
            _,
            Step::Store(counter, record),
            Step::Barrier(before),
            Step::Store(bytes, _),
            Step::Barrier(behind),
            rest @ ..,
        ] => {
            let is_record = is_word(counter) && record.ends_with(", #4]");
            let is_rung = before == "dsb st" && !is_word(bytes) && behind == "dsb st";
            is_record && is_rung && rest.iter().all(|step| *step == Step::Branch)
        }
        _ => false,
    };
    if in_order { Ok(()) } else { Err(format!("{published:?}")) }
}

/// A barrier, then the record's first word.
fn record(code: &[Step], barrier: &str) -> Result<(), String> {
    match code {
        [Step::Barrier(first), Step::Store(counter, _), Step::Branch]
            if first == barrier && is_word(counter) =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}")),
    }
}

/// The last byte of an entry, `dmb oshld`, then the rest of it.
fn entry(code: &[Step]) -> Result<(), String> {
    let (mut loads, mut others) = (0, Vec::new());
    for step in code {
        match step {
            Step::Load(..) if !others.is_empty() => loads += 1,
            Step::Load(_, place) if place.ends_with(", #63]") => {}
            Step::Barrier(barrier) => others.push(barrier.as_str()),
            Step::Branch | Step::Store(..) => {}
            Step::Load(_, place) => return Err(format!("{place} is read before the barrier")),
        }
    }
    if others == ["dmb oshld"] && loads > 0 {
        Ok(())
    } else {
        Err(format!("{loads} loads behind {others:?}"))
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
  10:\tstr\tw8, [x9, #4]
  14:\tdsb\tst
  18:\tstr\tx8, [x9, x10]
  1c:\tstr\tx8, [x25, #1080]
  20:\tdsb\tst
  24:\tldp\tx20, x19, [sp, #192]
  28:\tret

0000000000000000 <other>:
";

    fn doorbell_of(text: &str) -> Result<(), String> {
        doorbell(&function(text, "entry").unwrap())
    }

    #[test]
    fn the_order_of_a_doorbell() {
        assert_eq!(doorbell_of(GOOD), Ok(()));
        for (from, to) in [
            ("dmb\toshst", "dmb\tishst"),
            ("dsb\tst\n  18", "dmb\toshst\n  18"),
            ("  14:\tdsb\tst\n", ""),
            ("  20:\tdsb\tst\n", ""),
            ("str\tw8, [x9, #4]", "str\tw8, [x9]"),
            ("str\tx8, [x9, x10]", "str\tw8, [x9, x10]"),
            ("str\tw8, [x25, #1112]\n   8:\tdmb\toshst", "dmb\toshst\n   8:\tstr\tw8, [x9]"),
            ("  24:", "  22:\tstr\tx8, [x9, x10]\n  24:"),
            ("  18:", "  16:\tcbz\tx9, 28 <entry+0x28>\n  18:"),
        ] {
            let bad = GOOD.replace(from, to);
            assert!(bad != GOOD && doorbell_of(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_entry_is_read_behind_its_owner_bit() {
        let of = |lines: &[&str]| {
            let text = format!(" <entry>:\n{}\n\n", lines.join("\n"));
            entry(&function(&text, "entry").unwrap())
        };
        let (owner, barrier, body) = ("0:\tldrb\tw12, [x9, #63]", "4:\tdmb\toshld", "8:\tldp\tx1, x2, [x9]");
        assert_eq!(of(&[owner, barrier, body]), Ok(()));
        for bad in
            [&[owner, body, barrier][..], &[owner, body], &[owner, barrier], &[owner, "4:\tdmb\tishld", body]]
        {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
