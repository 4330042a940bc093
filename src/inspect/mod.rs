//! Bytes to words: what a work request or a completion entry says, in the user's terms, and what a device would refuse in it.
//!
//! The bytes may come from anywhere: a ring, a trace, another library, an attacker. Nothing here trusts them, panics, or
//! reads past their end; what makes no sense becomes a [`Finding`].
//!
//! ```
//! use mlx5_mkey::inspect::{Body, DeviceContext, Severity, WorkRequest};
//! // Takes mkey index 0x12 out of service, as queue pair 0x40, and gets a completion.
//! let mut bytes = [0; 128];
//! bytes[..16].copy_from_slice(&[0, 0, 0, 0x25, 0, 0, 0x40, 8, 0, 0, 0, 8, 0, 0, 0x12, 0]);
//! bytes[16] = 0x98;
//! bytes[24..32].copy_from_slice(&0x2000_6000_u64.to_be_bytes());
//! bytes[64..72].copy_from_slice(&[0x40, 0, 0, 0, 0xff, 0xff, 0xff, 0]);
//!
//! let request = WorkRequest::parse(&bytes)?;
//! let Body::Invalidate(umr) = request.body() else { panic!("{request}") };
//! assert_eq!(umr.key().index().get(), 0x12);
//! assert!(request.worst(&DeviceContext::UNKNOWN) < Some(Severity::Refused));
//! # Ok::<(), mlx5_mkey::inspect::ParseError>(())
//! ```

mod check;
pub mod cqe;
mod data_path;
mod field;
mod finding;
mod print;
mod segment;
mod umr;

#[cfg(test)]
mod tests;

pub use data_path::{DataPath, Piece};
pub use field::Field;
pub use finding::{Finding, Problem, Severity};
pub use print::{Pretty, Style, Summary};
pub use segment::{Segment, SegmentKind};
pub use umr::{LayoutView, Umr};

use crate::mkey::{SignatureCapabilities, XtsEngine};
use crate::wire::ctrl::{ControlSegment, Opcode};
use crate::wire::psv::SetPsvSegment;
use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES};
use core::fmt;
use zerocopy::FromBytes;

/// What is known of the device that a request is meant for. What is not known is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DeviceContext {
    /// Its AES-XTS engine, which settles a tweak's byte order and the longest mkey.
    pub engine: Option<XtsEngine>,
    /// The signatures that it knows.
    pub capabilities: Option<SignatureCapabilities>,
}

impl DeviceContext {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { engine: None, capabilities: None };
}

/// Bytes that are too few to be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ParseError {
    /// There are fewer bytes than the shortest request or completion entry has.
    TooShort {
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        needed: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { have, needed } => write!(f, "{have} bytes given, {needed} needed"),
        }
    }
}

impl core::error::Error for ParseError {}

/// A send work request, by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct WorkRequest<'a> {
    /// As long as the size field says, or as far as there are bytes; 16 at least.
    bytes: &'a [u8],
    control: &'a ControlSegment,
}

/// What a request does.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Body<'a> {
    /// Changes an mkey.
    Configure(Umr<'a>),
    /// Takes an mkey out of service.
    Invalidate(Umr<'a>),
    /// Gives a protection signature its start value.
    SetPsv(&'a SetPsvSegment),
    /// Moves data.
    DataPath(DataPath<'a>),
    /// Does nothing.
    Nop,
    /// Not known here, or cut off before its fixed part ends.
    Unknown,
}

impl<'a> WorkRequest<'a> {
    /// Takes up the request that begins at the first byte. Bytes behind its end are ignored.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] for fewer than 16 bytes. Everything else is for [`WorkRequest::findings`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let too_short = ParseError::TooShort { have: bytes.len(), needed: OCTOWORD_BYTES };
        let (control, _) = ControlSegment::ref_from_prefix(bytes).map_err(|_| too_short)?;
        let length = usize::from(control.qpn_ds_word().ds()).max(1) * OCTOWORD_BYTES;
        Ok(Self { bytes: bytes.get(..length).unwrap_or(bytes), control })
    }

    /// Returns the bytes of the request: as many as its size field says, or as there are.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the control segment.
    pub const fn control(&self) -> &'a ControlSegment {
        self.control
    }

    /// Returns what the request does, as a code.
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.control.opcode_word().opcode())
    }

    /// Returns how many 64-byte blocks of a ring the request says that it takes, at least 1.
    pub const fn blocks(&self) -> usize {
        let octowords = self.control.qpn_ds_word().ds() as usize;
        let blocks = octowords.div_ceil(WQEBB_BYTES / OCTOWORD_BYTES);
        if blocks == 0 { 1 } else { blocks }
    }

    /// Returns what the request does, in typed parts.
    pub fn body(&self) -> Body<'a> {
        match self.opcode() {
            Opcode::NOP => Body::Nop,
            Opcode::UMR => match Umr::new(self.bytes) {
                Some(umr) if umr.is_invalidate() => Body::Invalidate(umr),
                Some(umr) => Body::Configure(umr),
                None => Body::Unknown,
            },
            Opcode::SET_PSV => {
                let segment = self.bytes.get(OCTOWORD_BYTES..).map(SetPsvSegment::ref_from_prefix);
                match segment {
                    Some(Ok((segment, _))) => Body::SetPsv(segment),
                    _ => Body::Unknown,
                }
            }
            opcode => DataPath::new(opcode, self.bytes).map_or(Body::Unknown, Body::DataPath),
        }
    }

    /// Iterates over the segments.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> + Clone + use<'a> {
        segment::Segments::new(self.opcode(), self.bytes)
    }

    /// Iterates over the fields of all segments, in the order of their bytes; reserved ones only where they are not zero.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + Clone + use<'a> {
        self.segments().flat_map(|segment| segment.fields())
    }

    /// Reports what a device would refuse, and what else is odd.
    pub fn findings(&self, device: &DeviceContext, mut report: impl FnMut(Finding)) {
        check::request(self, device, &mut report);
    }

    /// Returns how bad the worst finding is, `None` if there is none.
    pub fn worst(&self, device: &DeviceContext) -> Option<Severity> {
        let mut worst = None;
        self.findings(device, |finding| worst = worst.max(Some(finding.severity())));
        worst
    }
}

/// Splits a run of bytes, as of a ring that does not wrap, into its requests: yields where each begins, in bytes, and the
/// request.
///
/// Each begins on a block of 64 bytes behind the one before, as the sizes say. A remainder of fewer than 16 bytes ends it.
/// [`SendQueue::block`](crate::queue::SendQueue::block) copies the blocks of a queue out, in order also where its ring wraps.
///
/// ```
/// use mlx5_mkey::inspect::{DeviceContext, Requests, Style};
/// // A NOP that asks for a completion, in block 0 of queue pair 0x77.
/// let ring = [0, 0, 0, 0, 0, 0, 0x77, 1, 0, 0, 0, 8, 0, 0, 0, 0];
/// let mut requests = Requests::new(&ring);
/// let (offset, request) = requests.next().ok_or("no request")?;
/// assert_eq!(offset, 0);
/// println!("{}", request.pretty(DeviceContext::default(), Style::Plain));
/// assert!(requests.next().is_none());
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Requests<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Requests<'a> {
    /// Splits these bytes, which begin with a request.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: 0 }
    }
}

impl<'a> Iterator for Requests<'a> {
    /// Where a request begins, in bytes, and the request.
    type Item = (usize, WorkRequest<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let request = WorkRequest::parse(self.rest).ok()?;
        let length = request.blocks() * WQEBB_BYTES;
        let offset = self.offset;
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.offset += length;
        Some((offset, request))
    }
}
