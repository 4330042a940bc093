//! The end of a queue pair: in error, reset or destroyed.

use crate::command::number_commands;
use crate::types::Qpn;

number_commands! {
    /// Puts a queue pair into error: everything outstanding is flushed (2ERR_QP).
    QpToError(Qpn) = TO_ERR_QP;
    /// Resets a queue pair (2RST_QP).
    QpToReset(Qpn) = TO_RST_QP;
    /// Destroys a queue pair (DESTROY_QP).
    DestroyQp(Qpn) = DESTROY_QP;
}
