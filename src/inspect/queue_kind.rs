//! The kind of queue that a request was posted to. The kind determines which segments follow the control
//! segment.

/// The kind of a send queue. The bytes of a request do not contain the kind.
///
/// ```
/// use mlx5_mkey::inspect::{DeviceContext, QueueKind, WorkRequest};
/// /// Prints a request of a datagram queue, with the address that it is sent to.
/// fn show(request: WorkRequest<'_>) {
///     println!("{}", request.on_queue(QueueKind::Datagram).summary(DeviceContext::UNKNOWN));
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum QueueKind {
    /// The kind is not known. Requests are decoded as requests of a connected queue pair, unless their bytes
    /// cannot belong to one.
    #[default]
    Unknown,
    /// Reliable or unreliable connection (RC, UC): data segments, or the remote address, follow the control
    /// segment.
    Connected,
    /// Unreliable datagram (UD): an address follows the control segment.
    Datagram,
    /// The initiator of dynamic connections (DC): an address follows the control segment, and then the remote
    /// address if there is one.
    DynamicallyConnected,
    /// Extended reliable connection (XRC): the peer's shared receive queue follows the control segment.
    ExtendedConnected,
    /// A queue for Ethernet packets, such as a raw packet queue pair or a send queue of a network driver: an
    /// Ethernet segment follows the control segment.
    Ethernet,
}
