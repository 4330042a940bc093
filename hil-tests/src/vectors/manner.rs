//! How vectors are replayed (queue limits and posting method), the result of each chain, and the counts of
//! all chains.

use crate::way::Way;
use std::collections::BTreeMap;
use std::fmt;

/// The result of replaying a chain: requests that are posted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The library wrote the same bytes as libmlx5.
    Matched,
    /// A difference between library and libmlx5, in words.
    Differs(String),
    /// Both libmlx5 and the library refuse the chain.
    Refused,
    /// The chain is not compared, for this reason.
    NotCompared(&'static str),
}

/// Counts of a replay of many vectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of vectors. A vector is a sequence of chains, a chain a series of requests that are posted
    /// together.
    pub sequences: usize,
    /// Chains whose bytes equal the recorded ones.
    pub matched: usize,
    /// Differing chains: vector, chain number, difference.
    pub differences: Vec<(String, usize, String)>,
    /// Chains that both libmlx5 and the library refuse.
    pub refused: usize,
    /// Chains not compared, by reason.
    pub not_compared: BTreeMap<&'static str, usize>,
    /// Number of configurations of mkeys in chains whose bytes are equal.
    pub configured: usize,
    /// Numbers of mkeys whose length and error count were compared, counted once per chain: with the recorded
    /// values after a posted chain, and with the values before a refused chain.
    pub mkeys: [usize; 2],
    /// Numbers of BlueFlame doorbells of the library: with 8 bytes, like libmlx5's; with a whole request,
    /// like libmlx5's; with a whole request where libmlx5 wrote 8 bytes, because the queue does not prefer
    /// BlueFlame.
    pub blue_flame: [usize; 3],
}

/// Whether the library's queue in a replay has the limits of libmlx5's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limits {
    /// The library's queue has the limits of libmlx5's queue, as recorded.
    Recorded,
    /// Requests and inline data are limited only by ring and device.
    Lifted,
}

/// How the library replays the recorded vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replay {
    /// The limits of the library's queue.
    pub limits: Limits,
    /// The method by which the library posts the requests.
    pub way: Way,
}

impl Replay {
    /// Returns all combinations of limits and posting method.
    pub fn all() -> impl Iterator<Item = Self> {
        [Limits::Recorded, Limits::Lifted]
            .into_iter()
            .flat_map(|limits| Way::ALL.into_iter().map(move |way| Self { limits, way }))
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = match self.limits {
            Limits::Recorded => "as recorded",
            Limits::Lifted => "limits lifted",
        };
        write!(f, "{limits}, {}", self.way.name())
    }
}
