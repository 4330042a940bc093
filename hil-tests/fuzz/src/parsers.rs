//! Fuzz target for the parsers of all texts that the test tools read: vectors, descriptions of boards, the
//! events that a program prints while it runs cases, hex dumps and logs, posting methods, lines of
//! recordings, plans of faults, options of the firmware.

use crate::fault;
use hil_scenarios::options::Options;
use hil_scenarios::protocol::Event;
use hil_scenarios::way::Ways;
use hil_tests::{recording, vectors};
use std::path::Path;
use xtask_parsers::{boards, hex};

const PARSERS: u8 = 8;

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    match which % PARSERS {
        0 => drop(vectors::read(bytes)),
        1 => describe(&text),
        2 => text.lines().for_each(listen),
        3 => dump(bytes),
        4 => {
            if let Ok(ways) = text.parse::<Ways>() {
                assert_eq!(ways.to_string().parse(), Ok(ways));
            }
        }
        // Recordings and vectors share the code that splits a text into lines, and the case of the vectors
        // covers it. This case calls only the parser of a line.
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

/// Returns the initial inputs: a text for each parser.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let boards = std::fs::read_to_string(here.join("../boards.toml")).unwrap_or_default();
    let board = "board.a.reach = { kind = 'ssh', address = 'u@h', device = 'mlx5_0', program = 'host' }\n\
        board.a.seconds = { case = 1.5 }\nboard.a.reset = { kind = 'gpio', chip = 'c', line = 1, \
        hold-milliseconds = 2, boot-seconds = 3 }\n[group]\nall = ['a', 'softdev']\n";
    let vector = "{\"id\":\"v\",\"qp\":{\"qpn\":1,\"wqe_cnt\":16,\"start_pi\":0,\"sq_sig_all\":0,\"fm_cache\":0,\
        \"max_inline_data\":828,\"max_post\":4,\"head\":0,\"tail\":0,\"max_send_sge\":4,\"wq_sig\":0},\
        \"ctx\":{\"mkey_update_tag\":0,\"crypto_engines\":[]},\"mkeys\":[],\"chains\":[]}";
    let events = "hil: cases 3\nhil: capability xts\nhil: start a::b\nhil: failed a: 1: not 2\n\
        hil: skipped a: lacks b\nhil: measured a: b c = d\nhil: passed a\nhil: done\nhil: no device: none\n";
    let xxd = "00000000: 0000 0025 0000 4008  ...%..@.\n*\n00000020: ff00                   ..\n";
    let hexdump =
        "00000000  00 00 00 25 00 00 40 08  00 00 00 08 00 00 12 00  |...%..@.........|\n00000010\n";
    let od = "0000000 00 00 00 25\n*\n0000020 01\n0000021\n";
    let log = "mlx5_0 qp 0x40 block 1\n0x000 00000025 00004008 00000008 00001200 opcode\n\n";
    let json = "{\"kind\":\"completion\",\"completion_queue\":3,\"bytes\":\"00ff\"}\n\
        {\"queue_pair\":64,\"block\":1,\"bytes\":\"00000025\"}\n";
    let kernel = "[  100.0] mlx5_0: dump_cqe:272: dump error cqe\n\
        [  100.1] 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n\
        [  100.2] 00000000: 00 00 00 00 a9 00 56 04 00 00 01 e9 00 54 e8 e2 | ......V......T..\n";
    let program = "mlx5: host: got completion with error:\n00000000 00008813 10012abe 0dd0c1d3\nnext\n\
        0x7f10 <ring+16>:\t0x25000000\t0x08400000\n*\n00000040\n";
    let crash = "crash> rd ffff88003776f000 4\n\
        ffff88003776f000:  0008000100000025 0000000800001009   %...........\n\
        ffff88003776f010:  0000000000000000 0000000000000000   ................\n";
    let tagged = "[1,0]<stderr>:mlx5: a: got completion with error:\n\
        [1,1]<stderr>:mlx5: b: got completion with error:\n\
        [1,0]<stderr>:00000000 00008813 10012abe 0dd0c1d3\n\
        [1,1]<stderr>:00000000 00008813 10012abe 0dd0c1d3\n\
        {\"log\":\"00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\\n\"}\n0000000 2500 0000\n";
    let include = "unsigned char ring[] = {\n  0x00, 0x25, 0xff\n};\nunsigned int ring_len = 3;\n";
    let recorded = "{\"device\":{\"engine\":\"multi-block\",\"spdk\":\"3230130e\"}}\n{\"psv\":1}\n\
        {\"qp\":{\"number\":1,\"blocks\":16}}\n{\"write\":{\"address\":4096,\"bytes\":\"00ff\"}}\n\
        {\"completion\":{\"opcode\":0,\"counter\":1,\"syndrome\":0}}\n";
    [
        (0, vector),
        (1, &boards),
        (1, board),
        (2, events),
        (3, xxd),
        (3, hexdump),
        (3, od),
        (3, log),
        (3, json),
        (3, include),
        (3, kernel),
        (3, program),
        (3, crash),
        (3, tagged),
        (3, "000000250000400800"),
        (4, "batch-changed"),
        (4, "77"),
        (5, recorded),
        (6, "call@2=ENOMEM,call@3+=status:8,completion@1=twice,wire@1=short,end@1=removed"),
        (6, "seed=7,after=5,only=call+message"),
        (7, "--filter r1 --after r170 --ways 7 --provoke data-abort"),
        (7, "--count benchmarks"),
    ]
    .into_iter()
    .map(|(parser, text)| [&[parser], text.as_bytes()].concat())
    .collect()
}
