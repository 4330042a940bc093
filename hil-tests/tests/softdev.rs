//! Runs every scenario on the software device, with each of several device profiles. The environment variable
//! `HIL_WAYS` selects the posting methods.

use hil_tests::board::{Board, SoftBoard};
use hil_tests::way::Ways;
use hil_tests::{cases, history, scenarios};
use mlx5_softdev::{CryptoMode, DeviceProfile, Faults, PartialBlocks, Timestamps, UmrFence, XtsEngine};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the profiles of the software device, each with its name.
fn kinds() -> [(&'static str, DeviceProfile); 6] {
    let plain = DeviceProfile::default();
    [
        ("softdev", plain),
        ("softdev-single-block", DeviceProfile { xts: XtsEngine::SingleBlock, ..plain }),
        (
            "softdev-little-endian",
            DeviceProfile {
                xts: XtsEngine::MultiBlockLittleEndian,
                umr_fence: UmrFence::None,
                relaxed_ordering: false,
                ..plain
            },
        ),
        ("softdev-wrapped", DeviceProfile { crypto: CryptoMode::Wrapped, ..plain }),
        (
            "softdev-real-time",
            DeviceProfile {
                timestamps: Timestamps::RealTime,
                log_max_reads: 2,
                max_message_bytes: 1 << 24,
                ..plain
            },
        ),
        ("softdev-whole-blocks", DeviceProfile { partial_blocks: PartialBlocks::Refuse, ..plain }),
    ]
}

/// The environment variable that selects the posting methods: `all`, one method, or a random seed, for
/// example to repeat a failed run.
const VARIABLE: &str = "HIL_WAYS";

/// Returns the posting methods for a device profile. With the profile `softdev` all methods run, because no
/// other test runs them with the library's debug assertions. With other profiles each scenario runs by one
/// method, drawn from a new random seed. The environment variable `HIL_WAYS` replaces this choice.
fn ways(kind: &str) -> Ways {
    match std::env::var(VARIABLE) {
        Err(_) if kind == "softdev" => Ways::All,
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{VARIABLE}: {error}")),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Ways::Drawn(now.subsec_nanos().into())
        }
    }
}

/// Runs the scenarios that a device with the profile `kind` supports, and fails if one of them fails. Prints
/// how many scenarios it skips for each missing capability of the device.
fn run(kind: &str) {
    let (_, profile) = kinds().into_iter().find(|(name, _)| *name == kind).expect("a kind");
    let capabilities = SoftBoard::new(profile).capabilities();
    let ways = ways(kind);
    let (mut skipped, mut failed) = (BTreeMap::<_, usize>::new(), Vec::new());
    for scenario in scenarios::all() {
        match scenario.needs.missing(&capabilities) {
            Some(what) => *skipped.entry(what).or_default() += 1,
            None => {
                println!("{kind}: {}", scenario.name);
                for way in ways.of(scenario.name) {
                    let mut board = SoftBoard::new(profile);
                    *board.way() = way;
                    if let Err(error) = (scenario.run)(&mut board) {
                        failed.push(format!("{}: {}", scenario.name, cases::by(way, &error)));
                    }
                }
            }
        }
    }
    for (what, count) in skipped {
        // The test harness hides the output of `println!` in passing tests. The line about skipped scenarios
        // must always be visible.
        writeln!(io::stdout(), "\nSKIPPED {count:>3}: {kind} lacks {what}").expect("standard output");
    }
    assert!(failed.is_empty(), "{kind}, {VARIABLE}={ways}:\n{}", failed.join("\n"));
}

#[test]
fn scenarios_on_the_device_as_it_is() {
    run("softdev");
}

#[test]
fn scenarios_on_an_engine_of_single_data_units() {
    run("softdev-single-block");
}

#[test]
fn scenarios_on_an_engine_with_little_endian_tweaks() {
    run("softdev-little-endian");
}

#[test]
fn scenarios_with_wrapped_keys() {
    run("softdev-wrapped");
}

#[test]
fn scenarios_on_a_device_of_real_time_only_and_low_limits() {
    run("softdev-real-time");
}

#[test]
fn scenarios_on_a_device_that_refuses_parts_of_blocks() {
    run("softdev-whole-blocks");
}

/// A source of pseudorandom numbers (xorshift).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// The environment variable with the seed of a random order of scenarios. The test prints the seed, so that a
/// failed run can be repeated.
const ORDER: &str = "HIL_ORDER";

/// A scenario must leave no state on the board that makes another scenario fail. All scenarios run on one
/// board in a random order, then on another board in the reverse order. Each scenario thus runs after every
/// other one.
#[test]
#[ignore = "takes long, runs in the step: cargo xtask test mutations"]
fn scenarios_pass_behind_each_other() {
    let seed = match std::env::var(ORDER) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{ORDER}: {error}")),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64 | 1,
    };
    let profile = DeviceProfile::default();
    let capabilities = SoftBoard::new(profile).capabilities();
    let can = |scenario: &&scenarios::Scenario| scenario.needs.missing(&capabilities).is_none();
    let mut order: Vec<_> = scenarios::all().filter(can).collect();
    let mut draw = Draw(seed);
    for last in (1..order.len()).rev() {
        order.swap(last, draw.below(last + 1));
    }
    for _ in 0..2 {
        let mut board = SoftBoard::new(profile);
        let mut before = Vec::new();
        for scenario in &order {
            if let Err(error) = scenario.run_on(&mut board) {
                let (name, lines) = (scenario.name, history::lines(&mut board).join("\n"));
                panic!("{ORDER}={seed}: {name}: {error}\n{lines}\nafter {}", before.join(", "));
            }
            before.push(scenario.name);
        }
        order.reverse();
    }
}

/// On this board, the combinations of cipher and signature that the man page's table does not list leave
/// signature errors. The scenario that tries these combinations must start each without the error of the one
/// before, and all scenarios must pass after it.
#[test]
fn scenarios_pass_behind_unknown_combinations() {
    let faults = Faults { leftover_rows_otherwise: true, ..Faults::default() };
    let mut board = SoftBoard::new(DeviceProfile::default()).with_faults(faults).as_hardware();
    let capabilities = board.capabilities();
    let can = |scenario: &&scenarios::Scenario| scenario.needs.missing(&capabilities).is_none();
    let leaves = scenarios::all().find(|scenario| scenario.name == "r153_leftover_combinations").unwrap();
    assert_eq!(leaves.run_on(&mut board), Ok(()));
    let otherwise = |(_, value): &(String, String)| value.contains("not as assumed");
    assert!(board.findings().iter().any(otherwise), "the board reports a difference");
    for scenario in scenarios::all().filter(can) {
        if let Err(error) = scenario.run_on(&mut board) {
            panic!("{}: {error}\n{}", scenario.name, history::lines(&mut board).join("\n"));
        }
    }
}

#[test]
fn every_scenario_runs_somewhere_and_is_named_once() {
    let names: BTreeSet<_> = scenarios::all().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), scenarios::all().count(), "two scenarios have one name");
    let devices: Vec<_> = kinds().iter().map(|(_, kind)| SoftBoard::new(*kind).capabilities()).collect();
    // Scenarios with the storage example start programs, which the board in this process cannot do. `cargo
    // xtask test hil` runs them.
    let runs = |scenario: &scenarios::Scenario| {
        scenario.needs.programs || devices.iter().any(|has| scenario.needs.missing(has).is_none())
    };
    let nowhere: Vec<_> =
        scenarios::all().filter(|scenario| !runs(scenario)).map(|scenario| scenario.name).collect();
    assert!(nowhere.is_empty(), "no device runs {nowhere:?}");
}
