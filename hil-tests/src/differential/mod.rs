//! Random requests, posted by the installed libmlx5 (the *reference*) and by the library: the two *sides* of
//! this test. Their bytes are compared, then executed.
//!
//! A *chain* is a series of requests that each side posts together. The reference writes chains into the ring
//! of a queue pair that its device does not execute. The library writes chains into an array, with the same
//! numbers and limits. Only the reference knows some numbers: PSVs of an mkey, the DEK, and the opaque buffer
//! of copies. The test takes them for the library from the first request of the reference that contains them.
//! In later requests they must stay the same.
//!
//! Both rings are then copied to two software devices, which were equal so far and must be equal afterwards
//! (`execute`). The completions of the devices go to the reference's completion queue and to one of the
//! library. Completions free room in the rings and report signature errors. Both sides must report the same.
//!
//! The library's queue has libmlx5's limits, or lacks one or both of them: the number of requests, and the
//! bytes of inline data. Each chain is posted by one of the methods of `way.rs`, in a ring of each size that
//! libmlx5 creates.
//!
//! A memory window of type 2 is bound to a region, moves data, and is invalidated. Other bindings have random
//! keys, which both devices refuse.
//!
//! Two subjects are excluded, because libmlx5 cannot be compared with the library there. The first are
//! completion entries of 128 bytes and timestamps: both sides poll entries of 64 bytes that the software
//! devices wrote, and unit tests and scenarios cover the rest. The second is BlueFlame: the stand-in's
//! register does not keep the written bytes, and the recorded vectors `blueflame` cover them.
//!
//! Also excluded are deliberate differences (`vectors/DIFFERENCES.md`), and sums of lengths over 2^31. After
//! a chain that both sides refuse, nothing is compared and the test creates the mkey anew.

mod case;
mod check;
mod compare;
mod counting;
mod coverage;
mod execute;
mod ffi;
mod learn;
mod lifted;
mod pair;
mod polling;
mod post;
mod queues;
mod refusal;
mod session;
mod sizes;

pub use coverage::Tally;
use session::Session;
use std::error::Error;

/// A run that has missed a feature goes on up to this multiple of the wanted number of configurations. Rare
/// features, such as configurations across the end of a long ring, can be missing from a short run.
const LONGEST: u64 = 4;

/// Posts random chains of requests until `count` configurations were tried and no feature is missing. With
/// `single_block` the AES-XTS engine of the software devices handles a single data unit per mkey.
///
/// A feature that is still missing after four times `count` configurations has a count of 0.
///
/// # Errors
/// An error of the installed libraries.
pub fn run(count: u64, seed: u64, single_block: bool) -> Result<Tally, Box<dyn Error>> {
    let mut session = Session::new(seed, single_block)?;
    let mut pair = None;
    while session.tally.configurations < count {
        session.run_queue(count, &mut pair)?;
    }
    let most = count.saturating_mul(LONGEST);
    while session.tally.configurations < most && session.tally.coverage.misses_a_feature() {
        session.run_queue(most, &mut pair)?;
    }
    Ok(session.tally)
}
