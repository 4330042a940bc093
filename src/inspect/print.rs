//! Prints a request or a completion entry as a page of text.

use super::columns::{Columns, Role, Style};
use super::cqe::CompletionEntry;
use super::device_context::DeviceContext;
use super::finding::Finding;
use super::request::WorkRequest;
use super::segment::Segment;
use crate::mkey::XtsEngine;
use crate::wire::OCTOWORD_BYTES;
use core::fmt::{self, Write};

/// The column at which the fields begin, to the right of the bytes. Before it are the offset (5 columns), a
/// gap (2), four groups of eight digits (35), and a gap (2).
const FIELDS_COLUMN: usize = 44;

/// Number of columns for the name of a field.
const NAME_WIDTH: usize = 22;

/// Prints a page: a heading in words, the bytes with their fields, and the findings.
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
        // Beside the first line of a segment stands the segment's name. Beside each later line stands the
        // first field of the line's bytes.
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

/// A request or a completion entry as a page of text. [`WorkRequest::pretty`] and [`CompletionEntry::pretty`]
/// return this type.
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
                page(columns, &entry.summary(*stride), entry.segments(), None, |report| {
                    entry.findings(report)
                })
            }
        }
    }
}

impl<'a> WorkRequest<'a> {
    /// Returns the request as a page of text in at most 100 columns. The page has a heading in words, 16
    /// bytes on a line with their fields beside them, and the findings.
    pub const fn pretty(&self, device: DeviceContext, style: Style) -> Pretty<'a> {
        Pretty { what: What::Request(*self, device), style }
    }
}

/// Prints [`WorkRequest::pretty`] without colours, for an unknown device.
impl fmt::Display for WorkRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pretty(DeviceContext::UNKNOWN, Style::Plain).fmt(f)
    }
}

impl<'a> CompletionEntry<'a> {
    /// Returns the entry as a page of text, like [`WorkRequest::pretty`]. [`CompletionEntry::summary`]
    /// describes `stride`.
    pub const fn pretty(&self, stride: Option<u32>, style: Style) -> Pretty<'a> {
        Pretty { what: What::Entry(*self, stride), style }
    }
}

/// Prints [`CompletionEntry::pretty`] without colours and without a stride.
impl fmt::Display for CompletionEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pretty(None, Style::Plain).fmt(f)
    }
}

crate::fmt::defmt_as_text!(Pretty<'a>);
