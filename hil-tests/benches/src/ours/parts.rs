//! The parts of the work that requests and runs share: queue, I/O, mkey, completion.

use crate::{Fault, Io, Kind, MAX_ENTRIES};
use alloc::vec::Vec;
use core::hint::black_box;
use mlx5_mkey::mkey::{KlmEntry, Mkey, MkeyAttributes, SignatureAttributes, XtsEngine};
use mlx5_mkey::queue::{Completion, SendQueue, UarDoorbell};
use mlx5_mkey::types::{Key, PsvIndex};

/// The send queue for most requests of the library's side.
pub(super) type Queue<'m> = SendQueue<'m, UarDoorbell>;

/// An I/O with its mkey and with the data that a service keeps for it.
pub(super) struct OurIo {
    pub(super) io: Io,
    /// All entries of the I/O, for work that learns their number at run time.
    pub(super) list: Vec<KlmEntry>,
    pub(super) mkey: Mkey,
}

/// Uses every field of a completion.
///
/// # Errors
/// [`Fault`] if there is no completion.
#[inline(always)]
pub fn use_completion<E>(completion: &Option<Result<Completion, E>>) -> Result<(), Fault> {
    match completion {
        Some(Ok(completion)) => {
            // The completion is passed by reference, because by value it would be copied once more, and the
            // copy would be counted.
            black_box(completion);
            Ok(())
        }
        _ => Err("no completion"),
    }
}

/// Returns an mkey that was never configured.
pub fn mkey(kind: Kind) -> Mkey {
    let psv = PsvIndex::from_low_bits;
    Mkey::new(MkeyAttributes {
        signature: kind.has_signature().then(|| SignatureAttributes::new(psv(0x10), psv(0x11))),
        crypto: kind.has_crypto().then_some(XtsEngine::MultiBlock),
        ..MkeyAttributes::plain(Key::from_raw(0x0012_3400), MAX_ENTRIES as u32)
    })
}
