//! Commands that put a queue pair into the error state, reset it, or destroy it.

use crate::command::number_commands;
use crate::types::Qpn;

number_commands! {
    /// The command that puts a queue pair into the error state, so that the device flushes all outstanding
    /// requests (2ERR_QP).
    QpToError(Qpn) = TO_ERR_QP;
    /// The command that resets a queue pair (2RST_QP).
    QpToReset(Qpn) = TO_RST_QP;
    /// The command that destroys a queue pair (DESTROY_QP).
    DestroyQp(Qpn) = DESTROY_QP;
}
