//! SET_PSV requests: give a protection signature its start value.

use super::Sink;
use crate::mkey::{Plan, PsvStart};
use crate::wire::ctrl::ControlSegment;
use crate::wire::psv::SetPsvSegment;
use zerocopy::transmute;

/// Blocks of a SET_PSV request.
pub(crate) const BLOCKS: u32 = 1;

/// Control segment and payload, in octowords.
pub(crate) const OCTOWORDS: usize = 2;

/// Returns what gives a PSV of a plan its start value.
#[inline(always)]
pub(crate) const fn segment(plan: &Plan<'_>, start: &PsvStart) -> SetPsvSegment {
    SetPsvSegment::new(plan.psv(start.domain), start.value)
}

/// Hands on the request.
#[inline(always)]
pub(crate) fn set_psv(segment: SetPsvSegment, control: ControlSegment, sink: &mut impl Sink) {
    sink.put(transmute!(control));
    sink.put(transmute!(segment));
}
