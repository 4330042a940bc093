//! Protection domains.

#![allow(unsafe_code)] // An adopted one is the caller's promise, passed on to the seam.

use super::{Created, Device, DevxError, carry, sys};
use crate::command::{Command, CryptoReport, Pdn};
use core::ffi::c_void;
use core::ptr::NonNull;
use std::sync::Arc;

/// A protection domain: keys work with queue pairs of the same one.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(super) pd: Arc<sys::Pd>,
    pub(super) context: Arc<sys::Context>,
    pub(super) report: CryptoReport,
}

impl Device {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, DevxError> {
        let pd = sys::Pd::alloc(&self.context)?;
        Ok(ProtectionDomain { pd, context: self.context.clone(), report: self.report })
    }

    /// Uses a protection domain that another library has allocated (`struct ibv_pd`), that of a queue pair
    /// for [`Device::adopt_qp`], say. It is not freed.
    ///
    /// # Errors
    /// [`DevxError::Adopt`] where it is of another context, [`DevxError::Call`].
    ///
    /// # Safety
    /// `pd` is a `struct ibv_pd` of libmlx5, and stays allocated while the value and all that is made from it
    /// live.
    pub unsafe fn adopt_pd(&self, pd: NonNull<c_void>) -> Result<ProtectionDomain, DevxError> {
        // SAFETY: the caller vouches for the same.
        let pd = unsafe { sys::Pd::adopt(&self.context, pd)? };
        Ok(ProtectionDomain { pd, context: self.context.clone(), report: self.report })
    }
}

impl ProtectionDomain {
    /// Returns the number that commands carry.
    ///
    /// # Errors
    /// [`DevxError::OutOfRange`] where it is none that commands can have.
    pub fn number(&self) -> Result<Pdn, DevxError> {
        Ok(Pdn::new(self.pd.number())?)
    }

    /// Makes an object in it.
    pub(super) fn create<C: Command>(&self, command: &C) -> Result<Created<Arc<sys::Pd>, C>, DevxError> {
        carry(command, |request, reply| sys::Object::create(&self.context, self.pd.clone(), request, reply))
    }
}
