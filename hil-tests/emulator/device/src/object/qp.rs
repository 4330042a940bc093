//! Queue pairs: rings, counters, state (PRM `qpc`).

use crate::object::mkey::Access;
use crate::object::outstanding::Outstanding;
use crate::object::read_ahead::ReadAhead;
use mlx5_mkey::wire::ctrl::Opcode;

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Just made, or reset.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive: answers its peer.
    ReadyToReceive,
    /// Ready to send as well.
    ReadyToSend,
    /// The send queue is drained: stands still before the next request.
    SendQueueDrained,
    /// The send queue failed; receives go on. No event of a reliable connection leads here.
    SendQueueError,
    /// Both queues flush their requests.
    Error,
}

impl QpState {
    /// Whether a user's MODIFY_QP may go from this state to `next`.
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

    /// Whether the responder answers.
    pub(crate) const fn responds(self) -> bool {
        use QpState as S;
        matches!(self, S::ReadyToReceive | S::ReadyToSend | S::SendQueueDrained | S::SendQueueError)
    }
}

/// What a queue pair does with messages (InfiniBand transport services; PRM `st`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Each request has an answer, and is repeated until there is one (RC).
    ReliableConnection,
    /// Requests to one peer that have no answer (UC): a request is done when it is sent, and what the peer
    /// does not take is dropped.
    UnreliableConnection,
    /// Single packets to anybody, each with its address, which have no answer (UD).
    UnreliableDatagram,
}

impl Transport {
    /// Whether requests have answers.
    pub(crate) const fn is_reliable(self) -> bool {
        matches!(self, Self::ReliableConnection)
    }

    /// Whether a send queue carries out requests of this opcode.
    pub(crate) const fn executes(self, opcode: Opcode) -> bool {
        match self {
            Self::ReliableConnection => true,
            Self::UnreliableConnection => {
                !matches!(opcode, Opcode::RDMA_READ | Opcode::ATOMIC_CS | Opcode::ATOMIC_FA | Opcode::MMO)
            }
            Self::UnreliableDatagram => matches!(opcode, Opcode::NOP | Opcode::SEND | Opcode::SEND_IMM),
        }
    }

    /// The state that a send request which fails leads to (InfiniBand 10.3.1): without answers, receives go
    /// on.
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
    /// Returns the number of the queue pair.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Local(number) | Self::Remote(number) => number,
        }
    }
}

/// How often a request is repeated when the peer has no receive for it (PRM `rnr_retry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retries {
    /// For ever.
    Infinite,
    /// This number of times; one for each [`crate::Device::run`].
    Count(u8),
}

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    /// What it does with messages.
    pub transport: Transport,
    /// Protection domain.
    pub pd: u32,
    /// Address of the send ring.
    pub sq: u64,
    /// Logarithm of its number of 64-byte blocks, 0 to 15.
    pub log_sq_blocks: u8,
    /// Where receives come from.
    pub receive: ReceiveQueue,
    /// Address of the doorbell record, two big-endian u32: receive counter, send counter in blocks.
    pub doorbell_record: u64,
    /// Completion queue of the send queue.
    pub send_cqn: u32,
    /// Completion queue of the receive queue; a queue pair without one need not have it.
    pub recv_cqn: Option<u32>,
    /// What completions name the queue pair by, 24 bits.
    pub user_index: u32,
    /// A signature error stops the send queue (`drain_sigerr`).
    pub drain_sigerr: bool,
    /// What to do while the peer has no receive.
    pub rnr_retry: Retries,
}

/// Where a queue pair takes receives from (PRM `rq_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveQueue {
    /// There are none (3).
    None,
    /// A ring of its own (0).
    Own(ReceiveRing),
    /// The shared receive queue of this number (1).
    Shared(u32),
}

/// A ring of receive requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRing {
    /// Its address.
    pub address: u64,
    /// Logarithm of its number of slots, 0 to 15.
    pub log_slots: u8,
    /// Size of a slot in bytes: a multiple of 16, at most 1024.
    pub stride: u16,
}

impl QpAttributes {
    /// The completion queue of what the responder has to tell.
    ///
    /// Assumption: signature errors that the responder finds go to the send queue's where there is no other.
    pub(crate) fn responder_cqn(&self) -> u32 {
        self.recv_cqn.unwrap_or(self.send_cqn)
    }
}

/// What QUERY_QP says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpView {
    /// State.
    pub state: QpState,
    /// Number of the next block that was not executed, modulo 2^16 (`hw_sq_wqebb_counter`).
    pub hw_sq_wqebb_counter: u16,
    /// Number of the next receive slot that was not used, modulo 2^16.
    pub hw_rq_counter: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct Qp {
    pub(crate) attributes: QpAttributes,
    pub(crate) state: QpState,
    pub(crate) peer: Option<Peer>,
    /// What the peer may ask for at all, whatever the keys allow (PRM `rre`, `rwe`, `rae`).
    pub(crate) rights: Access,
    /// What datagrams must show, and show themselves unless they bring a key of their own (PRM `q_key`).
    pub(crate) qkey: u32,
    /// The next block that is not done.
    pub(crate) sq_consumer: u16,
    /// The block behind the last that was rung.
    pub(crate) sq_producer: u16,
    pub(crate) read_ahead: ReadAhead,
    /// The copy at this block was carried out before the one in front of it.
    pub(crate) copied_ahead: Option<u16>,
    pub(crate) rq_consumer: u16,
    /// Requests that were sent, in their order.
    pub(crate) outstanding: Outstanding,
    /// The request at this block starts only when nothing is outstanding: it was found to fail or to report
    /// an error.
    pub(crate) alone: Option<u16>,
    /// Number of the next request message.
    pub(crate) sequence: u32,
    /// Number of the peer's next request message, if any has come.
    pub(crate) expected: Option<u32>,
    /// The user asked for SQD and waits for the event.
    pub(crate) draining: bool,
    /// Requests may copy memory (PRM `mmo`).
    pub(crate) copies: bool,
    /// Time stamps are in real time (PRM `ts_format`).
    pub(crate) real_time: bool,
    /// In error: it was told that no more shared receives are taken.
    pub(crate) last_told: bool,
}

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
            outstanding: Outstanding::default(),
            alone: None,
            copies: false,
            real_time: false,
            sequence: 0,
            expected: None,
            draining: false,
            last_told: false,
        }
    }

    /// The next block that was not looked at.
    pub(crate) fn next_block(&self) -> u16 {
        self.outstanding.last().map_or(self.sq_consumer, |last| last.posted.end())
    }

    /// How many blocks are rung that were not looked at.
    pub(crate) fn rung(&self) -> u16 {
        self.sq_producer.wrapping_sub(self.next_block())
    }
}
