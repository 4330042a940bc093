//! Recovery: queue pairs that fail, and that the program then resets and connects again.

use super::fixture::{DIF, MkeyFixture, SIGNATURE, domain, flipped, pattern, reports};
use super::scenario::{Scenario, scenario};
use crate::board::Board;
use crate::expected;
use crate::qp_pair::{QpPairFixture, Rx, Verdict, text};
use crate::{ensure, ensure_eq};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::mkey::{BlockSignature, Signature, SignatureErrorKind};
use mlx5_mkey::queue::Outcome;
use mlx5_mkey::types::DomainKind;
use mlx5_mkey::wqe::{Remote, Sge};

pub(super) const ALL: &[Scenario] = &[
    scenario!(m55_a_queue_pair_fails_and_recovers_again_and_again, NOTHING, ["M55"]),
    scenario!(m55_a_signature_error_outlives_a_reset, SIGNATURE, ["M55"]),
];

/// The ids of receives are above this number, the ids of sends are below it.
const RECEIVES: u64 = 1 << 32;

/// The requests of a queue pair from one recovery to the next.
#[derive(Default)]
struct Posted {
    /// Ids of all sends, in order.
    all: Vec<u64>,
    /// Ids of signalled sends.
    signaled: Vec<u64>,
    /// Ids of all receives, in order.
    receives: Vec<u64>,
}

impl Posted {
    /// Posts `count` RDMA WRITEs with ids above `last`. Returns the last id. Some requests are not signalled,
    /// but the last one is.
    fn post(
        &mut self,
        pair: &mut QpPairFixture<'_>,
        (remote, sge): (Remote, Sge),
        count: u64,
        last: u64,
    ) -> Result<u64, String> {
        for id in last + 1..=last + count {
            let is_signaled = id == last + count || id % 3 != 0;
            let request = pair.near.request(id);
            let request = if is_signaled { request.signaled() } else { request };
            request.rdma_write(remote, &[sge]).map_err(text)?;
            self.all.push(id);
            self.signaled.extend(is_signaled.then_some(id));
        }
        Ok(last + count)
    }

    /// Posts `count` receive requests with ids above `last`. Returns the last id.
    fn post_receives(&mut self, pair: &mut QpPairFixture<'_>, count: u64, last: u64) -> Result<u64, String> {
        for id in last + 1..=last + count {
            pair.near.queues().post_receive(id, &[]).map_err(text)?;
            self.receives.push(id);
        }
        Ok(last + count)
    }
}

/// The fewest and the most rounds of failure and recovery (`ROUNDS`). Once the time limit `LIMIT`, in
/// nanoseconds, is over and the fewest rounds are done, the scenario stops. The fewest rounds suffice to
/// combine all numbers of requests with both ways to take completions.
const ROUNDS: core::ops::Range<u64> = 56..1000;
const LIMIT: u64 = 10_000_000_000;

/// Each round posts requests, makes the queue pair fail at various moments, takes all completions or none,
/// and recovers the queue pair. Each request is reported once, by a completion or as outstanding. No
/// completion from before a recovery is reported after it.
fn m55_a_queue_pair_fails_and_recovers_again_and_again(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let (source, target) = (pair.region(&pattern(64, 1)), pair.region(&[0; 64]));
    let remote = target.remote();
    let write = (remote, source.sge());
    let (mut last, mut last_receive) = (0, RECEIVES);
    let begin = pair.board.nanoseconds();
    for round in 0..ROUNDS.end {
        let taken = pair.board.nanoseconds().zip(begin).map_or(0, |(now, begin)| now.saturating_sub(begin));
        if round >= ROUNDS.start && taken > LIMIT {
            break;
        }
        let mut posted = Posted::default();
        last_receive = posted.post_receives(&mut pair, round % 4, last_receive)?;
        pair.near.queues().publish_receives();
        last = posted.post(&mut pair, write, round % 7, last)?;
        pair.near.ring_doorbell();
        if round % 3 == 0 {
            // The peer sends a message for the first receive request, if there is one.
            if !posted.receives.is_empty() {
                pair.far.request(0).signaled().send(&[][..]).map_err(text)?;
                pair.far.ring_doorbell();
            }
            pair.run_device()?;
        }
        pair.board.fail(&pair.near);
        // The queue pair has failed, so the device flushes the requests that are published here. Requests
        // that are posted further below are never published, so the device does not see them.
        last = posted.post(&mut pair, write, round % 2, last)?;
        pair.run_near()?;
        let (published, published_receives) = (posted.all.len(), posted.receives.len());
        let takes = round % 8 < 4;
        let [mut completed, mut received] = [Vec::new(), Vec::new()];
        while takes
            && (published > 0 && completed.last() != Some(&last) || received.len() < published_receives)
        {
            let done = pair.wait_near(1)?;
            ensure!(!done.is_empty(), "round {round}: {completed:?} and {received:?} complete, and no more");
            for id in done.into_iter().map(|completion| completion.id) {
                if id > RECEIVES { received.push(id) } else { completed.push(id) }
            }
        }
        last = posted.post(&mut pair, write, u64::from(round % 5 == 0), last)?;
        last_receive = posted.post_receives(&mut pair, u64::from(round % 5 == 1), last_receive)?;
        let outstanding = pair.board.recover(&mut pair.near, &mut pair.far);
        // If this round takes completions, all published requests are retired by them. All other requests
        // must be reported as outstanding, in order.
        let (sends, receives) = if takes { (published, published_receives) } else { (0, 0) };
        let left = [posted.all.split_off(sends), posted.receives.split_off(receives)];
        ensure_eq!(outstanding, left, "round {round}: outstanding");
        ensure_eq!(received, posted.receives, "round {round}: receives completed");
        // Flushed requests have completions even if they are not signalled, so only signalled requests are
        // compared.
        completed.retain(|id| posted.signaled.contains(id));
        posted.signaled.retain(|id| posted.all.contains(id));
        ensure_eq!(completed, posted.signaled, "round {round}: completions");
        // Recovery sets the block counters of both the library's queue and the device to 0, so the next
        // request must complete as usual.
        last = Posted::default().post(&mut pair, write, 1, last)?;
        match pair.complete_near(1)?[..] {
            [done] if done.id == last && matches!(done.outcome, Outcome::Sent { .. }) => {}
            ref other => return Err(format!("round {round}: {other:?} behind recovery")),
        }
    }
    ensure!(pair.near.counters().outstanding == 0, "requests are left over");
    Ok(())
}

/// A signature error that is still in the completion queue when the queue pair is reset is reported for its
/// mkey afterwards, exactly once. Then the mkey can be used again.
fn m55_a_signature_error_outlives_a_reset(board: &mut dyn Board) -> Verdict {
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let images = expected::images(&pattern(512, 1), Some(&signature), None);
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    for is_failed in [false, true] {
        fixture.install(&images.memory, Some(&signature), None)?;
        let pair = &mut fixture.pair;
        let (bad, key) = (pair.region(&flipped(&images.wire, 0, 1)), pair.key(fixture.mkey));
        let inside = Sge { address: 0, length: bad.length as u32, lkey: key };
        pair.near.request(1).signaled().rdma_read(bad.remote(), &[inside]).map_err(text)?;
        pair.run_near()?;
        if is_failed {
            pair.board.fail(&pair.near);
            pair.run_device()?;
        }
        let outstanding = pair.board.recover(&mut pair.near, &mut pair.far);
        ensure_eq!(outstanding, [vec![1], vec![]], "outstanding");
        // The poll does not wait. If a completion arrives later, `install` below fails, because it expects
        // only its own completion.
        ensure!(pair.poll_near()?.is_empty(), "a completion behind the reset");
        ensure_eq!(core::mem::take(&mut pair.signature_errors), vec![fixture.mkey], "mkeys that were told");
        let error = fixture.error()?.ok_or("the mkey has no error")?;
        reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 0, 520)?;
        fixture.install(&images.memory, Some(&signature), None)?;
        fixture.take(Rx::Read, 0, &images.wire)?;
    }
    Ok(())
}
