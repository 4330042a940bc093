//! The kind of queue that a request was posted to. The kind determines which segments follow the control
//! segment.

/// The kind of a send queue. The bytes of a request do not contain it.
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
    /// The kind is not known. Requests are read as those of a connected queue pair, unless their bytes
    /// exclude that.
    #[default]
    Unknown,
    /// Reliable or unreliable connection (RC, UC): data segments, or the remote address, follow the control
    /// segment.
    Connected,
    /// Unreliable datagram (UD): an address follows the control segment.
    Datagram,
    /// The initiator of dynamic connections (DC): an address follows the control segment. The remote address,
    /// if any, comes after it.
    DynamicallyConnected,
    /// Extended reliable connection (XRC): the peer's shared receive queue follows the control segment.
    ExtendedConnected,
    /// Ethernet packets (a raw packet queue pair, a send queue of a network driver): an Ethernet segment
    /// follows the control segment.
    Ethernet,
}
