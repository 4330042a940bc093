//! Checks assumptions of scenarios that no public source states. The software devices of this repository must
//! behave as assumed. The behaviour of hardware is only recorded.

use crate::board::Board;
use alloc::string::{String, ToString};
use core::fmt::{Debug, Display};

/// Compares `found`, the behaviour of a board, with `expected`, the behaviour that a scenario assumes.
/// Returns whether both agree. If they differ, the scenario skips the steps that depend on the assumption. On
/// hardware the found value is recorded for the report, and a difference is no failure.
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
    if board.capabilities().hardware {
        let value = if holds { "as assumed" } else { "not as assumed" };
        board.findings().push((what.to_string(), format!("{found:x?}, {value}")));
        return Ok(holds);
    }
    if holds { Ok(true) } else { Err(format!("{what}: {found:x?}, assumed {expected:x?}")) }
}
