//! How vectors are replayed (queue limits and posting method), and the result of each chain.

use crate::way::Way;
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
