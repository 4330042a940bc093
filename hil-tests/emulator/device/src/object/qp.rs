//! Queue pairs: rings, counters, state (PRM `qpc`).

use crate::object::mkey::Access;
use crate::object::outstanding::Outstanding;
use crate::object::posted::is_atomic;
use crate::object::read_ahead::ReadAhead;
use crate::ruling::Ruling;
use mlx5_mkey::wire::ctrl::Opcode;

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// The state after creation and after a reset.
    Reset,
    /// Receive requests may be posted.
    Init,
    /// Ready to receive: the queue pair answers its peer.
    ReadyToReceive,
    /// Ready to send: the queue pair also sends requests.
    ReadyToSend,
    /// The send queue is drained: it stands still before the next request.
    SendQueueDrained,
    /// The send queue failed; the receive queue continues. No error of a reliable connection leads to this
    /// state.
    SendQueueError,
    /// Both queues flush their requests.
    Error,
}

impl QpState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::ReadyToReceive,
        Self::ReadyToSend,
        Self::SendQueueDrained,
        Self::SendQueueError,
        Self::Error,
    ];

    /// Returns whether a user's MODIFY_QP may go from this state to `next`.
    pub(crate) const fn may_become(self, next: Self) -> bool {
        use QpState as S;
        matches!(
            (self, next),
            (_, S::Reset | S::Error)
                | (S::Reset | S::Init, S::Init)
                | (S::Init, S::ReadyToReceive)
                | (
                    S::ReadyToReceive | S::ReadyToSend | S::SendQueueDrained | S::SendQueueError,
                    S::ReadyToSend
                )
                | (S::ReadyToSend | S::SendQueueDrained, S::SendQueueDrained)
                | (S::ReadyToSend, S::SendQueueError)
        )
    }

    /// Returns whether the responder answers in this state.
    pub(crate) const fn responds(self) -> bool {
        use QpState as S;
        matches!(self, S::ReadyToReceive | S::ReadyToSend | S::SendQueueDrained | S::SendQueueError)
    }
}

/// The transport of a queue pair (InfiniBand transport services; PRM `st`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Each request has an answer, and is repeated until the answer arrives (RC).
    ReliableConnection,
    /// Requests to one peer, without answers (UC). A request is done when it is sent. If the peer cannot take
    /// it, the request is dropped.
    UnreliableConnection,
    /// Single packets to any queue pair, each with its address, without answers (UD).
    UnreliableDatagram,
    /// The queue pair sends no messages. A driver changes mkeys of all protection domains with it (`REG_UMR`
    /// of Linux).
    Umr,
}

impl Transport {
    /// Returns whether the peer answers requests.
    pub(crate) const fn is_reliable(self) -> bool {
        matches!(self, Self::ReliableConnection | Self::Umr)
    }

    /// Returns whether a send queue executes requests of this opcode.
    pub(crate) const fn executes(self, opcode: Opcode) -> bool {
        match self {
            Self::ReliableConnection => true,
            Self::UnreliableConnection => {
                !matches!(opcode, Opcode::RDMA_READ | Opcode::MMO) && !is_atomic(opcode)
            }
            Self::UnreliableDatagram => matches!(opcode, Opcode::NOP | Opcode::SEND | Opcode::SEND_IMM),
            Self::Umr => matches!(opcode, Opcode::NOP | Opcode::UMR),
        }
    }

    /// Returns the state of the queue pair after a failed send request (InfiniBand 10.3.1). On a transport
    /// without answers, only the send queue stops, and the receive queue continues.
    pub(crate) const fn failed(self) -> QpState {
        if self.is_reliable() { QpState::Error } else { QpState::SendQueueError }
    }
}

/// The other end of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A queue pair of the same device, possibly itself.
    Local(u32),
    /// A queue pair of another device: messages go through [`crate::Device::take_message`].
    Remote(u32),
}

impl Peer {
    /// A peer that does not exist: no device has a queue pair with this number.
    pub const NOBODY: Self = Self::Remote(u32::MAX);

    /// Returns the number of the queue pair.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Local(number) | Self::Remote(number) => number,
        }
    }
}

/// The number of repetitions of a request while the peer has no receive request for it (PRM `rnr_retry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retries {
    /// The number of repetitions has no limit.
    Infinite,
    /// This number of repetitions. Each [`crate::Device::run`] repeats the request once. Repetitions before
    /// the end of the waiting time that the peer has asked for do not count.
    Count(u8),
}

/// The attributes of a new queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    /// The transport service.
    pub transport: Transport,
    /// Protection domain.
    pub pd: u32,
    /// Address of the send ring.
    pub sq: u64,
    /// Logarithm of the number of 64-byte blocks of the send ring, 0 to 15.
    pub log_sq_blocks: u8,
    /// The source of receive requests.
    pub receive: ReceiveQueue,
    /// Address of the doorbell record: two big-endian u32, the receive counter and the send counter in
    /// blocks.
    pub doorbell_record: u64,
    /// Completion queue of the send queue.
    pub send_cqn: u32,
    /// Completion queue of the receive queue. A queue pair without a receive queue may have none.
    pub recv_cqn: Option<u32>,
    /// The number by which completions name the queue pair, 24 bits.
    pub user_index: u32,
    /// Whether a signature error stops the send queue (`drain_sigerr`).
    pub drain_sigerr: bool,
    /// The number of repetitions while the peer has no receive request.
    pub rnr_retry: Retries,
}

/// The source of a queue pair's receive requests (PRM `rq_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveQueue {
    /// The queue pair has no receive requests (3).
    None,
    /// The queue pair has a ring of its own (0).
    Own(ReceiveRing),
    /// Receive requests come from the shared receive queue with this number (1).
    Shared(u32),
}

/// A ring of receive requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRing {
    /// Address of the ring.
    pub address: u64,
    /// Logarithm of the number of slots, 0 to 15.
    pub log_slots: u8,
    /// Size of a slot in bytes: a multiple of 16, at most 1024.
    pub stride: u16,
}

impl QpAttributes {
    /// Returns the completion queue for signature errors that the responder finds.
    ///
    /// Assumption: if the receive queue has no completion queue, these errors go to the completion queue of
    /// the send queue.
    pub(crate) fn responder_cqn(&self) -> u32 {
        self.recv_cqn.unwrap_or(self.send_cqn)
    }
}

/// The result of QUERY_QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpView {
    /// The state of the queue pair.
    pub state: QpState,
    /// Number of the next block to execute, modulo 2^16 (`hw_sq_wqebb_counter`).
    pub hw_sq_wqebb_counter: u16,
    /// Number of the next receive slot to use, modulo 2^16.
    pub hw_rq_counter: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct Qp {
    pub(crate) attributes: QpAttributes,
    pub(crate) state: QpState,
    pub(crate) peer: Option<Peer>,
    /// The accesses that the queue pair allows its peer (PRM `rre`, `rwe`, `rae`). An access also needs the
    /// right of the key.
    pub(crate) rights: Access,
    /// The Q_Key that received datagrams must carry. Sent datagrams carry it too, unless their address vector
    /// has another (PRM `q_key`).
    pub(crate) qkey: u32,
    /// The number of the first block whose request is not done.
    pub(crate) sq_consumer: u16,
    /// The number of the block after the last block that a doorbell has announced.
    pub(crate) sq_producer: u16,
    pub(crate) read_ahead: ReadAhead,
    /// On a device with unordered copies: the copy at this block was executed before the copy in front of it.
    pub(crate) copied_ahead: Option<u16>,
    pub(crate) rq_consumer: u16,
    /// The count of posted receive requests when the device has last read the doorbell record.
    pub(crate) rq_posted: u16,
    /// Requests that were sent and have no answer yet, in the order of sending.
    pub(crate) outstanding: Outstanding,
    /// The block of a request that starts only when no request is outstanding: a first attempt has shown that
    /// the request fails or reports an error.
    pub(crate) alone: Option<u16>,
    /// The decision of the gate (a function that tests set) about the request at a block. It is kept until
    /// the request is executed.
    pub(crate) ruling: Option<(u16, Ruling)>,
    /// Sequence number of the next request message.
    pub(crate) sequence: u32,
    /// Sequence number that the peer's next request must have. `None` if no request has come yet.
    pub(crate) expected: Option<u32>,
    /// The code for the time that a peer waits before it repeats a request for which this queue pair had no
    /// receive request (PRM `min_rnr_nak`).
    pub(crate) rnr_timer: u8,
    /// Whether the user has asked to drain the send queue, and waits for the event.
    pub(crate) draining: bool,
    /// Whether requests may copy memory (PRM `mmo`).
    pub(crate) copies: bool,
    /// Whether doorbells announce requests without the doorbell record (PRM `send_dbr_mode`).
    pub(crate) doorbell_alone: bool,
    /// Whether the peer may use masked atomics (PRM `atomic_mode`), if it may use atomics.
    pub(crate) masked_atomics: bool,
    /// Whether time stamps are in real time (PRM `ts_format`).
    pub(crate) real_time: bool,
    /// Whether the event [`crate::Event::LastWqe`] was raised: in the error state, the queue pair takes no
    /// more shared receive requests.
    pub(crate) last_told: bool,
}

/// The timer code of queue pairs for which no code is set: 10 microseconds.
pub(crate) const SHORTEST_TIMER: u8 = 1;

impl Qp {
    pub(crate) fn new(attributes: QpAttributes) -> Self {
        Self {
            attributes,
            state: QpState::Reset,
            peer: None,
            rights: Access::ALL,
            qkey: 0,
            sq_consumer: 0,
            sq_producer: 0,
            read_ahead: ReadAhead::default(),
            copied_ahead: None,
            rq_consumer: 0,
            rq_posted: 0,
            outstanding: Outstanding::default(),
            alone: None,
            ruling: None,
            copies: false,
            doorbell_alone: false,
            masked_atomics: true,
            real_time: false,
            sequence: 0,
            expected: None,
            rnr_timer: SHORTEST_TIMER,
            draining: false,
            last_told: false,
        }
    }

    /// Returns the first block that is neither done nor part of an outstanding request.
    pub(crate) fn next_block(&self) -> u16 {
        self.outstanding.last().map_or(self.sq_consumer, |last| last.posted.end())
    }

    /// Returns the number of announced blocks from `next_block` on.
    pub(crate) fn rung(&self) -> u16 {
        self.sq_producer.wrapping_sub(self.next_block())
    }
}
