//! The work whose instructions are counted, and who does it: the library ([`ours`]), a bare copy of the same
//! bytes ([`copy`]), the least that a hand-written program takes ([`floor`]), and libmlx5, in the program.
//!
//! Nothing here reads a clock or prints, so that the same work runs on bare metal. A measurement is the
//! difference of two runs of [`Side::run`], one with more requests than the other: what a run costs beside
//! its requests cancels out.
//!
//! What is counted is what a service does for each request. It has addresses, lengths and keys as native
//! values in memory, of which the compiler knows nothing ([`Io`]), one mkey for each I/O, and 64 of them that
//! it uses in turn; what is the same for all I/Os of a volume (access, signature, crypto) it has made ready.
//! From there to the doorbell everything is counted, with one doorbell for each request. Rings have 256
//! blocks, completion queues 512 entries, and every field of a completion is used.
//!
//! A run of requests begins at the ring's start and stays before its end, and completions are taken outside
//! of what is counted. [`Work::List16Wrapped`] is about the ring's end, and those of whole I/Os
//! ([`Work::IoList4`] and others) go round the ring and take their completions: they are means over whole
//! laps. [`Work::RingFullList4`] and [`Work::MaxRequestsList4`] take a completion before each request:
//! compare them with [`Work::List4`] and [`Work::Completion1`] together.

#![no_std]
// As in the tests: what is impossible stops.
#![allow(clippy::expect_used)]

extern crate alloc;

pub mod copy;
pub mod floor;
pub mod ours;
mod publish;
mod retire;

use alloc::vec::Vec;
use core::fmt;
use mlx5_mkey::mkey::KlmEntry;
use mlx5_mkey::types::Key;
use mlx5_mkey::wqe::Sge;

/// Blocks of a send queue's ring.
pub const BLOCKS: usize = 256;
/// Entries of a completion queue.
pub const ENTRIES: usize = 512;
/// I/Os, each with its mkey, that are used in turn.
pub const IOS: usize = 64;
/// Requests that share a doorbell, where they do.
pub const BATCH: usize = 16;
/// The most entries of a list: as many as one request holds.
pub const MAX_ENTRIES: usize = 52;
/// Queue pairs of [`Work::Completion64Queues`].
pub const QUEUES: usize = 64;

/// An I/O as a service knows it.
#[derive(Clone, Debug)]
pub struct Io {
    /// Its memory; how many of them count is up to the work.
    pub entries: [KlmEntry; MAX_ENTRIES],
    /// How many, for work that learns the number at run time.
    pub count: usize,
    /// What an RDMA WRITE or a receive is about.
    pub data: Sge,
    /// Address and key of the peer's memory.
    pub remote: u64,
    /// See `remote`.
    pub rkey: u32,
    /// What its completion carries.
    pub id: u64,
    /// Where it is on the disk: its tweak and its reference tag.
    pub lba: u64,
}

impl Io {
    /// Returns the I/Os of a run, all different.
    pub fn all(entries: usize) -> Vec<Self> {
        const BYTES: u32 = 4096;
        let key = Key::from_raw(0x500);
        let address = |at: usize| 0x7f00_0000_0000 + at as u64 * u64::from(BYTES);
        let entry = |at| KlmEntry { address: address(at), length: BYTES, key };
        let io = |io: usize| Self {
            entries: core::array::from_fn(|at| entry(io * MAX_ENTRIES + at)),
            count: entries,
            data: Sge { address: address(io), length: BYTES, lkey: key },
            remote: 0x7e00_0000_0000 + io as u64 * u64::from(BYTES),
            rkey: 0x600,
            id: io as u64,
            lba: io as u64,
        };
        (0..IOS).map(io).collect()
    }
}

/// What is done. Numbers in names are those of entries; "known" is what the compiler knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A list, its number of entries known.
    List1,
    /// A list, its number of entries not known.
    List1Dyn,
    /// As [`Work::List1Dyn`].
    List4Dyn,
    /// As [`Work::List1`].
    List4,
    /// As [`Work::List1Dyn`].
    List16,
    /// A list, and AES-XTS with a new tweak.
    Xts4,
    /// A list, and T10-DIF on the wire with a new reference tag.
    T10Dif1,
    /// A list, and CRC32C on the wire.
    Crc32c1,
    /// A list, T10-DIF on the wire with a new reference tag, and AES-XTS with a new tweak.
    T10DifXts4,
    /// An RDMA WRITE with one SGE.
    RdmaWrite,
    /// [`Work::RdmaWrite`], written to the device with the doorbell (BlueFlame).
    RdmaWriteBlueFlame,
    /// Completions, one per poll, all requests signalled.
    Completion1,
    /// As [`Work::Completion1`], 16 per poll.
    Completion16,
    /// Completions of requests, each behind a silent one.
    CompletionAfterSilent,
    /// Completions where every 32nd request is signalled.
    CompletionEvery32,
    /// [`Work::List4`] on a queue with fewer requests than its ring has blocks.
    LimitedList4,
    /// Completions of 64 queue pairs in turn, on one completion queue.
    Completion64Queues,
    /// [`Work::List4`], refused by a ring that is full.
    RefusedRingFull,
    /// [`Work::List4`], refused by a queue with as many requests as it may have.
    RefusedMaxRequests,
    /// A completion on a full ring, and [`Work::List4`] in the room that this makes.
    RingFullList4,
    /// A completion on a queue with as many requests as it may have, and [`Work::List4`] in the place of the
    /// one that is done.
    MaxRequestsList4,
    /// A whole I/O: [`Work::List4`], silent, an RDMA WRITE of all of it, signalled, the doorbell, and the
    /// completion.
    IoList4,
    /// [`Work::IoList4`], its number of entries not known.
    IoList4Dyn,
    /// [`Work::IoList4`] through the shim over libmlx5 (`devx`), which the program does, and boards do not.
    IoList4Devx,
    /// A whole I/O with [`Work::Xts4`].
    IoXts4,
    /// A whole I/O with [`Work::T10Dif1`].
    IoT10Dif1,
    /// A whole I/O with [`Work::T10DifXts4`].
    IoT10DifXts4,
    /// An interleaved layout of 3 entries.
    Interleaved3,
    /// [`Work::List16`] in a ring that comes to its end: one of 41 requests begins three blocks before it and
    /// goes on at its start.
    List16Wrapped,
    /// [`Work::List4`] through a queue that threads share.
    SharedList4,
    /// A receive with one SGE.
    Receive,
    /// [`Work::List1`] on an mkey that has never been configured.
    FirstList1,
    /// [`Work::T10DifXts4`] on an mkey that has never been configured.
    FirstT10DifXts4,
    /// A new list for an mkey of [`Work::List4`], and nothing else.
    ReconfigureList4,
    /// A new tweak for an mkey of [`Work::Xts4`], and nothing else.
    ReconfigureTweak,
    /// A new reference tag for an mkey of [`Work::T10Dif1`], and nothing else.
    ReconfigureRefTag,
    /// A list of this number of entries, which the compiler does not know: for the plot.
    Entries(u8),
}

/// What of an mkey a work is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its layout.
    Plain,
    /// Also a signature of one domain.
    Signed,
    /// Also crypto.
    Encrypted,
    /// Also both.
    Both,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Signed, Self::Encrypted, Self::Both];

    /// Returns whether there is a signature.
    pub const fn has_signature(self) -> bool {
        matches!(self, Self::Signed | Self::Both)
    }

    /// Returns whether there is crypto.
    pub const fn has_crypto(self) -> bool {
        matches!(self, Self::Encrypted | Self::Both)
    }
}

const ONE: &[usize] = &[1];
const ONE_AND_MANY: &[usize] = &[1, BATCH];

impl Work {
    /// What the table shows, in its order.
    pub const ALL: &[Self] = &[
        Self::List1,
        Self::List1Dyn,
        Self::List4Dyn,
        Self::List4,
        Self::List16,
        Self::Xts4,
        Self::T10Dif1,
        Self::Crc32c1,
        Self::T10DifXts4,
        Self::RdmaWrite,
        Self::RdmaWriteBlueFlame,
        Self::Completion1,
        Self::Completion16,
        Self::CompletionAfterSilent,
        Self::CompletionEvery32,
        Self::LimitedList4,
        Self::Completion64Queues,
        Self::RefusedRingFull,
        Self::RefusedMaxRequests,
        Self::RingFullList4,
        Self::MaxRequestsList4,
        Self::IoList4Dyn,
        Self::IoList4,
        Self::IoList4Devx,
        Self::IoXts4,
        Self::IoT10Dif1,
        Self::IoT10DifXts4,
        Self::Interleaved3,
        Self::List16Wrapped,
        Self::SharedList4,
        Self::Receive,
        Self::FirstList1,
        Self::FirstT10DifXts4,
        Self::ReconfigureList4,
        Self::ReconfigureTweak,
        Self::ReconfigureRefTag,
    ];

    /// Returns name, kind of mkey, entries of the layout, and how many requests may share a doorbell (or
    /// completions a poll) in a measurement.
    const fn row(self) -> (&'static str, Kind, usize, &'static [usize]) {
        use Kind::{Both, Encrypted, Plain, Signed};
        match self {
            Self::List1 => ("list1", Plain, 1, ONE_AND_MANY),
            Self::List1Dyn => ("list1_dyn", Plain, 1, ONE),
            Self::List4Dyn => ("list4_dyn", Plain, 4, ONE),
            Self::List4 => ("list4", Plain, 4, ONE_AND_MANY),
            Self::List16 => ("list16", Plain, 16, ONE_AND_MANY),
            Self::Xts4 => ("xts4", Encrypted, 4, ONE_AND_MANY),
            Self::T10Dif1 => ("t10dif1", Signed, 1, ONE_AND_MANY),
            Self::Crc32c1 => ("crc32c1", Signed, 1, ONE_AND_MANY),
            Self::T10DifXts4 => ("t10dif_xts4", Both, 4, ONE_AND_MANY),
            Self::RdmaWrite => ("rdma_write", Plain, 1, ONE_AND_MANY),
            Self::RdmaWriteBlueFlame => ("rdma_write_blue_flame", Plain, 1, ONE),
            Self::Completion1 => ("completion1", Plain, 1, ONE),
            Self::Completion16 => ("completion16", Plain, 1, &[BATCH]),
            Self::CompletionAfterSilent => ("completion_after_silent", Plain, 1, ONE),
            Self::CompletionEvery32 => ("completion_every32", Plain, 1, ONE),
            Self::LimitedList4 => ("limited_list4", Plain, 4, ONE),
            Self::Completion64Queues => ("completion_64_queues", Plain, 1, ONE),
            Self::RefusedRingFull => ("refused_ring_full", Plain, 4, ONE),
            Self::RefusedMaxRequests => ("refused_max_requests", Plain, 4, ONE),
            Self::RingFullList4 => ("ring_full_list4", Plain, 4, ONE),
            Self::MaxRequestsList4 => ("max_requests_list4", Plain, 4, ONE),
            Self::IoList4 => ("io_list4", Plain, 4, ONE),
            Self::IoList4Dyn => ("io_list4_dyn", Plain, 4, ONE),
            Self::IoList4Devx => ("io_list4_devx", Plain, 4, ONE),
            Self::IoXts4 => ("io_xts4", Encrypted, 4, ONE),
            Self::IoT10Dif1 => ("io_t10dif1", Signed, 1, ONE),
            Self::IoT10DifXts4 => ("io_t10dif_xts4", Both, 4, ONE),
            Self::Interleaved3 => ("interleaved3", Plain, 3, ONE_AND_MANY),
            Self::List16Wrapped => ("list16_wrapped", Plain, 16, ONE),
            Self::SharedList4 => ("shared_list4", Plain, 4, ONE_AND_MANY),
            Self::Receive => ("receive", Plain, 1, ONE_AND_MANY),
            Self::FirstList1 => ("first_list1", Plain, 1, ONE),
            Self::FirstT10DifXts4 => ("first_t10dif_xts4", Both, 4, ONE),
            Self::ReconfigureList4 => ("reconfigure_list4", Plain, 4, ONE_AND_MANY),
            Self::ReconfigureTweak => ("reconfigure_tweak", Encrypted, 4, ONE_AND_MANY),
            Self::ReconfigureRefTag => ("reconfigure_ref_tag", Signed, 1, ONE_AND_MANY),
            Self::Entries(entries) => ("entries", Plain, entries as usize, ONE),
        }
    }

    /// Returns the kind of mkey.
    pub const fn kind(self) -> Kind {
        self.row().1
    }

    /// Returns the entries of the layout.
    pub const fn entries(self) -> usize {
        self.row().2
    }

    /// Returns how many requests may share a doorbell (or completions a poll) in a measurement.
    pub const fn batches(self) -> &'static [usize] {
        self.row().3
    }

    /// Returns how many requests (or completions, or I/Os) two runs have, whose difference counts.
    pub const fn runs(self, batch: usize) -> [usize; 2] {
        match self {
            // One of 41 wraps: a bit more than a program has that goes round the ring, where it is two in 85.
            Self::List16Wrapped => [1, 42],
            // 64 requests, and 192.
            Self::CompletionEvery32 => [2, 6],
            Self::Completion64Queues => [QUEUES, 2 * QUEUES],
            // 256 I/Os of any number of blocks go round a ring of 256.
            _ if self.is_io() => [IOS, IOS + BLOCKS],
            _ if batch == 1 => [8, 16],
            _ => [batch, 2 * batch],
        }
    }

    /// Returns how many requests (or completions, or I/Os) a run has that is timed: as many as fit, so that
    /// reading the clock takes a small part of it.
    pub const fn timed(self, batch: usize) -> usize {
        let [_, counted] = self.runs(batch);
        let room = match self.blocks() {
            0 => IOS,
            blocks => BLOCKS / blocks,
        };
        let most = if room < IOS { room } else { IOS };
        let whole = most / batch * batch;
        if self.is_io() || self.writes_per_completion().is_some() || whole < counted {
            counted
        } else {
            whole
        }
    }

    /// Returns whether it is a whole I/O.
    pub const fn is_io(self) -> bool {
        matches!(
            self,
            Self::IoList4Dyn
                | Self::IoList4
                | Self::IoList4Devx
                | Self::IoXts4
                | Self::IoT10Dif1
                | Self::IoT10DifXts4
        )
    }

    /// Returns whether it takes completions of RDMA WRITEs that are posted before, and how many of these
    /// there are for each.
    pub const fn writes_per_completion(self) -> Option<usize> {
        match self {
            Self::Completion1 | Self::Completion16 | Self::Completion64Queues => Some(1),
            Self::CompletionAfterSilent => Some(2),
            Self::CompletionEvery32 => Some(32),
            _ => None,
        }
    }

    /// Returns whether RDMA WRITEs fill the queue before a run, until one is refused.
    pub const fn is_on_full_queue(self) -> bool {
        self.is_refused() || matches!(self, Self::RingFullList4 | Self::MaxRequestsList4)
    }

    /// Returns whether it is about the most requests that a queue may have, rather than about its ring.
    pub const fn is_limited(self) -> bool {
        matches!(self, Self::RefusedMaxRequests | Self::MaxRequestsList4)
    }

    /// Returns whether it is refused.
    pub const fn is_refused(self) -> bool {
        matches!(self, Self::RefusedRingFull | Self::RefusedMaxRequests)
    }

    /// Returns where the first request of a run begins, in blocks from the ring's end.
    pub const fn blocks_to_end(self) -> usize {
        match self {
            Self::List16Wrapped => 3 + 21 * 6,
            _ => BLOCKS,
        }
    }

    /// Returns whether mkeys are as they were created when a run begins.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::FirstList1 | Self::FirstT10DifXts4)
    }

    /// Returns how many blocks one request has, those of a SET_PSV included; of an I/O all of its requests.
    pub const fn blocks(self) -> usize {
        let (_, kind, entries, _) = self.row();
        let (bsfs, psvs) =
            (kind.has_signature() as usize + kind.has_crypto() as usize, kind.has_signature() as usize);
        match self {
            Self::RdmaWrite | Self::RdmaWriteBlueFlame => 1,
            Self::Receive => 0,
            _ if self.writes_per_completion().is_some() || self.is_refused() => 0,
            // A BSF stays as it is, or the layout does.
            Self::ReconfigureList4 | Self::ReconfigureTweak | Self::ReconfigureRefTag => 3 + psvs,
            // The header is an entry, too.
            Self::Interleaved3 => 3,
            _ => 2 + entries.div_ceil(4) + bsfs + psvs + self.is_io() as usize,
        }
    }

    /// Returns how many blocks the last work request of a run has, by which its completion names it.
    pub const fn last_blocks(self) -> usize {
        if self.kind().has_signature() || self.is_io() { 1 } else { self.blocks() }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(entries) => write!(f, "entries{entries}"),
            _ => f.write_str(self.row().0),
        }
    }
}

/// What went wrong. None of it happens where queues and mkeys are as they should be.
pub type Fault = &'static str;

/// Someone who does the work.
pub trait Side {
    /// Returns whether this side does this work at all, with `batch` requests in a batch.
    fn does(&self, _work: Work, _batch: usize) -> bool {
        true
    }

    /// Gets everything ready for a run of `requests` requests.
    ///
    /// # Errors
    /// [`Fault`], as in the other two.
    fn prepare(&mut self, work: Work, requests: usize) -> Result<(), Fault>;

    /// Does the work, with a doorbell (or a poll) for each batch. This is what is counted.
    ///
    /// # Errors
    /// [`Fault`].
    fn run(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), Fault>;

    /// Returns how many blocks have been posted in all, modulo 2^16: every side must post as many for the
    /// same work.
    fn blocks(&self) -> u16;

    /// Takes all completions.
    ///
    /// # Errors
    /// [`Fault`].
    fn drain(&mut self, work: Work, requests: usize) -> Result<(), Fault>;
}
