//! Protection domains, which the library creates, or takes over from another library.

#![allow(unsafe_code)] // To take over a domain is unsafe: the caller vouches for the pointer.

use super::{Created, Device, DevxError, carry, sys};
use crate::command::{Command, CryptoReport, Pdn};
use core::ffi::c_void;
use core::ptr::NonNull;
use std::sync::Arc;

/// A protection domain. The keys of its memory regions and mkeys work only with queue pairs of the same
/// domain.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(super) pd: Arc<sys::Pd>,
    pub(super) context: Arc<sys::Context>,
    pub(super) report: CryptoReport,
}

impl Device {
    /// Creates a protection domain.
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, DevxError> {
        let pd = sys::Pd::alloc(&self.context)?;
        Ok(ProtectionDomain { pd, context: self.context.clone(), report: self.report })
    }

    /// Takes over a protection domain that another library has allocated (`struct ibv_pd`), for example the
    /// domain of a queue pair that [`Device::adopt_qp`] takes over next. Dropping the value does not free the
    /// domain.
    ///
    /// # Errors
    /// [`DevxError::Adopt`] where the domain belongs to another context, [`DevxError::Call`].
    ///
    /// # Safety
    /// The caller ensures that `pd` is a `struct ibv_pd` of libmlx5, and keeps it allocated while the value
    /// or an object made from it lives.
    pub unsafe fn adopt_pd(&self, pd: NonNull<c_void>) -> Result<ProtectionDomain, DevxError> {
        // SAFETY: the caller vouches for the conditions of `Pd::adopt`.
        let pd = unsafe { sys::Pd::adopt(&self.context, pd)? };
        Ok(ProtectionDomain { pd, context: self.context.clone(), report: self.report })
    }
}

impl ProtectionDomain {
    /// Returns the number by which commands name the domain.
    ///
    /// # Errors
    /// [`DevxError::OutOfRange`] where the number does not fit the field of commands.
    pub fn number(&self) -> Result<Pdn, DevxError> {
        Ok(Pdn::new(self.pd.number())?)
    }

    /// Creates an object in the domain.
    pub(super) fn create<C: Command>(&self, command: &C) -> Result<Created<Arc<sys::Pd>, C>, DevxError> {
        carry(command, |request, reply| sys::Object::create(&self.context, self.pd.clone(), request, reply))
    }
}
