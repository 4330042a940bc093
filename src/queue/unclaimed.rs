//! Signature errors of mkeys that no router had.

use crate::error::CheckError;
use crate::mkey::{Mkey, SignatureError, SignatureFault};
use crate::types::MkeyIndex;
use heapless::Vec;

/// How many mkeys errors are kept of.
const KEPT: usize = 8;

/// Signature errors that were taken from a completion queue, until their mkeys are asked: the first of each mkey.
#[derive(Default)]
pub(super) struct Unclaimed {
    faults: Vec<SignatureFault, KEPT>,
    /// There was no room for one.
    lost: bool,
}

impl Unclaimed {
    /// Keeps an error. The device reports no second one of an mkey before the first is recorded.
    #[cold]
    pub(super) fn keep(&mut self, fault: &SignatureFault) {
        let is_known = self.faults.iter().any(|kept| kept.mkey == fault.mkey);
        if !is_known && self.faults.push(*fault).is_err() {
            self.lost = true;
        }
    }

    /// Drops what is kept of an mkey.
    pub(super) fn forget(&mut self, mkey: MkeyIndex) {
        self.faults.retain(|kept| kept.mkey != mkey);
    }

    /// Records what is kept of an mkey, and takes its error.
    pub(super) fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        self.faults.retain(|kept| !mkey.record(kept));
        match mkey.take_error() {
            Ok(None) if self.lost => Err(CheckError::ErrorsLost),
            taken => taken,
        }
    }
}
