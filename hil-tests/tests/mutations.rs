//! Do the scenarios notice a broken device? This test switches on each fault of the software device alone. At
//! least one scenario must then fail.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use hil_tests::board::{Board, SoftBoard};
use hil_tests::demo::faults;
use hil_tests::scenarios::{self, Scenario};
use mlx5_softdev::{CryptoMode, DeviceProfile, Faults, XtsEngine};

/// Returns the profile of a device that accepts keys only in wrapped form, and therefore has crypto logins.
fn wrapped() -> DeviceProfile {
    DeviceProfile { crypto: CryptoMode::Wrapped, ..DeviceProfile::default() }
}

/// Runs the scenarios that `wanted` selects and that a device of this profile supports. Returns the names of
/// the failed scenarios, and the number of all that ran.
fn failing(
    profile: DeviceProfile,
    faults: Faults,
    wanted: fn(&Scenario) -> bool,
) -> (Vec<&'static str>, usize) {
    let capabilities = SoftBoard::new(profile).capabilities();
    let can = |scenario: &&Scenario| scenario.needs.missing(&capabilities).is_none() && wanted(scenario);
    let runnable: Vec<&Scenario> = scenarios::all().filter(can).collect();
    let fails = |scenario: &&&Scenario| {
        let mut board = SoftBoard::new(profile).with_faults(faults);
        (scenario.run)(&mut board).is_err()
    };
    (runnable.iter().filter(fails).map(|scenario| scenario.name).collect(), runnable.len())
}

#[test]
#[ignore = "a step of its own: cargo xtask test mutations"]
fn a_whole_device_passes() {
    let plain = DeviceProfile::default();
    for profile in [plain, DeviceProfile { xts: XtsEngine::SingleBlock, ..plain }, wrapped()] {
        assert_eq!(failing(profile, Faults::default(), |_| true).0, Vec::<&str>::new());
    }
}

#[test]
#[ignore = "a step of its own: cargo xtask test mutations"]
fn every_mutation_is_noticed() {
    let mut unnoticed = Vec::new();
    for fault in faults::ALL {
        let (name, faults) = (fault.name(), fault.alone());
        let (mut noticed, of) = failing(DeviceProfile::default(), faults, |_| true);
        // Scenarios with crypto logins run only on a device with wrapped keys.
        let (more, also) = failing(wrapped(), faults, |scenario| scenario.needs.login);
        noticed.extend(more);
        let of = of + also;
        println!("{name}: noticed by {} of {of} scenarios", noticed.len());
        for scenario in &noticed {
            println!("    {scenario}");
        }
        if noticed.is_empty() {
            unnoticed.push(name);
        }
    }
    assert!(unnoticed.is_empty(), "no scenario notices {unnoticed:?}");
}
