//! Fuzz target for the parsers of all texts that the test tools read: vectors, descriptions of boards, the
//! events that a program prints while it runs cases, hex dumps and logs, posting methods, lines of
//! recordings, plans of faults, options of the firmware.

use crate::fault;
use hil_scenarios::options::Options;
use hil_scenarios::protocol::Event;
use hil_scenarios::way::Ways;
use hil_tests::{recording, vectors};
use xtask_parsers::{boards, hex};

const PARSERS: u8 = 8;

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    match which % PARSERS {
        0 => drop(vectors::read::<vectors::format::Vector>(bytes)),
        1 => describe(&text),
        2 => text.lines().for_each(listen),
        3 => dump(bytes),
        4 => {
            if let Ok(ways) = text.parse::<Ways>() {
                assert_eq!(ways.to_string().parse(), Ok(ways));
            }
        }
        // A recording is read as vectors are, but each line is tried here, also behind a wrong one.
        5 => text.lines().for_each(|line| drop(serde_json::from_str::<recording::Event>(line))),
        6 => fault::come_again(&text),
        _ => {
            if let Err(word) = Options::parse(text.split_ascii_whitespace()) {
                assert!(text.contains(word), "the reported word is in the text");
            }
        }
    }
}

/// Parses descriptions of boards. Each board must be found by name and by group.
fn describe(text: &str) {
    let Ok(boards) = boards::parse(text) else { return };
    for name in ["softdev", "mlx5_0", "all", "a", ""] {
        match boards.find(name) {
            Ok(found) => {
                for (_, board) in found {
                    assert!(!board.reach.device().is_empty());
                    assert!(board.limits().case <= std::time::Duration::from_secs(604_800));
                }
            }
            Err(why) => assert!(why.contains("no board")),
        }
    }
}

/// Asserts that an event of a program that runs cases stays the same when it is written and read again.
fn listen(line: &str) {
    if let Some(event) = Event::parse(line) {
        let written = event.to_string();
        assert_eq!(Event::parse(&written).map(|event| event.to_string()), Some(written), "{line:?}");
    }
}

/// Reads a hex dump with each order of words. Asserts that the bytes stay the same when they are written as
/// plain hex digits and read again. The comparison ends after 64 KiB. Only a dump that abbreviates repeated
/// lines has more bytes.
fn dump(bytes: &[u8]) {
    for order in [None, Some(hex::WordOrder::Memory), Some(hex::WordOrder::LittleEndian)] {
        dump_of(bytes, order);
    }
}

fn dump_of(bytes: &[u8], order: Option<hex::WordOrder>) {
    const FIRST: usize = 1 << 16;
    let plain = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match hex::read(bytes.to_vec(), order) {
        Ok(hex::Input::Bytes(mut read)) if !read.is_empty() => {
            read.truncate(FIRST);
            assert_eq!(hex::parse(&plain(&read)), Ok(read));
        }
        // Each dump in a text has at least 16 bytes, and the number of its first line.
        Ok(hex::Input::Dumps(dumps)) => {
            assert!(dumps.found.iter().all(|dump| dump.bytes.len() >= 16 && dump.line > 0));
            let _ = dumps.left_out();
        }
        Ok(hex::Input::Log(logged)) => assert!(logged.iter().all(|one| !one.place.is_empty())),
        Ok(hex::Input::Bytes(_)) => {}
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}
