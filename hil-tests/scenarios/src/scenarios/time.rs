//! Timestamps of completions, compared with the readable clock of the device.

use super::fixture::pattern;
use super::scenario::{Scenario, scenario};
use crate::board::{Board, EndSpec};
use crate::qp_pair::{QpPairFixture, Verdict, Within, text};
use crate::{ensure, ensure_eq};
use alloc::string::String;
use mlx5_mkey::command::CqeSize;
use mlx5_mkey::queue::ClockInfo;
use mlx5_mkey::wire::cqe::CqeOpcode;
use mlx5_mkey::wqe::Sge;

pub(super) const ALL: &[Scenario] = &[scenario!(m56_completions_tell_their_time, CLOCK, ["M56"])];

/// Reads the device's clock.
fn ticks(pair: &QpPairFixture<'_>) -> Result<u64, String> {
    pair.board.ticks().ok_or("the board says that it has a clock, and does not show it".into())
}

/// Completes a NOP, or receives a message into `received`. Checks that the timestamp of the near end's
/// completion entry is between two readings of the clock, and returns it.
fn stamp(pair: &mut QpPairFixture<'_>, received: Option<&Sge>) -> Result<u64, String> {
    let before = ticks(pair)?;
    let opcode = if let Some(sge) = received {
        pair.receive(1, &[*sge])?;
        pair.far.request(2).send(&[*sge]).map_err(text)?;
        pair.far.ring_doorbell();
        CqeOpcode::RESPONDER_SEND
    } else {
        pair.near.request(3).signaled().nop().map_err(text)?;
        pair.near.ring_doorbell();
        CqeOpcode::REQUESTER
    };
    pair.run_device()?;
    let entry = pair.wait_entry()?;
    let after = ticks(pair)?;
    ensure_eq!(entry.opcode(), opcode, "the completion");
    let stamp = entry.timestamp.get();
    ensure!((before..=after).contains(&stamp), "{opcode}: stamp {stamp} is not from {before} to {after}");
    Ok(stamp)
}

/// Timestamps of requests and receives, in completion entries of both sizes, are between two readings of the
/// device's clock, and so they increase. Timestamps of requests that were published together never decrease.
/// If the board can also measure nanoseconds, the ticks have the length that the device reports.
fn m56_completions_tell_their_time(board: &mut dyn Board) -> Verdict {
    const ROUNDS: u64 = 8;
    let mut pair = QpPairFixture::new(board);
    let region = pair.region(&pattern(64, 1));
    for cqe_size in [CqeSize::B64, CqeSize::B128] {
        pair.reconnect_as(EndSpec { cqe_size, ..EndSpec::default() });
        for round in 0..ROUNDS {
            for received in [None, Some(&region.sge())] {
                stamp(&mut pair, received).within(format_args!("{cqe_size:?}, round {round}"))?;
            }
        }
        let mut last = ticks(&pair)?;
        for id in 0..ROUNDS {
            pair.near.request(id).signaled().nop().map_err(text)?;
        }
        pair.run_near()?;
        for id in 0..ROUNDS {
            let stamp = pair.wait_entry()?.timestamp.get();
            ensure!(stamp >= last, "{cqe_size:?}, request {id}: stamp {stamp} behind one of {last}");
            last = stamp;
        }
        let now = ticks(&pair)?;
        ensure!(last <= now, "{cqe_size:?}: the last stamp is {last}, and the clock shows {now}");
    }
    pair.reconnect();
    lengths(&mut pair)
}

/// Checks that the time between two completions is the same by their timestamps (converted with the frequency
/// that the device reports) and by the board's nanosecond clock.
fn lengths(pair: &mut QpPairFixture<'_>) -> Verdict {
    const WAIT: u64 = 20_000_000;
    // The allowed error of the comparison, in parts per thousand.
    const WRONG: u64 = 1;
    let rate: ClockInfo = pair.board.tick_rate().ok_or("a clock without a frequency")?;
    let Some(begin) = pair.board.nanoseconds() else { return Ok(()) };
    let now = |pair: &QpPairFixture<'_>| pair.board.nanoseconds().ok_or("the board's clock is gone");
    let first = stamp(pair, None)?;
    let waiting = now(pair)?;
    while now(pair)?.saturating_sub(waiting) < WAIT {
        core::hint::spin_loop();
    }
    let waited = now(pair)?.saturating_sub(waiting);
    let second = stamp(pair, None)?;
    let all = now(pair)?.saturating_sub(begin);
    let passed = rate.nanoseconds(second.wrapping_sub(first));
    let (least, most) = (waited - waited / 1000 * WRONG, all + all / 1000 * WRONG);
    ensure!(
        (least..=most).contains(&passed),
        "{passed} ns by the stamps, {waited} to {all} by the board's clock"
    );
    Ok(())
}
