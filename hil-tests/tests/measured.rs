//! Runs the measurements, which are made for hardware, on the software device. Each must return the value
//! that the scenarios assume.

use hil_tests::board::{Board, SoftBoard};
use hil_tests::scenarios;
use hil_tests::scenarios::measured;
use mlx5_softdev::{DeviceProfile, Faults, PartialBlocks, XtsEngine};
use std::collections::{BTreeMap, BTreeSet};

/// Runs the measurements whose names begin with `name`, even if they otherwise run on hardware only. Returns
/// the measured values by their names.
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
    let facts = include_str!("../DEVICE.md");
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
        assert!(facts.contains(&format!("| `{}` |", measurement.name)), "{}", measurement.name);
        names.insert(measurement.name);
    }
    assert_eq!(names.len(), 29, "gaps that DEVICE.md lists");
    assert!(scenarios::all().all(|scenario| !names.contains(scenario.name) && !scenario.needs.hardware));
}

/// Each measurement returns the assumed value. The test prints all values with `--nocapture`.
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
        ("offset of a wrong digest behind 1500 bytes, Memory", "1503"),
        ("CRC32C without the bit that repeats it", "a signature for each block"),
        ("T10-DIF with other tags in the PSV", "tags of the PSV"),
        ("T10-DIF with seed zeros in the BSF", "seed zeros"),
        ("an interleaved layout with 8 bytes in its header", "the expected bytes"),
        ("commands", "the board lets no program send them"),
        ("bytes 0..1000 of a transaction of 1000 bytes", "the expected bytes"),
        ("a digest on the wire, with check mask 00", "the expected bytes"),
        ("a digest over ciphertext, encryption order 2", "the expected bytes"),
        ("a copy of 64 bytes, of 32 by its source", "done; 32 bytes copied"),
        ("a window over its region, its first 64 bytes", "bound: request 1: well; read: request 2: well"),
        ("an RDMA READ without the DEK: the event", "AccessViolation"),
        ("an RDMA READ that the queue pair denies: the event", "InvalidRequest"),
        (
            "a draining queue, without a fence behind the error",
            "request 1: well; it stops at request 2; event Drained",
        ),
        (
            "a signature error in what it receives",
            "completion queue of sends: none; of receives: SIG_ERR, RESP_SEND",
        ),
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
        ("bytes 0..500 of a transaction of 1000 bytes", "0x12"),
        ("a new mkey whose signature was never configured", "0x20"),
        ("four entries replaced at entry 8 of 8", "0x78"),
        ("the digest after a SET_PSV behind the data", "0x24"),
        ("a message with two transactions", "0x20"),
        ("512 bytes of an mkey with a cipher under another, Send", "0x0b"),
        ("a list of entries in an mkey with a signature", "0x20"),
        ("an atomic on an mkey with a signature", "0x89"),
        ("RDMA WRITE from a key with another tag", "0x51"),
        ("receive into a key of another queue pair", "0x56"),
        ("a masked atomic, 8 bytes at 4", "0x8a"),
        ("a masked atomic, opcode modifier 10", "0x30"),
        ("a masked atomic, 4 bytes in the mode without masks", "0x8a"),
    ] {
        assert!(told[what].contains(&format!("vendor {vendor}")), "{what} = {}", told[what]);
    }
}

/// Devices with other behaviour must give other values. This shows that the measurements read the device
/// instead of returning constants.
#[test]
fn another_device_gives_other_values() {
    let refuses = DeviceProfile { partial_blocks: PartialBlocks::Refuse, ..DeviceProfile::default() };
    let what = "512 bytes from 520 on, out";
    assert_eq!(measure(plain(), "gap06")[what], "the expected bytes");
    assert!(measure(SoftBoard::new(refuses), "gap06")[what].contains("vendor 0x12"));

    let broken = |fault| plain().with_faults(Faults::named(fault).expect(fault));
    let stays = broken("tweak_not_advancing");
    assert_eq!(measure(stays, "gap04")["tweak behind 2^64 - 1"], "it stays");
    let unmasked = broken("check_mask_ignored");
    assert_eq!(measure(unmasked, "gap02")["bytes in memory that bit 7 checks, CRC32"], "0 1 2 3");
    let swapped = broken("crc_seed_inverted");
    assert_eq!(measure(swapped, "gap12")["CRC32 with seed ones"], "699aca21");
    let told = measure(broken("atomic_alignment_ignored"), "gap22");
    assert!(told["a masked atomic, 8 bytes at 4"].starts_with("request 1: well"));
    let told = measure(broken("qp_rights_ignored"), "gap22");
    assert!(told["a masked atomic, 4 bytes in the mode without masks"].starts_with("request 1: well"));
    let what = "an RDMA READ that the queue pair denies: the event";
    assert_eq!(measure(broken("denied_as_access"), "gap21")[what], "AccessViolation");
    let still = broken("ref_tag_not_advancing");
    let what = "reference tag wanted behind a block escaped by app tag";
    assert_eq!(measure(still, "gap08")[what], "first");

    let single = DeviceProfile { xts: XtsEngine::SingleBlock, ..DeviceProfile::default() };
    assert!(measure(SoftBoard::new(single), "gap07").len() == 12);
}

/// Scenarios assume some behaviour that no source states. A scenario fails on a software device that
/// contradicts an assumption. On hardware, the scenario only reports the contradiction.
#[test]
fn what_scenarios_assume_fails_here_and_is_measured_on_hardware() {
    let (refused, masks) = ("invalidation_refused_otherwise", "masks_number_the_value");
    let rows = [
        ("r048_an_entry_with_a_wrong_key", "bytes written before", "bad_entries_found_late"),
        ("r012_the_peer_may_not_invalidate_every_key", "refused invalidation", refused),
        ("r012_the_peer_needs_the_tag_to_invalidate", "refused invalidation", refused),
        ("r012_the_peer_invalidates_no_key_of_another_domain", "refused invalidation", refused),
        ("m82_a_space_begins_where_it_is_asked_to", "refused invalidation", refused),
        ("r153_leftover_combinations", "memory true, wire false", "leftover_rows_refused"),
        ("r166_job_sizes", "47 bytes in units of 512", "job_size_ignored"),
        (
            "m17_cancelled_requests_complete_and_do_nothing",
            "before the queue stops",
            "failing_request_silent",
        ),
        ("m19_a_draining_queue_stops_behind_an_error", "before the queue stops", "failing_request_silent"),
        (
            "m19_a_draining_queue_without_errors_goes_on",
            "behind the peer's data",
            "drained_by_the_peers_data",
        ),
        ("r157_the_tweak_counts_and_carries", "tweaks from 0xfffffffffffffffe on", "tweak_carry_refused"),
        ("r158_a_transfer_from_the_middle", "bytes 512..2048 of units of 512", "tweak_of_each_transfer"),
        ("r185_halves_equal_the_whole", "halves of what is encrypted", "tweak_of_each_transfer"),
        ("r185_halves_in_one_request", "halves of what is encrypted", "tweak_of_each_transfer"),
        ("r077_every_bit_of_the_check_mask", "check mask of Crc32c(Ones), input Memory", masks),
        ("r086_every_bit_of_the_copy_mask", "Crc32c(Zeros), copy mask 0x80, Memory", masks),
        ("r016_atomics_through_an_mkey", "an atomic's old value", "atomic_replies_big_endian"),
        ("r186_part_of_a_block", "521 bytes of blocks", "wire_signatures_ignored"),
        (
            "r030_what_a_queue_pair_denies_no_key_gives",
            "an RDMA READ that the queue pair denies",
            "denied_as_access",
        ),
        ("r016_a_receive_counts_bytes_of_the_wire", "bytes of a receive", "receives_count_memory_bytes"),
        ("r016_atomics_need_an_aligned_address", "an atomic at 1", "atomic_alignment_ignored"),
        ("r012_a_key_that_another_queue_pair_holds", "binding an mkey", "binding_refused"),
        (
            "r012_a_key_that_another_queue_pair_holds",
            "an mkey that another queue pair holds",
            "check_qpn_ignored",
        ),
        ("r032_a_check_for_a_free_key", "changes a configured mkey", "check_free_ignored"),
        ("m58_a_key_gets_another_value", "after use, before SYNC_CRYPTO", "dek_value_at_once"),
        ("m58_a_key_gets_another_value", "a value of another size", "dek_size_fixed"),
    ];
    let (capabilities, mut assume) = (plain().capabilities(), BTreeSet::new());
    for scenario in scenarios::all().filter(|scenario| scenario.needs.missing(&capabilities).is_none()) {
        let mut board = plain().as_hardware();
        (scenario.run)(&mut board).unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
        if !board.findings().is_empty() {
            assume.insert(scenario.name);
        }
    }
    assert_eq!(assume, rows.iter().map(|(name, ..)| *name).collect());
    for (name, what, fault) in rows {
        let broken = Faults::named(fault).expect(fault);
        let scenario = scenarios::all().find(|scenario| scenario.name == name).expect(name);
        for (faults, value) in [(Faults::default(), "as assumed"), (broken, "not as assumed")] {
            let mut board = plain().with_faults(faults).as_hardware();
            (scenario.run)(&mut board).unwrap_or_else(|error| panic!("{name} on hardware: {error}"));
            let told = board.findings();
            assert!(told.iter().all(|(what, _)| !what.contains(" = ")), "{told:?}");
            let found =
                told.iter().any(|(of, found)| of.contains(what) && found.contains(&format!(", {value}")));
            assert!(found, "{name}: no `{what}` that is {value} in {told:#?}");
        }
        let error = (scenario.run)(&mut plain().with_faults(broken)).expect_err(name);
        assert!(error.contains(what), "{name}: {error}");
    }
}
