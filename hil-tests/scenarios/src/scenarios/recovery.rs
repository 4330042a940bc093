//! Queue pairs that fail and are made ready again.

use super::fixture::pattern;
use super::{Scenario, scenario};
use crate::board::Board;
use crate::qp_pair::{QpPairFixture, Verdict};
use crate::{ensure, ensure_eq};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use mlx5_mkey::queue::Outcome;
use mlx5_mkey::wqe::{Remote, Sge};

pub(super) const ALL: &[Scenario] =
    &[scenario!(m55_a_queue_pair_fails_and_recovers_a_thousand_times, NOTHING, ["M55"])];

/// What was posted to a queue pair in one of its lives.
#[derive(Default)]
struct Posted {
    /// All names, in order.
    all: Vec<u64>,
    /// Those of signalled requests.
    signaled: Vec<u64>,
}

impl Posted {
    /// Posts `count` requests with names above `last`, and returns the last name. Some are silent, which are done when a later one
    /// is; the last is signalled.
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
            request.rdma_write(remote, &[sge]).map_err(|error| error.to_string())?;
            self.all.push(id);
            self.signaled.extend(is_signaled.then_some(id));
        }
        Ok(last + count)
    }
}

/// Posts, fails at different moments, takes all completions or none, recovers: each request is named once, by a completion or as
/// outstanding, and no completion of an earlier life is taken for one of a later.
fn m55_a_queue_pair_fails_and_recovers_a_thousand_times(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let (source, target) = (pair.region(&pattern(64, 1)), pair.region(&[0; 64]));
    let remote = Remote { address: target.address, rkey: target.key };
    let write = (remote, Sge { address: source.address, length: 64, lkey: source.key });
    let mut last = 0;
    for round in 0..1000_u64 {
        let mut posted = Posted::default();
        last = posted.post(&mut pair, write, round % 7, last)?;
        pair.near.ring_doorbell();
        if round % 3 == 0 {
            pair.run_device()?;
        }
        pair.board.fail(&pair.near);
        // What is published now is flushed, and what is not published nobody knows of.
        last = posted.post(&mut pair, write, round % 2, last)?;
        pair.near.ring_doorbell();
        pair.run_device()?;
        let published = posted.all.len();
        let mut completed: Vec<u64> = Vec::new();
        while published > 0 && round % 4 < 2 && completed.last() != Some(&last) {
            let done = pair.wait_near(1)?;
            ensure!(!done.is_empty(), "round {round}: the last request does not complete");
            completed.extend(done.into_iter().map(|completion| completion.id));
        }
        last = posted.post(&mut pair, write, u64::from(round % 5 == 0), last)?;
        let outstanding = pair.board.recover(&mut pair.near, &mut pair.far);
        // A completion retires all requests before its own; what none retires is outstanding, in order.
        let retired = if completed.is_empty() { 0 } else { published };
        ensure_eq!(outstanding, posted.all.split_off(retired), "round {round}: outstanding");
        // Silent requests that are flushed complete, too.
        completed.retain(|id| posted.signaled.contains(id));
        posted.signaled.retain(|id| posted.all.contains(id));
        ensure_eq!(completed, posted.signaled, "round {round}: completions");
        // The queues begin anew with the device's.
        last = Posted::default().post(&mut pair, write, 1, last)?;
        pair.near.ring_doorbell();
        pair.run_device()?;
        match pair.wait_near(1)?[..] {
            [done] if done.id == last && matches!(done.outcome, Outcome::Sent { .. }) => {}
            ref other => return Err(format!("round {round}: {other:?} behind recovery")),
        }
    }
    ensure!(pair.near.counters().outstanding == 0, "requests are left over");
    Ok(())
}
