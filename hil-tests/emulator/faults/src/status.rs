//! Statuses of failed requests.

use crate::kinds::kinds;
use std::fmt;

kinds! {
    /// The status of a work completion that reports a failure (`enum ibv_wc_status`). The list has all
    /// statuses that libmlx5 reports for requests.
    Status;
    /// Returns the status's name in libibverbs, without `IBV_WC_`.
    name;
    /// A request is longer than its buffers, or than a message may be.
    LocalLength "LOC_LEN_ERR" = 0x01,
    /// The queue pair cannot execute the request.
    LocalQueuePair "LOC_QP_OP_ERR" = 0x02,
    /// A local key does not allow the access.
    LocalProtection "LOC_PROT_ERR" = 0x04,
    /// The request was never executed.
    Flushed "WR_FLUSH_ERR" = 0x05,
    /// A memory window could not be bound, or an mkey could not be configured.
    Bind "MW_BIND_ERR" = 0x06,
    /// The answer of the peer does not fit the request.
    BadResponse "BAD_RESP_ERR" = 0x10,
    /// A receive request ends because the peer has accessed memory that it may not access.
    LocalAccess "LOC_ACCESS_ERR" = 0x11,
    /// The peer refuses the request as invalid.
    RemoteInvalidRequest "REM_INV_REQ_ERR" = 0x12,
    /// The peer's key does not allow the access.
    RemoteAccess "REM_ACCESS_ERR" = 0x13,
    /// The peer cannot complete the request.
    RemoteOperation "REM_OP_ERR" = 0x14,
    /// The peer did not answer, even after all retries.
    RetriesExceeded "RETRY_EXC_ERR" = 0x15,
    /// The peer had no receive request, even after all retries.
    NotReadyRetriesExceeded "RNR_RETRY_EXC_ERR" = 0x16,
    /// The peer has aborted the request.
    RemoteAborted "REM_ABORT_ERR" = 0x22,
    /// The completion reports an error that libmlx5 does not know.
    General "GENERAL_ERR" = 0x99,
}

impl Status {
    /// Returns the syndrome of the completion entry that libmlx5 reads as this status
    /// (`mlx5_handle_error_cqe` of rdma-core).
    pub const fn syndrome(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
