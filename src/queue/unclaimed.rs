//! Unclaimed signature errors: when the completion queue was polled, the router did not have the mkey of the
//! error. Each error is kept until its mkey is checked.

use crate::mkey::error::CheckError;
use crate::mkey::{Mkey, SignatureError, SignatureFault};
use crate::types::MkeyIndex;
#[cfg(feature = "devx")]
use alloc::sync::Arc;
#[cfg(feature = "devx")]
use core::sync::atomic::{AtomicBool, Ordering};
use heapless::Vec;

/// The most mkeys whose errors one completion queue keeps.
const OWN: usize = 8;

/// The most mkeys whose errors the completion queues of a device keep together.
#[cfg(feature = "devx")]
const SHARED: usize = 256;

/// The first unclaimed error of each mkey, for at most `N` mkeys: [`OWN`] or `SHARED`.
// `N` is a constant parameter, because the library fixes the number: on a bare machine, no caller lends
// memory for these errors.
#[derive(Default)]
pub(crate) struct Faults<const N: usize> {
    faults: Vec<SignatureFault, N>,
    /// Whether an error was dropped because there was no room.
    lost: bool,
}

impl<const N: usize> Faults<N> {
    /// Keeps an error, unless an error of the same mkey is already kept. One error of each mkey is enough,
    /// since the user gets only the first.
    fn keep(&mut self, fault: &SignatureFault) {
        let is_known = self.faults.iter().any(|kept| kept.mkey == fault.mkey);
        if !is_known && self.faults.push(*fault).is_err() {
            self.lost = true;
        }
    }

    /// Drops the error of an mkey.
    fn forget(&mut self, mkey: MkeyIndex) {
        self.faults.retain(|kept| kept.mkey != mkey);
    }

    /// Forgets that errors were dropped.
    fn forget_lost(&mut self) {
        self.lost = false;
    }

    /// Moves a kept error into its mkey, and returns the mkey's first error.
    fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        self.faults.retain(|kept| !mkey.record(kept));
        match mkey.take_error() {
            Ok(None) if self.lost => Err(CheckError::ErrorsLost),
            taken => taken,
        }
    }
}

/// Errors that the completion queues of a device keep together. If a queue pair has two completion queues,
/// its errors may arrive at either queue.
#[cfg(feature = "devx")]
#[derive(Default)]
pub(crate) struct SharedFaults {
    faults: spin::Mutex<Faults<SHARED>>,
    /// Whether an error is kept, or one was dropped. If false, callers need not take the lock.
    any: AtomicBool,
}

#[cfg(feature = "devx")]
impl SharedFaults {
    fn change<T>(&self, change: impl FnOnce(&mut Faults<SHARED>) -> T) -> T {
        let mut faults = self.faults.lock();
        let result = change(&mut faults);
        self.any.store(faults.lost || !faults.faults.is_empty(), Ordering::Release);
        result
    }

    /// Drops the error of a former mkey whose number a new mkey has.
    pub(crate) fn forget(&self, mkey: MkeyIndex) {
        if self.any.load(Ordering::Acquire) {
            self.change(|faults| faults.forget(mkey));
        }
    }

    fn check(&self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        if self.any.load(Ordering::Acquire) {
            return self.change(|faults| faults.check(mkey));
        }
        mkey.take_error()
    }
}

/// The place where a completion queue keeps unclaimed errors.
#[cfg_attr(
    feature = "devx",
    expect(clippy::large_enum_variant, reason = "a bare machine has no heap, and a queue stays where it is")
)]
pub(super) enum Unclaimed {
    Own(Faults<OWN>),
    #[cfg(feature = "devx")]
    Shared(Arc<SharedFaults>),
}

impl Default for Unclaimed {
    fn default() -> Self {
        Self::Own(Faults::default())
    }
}

impl Unclaimed {
    #[cold]
    pub(super) fn keep(&mut self, fault: &SignatureFault) {
        match self {
            Self::Own(own) => own.keep(fault),
            #[cfg(feature = "devx")]
            Self::Shared(shared) => shared.change(|faults| faults.keep(fault)),
        }
    }

    pub(super) fn forget(&mut self, mkey: MkeyIndex) {
        match self {
            Self::Own(own) => own.forget(mkey),
            #[cfg(feature = "devx")]
            Self::Shared(shared) => shared.forget(mkey),
        }
    }

    pub(super) fn forget_lost(&mut self) {
        match self {
            Self::Own(own) => own.forget_lost(),
            #[cfg(feature = "devx")]
            Self::Shared(shared) => shared.change(Faults::forget_lost),
        }
    }

    pub(super) fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        match self {
            Self::Own(own) => own.check(mkey),
            #[cfg(feature = "devx")]
            Self::Shared(shared) => shared.check(mkey),
        }
    }
}
