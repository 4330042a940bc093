//! Tests of mkeys that a command of the device makes together with their entries, as UCX makes them.

use crate::DONE;
use crate::shared::create;
use crate::verbs::End;
use mlx5_testing::preload::{Side::Inside, preloaded};

const TAG: u8 = 0x55;
/// The byte of an mkey's context for access mode KSM and all rights.
const ALL_RIGHTS: u8 = 0x7f;
const LOG_ENTRY: u8 = 31;
const CONTEXT: usize = 0x10;

/// Returns the start of the first entry, and the command CREATE_MKEY for an mkey with two entries of 2 GiB
/// each. The first entry contains `memory`. The mkey's space begins `shift` bytes after the start of the
/// first entry.
fn command(memory: u64, key: u32, shift: u64) -> (u64, Vec<u8>) {
    let (mut input, base) = (vec![0; 0x110 + 32], memory & !((1 << LOG_ENTRY) - 1));
    let mut put = |at: usize, bytes: &[u8]| input[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0x02, 0x00]);
    put(CONTEXT + 2, &[ALL_RIGHTS, 0, 0xff, 0xff, 0xff, TAG]);
    // 1 is the number of the first protection domain.
    put(CONTEXT + 0xf, &[1]);
    put(CONTEXT + 0x10, &(base + shift).to_be_bytes());
    put(CONTEXT + 0x18, &(1_u64 << 32).to_be_bytes());
    put(CONTEXT + 0x34, &2_u32.to_be_bytes());
    put(CONTEXT + 0x3b, &[LOG_ENTRY]);
    put(0x60, &2_u32.to_be_bytes());
    for (index, at) in [(0, 0x110), (1, 0x120)] {
        put(at + 4, &key.to_be_bytes());
        put(at + 8, &(base + (index << LOG_ENTRY)).to_be_bytes());
    }
    (base, input)
}

#[test]
fn a_key_has_the_entries_that_its_command_brings() {
    let Inside = preloaded() else { return };
    let mut end = End::loopback();
    let (_, input) = command(end.data.0, end.key, 8);
    let (handle, index) = create(&end.context, &input).unwrap();
    let key = index << 8 | u32::from(TAG);
    end.data.write(0, b"eight bytes further on");
    end.write_and_succeed(22, end.data.0 + 1024 + 8, key);
    assert_eq!(end.data.read(1024, 22), b"eight bytes further on");
    assert_eq!(end.context.destroy(0x1001, 0x1001, handle), Ok(()));
    end.write(22, end.data.0 + 1024 + 8, key);
    assert_ne!(end.poll().0, DONE);
}

#[test]
fn what_is_not_known_of_a_key_is_refused() {
    let Inside = preloaded() else { return };
    let end = End::new();
    let (_, good) = command(end.data.0, end.key, 0);
    assert!(create(&end.context, &good).is_ok());
    let mut by_umr = good.clone();
    by_umr[CONTEXT + 2] |= 0x80;
    assert!(create(&end.context, &by_umr).is_ok(), "a UMR writes the entries");
    for (at, value, why) in [
        (CONTEXT + 2, ALL_RIGHTS & !3 | 1, "a table of pages"),
        (CONTEXT, 0x04, "another access mode"),
        (CONTEXT, 0x40, "free, and no UMR can take it"),
        (CONTEXT + 0xc, 0x80, "2^64 bytes"),
        (CONTEXT + 0x37, 1, "room for one entry"),
        (CONTEXT + 0x3b, LOG_ENTRY - 1, "a space that is half covered"),
        (CONTEXT + 0xf, 99, "no domain"),
        (0x63, 1, "one entry"),
        (0x63, 3, "more entries than there are bytes"),
        (0x60, 0xff, "many more"),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(create(&end.context, &bad), Err(libc::EREMOTEIO), "{why}");
    }
}
