//! The queues, mkeys and windows that a sequence of calls uses, each with its model.

use super::completions::Completions;
use super::mkey::MkeyModel;
use super::receive::Receives;
use super::window::WindowModel;
use crate::input::Input;
use hil_tests::model::QueueModel;
use mlx5_mkey::mkey::{MemoryWindow, Mkey, MkeyConfig, MkeyKind};
use mlx5_mkey::queue::{Doorbell, LastRequest, SendQueue, SendQueueConfig};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::PreparedConfig;

/// The pattern of a block that no request has written.
pub(super) const UNTOUCHED: Wqebb = Wqebb([0xa5; 64]);

/// A doorbell that keeps the first 8 bytes of the last request.
#[derive(Default)]
pub(super) struct Bell(pub(super) Option<[u8; 8]>);

impl Doorbell for Bell {
    fn ring(&mut self, last: &LastRequest<'_>) {
        assert_eq!(last.blocks().next().map(|block| block.0[..8].to_vec()), Some(last.control().to_vec()));
        self.0 = Some(last.control());
    }
}

/// A configuration, and the mkey kind that it was prepared for.
pub(super) struct Prepared {
    pub(super) kind: MkeyKind,
    pub(super) config: MkeyConfig,
}

/// The queues, mkeys and windows that a sequence of calls uses, each with its model.
pub(super) struct World<'m> {
    pub(super) queue: SendQueue<'m, Bell>,
    pub(super) config: SendQueueConfig,
    pub(super) model: QueueModel,
    /// The expected ring. Only blocks of outstanding requests count.
    pub(super) blocks: Vec<Wqebb>,
    /// Whether the next request gets the small fence (`MLX5_FENCE_MODE_INITIATOR_SMALL`).
    pub(super) fence: bool,
    pub(super) mkeys: Vec<Mkey>,
    pub(super) known: Vec<MkeyModel>,
    /// The prepared configurations, and the model of each.
    pub(super) prepared: Vec<PreparedConfig>,
    pub(super) known_prepared: Vec<Prepared>,
    pub(super) windows: Vec<MemoryWindow>,
    pub(super) known_windows: Vec<WindowModel>,
    /// Whether all kinds of calls are made. Older inputs of the corpus clear this flag and keep their old
    /// meaning.
    pub(super) all: bool,
    pub(super) receives: Receives<'m>,
    pub(super) completions: Completions<'m>,
    pub(super) next_id: u64,
}

impl World<'_> {
    pub(super) fn slot(&self, block: u64) -> usize {
        block as usize % self.blocks.len()
    }

    /// Asserts that doorbell record and doorbell announce all requests up to the one that was posted last.
    pub(super) fn check_published(&self, last: u64) {
        let [_, record] = self.queue.record().bytes();
        assert_eq!(record, u32::from(self.model.producer() as u16).to_be_bytes());
        let control = self.blocks[self.slot(last)].0[..8].try_into().ok();
        assert_eq!(self.queue.doorbell().0, control);
    }

    /// Chooses the block number in a completion entry (`wqe_counter`), mostly of an outstanding request.
    pub(super) fn counter(&self, input: &mut Input<'_>) -> u16 {
        let works = self.model.works();
        match input.below(8) {
            0 => input.any(),
            1 => self.model.producer() as u16,
            2 => self.model.published() as u16,
            3 => (self.model.producer() as u16).wrapping_sub(input.below(20) as u16),
            _ if works.is_empty() => 0,
            _ => works[input.below(works.len() as u32) as usize].begin as u16,
        }
    }
}
