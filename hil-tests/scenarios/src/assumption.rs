//! Assumptions of scenarios that no source states: our own devices must fulfil them, hardware is reported.

use crate::board::Board;
use alloc::string::{String, ToString};
use core::fmt::{Debug, Display};

/// Compares a board's behaviour with an assumption of a scenario. Returns whether they agree; a scenario ends
/// early if its rest depends on the assumption. On hardware the value is recorded and never a failure.
///
/// # Errors
/// On any other board, if the behaviour differs.
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
