//! What the recorded counts must not exceed, however they grow from record to record.

use super::record::{self, Counts, Profile, Row};

const X86_64: &str = "x86_64";
const A72: &str = "aarch64-cortex-a72";

/// Whole I/Os, in either profile on x86-64.
const WHOLE: [(&str, f64); 4] =
    [("io_list4", 300.0), ("io_xts4", 325.0), ("io_t10dif1", 325.0), ("io_t10dif_xts4", 385.0)];

/// Parts of one, in the release profile on x86-64.
const PARTS: [(&str, f64); 2] = [("rdma_write", 75.0), ("completion1", 80.0)];

/// How many times the count of x86-64 a whole I/O may have on the Cortex-A72.
const A72_OF_X86_64: f64 = 1.1;

/// Returns which goals are missed, or have no row, one at a time.
fn missed(rows: &[Row]) -> Vec<String> {
    let ours = |arch: &str, profile, work: &str| {
        let is_it = |row: &&Row| {
            (row.arch.as_str(), row.profile, row.work.as_str(), row.batch) == (arch, profile, work, 1)
        };
        rows.iter().find(is_it).and_then(Row::ours)
    };
    let of_whole =
        Profile::ALL.into_iter().flat_map(|profile| WHOLE.map(|(work, most)| (profile, work, most)));
    let of_parts = PARTS.map(|(work, most)| (Profile::Release, work, most));
    let on_x86_64 = of_whole.chain(of_parts).map(|(profile, work, most)| (X86_64, profile, work, Some(most)));
    let on_a72 = WHOLE.map(|(work, _)| {
        let most = ours(X86_64, Profile::Release, work).map(|count| count * A72_OF_X86_64);
        (A72, Profile::Release, work, most)
    });
    let mut missed = Vec::new();
    for (arch, profile, work, most) in on_x86_64.chain(on_a72) {
        let count = ours(arch, profile, work);
        if !matches!((count, most), (Some(count), Some(most)) if count <= most) {
            missed.push(format!("{work} on {arch}, {}: {count:?} of at most {most:?}", profile.name()));
        }
    }
    missed
}

#[test]
fn recorded_counts_are_within_the_goals() -> Result<(), String> {
    let Counts { rows, .. } = record::read()?;
    assert_eq!(missed(&rows), [""; 0]);
    Ok(())
}

#[test]
fn a_count_over_a_goal_is_told() -> Result<(), String> {
    let Counts { rows, .. } = record::read()?;
    let with = |change: &dyn Fn(&mut Row)| {
        let mut rows = rows.clone();
        rows.iter_mut().for_each(change);
        missed(&rows).len()
    };
    for (arch, profile, work, over) in [
        (X86_64, Profile::Release, "io_list4", 300.1),
        (X86_64, Profile::Lto, "io_xts4", 325.1),
        (X86_64, Profile::Lto, "io_t10dif1", 325.1),
        (X86_64, Profile::Release, "io_t10dif_xts4", 385.1),
        (X86_64, Profile::Release, "rdma_write", 75.1),
        (X86_64, Profile::Release, "completion1", 80.1),
        (A72, Profile::Release, "io_xts4", 325.0 * A72_OF_X86_64 + 0.1),
    ] {
        let is_it = |row: &Row| (row.arch.as_str(), row.profile, row.work.as_str()) == (arch, profile, work);
        let set = |count| {
            with(&|row: &mut Row| {
                if is_it(row) {
                    row.counts[0] = count;
                }
            })
        };
        assert_eq!(set(Some(over)), 1, "{work} on {arch}, {}", profile.name());
        // What x86-64 has no count of cannot be compared on the Cortex-A72 either.
        assert!(set(None) >= 1, "{work} on {arch}, {}", profile.name());
    }
    Ok(())
}
