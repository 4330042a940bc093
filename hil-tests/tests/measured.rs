//! The measurements on the software device, where each must find what was assumed when it was written.

use hil_tests::board::{Board, SoftBoard};
use hil_tests::scenarios;
use hil_tests::scenarios::measured;
use mlx5_softdev::{DeviceProfile, Faults, PartialBlocks, XtsEngine};
use std::collections::{BTreeMap, BTreeSet};

/// Runs measurements whose name begins so, though the board is no hardware; returns what they told, by what.
fn measure(mut board: SoftBoard, name: &str) -> BTreeMap<String, String> {
    let mut told = BTreeMap::new();
    for measurement in measured::all().filter(|measurement| measurement.name.starts_with(name)) {
        let mut tell = |what: &str, value: &str| {
            assert!(!what.contains(" = ") && !value.is_empty(), "{what} = {value}");
            let before = told.insert(what.to_owned(), value.to_owned());
            assert!(before.is_none(), "{what} is told twice");
        };
        (measurement.run)(&mut board, &mut tell)
            .unwrap_or_else(|error| panic!("{}: {error}", measurement.name));
    }
    assert!(!told.is_empty(), "{name} tells nothing");
    told
}

fn plain() -> SoftBoard {
    SoftBoard::new(DeviceProfile::default())
}

#[test]
fn each_gap_has_a_measurement_that_hardware_alone_runs() {
    let readme = include_str!("../README.md");
    let mut names = BTreeSet::new();
    let mut all: Vec<_> = measured::all().collect();
    all.sort_by_key(|measurement| measurement.name);
    for (number, measurement) in (1..).zip(all) {
        assert!(measurement.name.starts_with(&format!("gap{number:02}_")), "{}", measurement.name);
        assert!(measurement.needs.hardware, "{}", measurement.name);
        assert!(
            measurement
                .needs
                .missing(&plain().capabilities())
                .is_some_and(|what| what.starts_with("hardware"))
        );
        assert!(readme.contains(&format!("| `{}` |", measurement.name)), "{}", measurement.name);
        names.insert(measurement.name);
    }
    assert_eq!(names.len(), 13, "gaps of DEVICE.md");
    assert!(scenarios::all().all(|scenario| !names.contains(scenario.name) && !scenario.needs.hardware));
}

/// Prints all that is told with `--nocapture`.
#[test]
fn the_assumptions_are_found() {
    let told = measure(plain(), "gap");
    for (what, value) in &told {
        println!("{what} = {value}");
    }
    for (what, value) in [
        ("checksum with seed ones", "start FFFF, complemented"),
        ("guard of zeros, seed ones", "0x0000"),
        ("bytes in memory that bit 7 checks, CRC64", "0"),
        ("bytes in memory that bit 0 checks, CRC64", "7"),
        ("bytes in memory that bit 4 checks, CRC32C", "3"),
        ("tweak behind 2^64 - 1", "one more, with carry"),
        ("tweak behind ABCD, then 64 ones", "one more, with carry"),
        ("tweak behind 2^128 - 1", "one more, with carry"),
        ("tweak of a transfer from the middle", "counted from the mkey's start"),
        ("memory signature, then a cipher, out", "the expected bytes"),
        ("wire signature, cipher in memory, in", "the expected bytes"),
        ("1040 bytes from 520 on, out", "the expected bytes"),
        ("1040 bytes from 520 on, in", "the expected bytes"),
        ("reference tag wanted behind a block escaped by app tag", "first + 2"),
        ("CRC32 with seed ones", "88cb6093"),
        ("CRC64 with seed ones", "9af783d2db3f9c48"),
        ("block size selector 1", "blocks of 512 bytes"),
        ("two blocks with a raw data size of 0xffffffff", "the expected bytes"),
        ("UMR with none on a configured mkey", "done"),
        ("a new layout, the signature stays", "the board has no clock"),
    ] {
        assert_eq!(told.get(what).map(String::as_str), Some(value), "{what}");
    }
    for (what, vendor) in [
        ("crypto that was never configured, sent", "0x21"),
        ("missing DEK, sent", "0x22"),
        ("wrong keytag, received", "0x23"),
        ("job of 528 in units of 520", "0x13"),
        ("block size selector 5", "0x20"),
        ("UMR with CHECK_FREE on a configured mkey", "0x40"),
    ] {
        assert!(told[what].contains(&format!("vendor {vendor}")), "{what} = {}", told[what]);
    }
}

/// Where the device differs, so does what is measured: the values come from the device and not from the measurement.
#[test]
fn another_device_gives_other_values() {
    let refuses = DeviceProfile { partial_blocks: PartialBlocks::Refuse, ..DeviceProfile::default() };
    let what = "512 bytes from 520 on, out";
    assert_eq!(measure(plain(), "gap06")[what], "the expected bytes");
    assert!(measure(SoftBoard::new(refuses), "gap06")[what].contains("vendor 0x12"));

    let broken = |faults| plain().with_faults(faults);
    let stays = broken(Faults { tweak_not_advancing: true, ..Faults::default() });
    assert_eq!(measure(stays, "gap04")["tweak behind 2^64 - 1"], "it stays");
    let unmasked = broken(Faults { check_mask_ignored: true, ..Faults::default() });
    assert_eq!(measure(unmasked, "gap02")["bytes in memory that bit 7 checks, CRC32"], "0 1 2 3");
    let swapped = broken(Faults { crc_seed_inverted: true, ..Faults::default() });
    assert_eq!(measure(swapped, "gap12")["CRC32 with seed ones"], "699aca21");
    let still = broken(Faults { ref_tag_not_advancing: true, ..Faults::default() });
    let what = "reference tag wanted behind a block escaped by app tag";
    assert_eq!(measure(still, "gap08")[what], "first");

    let single = DeviceProfile { xts: XtsEngine::SingleBlock, ..DeviceProfile::default() };
    assert!(measure(SoftBoard::new(single), "gap07").len() == 12);
}
