//! Tests of the command interface with handwritten entries and mailbox blocks. Malformed commands are
//! refused, and change nothing.

use crate::common::{DOORBELL, ENTRY, Posted, Words, xor};
use mlx5_softdev::{Arena, Device, DeviceProfile, Fault, Memory, Phase};

const BASE: u64 = 0x4000_0000;
/// The page of the command queue. Mailbox blocks follow it.
const QUEUE: u64 = BASE;
/// The first page that the tests give to the firmware.
const PAGES: u64 = BASE + 0x10000;

fn posted(request: &[u8], room: usize) -> Posted {
    Posted::new(QUEUE, request, room)
}

/// Returns a device whose firmware is ready, and to which the address of the command queue was written.
fn ready() -> Device<Arena> {
    let mut device = Device::new(Arena::new(BASE, 1 << 20), DeviceProfile::default());
    let starting: Vec<u32> = (0..4).map(|_| device.read_register(0x1fc) >> 31).collect();
    assert_eq!(starting, [1, 1, 1, 0]);
    device.write_register(0x10, 0);
    device.write_register(0x14, QUEUE as u32);
    device
}

const ENABLE: [u8; 16] = [1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Returns MANAGE_PAGES with 200 pages, which need four mailbox blocks.
fn pages() -> Vec<u8> {
    let mut request = vec![1, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 200];
    (0..200).for_each(|page: u64| request.extend((PAGES + page * 4096).to_be_bytes()));
    request
}

#[test]
fn registers_say_how_the_queue_is_laid_out() {
    let mut device = ready();
    assert_eq!(device.read_register(0), 99 << 16 | 22, "version 22.99 of the firmware");
    assert_eq!(device.read_register(0x4) >> 16, 5);
    assert_eq!(device.read_register(0x14), QUEUE as u32 | 4 << 4 | 7);
    assert_eq!(device.read_register(0x20), 0);
}

#[test]
fn a_command_that_is_whole_is_carried_out_and_signed() {
    let mut device = ready();
    assert_eq!(device.phase(), Phase::Reset);
    let entry = posted(&ENABLE, 16).give(&mut device);
    assert_eq!((entry[0x3f], entry[0x3c], xor(&entry)), (0, 0x5a, 0xff));
    assert_eq!(entry[0x20..0x30], [0; 16]);
    assert_eq!(device.phase(), Phase::Enabled);
    // The reply to QUERY_HCA_CAP has eight blocks, which the device signs.
    let request = [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let posted = posted(&request, 16 + 4096);
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
    let mut posted = posted(&ENABLE, 16);
    posted.entry[0x3f] = 0;
    posted.sign();
    assert_eq!(posted.give(&mut device), posted.entry);
    assert_eq!(device.phase(), Phase::Reset);
}

#[test]
fn a_device_that_is_still_starting_hears_nothing() {
    let mut device = Device::new(Arena::new(BASE, 1 << 20), DeviceProfile::default());
    device.write_register(0x14, QUEUE as u32);
    let posted = posted(&ENABLE, 16);
    assert_eq!(posted.give(&mut device), posted.entry);
}

#[test]
fn any_bit_that_is_flipped_is_noticed() {
    let mut device = ready();
    posted(&ENABLE, 16).give(&mut device);
    let whole = posted(&pages(), 16 + 1024);
    let lengths = [64, 576, 576, 576, 576, 576, 576];
    assert_eq!(whole.blocks.len() + 1, lengths.len());
    for (part, length) in lengths.into_iter().enumerate() {
        for bit in (0..length * 8).step_by(7).chain(if part == 0 { 0x1e8..0x1f8 } else { 0x11e0..0x1200 }) {
            let mut broken = whole.clone();
            let bytes = if part == 0 { &mut broken.entry[..] } else { &mut broken.blocks[part - 1].1[..] };
            bytes[bit / 8] ^= 1 << (bit % 8);
            let entry = broken.give(&mut device);
            // If the flipped bit is the owner bit, the entry belongs to software, and the device leaves it
            // unchanged.
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
    posted(&ENABLE, 16).give(&mut device);
    let whole = posted(&pages(), 16 + 512);
    let mut refused = |change: &dyn Fn(&mut Posted), status: u8| {
        let mut broken = whole.clone();
        change(&mut broken);
        broken.sign();
        let entry = broken.give(&mut device);
        assert_eq!((entry[0x3f], xor(&entry)), (status << 1, 0xff));
        assert_eq!(device.firmware_pages(), 0);
    };
    refused(&|posted| posted.entry[0x3c] ^= 1, 0x2); // the token of the entry
    refused(&|posted| posted.blocks[2].1[0x23d] ^= 1, 0x2); // the token of a block
    refused(&|posted| posted.blocks[4].1[0x23d] ^= 1, 0x2); // the token of a block of the reply
    refused(&|posted| posted.blocks[2].1[0x23b] ^= 1, 0x3); // the number of a block
    refused(&|posted| posted.entry[0x36] ^= 1, 0x4); // the address of the reply's block
    refused(&|posted| posted.entry[0xe] ^= 1, 0x5); // the address of the request's block
    refused(&|posted| posted.blocks[0].1[0x236] ^= 1, 0x5); // the address of the next block
    refused(&|posted| posted.entry[0x8] ^= 1, 0x6); // the address is no memory
    refused(&|posted| posted.entry[6] = 0xff, 0x6); // the length exceeds the chain
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
        let entry = posted(request, room).give(&mut device);
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

/// A command queue may be above 4 GiB.
#[test]
fn both_halves_of_the_queues_address_are_kept() {
    const ABOVE: u64 = 0x1_2345_6000;
    let mut device = Device::new(Arena::new(ABOVE, 0x10000), DeviceProfile::default());
    while device.read_register(0x1fc) >> 31 != 0 {}
    device.write_register(0x10, (ABOVE >> 32) as u32);
    device.write_register(0x14, ABOVE as u32);
    assert_eq!((device.read_register(0x10), device.read_register(0x14) & !0xfff), (1, 0x2345_6000));
    assert_eq!(Posted::new(ABOVE, &ENABLE, 16).give(&mut device)[0x3f], 0);
    assert_eq!(device.phase(), Phase::Enabled);
}

#[test]
fn the_doorbell_names_the_entries_to_look_at() {
    let mut device = ready();
    let posted = posted(&ENABLE, 16);
    for slot in (0..16).filter(|slot| *slot != ENTRY) {
        device.memory_mut().write(QUEUE + (slot << 7), &posted.entry).unwrap();
    }
    device.write_register(DOORBELL, 1 << ENTRY);
    assert_eq!(device.phase(), Phase::Reset, "there is no command");
    assert_eq!(posted.give(&mut device)[0x3f], 0);
    for slot in (0..16).filter(|slot| *slot != ENTRY) {
        assert_eq!(device.memory().bytes(QUEUE + (slot << 7), 64), Some(&posted.entry[..]), "entry {slot}");
    }
}

/// A memory that records the owner byte of an entry instead of writing it.
#[derive(Debug)]
struct Delayed(Arena, Vec<(u64, u8)>);

impl Memory for Delayed {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.0.read(address, out)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.0.write(address, bytes)
    }

    fn publish(&mut self, address: u64, byte: u8) -> Result<(), Fault> {
        self.1.push((address, byte));
        Ok(())
    }
}

/// The owner bit is written after all other bytes.
#[test]
fn an_entry_is_given_back_last() {
    let mut device = Device::new(Delayed(Arena::new(BASE, 1 << 20), vec![]), DeviceProfile::default());
    while device.read_register(0x1fc) >> 31 != 0 {}
    device.write_register(0x14, QUEUE as u32);
    let posted = posted(&[1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 16);
    let entry = posted.give(&mut device);
    assert_eq!((entry[0x20], entry[0x3f]), (4, 1), "the reply is there, and the entry the device's");
    assert_eq!(device.memory().1, [(posted.at + 0x3f, 0)]);
    assert_eq!(xor(&entry[..0x3f]), 0xff);
}

#[test]
fn nothing_but_enable_is_heard_at_reset_and_enable_nowhere_else() {
    let mut device = ready();
    let mut status = |request: &[u8]| {
        let entry = posted(request, 16 + 4096).give(&mut device);
        assert_eq!(entry[0x3f], 0, "delivered");
        (entry[0x20], device.phase())
    };
    let of = |opcode: u16, op_mod: u16| Words::new(opcode, 16).u16(6, op_mod).0;
    // These commands are refused before ENABLE_HCA: QUERY_ISSI, QUERY_HCA_CAP, QUERY_PAGES, MANAGE_PAGES that
    // takes pages back, DISABLE_HCA.
    let others = [of(0x10a, 0), of(0x100, 1), of(0x107, 1), Words(of(0x108, 2)).u32(8, 7).0, of(0x105, 0)];
    for request in &others {
        assert_eq!(status(request), (4, Phase::Reset), "{request:x?}");
    }
    assert_eq!(status(&ENABLE), (0, Phase::Enabled));
    for request in &others[..4] {
        assert_eq!(status(request), (0, Phase::Enabled), "{request:x?}");
    }
    assert_eq!(status(&pages()), (0, Phase::Enabled));
    assert_eq!(status(&of(0x102, 0)), (0, Phase::Running));
    assert_eq!(status(&ENABLE), (4, Phase::Running));
}

/// The running firmware keeps the 5 and 150 pages that it has asked for at the start, and returns the others.
#[test]
fn pages_that_are_not_needed_are_given_back() {
    let mut device = ready();
    let take_back = |device: &mut Device<Arena>, most: u32| {
        let request = Words::new(0x108, 16).u16(6, 2).u32(8, 7).u32(0xc, most);
        let posted = posted(&request.0, 16 + 512);
        let entry = posted.give(device);
        assert_eq!((entry[0x3f], entry[0x20]), (0, 0));
        let count = u32::from_be_bytes(entry[0x28..0x2c].try_into().unwrap());
        let list = device.memory().bytes(posted.blocks[0].0, 8 * count as usize).unwrap();
        list.chunks(8).map(|page| u64::from_be_bytes(page.try_into().unwrap())).collect::<Vec<_>>()
    };
    for request in [&ENABLE[..], &pages(), &Words::new(0x102, 16).0] {
        assert_eq!(posted(request, 16).give(&mut device)[0x20], 0);
    }
    let page = |number: u64| PAGES + number * 4096;
    assert_eq!(take_back(&mut device, 3), [page(197), page(198), page(199)]);
    assert_eq!(take_back(&mut device, 60), (155..197).map(page).collect::<Vec<_>>());
    assert_eq!((take_back(&mut device, 60), device.firmware_pages()), (vec![], 155));
    assert_eq!(posted(&Words::new(0x103, 16).0, 16).give(&mut device)[0x20], 0);
    // The firmware returns at most 50 pages at once.
    assert_eq!(take_back(&mut device, 60), (105..155).map(page).collect::<Vec<_>>());
}

/// Returns a command whose blocks have signatures of 0, as Linux writes them. With `signs_entry`, the entry
/// is signed.
fn bare(mut posted: Posted, signs_entry: bool) -> Posted {
    for (_, block) in &mut posted.blocks {
        block[0x23e..].fill(0);
    }
    posted.entry[0x3d] = 0;
    posted.entry[0x3d] = if signs_entry { !xor(&posted.entry) } else { 0 };
    posted
}

/// Signatures of blocks are optional until SET_HCA_CAP chooses that all signatures are checked, or none.
#[test]
fn a_driver_chooses_what_is_signed() {
    const ROOM: usize = 16 + 4096;
    let query = |now: u8| posted(&[1, 0, 0, 0, 0, 0, 0, now, 0, 0, 0, 0, 0, 0, 0, 0], ROOM);
    let checksum = |device: &mut Device<Arena>, now: u8| {
        let query = query(now);
        assert_eq!(query.give(device)[0x3f], 0);
        device.memory().bytes(query.blocks[0].0 + 0x42, 1).unwrap()[0] >> 6
    };
    let choose = |device: &mut Device<Arena>, checksum: u8| {
        let request = Words::new(0x109, ROOM).u8(16 + 0x42, checksum << 6);
        let entry = posted(&request.0, 16).give(device);
        assert_eq!(entry[0x3f], 0);
        entry[0x20]
    };
    let mut device = ready();
    posted(&ENABLE, 16).give(&mut device);
    assert_eq!((checksum(&mut device, 0), checksum(&mut device, 1)), (3, 1), "at most, and at first");
    assert_eq!(bare(query(1), true).give(&mut device)[0x3f], 0, "a block without signatures");
    assert_eq!(bare(query(1), false).give(&mut device)[0x3f], 1 << 1, "an entry without one");
    assert_eq!(choose(&mut device, 2), 3, "a value that is none");
    assert_eq!(choose(&mut device, 0), 0);
    assert_eq!(checksum(&mut device, 1), 0, "what was chosen is in force");
    assert_eq!(bare(query(1), false).give(&mut device)[0x3f], 0);
    assert_eq!(choose(&mut device, 3), 0);
    assert_eq!(bare(query(1), true).give(&mut device)[0x3f], 1 << 1, "a block without signatures");
    assert_eq!(query(1).give(&mut device)[0x3f], 0);
    // A reset of the PCI function also resets the choice of SET_HCA_CAP.
    device.reset_function();
    assert_eq!(device.phase(), Phase::Reset);
    while device.read_register(0x1fc) >> 31 != 0 {}
    device.write_register(0x14, QUEUE as u32);
    posted(&ENABLE, 16).give(&mut device);
    assert_eq!(checksum(&mut device, 1), 1);
}

/// Linux has room for 12 bytes of the reply to ENABLE_HCA. The smallest allowed room holds status and
/// syndrome, 8 bytes.
#[test]
fn a_short_reply_has_room_for_status_and_syndrome() {
    let mut device = ready();
    assert_eq!(posted(&ENABLE, 7).give(&mut device)[0x3f], 0x8 << 1);
    let entry = posted(&ENABLE, 12).give(&mut device);
    assert_eq!((entry[0x3f], entry[0x20..0x30].to_vec()), (0, vec![0; 16]));
    let entry = posted(&ENABLE, 12).give(&mut device);
    assert_eq!((entry[0x3f], entry[0x20]), (0, 4), "twice");
}
