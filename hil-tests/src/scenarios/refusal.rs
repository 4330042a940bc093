//! Stub.
pub(super) const ALL: &[super::Scenario] = &[];
