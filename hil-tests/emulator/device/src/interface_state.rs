//! The state of the command interface, and of the objects that only drivers of the PCI function create.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use mlx5_mkey::wire::WQEBB_BYTES;

/// The bits of a consumer index.
pub(crate) const INDEX: u32 = 0x00ff_ffff;

/// The number of bytes of the context of a queue pair (PRM `qpc`).
pub(crate) const QPC_BYTES: usize = 0xe8;

/// The signatures of commands that the device checks (PRM `cmdif_checksum`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// No signature is checked (0).
    Off,
    /// The mode before SET_HCA_CAP (1). Assumption: an entry of the command queue must be signed. A mailbox
    /// block must be signed unless both its signatures are 0, since Linux signs no block before SET_HCA_CAP.
    #[default]
    Initial,
    /// The signatures of all entries and mailbox blocks are checked (3).
    On,
}

/// The state of the command interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The device takes only ENABLE_HCA.
    #[default]
    Reset,
    /// The device takes commands that prepare it.
    Enabled,
    /// The device takes commands on objects.
    Running,
}

/// The command interface of one device.
#[derive(Debug, Default)]
pub(crate) struct Interface {
    /// The number of reads of the register INITIALIZING so far. After some reads, the firmware counts as
    /// ready.
    pub(crate) asked: u32,
    pub(crate) high: u32,
    pub(crate) low: u32,
    /// The state of the driver's interface (PRM `nic_interface`).
    pub(crate) driver: u32,
    pub(crate) phase: Phase,
    /// Pages that the host has given to the firmware.
    pub(crate) pages: Vec<u64>,
    pub(crate) uars: BTreeSet<u32>,
    pub(crate) eqs: BTreeMap<u32, Eq>,
    pub(crate) cqs: BTreeMap<u32, Notify>,
    /// Objects with a number and no other state, by the opcode that creates them and their number.
    pub(crate) numbers: BTreeSet<(u16, u32)>,
    /// The number (`uid`) of the user context that each object belongs to. Objects of the host itself,
    /// context 0, are not listed.
    pub(crate) owners: BTreeMap<(Kind, u32), u16>,
    /// Memory of users for rings and doorbell records, by the number of the umem.
    pub(crate) umems: BTreeMap<u32, Umem>,
    /// The umems of the ring and of the doorbell record, for each queue. `None` stands for a place outside of
    /// umems.
    pub(crate) over_umems: BTreeMap<(Kind, u32), [Option<u32>; 2]>,
    /// The eight opaque bytes that a user has stored with each DEK, by the number of the DEK.
    pub(crate) opaques: BTreeMap<u32, [u8; 8]>,
    /// The contexts of queue pairs, by their numbers.
    pub(crate) contexts: BTreeMap<u32, Context>,
    /// The description of the node that the host has set.
    pub(crate) description: Vec<u8>,
    pub(crate) checksum: Checksum,
    /// The capabilities of the device that SET_HCA_CAP has chosen.
    pub(crate) current: Option<Vec<u8>>,
    /// The finished commands that no event has reported yet: bit n is entry n of the command queue.
    pub(crate) completed: u32,
    /// A page request of the firmware to the host: the number of the PCI function, and the number of pages. A
    /// negative number asks the host to take pages back.
    pub(crate) page_request: Option<(u16, i32)>,
    /// Whether the firmware has asked for additional pages while it runs.
    pub(crate) more_pages: bool,
    /// Vectors of interrupts that are due.
    pub(crate) interrupts: Vec<u16>,
    pub(crate) blue_flame: Option<BlueFlame>,
    /// Send queues of packets, by their numbers.
    pub(crate) packets: BTreeMap<u32, PacketQueue>,
    /// The counters of sent packets.
    pub(crate) traffic: Traffic,
    /// Receive queues of frames, by their numbers.
    pub(crate) receivers: BTreeMap<u32, FrameQueue>,
    /// The counters of received frames.
    pub(crate) received: Traffic,
    /// Frames for other ports, oldest first.
    pub(crate) frames: VecDeque<Vec<u8>>,
    pub(crate) health: u32,
}

/// A kind of objects: the opcode of the command that makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind(pub(crate) u16);

/// Memory that a user has registered for rings and doorbell records (PRM `umem`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Umem {
    /// The first address of the memory. If its pages do not follow each other, the address is in a window of
    /// the device's bus, in which they do.
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// Whether the device may write to all pages of the umem.
    pub(crate) writable: bool,
}

/// The context of a queue pair, as commands have written it.
pub(crate) type Context = [u8; QPC_BYTES];

/// An event queue.
#[derive(Debug)]
pub(crate) struct Eq {
    pub(crate) ring: u64,
    pub(crate) log_entries: u8,
    /// The types of events that this queue gets: bit n of word m is type 64 m + n.
    pub(crate) events: [u64; 4],
    /// The vector of the queue's interrupts.
    pub(crate) vector: u16,
    /// Counts of entries: how many the device has written, and how many the host has reported as taken.
    pub(crate) producer: u32,
    pub(crate) consumer: u32,
    /// Whether the next entry raises an interrupt.
    pub(crate) armed: bool,
    /// The number of the UAR page with the queue's doorbells.
    pub(crate) uar: u32,
}

impl Eq {
    pub(crate) fn gets(&self, kind: u8) -> bool {
        self.events.get(usize::from(kind / 64)).is_some_and(|word| word >> (kind % 64) & 1 != 0)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.producer.wrapping_sub(self.consumer) & INDEX >= 1 << self.log_entries
    }
}

/// Properties of a completion queue that only drivers of the PCI function set: its event queue, its UAR page,
/// and whether the host has armed it.
#[derive(Debug)]
pub(crate) struct Notify {
    pub(crate) eq: u32,
    pub(crate) armed: Option<Armed>,
    /// The number of the UAR page with the queue's doorbells.
    pub(crate) uar: u32,
}

/// The values with which the host has armed a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Armed {
    /// Count of entries that the host has taken.
    pub(crate) consumer: u32,
    /// Whether only a solicited entry raises an event.
    pub(crate) solicited: bool,
}

/// The received part of a block that comes with its doorbell (BlueFlame).
#[derive(Debug)]
pub(crate) struct BlueFlame {
    /// The offset in BAR 0 to which the next bytes of the block must be written.
    pub(crate) next: u64,
    pub(crate) bytes: [u8; WQEBB_BYTES],
    pub(crate) length: usize,
}

/// A send queue of packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketQueue {
    pub(crate) cqn: u32,
    pub(crate) pd: u32,
    pub(crate) ring: u64,
    pub(crate) log_blocks: u8,
    pub(crate) record: u64,
    /// The number of the next block to execute.
    pub(crate) next: u16,
    /// The number of the UAR page with the queue's doorbells.
    pub(crate) uar: u32,
}

/// A receive queue of frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameQueue {
    pub(crate) cqn: u32,
    pub(crate) pd: u32,
    pub(crate) ring: u64,
    pub(crate) log_slots: u8,
    pub(crate) log_stride: u8,
    pub(crate) record: u64,
    /// The number of the next receive request.
    pub(crate) next: u16,
    /// Whether the queue takes frames.
    pub(crate) is_ready: bool,
}

/// Counts of packets and of their bytes (PRM `traffic_counter`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Counter {
    /// Adds packets, and the bytes of all of them.
    pub(crate) const fn count(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.wrapping_add(packets);
        self.bytes = self.bytes.wrapping_add(bytes);
    }
}

/// The counters of sent or received packets, by the kind of their destination. Packets that the device could
/// not read are errors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) errors: Counter,
    pub(crate) unicast: Counter,
    pub(crate) multicast: Counter,
    pub(crate) broadcast: Counter,
}

impl Interface {
    /// Returns whether a UAR page contains the send doorbells of a queue pair or of a send queue of packets.
    pub(crate) fn rings(&self, page: u32, queue: u32) -> bool {
        let of_pair = |context: &Context| {
            let [_, _, _, _, _, _, _, _, _, _, _, _, _, a, b, c, ..] = *context;
            u32::from_be_bytes([0, a, b, c]) == page
        };
        self.contexts.get(&queue).is_some_and(of_pair)
            || self.packets.get(&queue).is_some_and(|packets| packets.uar == page)
    }

    /// Returns whether an event queue gets events of a type.
    pub(crate) fn is_told(&self, kind: u8) -> bool {
        self.eqs.values().any(|eq| eq.gets(kind))
    }
}
