//! Properties of the device that a request is meant for.

use crate::mkey::{SignatureCapabilities, XtsEngine};
use crate::types::KsmEntrySize;

/// Properties of the device that a request is meant for. `None` means that a property is unknown; no finding
/// depends on an unknown property.
///
/// ```
/// use mlx5_mkey::inspect::{DeviceContext, WorkRequest};
/// use mlx5_mkey::mkey::XtsEngine;
/// /// Reports faults for a BlueField-2, which encrypts only one data unit for each mkey.
/// fn check(request: &WorkRequest<'_>) {
///     let device = DeviceContext { engine: Some(XtsEngine::SingleBlock), ..DeviceContext::UNKNOWN };
///     request.findings(&device, |finding| println!("{finding}"));
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DeviceContext {
    /// The device's AES-XTS engine, which determines the byte order of a tweak, and the limit of an mkey's
    /// length.
    pub engine: Option<XtsEngine>,
    /// The signatures and block sizes that the device supports.
    pub capabilities: Option<SignatureCapabilities>,
    /// The length of each entry, if all examined mkeys were created for entries of one length (KSM). The
    /// requests themselves do not contain this length.
    pub entry_size: Option<KsmEntrySize>,
}

impl DeviceContext {
    /// A device of which no property is known.
    pub const UNKNOWN: Self = Self { engine: None, capabilities: None, entry_size: None };
}
