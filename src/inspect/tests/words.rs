//! Tests of the text that requests and completion entries are printed as.

use super::cqe::CompletionEntry;
use super::requests::*;
use super::std::string::{String, ToString};
use super::*;
use crate::mkey::*;
use crate::queue::SendRequest;
use crate::wqe::{Local, Payload, Remote};

#[test]
fn short_input_is_an_error() {
    let error = WorkRequest::parse(&[0; 15]);
    assert_eq!(error, Err(ParseError::TooShort { have: 15, needed: 16 }));
    assert!(CompletionEntry::parse(&[0; 63]).is_err());
}

#[test]
fn a_request_reads_in_words() {
    let device = DeviceContext { engine: Some(XtsEngine::MultiBlock), ..DeviceContext::UNKNOWN };
    let bytes = full();
    assert_eq!(
        parse(&bytes).summary(device).to_string(),
        "UMR configure mkey 0x000012/34: access remote read+write, list of 2 entries, 1040 bytes, \
         memory T10-DIF crc/512 seed ones app 0x0001 ref 0x00000002 growing, \
         wire T10-DIF crc/512 seed ones app 0x0003 ref 0x00000002 growing, check 0xff, copy 0xcf \
         (automatic), AES-XTS wire encrypted, signature inside, unit 520, DEK 0x99, tweak 0x7 (big endian), \
         error count 1"
    );
}

#[test]
fn a_copy_reads_in_words() {
    let words = |bytes: &[u8]| parse(bytes).summary(DeviceContext::UNKNOWN).to_string();
    let text = "bytes from 0x1000 key 0x00005300 to 0x2000 key 0x00005400, signalled";
    assert_eq!(words(&memcpy()), std::format!("MMO memcpy: 64 {text}"));
    // In the segments of source and target, a length of 0 means 2 GiB.
    let most = patched(patched(memcpy(), 35, &[0]), 51, &[0]);
    assert_eq!(words(&most), std::format!("MMO memcpy: 2147483648 {text}"));
    assert_eq!(parse(&most).worst(&DeviceContext::UNKNOWN), None);
    let copy = memcpy();
    let kinds = parse(&copy).segments().map(|segment| (segment.kind, segment.index)).collect::<Vec<_>>();
    let want = [
        (SegmentKind::Control, 0),
        (SegmentKind::MmoMetadata, 0),
        (SegmentKind::Data, 0),
        (SegmentKind::Data, 1),
    ];
    assert_eq!(kinds, want);
}

#[test]
fn requests_that_move_data_read_in_words() {
    let remote = Remote { address: 0x1000, rkey: REGION };
    let old = Local { address: 0, lkey: REGION };
    let payload = Payload::Inline(&[1; 5]);
    let post = |post: &dyn Fn(SendRequest<'_, '_>) -> Result<(), PostError>| {
        let bytes = encoded(|queue| post(queue.request(1))).unwrap();
        parse(&bytes).summary(DeviceContext::UNKNOWN).to_string()
    };
    let inline = "5 bytes in 1 inline data segment";
    let there = "remote 0x1000 key 0x00567800";
    let atomic = std::format!("8 bytes in 1 data segment, {there}, operand 0x11");
    assert_eq!(post(&|request| request.send(payload)), std::format!("SEND: {inline}"));
    assert_eq!(
        post(&|request| request.send_imm(0x1234, payload)),
        std::format!("SEND_IMM imm 0x00001234: {inline}")
    );
    assert_eq!(
        post(&|request| request.send_invalidate(REGION, payload)),
        std::format!("SEND_INVAL invalidating 0x00567800: {inline}")
    );
    assert_eq!(
        post(&|request| request.solicited().rdma_write_imm(remote, 7, payload)),
        std::format!("RDMA_WRITE_IMM imm 0x00000007: {inline}, {there}, solicited")
    );
    assert_eq!(post(&|request| request.fetch_add(remote, 0x11, old)), std::format!("ATOMIC_FA: {atomic}"));
    assert_eq!(
        post(&|request| request.compare_swap(remote, 0x22, 0x11, old)),
        std::format!("ATOMIC_CS: {atomic}, compare 0x22")
    );
    // Of the two completion bits, 0x08 asks for a completion, and both together also for an event.
    let bytes = encoded(|queue| queue.request(1).signaled().nop()).unwrap();
    for (ce, text) in
        [(0, "NOP"), (0x04, "NOP"), (0x08, "NOP, signalled"), (0x0c, "NOP, signalled with event")]
    {
        let bytes = patched(bytes.clone(), 11, &[ce]);
        assert_eq!(parse(&bytes).summary(DeviceContext::UNKNOWN).to_string(), text);
    }
}

#[test]
fn what_a_configuration_does_reads_in_words() {
    let words = |bytes: &[u8]| parse(bytes).summary(DeviceContext::UNKNOWN).to_string();
    let crypto = |order: SignatureOrder, direction: Direction| Crypto { order, direction, ..CRYPTO };
    let signed = BlockSignature::memory(dif(1, 2));
    use Direction::{DecryptOnTx, EncryptOnTx};
    use SignatureOrder::{AfterCryptoOnTx, BeforeCryptoOnTx};
    for (order, direction, text) in [
        (BeforeCryptoOnTx, EncryptOnTx, "AES-XTS wire encrypted, signature inside, unit 520"),
        (AfterCryptoOnTx, DecryptOnTx, "AES-XTS memory encrypted, signature inside, unit 520"),
        (AfterCryptoOnTx, EncryptOnTx, "AES-XTS wire encrypted, signature outside, unit 520"),
        (BeforeCryptoOnTx, DecryptOnTx, "AES-XTS memory encrypted, signature outside, unit 520"),
    ] {
        let words = words(&full_with(signed, crypto(order, direction)));
        assert!(words.contains(text), "{words}");
    }
    for (bytes, text) in [
        // A BSF whose block size selectors are 0 has no signature to describe.
        (patched(full(), SIGNATURE, &[0xc0, 0xff, 0, 0]), ", no signature, AES-XTS wire"),
        (patched(full(), SIGNATURE + 3, &[5]), ", unreadable signature at 0xc0, check mask 0xff,"),
        (patched(full(), CRYPTO_AT + 3, &[1]), ", unreadable crypto at 0x100, error count 1"),
        (patched(full(), CRYPTO_AT + 1, &[4]), ", unreadable crypto at 0x100, error count 1"),
        (patched(full(), CRYPTO_AT + 8, &[9]), ", unreadable crypto at 0x100, error count 1"),
    ] {
        let words = words(&bytes);
        assert!(words.contains(text), "{words}");
    }
}

/// Returns the texts in the right column of a page that begin with `name`.
fn beside<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    page.lines().filter_map(|line| line.get(44..)).filter(|text| text.starts_with(name)).collect()
}

#[test]
fn a_page_numbers_segments_and_says_what_values_mean() {
    let page = parse(&full()).to_string();
    assert_eq!(beside(&page, "list entry"), ["list entry 0", "list entry 1"]);
    assert_eq!(beside(&page, "UMR control segment"), ["UMR control segment"]);
    // All ones mean that no number of bytes is given, so none is printed.
    assert_eq!(beside(&page, "raw_data_size"), ["raw_data_size         0xffffffff"; 2]);
    let exact = patched(full(), SIGNATURE + 4, &1040_u32.to_be_bytes());
    let page = parse(&exact).to_string();
    assert_eq!(beside(&page, "raw_data_size")[0], "raw_data_size         0x00000410 (1040 bytes)");
    let page = parse(&patched(full(), UMR + 3, &[7])).to_string();
    assert_eq!(beside(&page, "reserved"), ["reserved              0x000007 (not zero)"]);
    let page = parse(&interleaved()).to_string();
    let entries: Vec<_> = (0..3).map(|number| std::format!("interleaved entry {number}")).collect();
    assert_eq!(beside(&page, "interleaved entry"), entries);
    // If a request ends within a field, only the remaining bytes of the field are printed.
    let page = parse(&full()[..CONTEXT + 30]).to_string();
    assert_eq!(beside(&page, "len"), ["len                   6 bytes"]);
    assert_eq!(beside(&parse(&full()).to_string(), "len")[0], "len                   1040 bytes");
}

#[test]
fn a_value_goes_on_below_itself() {
    let page = parse(&full()).to_string();
    let mut lines = page.lines().skip_while(|line| !line.contains("xts_initial_tweak"));
    let (first, second) = (lines.next().unwrap(), lines.next().unwrap());
    let column = first.find("0x7000").unwrap();
    let blanks = second.chars().take_while(|character| *character == ' ').count();
    assert_eq!((column, blanks), (66, 66), "{page}");
}

#[test]
fn a_completion_reads_as_a_page() {
    let failed = entry(&[(54, &[0x93, 0x04]), (56, &[0x0a, 0, 1, 0x23, 0, 5, 0, 0xd0])]);
    let read = CompletionEntry::parse(&failed).unwrap();
    assert_eq!(read.segments().next().unwrap().kind, SegmentKind::ErrorCqe);
    let page = read.to_string();
    assert_eq!(page, read.pretty(None, Style::Plain).to_string());
    assert_eq!(beside(&page, "error completion entry"), ["error completion entry"]);
    assert_eq!(beside(&page, "syndrome"), ["syndrome              0x04 local protection error"]);
    let names: Vec<_> = read.fields().map(|field| field.name).collect();
    assert!(names.contains(&"vendor_err_synd"), "{names:?}");
}

#[test]
fn a_page_shows_bytes_fields_and_findings() {
    let psv = patched(full().split_off(320), 20, &[0, 1]);
    let want = "\
SET_PSV 0x000011: start value 0xffff000100000002, small fence
0x000  00000520 00012302 00000020 00000000  control segment
                                            opmod                 0x00
                                            wqe_index             5 (block)
                                            opcode                0x20 SET_PSV
                                            qpn                   0x000123
                                            ds                    2 octowords (32 bytes)
                                            signature             0x00
                                            dci_stream_channel    0x0000
                                            fm_ce_se              0x20 small fence
                                            imm                   0x00000000
0x010  00000011 00010000 ffff0001 00000002  SET_PSV segment
                                            psv_index             0x00000011
                                            syndrome              0x0001
                                            transient_signature   0xffff000100000002
note at 0x014: the PSV starts with syndrome 0x0001 (mlx5_wqe_set_psv_seg.syndrome)
";
    let request = parse(&psv);
    assert_eq!(request.to_string(), want);
    // Without its escape sequences, the coloured text equals the plain text.
    let coloured = request.pretty(DeviceContext::UNKNOWN, Style::Ansi).to_string();
    let mut text = String::new();
    for (number, part) in coloured.split('\x1b').enumerate() {
        text.push_str(if number == 0 { part } else { part.split_once('m').map_or(part, |(_, rest)| rest) });
    }
    assert_eq!(text, want);
}

#[test]
fn a_tweak_is_read_as_the_engine_reads_it() {
    let bytes = full();
    let request = parse(&bytes);
    let little = "0x7000000000000000000000000000000 (little endian)";
    let big = "0x7 (big endian)";
    for (engine, want) in [
        (None, std::format!("{little} or {big}")),
        (Some(XtsEngine::MultiBlock), big.into()),
        (Some(XtsEngine::SingleBlock), little.into()),
        (Some(XtsEngine::Unspecified), little.into()),
    ] {
        let device = DeviceContext { engine, ..DeviceContext::UNKNOWN };
        let page = request.pretty(device, Style::Plain).to_string();
        let (_, field) = page.split_once("xts_initial_tweak").unwrap();
        // A long text continues in the next lines, until the line with the next bytes.
        let (field, _) = field.split_once("\n0x120").unwrap();
        assert_eq!(field.split_whitespace().collect::<Vec<_>>().join(" "), want, "{page}");
    }
}

#[test]
fn completions_read_in_words() {
    let words = |bytes: &[u8], stride| {
        CompletionEntry::parse(bytes).map(|entry| (entry.summary(stride).to_string(), entry.worst()))
    };
    let done = entry(&[(46, &[0x02, 0x08]), (56, &[0x08, 0, 1, 0x23, 0, 5, 0, 0x01])]);
    let text = "REQ: queue pair 0x123, counter 5, RDMA_WRITE, 520 bytes";
    assert_eq!(words(&done, None), Ok((text.into(), None)));

    let failed = entry(&[(54, &[0x93, 0x04]), (56, &[0x0a, 0, 1, 0x23, 0, 5, 0, 0xd0])]);
    let text = "REQ_ERR: queue pair 0x123, counter 5, SEND, local protection error (vendor 0x93)";
    assert_eq!(words(&failed, None), Ok((text.into(), None)));

    let wrong = entry(&[
        (16, &[0x99, 0x16, 0, 0, 0xec, 0x7d, 0, 0]),
        (32, &[0x20, 0, 0, 1, 0, 0, 0x12, 0x34]),
        (46, &[0x04, 0x0f, 0]),
        (63, &[0xc0]),
    ]);
    let words = words(&wrong, Some(520)).map(|(text, worst)| {
        assert_eq!(worst, None);
        text
    });
    let text = words.unwrap_or_default();
    let start = "SIG_ERR: mkey index 0x000012, memory, block 1, offset 1039, \
                 bad guard: found 0xec7d, computed 0x9916 (T10-DIF)";
    assert!(text.starts_with(start), "{text}");
}

#[test]
fn an_error_of_a_tag_or_a_transaction_reads_in_words() {
    let fault = |syndrome: u8, sig_type: u8, domain: u8| {
        let bytes = entry(&[
            (16, &[0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34]),
            (28, &[0x41, 0x42, 0x43, 0x44, syndrome, 0, sig_type, domain, 0, 0, 0x12, 0x34]),
            (47, &[9]),
            (63, &[0xc0]),
        ]);
        let entry = CompletionEntry::parse(&bytes).unwrap();
        assert_eq!(entry.segments().next().unwrap().kind, SegmentKind::SignatureErrorCqe);
        entry.summary(None).to_string()
    };
    let start = "SIG_ERR: mkey index 0x000012, ";
    for (text, syndrome, sig_type, domain) in [
        ("memory, offset 9, bad application tag: found 0x2324, computed 0x1314", 0x10, 0, 1),
        ("wire, offset 9, bad reference tag: found 0x41424344, computed 0x31323334", 0x08, 0, 0),
        ("memory, transaction, offset 9, bad CRC: found 0x21222324, computed 0x11121314", 0, 1, 1),
    ] {
        assert_eq!(fault(syndrome, sig_type, domain), std::format!("{start}{text}"));
    }
}

#[test]
fn what_was_found_is_as_bad_as_the_worst_of_it() {
    let unknown = DeviceContext::UNKNOWN;
    assert_eq!(parse(&patched(full(), UMR, &[0x84])).worst(&unknown), Some(Severity::Refused));
    let odd = entry(&[(63, &[0x90])]);
    let entry = CompletionEntry::parse(&odd).unwrap();
    assert_eq!(
        (entry.segments().next().unwrap().kind, entry.worst()),
        (SegmentKind::Cqe, Some(Severity::Refused))
    );
    let finding = Finding { offset: 7, problem: Problem::UmrReserved };
    assert!(finding.to_string().starts_with("refused at 0x007: "), "{finding}");
    assert_eq!(ParseError::TooShort { have: 1, needed: 2 }.to_string(), "1 bytes given, 2 needed");
}

#[test]
fn lines_are_filled_before_they_break() {
    use super::columns::{Columns, Role};
    use core::fmt::Write;
    let written = |style, write: &dyn Fn(&mut Columns<'_>) -> core::fmt::Result| {
        let mut text = String::new();
        let mut columns = Columns::new(&mut text, style);
        write(&mut columns).and_then(|()| columns.flush()).unwrap();
        text
    };
    let (fifty, most) = ("a".repeat(50), "b".repeat(100));
    for (words, lines) in [
        (std::format!("{fifty} {}", &fifty[1..]), std::format!("{fifty} {}", &fifty[1..])),
        (std::format!("{fifty} {fifty}"), std::format!("{fifty}\n{fifty}")),
        // A word as wide as a line is not preceded by an empty line.
        (most.clone(), most.clone()),
        (std::format!(" {fifty} {fifty}"), std::format!(" {fifty}\n{fifty}")),
    ] {
        assert_eq!(written(Style::Plain, &|columns| columns.write_str(&words)), lines);
    }
    let tabs = written(Style::Plain, &|columns| {
        columns.tab(0)?;
        columns.write_str("abc")?;
        columns.tab(2)?;
        columns.write_str("d")?;
        columns.tab(8)?;
        columns.write_str("e")
    });
    assert_eq!(tabs, "abc d   e");
    // A word that would also be too wide on the next line, after the indent, causes no line break.
    let wide = "b".repeat(99);
    let indented = written(Style::Plain, &|columns| {
        columns.indent = 2;
        columns.write_str("ab ")?;
        columns.write_str(&wide)
    });
    assert_eq!(indented, std::format!("ab {wide}"));
    for (role, code) in [
        (Role::Heading, "1"),
        (Role::Bytes, "2"),
        (Role::Name, "36"),
        (Role::Severity(Severity::Refused), "1;31"),
        (Role::Severity(Severity::Suspicious), "33"),
        (Role::Severity(Severity::Note), "34"),
    ] {
        let text = written(Style::Ansi, &|columns| columns.styled(role, format_args!("a")));
        assert_eq!(text, std::format!("\x1b[{code}ma\x1b[0m"));
    }
}

/// Each finding names its source. The source must be public code or a man page, because readers of the crate
/// cannot read the project's own files of requirements and notes.
#[test]
fn findings_name_sources_that_readers_have() {
    let is_code = |word: &str| {
        let rest = word.strip_prefix(['R', 'D', 'M']).unwrap_or_default();
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
    };
    for source in finding::SOURCES {
        let mut words = source.split([' ', ',']);
        assert!(!words.any(|word| is_code(word) || word.ends_with(".md") || word == "gap"), "{source}");
    }
}
