//! The public ways of posting, in one place: recorded vectors, the differential test and the scenarios take all of them.
//!
//! A way of the library that is not in [`METHODS`] fails the test `every_way_of_the_library_is_proven` (hil-tests).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{BlockSignature, Mkey, MkeyConfig, ReadyCrypto, SignatureChange};
use mlx5_mkey::queue::{Batch, Doorbell, Request, SendQueue};
use mlx5_mkey::types::{Key, MkeyIndex};
use mlx5_mkey::wqe::{MkeyTemplate, Payload, Remote, Sge};

/// A way of posting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Each request on the queue, then its doorbell.
    #[default]
    Request,
    /// All requests up to the doorbell in one batch.
    Batch,
    /// As `Request`; complete configurations of mkeys by a template.
    Template,
    /// As `Batch`; complete configurations of mkeys by a template.
    BatchTemplate,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Request, Self::Batch, Self::Template, Self::BatchTemplate];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Batch => "batch",
            Self::Template => "template",
            Self::BatchTemplate => "batch-template",
        }
    }

    /// Returns whether requests are posted in a batch.
    pub const fn batches(self) -> bool {
        matches!(self, Self::Batch | Self::BatchTemplate)
    }

    /// Returns whether complete configurations are posted by a template.
    pub const fn templates(self) -> bool {
        matches!(self, Self::Template | Self::BatchTemplate)
    }

    /// Returns the way that differs in this only: nothing is published before the doorbell is asked for.
    pub const fn without_batches(self) -> Self {
        if self.templates() { Self::Template } else { Self::Request }
    }

    /// Begins to post to a queue in this way.
    pub fn open<'q, 'r, D: Doorbell, const N: usize>(
        self,
        queue: &'q mut SendQueue<'r, D, N>,
    ) -> Poster<'q, 'r, D, N> {
        let target = if self.batches() { Target::Batch(queue.batch()) } else { Target::Queue(queue) };
        Poster { target, templates: self.templates(), configured: Configured::default() }
    }
}

/// Which ways a case is run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// One after the other, all of them.
    All,
    /// This one.
    Only(Way),
    /// One, which this seed and the case's name choose: the same wherever a run begins.
    Drawn(u64),
}

impl Default for Ways {
    fn default() -> Self {
        Self::Only(Way::default())
    }
}

impl Ways {
    /// Returns those of a case.
    pub fn of(self, case: &str) -> Vec<Way> {
        match self {
            Self::All => Way::ALL.to_vec(),
            Self::Only(way) => vec![way],
            Self::Drawn(seed) => {
                // FNV-1a.
                let hash = seed
                    .to_le_bytes()
                    .iter()
                    .chain(case.as_bytes())
                    .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
                    });
                vec![Way::ALL[(hash >> 32) as usize % Way::ALL.len()]]
            }
        }
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Only(way) => f.write_str(way.name()),
            Self::Drawn(seed) => write!(f, "{seed}"),
        }
    }
}

impl FromStr for Ways {
    type Err = String;

    /// Reads `all`, the name of a way, or a seed.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let named = Way::ALL.into_iter().find(|way| way.name() == text).map(Self::Only);
        named
            .or_else(|| text.parse().ok().map(Self::Drawn))
            .ok_or_else(|| format!("`{text}` is not `all`, no way of posting, and no seed"))
    }
}

/// Each public method that posts requests or begins to, and the ways in which it is reached from here; none where it posts
/// nothing to a send queue.
pub const METHODS: &[(&str, &[Way])] = &[
    ("SendQueue::request", &[Way::Request, Way::Template]),
    ("SendQueue::batch", &[Way::Batch, Way::BatchTemplate]),
    ("Batch::request", &[Way::Batch, Way::BatchTemplate]),
    ("Request::configure_mkey", &Way::ALL),
    ("Request::configure_from", &[Way::Template, Way::BatchTemplate]),
    ("Request::invalidate_mkey", &Way::ALL),
    ("Request::invalidate", &Way::ALL),
    ("Request::send", &Way::ALL),
    ("Request::send_imm", &Way::ALL),
    ("Request::send_invalidate", &Way::ALL),
    ("Request::rdma_write", &Way::ALL),
    ("Request::rdma_write_imm", &Way::ALL),
    ("Request::rdma_read", &Way::ALL),
    ("Request::compare_swap", &Way::ALL),
    ("Request::fetch_add", &Way::ALL),
    ("Request::nop", &Way::ALL),
    // The shim hands on what its send queue has.
    ("QueuePair::request", &[Way::Request]),
    // These write over what was posted.
    ("SendQueue::cancel", &[]),
    ("QueuePair::cancel", &[]),
    // A receive queue.
    ("ReceiveQueue::post", &[]),
    ("QueuePair::post_receive", &[]),
];

/// How configurations of mkeys were posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    /// From what the caller gave.
    pub directly: u64,
    /// From a template.
    pub by_template: u64,
    /// Of those posted directly: complete ones for which there is no type of template here.
    pub too_many_entries: u64,
}

impl core::ops::AddAssign for Configured {
    fn add_assign(&mut self, other: Self) {
        self.directly += other.directly;
        self.by_template += other.by_template;
        self.too_many_entries += other.too_many_entries;
    }
}

/// Posts requests in one of the ways. They are published by [`Poster::publish`], or when it is dropped if it is a batch.
pub struct Poster<'q, 'r, D: Doorbell, const N: usize> {
    target: Target<'q, 'r, D, N>,
    templates: bool,
    configured: Configured,
}

enum Target<'q, 'r, D: Doorbell, const N: usize> {
    Queue(&'q mut SendQueue<'r, D, N>),
    Batch(Batch<'q, 'r, D, N>),
}

impl<'q, 'r, D: Doorbell, const N: usize> Poster<'q, 'r, D, N> {
    /// Begins a request.
    pub fn request(&mut self, id: u64) -> Post<'_, 'q, 'r, D, N> {
        Post { poster: self, memory: None, id, flags: Flags::default() }
    }

    /// Returns how many configurations were posted.
    pub fn configured(&self) -> Configured {
        self.configured
    }

    /// Rings the doorbell for what was posted.
    pub fn publish(self) {
        match self.target {
            Target::Queue(queue) => queue.ring_doorbell(),
            // When it is dropped.
            Target::Batch(_) => {}
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Flags {
    fenced: bool,
    signaled: bool,
    solicited: bool,
}

impl Flags {
    fn apply<'q, 'r, D: Doorbell, const N: usize, const BATCHED: bool>(
        self,
        mut request: Request<'q, 'r, D, N, BATCHED>,
    ) -> Request<'q, 'r, D, N, BATCHED> {
        if self.fenced {
            request = request.fenced();
        }
        if self.signaled {
            request = request.signaled();
        }
        if self.solicited {
            request = request.solicited();
        }
        request
    }
}

/// What mkeys were configured with last. Of a template the library does not copy that; where it must be written again,
/// whoever has the template gives it.
#[derive(Default)]
pub struct Memory(Vec<(MkeyIndex, SignatureChange<BlockSignature>, Option<ReadyCrypto>)>);

impl Memory {
    fn forget(&mut self, index: MkeyIndex) {
        self.0.retain(|(known, ..)| *known != index);
    }

    fn remember(&mut self, index: MkeyIndex, config: &MkeyConfig<'_>) {
        let at = self.0.iter().position(|(known, ..)| *known == index).unwrap_or_else(|| {
            self.0.push((index, SignatureChange::Keep, None));
            self.0.len() - 1
        });
        let Some((_, signature, crypto)) = self.0.get_mut(at) else { return };
        match config.signature {
            SignatureChange::Set(block) => *signature = SignatureChange::Set(*block),
            SignatureChange::Reset => *signature = SignatureChange::Reset,
            SignatureChange::Keep => {}
        }
        *crypto = config.crypto.copied().or(*crypto);
    }

    fn of(&self, index: MkeyIndex) -> Option<(SignatureChange<BlockSignature>, Option<ReadyCrypto>)> {
        let (_, signature, crypto) = self.0.iter().find(|(known, ..)| *known == index)?;
        Some((*signature, *crypto))
    }
}

/// A request that waits for its work, as [`Request`] is.
#[must_use = "nothing is posted until the request is given its work"]
pub struct Post<'p, 'q, 'r, D: Doorbell, const N: usize> {
    poster: &'p mut Poster<'q, 'r, D, N>,
    memory: Option<&'p mut Memory>,
    id: u64,
    flags: Flags,
}

type Posted = Result<(), PostError>;

/// Gives the request its work, wherever it is posted.
macro_rules! posted {
    ($post:expr, $request:ident => $work:expr) => {
        match &mut $post.poster.target {
            Target::Queue(queue) => {
                let $request = $post.flags.apply(queue.request($post.id));
                $work
            }
            Target::Batch(batch) => {
                let $request = $post.flags.apply(batch.request($post.id));
                $work
            }
        }
    };
}

#[allow(missing_docs)] // As the methods of `Request`.
#[allow(clippy::missing_errors_doc)]
impl<'p, D: Doorbell, const N: usize> Post<'p, '_, '_, D, N> {
    /// Completes what a template left unknown from here.
    pub fn with_memory(mut self, memory: &'p mut Memory) -> Self {
        self.memory = Some(memory);
        self
    }

    pub fn fenced(mut self) -> Self {
        self.flags.fenced = true;
        self
    }

    pub fn signaled(mut self) -> Self {
        self.flags.signaled = true;
        self
    }

    pub fn solicited(mut self) -> Self {
        self.flags.solicited = true;
        self
    }

    pub fn configure_mkey(mut self, mkey: &mut Mkey, config: &MkeyConfig<'_>) -> Posted {
        let mut result = self.configure(mkey, config);
        if let Err(PostError::Config(ConfigError::StateUnknown { .. })) = result
            && self.poster.templates
            && let Some((signature, crypto)) =
                self.memory.as_ref().and_then(|memory| memory.of(mkey.key().index()))
        {
            let mut completed = *config;
            if config.signature == SignatureChange::Keep {
                completed.signature = signature.as_ref();
            }
            completed.crypto = config.crypto.or(crypto.as_ref());
            result = self.configure(mkey, &completed);
        }
        if let (Ok(()), Some(memory)) = (result, &mut self.memory) {
            memory.remember(mkey.key().index(), config);
        }
        result
    }

    fn configure(&mut self, mkey: &mut Mkey, config: &MkeyConfig<'_>) -> Posted {
        if self.poster.templates
            && let Some(result) = template::post(self, mkey, config)
        {
            self.poster.configured.by_template += u64::from(result.is_ok());
            return result;
        }
        let result = posted!(self, request => request.configure_mkey(mkey, config));
        self.poster.configured.directly += u64::from(result.is_ok());
        result
    }

    pub fn invalidate_mkey(self, mkey: &mut Mkey) -> Posted {
        posted!(self, request => request.invalidate_mkey(mkey))?;
        if let Some(memory) = self.memory {
            memory.forget(mkey.key().index());
        }
        Ok(())
    }

    pub fn invalidate(self, key: Key) -> Posted {
        posted!(self, request => request.invalidate(key))
    }

    pub fn send<'d>(self, payload: impl Into<Payload<'d>>) -> Posted {
        posted!(self, request => request.send(payload))
    }

    pub fn send_imm<'d>(self, imm: u32, payload: impl Into<Payload<'d>>) -> Posted {
        posted!(self, request => request.send_imm(imm, payload))
    }

    pub fn send_invalidate<'d>(self, key: Key, payload: impl Into<Payload<'d>>) -> Posted {
        posted!(self, request => request.send_invalidate(key, payload))
    }

    pub fn rdma_write<'d>(self, remote: Remote, payload: impl Into<Payload<'d>>) -> Posted {
        posted!(self, request => request.rdma_write(remote, payload))
    }

    pub fn rdma_write_imm<'d>(self, remote: Remote, imm: u32, payload: impl Into<Payload<'d>>) -> Posted {
        posted!(self, request => request.rdma_write_imm(remote, imm, payload))
    }

    pub fn rdma_read(self, remote: Remote, sges: &[Sge]) -> Posted {
        posted!(self, request => request.rdma_read(remote, sges))
    }

    pub fn compare_swap(self, remote: Remote, compare: u64, swap: u64, sge: &Sge) -> Posted {
        posted!(self, request => request.compare_swap(remote, compare, swap, sge))
    }

    pub fn fetch_add(self, remote: Remote, add: u64, sge: &Sge) -> Posted {
        posted!(self, request => request.fetch_add(remote, add, sge))
    }

    pub fn nop(self) -> Posted {
        posted!(self, request => request.nop())
    }
}

/// Templates of the size that a configuration takes: sizes are part of their type.
mod template {
    use super::*;

    /// Posts the configuration by a template; `None` for one that is not complete, or has more entries than there are types
    /// for here.
    pub(super) fn post<D: Doorbell, const N: usize>(
        post: &mut Post<'_, '_, '_, D, N>,
        mkey: &mut Mkey,
        config: &MkeyConfig<'_>,
    ) -> Option<Posted> {
        let entries = match MkeyTemplate::<0>::new(mkey, config) {
            Err(ConfigError::TemplateSize { what: "entries", needed, .. }) => needed,
            Err(ConfigError::StateUnknown { .. }) => return None,
            Ok(_) | Err(ConfigError::TemplateSize { .. }) => 0,
            Err(error) => return Some(Err(error.into())),
        };
        /// Chooses the function for the number of entries.
        macro_rules! by_entries {
            ($($count:literal)+) => {
                match entries {
                    $($count => Some(of_entries::<$count, D, N>(post, mkey, config)),)+
                    _ => {
                        post.poster.configured.too_many_entries += 1;
                        None
                    }
                }
            };
        }
        by_entries!(0 1 2 3 4 5 6 7 8 9 10 11 12 16)
    }

    fn of_entries<const ENTRIES: usize, D: Doorbell, const N: usize>(
        post: &mut Post<'_, '_, '_, D, N>,
        mkey: &mut Mkey,
        config: &MkeyConfig<'_>,
    ) -> Posted {
        /// Posts by the first template that has the right number of BSFs and PSVs.
        macro_rules! by_size {
            ($(($bsfs:literal, $psvs:literal))+) => {
                $(match MkeyTemplate::<ENTRIES, $bsfs, $psvs>::new(mkey, config) {
                    Ok(template) => return posted!(post, request => request.configure_from(mkey, &template)),
                    Err(ConfigError::TemplateSize { .. }) => {}
                    Err(error) => return Err(error.into()),
                })+
            };
        }
        by_size!((0, 0)(1, 0)(1, 1)(1, 2)(2, 0)(2, 1)(2, 2));
        // No configuration has another number.
        Err(ConfigError::TemplateSize { what: "BSFs or PSVs", has: 2, needed: 3 }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn ways_are_read_as_they_are_written() {
        for ways in [Ways::All, Ways::Only(Way::BatchTemplate), Ways::Drawn(7)] {
            assert_eq!(ways.to_string().parse(), Ok(ways));
        }
        assert!("bath".parse::<Ways>().is_err());
    }

    #[test]
    fn a_seed_draws_all_ways_and_always_the_same() {
        let cases: Vec<String> = (0..40).map(|number| format!("r{number:03}_case")).collect();
        let drawn: Vec<Way> = cases.iter().flat_map(|case| Ways::Drawn(7).of(case)).collect();
        assert_eq!(drawn, cases.iter().flat_map(|case| Ways::Drawn(7).of(case)).collect::<Vec<_>>());
        assert!(Way::ALL.iter().all(|way| drawn.contains(way)), "{drawn:?}");
        assert_ne!(drawn, cases.iter().flat_map(|case| Ways::Drawn(8).of(case)).collect::<Vec<_>>());
    }
}
