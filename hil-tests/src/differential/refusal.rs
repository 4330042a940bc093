//! Checks that the library refuses the chains of requests that libmlx5 (the reference) refuses, and that a
//! refusal changes nothing.

use super::compare::Outcome;
use super::lifted::Lifted;
use super::post::{Chain, post_chain};
use super::queues::Queues;
use super::session::{Session, Verdict};
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::Mkey;
use mlx5_mkey::queue::{DoorbellRecord, SendSlot};
use mlx5_mkey::wire::Wqebb;
use std::io;

/// `ENOMEM`, the errno of libmlx5 for a full queue.
const ENOMEM: i32 = 12;

/// The position of the refused request in its chain, and its error.
type Refusal = (usize, PostError);

impl Session {
    /// Checks that the library refuses a chain that libmlx5 has refused with `errno`, and that the refusal
    /// changes nothing.
    pub(super) fn refuse(
        &self,
        queues: &mut Queues<'_>,
        mkey: &Mkey,
        chain: &Chain<'_>,
        errno: i32,
    ) -> Outcome<Verdict> {
        // The chain is tried on a new queue, because requests before the refused one cannot be removed from
        // the queue in use.
        let tried = attempt(queues, Lifted::NONE, queues.ours.outstanding(), mkey, chain)?;
        let Err((number, error)) = tried else {
            return Err(format!("the library posts it, the reference refuses with errno {errno}").into());
        };
        let full = is_full(&error);
        if full && errno != ENOMEM {
            return Err(format!("the reference refuses with errno {errno}, the library: {error:?}").into());
        }
        // The error may come from a limit that the library's queue in use does not have. A queue without the
        // limit then accepts the chain, or refuses it for another reason.
        if queues.lifted.lifts(&error)
            && attempt(queues, queues.lifted, 0, mkey, chain)? != Err((number, error))
        {
            return Ok(if errno == ENOMEM { Verdict::Lifted } else { Verdict::Refused { full } });
        }
        if number == 0 {
            refuse_here(queues, mkey, chain, &error).map_err(|what| format!("{what}: {error:?}"))?;
        }
        Ok(Verdict::Refused { full })
    }
}

/// Posts a chain of requests to a new, empty queue of the library, and to a copy of the mkey.
fn attempt(
    queues: &Queues<'_>,
    lifted: Lifted,
    outstanding: u32,
    mkey: &Mkey,
    chain: &Chain<'_>,
) -> io::Result<Result<(), Refusal>> {
    let blocks = queues.reference.blocks;
    let (mut ring, mut slots) = (vec![Wqebb::ZERO; blocks], vec![SendSlot::EMPTY; blocks]);
    let (memory, record) = ((&mut ring[..], &mut slots[..]), DoorbellRecord::new());
    let mut trial = lifted.queue((&queues.reference, queues.opaque), outstanding, memory, &record)?;
    Ok(post_chain(&mut trial, chain, &mut mkey.clone()))
}

/// Posts a chain, whose first request must be refused, to the library's queue in use, and checks that the
/// queue and the mkey stay unchanged.
fn refuse_here(
    queues: &mut Queues<'_>,
    mkey: &Mkey,
    chain: &Chain<'_>,
    expected: &PostError,
) -> Result<(), String> {
    let counters = |queues: &Queues<'_>| {
        let (queue, record) = (&queues.ours, queues.ours.record().bytes());
        (queue.producer(), queue.outstanding(), queue.free_blocks(), queue.next_fence(), record)
    };
    let (mut again, before) = (mkey.clone(), counters(queues));
    match post_chain(&mut queues.ours, chain, &mut again) {
        // The expected error is that of an empty queue. The queue in use may be full, and then refuses for
        // this reason.
        Err((0, error)) if error == *expected || is_full(&error) => {}
        other => return Err(format!("the library's queue has {other:?} instead")),
    }
    if again != *mkey {
        return Err("the library refuses and has changed the mkey".into());
    }
    if counters(queues) != before {
        return Err("the library refuses and has counted on".into());
    }
    let ring = queues.ring();
    let (blocks, free) = (queues.reference.blocks, queues.ours.free_blocks() as usize);
    // The library may have written to free blocks, which the device does not read. Only the other blocks must
    // be unchanged.
    let written = if is_found_while_writing(expected) { free } else { 0 };
    let start = queues.ours.producer() as usize;
    for block in start + written..start + blocks {
        let range = block % blocks * 64..block % blocks * 64 + 64;
        if ring[range.clone()] != queues.before[range] {
            return Err("the library refuses and has changed the ring".into());
        }
    }
    queues.before = ring;
    Ok(())
}

/// Returns whether the error says that the queue is full.
fn is_full(error: &PostError) -> bool {
    matches!(error, PostError::SendRingFull { .. } | PostError::TooManyRequests { .. })
}

/// Returns whether the library detects this error while it writes entries into reserved blocks.
fn is_found_while_writing(error: &PostError) -> bool {
    matches!(
        error,
        PostError::SgeEmpty { .. }
            | PostError::SgeTooLong { .. }
            | PostError::Config(
                ConfigError::EntryLength { .. }
                    | ConfigError::StrideOver16Bits { .. }
                    | ConfigError::LengthOver32Bits { .. }
                    | ConfigError::LengthOverDataUnit { .. }
            )
    )
}
