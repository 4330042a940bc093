//! SET_PSV requests: give a protection signature its start value.

use super::Sink;
use crate::wire::ctrl::ControlSegment;
use crate::wire::psv::SetPsvSegment;
use zerocopy::big_endian::U64;
use zerocopy::transmute;

/// Blocks of a SET_PSV request.
pub(crate) const BLOCKS: usize = 1;

/// Control segment and payload, in octowords.
pub(crate) const OCTOWORDS: usize = 2;

/// Returns what gives a PSV its start value; its number stands as a segment begins with it.
#[inline(always)]
pub(crate) const fn segment(psv: U64, start: U64) -> SetPsvSegment {
    transmute!([psv, start])
}

/// Hands on the request.
#[inline(always)]
pub(crate) fn set_psv(segment: SetPsvSegment, control: ControlSegment, sink: &mut impl Sink) {
    sink.put(control);
    sink.put(segment);
}
