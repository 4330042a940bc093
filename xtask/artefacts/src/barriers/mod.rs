//! Checks the order of barriers and memory accesses in the instructions that the compiler has made for Arm.
//!
//! `src/queue/barrier.rs` of the library explains each barrier.

mod code;
mod orders;

use code::{Step, functions, steps};
use orders::{arms, cancels, commands, doorbell, entry, known, orders, record};

/// Checks the order of barriers in all functions of the library and of the freestanding program (which calls
/// the library without a standard library). `disassembly` is objdump's output for that program. Then deletes
/// each barrier in turn from the text: without the barrier, the check must fail.
///
/// # Errors
/// The wrong order, with its function, or a barrier whose deletion the check does not notice.
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
            return Err(format!("{name:#}: it passes without `{line}`: the check does not work"));
        }
    }
    Ok(format!(
        "blocks, dmb oshst, record, dsb st, doorbell, dsb st; owner bit, dmb oshld, CQE, dmb osh, record; \
         dmb osh, record, arm word, dsb st, doorbell, dsb st; command, dsb st, doorbell, dsb st; \
         {with_barriers} functions with barriers, each of {deleted} deleted barriers noticed"
    ))
}

type Check = fn(&[Step]) -> Result<(), String>;

/// Functions whose complete sequence of steps is checked, each with its check.
const WHOLE: [(&str, Check); 9] = [
    ("entry_ring_doorbell", doorbell),
    ("entry_post_and_ring", doorbell),
    ("entry_publish", |code| record(code, "dmb oshst")),
    ("entry_release", |code| record(code, "dmb osh")),
    ("entry_take", entry),
    // The following names are parts of the mangled names of library functions that the compiler never
    // inlines.
    ("8SendRing6cancel", cancels),
    ("15CompletionQueue3arm", arms),
    ("12ring_command", commands),
    ("14finished_entry", entry),
];

/// Functions that copy requests in blocks of 64 bytes. They also load eight bytes at offset 56, as a read of
/// a CQE's owner bit does, but read no CQE. They are therefore not checked for reads of owner bits.
const COPIES_REQUESTS: [&str; 2] = ["entry_blue_flame", "25configure_mkey_by_pointer"];

/// A function that takes completions: its caller in the freestanding program, and a part of its mangled name
/// in the library.
struct Path {
    entry: &'static str,
    method: &'static str,
}

/// All functions that take completions, for one queue pair and for a table of queue pairs. The compiler may
/// move their common code to functions of its own.
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

/// The barriers that each function in `PATHS` must contain: one between the owner bit and the rest of the
/// CQE, and one between the last read of the CQE and the return of its slot to the device.
const TAKEN: [&str; 2] = ["dmb oshld", "dmb osh"];

impl Path {
    /// Checks that the function contains both barriers, itself or in a function that it shares with others.
    fn check(&self, own: &[(&str, &str)]) -> Result<(), String> {
        if !own.iter().any(|(name, _)| *name == self.entry) {
            return Err(format!("{} is missing", self.entry));
        }
        // All functions of `PATHS` share the functions that read a CQE. A `dmb oshld` in a shared function
        // therefore counts for each.
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

/// Returns whether a function belongs to the library, or is a function of the freestanding program that calls
/// the library.
fn is_own(name: &str) -> bool {
    name.starts_with("entry_") || name.contains("mlx5_mkey")
}

/// Returns whether `name` is the function `wanted`: by its full name in the freestanding program, by a part
/// of its mangled name in the library. A closure inside of this function does not count.
fn is_meant(wanted: &str, name: &str) -> bool {
    let is_closure = || format!("{:#}", rustc_demangle::demangle(name)).contains("{closure");
    name == wanted || !wanted.starts_with("entry_") && name.contains(wanted) && !is_closure()
}

fn check_function(name: &str, body: &str) -> Result<(), String> {
    let code = steps(name, body);
    let whole = WHOLE.iter().filter(|(meant, _)| is_meant(meant, name));
    let copies_requests = COPIES_REQUESTS.iter().any(|meant| is_meant(meant, name));
    let rest = || if copies_requests { known(&code) } else { orders(&code) };
    let checked = whole.map(|(_, check)| check(&code.steps)).find(Result::is_err).unwrap_or_else(rest);
    checked.map_err(|error| format!("{:#}: {error}", rustc_demangle::demangle(name)))
}

/// Returns each barrier of a function, with the function's text without this barrier.
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
