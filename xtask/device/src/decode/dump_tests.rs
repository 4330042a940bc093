//! Dumps as people have them: `tests/dumps/README.md` says what each is.

use super::*;

/// Decodes a file of `tests/dumps`: what is printed, and the exit status.
fn dump(options: &[&str], name: &str) -> (String, u8) {
    let file = format!("{}/tests/dumps/{name}", env!("CARGO_MANIFEST_DIR"));
    let args: Vec<String> = options.iter().map(|word| (*word).to_owned()).chain([file]).collect();
    decode(&args, Style::Plain).unwrap_or_else(|what| panic!("{name}: {what}"))
}

/// Checks that texts stand in what is printed, in this order.
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
    // The same in one word of the command line.
    let words = std::fs::read_to_string(format!("{}/tests/dumps/libmlx5.txt", env!("CARGO_MANIFEST_DIR")));
    let (again, _) = decode(&[words.unwrap()], Style::Plain).unwrap();
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
    // What is printed here is read again.
    let (again, _) = decode(std::slice::from_ref(&text), Style::Plain).unwrap();
    let write = "RDMA_WRITE: 64 bytes";
    assert_eq!((text.matches(write).count(), again.matches("RDMA_WRITE").count()), (2, 8), "{again}");
}

#[test]
fn entries_of_completion_queues_are_recognized() {
    let (text, status) = dump(&[], "ring-128.hex");
    says(
        &text,
        &[
            "read as completion entries of 128 bytes\nREQ: queue pair 0x91, counter 3, RDMA_READ, 64 bytes\n0x040",
            "from byte 128 (0x80):\nRESP_SEND: queue pair 0x91, counter 4, 40 bytes, inline data\n",
            "0x000  00010203 04050607 08090a0b 0c0d0e0f  inline data",
            "from byte 256 (0x100):\nan entry that the device has not written",
        ],
    );
    assert_eq!((text.matches("not written this entry").count(), status), (1, CLEAN), "{text}");
    assert_eq!(dump(&["--cqe"], "ring-128.hex").0, text);
    assert!(dump(&["--cqe-size", "128"], "ring-128.hex").0.starts_with("REQ: queue pair 0x91"));
    let (halves, _) = dump(&["--cqe-size", "64"], "ring-128.hex");
    says(&halves, &["REQ: queue pair 0x0", "from byte 64 (0x40):\nREQ: queue pair 0x91"]);
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
    // As requests they make no sense.
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
        ("interleaved-in-memory.hex", &[], "4 octowords of entries at 0x7f1100000800 key 0x00006600"),
    ];
    for (name, options, words) in cases {
        let (text, status) = dump(options, name);
        // Lines are broken between words.
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
