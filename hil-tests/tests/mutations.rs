//! Do the scenarios notice a broken device? Each switch of [`Faults`] is turned on alone, and at least one
//! scenario must then fail.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use hil_tests::board::{Board, SoftBoard};
use hil_tests::scenarios::{self, Scenario};
use mlx5_softdev::{CryptoMode, DeviceProfile, Faults, XtsEngine};

/// Lists the fields of [`Faults`]. The pattern makes a missing field a compile error.
macro_rules! switches {
    ($($name:ident),+ $(,)?) => {{
        let Faults { $($name: _),+ } = Faults::default();
        [$((stringify!($name), Faults { $name: true, ..Faults::default() })),+]
    }};
}

fn mutations() -> [(&'static str, Faults); 49] {
    switches!(
        ref_tag_not_advancing,
        tweak_not_advancing,
        signature_over_plaintext,
        stride_ignored,
        access_flags_ignored,
        local_inv_ignored,
        remote_invalidate_ignored,
        dek256_as_128,
        key_wrap_integrity_ignored,
        keys_end_with_their_login,
        drained_not_told,
        wire_signatures_ignored,
        check_mask_ignored,
        copy_mask_ignored,
        escapes_ignored,
        psv_not_reset_by_set_psv,
        keytag_ignored,
        length_counts_memory_bytes,
        error_not_kept_first,
        crc_seed_inverted,
        receives_count_memory_bytes,
        qp_rights_ignored,
        region_rights_ignored,
        key_domain_ignored,
        region_domain_ignored,
        umr_domain_ignored,
        dek_domain_ignored,
        psv_domain_ignored,
        invalidate_tag_ignored,
        invalidate_domain_ignored,
        solicited_lost,
        atomic_alignment_ignored,
        check_free_ignored,
        check_qpn_ignored,
        bad_entries_found_late,
        invalidation_refused_otherwise,
        leftover_rows_refused,
        leftover_rows_otherwise,
        job_size_ignored,
        failing_request_silent,
        drained_by_the_peers_data,
        tweak_carry_refused,
        tweak_of_each_transfer,
        masks_number_the_value,
        atomic_replies_big_endian,
        denied_as_access,
        binding_refused,
        dek_value_at_once,
        dek_size_fixed,
    )
}

/// Returns a device that accepts wrapped keys.
fn wrapped() -> DeviceProfile {
    DeviceProfile { crypto: CryptoMode::Wrapped, ..DeviceProfile::default() }
}

/// Runs the scenarios that a device of this kind supports and that `wanted` selects. Returns the failed ones,
/// and the number of all.
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
    for (name, faults) in mutations() {
        let (mut noticed, of) = failing(DeviceProfile::default(), faults, |_| true);
        // Scenarios with logins run on a device that has them.
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
