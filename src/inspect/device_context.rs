//! The device that a request is meant for.

use crate::mkey::{SignatureCapabilities, XtsEngine};
use crate::types::KsmEntrySize;

/// What is known of the device that a request is meant for. What is not known is not checked.
///
/// ```
/// use mlx5_mkey::inspect::{DeviceContext, WorkRequest};
/// use mlx5_mkey::mkey::XtsEngine;
/// /// Reports what a BlueField-2 would find wrong: it encrypts one data unit for each mkey.
/// fn check(request: &WorkRequest<'_>) {
///     let device = DeviceContext { engine: Some(XtsEngine::SingleBlock), ..DeviceContext::UNKNOWN };
///     request.findings(&device, |finding| println!("{finding}"));
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DeviceContext {
    /// Its AES-XTS engine, which decides a tweak's byte order and the longest mkey.
    pub engine: Option<XtsEngine>,
    /// The signatures that it knows.
    pub capabilities: Option<SignatureCapabilities>,
    /// The length of each entry, where all mkeys that are looked at were created for lists of such entries
    /// (KSM): their requests do not say it.
    pub entry_size: Option<KsmEntrySize>,
}

impl DeviceContext {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { engine: None, capabilities: None, entry_size: None };
}
