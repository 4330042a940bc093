//! Fields of an mkey that few configurations change.

/// Whether reads and writes of the device may pass one another (PCIe relaxed ordering): which of both a
/// configuration can change.
///
/// Ask the device: [`GeneralCapabilities::relaxed_ordering_umr`](crate::command::GeneralCapabilities::relaxed_ordering_umr).
///
/// ```
/// use mlx5_mkey::command::GeneralCapabilities;
/// use mlx5_mkey::wqe::PreparedConfig;
/// /// Relaxes what the device can relax.
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
    /// Writes may pass one another.
    pub write: bool,
    /// Reads may pass writes.
    pub read: bool,
}

/// Changes of such fields; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct FieldChanges {
    /// Which orderings, and whether they are relaxed from then on.
    pub(crate) relaxed_ordering: Option<(RelaxedOrdering, bool)>,
    pub(crate) remote_invalidate: Option<bool>,
    pub(crate) start_address: Option<u64>,
}
