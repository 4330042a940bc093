//! Decisions about the requests of queue pairs, by which tests fail or delay requests.

use mlx5_mkey::wire::cqe::Syndrome;

/// The work queue of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The send queue.
    Send,
    /// The receive queue, own or shared.
    Receive,
}

/// The decision of the gate (a function that tests set) about a request of a queue pair. A receive request
/// has only the decisions `Good` and `Fails`: under all others, the device takes the request as usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The request is executed.
    Good,
    /// The request is not executed, and completes with this syndrome.
    Fails(Syndrome),
    /// The message of the request does not arrive. With a reliable transport, the request completes with
    /// [`Syndrome::TRANSPORT_RETRY`].
    Lost,
    /// For this number of attempts, the gate answers in place of the peer that no receive request is posted.
    NotReady(u32),
    /// The request and all later requests of the queue wait for this number of ticks of the device's clock.
    After(u64),
    /// The request and all later requests of the queue wait until the queue pair leaves its state.
    Hangs,
}
