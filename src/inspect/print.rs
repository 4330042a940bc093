//! Prints a request or a completion entry within 100 columns.

use super::cqe::CompletionEntry;
use super::data_path::{DataPath, DataSegmentView};
use super::device_context::DeviceContext;
use super::finding::{Finding, Severity};
use super::request::{Body, WorkRequest};
use super::segment::Segment;
use super::tweak::print_tweak;
use super::umr::{LayoutView, Umr};
use crate::mkey::{Access, BlockSignature, Crypto, Domain, Escape, Guard, Keytag, Signature, XtsEngine};
use crate::types::Seed;
use crate::wire::OCTOWORD_BYTES;
use crate::wire::bsf::EncryptionOrder;
use crate::wire::ctrl::FmCeSe;
use core::fmt::{self, Write};

/// The widest line, in columns.
const WIDTH: usize = 100;

/// Column at which the fields begin, beside the bytes: offset (5), gap (2), four groups of eight digits (35), gap (2).
const FIELDS_COLUMN: usize = 44;

/// Columns that a field's name takes.
const NAME_WIDTH: usize = 22;

/// Whether the output has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Style {
    /// Text alone.
    #[default]
    Plain,
    /// Escape sequences of ECMA-48, as terminals know them.
    Ansi,
}

/// What a run of text is, for its colour.
#[derive(Clone, Copy)]
enum Role {
    Text,
    Heading,
    Bytes,
    Name,
    Severity(Severity),
}

impl Role {
    /// Returns the parameters of the escape sequence.
    const fn ansi(self) -> &'static str {
        match self {
            Self::Text => "0",
            Self::Heading => "1",
            Self::Bytes => "2",
            Self::Name => "36",
            Self::Severity(Severity::Refused) => "1;31",
            Self::Severity(Severity::Suspicious) => "33",
            Self::Severity(Severity::Note) => "34",
        }
    }
}

/// A writer that breaks lines between words, and counts columns without the colours.
struct Columns<'w> {
    out: &'w mut dyn Write,
    style: Style,
    /// Where lines go on that were broken.
    indent: usize,
    column: usize,
    /// Blanks that come before the next word, unless the line is broken there.
    blanks: usize,
    word: heapless::String<WIDTH>,
}

impl<'w> Columns<'w> {
    fn new(out: &'w mut dyn Write, style: Style) -> Self {
        Self { out, style, indent: 0, column: 0, blanks: 0, word: heapless::String::new() }
    }

    /// Writes the word that is waiting.
    fn flush(&mut self) -> fmt::Result {
        if self.word.is_empty() {
            return Ok(());
        }
        let length = self.word.chars().count();
        if self.column + self.blanks + length > WIDTH && self.column > self.indent {
            self.out.write_char('\n')?;
            (self.column, self.blanks) = (0, self.indent);
        }
        self.write_blanks()?;
        self.out.write_str(&self.word)?;
        self.column += length;
        self.word.clear();
        Ok(())
    }

    /// Writes the blanks before a word. One at a time: a width that is not constant can make the formatter panic.
    fn write_blanks(&mut self) -> fmt::Result {
        for _ in 0..self.blanks {
            self.out.write_char(' ')?;
        }
        self.column += self.blanks;
        self.blanks = 0;
        Ok(())
    }

    fn newline(&mut self) -> fmt::Result {
        self.flush()?;
        (self.column, self.blanks) = (0, 0);
        self.out.write_char('\n')
    }

    /// Goes on at a column, at least one blank further.
    fn tab(&mut self, column: usize) -> fmt::Result {
        self.flush()?;
        self.blanks = column.saturating_sub(self.column).max(usize::from(self.column > 0));
        Ok(())
    }

    fn styled(&mut self, role: Role, text: fmt::Arguments<'_>) -> fmt::Result {
        if self.style == Style::Plain {
            return self.write_fmt(text);
        }
        // Blanks stay outside, so that a line broken here is not coloured up to its edge.
        self.flush()?;
        self.write_blanks()?;
        write!(self.out, "\x1b[{}m", role.ansi())?;
        self.write_fmt(text)?;
        self.flush()?;
        write!(self.out, "\x1b[{}m", Role::Text.ansi())
    }
}

impl Write for Columns<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if character == ' ' {
                self.flush()?;
                self.blanks += 1;
            } else if self.word.push(character).is_err() {
                self.flush()?;
                let _ = self.word.push(character);
            }
        }
        Ok(())
    }
}

/// Prints a heading in words, the bytes with their fields, and the findings.
fn page<'a>(
    columns: &mut Columns<'_>,
    heading: &dyn fmt::Display,
    segments: impl Iterator<Item = Segment<'a>>,
    engine: Option<XtsEngine>,
    findings: impl FnOnce(&mut dyn FnMut(Finding)),
) -> fmt::Result {
    columns.indent = 2;
    columns.styled(Role::Heading, format_args!("{heading}"))?;
    columns.newline()?;
    for segment in segments {
        print_segment(columns, &segment, engine)?;
    }
    columns.indent = 4;
    let mut result = Ok(());
    findings(&mut |finding| {
        if result.is_ok() {
            result = print_finding(columns, &finding);
        }
    });
    result
}

fn print_segment(columns: &mut Columns<'_>, segment: &Segment<'_>, engine: Option<XtsEngine>) -> fmt::Result {
    columns.indent = FIELDS_COLUMN + NAME_WIDTH;
    let mut fields = segment.fields();
    let mut next = fields.next();
    for (number, line) in segment.bytes.chunks(OCTOWORD_BYTES).enumerate() {
        let offset = segment.offset + number * OCTOWORD_BYTES;
        columns.styled(Role::Bytes, format_args!("0x{offset:03x} "))?;
        for group in line.chunks(4) {
            columns.write_str(" ")?;
            group.iter().try_for_each(|byte| write!(columns, "{byte:02x}"))?;
        }
        // The first line of a segment has its name beside the bytes, others their first field.
        let mut beside = true;
        if number == 0 {
            columns.tab(FIELDS_COLUMN)?;
            columns.styled(Role::Heading, format_args!("{}", segment.kind.name()))?;
            if segment.kind.is_numbered() {
                write!(columns, " {}", segment.index)?;
            }
            beside = false;
        }
        while let Some(field) = next.filter(|field| field.offset < offset + line.len()) {
            if !beside {
                columns.newline()?;
            }
            beside = false;
            columns.tab(FIELDS_COLUMN)?;
            columns.styled(Role::Name, format_args!("{}", field.name))?;
            columns.tab(FIELDS_COLUMN + NAME_WIDTH)?;
            write!(columns, "{}", field.with_engine(engine))?;
            next = fields.next();
        }
        columns.newline()?;
    }
    Ok(())
}

fn print_finding(columns: &mut Columns<'_>, finding: &Finding) -> fmt::Result {
    let severity = finding.severity();
    columns.styled(Role::Severity(severity), format_args!("{}", severity.name()))?;
    write!(columns, " at {:#05x}: {} ({})", finding.offset, finding.problem, finding.problem.source())?;
    columns.newline()
}

/// A request or a completion entry as a page of text: made by [`WorkRequest::pretty`] and [`CompletionEntry::pretty`].
#[derive(Clone, Copy, Debug)]
pub struct Pretty<'a> {
    what: What<'a>,
    style: Style,
}

#[derive(Clone, Copy, Debug)]
enum What<'a> {
    Request(WorkRequest<'a>, DeviceContext),
    Entry(CompletionEntry<'a>, Option<u32>),
}

impl fmt::Display for Pretty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = &mut Columns::new(f, self.style);
        match &self.what {
            What::Request(request, device) => {
                let summary = request.summary(*device);
                page(columns, &summary, request.segments(), device.engine, |report| {
                    request.findings(device, report)
                })
            }
            What::Entry(entry, stride) => {
                let segments = core::iter::once(entry.segment());
                page(columns, &entry.summary(*stride), segments, None, |report| entry.findings(report))
            }
        }
    }
}

impl<'a> WorkRequest<'a> {
    /// Returns the request in words, on one line of any length.
    pub const fn summary(&self, device: DeviceContext) -> Summary<'a> {
        Summary { request: *self, device }
    }

    /// Returns the request as a page of text within 100 columns: a heading in words, the bytes, 16 on a line, with their
    /// fields beside them, and what was found.
    pub const fn pretty(&self, device: DeviceContext, style: Style) -> Pretty<'a> {
        Pretty { what: What::Request(*self, device), style }
    }
}

/// [`WorkRequest::pretty`] without colours, for a device of which nothing is known.
impl fmt::Display for WorkRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pretty(DeviceContext::UNKNOWN, Style::Plain).fmt(f)
    }
}

impl<'a> CompletionEntry<'a> {
    /// Returns the entry as a page of text, as [`WorkRequest::pretty`]; for the stride see [`CompletionEntry::summary`].
    pub const fn pretty(&self, stride: Option<u32>, style: Style) -> Pretty<'a> {
        Pretty { what: What::Entry(*self, stride), style }
    }
}

/// [`CompletionEntry::pretty`] without colours and without a stride.
impl fmt::Display for CompletionEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pretty(None, Style::Plain).fmt(f)
    }
}

/// A request in words: made by [`WorkRequest::summary`].
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    request: WorkRequest<'a>,
    device: DeviceContext,
}

crate::fmt::defmt_as_text!(Summary<'a>, Pretty<'a>);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = &self.request;
        match request.body() {
            Body::Configure(umr) => {
                f.write_str("UMR configure ")?;
                mkey(&umr, f)?;
                f.write_str(":")?;
                configuration(&umr, &self.device, f)?;
            }
            Body::Invalidate(umr) => {
                f.write_str("UMR invalidate ")?;
                mkey(&umr, f)?;
            }
            Body::SetPsv(segment) => {
                let value = segment.transient_signature.get();
                write!(f, "SET_PSV {:#08x}: start value {value:#018x}", segment.psv_index.get())?;
            }
            Body::DataPath(transfer) => data_path(&transfer, request.control().imm.get(), f)?,
            Body::Nop => f.write_str("NOP")?,
            Body::Unknown => write!(f, "{}, not decoded", request.opcode())?,
        }
        flags(request.control().flags(), f)
    }
}

fn flags(flags: FmCeSe, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match flags.fm() {
        FmCeSe::FM_NONE => {}
        FmCeSe::FM_SMALL => f.write_str(", small fence")?,
        FmCeSe::FM_FENCE => f.write_str(", fence")?,
        fm => write!(f, ", fence mode {fm}")?,
    }
    f.write_str(match flags.ce() {
        FmCeSe::CE_ALWAYS => ", signalled",
        FmCeSe::CE_EVENT => ", signalled with event",
        _ => "",
    })?;
    f.write_str(if flags.solicited() { ", solicited" } else { "" })
}

/// Prints index and tag; a tag that changes as the one it becomes.
fn mkey(umr: &Umr<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let key = umr.key();
    let tag = if umr.is_invalidate() { key.tag() } else { umr.tag().unwrap_or(key.tag()) };
    write!(f, "mkey {:#08x}/{tag:02x}", key.index().get())
}

fn configuration(umr: &Umr<'_>, device: &DeviceContext, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut comma = "";
    let mut separate = |f: &mut fmt::Formatter<'_>| {
        f.write_str(comma)?;
        comma = ",";
        f.write_str(" ")
    };
    if let Some(rights) = umr.access() {
        separate(f)?;
        access(rights, f)?;
    }
    if let Some(view) = umr.layout() {
        separate(f)?;
        layout(&view, umr.length(), f)?;
    }
    if let Some((offset, bsf)) = umr.signature_bsf() {
        separate(f)?;
        match umr.signature() {
            Ok(Some(block)) => signature(&block, f)?,
            Ok(None) => f.write_str("no signature")?,
            Err(_) => {
                write!(f, "unreadable signature at {offset:#x}, check mask {:#04x}", bsf.check_byte_mask)?
            }
        }
    }
    if let Some((offset, _)) = umr.crypto_bsf() {
        separate(f)?;
        match umr.crypto(device.engine.unwrap_or(XtsEngine::Unspecified)) {
            Ok(Some(properties)) => crypto(umr, &properties, device, f)?,
            _ => write!(f, "unreadable crypto at {offset:#x}")?,
        }
    }
    if umr.bsf_enable() == Some(false) {
        separate(f)?;
        f.write_str("BSFs off")?;
    }
    if let Some(count) = umr.error_count() {
        separate(f)?;
        write!(f, "error count {}", u8::from(count))?;
    }
    if comma.is_empty() { f.write_str(" nothing changes") } else { Ok(()) }
}

fn access(rights: Access, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let remote =
        [(Access::REMOTE_READ, "read"), (Access::REMOTE_WRITE, "write"), (Access::REMOTE_ATOMIC, "atomic")];
    f.write_str("access")?;
    if rights == Access::NONE {
        return f.write_str(" local read only");
    }
    let mut separator = " remote ";
    if rights.contains(Access::LOCAL_WRITE) {
        f.write_str(" local write")?;
        separator = " and remote ";
    }
    for (right, name) in remote {
        if rights.contains(right) {
            write!(f, "{separator}{name}")?;
            separator = "+";
        }
    }
    Ok(())
}

fn layout(view: &LayoutView<'_>, length: Option<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let plural = |count: usize| if count == 1 { "entry" } else { "entries" };
    let count = view.count();
    match view {
        LayoutView::List(_) => write!(f, "list of {count} {}", plural(count))?,
        LayoutView::Interleaved { header, .. } => {
            write!(f, "{count} interleaved {} x {}", plural(count), header.repeat_count.get())?;
        }
    }
    match length {
        Some(length) => write!(f, ", {length} bytes"),
        None => f.write_str(", length kept"),
    }
}

fn signature(block: &BlockSignature, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("memory ")?;
    domain(block.memory_domain(), f)?;
    f.write_str(", wire ")?;
    domain(block.wire_domain(), f)?;
    write!(f, ", check {:#04x}", block.check_mask())?;
    match (block.effective_copy_mask(), block.copy_mask()) {
        (Some(mask), None) => write!(f, ", copy {mask:#04x} (automatic)"),
        (Some(mask), Some(_)) => write!(f, ", copy {mask:#04x}"),
        (None, _) => Ok(()),
    }
}

const fn seed(seed: Seed) -> &'static str {
    match seed {
        Seed::Zeros => "seed 0",
        Seed::Ones => "seed ones",
    }
}

fn domain(domain: Option<Domain>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(Domain { signature, block_size }) = domain else { return f.write_str("none") };
    let size = block_size.bytes();
    match signature {
        Signature::T10Dif(dif) => {
            let guard = match dif.guard {
                Guard::Crc => "crc",
                Guard::IpChecksum => "checksum",
            };
            let (app, reference) = (dif.app_tag, dif.ref_tag);
            write!(f, "T10-DIF {guard}/{size} {} app {app:#06x} ref {reference:#010x}", seed(dif.seed))?;
            f.write_str(if dif.ref_remap { " growing" } else { "" })?;
            f.write_str(match dif.escape {
                Escape::Never => "",
                Escape::AppTag => " app escape",
                Escape::AppAndRefTag => " app+ref escape",
            })
        }
        Signature::Crc32(start) => write!(f, "CRC32/{size} {}", seed(start)),
        Signature::Crc32c(start) => write!(f, "CRC32C/{size} {}", seed(start)),
        Signature::Crc64Xp10(start) => write!(f, "CRC64-XP10/{size} {}", seed(start)),
    }
}

fn crypto(
    umr: &Umr<'_>,
    properties: &Crypto,
    device: &DeviceContext,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let Crypto { data_unit, dek, keytag, .. } = properties;
    let order = match properties.encryption_order() {
        EncryptionOrder::WIRE_SIGNATURE => "wire encrypted, signature inside",
        EncryptionOrder::MEMORY_SIGNATURE => "memory encrypted, signature inside",
        EncryptionOrder::RAW_WIRE => "wire encrypted, signature outside",
        _ => "memory encrypted, signature outside",
    };
    write!(f, "AES-XTS {order}, unit {}, DEK {dek}", data_unit.bytes())?;
    if let Some((_, bsf)) = umr.crypto_bsf() {
        f.write_str(", tweak ")?;
        print_tweak(bsf.xts_initial_tweak, device.engine, f)?;
    }
    if *keytag != Keytag::default() {
        write!(f, ", keytag {:#018x}", u64::from_be_bytes(keytag.0))?;
    }
    Ok(())
}

fn data_path(transfer: &DataPath<'_>, imm: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use crate::wire::ctrl::Opcode;
    write!(f, "{}", transfer.opcode())?;
    match transfer.opcode() {
        Opcode::SEND_IMM | Opcode::RDMA_WRITE_IMM => write!(f, " imm {imm:#010x}")?,
        Opcode::SEND_INVAL => write!(f, " invalidating {imm:#010x}")?,
        _ => {}
    }
    f.write_str(": ")?;
    let segments = transfer.data_segments().count();
    let inline =
        transfer.data_segments().any(|(_, segment)| matches!(segment, DataSegmentView::Inline { .. }));
    write!(f, "{} bytes in {segments}", transfer.length())?;
    f.write_str(if inline { " inline" } else { "" })?;
    f.write_str(if segments == 1 { " data segment" } else { " data segments" })?;
    if let Some(remote) = transfer.remote() {
        write!(f, ", remote {:#x} key {:#010x}", remote.address.get(), remote.rkey.get())?;
    }
    if let Some(atomic) = transfer.atomic() {
        write!(f, ", operand {:#x}", atomic.swap_add.get())?;
        if transfer.opcode() == Opcode::ATOMIC_CS {
            write!(f, ", compare {:#x}", atomic.compare.get())?;
        }
    }
    Ok(())
}
