//! A simple model of the queues: lists of the requests that were posted and have not been reported yet.

use mlx5_mkey::devx::Outstanding;
use std::collections::VecDeque;
use std::fmt;

/// Places and kinds of the faults that a seed may cause. All statuses of commands are one kind. The empty
/// place means any place, since the device may end anywhere.
pub(super) const KINDS: [(&str, &str); 24] = [
    ("call", "ENOMEM"),
    ("call", "EINTR"),
    ("call", "EIO"),
    ("call", "status"),
    ("call", "late"),
    ("call", "unheard"),
    ("end", "EBUSY"),
    ("end", "EINTR"),
    ("end", "status"),
    ("read", "EINTR"),
    ("read", "EAGAIN"),
    ("read", "short"),
    ("completion", "late"),
    ("completion", "twice"),
    ("completion", "dropped"),
    ("completion", "stranger"),
    ("completion", "overrun"),
    ("signature", "late"),
    ("signature", "twice"),
    ("signature", "dropped"),
    ("signature", "stranger"),
    ("signature", "overrun"),
    ("", "removed"),
    ("", "fatal"),
];

/// Counts of all requests by outcome, of lives (from the opening of a device to its closing), and of faults.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) lives: u64,
    pub(super) not_opened: u64,
    pub(super) posted: u64,
    pub(super) completed: u64,
    /// Requests that were reported by the completion of a later request.
    pub(super) implied: u64,
    /// The part of `implied` that had requested its own completion, which was lost.
    pub(super) passed_over: u64,
    pub(super) failed: u64,
    pub(super) handed_back: u64,
    /// Reports of further failed parts of a request that had already been reported as failed.
    pub(super) again: u64,
    /// Completion entries that the library refused as malformed or unknown.
    pub(super) strange: u64,
    pub(super) signature_errors: u64,
    /// Failed calls of `devx`.
    pub(super) refused: u64,
    /// The number of faults of each kind of [`KINDS`].
    pub(super) faults: [u64; KINDS.len()],
}

impl Tally {
    /// Counts the faults of a trace.
    pub(super) fn note(&mut self, trace: &str) {
        for word in trace.split(',').filter(|word| !word.is_empty()) {
            let (place, fault) = word.split_once('=').expect("a place and a fault");
            let is_it =
                |kind: &(&str, &str)| place.starts_with(kind.0) && fault.split(':').next() == Some(kind.1);
            let kind = KINDS.iter().position(is_it).unwrap_or_else(|| panic!("{word} is in no list"));
            self.faults[kind] += 1;
        }
    }

    /// Returns the kinds of faults that have never occurred.
    pub(super) fn absent(&self) -> Vec<(&'static str, &'static str)> {
        let kinds = KINDS.into_iter().zip(self.faults);
        kinds.filter(|(_, count)| *count == 0).map(|(kind, _)| kind).collect()
    }

    /// Returns the number of reported requests.
    pub(super) fn told(&self) -> u64 {
        self.completed + self.implied + self.failed + self.handed_back
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} faults, {} calls that failed, {} devices opened, {} not",
            self.faults.iter().sum::<u64>(),
            self.refused,
            self.lives,
            self.not_opened
        )?;
        for (number, ((place, fault), count)) in KINDS.into_iter().zip(self.faults).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            let space = if place.is_empty() { "" } else { " " };
            write!(f, "{comma}{place}{space}{fault} {count}")?;
        }
        writeln!(f)?;
        write!(
            f,
            "{} requests: {} completed, {} by a later completion (of them {} whose own was lost), {} \
             failed, {} handed back; {} parts \
             of configurations that failed besides, {} strange entries, {} signature errors",
            self.posted,
            self.completed,
            self.implied,
            self.passed_over,
            self.failed,
            self.handed_back,
            self.again,
            self.strange,
            self.signature_errors
        )
    }
}

/// A posted send request.
#[derive(Clone, Copy, Debug)]
struct Posted {
    id: u64,
    /// The number of the request's work requests that are outstanding.
    parts: u32,
    signaled: bool,
    /// Whether the failure of a part was reported.
    failed: bool,
}

/// The requests of a queue pair, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    sends: VecDeque<Posted>,
    receives: VecDeque<u64>,
    /// Requests that a failed reset has taken from the queues and not handed back. `held_receives` has the
    /// receive requests.
    held: Vec<Posted>,
    held_receives: Vec<u64>,
}

impl Books {
    /// Records a request that was posted as `parts` work requests.
    pub(super) fn post(&mut self, id: u64, parts: u32, signaled: bool, tally: &mut Tally) {
        tally.posted += 1;
        self.sends.push_back(Posted { id, parts, signaled, failed: false });
    }

    pub(super) fn post_receive(&mut self, id: u64, tally: &mut Tally) {
        tally.posted += 1;
        self.receives.push_back(id);
    }

    /// Returns the number of outstanding work requests in the send queue.
    pub(super) fn outstanding(&self) -> u32 {
        self.sends.iter().map(|posted| posted.parts).sum()
    }

    /// Records that a send request has completed, or that a part of it has failed. `left` is the number of
    /// work requests that are outstanding now, and `lossy` tells whether completions may have been lost.
    pub(super) fn send(
        &mut self,
        id: u64,
        failed: bool,
        left: u32,
        lossy: bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let at = self.sends.iter().position(|posted| posted.id == id);
        let at = at.ok_or_else(|| format!("send {id} was told of before"))?;
        for passed in self.sends.drain(..at) {
            if passed.failed {
                continue;
            }
            if passed.signaled {
                tally.passed_over += 1;
                if !lossy {
                    return Err(format!("send {} did not complete before {id}", passed.id));
                }
            }
            tally.implied += 1;
        }
        let behind: u32 = self.sends.iter().skip(1).map(|posted| posted.parts).sum();
        let Some(posted) = self.sends.front_mut() else { return Err("no request".into()) };
        let rest = left.checked_sub(behind).ok_or("too few are outstanding")?;
        match (posted.failed, failed) {
            (true, false) => return Err(format!("send {id} is done after it has failed")),
            (true, true) => tally.again += 1,
            (false, true) => tally.failed += 1,
            (false, false) if !posted.signaled => return Err(format!("send {id} was silent")),
            (false, false) => tally.completed += 1,
        }
        if !failed && rest > 0 || rest >= posted.parts {
            return Err(format!("send {id}: {rest} of its {} parts are outstanding", posted.parts));
        }
        (posted.parts, posted.failed) = (rest, failed);
        if rest == 0 {
            self.sends.pop_front();
        }
        Ok(())
    }

    /// Records that a receive request has completed or failed. `lossy` tells whether completions may have
    /// been lost.
    pub(super) fn receive(
        &mut self,
        id: u64,
        failed: bool,
        lossy: bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let at = self.receives.iter().position(|other| *other == id);
        let at = at.ok_or_else(|| format!("receive {id} was told of before"))?;
        if at > 0 && !lossy {
            return Err(format!("{at} receives did not complete before {id}"));
        }
        self.receives.drain(..=at);
        tally.implied += at as u64;
        tally.passed_over += at as u64;
        if failed {
            tally.failed += 1;
        } else {
            tally.completed += 1;
        }
        Ok(())
    }

    /// Records a failed reset. `emptied` tells whether the reset has emptied the queues before it failed.
    pub(super) fn reset_failed(&mut self, emptied: bool) {
        if emptied {
            self.held.extend(self.sends.drain(..));
            self.held_receives.extend(self.receives.drain(..));
        }
    }

    /// Compares the requests that a reset hands back with all recorded requests, and removes the records.
    pub(super) fn hand_back(&mut self, outstanding: &Outstanding, tally: &mut Tally) -> Result<(), String> {
        let sends: Vec<Posted> = self.held.drain(..).chain(self.sends.drain(..)).collect();
        let receives: Vec<u64> = self.held_receives.drain(..).chain(self.receives.drain(..)).collect();
        let ids: Vec<u64> = sends.iter().map(|posted| posted.id).collect();
        if (&outstanding.sends, &outstanding.receives) != (&ids, &receives) {
            return Err(format!("handed back: {outstanding:?}, outstanding: {ids:?}, {receives:?}"));
        }
        let again = sends.iter().filter(|posted| posted.failed).count() as u64;
        tally.again += again;
        tally.handed_back += (ids.len() + receives.len()) as u64 - again;
        Ok(())
    }

    /// Returns whether no request is outstanding.
    pub(super) fn is_empty(&self) -> bool {
        let no_sends = self.sends.is_empty() && self.held.is_empty();
        no_sends && self.receives.is_empty() && self.held_receives.is_empty()
    }
}
