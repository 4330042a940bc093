//! The state of the command interface and of the objects that only drivers of the function have.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use mlx5_mkey::wire::WQEBB_BYTES;

/// Consumer indexes have 24 bits.
pub(crate) const INDEX: u32 = 0x00ff_ffff;

/// Bytes of the context of a queue pair (PRM `qpc`).
pub(crate) const QPC_BYTES: usize = 0xe8;

/// What is signed and looked at (PRM `cmdif_checksum`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// Nothing has to be (0).
    Off,
    /// SET_HCA_CAP has not said yet (1). Assumption: an entry has to be signed, and so has a block, unless
    /// both its signatures are 0: Linux signs no block, and has said nothing so far.
    #[default]
    Initial,
    /// All has to be (3).
    On,
}

/// What the device does with commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Takes ENABLE_HCA and nothing else.
    #[default]
    Reset,
    /// Takes what prepares it.
    Enabled,
    /// Makes objects.
    Running,
}

/// The command interface of one device.
#[derive(Debug, Default)]
pub(crate) struct Interface {
    /// How often INITIALIZING was read.
    pub(crate) asked: u32,
    pub(crate) high: u32,
    pub(crate) low: u32,
    pub(crate) phase: Phase,
    /// Pages that the firmware was given.
    pub(crate) pages: Vec<u64>,
    pub(crate) uars: BTreeSet<u32>,
    pub(crate) eqs: BTreeMap<u32, Eq>,
    pub(crate) cqs: BTreeMap<u32, Notify>,
    /// Objects that are a number and nothing else, by the opcode that makes them.
    pub(crate) numbers: BTreeSet<(u16, u32)>,
    /// What queue pairs were told, by their numbers.
    pub(crate) contexts: BTreeMap<u32, Context>,
    /// What a host calls the node.
    pub(crate) description: Vec<u8>,
    pub(crate) checksum: Checksum,
    /// What SET_HCA_CAP has made of the capabilities of the device.
    pub(crate) current: Option<Vec<u8>>,
    /// Entries of commands that are done, a bit for each, and not told of.
    pub(crate) completed: u32,
    /// The function that the firmware wants pages for, and how many; fewer than none are given back.
    pub(crate) page_request: Option<(u16, i32)>,
    /// Pages that it has asked for while it runs.
    pub(crate) more_pages: bool,
    /// Vectors to be raised.
    pub(crate) interrupts: Vec<u16>,
    pub(crate) blue_flame: Option<BlueFlame>,
    pub(crate) health: u32,
}

/// What a queue pair was told: its context, as commands have written it.
pub(crate) type Context = [u8; QPC_BYTES];

/// An event queue.
#[derive(Debug)]
pub(crate) struct Eq {
    pub(crate) ring: u64,
    pub(crate) log_entries: u8,
    /// Bit n of word m: it gets events of type 64 m + n.
    pub(crate) events: [u64; 4],
    /// The vector that it raises.
    pub(crate) vector: u16,
    /// Entries that were written, and those that the host has taken, as far as it has said.
    pub(crate) producer: u32,
    pub(crate) consumer: u32,
    /// The next entry is an interrupt.
    pub(crate) armed: bool,
}

impl Eq {
    pub(crate) fn gets(&self, kind: u8) -> bool {
        self.events.get(usize::from(kind / 64)).is_some_and(|word| word >> (kind % 64) & 1 != 0)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.producer.wrapping_sub(self.consumer) & INDEX >= 1 << self.log_entries
    }
}

/// Where the events of a completion queue go, and whether the host wants one.
#[derive(Debug)]
pub(crate) struct Notify {
    pub(crate) eq: u32,
    pub(crate) armed: Option<Armed>,
}

/// What a host has armed a completion queue with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Armed {
    /// Entries that it has taken.
    pub(crate) consumer: u32,
    /// Only an entry that asks for an event is one.
    pub(crate) solicited: bool,
}

/// A block that comes with its doorbell (BlueFlame), as far as it has come.
#[derive(Debug)]
pub(crate) struct BlueFlame {
    /// Where the next bytes belong, from the beginning of BAR 0.
    pub(crate) next: u64,
    pub(crate) bytes: [u8; WQEBB_BYTES],
    pub(crate) length: usize,
}

impl Interface {
    /// Returns whether an event queue gets events of a type.
    pub(crate) fn is_told(&self, kind: u8) -> bool {
        self.eqs.values().any(|eq| eq.gets(kind))
    }
}
