//! Tests the page that `decode` draws: its HTML is well formed, and it shows the fields and findings that the
//! library's module `inspect` reports.

use super::options::Options;
use super::reading::Reading;
use super::*;
use mlx5_mkey::inspect::{DeviceContext, Requests, SegmentKind, WorkRequest};
use mlx5_mkey::mkey::XtsEngine;
use roxmltree::{Document, Node};
use std::collections::BTreeSet;
use xtask_parsers::hex::Logged;

/// Parses a page. A page that is not well-formed XML is refused: each tag must be closed in order.
fn parsed(page: &str) -> Document<'_> {
    Document::parse(page.strip_prefix("<!DOCTYPE html>\n").expect("a doctype")).expect("well-formed XML")
}

/// Checks that a page is well formed, that each link has a target, and that the page needs no external files.
fn well_formed(page: &str) {
    let (mut ids, mut links) = (BTreeSet::new(), BTreeSet::new());
    for element in parsed(page).descendants().filter(Node::is_element) {
        let name = element.tag_name().name();
        assert!(!["script", "link", "img", "iframe", "object"].contains(&name), "{name}");
        for attribute in element.attributes() {
            let value = attribute.value().to_owned();
            match attribute.name() {
                "id" => assert!(ids.insert(value.clone()), "{value} stands twice"),
                "href" => drop(links.insert(value.strip_prefix('#').expect("a link in the page").to_owned())),
                "class" | "title" | "style" | "lang" | "charset" | "name" | "content" => {}
                name => panic!("attribute {name}"),
            }
        }
    }
    assert!(links.is_subset(&ids), "{:?}", links.difference(&ids));
    for outside in ["http", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

/// The content of a request's card on the page.
struct Card {
    words: String,
    /// The digits of all bytes on the card.
    bytes: String,
    /// The name and the value of each field.
    fields: Vec<(String, String)>,
    /// The severity and the text of each finding.
    findings: Vec<(String, String)>,
    /// The tapes (drawings of consecutive bytes) by the name of their side. Each part of a tape has a CSS
    /// class and a text.
    tapes: Vec<(String, Vec<(String, String)>)>,
    dumps: String,
}

/// Returns the whole text of an element.
fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

/// Returns the text of an element without the texts of other elements in it.
fn own_text(node: Node<'_, '_>) -> String {
    node.children().filter(Node::is_text).filter_map(|node| node.text()).map(str::trim).collect()
}

fn class<'n>(node: &Node<'n, '_>) -> &'n str {
    node.attribute("class").unwrap_or_default()
}

fn cards(page: &str) -> Vec<Card> {
    let page = parsed(page);
    let card = |article: Node<'_, '_>| {
        let all = |name| article.descendants().filter(move |node| node.has_tag_name(name));
        let of_class = |wanted| article.descendants().filter(move |node| class(node) == wanted);
        let bytes = of_class("row").flat_map(|row| row.children().filter(|node| class(node) != "at"));
        let field = |row: Node<'_, '_>| {
            let cells: Vec<String> = row.children().map(text).collect();
            (cells[2].clone(), cells[3].clone())
        };
        let side = |side: Node<'_, '_>| {
            let within = |name| side.descendants().filter(move |node| node.has_tag_name(name));
            let name = within("b").map(text).collect();
            (name, within("i").map(|cell| (class(&cell).to_owned(), text(cell))).collect())
        };
        Card {
            words: all("h3").map(text).collect(),
            bytes: bytes.map(text).collect::<String>().replace(' ', ""),
            fields: all("tr").map(field).collect(),
            findings: all("li").map(|item| (class(&item).to_owned(), own_text(item))).collect(),
            tapes: of_class("side").map(side).collect(),
            dumps: all("pre").map(text).collect(),
        }
    };
    page.descendants().filter(|node| node.has_tag_name("article")).map(card).collect()
}

/// Draws a page, and checks that it is well formed.
fn drawn(input: &Input, options: &Options) -> String {
    let pieces = pieces::pieces(input, options.reading, options.queue).expect("pieces");
    let page = page::page("<a & b>", &pieces, options).expect("a page");
    well_formed(&page);
    page
}

/// Returns a request that a log shows at this place.
fn logged(place: &str, bytes: &[u8]) -> Logged {
    Logged { place: place.into(), bytes: bytes.to_vec(), ..Logged::default() }
}

/// Returns a ring with three requests: the configuration of an mkey over two blocks with T10-DIF and AES-XTS
/// on the wire, an RDMA WRITE through this mkey, and a SEND of bytes that HTML has to escape.
fn ring() -> Vec<u8> {
    let text = concat!(
        // A UMR of 5 blocks: control segment, UMR control segment, mkey context, two entries, both BSFs.
        "00000025 00012414 00000000 00001234 80000000 00040008 00000000 203c3201",
        "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        "00003000 ffffff34 00000000 44000000 00000000 00000000 00000000 00000400",
        "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        "00000100 00567800 00000000 00001000 00000300 00567800 00000000 00009000",
        "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        "c0ff0100 ffffffff 00000022 00000000 00000000 00000000 00000000 00000000",
        "c0000003 00000002 01880000 0040ffff 00000000 00000000 00000000 00000000",
        "c1000000 ffffffff 02000000 00000000 00000000 00000000 00000000 00000007",
        "00000099 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        "00000508 00012403 00000028 00000000 00007f00 00001000 00009900 00000000",
        "00000410 00001234 00000000 00000000 00000000 00000000 00000000 00000000",
        "0000060a 00012402 00000008 00000000 80000007 3c683126 223e2700 00000000",
    );
    hex::parse(text).expect("hex")
}

#[test]
fn each_request_is_a_card_with_all_that_inspect_says() {
    let bytes = ring();
    let options = Options {
        device: DeviceContext { engine: Some(XtsEngine::MultiBlock), ..DeviceContext::UNKNOWN },
        ..Options::default()
    };
    let page = drawn(&Input::Bytes(bytes.clone()), &options);
    let cards = cards(&page);
    let requests: Vec<WorkRequest<'_>> = Requests::new(&bytes).map(|(_, request)| request).collect();
    assert_eq!(cards.len(), requests.len());
    for (card, request) in cards.iter().zip(&requests) {
        assert_eq!(card.words, request.summary(options.device).to_string());
        // The page shows consecutive padding as one line.
        let (mut digits, mut before) = (String::new(), SegmentKind::Control);
        for segment in request.segments() {
            if (before, segment.kind) != (SegmentKind::Padding, SegmentKind::Padding) {
                digits.extend(segment.bytes.iter().map(|byte| format!("{byte:02x}")));
            }
            before = segment.kind;
        }
        assert_eq!(card.bytes, digits);
        let fields: Vec<(String, String)> = request
            .fields()
            .map(|field| (field.name.into(), field.with_engine(options.device.engine).to_string()))
            .collect();
        assert_eq!(card.fields, fields);
        let mut findings = Vec::new();
        request.findings(&options.device, |finding| findings.push(finding.problem));
        findings.sort_by_key(|problem| std::cmp::Reverse(problem.severity()));
        let found = findings.iter().map(|problem| (problem.severity().name().into(), problem.to_string()));
        assert_eq!(card.findings, found.collect::<Vec<(String, String)>>());
    }
}

/// Converts the parts of a tape, each with class and text, to the type of `Card::tapes`.
fn tape(parts: &[(&str, &str)]) -> Vec<(String, String)> {
    parts.iter().map(|(class, text)| ((*class).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn both_sides_are_drawn_in_bytes() {
    let page = drawn(&Input::Bytes(ring()), &Options::default());
    let cards = cards(&page);
    let signed = [("bytes encrypted", "512"), ("signature encrypted", "8")].repeat(2);
    let side = |name: &str, parts: &[(&str, &str)]| (name.to_owned(), tape(parts));
    let wire = side("wire", &signed);
    let memory = [("bytes", "1024")];
    let ranges = side("ranges", &[("entry", "256"), ("entry", "768")]);
    assert_eq!(cards[0].tapes, [ranges, side("memory", &memory), wire.clone()]);
    // The mkey's memory belongs to this program, and the wire bytes arrive in the peer's memory.
    assert_eq!(cards[1].tapes, [side("here", &memory), wire, side("peer", &signed)]);
    let seven = [("bytes", "7")];
    assert_eq!(cards[2].tapes, [side("here", &seven), side("wire", &seven), side("peer", &seven)]);
    // In this ring the key of the WRITE has another tag: it is not the configured mkey's key.
    let mut bytes = ring();
    bytes[320 + 39] = 0x35;
    let other = &self::cards(&drawn(&Input::Bytes(bytes), &Options::default()))[1];
    assert_eq!(other.tapes[1].1, tape(&[("bytes", "1040")]));
    assert_eq!(cards[2].dumps, "000  3c683126 223e27                      <h1&\">'\n");
    assert!(page.contains("2 × (512 + 8 T10-DIF)<br/>AES-XTS in units of 520"), "{page}");
}

#[test]
fn memory_that_was_copied_stands_beside() {
    let folder = run::temporary("decode-memory").unwrap();
    let mut options = Options::default();
    for (name, address, bytes) in [("first", 0x0ff8, vec![0x61; 264]), ("second", 0x9000, vec![0x62; 768])] {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        options.memory.add(&format!("{address:#x}={}", file.display())).unwrap();
    }
    let page = drawn(&Input::Bytes(ring()), &options);
    for card in cards(&page).iter().take(2) {
        let lines: Vec<&str> = card.dumps.lines().collect();
        assert_eq!(lines.len(), 64, "{}", card.dumps);
        assert!(
            lines[15].ends_with("aaaaaaaaaaaaaaaa") && lines[16].starts_with("100  62626262"),
            "{}",
            card.dumps
        );
    }
    // In this ring the WRITE transfers the second block only, 520 bytes on the wire. In memory this block
    // begins in the middle of the second range.
    let mut bytes = ring();
    (bytes[320 + 34], bytes[320 + 35], bytes[320 + 46], bytes[320 + 47]) = (2, 8, 2, 8);
    let file = folder.path().join("third");
    std::fs::write(&file, [0x63; 512]).unwrap();
    let mut options = Options::default();
    options.memory.add(&format!("0x9100={}", file.display())).unwrap();
    let part = &cards(&drawn(&Input::Bytes(bytes), &options))[1];
    assert_eq!(part.tapes[0], ("here".to_owned(), tape(&[("bytes", "512")])));
    assert_eq!(part.tapes[1].1, tape(&[("bytes encrypted", "512"), ("signature encrypted", "8")]));
    assert_eq!(part.dumps.lines().count(), 32, "{}", part.dumps);
    assert!(part.dumps.lines().all(|line| line.ends_with("cccccccccccccccc")), "{}", part.dumps);
    assert!(options.memory.add("4096=x").is_err() && options.memory.add("0x1000").is_err());
}

#[test]
fn logs_empty_blocks_and_rests_have_their_places() {
    let nop = [0, 0, 1, 0, 0, 0, 0x40, 1, 0, 0, 0, 8, 0, 0, 0, 0];
    let log = ["mlx5_0 qp 0x40 block 1", "mlx5_0 qp 0x41 block 9"].map(|place| logged(place, &nop));
    let page = drawn(&Input::Log(log.to_vec()), &Options::default());
    assert!(
        page.contains("<small>mlx5_0 qp 0x41 block 9</small>") && page.contains("&lt;a &amp; b&gt;"),
        "{page}"
    );

    let bytes = [&ring()[..], &[0; 32], &[0; 64 * 17], &[0; 5]].concat();
    let page = drawn(&Input::Bytes(bytes), &Options::default());
    assert!(page.contains(">17 empty blocks from byte 0x1c0 on<"), "{page}");
    assert!(page.contains(">5 bytes are left over from byte 0x600 on<"), "{page}");

    let mut entry = vec![0; 64];
    (entry[55], entry[63]) = (4, 0xd0);
    let options = Options { reading: Some(Reading::Entries(None)), ..Options::default() };
    let page = drawn(&Input::Bytes(entry), &options);
    assert!(cards(&page)[0].words.starts_with("REQ_ERR: queue pair 0x0"), "{page}");
}

/// Random bytes as input make a well-formed page too.
#[test]
fn any_bytes_make_a_page() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..90 {
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let mut bytes: Vec<u8> = (0..1024).map(|_| random()).collect();
        let opcode = [0x25, 0x25, 0x08, 0x0a, 0x10, 0x11, 0x20, 0][round % 8];
        // These sizes place all segments inside of the request. In every third round, the bytes below make
        // two of the segments BSFs.
        (bytes[3], bytes[7], bytes[16], bytes[20], bytes[22]) = (opcode, 63, bytes[16] | 0x80, 0, 0);
        (bytes[21], bytes[23], bytes[31]) = (4, 8, bytes[31] | 1);
        if round % 3 == 0 {
            let bsf = [[0xc0, 0xff, 1, 1], [0xc0, 0xff, 0, 3], [0x50, 0xff, 0, 0]][round % 9 / 3];
            bytes[192..196].copy_from_slice(&bsf);
            (bytes[200], bytes[204]) = (0x42, 0x52);
            bytes[256..260].copy_from_slice(&[0xc1, (round % 4) as u8, 0, 0]);
            bytes[264] = 1 + (round % 6) as u8;
        }
        let ring = [bytes.clone(), ring()].concat();
        let whole = Input::Bytes(ring[..ring.len() / 64 * 64].to_vec());
        for reading in [None, Some(Reading::Entries(None))] {
            drawn(&whole, &Options { reading, ..Options::default() });
        }
        // Each round cuts the request at another length.
        let cut = logged("mlx5_0 qp 0x1 block 2", &ring[..16 + round * 9]);
        drawn(&Input::Log(vec![cut]), &Options::default());
    }
}
