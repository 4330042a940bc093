//! What scenarios assume and no source says: our own devices must do it; what hardware does is told.

use crate::board::Board;
use alloc::string::{String, ToString};
use core::fmt::{Debug, Display};

/// Something that was measured: what, and the value.
pub type Finding = (String, String);

/// Holds what a board did against what a scenario assumes. Returns whether it did that, so that a scenario can end where the rest
/// of it follows from the assumption. On hardware the value is told, whatever it is, and fails nothing.
///
/// # Errors
/// On any other board, that it did something else.
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
