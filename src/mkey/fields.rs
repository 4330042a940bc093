//! Changes of mkey fields that few configurations change: PCIe ordering, invalidation by the peer, start
//! address.

/// A selection of the orderings of the device's reads and writes on PCIe, which a configuration can relax.
///
/// [`GeneralCapabilities::relaxed_ordering_umr`](crate::command::GeneralCapabilities::relaxed_ordering_umr)
/// returns the orderings that the device can relax.
///
/// ```
/// use mlx5_mkey::command::GeneralCapabilities;
/// use mlx5_mkey::wqe::PreparedConfig;
/// /// Relaxes all orderings that the device can relax.
/// fn relax(prepared: PreparedConfig, device: &GeneralCapabilities) -> PreparedConfig {
///     match device.relaxed_ordering_umr() {
///         Some(ordering) => prepared.with_relaxed_ordering(ordering, true),
///         None => prepared,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RelaxedOrdering {
    /// Selects the order of writes. If this order is relaxed, writes may pass one another.
    pub write: bool,
    /// Selects the order of reads. If this order is relaxed, reads may pass writes.
    pub read: bool,
}

/// Changes of the fields that few configurations change. `None` leaves a field unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct FieldChanges {
    /// The orderings to change, and whether they are relaxed from then on.
    pub(crate) relaxed_ordering: Option<(RelaxedOrdering, bool)>,
    pub(crate) remote_invalidate: Option<bool>,
    pub(crate) start_address: Option<u64>,
}
