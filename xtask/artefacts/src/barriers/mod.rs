//! The order of barriers and accesses, read from the instructions that the compiler wrote for Arm.
//!
//! What each barrier is for stands in the library, `src/queue/barrier.rs`.

mod code;
mod orders;

use code::{Step, functions, steps};
use orders::{arms, cancels, commands, doorbell, entry, known, orders, record};

/// Checks the functions of the freestanding program and of the library in it, as objdump prints them, and that this check fails
/// where a barrier is missing: each is deleted from the text in turn.
///
/// # Errors
/// What is not in order, and in which function; or which barrier's absence is not noticed.
pub(super) fn check(disassembly: &str) -> Result<String, String> {
    let own: Vec<_> = functions(disassembly).filter(|(name, _)| is_own(name)).collect();
    for (name, _) in WHOLE {
        if !own.iter().any(|(found, _)| is_meant(name, found)) {
            return Err(format!("{name} is missing"));
        }
    }
    for path in PATHS {
        path.check(&own)?;
    }
    let (mut with_barriers, mut deleted) = (0, 0);
    for (name, body) in own {
        check_function(name, body)?;
        let barriers = deletions(body);
        with_barriers += usize::from(!barriers.is_empty());
        deleted += barriers.len();
        if let Some((line, _)) = barriers.iter().find(|(_, rest)| check_function(name, rest).is_ok()) {
            let name = rustc_demangle::demangle(name);
            return Err(format!("{name:#}: without `{line}` it passes, too: the check does not work"));
        }
    }
    Ok(format!(
        "blocks, dmb oshst, record, dsb st, doorbell, dsb st; owner bit, dmb oshld, entry, dmb osh, record; the same, arm \
         word, dsb st, doorbell, dsb st; command, dsb st, doorbell, dsb st; in all {with_barriers} functions with barriers, and {deleted} deletions of one noticed"
    ))
}

type Check = fn(&[Step]) -> Result<(), String>;

/// Functions that do nothing else, or of which more is known than of others.
const WHOLE: [(&str, Check); 9] = [
    ("entry_ring_doorbell", doorbell),
    ("entry_post_and_ring", doorbell),
    ("entry_publish", |code| record(code, "dmb oshst")),
    ("entry_release", |code| record(code, "dmb osh")),
    ("entry_take", entry),
    // Mangled, and never inlined.
    ("9SendState11cancel_from", cancels),
    ("15CompletionQueue3arm", arms),
    ("12ring_command", commands),
    ("14finished_entry", entry),
];

/// Functions that copy whole blocks of requests, in which nothing is an owner bit.
const COPIES_REQUESTS: [&str; 2] = ["entry_blue_flame", "25configure_mkey_by_pointer"];

/// A way to take completions: its entry in the program, and what it is called in the library, mangled.
struct Path {
    entry: &'static str,
    method: &'static str,
}

/// All of them, for one queue pair and for a table. What they have in common the compiler may write as functions of its own.
const PATHS: &[Path] = &[
    Path { entry: "entry_poll", method: "4poll" },
    Path { entry: "entry_poll_table", method: "4poll" },
    Path { entry: "entry_poll_with_entry", method: "15poll_with_entry" },
    Path { entry: "entry_poll_batch", method: "10poll_batch" },
    Path { entry: "entry_poll_batch_table", method: "10poll_batch" },
    Path { entry: "entry_wait", method: "4wait" },
    Path { entry: "entry_wait_table", method: "4wait" },
    Path { entry: "entry_poll_or_arm", method: "11poll_or_arm" },
    Path { entry: "entry_discard", method: "15discard_entries" },
];

/// Entries are read behind their owner bits, and their slots given back behind that.
const TAKEN: [&str; 2] = ["dmb oshld", "dmb osh"];

impl Path {
    /// Checks that there are barriers to be looked at.
    fn check(&self, own: &[(&str, &str)]) -> Result<(), String> {
        if !own.iter().any(|(name, _)| *name == self.entry) {
            return Err(format!("{} is missing", self.entry));
        }
        // Taking an entry is common to all.
        let is_part = |name: &str, part: &str| {
            let taking = || ["next_success", "next_of_any_kind"].iter().any(|common| name.contains(common));
            let is_of_it = name.contains(self.method) || part == "dmb oshld" && taking();
            name.contains("CompletionQueue") && is_of_it
        };
        let has = |part: &str| {
            let of_it = |name: &str| name == self.entry || is_part(name, part);
            let wanted = Step::Barrier(part.to_owned());
            own.iter().any(|(name, body)| of_it(name) && steps(name, body).steps.contains(&wanted))
        };
        let missing = TAKEN.iter().find(|part| !has(part));
        missing.map_or(Ok(()), |part| Err(format!("{}: takes completions without {part}", self.entry)))
    }
}

/// Returns whether a function is the library's or of the program's entries.
fn is_own(name: &str) -> bool {
    name.starts_with("entry_") || name.contains("mlx5_mkey")
}

/// Returns whether a function is the one that is meant. A closure in it, which the compiler may leave a function of its own, is not.
fn is_meant(wanted: &str, name: &str) -> bool {
    let is_closure = || format!("{:#}", rustc_demangle::demangle(name)).contains("{closure");
    name == wanted || !wanted.starts_with("entry_") && name.contains(wanted) && !is_closure()
}

/// Checks one function.
fn check_function(name: &str, body: &str) -> Result<(), String> {
    let code = steps(name, body);
    let whole = WHOLE.iter().filter(|(meant, _)| is_meant(meant, name));
    let copies_requests = COPIES_REQUESTS.iter().any(|meant| is_meant(meant, name));
    let rest = || if copies_requests { known(&code) } else { orders(&code) };
    let checked = whole.map(|(_, check)| check(&code.steps)).find(Result::is_err).unwrap_or_else(rest);
    checked.map_err(|what| format!("{:#}: {what}", rustc_demangle::demangle(name)))
}

/// Returns each barrier of a function, and what is left of the function without it.
fn deletions(body: &str) -> Vec<(&str, String)> {
    let is_barrier = |line: &&str| ["\tdmb\t", "\tdsb\t"].iter().any(|barrier| line.contains(barrier));
    let without = |deleted: usize| {
        let lines = body.lines().enumerate().filter(|(at, _)| *at != deleted);
        lines.flat_map(|(_, line)| [line, "\n"]).collect::<String>()
    };
    let found = body.lines().enumerate().filter(|(_, line)| is_barrier(line));
    found.map(|(at, line)| (line.trim(), without(at))).collect()
}

#[cfg(test)]
mod tests;
