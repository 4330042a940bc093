//! Tests `decode` with dumps in the forms that common programs print. `tests/dumps/README.md` describes each
//! dump.

use super::*;

/// Decodes a file of `tests/dumps`. Returns the printed text and the exit status.
fn dump(options: &[&str], name: &str) -> (String, u8) {
    let file = format!("{}/tests/dumps/{name}", env!("CARGO_MANIFEST_DIR"));
    decoded(&[options, &[&file]].concat()).unwrap_or_else(|what| panic!("{name}: {what}"))
}

/// Checks that a printed text contains these parts, in this order.
fn says(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for part in wanted {
        let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}`, or not in this order, in:\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn errors_that_libmlx5_prints_are_found_among_a_programs_lines() {
    let (text, status) = dump(&[], "libmlx5.txt");
    let first = "REQ_ERR: queue pair 0x34cde, counter 2737, RDMA_READ, remote access error (vendor 0x88)\n";
    let second = "RESP_ERR: queue pair 0x34cde, counter 1, flushed (vendor 0xf9)\n";
    says(
        &text,
        &[
            "line 3, below `mlx5: alpha: got completion with error:`:\n",
            first,
            "line 8, below `mlx5: alpha: got completion with error:`:\n",
            second,
            "4 lines are no row of a dump:\n  line 1: `transfer: 4 queue pairs connected`\n",
            "line 12: `transfer: giving up`\n",
        ],
    );
    assert_eq!(status, CLEAN);
    // A dump can also be passed as one word of the command line.
    let words = std::fs::read_to_string(format!("{}/tests/dumps/libmlx5.txt", env!("CARGO_MANIFEST_DIR")));
    let (again, _) = decoded(&[&words.unwrap()]).unwrap();
    assert_eq!(again, text);
}

#[test]
fn a_kernels_log_has_entries_and_requests() {
    let receive = "RESP_ERR: queue pair 0x2f3, counter 17, local protection error (vendor 0x56)";
    let send = "REQ_ERR: queue pair 0x1542, counter 25, SEND, local protection error (vendor 0x53)";
    let (text, status) = dump(&[], "kernel.txt");
    let bind = "REQ_ERR: queue pair 0x4d2, counter 10, UMR, memory window bind error (vendor 0x78)";
    says(&text, &["line 2, below", receive, "line 7, below", bind, "line 12, below", send]);
    says(&text, &["line 17, below", "SEND, not decoded, signalled", "not known here"]);
    assert_eq!(status, CLEAN, "{text}");
    let (text, _) = dump(&["--queue", "ethernet"], "kernel.txt");
    let words = "SEND: 46 bytes in 1 data segment, checksums L3+L4, 18 bytes of header inline, signalled";
    says(&text, &["line 17, below", words, "Ethernet segment", "cs_flags              0xc0 L3 checksum"]);
    let (text, _) = dump(&[], "journal.txt");
    says(&text, &[receive, "2 lines are no row of a dump:\n", "line 4: `Feb 03 04:05:06 beta systemd[1]:"]);
    assert_eq!(text.matches("queue pair").count(), 1, "{text}");
    let (text, _) = dump(&[], "rte-hexdump.txt");
    says(&text, &["MLX5 Error CQE: at", send]);
}

#[test]
fn a_debuggers_words_are_turned_and_its_bytes_are_not() {
    let (text, status) = dump(&[], "gdb.txt");
    let words = "RDMA_WRITE: 64 bytes in 1 data segment, remote 0x7f0000000000 key 0x00005800, signalled";
    assert_eq!((text.matches(words).count(), status), (3, CLEAN), "{text}");
    assert_eq!(text.matches("numbers of a little-endian machine").count(), 2, "{text}");
}

#[test]
fn each_restart_at_offset_0_is_another_dump() {
    let (text, _) = dump(&[], "two-xxd.txt");
    says(
        &text,
        &["line 1:\n", "wqe_index             0 (block)", "line 4:\n", "wqe_index             1 (block)"],
    );
    // The printed text can be decoded again.
    let (again, _) = decoded(&[&text]).unwrap();
    let write = "RDMA_WRITE: 64 bytes";
    assert_eq!((text.matches(write).count(), again.matches("RDMA_WRITE").count()), (2, 8), "{again}");
}

#[test]
fn entries_of_completion_queues_are_recognized() {
    let (text, status) = dump(&[], "ring-128.hex");
    says(
        &text,
        &[
            "read as completion entries of 128 bytes\nREQ: queue pair 0x91, counter 3, RDMA_READ, 64 \
             bytes\n0x040",
            "from byte 128 (0x80):\nRESP_SEND: queue pair 0x91, counter 4, 40 bytes, inline data\n",
            "0x000  00010203 04050607 08090a0b 0c0d0e0f  inline data",
            "from byte 256 (0x100):\nan entry that the device has not written",
        ],
    );
    assert_eq!((text.matches("not written this entry").count(), status), (1, CLEAN), "{text}");
    assert_eq!(dump(&["--cqe"], "ring-128.hex").0, text);
    assert!(dump(&["--cqe-size", "128"], "ring-128.hex").0.starts_with("REQ: queue pair 0x91"));
    let (halves, _) = dump(&["--cqe-size", "64"], "ring-128.hex");
    says(&halves, &["1 empty block, never written", "from byte 64 (0x40):\nREQ: queue pair 0x91"]);
    assert_eq!(halves.matches("1 empty block, never written").count(), 2, "{halves}");
    let (text, status) = dump(&[], "inline-32.hex");
    says(
        &text,
        &["RDMA_READ, 20 bytes, inline data", "00010203 04050607", "note at 0x03f: the entry has room"],
    );
    assert_eq!(status, CLEAN);
    let (text, status) = dump(&[], "compressed.hex");
    says(
        &text,
        &[
            "RESP_SEND: queue pair 0x91, 4 compressed completions",
            "from byte 64 (0x40):\n3 entries of the compressed completions, not expanded",
            "from byte 256 (0x100):\nRESP_SEND: queue pair 0x91, counter 6, 80 bytes",
        ],
    );
    assert_eq!(status, CLEAN);
    let (text, status) = dump(&[], "vendor-93.hex");
    says(&text, &["REQ_ERR: queue pair 0x91, counter 5, RDMA_WRITE, local protection error (vendor 0x93)"]);
    assert_eq!((text.contains("fault"), status), (false, CLEAN));
    // The same bytes are not valid as requests.
    assert_eq!(dump(&["--wqe"], "vendor-93.hex").1, REFUSED);
}

#[test]
fn requests_of_other_queues_and_drivers_are_never_refused() {
    let cases: &[(&str, &[&str], &str)] = &[
        ("datagram.hex", &[], "SEND, not decoded, signalled"),
        (
            "datagram.hex",
            &["--queue", "ud"],
            "SEND: 64 bytes in 1 data segment, to queue pair 0x51, Q_Key 0x22222222",
        ),
        (
            "datagram.hex",
            &["--queue", "ud"],
            "MAC b8:59:9f:00:00:01, GID fe80:0000:0000:0000:b859:9fff:fe00:0002",
        ),
        ("ethernet.hex", &[], "SEND, not decoded, signalled"),
        ("ethernet.hex", &["--queue", "ethernet"], "checksums L3+L4, 18 bytes of header inline"),
        ("masked-add.hex", &[], "ATOMIC_MASKED_FA: 4 bytes in 1 data segment, remote 0x7f1100000000"),
        ("masked-add.hex", &["--queue", "rc"], "add 0x5, field_boundary 0x0"),
        ("flush.hex", &[], "DUMP: 4 bytes in 1 data segment, signalled"),
        (
            "interleaved-in-memory.hex",
            &[],
            "4 octowords of an interleaved layout or a list at 0x7f1100000800 key 0x00006600",
        ),
    ];
    for (name, options, words) in cases {
        let (text, status) = dump(options, name);
        // The printed text is broken into lines, between words.
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.contains(words), "{name}: {text}");
        assert!(status == CLEAN && !text.contains("suspicious"), "{name}: {text}");
    }
}

#[test]
fn an_index_that_does_not_follow_is_suspicious() {
    let (text, status) = dump(&[], "same-index.hex");
    let suspicious = "suspicious at 0x001: wqe_index is 0, behind the request before it is 1";
    assert_eq!((text.matches(suspicious).count(), status), (2, CLEAN), "{text}");
}

#[test]
fn a_page_shows_dumps_too() {
    let folder = run::temporary("decode-dumps").unwrap();
    for name in ["libmlx5.txt", "kernel.txt", "ring-128.hex", "compressed.hex", "datagram.hex"] {
        let file = folder.path().join(name).display().to_string();
        dump(&["--html", &file], name);
        let page = std::fs::read_to_string(&file).unwrap();
        assert!(page.contains("</html>"), "{page}");
    }
}

/// Decodes a text that is passed as one word of the command line.
fn text(options: &[&str], text: &str) -> Result<(String, u8), String> {
    decoded(&[options, &[text]].concat())
}

const ZEROS: &str = "00000000 00000000 00000000 00000000\n";
const LAST: &str = "00000000 00008813 10034cde 0ab1c1d3\n";
const SAYS: &str = "REQ_ERR: queue pair 0x34cde, counter 2737, RDMA_READ, remote access error (vendor 0x88)";

/// Returns the text that libmlx5 prints for an error completion: a heading, then these rows of bytes.
fn error(rows: &[&str]) -> String {
    format!("mlx5: alpha: got completion with error:\n{}", rows.concat())
}

#[test]
fn a_dump_that_lacks_rows_is_told_and_the_others_are_decoded() {
    let whole = error(&[ZEROS, ZEROS, ZEROS, LAST]);
    for (short, told) in [
        (error(&[ZEROS, ZEROS]), "line 1"),
        (
            error(&[ZEROS, "00000000 0000\n", ZEROS, LAST]),
            "line 3: a row that is cut or damaged: `00000000 0000`",
        ),
        (error(&[ZEROS, ZEROS, ZEROS, "00000000 00008813 1003\n"]), "line 5: a row that is cut or damaged"),
    ] {
        for (text_of, first) in [(format!("{short}{whole}"), false), (format!("{whole}{short}"), true)] {
            let (decoded, status) = text(&[], &text_of).unwrap();
            assert_eq!((decoded.matches(SAYS).count(), status), (1, CLEAN), "{decoded}");
            assert!(
                decoded.contains("not decoded: ") && decoded.contains("a completion entry has 64"),
                "{decoded}"
            );
            assert!(first || decoded.contains(told), "{decoded}");
        }
        let alone = text(&[], &short).unwrap_err();
        assert!(alone.contains("line ") && !alone.contains("is not hex"), "{alone}");
    }
    let none = text(&[], "mlx5: alpha: got completion with error\nand no more\n").unwrap_err();
    assert!(none.contains("no line has a row of a dump"), "{none}");
}

#[test]
fn words_of_a_kernel_debugger_are_numbers() {
    // A NOP in block 1 of queue pair 0x40, as the debugger crash prints it by its command `rd`.
    let dump = "crash> rd ffff88810dc2a000 2\n\
                ffff88810dc2a000:  0140000000010000 0000000008000000   ......@.........\n";
    let (decoded, status) = text(&[], dump).unwrap();
    let words = "words are read as numbers of a little-endian machine\nNOP, signalled";
    assert!(decoded.contains(words) && status == CLEAN, "{decoded}");
    let hexdump = "0000000 0000 0100 0000 4001 0000 0008 0000 0000\n0000010\n";
    let unknown = text(&[], hexdump).unwrap_err();
    assert!(
        unknown.contains("the order of bytes in `0000` is not known") && unknown.contains("--words little"),
        "{unknown}"
    );
    let turned = hexdump.replace("0100", "0001").replace("4001", "0140").replace("0008", "0800");
    for (order, hexdump) in [("memory", hexdump), ("little", turned.as_str())] {
        let (decoded, _) = text(&["--words", order], hexdump).unwrap();
        assert!(decoded.contains("NOP, signalled"), "{decoded}");
    }
}

/// The rows have the form of the kernel's `print_hex_dump` in groups of 4 bytes, without characters. The
/// kernel prints each word as a number, so that a little-endian machine shows the word's bytes reversed.
#[test]
fn words_that_make_sense_in_one_order_only_are_read_in_this_order() {
    let turned = |words: &str| -> String {
        let turn = |word: &str| u32::from_str_radix(word, 16).unwrap().swap_bytes();
        words.split_whitespace().map(|word| format!("{:08x} ", turn(word))).collect()
    };
    let write = ["00000008 00007703 00000008 00000000", "00007f00 00000000 00005800 00000000"];
    let write = [write[0], write[1], "00000040 00005600 00000000 00001000", ZEROS];
    let entry = [ZEROS, ZEROS, ZEROS, LAST];
    let note = "words are read as numbers of a little-endian machine: only these make sense";
    for (rows, words) in [(write, "RDMA_WRITE: 64 bytes in 1 data segment"), (entry, SAYS)] {
        for prefix in ["", "[  100.000000] ", "Jan 01 00:00:00 host kernel: mlx5: "] {
            let dump = |row: &dyn Fn(&str) -> String| -> String {
                let line = |(at, words): (usize, &&str)| format!("{prefix}{:08x}: {}\n", at * 16, row(words));
                rows.iter().enumerate().map(line).collect()
            };
            let (decoded, status) = text(&[], &dump(&turned)).unwrap();
            assert!(decoded.contains(note) && decoded.contains(words), "{decoded}");
            assert_eq!(status, CLEAN, "{decoded}");
            // mlx5_core prints words in the order of memory, and `decode` must not reverse them.
            let (decoded, _) = text(&[], &dump(&|words| words.trim().to_owned())).unwrap();
            assert!(!decoded.contains("numbers of") && decoded.contains(words), "{decoded}");
        }
    }
    // These bytes are a NOP in both byte orders. `decode` reads the digits as bytes, and a note names the
    // option for the other order.
    let both = "t 00000000: 00010000 01000001 00000000 00000000\n";
    let (decoded, _) = text(&[], both).unwrap();
    assert!(
        decoded.contains("in the order of memory; --words little") && decoded.contains("NOP"),
        "{decoded}"
    );
    let (decoded, _) = text(&["--words", "little"], both).unwrap();
    assert!(decoded.contains("NOP") && !decoded.contains("--words little"), "{decoded}");
}

#[test]
fn errors_of_several_ranks_are_read_apart() {
    let rows = [ZEROS, ZEROS, ZEROS, LAST];
    let other = LAST.replace("10034cde", "10034cdf");
    let (one, two) = (error(&rows), error(&[ZEROS, ZEROS, ZEROS, &other]));
    let line = |(one, two)| format!("[1,0]<stderr>:{one}\n[1,1]<stderr>:{two}\n");
    let interleaved: String = one.lines().zip(two.lines()).map(line).collect();
    let (decoded, _) = text(&[], &interleaved).unwrap();
    says(&decoded, &[SAYS, &SAYS.replace("0x34cde", "0x34cdf")]);
    assert!(!decoded.contains("128 bytes"), "{decoded}");
    // Without a prefix, nothing shows to which of the mixed errors a row belongs.
    let bare = interleaved.replace("[1,0]<stderr>:", "").replace("[1,1]<stderr>:", "");
    let mixed = text(&[], &bare).unwrap_err();
    assert!(mixed.contains("rows of several dumps are mixed"), "{mixed}");
    // The rows of two errors follow each other, and each error has printed a heading.
    let (decoded, _) = text(&[], &[error(&[]), one, rows.concat()].concat()).unwrap();
    assert_eq!(decoded.matches(SAYS).count(), 2, "{decoded}");
}

/// A completion queue or ring that the program has not filled yet ends with zeros.
#[test]
fn what_was_never_written_is_left_out() {
    let entry = format!("{}{}", ZEROS.repeat(3), "00000000 00000000 08000091 00030000\n");
    let (decoded, status) = text(&[], &format!("{entry}{}", ZEROS.repeat(12))).unwrap();
    says(&decoded, &["REQ: queue pair 0x91, counter 3, RDMA_WRITE", "3 empty blocks, never written"]);
    assert_eq!((decoded.matches("queue pair").count(), status), (1, CLEAN), "{decoded}");
    let long = format!("{}{entry}", ZEROS.repeat(4));
    let (decoded, _) = text(&[], &format!("{long}{long}{}", ZEROS.repeat(8))).unwrap();
    assert_eq!(decoded.matches("queue pair 0x91").count(), 2, "{decoded}");
    says(&decoded, &["read as completion entries of 128 bytes", "2 empty blocks, never written"]);
    let (decoded, status) = text(&["--cqe"], &ZEROS.repeat(4)).unwrap();
    assert_eq!((decoded.as_str(), status), ("1 empty block, never written\n", CLEAN));
    let write = "00000008 00007703 00000008 00000000\n00007f00 00000000 00005800 00000000\n\
                 00000040 00005600 00000000 00001000\n";
    let (decoded, status) = text(&[], &format!("{write}{}", ZEROS.repeat(5))).unwrap();
    says(&decoded, &["RDMA_WRITE: 64 bytes", "1 empty block, never written"]);
    assert_eq!(status, CLEAN);
    // If a dump cuts a request, the only finding is the missing bytes.
    let (decoded, status) = text(&[], write.get(..72).unwrap()).unwrap();
    says(&decoded, &["note at 0x020: the bytes end within the request: it has 48, 32 are there"]);
    assert_eq!((decoded.matches(" at 0x").count(), status), (1, CLEAN), "{decoded}");
}
