//! Requests that move data.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::types::Key;
use crate::wire::blocks_of;
use crate::wire::ctrl::Opcode;
use crate::wqe::data_path::{DataPath, Operands};
use crate::wqe::error::PostError;
use crate::wqe::{Local, MaskedAtomic, Payload, Remote, Sge};

/// The number of bytes that an atomic without masks changes.
const ATOMIC_BYTES: u32 = 8;

impl SendRequest<'_, '_> {
    /// Sends a message.
    ///
    /// # Errors
    /// [`PostError::TooManySges`], [`PostError::InlineTooLong`], [`PostError::SgeEmpty`],
    /// [`PostError::SgeTooLong`], [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn send<'p>(self, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        self.data_path_call(RequestKind::Send, DataPath::new(Opcode::SEND, payload.into()))
    }

    /// Sends a message with 32 bits of immediate data, which the receiver's completion contains. `imm` is a
    /// number (`imm_data` of libibverbs is big endian).
    ///
    /// # Errors
    /// The errors of [`SendRequest::send`].
    pub fn send_imm<'p>(self, imm: u32, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        let request = DataPath { imm, ..DataPath::new(Opcode::SEND_IMM, payload.into()) };
        self.data_path_call(RequestKind::Send, request)
    }

    /// Sends a message that also makes the receiver's device take one of the receiver's keys out of service.
    ///
    /// # Errors
    /// The errors of [`SendRequest::send`].
    pub fn send_invalidate<'p>(self, key: Key, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        let request = DataPath { imm: key.get(), ..DataPath::new(Opcode::SEND_INVAL, payload.into()) };
        self.data_path_call(RequestKind::Send, request)
    }

    /// Writes to the peer's memory.
    ///
    /// # Errors
    /// The errors of [`SendRequest::send`].
    // Inlined: with a call, posting an RDMA WRITE takes 50 % more instructions (x86-64).
    #[inline]
    pub fn rdma_write<'p>(self, remote: Remote, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        let request = DataPath { remote: Some(remote), ..DataPath::new(Opcode::RDMA_WRITE, payload.into()) };
        self.data_path(RequestKind::RdmaWrite, request)
    }

    /// Writes to the peer's memory, and completes one of the peer's receive requests, whose completion
    /// contains the 32 bits of `imm`. `imm` is a number (`imm_data` of libibverbs is big endian).
    ///
    /// # Errors
    /// The errors of [`SendRequest::send`].
    pub fn rdma_write_imm<'p>(
        self,
        remote: Remote,
        imm: u32,
        payload: impl Into<Payload<'p>>,
    ) -> Result<(), PostError> {
        let request =
            DataPath { remote: Some(remote), imm, ..DataPath::new(Opcode::RDMA_WRITE_IMM, payload.into()) };
        self.data_path_call(RequestKind::RdmaWrite, request)
    }

    /// Reads from the peer's memory.
    ///
    /// # Errors
    /// The errors of [`SendRequest::send`].
    pub fn rdma_read(self, remote: Remote, sges: &[Sge]) -> Result<(), PostError> {
        let request =
            DataPath { remote: Some(remote), ..DataPath::new(Opcode::RDMA_READ, Payload::Sges(sges)) };
        self.data_path_call(RequestKind::RdmaRead, request)
    }

    /// Writes `swap` to 8 bytes of the peer's memory if they hold `compare`. The old value arrives in 8 bytes
    /// at `old`.
    ///
    /// The address must be a multiple of 8. The device refuses other addresses; this call does not check
    /// them.
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn compare_swap(self, remote: Remote, compare: u64, swap: u64, old: Local) -> Result<(), PostError> {
        let operands = Operands { swap_add: swap, compare };
        self.atomic(RequestKind::CompareSwap, Opcode::ATOMIC_CS, remote, operands, old)
    }

    /// Adds `add` to 8 bytes of the peer's memory. The old value arrives in 8 bytes at `old`. The rule for
    /// the address is that of [`SendRequest::compare_swap`].
    ///
    /// # Errors
    /// The errors of [`SendRequest::compare_swap`].
    pub fn fetch_add(self, remote: Remote, add: u64, old: Local) -> Result<(), PostError> {
        let operands = Operands { swap_add: add, compare: 0 };
        self.atomic(RequestKind::FetchAdd, Opcode::ATOMIC_FA, remote, operands, old)
    }

    /// Changes 4 or 8 bytes of the peer's memory under masks. The old value arrives in as many bytes at
    /// `old`. An old value of 8 bytes has the byte order of [`SendRequest::compare_swap`], one of 4 bytes is
    /// in big endian (UCX `ext_atomic_arg_sizes_be`).
    ///
    /// The address must be a multiple of the atomic's length ([`MaskedAtomic::bytes`]). The device refuses
    /// other addresses; this call does not check them. The device must have masked atomics
    /// ([`AtomicCapabilities::masked`](crate::command::AtomicCapabilities::masked)), and the peer's queue
    /// pair must allow them ([`QpAccess::masked_atomic`](crate::command::QpAccess)). The request completes as
    /// [`RequestKind::CompareSwap`] or [`RequestKind::FetchAdd`].
    ///
    /// # Errors
    /// The errors of [`SendRequest::compare_swap`].
    pub fn masked_atomic(
        mut self,
        remote: Remote,
        atomic: MaskedAtomic,
        old: Local,
    ) -> Result<(), PostError> {
        let kind = if atomic.swaps() { RequestKind::CompareSwap } else { RequestKind::FetchAdd };
        self.post_other(kind, atomic.blocks(), |blocks, fields| {
            atomic.write(blocks, fields, remote, old);
            Ok(())
        })
    }

    /// Posts a NOP: a request without effect, which completes if it is signalled.
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn nop(self) -> Result<(), PostError> {
        self.data_path_call(RequestKind::Nop, DataPath::new(Opcode::NOP, Payload::Sges(&[])))
    }

    /// Posts an atomic of 8 bytes without masks.
    fn atomic(
        self,
        kind: RequestKind,
        opcode: Opcode,
        remote: Remote,
        operands: Operands,
        old: Local,
    ) -> Result<(), PostError> {
        let sges = [old.sge(ATOMIC_BYTES)];
        let (remote, atomic) = (Some(remote), Some(operands));
        let request = DataPath { remote, atomic, ..DataPath::new(opcode, Payload::Sges(&sges)) };
        self.data_path_call(kind, request)
    }

    /// Does the same as [`SendRequest::data_path`], but is compiled once for all its callers. RDMA WRITE does
    /// not use this function, because the call would slow it down too much.
    fn data_path_call(self, kind: RequestKind, request: DataPath<'_>) -> Result<(), PostError> {
        self.data_path(kind, request)
    }

    /// Posts a data-path request.
    #[inline(always)]
    fn data_path(self, kind: RequestKind, mut request: DataPath<'_>) -> Result<(), PostError> {
        if !self.state.has_room_for_payload(&request.payload) {
            return Err(self.state.too_much(&request.payload));
        }
        self.state.ring.post(self.id, self.flags, kind, blocks_of(request.octowords()), 0, &mut request)
    }
}
