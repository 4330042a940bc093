//! Requests that move data, and those that take a key out of service.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::error::PostError;
use crate::mkey::Mkey;
use crate::types::Key;
use crate::wire::blocks_of;
use crate::wire::ctrl::Opcode;
use crate::wqe::control::RequestFlags;
use crate::wqe::data_path::{DataPath, Operands};
use crate::wqe::{Payload, Remote, Sge, umr};

impl SendRequest<'_, '_> {
    /// Takes an mkey's key out of service: later use of it fails (`IBV_WR_LOCAL_INV`).
    ///
    /// Nothing of the mkey is kept: its next configuration must be complete.
    ///
    /// # Errors
    /// [`PostError::RingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate_mkey(self, mkey: &mut Mkey) -> Result<(), PostError> {
        self.invalidate(mkey.key())?;
        mkey.note_invalidated();
        Ok(())
    }

    /// Takes any local key out of service, a memory window's say. For an [`Mkey`] use [`SendRequest::invalidate_mkey`].
    ///
    /// # Errors
    /// [`PostError::RingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate(self, key: Key) -> Result<(), PostError> {
        let Self { state, in_flight, id, flags } = self;
        let (post, blocks) = (state.post(flags), umr::INVALIDATE_BLOCKS);
        umr::invalidate(state.reserve(1, blocks, in_flight)?, post, key);
        state.producer.commit_reserved(blocks);
        in_flight.file(post.begin, id, RequestKind::LocalInvalidate, blocks);
        state.note_posted(post.begin, RequestFlags::AFTER_UMR);
        Ok(())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`PostError`], also in the methods below: too many segments or bytes for the queue, a segment of no bytes, or no room.
    pub fn send<'p>(self, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        self.data_path(RequestKind::Send, &DataPath::new(Opcode::SEND, payload.into()))
    }

    /// Sends a message with 32 bits for the receiver's completion.
    ///
    /// # Errors
    /// As [`SendRequest::send`].
    pub fn send_imm<'p>(self, imm: u32, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        let request = DataPath { imm, ..DataPath::new(Opcode::SEND_IMM, payload.into()) };
        self.data_path(RequestKind::Send, &request)
    }

    /// Sends a message and has the receiver invalidate one of its keys.
    ///
    /// # Errors
    /// As [`SendRequest::send`].
    pub fn send_invalidate<'p>(self, key: Key, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        let request = DataPath { imm: key.get(), ..DataPath::new(Opcode::SEND_INVAL, payload.into()) };
        self.data_path(RequestKind::Send, &request)
    }

    /// Writes to the peer's memory.
    ///
    /// # Errors
    /// As [`SendRequest::send`].
    #[inline(always)]
    pub fn rdma_write<'p>(
        mut self,
        remote: Remote,
        payload: impl Into<Payload<'p>>,
    ) -> Result<(), PostError> {
        let request = DataPath { remote: Some(remote), ..DataPath::new(Opcode::RDMA_WRITE, payload.into()) };
        match (self.data_path_at_once(RequestKind::RdmaWrite, &request), request.payload) {
            (Some(()), _) => Ok(()),
            (None, Payload::Sges(sges)) => self.rdma_write_slowly(remote, sges),
            (None, Payload::Inline(_)) => self.data_path(RequestKind::RdmaWrite, &request),
        }
    }

    /// As [`SendRequest::data_path`]: a slice goes in registers.
    #[cold]
    #[inline(never)]
    fn rdma_write_slowly(self, remote: Remote, sges: &[Sge]) -> Result<(), PostError> {
        let payload = Payload::Sges(sges);
        let request = DataPath { remote: Some(remote), ..DataPath::new(Opcode::RDMA_WRITE, payload) };
        self.data_path(RequestKind::RdmaWrite, &request)
    }

    /// Writes to the peer's memory and completes one of its receive requests with 32 bits.
    ///
    /// # Errors
    /// As [`SendRequest::send`].
    pub fn rdma_write_imm<'p>(
        self,
        remote: Remote,
        imm: u32,
        payload: impl Into<Payload<'p>>,
    ) -> Result<(), PostError> {
        let request =
            DataPath { remote: Some(remote), imm, ..DataPath::new(Opcode::RDMA_WRITE_IMM, payload.into()) };
        self.data_path(RequestKind::RdmaWrite, &request)
    }

    /// Reads from the peer's memory.
    ///
    /// # Errors
    /// As [`SendRequest::send`].
    pub fn rdma_read(self, remote: Remote, sges: &[Sge]) -> Result<(), PostError> {
        let request =
            DataPath { remote: Some(remote), ..DataPath::new(Opcode::RDMA_READ, Payload::Sges(sges)) };
        self.data_path(RequestKind::RdmaRead, &request)
    }

    /// Writes `swap` to 8 bytes of the peer's memory if they hold `compare`; the old value arrives in `sge`.
    ///
    /// # Errors
    /// As [`SendRequest::send`].
    pub fn compare_swap(self, remote: Remote, compare: u64, swap: u64, sge: &Sge) -> Result<(), PostError> {
        let atomic = Some(Operands { swap_add: swap, compare });
        let payload = Payload::Sges(core::slice::from_ref(sge));
        let request = DataPath { remote: Some(remote), atomic, ..DataPath::new(Opcode::ATOMIC_CS, payload) };
        self.data_path(RequestKind::CompareSwap, &request)
    }

    /// Adds `add` to 8 bytes of the peer's memory; the old value arrives in `sge`.
    ///
    /// # Errors
    /// As [`SendRequest::send`].
    pub fn fetch_add(self, remote: Remote, add: u64, sge: &Sge) -> Result<(), PostError> {
        let atomic = Some(Operands { swap_add: add, compare: 0 });
        let payload = Payload::Sges(core::slice::from_ref(sge));
        let request = DataPath { remote: Some(remote), atomic, ..DataPath::new(Opcode::ATOMIC_FA, payload) };
        self.data_path(RequestKind::FetchAdd, &request)
    }

    /// Does nothing but complete.
    ///
    /// # Errors
    /// [`PostError::RingFull`], [`PostError::TooManyRequests`].
    pub fn nop(self) -> Result<(), PostError> {
        self.data_path(RequestKind::Nop, &DataPath::new(Opcode::NOP, Payload::Sges(&[])))
    }

    /// Posts a data-path request with a second look for room.
    fn data_path(self, kind: RequestKind, request: &DataPath<'_>) -> Result<(), PostError> {
        let Self { state, in_flight, id, flags } = self;
        if !state.has_room_for_payload(&request.payload) {
            return Err(state.too_much(&request.payload));
        }
        let (post, blocks) = (state.post(flags), blocks_of(request.octowords()));
        let (target, room) = match state.reserve(1, blocks, in_flight) {
            Ok(reserved) => (reserved, Ok(())),
            Err(full) => (state.producer.scratch(blocks), Err(full)),
        };
        // As of a configuration.
        request.write(target, post)?;
        room?;
        state.producer.commit_reserved(blocks);
        in_flight.file(post.begin, id, kind, blocks);
        state.note_posted(post.begin, RequestFlags::NONE);
        Ok(())
    }

    /// Posts a data-path request, where nothing stands against it.
    #[inline(always)]
    fn data_path_at_once(&mut self, kind: RequestKind, request: &DataPath<'_>) -> Option<()> {
        let Self { state, in_flight, id, flags } = self;
        if !state.has_room_for_payload(&request.payload) {
            return None;
        }
        let (post, blocks) = (state.post(*flags), blocks_of(request.octowords()));
        request.write(state.producer.reserve_at_once(blocks)?, post).ok()?;
        state.producer.commit(blocks);
        in_flight.file(post.begin, *id, kind, blocks);
        state.note_posted(post.begin, RequestFlags::NONE);
        Some(())
    }
}
