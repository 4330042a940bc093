//! The command interface, given entries and blocks that were written by hand: what is not whole is refused, and changes nothing.

use mlx5_softdev::{Arena, Device, DeviceProfile, Memory, Phase};

const BASE: u64 = 0x4000_0000;
/// The command queue's page, and blocks of two commands.
const QUEUE: u64 = BASE;
const IN: u64 = BASE + 0x1000;
const OUT: u64 = BASE + 0x4000;
/// Pages for the firmware.
const PAGES: u64 = BASE + 0x10000;

const DOORBELL: usize = 0x18;

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// A command in entry 2: its entry, and its blocks.
#[derive(Clone)]
struct Posted {
    entry: [u8; 64],
    blocks: Vec<(u64, [u8; 576])>,
}

impl Posted {
    fn new(request: &[u8], room: usize) -> Self {
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(request.len() as u32).to_be_bytes());
        entry[0x10..0x20].copy_from_slice(&request[..16]);
        entry[0x38..0x3c].copy_from_slice(&(room as u32).to_be_bytes());
        entry[0x3c] = 0x5a;
        entry[0x3f] = 1;
        let mut blocks = Vec::new();
        for (base, pointer, data) in [(IN, 8, &request[16..]), (OUT, 0x30, &vec![0; room - 16])] {
            let chunks: Vec<_> = data.chunks(512).collect();
            for (number, chunk) in chunks.iter().enumerate() {
                let mut block = [0; 576];
                block[..chunk.len()].copy_from_slice(chunk);
                let next = if number + 1 == chunks.len() { 0 } else { base + 1024 * (number as u64 + 1) };
                block[0x230..0x238].copy_from_slice(&next.to_be_bytes());
                block[0x238..0x23c].copy_from_slice(&(number as u32).to_be_bytes());
                block[0x23d] = 0x5a;
                blocks.push((base + 1024 * number as u64, block));
            }
            if !chunks.is_empty() {
                entry[pointer..pointer + 8].copy_from_slice(&base.to_be_bytes());
            }
        }
        let mut posted = Self { entry, blocks };
        posted.sign();
        posted
    }

    /// Signs all of it.
    fn sign(&mut self) {
        self.entry[0x3d] = 0;
        self.entry[0x3d] = !xor(&self.entry);
        for (_, block) in &mut self.blocks {
            (block[0x23e], block[0x23f]) = (0, 0);
            block[0x23e] = !xor(&block[0x200..0x23e]);
            block[0x23f] = !xor(&block[..]);
        }
    }

    /// Gives it to the device, and returns the entry that comes back.
    fn give(&self, device: &mut Device<Arena>) -> [u8; 64] {
        let at = QUEUE + (2 << 7);
        device.memory_mut().write(at, &self.entry).unwrap();
        for (address, block) in &self.blocks {
            device.memory_mut().write(*address, block).unwrap();
        }
        device.write_register(DOORBELL, 1 << 2);
        let mut entry = [0; 64];
        device.memory().read(at, &mut entry).unwrap();
        entry
    }
}

/// A device whose firmware is ready, and which knows its queue.
fn ready() -> Device<Arena> {
    let mut device = Device::new(Arena::new(BASE, 1 << 20), DeviceProfile::default());
    let starting: Vec<u32> = (0..4).map(|_| device.read_register(0x1fc) >> 31).collect();
    assert_eq!(starting, [1, 1, 1, 0]);
    device.write_register(0x10, 0);
    device.write_register(0x14, QUEUE as u32);
    device
}

const ENABLE: [u8; 16] = [1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// MANAGE_PAGES with 200 pages: four blocks.
fn pages() -> Vec<u8> {
    let mut request = vec![1, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 200];
    (0..200).for_each(|page: u64| request.extend((PAGES + page * 4096).to_be_bytes()));
    request
}

#[test]
fn registers_say_how_the_queue_is_laid_out() {
    let mut device = ready();
    assert_eq!(device.read_register(0x4) >> 16, 5);
    assert_eq!(device.read_register(0x14), QUEUE as u32 | 4 << 4 | 7);
    assert_eq!(device.read_register(0x20), 0);
}

#[test]
fn a_command_that_is_whole_is_carried_out_and_signed() {
    let mut device = ready();
    assert_eq!(device.phase(), Phase::Reset);
    let entry = Posted::new(&ENABLE, 16).give(&mut device);
    assert_eq!((entry[0x3f], entry[0x3c], xor(&entry)), (0, 0x5a, 0xff));
    assert_eq!(entry[0x20..0x30], [0; 16]);
    assert_eq!(device.phase(), Phase::Enabled);
    // QUERY_HCA_CAP: eight blocks come back, signed as well.
    let request = [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let posted = Posted::new(&request, 16 + 4096);
    assert_eq!((posted.blocks.len(), posted.give(&mut device)[0x3f]), (8, 0));
    let mut log_max_pd = 0;
    for (number, (address, _)) in posted.blocks.iter().enumerate() {
        let mut block = [0; 576];
        device.memory().read(*address, &mut block).unwrap();
        assert_eq!((xor(&block), xor(&block[0x200..0x23f]), block[0x23d]), (0xff, 0xff, 0x5a));
        if number == 0 {
            log_max_pd = block[0x65];
        }
    }
    assert_eq!(log_max_pd, 24);
}

#[test]
fn an_entry_of_software_is_left_alone() {
    let mut device = ready();
    let mut posted = Posted::new(&ENABLE, 16);
    posted.entry[0x3f] = 0;
    posted.sign();
    assert_eq!(posted.give(&mut device), posted.entry);
    assert_eq!(device.phase(), Phase::Reset);
}

#[test]
fn a_device_that_is_still_starting_hears_nothing() {
    let mut device = Device::new(Arena::new(BASE, 1 << 20), DeviceProfile::default());
    device.write_register(0x14, QUEUE as u32);
    let posted = Posted::new(&ENABLE, 16);
    assert_eq!(posted.give(&mut device), posted.entry);
}

#[test]
fn any_bit_that_is_flipped_is_noticed() {
    let mut device = ready();
    Posted::new(&ENABLE, 16).give(&mut device);
    let whole = Posted::new(&pages(), 16 + 1024);
    let lengths = [64, 576, 576, 576, 576, 576, 576];
    assert_eq!(whole.blocks.len() + 1, lengths.len());
    for (part, length) in lengths.into_iter().enumerate() {
        for bit in (0..length * 8).step_by(7).chain(if part == 0 { 0x1e8..0x1f8 } else { 0x11e0..0x1200 }) {
            let mut broken = whole.clone();
            let bytes = if part == 0 { &mut broken.entry[..] } else { &mut broken.blocks[part - 1].1[..] };
            bytes[bit / 8] ^= 1 << (bit % 8);
            let entry = broken.give(&mut device);
            // The owner bit makes it software's.
            let expected = if (part, bit) == (0, 0x1f8) { broken.entry[0x3f] } else { 1 << 1 };
            assert_eq!(entry[0x3f], expected, "part {part}, bit {bit:#x}");
            assert_eq!(device.firmware_pages(), 0, "part {part}, bit {bit:#x}");
        }
    }
    assert_eq!(whole.give(&mut device)[0x3f], 0);
    assert_eq!(device.firmware_pages(), 200);
}

#[test]
fn what_is_signed_and_wrong_is_named() {
    let mut device = ready();
    Posted::new(&ENABLE, 16).give(&mut device);
    let whole = Posted::new(&pages(), 16 + 512);
    let mut refused = |change: &dyn Fn(&mut Posted), status: u8| {
        let mut broken = whole.clone();
        change(&mut broken);
        broken.sign();
        let entry = broken.give(&mut device);
        assert_eq!((entry[0x3f], xor(&entry)), (status << 1, 0xff));
        assert_eq!(device.firmware_pages(), 0);
    };
    refused(&|posted| posted.entry[0x3c] ^= 1, 0x2); // the token of the entry
    refused(&|posted| posted.blocks[2].1[0x23d] ^= 1, 0x2); // and of a block
    refused(&|posted| posted.blocks[4].1[0x23d] ^= 1, 0x2); // and of the reply's
    refused(&|posted| posted.blocks[2].1[0x23b] ^= 1, 0x3); // the number of a block
    refused(&|posted| posted.entry[0x36] ^= 1, 0x4); // where the reply's block is
    refused(&|posted| posted.entry[0xe] ^= 1, 0x5); // where the request's is
    refused(&|posted| posted.blocks[0].1[0x236] ^= 1, 0x5); // or the next
    refused(&|posted| posted.entry[0x8] ^= 1, 0x6); // no memory
    refused(&|posted| posted.entry[6] = 0xff, 0x6); // more blocks than there are
    refused(&|posted| posted.entry[4..8].fill(0), 0x7);
    refused(&|posted| posted.entry[0x38..0x3c].fill(0xff), 0x8);
    refused(&|posted| posted.entry[1] = 1, 0x9);
    refused(&|posted| posted.entry[0x3e] = 1, 0x9);
    refused(&|posted| posted.blocks[1].1[0x201] = 1, 0x9);
    refused(&|posted| posted.entry[0] = 6, 0x10);
    assert_eq!(whole.give(&mut device)[0x3f], 0);
}

#[test]
fn commands_have_their_states_and_refuse_what_makes_no_sense() {
    let mut device = ready();
    let mut status = |request: &[u8], room: usize| {
        let entry = Posted::new(request, room).give(&mut device);
        assert_eq!(entry[0x3f], 0, "delivered");
        (entry[0x20], device.phase())
    };
    let short = |opcode: u16, op_mod: u8, word: u32| {
        let mut request = vec![0; 16];
        request[..2].copy_from_slice(&opcode.to_be_bytes());
        request[7] = op_mod;
        request[8..12].copy_from_slice(&word.to_be_bytes());
        request
    };
    let alloc_pd = short(0x800, 0, 0);
    assert_eq!(status(&alloc_pd, 16), (4, Phase::Reset));
    assert_eq!(status(&short(0x104, 0, 1), 16), (3, Phase::Reset), "another function");
    assert_eq!(status(&ENABLE, 16), (0, Phase::Enabled));
    assert_eq!(status(&ENABLE, 16), (4, Phase::Enabled), "twice");
    assert_eq!(status(&short(0x10b, 0, 2), 16), (3, Phase::Enabled), "an unknown ISSI");
    assert_eq!(status(&short(0x102, 0, 0), 16), (4, Phase::Enabled), "without pages");
    assert_eq!(status(&alloc_pd, 16), (4, Phase::Enabled));
    let mut function_0 = pages();
    function_0[0xb] = 0;
    assert_eq!(status(&function_0, 16), (3, Phase::Enabled), "pages for another function than it named");
    for (at, value) in [(0x17, 0x10), (0x14, 0xff)] {
        let mut request = pages();
        request[at] = value;
        assert_eq!(status(&request, 16), (3, Phase::Enabled), "a page that is none");
    }
    let mut twice = pages();
    twice.copy_within(0x10..0x18, 0x18);
    assert_eq!(status(&twice, 16), (3, Phase::Enabled), "a page twice");
    let mut long = pages();
    long.truncate(long.len() - 8);
    assert_eq!(status(&long, 16), (0x50, Phase::Enabled), "a list that is too short");
    assert_eq!(status(&pages(), 16), (0, Phase::Enabled));
    assert_eq!(status(&short(0x100, 1, 0), 16), (0x51, Phase::Enabled), "no room for the reply");
    assert_eq!(status(&short(0x102, 0, 0), 16), (0, Phase::Running));
    assert_eq!(status(&alloc_pd, 16), (0, Phase::Running));
    assert_eq!(status(&short(0x777, 0, 0), 16), (2, Phase::Running), "no such command");
    assert_eq!(status(&short(0x105, 0, 0), 16), (4, Phase::Running), "disabled while it runs");
    assert_eq!(status(&short(0x103, 0, 0), 16), (0, Phase::Enabled));
    assert_eq!(status(&alloc_pd, 16), (4, Phase::Enabled));
    assert_eq!(status(&short(0x105, 0, 0), 16), (0, Phase::Reset));
}
