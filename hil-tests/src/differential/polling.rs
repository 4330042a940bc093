//! Passes the software devices' completions to libmlx5 (the reference) and to the library, and compares what
//! both report.

use super::check::{self, Answers};
use super::compare::Outcome as Compared;
use super::pair::Pair;
use super::post::Ours;
use super::queues::Queues;
use super::session::Session;
use super::sizes::COMPLETIONS;
use mlx5_mkey::mkey::Mkey;
use mlx5_mkey::queue::{
    Completion, CompletionQueue, CqDoorbellRecord, Outcome, QpRouter, RequestKind, WorkCompletion,
};
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, Syndrome};
use std::io;

/// The completions of requests and the number of signature errors that the library reports.
#[derive(Default)]
struct Polled {
    /// For each completion: id of the request (`wr_id`), `enum ibv_wc_status` and, for a success, `enum
    /// ibv_wc_opcode`.
    works: Vec<(u64, u32, u32)>,
    /// The number of signature errors.
    errors: usize,
}

impl Session {
    /// Passes the waiting completions to libmlx5 and to the library, and compares their reports.
    pub(super) fn poll(&mut self, queues: &mut Queues<'_>, pair: &mut Pair) -> Compared<()> {
        let mut ring = self.deliver()?;
        let errors = self.pending.iter().filter(|entry| entry.opcode() == CqeOpcode::SIGNATURE_ERROR).count();
        self.pending.clear();
        let done = self.completions.poll()?;
        let opcode = |done: &libmlx5::abi::WorkCompletion| if done.status == 0 { done.opcode } else { 0 };
        let theirs: Vec<_> = done.iter().map(|done| (done.wr_id, done.status, opcode(done))).collect();
        let Some(mkey) = &mut pair.ours else {
            let what = "completions of an mkey that was never configured";
            return if theirs.is_empty() { Ok(()) } else { Err(what.into()) };
        };
        let polled = poll_ours(&mut ring, &mut queues.ours, mkey)?;
        if polled.errors != errors {
            let what = format!("{} signature errors reported, the device wrote {errors}", polled.errors);
            return Err(what.into());
        }
        if polled.works != theirs {
            let what = format!("completions: {:x?}, the reference has {theirs:x?}", polled.works);
            return Err(what.into());
        }
        pair.note_polled(errors);
        if self.random.percent(40) { Ok(()) } else { self.ask(pair) }
    }

    /// Writes the waiting completions into libmlx5's completion queue. Returns a new ring with the same
    /// completions for the library, in the first lap of the ring.
    fn deliver(&mut self) -> io::Result<Vec<Cqe>> {
        if self.pending.len() > COMPLETIONS {
            return Err(io::Error::other("more completions than there is room for"));
        }
        let mut ring = vec![Cqe::UNWRITTEN; COMPLETIONS];
        for (entry, slot) in self.pending.iter().zip(&mut ring) {
            self.completions.deliver(zerocopy::transmute!(*entry))?;
            *slot = Cqe { op_own: entry.op_own & !1, ..*entry };
        }
        Ok(ring)
    }

    /// Reads the mkey's signature error from libmlx5 and from the library, and compares the answers.
    fn ask(&mut self, pair: &mut Pair) -> Compared<()> {
        let unread = pair.take_unread();
        let Some(ours) = pair.ours.as_mut().map(Mkey::take_error) else { return Ok(()) };
        let theirs = pair.reference.check();
        // libmlx5 keeps an error that it cannot decode, and would report it again in place of a later error.
        pair.torn |= pair.kind.signature && theirs.is_err();
        match check::compare(&ours, &theirs, unread) {
            Answers::NoError => self.tally.without_error += 1,
            Answers::SameError => self.tally.coverage.checked += 1,
            Answers::BothErrors => self.tally.presence_only += 1,
            Answers::Differ => {
                let what = format!("mkey_check: {ours:x?}, the reference has {theirs:x?}, {unread:?}");
                return Err(what.into());
            }
        }
        Ok(())
    }
}

/// Polls all completions with the library.
fn poll_ours(ring: &mut [Cqe], queue: &mut Ours<'_>, mkey: &mut Mkey) -> Compared<Polled> {
    let record = CqDoorbellRecord::new();
    let mut completions = CompletionQueue::new(ring, &record)
        .map_err(|error| io::Error::other(format!("completion queue: {error:?}")))?;
    let mut router = QpRouter { queues: queue, mkeys: core::slice::from_mut(mkey) };
    let mut polled = Polled::default();
    while let Some(completion) = completions.poll(&mut router) {
        match completion {
            Ok(Completion::Work(work)) => polled.works.push(as_reference(&work)),
            Ok(Completion::SignatureError { .. }) => polled.errors += 1,
            Err(error) => return Err(format!("completion: {error:?}").into()),
        }
    }
    Ok(polled)
}

/// Converts a completion to the terms of verbs: id of the request (`wr_id`), `enum ibv_wc_status` and, for a
/// success, `enum ibv_wc_opcode`.
fn as_reference(completion: &WorkCompletion) -> (u64, u32, u32) {
    let (status, opcode) = match completion.outcome {
        Outcome::Failed(failure) => match failure.syndrome {
            Syndrome(code @ (1 | 2 | 4 | 5 | 6)) => (code.into(), 0),
            Syndrome(code @ 0x10..=0x16) => (u32::from(code) - 9, 0),
            Syndrome(_) => (21, 0),
        },
        Outcome::Sent { kind, .. } => (0, opcode(kind)),
        Outcome::Received { .. } => (0, u32::MAX),
    };
    (completion.id, status, opcode)
}

/// Converts a kind of request to `enum ibv_wc_opcode`.
const fn opcode(kind: RequestKind) -> u32 {
    const DRIVER1: u32 = 135;
    match kind {
        RequestKind::Send => 0,
        RequestKind::RdmaWrite => 1,
        RequestKind::RdmaRead => 2,
        RequestKind::CompareSwap => 3,
        RequestKind::FetchAdd => 4,
        RequestKind::BindWindow => 5,
        RequestKind::LocalInvalidate => 6,
        RequestKind::MkeyConfigure => DRIVER1,
        RequestKind::Raw => DRIVER1 + 1,
        RequestKind::Memcpy => DRIVER1 + 2,
        RequestKind::Nop | RequestKind::SetPsv | RequestKind::MkeyConfigurePart => u32::MAX,
    }
}
