//! Upper limits of the library's instruction counts. `cargo xtask bench --record` replaces recorded counts,
//! but not these limits.

#[cfg(test)]
use super::record::{self, Counts};
use super::record::{Profile, Row};

const X86_64: &str = "x86_64";
const A72: &str = "aarch64-cortex-a72";

/// Limits for whole I/Os, in both profiles on x86-64: name of the work, largest number of instructions.
const WHOLE: [(&str, f64); 5] = [
    ("io_list4_dyn", 327.0),
    ("io_list4", 290.0),
    ("io_xts4", 325.0),
    ("io_t10dif1", 331.0),
    ("io_t10dif_xts4", 388.0),
];

/// Limits for works whose number of scatter entries is known only at run time, in the release profile on
/// x86-64.
const AT_RUN_TIME: [(&str, f64); 2] = [("io_list4_dyn", 315.0), ("list16", 350.0)];

/// The limit for a whole I/O through the module `devx`, as a multiple of the count for the same I/O without
/// this module, in the release profile on x86-64.
const DEVX_OF_CORE: f64 = 1.03;

/// The largest numbers of instructions for an RDMA WRITE and for a completion, in the release profile on
/// x86-64.
const RDMA_WRITE: f64 = 75.0;
const COMPLETION: f64 = 90.0;

/// The limit of a whole I/O on the Cortex-A72, as a multiple of the count on x86-64.
const A72_OF_X86_64: f64 = 1.1;

/// The first count of each row on x86-64 in the release profile: name of the work, requests for each
/// doorbell, instructions. A row may grow by a tenth. RDMA WRITE and completions have the limits above
/// instead. The file has no works named `template_`: these works posted layouts in wire form, which no
/// function accepts any more.
const BEFORE: &str = include_str!("before.csv");

/// The limit of a row, as a multiple of its first count.
const OF_BEFORE: f64 = 1.1;

/// Returns the largest allowed count of a row whose first count is `before`.
fn most(work: &str, before: f64) -> f64 {
    match work {
        "rdma_write" => RDMA_WRITE,
        completion if completion.starts_with("completion") => COMPLETION,
        _ => before * OF_BEFORE,
    }
}

/// Returns the library's number of instructions for a work, or `None` if the work was not counted.
fn ours(rows: &[Row], arch: &str, profile: Profile, work: &str, batch: u32) -> Option<f64> {
    rows.iter().find(|row| row.is(arch, profile, work, batch)).and_then(Row::ours)
}

/// Returns a message for each row of [`BEFORE`] that is over its limit now, or is not counted any more.
fn worse(rows: &[Row]) -> Vec<String> {
    let is_worse = |line: &&str| {
        let [work, batch, before] = line.split(',').collect::<Vec<_>>()[..] else { return true };
        let (Ok(batch), Ok(before)) = (batch.parse(), before.parse()) else { return true };
        ours(rows, X86_64, Profile::Release, work, batch).is_none_or(|count| count > most(work, before))
    };
    BEFORE
        .lines()
        .filter(is_worse)
        .map(|line| format!("{line} first: over its limit now, or not counted"))
        .collect()
}

/// Returns a message for each limit of this file that is exceeded, or whose count is missing.
pub(super) fn missed(rows: &[Row]) -> Vec<String> {
    let ours = |arch: &str, profile, work: &str| ours(rows, arch, profile, work, 1);
    let of_whole =
        Profile::ALL.into_iter().flat_map(|profile| WHOLE.map(|(work, most)| (profile, work, most)));
    let on_x86_64 = of_whole.map(|(profile, work, most)| (X86_64, profile, work, Some(most)));
    let on_a72 = WHOLE.map(|(work, _)| {
        let most = ours(X86_64, Profile::Release, work).map(|count| count * A72_OF_X86_64);
        (A72, Profile::Release, work, most)
    });
    let of_core = ours(X86_64, Profile::Release, "io_list4").map(|count| count * DEVX_OF_CORE);
    let others = AT_RUN_TIME.map(|(work, most)| (work, Some(most)));
    let others = others.into_iter().chain([("io_list4_devx", of_core)]);
    let others = others.map(|(work, most)| (X86_64, Profile::Release, work, most));
    let mut missed = Vec::new();
    for (arch, profile, work, most) in on_x86_64.chain(on_a72).chain(others) {
        let count = ours(arch, profile, work);
        if !matches!((count, most), (Some(count), Some(most)) if count <= most) {
            missed.push(format!("{work} on {arch}, {}: {count:?} of at most {most:?}", profile.name()));
        }
    }
    missed.extend(worse(rows));
    missed
}

#[test]
fn recorded_counts_are_within_the_goals() -> Result<(), String> {
    let Counts { rows, .. } = record::read()?;
    assert_eq!(missed(&rows), [""; 0]);
    Ok(())
}

#[test]
fn a_row_that_is_worse_by_more_than_a_tenth_is_told() -> Result<(), String> {
    let Counts { mut rows, .. } = record::read()?;
    let before = 390.0;
    for (count, told) in [(before * 1.1, 0), (before * 1.1 + 0.1, 1)] {
        let row = rows.iter_mut().find(|row| row.is(X86_64, Profile::Release, "first_t10dif_xts4", 1));
        row.unwrap().counts[0] = Some(count);
        assert_eq!(worse(&rows).len(), told, "{count}");
    }
    Ok(())
}

#[test]
fn a_count_over_a_goal_is_told() -> Result<(), String> {
    let Counts { rows, .. } = record::read()?;
    for (arch, profile, work, over) in [
        (X86_64, Profile::Release, "io_list4_dyn", 315.1),
        (X86_64, Profile::Lto, "io_list4", 290.1),
        (X86_64, Profile::Release, "list16", 350.1),
        (X86_64, Profile::Release, "io_list4_devx", 290.0 * DEVX_OF_CORE + 0.1),
        (X86_64, Profile::Lto, "io_xts4", 325.1),
        (X86_64, Profile::Lto, "io_t10dif1", 331.1),
        (X86_64, Profile::Release, "io_t10dif_xts4", 388.1),
        (X86_64, Profile::Release, "rdma_write", 75.1),
        (X86_64, Profile::Release, "completion1", 90.1),
        (X86_64, Profile::Release, "completion_every32", 90.1),
        (A72, Profile::Release, "io_xts4", 325.0 * A72_OF_X86_64 + 0.1),
    ] {
        let set = |count| {
            let mut rows = rows.clone();
            let row = rows.iter_mut().find(|row| row.is(arch, profile, work, 1));
            row.unwrap().counts[0] = count;
            missed(&rows).len()
        };
        assert_eq!(set(Some(over)), 1, "{work} on {arch}, {}", profile.name());
        // Without a count on x86-64, the limit on the Cortex-A72 fails as well.
        assert!(set(None) >= 1, "{work} on {arch}, {}", profile.name());
    }
    Ok(())
}
