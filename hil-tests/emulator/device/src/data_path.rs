//! Moves data between memory and messages (wire bytes), for one key or for a list of data segments.

use crate::faults::Faults;
use crate::fetch::SendSegment;
use crate::memory::Memory;
use crate::object::Objects;
use crate::object::mkey::Mkey;
use crate::pipeline::{Output, Transform};
use crate::profile::DeviceProfile;
use crate::refusal::{Cause, Reason};
use crate::transaction::Running;
use crate::transfer::{BlockError, Span, room};
use crate::transform;
use crate::translate::{Asker, RANGE, Right, Walk, lookup};
use alloc::vec::Vec;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::data::DataSegment;

/// The results of a transfer for its mkey and for the mkey's PSVs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) mkey_index: u32,
    pub(crate) error: Option<BlockError>,
    pub(crate) running: Option<Running>,
}

/// A range of wire bytes in the space of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) key: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl Range {
    /// Returns the range of a data segment. A length of 0 means 2 GiB.
    pub(crate) fn of(segment: &DataSegment) -> Self {
        let length = match segment.byte_count.get() {
            0 => 1 << 31,
            count => u64::from(count),
        };
        Self { key: segment.lkey.get(), address: segment.address.get(), length }
    }
}

/// The state of the device that a transfer reads and does not change.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) profile: &'a DeviceProfile,
    pub(crate) faults: &'a Faults,
    pub(crate) asker: Asker,
}

/// A checked access: the key is valid, and the range is inside the key's space.
struct Plan<'a> {
    mkey: &'a Mkey,
    transform: Option<Transform<'a>>,
    span: Span,
    right: Right,
    key: u32,
}

impl Plan<'_> {
    /// Returns the cause of an error: its reason, and the key that the request named.
    fn cause(&self, reason: Reason) -> Cause {
        Cause { key: Some(self.key), reason }
    }
}

impl<'a> Path<'a> {
    /// Checks the key, the right and the range of an access before any byte moves.
    fn plan(&self, range: Range, right: Right) -> Result<Plan<'a>, Cause> {
        self.checked(range, right).map_err(|reason| Cause { key: Some(range.key), reason })
    }

    fn checked(&self, range: Range, right: Right) -> Result<Plan<'a>, Reason> {
        let Range { key, address, length } = range;
        let mkey = lookup(self.objects, self.asker, key, right, self.faults.of_key())?;
        let transform = transform::decode(mkey, self.objects, self.profile, self.faults)?;
        let before = Reason::BeforeStart { key, address, start: mkey.start };
        let offset = address.checked_sub(mkey.start).ok_or(before)?;
        let limit = u64::from(self.profile.max_message_bytes);
        if length > limit {
            return Err(Reason::MessageTooLong { length, limit });
        }
        let span = match &transform {
            Some(transform) => {
                transform.span(offset, range.length, self.profile.partial_blocks, self.faults)?
            }
            None => {
                Transform::default().span(offset, range.length, Default::default(), &Faults::default())?
            }
        };
        let plan = Plan { mkey, transform, span, right, key };
        if !self.faults.bad_entries_found_late {
            self.walk(&plan, |_, _| Ok(()))?;
        }
        Ok(plan)
    }

    fn walk(&self, plan: &Plan<'_>, visit: impl FnMut(u64, u64) -> Result<(), Reason>) -> Result<(), Reason> {
        let (objects, asker, faults) = (self.objects, self.asker, self.faults);
        let inner_right = if self.profile.inner_remote_rights { plan.right } else { plan.right.of_owner() };
        let limit = self.profile.max_ranges;
        let budget = u64::from(limit).saturating_mul(RANGE);
        let mut walk = Walk { objects, asker, inner_right, faults, budget, limit, visit };
        // Assumption: the mkey's length limits memory bytes, not wire bytes.
        walk.space(plan.key, plan.mkey, plan.span.memory_offset, plan.span.memory_length)
    }

    /// Reads a range, and returns its wire bytes.
    pub(crate) fn gather(
        &self,
        memory: &impl Memory,
        range: Range,
        right: Right,
    ) -> Result<(Vec<u8>, Option<Report>), Cause> {
        let plan = self.plan(range, right)?;
        self.read(memory, &plan).map_err(|reason| plan.cause(reason))
    }

    fn read(&self, memory: &impl Memory, plan: &Plan<'_>) -> Result<(Vec<u8>, Option<Report>), Reason> {
        let length = plan.span.memory_length;
        let length = usize::try_from(length).map_err(|_| Reason::NoRoom { length })?;
        let mut bytes = room(length)?;
        self.walk(plan, |address, length| {
            let appended = memory.append(address, length as usize, &mut bytes);
            appended.map_err(|_| Reason::NoMemory { address, length })
        })?;
        let Some(transform) = &plan.transform else { return Ok((bytes, None)) };
        let output = transform.transmit(&plan.span, bytes, self.faults)?;
        let report = report(plan.key, &output);
        Ok((output.bytes, report))
    }

    /// Writes wire bytes into a range of the same length.
    pub(crate) fn scatter(
        &self,
        memory: &mut impl Memory,
        range: Range,
        right: Right,
        wire: Vec<u8>,
    ) -> Result<Option<Report>, Cause> {
        let plan = self.plan(range, right)?;
        self.write(memory, &plan, wire).map_err(|reason| plan.cause(reason))
    }

    fn write(
        &self,
        memory: &mut impl Memory,
        plan: &Plan<'_>,
        wire: Vec<u8>,
    ) -> Result<Option<Report>, Reason> {
        let output = match &plan.transform {
            Some(transform) => transform.receive(&plan.span, wire, self.faults)?,
            None => Output { bytes: wire, error: None, running: None },
        };
        let mut rest = output.bytes.as_slice();
        self.walk(plan, |address, length| {
            let (part, tail) = rest.split_at_checked(length as usize).unwrap_or((rest, &[]));
            rest = tail;
            memory.write(address, part).map_err(|_| Reason::NoMemory { address, length })
        })?;
        Ok(report(plan.key, &output))
    }

    /// Gathers all data segments of a send request.
    pub(crate) fn gather_list(
        &self,
        memory: &impl Memory,
        segments: &[SendSegment],
    ) -> Result<(Vec<u8>, Vec<Report>), Cause> {
        let mut message = Vec::new();
        let mut reports = Vec::new();
        for segment in segments {
            let (bytes, report) = match segment {
                SendSegment::Inline(bytes) => (bytes.clone(), None),
                SendSegment::Memory(segment) => self.gather(memory, Range::of(segment), Right::LocalRead)?,
            };
            // Assumption: a message has data of at most one mkey with a transaction signature.
            let of_transaction = |report: &Report| report.running.is_some();
            if report.as_ref().is_some_and(of_transaction) && reports.iter().any(of_transaction) {
                return Err(Reason::TwoTransactions.into());
            }
            reports.extend(report);
            if message.is_empty() {
                message = bytes;
            } else {
                let length = bytes.len() as u64;
                message.try_reserve(bytes.len()).map_err(|_| Reason::NoRoom { length })?;
                message.extend_from_slice(&bytes);
            }
            let (length, limit) = (message.len() as u64, self.profile.max_message_bytes.into());
            if length > limit {
                return Err(Reason::MessageTooLong { length, limit }.into());
            }
        }
        Ok((message, reports))
    }

    /// Splits a message of `length` bytes into the ranges of a list of local buffers.
    fn cut(&self, segments: &[DataSegment], length: u64) -> Result<Vec<Range>, Reason> {
        let mut left = length;
        let mut ranges = Vec::new();
        for segment in segments {
            if left == 0 {
                break;
            }
            let mut range = Range::of(segment);
            range.length = range.length.min(left);
            left = left.saturating_sub(range.length);
            ranges.push(range);
        }
        if left > 0 { Err(Reason::BufferTooShort { length, room: length - left }) } else { Ok(ranges) }
    }

    /// Checks that a message of `length` bytes can be stored in a list of local buffers.
    pub(crate) fn check_list(&self, segments: &[DataSegment], length: u64) -> Result<(), Cause> {
        let mut transactions = 0u32;
        for range in self.cut(segments, length)? {
            let plan = self.plan(range, Right::LocalWrite)?;
            transactions =
                transactions.saturating_add(plan.transform.is_some_and(|it| it.transaction.is_some()).into());
        }
        // The same assumption as in `gather_list`: at most one mkey with a transaction signature.
        if transactions > 1 { Err(Reason::TwoTransactions.into()) } else { Ok(()) }
    }

    /// Returns the number of memory bytes that a message of `length` wire bytes takes in a list of local
    /// buffers.
    pub(crate) fn memory_bytes(&self, segments: &[DataSegment], length: u64) -> Result<u64, Cause> {
        let bytes = |range| Ok(self.plan(range, Right::LocalWrite)?.span.memory_length);
        self.cut(segments, length)?.into_iter().map(bytes).sum()
    }

    /// Stores a message in a list of local buffers. All buffers are checked before the first byte is written.
    pub(crate) fn scatter_list(
        &self,
        memory: &mut impl Memory,
        segments: &[DataSegment],
        message: Vec<u8>,
    ) -> Result<Vec<Report>, Cause> {
        let ranges = self.cut(segments, message.len() as u64)?;
        self.check_list(segments, message.len() as u64)?;
        let mut reports = Vec::new();
        if let [range] = ranges.as_slice() {
            reports.extend(self.scatter(memory, *range, Right::LocalWrite, message)?);
            return Ok(reports);
        }
        let mut rest = message.as_slice();
        for range in ranges {
            let short = Reason::BufferTooShort { length: rest.len() as u64, room: range.length };
            let (part, tail) = rest.split_at_checked(range.length as usize).ok_or(short)?;
            rest = tail;
            let mut bytes = room(part.len())?;
            bytes.extend_from_slice(part);
            reports.extend(self.scatter(memory, range, Right::LocalWrite, bytes)?);
        }
        Ok(reports)
    }
}

fn report(key: u32, output: &Output) -> Option<Report> {
    let Output { error, running, .. } = *output;
    (error.is_some() || running.is_some()).then(|| Report {
        mkey_index: Key::from_raw(key).index().get(),
        error,
        running,
    })
}
