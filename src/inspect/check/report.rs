//! The type through which the rules report findings.

use super::super::finding::{Finding, Problem};

/// Passes findings to a function of the caller.
pub(super) struct Report<'r>(pub(super) &'r mut dyn FnMut(Finding));

impl Report<'_> {
    pub(super) fn at(&mut self, offset: usize, problem: Problem) {
        (self.0)(Finding { offset, problem });
    }

    pub(super) fn when(&mut self, condition: bool, offset: usize, problem: Problem) {
        if condition {
            self.at(offset, problem);
        }
    }
}
