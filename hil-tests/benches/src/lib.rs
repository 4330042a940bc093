//! The work whose instructions are counted, and who does it: the library ([`ours`]), a bare copy of the same bytes
//! ([`floor`]), and libmlx5, in the program.
//!
//! Nothing here reads a clock or prints, so that the same work runs on bare metal. A measurement is the difference of two
//! runs of [`Side::run`], one with more requests than the other: what a run costs beside its requests cancels out.
//!
//! What is counted on every side is what a program does for each request: it has its pieces of memory, its signature and
//! its crypto properties in the form that the API takes, each request has its own and its own mkey, and everything else
//! happens in the counted part. For libmlx5 pieces of memory are an array of `struct ibv_sge`; for the library they are a
//! `List` or an `Interleaved`, which hold them in wire form from the moment the program makes them. What it costs to
//! describe pieces for each request anew is counted by [`Work::ReconfigureAddresses`], on both sides, and what it costs to
//! have them as a slice by [`Work::Slice4`]. Completions are taken outside of it, by every side as
//! it does always, so that queues never fill; what they cost is counted by [`Work::Poll1`] and [`Work::Poll16`].

#![no_std]
// As in the tests: what is impossible stops.
#![allow(clippy::expect_used)]

pub mod floor;
pub mod ours;

use core::fmt;

/// Blocks of a send queue's ring.
pub const BLOCKS: usize = 256;
/// Requests that are posted before completions are taken.
pub const REQUESTS: usize = 42;
/// Requests that share a doorbell, where they do.
pub const BATCH: usize = 16;
/// The most entries of a list: as many as one request holds.
pub const MAX_ENTRIES: usize = 52;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A list of 1 piece.
    Sge1,
    /// A list of 4 pieces.
    Sge4,
    /// A list of 16 pieces.
    Sge16,
    /// A list of 4 pieces that the program keeps as a slice.
    Slice4,
    /// An interleaved layout of 3 entries.
    Interleaved3,
    /// A list of 4 pieces, and crypto.
    Sge4Crypto,
    /// A list of 1 piece, and T10-DIF on the wire.
    Sge1T10Dif,
    /// A list of 1 piece, and CRC32C on the wire.
    Sge1Crc32c,
    /// A list of 4 pieces, T10-DIF on the wire, and crypto.
    Sge4T10DifCrypto,
    /// An RDMA WRITE of 1 piece.
    RdmaWrite,
    /// Completions, one per poll.
    Poll1,
    /// Completions, 16 per poll.
    Poll16,
    /// [`Work::Sge16`] in a ring that comes to its end: one of 41 requests begins three blocks before it and goes on at its
    /// start.
    Sge16Wrapped,
    /// [`Work::Sge4`] through a queue that threads share.
    SharedSge4,
    /// A receive of 1 piece.
    Receive,
    /// [`Work::Sge1`] on an mkey that has never been configured.
    FirstSge1,
    /// [`Work::Sge4T10DifCrypto`] on an mkey that has never been configured.
    FirstSge4T10DifCrypto,
    /// New addresses for an mkey of [`Work::Sge4`].
    ReconfigureAddresses,
    /// A new tweak for an mkey of [`Work::Sge4Crypto`].
    ReconfigureTweak,
    /// A new reference tag for an mkey of [`Work::Sge1T10Dif`].
    ReconfigureRefTag,
    /// [`Work::Sge1`] from a template, posted as it is.
    TemplateSge1,
    /// [`Work::Sge4Crypto`] from a template.
    TemplateSge4Crypto,
    /// [`Work::Sge1T10Dif`] from a template.
    TemplateSge1T10Dif,
    /// [`Work::Sge4T10DifCrypto`] from a template.
    TemplateSge4T10DifCrypto,
    /// [`Work::TemplateSge1`] with a new address each time.
    TemplateAddress,
    /// [`Work::TemplateSge4Crypto`] with a new tweak each time.
    TemplateTweak,
    /// [`Work::TemplateSge1T10Dif`] with a new reference tag each time.
    TemplateRefTag,
    /// A list of so many pieces: for the plot.
    List(u8),
}

impl Work {
    /// What the table shows, in its order.
    pub const ALL: &[Self] = &[
        Self::Sge1,
        Self::Sge4,
        Self::Sge16,
        Self::Interleaved3,
        Self::Sge4Crypto,
        Self::Sge1T10Dif,
        Self::Sge1Crc32c,
        Self::Sge4T10DifCrypto,
        Self::RdmaWrite,
        Self::Poll1,
        Self::Poll16,
        Self::Sge16Wrapped,
        Self::SharedSge4,
        Self::Receive,
        Self::FirstSge1,
        Self::FirstSge4T10DifCrypto,
        Self::ReconfigureAddresses,
        Self::ReconfigureTweak,
        Self::ReconfigureRefTag,
        Self::Slice4,
        Self::TemplateSge1,
        Self::TemplateSge4Crypto,
        Self::TemplateSge1T10Dif,
        Self::TemplateSge4T10DifCrypto,
        Self::TemplateAddress,
        Self::TemplateTweak,
        Self::TemplateRefTag,
    ];

    /// Returns how many requests may share a doorbell (or completions a poll) in a measurement.
    pub const fn batches(self) -> &'static [usize] {
        match self {
            // A poll takes what its name says, and a first time is a first time.
            Self::Poll1
            | Self::Sge16Wrapped
            | Self::FirstSge1
            | Self::FirstSge4T10DifCrypto
            | Self::List(_) => &[1],
            Self::Poll16 => &[BATCH],
            _ => &[1, BATCH],
        }
    }

    /// Returns how many requests two runs have, whose difference counts.
    pub const fn runs(self, batch: usize) -> [usize; 2] {
        match self {
            // One of 41 wraps: a bit more than a program has that goes round the ring, where it is two in 85.
            Self::Sge16Wrapped => [1, 42],
            _ if batch == 1 => [8, 16],
            _ => [batch, 2 * batch],
        }
    }

    /// Returns where the first request of a run begins, in blocks from the ring's end.
    pub const fn blocks_to_end(self) -> usize {
        match self {
            Self::Sge16Wrapped => 3 + 21 * 6,
            _ => BLOCKS,
        }
    }

    /// Returns whether mkeys are as they were created when a run begins.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::FirstSge1 | Self::FirstSge4T10DifCrypto)
    }

    /// Returns the work that mkeys are configured with before a run.
    pub const fn before(self) -> Self {
        match self {
            Self::ReconfigureAddresses => Self::Sge4,
            Self::ReconfigureTweak => Self::Sge4Crypto,
            Self::ReconfigureRefTag => Self::Sge1T10Dif,
            _ => self,
        }
    }

    /// Returns whether mkeys have a signature.
    pub const fn has_signature(self) -> bool {
        matches!(
            self,
            Self::Sge1T10Dif
                | Self::Sge1Crc32c
                | Self::Sge4T10DifCrypto
                | Self::FirstSge4T10DifCrypto
                | Self::ReconfigureRefTag
                | Self::TemplateSge1T10Dif
                | Self::TemplateSge4T10DifCrypto
                | Self::TemplateRefTag
        )
    }

    /// Returns whether mkeys have crypto properties.
    pub const fn has_crypto(self) -> bool {
        matches!(
            self,
            Self::Sge4Crypto
                | Self::Sge4T10DifCrypto
                | Self::FirstSge4T10DifCrypto
                | Self::ReconfigureTweak
                | Self::TemplateSge4Crypto
                | Self::TemplateSge4T10DifCrypto
                | Self::TemplateTweak
        )
    }

    /// Returns the entries of the layout.
    pub const fn entries(self) -> usize {
        match self {
            Self::Sge16 | Self::Sge16Wrapped => 16,
            Self::Interleaved3 => 3,
            Self::Sge4
            | Self::Sge4Crypto
            | Self::Sge4T10DifCrypto
            | Self::SharedSge4
            | Self::FirstSge4T10DifCrypto
            | Self::ReconfigureAddresses
            | Self::ReconfigureTweak
            | Self::Slice4
            | Self::TemplateSge4Crypto
            | Self::TemplateSge4T10DifCrypto
            | Self::TemplateTweak => 4,
            Self::List(entries) => entries as usize,
            _ => 1,
        }
    }

    /// Returns how many blocks the last work request of a run has, by which its completion names it.
    pub const fn last_blocks(self) -> usize {
        match self {
            Self::Sge16 | Self::Sge16Wrapped => 6,
            Self::Sge4Crypto | Self::TemplateSge4Crypto | Self::TemplateTweak => 4,
            Self::List(entries) => 2 + (entries as usize).div_ceil(4),
            Self::RdmaWrite | Self::Poll1 | Self::Poll16 => 1,
            // A SET_PSV.
            _ if self.has_signature() => 1,
            _ => 3,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sge1 => "sge1",
            Self::Sge4 => "sge4",
            Self::Sge16 => "sge16",
            Self::Interleaved3 => "interleaved3",
            Self::Sge4Crypto => "sge4_crypto",
            Self::Sge1T10Dif => "sge1_t10dif",
            Self::Sge1Crc32c => "sge1_crc32c",
            Self::Sge4T10DifCrypto => "sge4_t10dif_crypto",
            Self::RdmaWrite => "rdma_write",
            Self::Poll1 => "poll1",
            Self::Poll16 => "poll16",
            Self::Sge16Wrapped => "sge16_wrapped",
            Self::SharedSge4 => "shared_sge4",
            Self::Receive => "receive",
            Self::FirstSge1 => "first_sge1",
            Self::FirstSge4T10DifCrypto => "first_sge4_t10dif_crypto",
            Self::ReconfigureAddresses => "reconfigure_addresses",
            Self::ReconfigureTweak => "reconfigure_tweak",
            Self::ReconfigureRefTag => "reconfigure_ref_tag",
            Self::Slice4 => "slice4",
            Self::TemplateSge1 => "template_sge1",
            Self::TemplateSge4Crypto => "template_sge4_crypto",
            Self::TemplateSge1T10Dif => "template_sge1_t10dif",
            Self::TemplateSge4T10DifCrypto => "template_sge4_t10dif_crypto",
            Self::TemplateAddress => "template_address",
            Self::TemplateTweak => "template_tweak",
            Self::TemplateRefTag => "template_ref_tag",
            Self::List(entries) => return write!(f, "list{entries}"),
        })
    }
}

/// What went wrong. None of it happens where queues and mkeys are as they should be.
pub type Fault = &'static str;

/// Someone who does the work.
pub trait Side {
    /// Returns whether this side does this work at all.
    fn does(&self, _work: Work) -> bool {
        true
    }

    /// Gets everything ready for a run of so many requests, at most [`REQUESTS`].
    ///
    /// # Errors
    /// [`Fault`], as in the other two.
    fn prepare(&mut self, work: Work, requests: usize) -> Result<(), Fault>;

    /// Does the work, with a doorbell (or a poll) for each batch. This is what is counted.
    ///
    /// # Errors
    /// [`Fault`].
    fn run(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), Fault>;

    /// Returns how many blocks have been posted in all, modulo 2^16: every side must post as many for the same work.
    fn blocks(&self) -> u16;

    /// Takes all completions.
    ///
    /// # Errors
    /// [`Fault`].
    fn drain(&mut self, work: Work, requests: usize) -> Result<(), Fault>;
}
