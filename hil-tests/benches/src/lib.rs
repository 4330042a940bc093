//! The benchmarks: kinds of work whose instructions are counted, and the sides (implementations) that do this
//! work: the library ([`ours`]), a bare copy of as many bytes ([`copy`]), and a hand-written program with the
//! fewest instructions ([`floor`]). libmlx5 is a side in the bench program.
//!
//! This crate reads no clock and prints nothing, so that the same work runs on bare metal. A measurement is
//! the difference of two runs of [`Side::run`], one with more requests than the other. The costs of a run
//! besides its requests cancel out.
//!
//! The counted code is the code that a service runs for each request. The service has addresses, lengths and
//! keys as native values in memory, which the compiler cannot know ([`Io`]). It has one mkey for each I/O,
//! and uses 64 of them in turn. It has prepared the properties that are common to all I/Os of a volume
//! (access, signature, crypto). The count begins with the native values and ends with the doorbell, one for
//! each request. Rings have 256 blocks, completion queues have 512 entries, and every field of a completion
//! is used.
//!
//! A run of requests begins at the ring's start and ends before its end, and completions are taken outside of
//! the counted code. There are three exceptions. [`Work::List16Wrapped`] passes the ring's end. Whole I/Os
//! ([`Work::IoList4`] and others) go round the ring and take their completions: their counts are means over
//! whole laps. [`Work::RingFullList4`] and [`Work::MaxRequestsList4`] take a completion before each request:
//! compare them with the sum of [`Work::List4`] and [`Work::Completion1`].

#![no_std]
// Unexpected values make the benchmarks panic. Only the library must never panic.
#![allow(clippy::expect_used)]

extern crate alloc;

pub mod copy;
pub mod floor;
pub mod ours;
mod publish;

use alloc::vec::Vec;
use core::fmt;
use mlx5_mkey::mkey::KlmEntry;
use mlx5_mkey::types::Key;
use mlx5_mkey::wqe::Sge;

/// Blocks of a send queue's ring.
pub const BLOCKS: usize = 256;
/// Entries of a completion queue.
pub const ENTRIES: usize = 512;
/// Number of I/Os, each with its mkey, that are used in turn.
pub const IOS: usize = 64;
/// Requests per doorbell in a batch.
pub const BATCH: usize = 16;
/// The most entries of a list that one request holds.
pub const MAX_ENTRIES: usize = 52;
/// Queue pairs of [`Work::Completion64Queues`].
pub const QUEUES: usize = 64;

/// An I/O as a service knows it.
#[derive(Clone, Debug)]
pub struct Io {
    /// Memory that the I/O's mkey maps. The work decides how many of the entries it uses.
    pub entries: [KlmEntry; MAX_ENTRIES],
    /// The number of used entries, for work that learns this number at run time.
    pub count: usize,
    /// Local memory of an RDMA WRITE or a receive.
    pub data: Sge,
    /// Address of the peer's memory.
    pub remote: u64,
    /// Key of the peer's memory.
    pub rkey: u32,
    /// The id of the request (`wr_id`), which its completion contains.
    pub id: u64,
    /// The I/O's block number on the disk, used as tweak and reference tag.
    pub lba: u64,
}

impl Io {
    /// Returns the I/Os of a run, each with other values.
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

/// Declares the kinds of work: for each its name, the kind of mkey, the entries of the layout, and the
/// measured numbers of requests per doorbell (or of completions per poll).
macro_rules! works {
    ($($(#[$doc:meta])* $work:ident $name:literal $kind:ident $entries:literal $batches:ident;)+) => {
        /// A kind of work. In the name of a work with a layout, a number is the number of entries. The
        /// compiler knows this number, unless the comment of the work says otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Work {
            $($(#[$doc])* $work,)+
            /// A list of this number of entries, which the compiler does not know. `cargo xtask bench --svg`
            /// draws a diagram of the counts for all lengths of lists.
            Entries(u8),
        }

        impl Work {
            /// All kinds of work that the table of counts contains, in its order.
            pub const ALL: &[Self] = &[$(Self::$work),+];

            const fn row(self) -> (&'static str, Kind, usize, &'static [usize]) {
                match self {
                    $(Self::$work => ($name, Kind::$kind, $entries, $batches),)+
                    Self::Entries(entries) => ("entries", Kind::Plain, entries as usize, ONE),
                }
            }
        }
    };
}

works! {
    /// A list of 1 entry, a number that the compiler knows.
    List1 "list1" Plain 1 ONE_AND_MANY;
    /// A list of 1 entry, a number that the compiler does not know.
    List1Dyn "list1_dyn" Plain 1 ONE;
    /// A list of 4 entries, a number that the compiler does not know.
    List4Dyn "list4_dyn" Plain 4 ONE;
    /// A list of 4 entries, a number that the compiler knows.
    List4 "list4" Plain 4 ONE_AND_MANY;
    /// A list of 16 entries, a number that the compiler does not know.
    List16 "list16" Plain 16 ONE_AND_MANY;
    /// A list, and AES-XTS with a new tweak.
    Xts4 "xts4" Encrypted 4 ONE_AND_MANY;
    /// A list, and T10-DIF on the wire with a new reference tag.
    T10Dif1 "t10dif1" Signed 1 ONE_AND_MANY;
    /// A list, and CRC32C on the wire.
    Crc32c1 "crc32c1" Signed 1 ONE_AND_MANY;
    /// A list, T10-DIF on the wire with a new reference tag, and AES-XTS with a new tweak.
    T10DifXts4 "t10dif_xts4" Both 4 ONE_AND_MANY;
    /// An RDMA WRITE with one SGE.
    RdmaWrite "rdma_write" Plain 1 ONE_AND_MANY;
    /// [`Work::RdmaWrite`], with the request written to the device together with the doorbell (BlueFlame).
    RdmaWriteBlueFlame "rdma_write_blue_flame" Plain 1 ONE;
    /// Completions of signalled requests, one for each poll.
    Completion1 "completion1" Plain 1 ONE;
    /// Completions of signalled requests, 16 for each poll.
    Completion16 "completion16" Plain 1 MANY;
    /// Completions of signalled requests, each after an unsignalled request.
    CompletionAfterSilent "completion_after_silent" Plain 1 ONE;
    /// Completions of a queue in which every 32nd request is signalled.
    CompletionEvery32 "completion_every32" Plain 1 ONE;
    /// [`Work::List4`] on a queue whose maximum number of requests is smaller than the number of blocks of
    /// its ring.
    LimitedList4 "limited_list4" Plain 4 ONE;
    /// Completions of 64 queue pairs in turn, on one completion queue.
    Completion64Queues "completion_64_queues" Plain 1 ONE;
    /// [`Work::List4`], refused because the ring is full.
    RefusedRingFull "refused_ring_full" Plain 4 ONE;
    /// [`Work::List4`], refused because the queue has its maximum number of requests.
    RefusedMaxRequests "refused_max_requests" Plain 4 ONE;
    /// A completion on a full ring, then [`Work::List4`] in the space that the completion frees.
    RingFullList4 "ring_full_list4" Plain 4 ONE;
    /// A completion on a queue with its maximum number of requests, then [`Work::List4`] in place of the
    /// completed request.
    MaxRequestsList4 "max_requests_list4" Plain 4 ONE;
    /// [`Work::IoList4`] with a number of entries that the compiler does not know.
    IoList4Dyn "io_list4_dyn" Plain 4 ONE;
    /// A whole I/O: an unsignalled [`Work::List4`], a signalled RDMA WRITE of the whole mkey, the doorbell,
    /// and the completion.
    IoList4 "io_list4" Plain 4 ONE;
    /// [`Work::IoList4`] through the layer over libmlx5 (`devx`). Only the bench program does this work, not
    /// the bare-metal image.
    IoList4Devx "io_list4_devx" Plain 4 ONE;
    /// A whole I/O with [`Work::Xts4`].
    IoXts4 "io_xts4" Encrypted 4 ONE;
    /// A whole I/O with [`Work::T10Dif1`].
    IoT10Dif1 "io_t10dif1" Signed 1 ONE;
    /// A whole I/O with [`Work::T10DifXts4`].
    IoT10DifXts4 "io_t10dif_xts4" Both 4 ONE;
    /// An interleaved layout of 3 entries.
    Interleaved3 "interleaved3" Plain 3 ONE_AND_MANY;
    /// [`Work::List16`] across the end of the ring: one of 41 requests begins three blocks before the end,
    /// and continues at the ring's start.
    List16Wrapped "list16_wrapped" Plain 16 ONE;
    /// [`Work::List4`] through a queue that threads share.
    SharedList4 "shared_list4" Plain 4 ONE_AND_MANY;
    /// A receive with one SGE.
    Receive "receive" Plain 1 ONE_AND_MANY;
    /// [`Work::List1`] on an mkey that was never configured.
    FirstList1 "first_list1" Plain 1 ONE;
    /// [`Work::T10DifXts4`] on an mkey that was never configured.
    FirstT10DifXts4 "first_t10dif_xts4" Both 4 ONE;
    /// Only a new list, for an mkey of [`Work::List4`].
    ReconfigureList4 "reconfigure_list4" Plain 4 ONE_AND_MANY;
    /// Only a new tweak, for an mkey of [`Work::Xts4`].
    ReconfigureTweak "reconfigure_tweak" Encrypted 4 ONE_AND_MANY;
    /// Only a new reference tag, for an mkey of [`Work::T10Dif1`].
    ReconfigureRefTag "reconfigure_ref_tag" Signed 1 ONE_AND_MANY;
}

/// The properties of an mkey that a work configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The layout only.
    Plain,
    /// The layout, and a signature of one domain.
    Signed,
    /// The layout, and crypto.
    Encrypted,
    /// The layout, a signature and crypto.
    Both,
}

impl Kind {
    /// Returns whether the work configures a signature.
    pub const fn has_signature(self) -> bool {
        matches!(self, Self::Signed | Self::Both)
    }

    /// Returns whether the work configures crypto.
    pub const fn has_crypto(self) -> bool {
        matches!(self, Self::Encrypted | Self::Both)
    }
}

const ONE: &[usize] = &[1];
const MANY: &[usize] = &[BATCH];
const ONE_AND_MANY: &[usize] = &[1, BATCH];

impl Work {
    /// Returns the kind of the work's mkeys.
    pub const fn kind(self) -> Kind {
        self.row().1
    }

    /// Returns the number of entries of the layout.
    pub const fn entries(self) -> usize {
        self.row().2
    }

    /// Returns the measured numbers of requests per doorbell (or of completions per poll).
    pub const fn batches(self) -> &'static [usize] {
        self.row().3
    }

    /// Returns the numbers of requests (or completions, or I/Os) of the two runs whose difference is the
    /// count.
    pub const fn runs(self, batch: usize) -> [usize; 2] {
        match self {
            // One of the 41 requests by which the runs differ crosses the ring's end. In a program that posts
            // such requests without end, two of 128 cross it, which is fewer: 128 requests of 6 blocks go
            // round the ring three times, and one of the three laps ends between two requests.
            Self::List16Wrapped => [1, 42],
            // Each of these completions retires 32 requests, so the two runs have 64 and 192 requests.
            Self::CompletionEvery32 => [2, 6],
            Self::Completion64Queues => [QUEUES, 2 * QUEUES],
            // 256 I/Os, of any number of blocks, go round a ring of 256 blocks a whole number of times.
            _ if self.is_io() => [IOS, IOS + BLOCKS],
            _ if batch == 1 => [8, 16],
            _ => [batch, 2 * batch],
        }
    }

    /// Returns the number of requests (or completions, or I/Os) of a timed run. It is as large as possible,
    /// so that reading the clock takes a small part of the time.
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

    /// Returns whether the work is a whole I/O.
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

    /// Returns the number of RDMA WRITEs for each completion, if the work takes completions of RDMA WRITEs
    /// that were posted before the run.
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

    /// Returns whether the queue is full when it has its maximum number of requests, instead of when its ring
    /// is full.
    pub const fn is_limited(self) -> bool {
        matches!(self, Self::RefusedMaxRequests | Self::MaxRequestsList4)
    }

    /// Returns whether the requests are refused.
    pub const fn is_refused(self) -> bool {
        matches!(self, Self::RefusedRingFull | Self::RefusedMaxRequests)
    }

    /// Returns the distance of the run's first request from the ring's end, in blocks.
    pub const fn blocks_to_end(self) -> usize {
        match self {
            Self::List16Wrapped => 3 + 21 * 6,
            _ => BLOCKS,
        }
    }

    /// Returns whether the mkeys of a run were never configured before.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::FirstList1 | Self::FirstT10DifXts4)
    }

    /// Returns the number of blocks of a request and of its SET_PSVs. For an I/O, returns the blocks of all
    /// its requests.
    pub const fn blocks(self) -> usize {
        let (_, kind, entries, _) = self.row();
        let (bsfs, psvs) =
            (kind.has_signature() as usize + kind.has_crypto() as usize, kind.has_signature() as usize);
        match self {
            Self::RdmaWrite | Self::RdmaWriteBlueFlame => 1,
            Self::Receive => 0,
            _ if self.writes_per_completion().is_some() || self.is_refused() => 0,
            // The request has two blocks for the control segments and the mkey context, and one for either
            // the list or the BSF. The part that a request does not contain stays in force.
            Self::ReconfigureList4 | Self::ReconfigureTweak | Self::ReconfigureRefTag => 3 + psvs,
            // The request has two blocks for the control segments and the mkey context, and one for the
            // layout: a header and 3 entries of 16 bytes each.
            Self::Interleaved3 => 3,
            _ => 2 + entries.div_ceil(4) + bsfs + psvs + self.is_io() as usize,
        }
    }

    /// Returns the number of blocks of the run's last work request. The completion entry of this request
    /// contains the number of its first block.
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

/// The reason of a failure. Failures happen only if queues or mkeys are in a wrong state.
pub type Fault = &'static str;

/// A side: an implementation that does the work.
pub trait Side {
    /// Returns whether this side does this work, with `batch` requests in a batch.
    fn does(&self, _work: Work, _batch: usize) -> bool {
        true
    }

    /// Prepares a run of `requests` requests.
    ///
    /// # Errors
    /// [`Fault`], as for [`Side::run`] and [`Side::drain`].
    fn prepare(&mut self, _work: Work, _requests: usize) -> Result<(), Fault> {
        Ok(())
    }

    /// Does the work, with a doorbell (or a poll) for each batch. Only this function is counted.
    ///
    /// # Errors
    /// [`Fault`].
    fn run(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), Fault>;

    /// Returns the number of all posted blocks, modulo 2^16. Every side must post equally many for the same
    /// work.
    fn blocks(&self) -> u16;

    /// Completes the requests of a run, and takes their completions, unless the run has taken them.
    ///
    /// # Errors
    /// [`Fault`].
    fn drain(&mut self, _work: Work, _requests: usize) -> Result<(), Fault> {
        Ok(())
    }
}
