//! Decodes send work requests, and splits the bytes of a ring into requests.

use super::data_path::{DataPath, Memcpy};
use super::error::ParseError;
use super::field::Field;
use super::heads::heads;
use super::queue_kind::QueueKind;
use super::segment::{Segment, Segments, is_about_another_object, is_memcpy};
use super::sequence::{Place, Sequence};
use super::umr::Umr;
use crate::wire::ctrl::{ControlSegment, Opcode};
use crate::wire::psv::SetPsvSegment;
use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES};
use zerocopy::FromBytes;

/// A send work request, decoded from its bytes.
///
/// ```
/// use mlx5_mkey::inspect::{Body, DeviceContext, WorkRequest};
/// // A NOP in block 3 of queue pair 0x77, with a completion.
/// let bytes = [0, 0, 3, 0, 0, 0, 0x77, 1, 0, 0, 0, 8, 0, 0, 0, 0];
/// let request = WorkRequest::parse(&bytes)?;
/// assert!(matches!(request.body(), Body::Nop));
/// assert_eq!(request.summary(DeviceContext::UNKNOWN).to_string(), "NOP, signalled");
/// # Ok::<(), mlx5_mkey::inspect::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct WorkRequest<'a> {
    /// The bytes of the request: as many as its size field says, or all given bytes if they are fewer. There
    /// are at least 16.
    bytes: &'a [u8],
    control: &'a ControlSegment,
    queue: QueueKind,
    /// The result of comparing the request with the earlier requests of the ring.
    place: Place,
}

/// The operation of a request, with its decoded parts.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Body<'a> {
    /// The request changes an mkey.
    Configure(Umr<'a>),
    /// The request invalidates an mkey: the key then refuses all traffic.
    Invalidate(Umr<'a>),
    /// The request gives a PSV its start value.
    SetPsv(&'a SetPsvSegment),
    /// The request moves data, or has data segments for another purpose.
    DataPath(DataPath<'a>),
    /// The request copies memory, without a peer.
    Memcpy(Memcpy<'a>),
    /// The request does nothing.
    Nop,
    /// A block of zeros in a ring ([`Requests`]), to which no request was ever written.
    Unwritten,
    /// The request has another operation, whose name is known. [`WorkRequest::segments`] returns its parts,
    /// as far as they are known.
    Other,
    /// The request cannot be decoded: its operation is unknown, it ends within its fixed part, or decoding
    /// needs the kind of its queue, which was not set ([`WorkRequest::on_queue`]).
    Unknown,
}

impl<'a> WorkRequest<'a> {
    /// Reads the request that begins at the first byte. Bytes after the end of the request are ignored.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] for fewer than 16 bytes. [`WorkRequest::findings`] reports all other faults.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let too_short = ParseError::TooShort { have: bytes.len(), needed: OCTOWORD_BYTES };
        let (control, _) = ControlSegment::ref_from_prefix(bytes).map_err(|_| too_short)?;
        let length = usize::from(control.qpn_ds_word().ds()).max(1) * OCTOWORD_BYTES;
        let bytes = bytes.get(..length).unwrap_or(bytes);
        Ok(Self { bytes, control, queue: QueueKind::Unknown, place: Place::default() })
    }

    /// Sets the kind of queue that the request was posted to. The kind determines which segments follow the
    /// control segment.
    #[must_use]
    pub const fn on_queue(mut self, queue: QueueKind) -> Self {
        self.queue = queue;
        self
    }

    /// Returns the kind of queue that was set by [`WorkRequest::on_queue`].
    pub const fn queue(&self) -> QueueKind {
        self.queue
    }

    /// Returns how the request fits into the ring: whether its bytes are whole and were written, and whether
    /// its block number and queue pair agree with those of earlier requests.
    pub(super) const fn place(&self) -> &Place {
        &self.place
    }

    /// Returns whether decoding the request needs the kind of queue, which is unknown.
    pub(super) fn needs_queue_kind(&self) -> bool {
        let read_as = |queue| heads(self.opcode(), queue, self.bytes).is_some();
        self.queue == QueueKind::Unknown && !read_as(self.queue) && read_as(QueueKind::Connected)
    }

    /// Returns the bytes of the request: as many as its size field says, or all given bytes if they are
    /// fewer.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the control segment.
    pub const fn control(&self) -> &'a ControlSegment {
        self.control
    }

    /// Returns the code of the operation.
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.control.opcode_word().opcode())
    }

    /// Returns how many blocks of a ring the request takes according to its size field, at least 1.
    pub const fn blocks(&self) -> usize {
        let octowords = self.control.qpn_ds_word().ds() as usize;
        let blocks = octowords.div_ceil(WQEBB_BYTES / OCTOWORD_BYTES);
        if blocks == 0 { 1 } else { blocks }
    }

    /// Returns whether the request has fewer bytes than its size field says.
    pub(super) const fn is_truncated(&self) -> bool {
        self.control.qpn_ds_word().ds() as usize * OCTOWORD_BYTES > self.bytes.len()
    }

    /// Returns the operation of the request, with its decoded parts.
    pub fn body(&self) -> Body<'a> {
        match self.opcode() {
            _ if self.place.unwritten => Body::Unwritten,
            Opcode::NOP => Body::Nop,
            opcode if is_about_another_object(opcode, self.bytes) => Body::Other,
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
            Opcode::MMO if is_memcpy(self.bytes) => {
                Memcpy::new(self.bytes).map_or(Body::Unknown, Body::Memcpy)
            }
            opcode => match DataPath::new(opcode, self.queue, self.bytes) {
                Some(transfer) => Body::DataPath(transfer),
                None if self.is_cut_off() || self.needs_queue_kind() => Body::Unknown,
                None => opcode.name().map_or(Body::Unknown, |_| Body::Other),
            },
        }
    }

    /// Returns whether the request ends within the parts of a fixed size that stand before its data segments.
    fn is_cut_off(&self) -> bool {
        heads(self.opcode(), self.queue, self.bytes).is_some_and(|heads| self.bytes.len() < heads.end())
    }

    /// Iterates over the segments.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> + Clone + use<'a> {
        Segments::new(self.opcode(), self.queue, self.bytes)
    }

    /// Iterates over the fields of all segments, in the order of their bytes. Reserved fields that are zero
    /// are left out.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + Clone + use<'a> {
        self.segments().flat_map(|segment| segment.fields())
    }
}

/// An iterator that splits the bytes of a ring into requests. Each item is the offset of a request in bytes,
/// and the request.
///
/// Each request begins at the block after the last block of the request before it. A remainder of fewer than
/// 16 bytes ends the iteration. [`WorkRequest::findings`] reports a block number that does not continue the
/// numbers of the earlier requests, and a change of the queue pair. A block of zeros is [`Body::Unwritten`].
/// If the bytes end within the last request, only the missing bytes are reported.
///
/// The caller passes bytes in which no request wraps around the end.
/// [`SendQueue::block`](crate::queue::SendQueue::block) copies the blocks of a queue in order, even if its
/// ring wraps.
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
    queue: QueueKind,
    sequence: Sequence,
}

impl<'a> Requests<'a> {
    /// Creates an iterator over the requests in `bytes`. The first request begins at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        let sequence = Sequence::new(bytes.len() / WQEBB_BYTES);
        Self { rest: bytes, offset: 0, queue: QueueKind::Unknown, sequence }
    }

    /// Sets the kind of queue that the requests were posted to, see [`WorkRequest::on_queue`].
    #[must_use]
    pub const fn on_queue(mut self, queue: QueueKind) -> Self {
        self.queue = queue;
        self
    }
}

impl<'a> Iterator for Requests<'a> {
    /// The offset of a request in bytes, and the request.
    type Item = (usize, WorkRequest<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut request = WorkRequest::parse(self.rest).ok()?.on_queue(self.queue);
        request.place = self.sequence.next(self.offset / WQEBB_BYTES, request.control());
        let block = self.rest.get(..WQEBB_BYTES).unwrap_or(self.rest);
        request.place.unwritten = block.iter().all(|byte| *byte == 0);
        request.place.cut = request.is_truncated();
        let length = request.blocks() * WQEBB_BYTES;
        let offset = self.offset;
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.offset += length;
        Some((offset, request))
    }
}
