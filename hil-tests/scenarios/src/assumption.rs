//! Assumptions about devices: behaviour that a scenario relies on although no public source states it. This
//! module compares an assumption with the behaviour of the board. A software device of this repository must
//! behave as assumed; hardware may differ. The report contains the observed behaviour.

use crate::board::Board;
use alloc::string::{String, ToString};
use core::fmt::{Debug, Display};

/// Compares `found`, the observed behaviour of a board, with `expected`, the behaviour that a scenario
/// assumes. Records `found` under the name `what` for the report. Returns whether both are equal. On hardware
/// a difference is no failure: the scenario then skips the steps that depend on the assumption.
///
/// # Errors
/// A description of the difference, if the board is no hardware.
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
