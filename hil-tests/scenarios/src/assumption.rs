//! Checks assumptions of scenarios that no public source states. The software devices of this repository must
//! behave as assumed. The behaviour of hardware is only recorded.

use crate::board::Board;
use alloc::string::{String, ToString};
use core::fmt::{Debug, Display};

/// Compares `found`, the behaviour of a board, with `expected`, the behaviour that a scenario assumes.
/// Returns whether both agree, and records the found value for the report. If they differ, the scenario skips
/// the steps that depend on the assumption. On hardware a difference is no failure.
///
/// # Errors
/// A description of the difference, on any other board.
pub fn assumed<T: Debug + PartialEq>(
    board: &mut dyn Board,
    what: impl Display,
    found: T,
    expected: T,
) -> Result<bool, String> {
    let holds = found == expected;
    let value = if holds {
        format!("{found:x?}, as assumed")
    } else {
        format!("{found:x?}, not as assumed: {expected:x?}")
    };
    board.findings().push((what.to_string(), value));
    if holds || board.capabilities().hardware {
        return Ok(holds);
    }
    Err(format!("{what}: {found:x?}, assumed {expected:x?}"))
}
