//! Fuzz target that makes sequences of calls of the library and compares each result with a simple model. The
//! calls use a send queue of any size and limits, mkeys and prepared configurations of any kind, a receive
//! queue, and a completion queue whose device writes arbitrary entries.

mod completions;
mod lists;
mod mkey;
mod polling;
mod post;
mod receive;
mod window;
mod world;

use crate::input::Input;
use crate::memory::Shared;
use crate::values;
use completions::Completions;
use hil_scenarios::way::Way;
use hil_tests::model::{QueueModel, retire_send};
use mkey::MkeyModel;
use mlx5_mkey::error::QueueError;
use mlx5_mkey::mkey::{Access, MemoryWindow, Mkey, MkeyAttributes, MkeyConfig};
use mlx5_mkey::queue::{DoorbellRecord, SendQueue, SendQueueConfig, SendSlot};
use mlx5_mkey::types::{Key, KsmEntrySize};
use mlx5_mkey::wqe::{Local, MemcpyConfig, PreparedConfig};
use receive::{QPN, Receives};
use window::WindowModel;
use world::{Bell, Prepared, UNTOUCHED, World};

/// The most steps of a sequence of calls.
const STEPS: usize = 200;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let first: u8 = input.any();
    let all = first >= 0x80;
    let most = match first % 8 {
        0 => 256,
        1 => 4,
        _ => 64,
    };
    sequence(&mut input, all, most);
}

/// Makes queues, and makes the calls that the input selects until it ends. The send queue has `most` slots.
fn sequence(input: &mut Input<'_>, all: bool, most: usize) {
    let length = match input.below(16) {
        0 => input.below(most as u32 * 2 + 2) as usize,
        _ => 1 << input.below(most.ilog2() + 1),
    };
    let config = SendQueueConfig {
        qpn: QPN,
        max_inline_data: match input.below(4) {
            0 => input.below(1024),
            _ => SendQueueConfig::MAX_INLINE_DATA,
        },
        max_sge: input.pick(&[30, 1, 0, 4, 60, 61, usize::MAX]),
        max_requests: input.pick(&[u32::MAX, 0, 1, 2, 3, 5, 16, 64]),
        signal_all: input.any(),
        first_block: input.pick(&[0, 1, 0xfff0, 0xffff, 0x1_0000, u32::MAX - 20, u32::MAX]),
        small_fence: input.any(),
        memcpy: Some(MemcpyConfig {
            opaque: Local { address: 0x7000, lkey: Key::from_raw(0x5200) },
            log_max_bytes: 21,
        }),
        ..SendQueueConfig::new(QPN)
    };
    // A block before and a block after the ring must stay untouched.
    let memory = Shared::new(vec![UNTOUCHED; length + 2]);
    let record = DoorbellRecord::new();
    let Some(ring) = memory.slots().get_mut(1..=length) else { return };
    let mut slots = vec![SendSlot::EMPTY; most];
    let queue = match SendQueue::new(config, ring, &mut slots, &record, Bell::default()) {
        Ok(queue) => queue,
        Err(error) => return refused(most, length, &config, error),
    };
    assert!(length.is_power_of_two() && length <= most && config.max_inline_data <= 828);
    let mut attributes: Vec<_> = (1..=3).map(|index| values::attributes(input, index << 4)).collect();
    if all && !input.one_in(4) {
        // Only mkeys without signature and crypto can append lists in registered memory.
        let plain = |input: &mut Input<'_>, index: u32| {
            MkeyAttributes::plain(Key::from_raw(index << 8), input.pick(&[64, 8, 1000, 0x1_0004]))
        };
        attributes[1] = plain(input, 2 << 4);
        attributes[2] = MkeyAttributes { entry_size: KsmEntrySize::new(4096).ok(), ..plain(input, 3 << 4) };
    }
    let windows = [0x0077_0000, 0x0088_00fe].map(Key::from_raw);
    let (receives, completions) = (receive::Memory::new(input), completions::Memory::new(input));
    let mut world = World {
        queue,
        config,
        model: QueueModel::new(length as u32, config.max_requests, config.first_block.into()),
        blocks: vec![UNTOUCHED; length],
        fence: config.small_fence,
        mkeys: attributes.iter().map(|attributes| Mkey::new(*attributes)).collect(),
        known: attributes.into_iter().map(MkeyModel::new).collect(),
        prepared: Vec::new(),
        known_prepared: Vec::new(),
        windows: windows.map(MemoryWindow::new).into(),
        known_windows: windows.map(WindowModel::new).into(),
        all,
        receives: Receives::new(&receives),
        completions: Completions::new(&completions),
        next_id: 0,
    };
    world.prepare(input);
    if all {
        world.prepare_rights();
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(input);
        world.check();
    }
    assert_eq!((memory.read(0), memory.read(length + 1)), (UNTOUCHED, UNTOUCHED), "beside the ring");
}

/// Asserts that a queue was refused for its ring size, its limit of inline data, or because its ring has more
/// blocks than there are slots.
fn refused(given: usize, length: usize, config: &SendQueueConfig, error: QueueError) {
    match error {
        QueueError::InlineLimit { bytes, max } => {
            assert!(bytes == config.max_inline_data && bytes > max);
        }
        QueueError::Size { entries, max, .. } => {
            assert!(entries == length && max == 32768 && (!length.is_power_of_two() || length > max));
        }
        QueueError::TooFewSlots { needed, slots, .. } => {
            assert!(needed == length && slots == given && needed > slots);
        }
        other => panic!("{other}"),
    }
}

impl World<'_> {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0..6 => self.post(input),
            6 => self.prepare(input),
            7 => self.change_prepared(input),
            8 => self.ring_doorbell(),
            9 => self.retire(input),
            10 => self.cancel(input),
            11 => self.touch_mkey(input),
            12 => self.receives.step(input),
            13 => self.device_writes(input),
            14 => self.poll(input),
            _ => self.rarely(input),
        }
    }

    /// Makes one of the calls that programs rarely make: restarts the send queue, discards completions, arms
    /// the completion queue, or waits for a completion.
    fn rarely(&mut self, input: &mut Input<'_>) {
        match input.below(4) {
            0 => self.restart(),
            1 => self.discard(input),
            2 => self.completions.arm(input),
            _ => self.wait(input),
        }
    }

    /// Asserts that all counters agree with the model, and that blocks of outstanding requests are unchanged.
    fn check(&self) {
        let Self { queue, model, .. } = self;
        assert_eq!(queue.free_blocks(), model.free_blocks());
        assert_eq!(queue.outstanding(), model.outstanding());
        assert_eq!(queue.producer(), model.producer() as u32);
        assert_eq!(queue.next_fence(), u8::from(self.fence));
        for work in model.works() {
            for block in work.begin..work.begin + u64::from(work.blocks) {
                assert_eq!(queue.block(block as u32), self.blocks[self.slot(block)], "block {block}");
            }
        }
        self.mkeys.iter().zip(&self.known).for_each(|(mkey, known)| known.check(mkey));
        self.windows.iter().zip(&self.known_windows).for_each(|(window, known)| known.check(window));
    }

    /// Prepares a configuration for the kind of one mkey.
    fn prepare(&mut self, input: &mut Input<'_>) {
        let of = input.below(self.mkeys.len() as u32) as usize;
        let (kind, config) = (self.mkeys[of].kind(), values::config(input));
        let way = input.pick(&Way::ALL);
        let value = way.prepare_with_any_data_unit(kind, &config);
        assert_eq!(value.is_ok(), mkey::can_be_prepared(&kind, &config), "{kind:?} {config:?} {value:?}");
        if let Ok(value) = value {
            assert_eq!(*value.config(), config);
            self.prepared.push(value);
            self.known_prepared.push(Prepared { kind, config });
        }
    }

    /// Prepares for the kind of each mkey a configuration that changes access rights only.
    fn prepare_rights(&mut self) {
        for mkey in &self.mkeys {
            let config = MkeyConfig { access: Some(Access::REMOTE_READ), ..MkeyConfig::UNCHANGED };
            let (kind, value) = (mkey.kind(), PreparedConfig::with_any_data_unit(mkey.kind(), &config));
            self.prepared.push(value.expect("any mkey has rights"));
            self.known_prepared.push(Prepared { kind, config });
        }
    }

    /// Changes a prepared configuration in place.
    fn change_prepared(&mut self, input: &mut Input<'_>) {
        let count = self.prepared.len() as u32;
        let Some(at) = count.checked_sub(1).map(|_| input.below(count) as usize) else { return };
        let (Prepared { kind, config }, value) = (&mut self.known_prepared[at], &mut self.prepared[at]);
        mkey::change(input, config, value);
        assert_eq!(value.config(), config);
        assert_eq!(
            PreparedConfig::with_any_data_unit(*kind, config),
            Ok(*value),
            "a changed configuration equals a newly prepared one"
        );
    }

    fn ring_doorbell(&mut self) {
        let new = self.model.producer() != self.model.published();
        let last = self.model.works().back().map(|work| work.begin);
        let before = self.queue.record().bytes();
        let rung = self.queue.doorbell().0;
        self.queue.ring_doorbell();
        if !new {
            assert_eq!((self.queue.record().bytes(), self.queue.doorbell().0), (before, rung));
            return;
        }
        self.model.publish();
        self.check_published(last.expect("something is posted"));
    }

    /// Retires the request with a chosen block. The block may belong to no request.
    fn retire(&mut self, input: &mut Input<'_>) {
        let counter = self.counter(input);
        assert_eq!(retire_send(&mut self.queue, counter), self.model.retire(counter));
    }

    fn cancel(&mut self, input: &mut Input<'_>) {
        let counter = self.counter(input);
        let id = self.next_id.wrapping_sub(u64::from(input.below(8)));
        let expected = self.model.cancel(id, counter);
        let cancelled = self.queue.cancel(id, counter);
        assert_eq!(cancelled, expected.as_ref().map(Vec::len).map_err(|error| *error));
        for begin in expected.into_iter().flatten() {
            let slot = self.slot(begin);
            // The device reads a cancelled request as a NOP (opcode 0) with the same block number.
            self.blocks[slot].0[..4].copy_from_slice(&((begin as u32 & 0xffff) << 8).to_be_bytes());
        }
    }

    fn restart(&mut self) {
        let mut lost = Vec::new();
        self.queue.restart(|retired| lost.push((retired.id, retired.kind)));
        assert_eq!(lost, self.model.restart());
        assert_eq!(self.queue.record().bytes()[1], [0; 4]);
        self.fence = false;
    }

    /// Makes the library forget the state of an mkey, sets the mkey's tag, takes its recorded error, or notes
    /// that the peer has invalidated a window.
    fn touch_mkey(&mut self, input: &mut Input<'_>) {
        if self.all && input.one_in(4) {
            let which = input.below(2) as usize;
            self.windows[which].note_invalidated();
            self.known_windows[which].bound = false;
            return;
        }
        let which = input.below(self.mkeys.len() as u32) as usize;
        let (mkey, known) = (&mut self.mkeys[which], &mut self.known[which]);
        match input.below(4) {
            0 => {
                mkey.forget();
                known.forget();
            }
            1 => {
                let tag = input.pick(&[0, 1, 0xff]);
                assert_eq!(mkey.set_tag(tag), known.set_tag(tag));
            }
            _ => assert_eq!(mkey.take_error(), known.take_error()),
        }
    }
}
