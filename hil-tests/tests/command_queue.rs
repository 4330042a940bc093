//! The library's command queue on the software device: commands that change on their way, pages for the
//! firmware, and keys that must be wiped. The fuzz target `command-queue` tests replies of any bytes.

use embedded_hal::delay::DelayNs;
use hil_tests::board::{Bare, Board, SoftBoard};
use mlx5_mkey::command::{
    AllocPd, Command, CreateDek, CreateListMkey, DekKey, DestroyDek, EnableHca, Function, GivePages,
    MkeyEntries, Pdn, QueryGeneralCapabilities, QueryIssi, XtsKey, wipe,
};
use mlx5_mkey::error::{CommandError, CommandQueueError};
use mlx5_mkey::hca::{CommandQueue, CommandQueueConfig, PageRange, PageSource, Register, Registers};
use mlx5_mkey::mkey::{Access, KlmEntry};
use mlx5_mkey::types::{Key, MkeyIndex};
use mlx5_mkey::wire::prm::command::{Opcode, Status};
use mlx5_mkey::wire::prm::command_queue::DeliveryStatus;
use mlx5_softdev::DeviceProfile;
#[cfg(target_os = "linux")]
use mlx5_testing::secrets;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A delay that does not wait, but adds up the requested nanoseconds.
#[derive(Clone, Default)]
struct Clock(Rc<Cell<u64>>);

impl DelayNs for Clock {
    fn delay_ns(&mut self, time: u32) {
        self.0.set(self.0.get() + u64::from(time));
    }
}

/// A function that changes the command queue's memory. Its first argument gives access to the device's
/// memory, its second is the address of the command queue's part.
type Change = Box<dyn FnMut(&mut dyn Bare, u64)>;

/// The registers of the device, as the command queue sees them. A test can replace their values, suppress
/// doorbells, and change memory before and after a doorbell is rung.
struct Window {
    inner: Box<dyn Registers>,
    bare: Rc<RefCell<Box<dyn Bare>>>,
    address: u64,
    faults: Rc<RefCell<Faults>>,
}

#[derive(Default)]
struct Faults {
    registers: Vec<(Register, u32)>,
    deaf: bool,
    /// Changes of memory, with the bits of their doorbells: see [`Rig::before`] and [`Rig::behind`].
    before: Option<(u32, Change)>,
    behind: Option<(u32, Change)>,
    doorbells: Vec<u32>,
}

impl Registers for Window {
    fn read(&mut self, register: Register) -> u32 {
        let faults = self.faults.borrow();
        let other = faults.registers.iter().find(|(wrong, _)| *wrong == register);
        other.map_or_else(|| self.inner.read(register), |(_, value)| *value)
    }

    fn write(&mut self, register: Register, value: u32) {
        let mut faults = self.faults.borrow_mut();
        if register != Register::Doorbell {
            return self.inner.write(register, value);
        }
        faults.doorbells.push(value);
        if let Some((_, mut change)) = faults.before.take_if(|(doorbells, _)| *doorbells & value != 0) {
            change(&mut **self.bare.borrow_mut(), self.address);
        }
        if !faults.deaf {
            self.inner.write(register, value);
        }
        if let Some((_, mut change)) = faults.behind.take_if(|(doorbells, _)| *doorbells & value != 0) {
            change(&mut **self.bare.borrow_mut(), self.address);
        }
    }
}

struct Rig {
    bare: Rc<RefCell<Box<dyn Bare>>>,
    faults: Rc<RefCell<Faults>>,
    clock: Clock,
    address: u64,
}

type Queue = CommandQueue<'static, Window>;

impl Rig {
    fn new() -> Self {
        let bare = SoftBoard::new(DeviceProfile::default()).bare().unwrap();
        Self { bare: Rc::new(RefCell::new(bare)), faults: Rc::default(), clock: Clock::default(), address: 0 }
    }

    fn try_queue(
        &mut self,
        change: impl FnOnce(&mut CommandQueueConfig),
    ) -> Result<Queue, CommandQueueError> {
        let (memory, address) = self.bare.borrow_mut().command_memory();
        self.address = address;
        let inner = self.bare.borrow_mut().registers();
        let window = Window { inner, bare: self.bare.clone(), address, faults: self.faults.clone() };
        let mut config = CommandQueueConfig { verify_replies: true, ..CommandQueueConfig::new(address) };
        change(&mut config);
        CommandQueue::new(window, memory, config, &mut self.clock)
    }

    fn queue(&mut self) -> Queue {
        self.try_queue(|_| {}).unwrap()
    }

    /// Makes a command queue, and executes ENABLE_HCA for the device's own function.
    fn enabled(&mut self) -> Queue {
        let mut queue = self.queue();
        queue.execute(&EnableHca(Function::OWN), &mut self.clock).unwrap();
        queue
    }

    /// Makes this change of memory before the next doorbell that has one of these bits.
    fn before(&self, doorbells: u32, change: impl FnMut(&mut dyn Bare, u64) + 'static) {
        self.faults.borrow_mut().before = Some((doorbells, Box::new(change)));
    }

    /// Makes this change of memory after the next doorbell that has one of these bits.
    fn behind(&self, doorbells: u32, change: impl FnMut(&mut dyn Bare, u64) + 'static) {
        self.faults.borrow_mut().behind = Some((doorbells, Box::new(change)));
    }

    /// Returns `count` free pages of the board's memory, which the library can give to the firmware.
    fn pages(&self, count: u32) -> PageRange<'static> {
        let bitmap = vec![0; count.div_ceil(64) as usize].leak();
        PageRange::new(self.bare.borrow_mut().pages(count), count, bitmap).unwrap()
    }

    /// Makes a command queue, and starts the device with enough pages for its firmware.
    fn started(&mut self) -> (Queue, PageRange<'static>) {
        let (mut queue, mut pages) = (self.queue(), self.pages(200));
        queue.start(&mut pages, &mut self.clock).unwrap();
        (queue, pages)
    }

    fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        self.bare.borrow().read(self.address + at, length)
    }
}

/// Returns a function that flips a bit of the byte at this offset in the command queue's memory.
fn flip(at: u64) -> impl FnMut(&mut dyn Bare, u64) {
    move |bare, address| {
        let byte = bare.read(address + at, 1)[0];
        bare.write(address + at, &[byte ^ 0x10]);
    }
}

/// Offset of the first mailbox block in the command queue's memory.
const BLOCKS: u64 = 4096;

/// The bits of all doorbells.
const ANY: u32 = u32::MAX;

/// Doorbell bit and entry offset of MANAGE_PAGES commands. They use the last of the command queue's 16
/// entries, each 128 bytes long.
const PAGES_DOORBELL: u32 = 1 << 15;
const PAGES_ENTRY: u64 = 15 << 7;

/// The PCI function whose firmware asks for pages on the software device.
const PAGES_OF: Function = Function { number: 7, embedded_cpu: false };

fn delivery(error: CommandQueueError) -> DeliveryStatus {
    match error {
        CommandQueueError::Delivery { status, .. } => status,
        other => panic!("{other}"),
    }
}

#[test]
fn a_device_that_is_not_as_it_has_to_be_is_refused() {
    let mut rig = Rig::new();
    let fails = |register, value, error: &str| {
        let mut rig = Rig::new();
        rig.faults.borrow_mut().registers.push((register, value));
        let found = rig.try_queue(|config| config.ready_ms = 100).unwrap_err().to_string();
        assert_eq!(found, error);
        rig
    };
    let late = fails(Register::Initializing, 1 << 31, "the firmware is not ready after 100 ms");
    assert_eq!(late.clock.0.get(), 100_000_000);
    let revision = "the command interface has revision 4, this library knows 5";
    fails(Register::InterfaceRevision, 4 << 16, revision);
    for (log_size, log_stride) in [(5, 5), (5, 8), (7, 6), (6, 6)] {
        let layout = format!("2^{log_size} command entries, 2^{log_stride} bytes apart: 2^12 is a page");
        fails(Register::QueueLow, log_size << 4 | log_stride, &layout);
    }
    let error = rig.try_queue(|config| config.address += 1024).unwrap_err();
    let CommandQueueError::Command(CommandError::Misaligned { what, alignment, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!((what, alignment), ("command queue", 4096));
    // The command queue reads the initializing register three times until the firmware is ready, with a delay
    // of 2 ms after each.
    rig.queue();
    assert_eq!(rig.clock.0.get(), 6_000_000);
}

#[test]
fn commands_have_tokens_slots_and_an_owner() {
    let mut rig = Rig::new();
    let mut queue = rig.enabled();
    queue.execute(&QueryIssi, &mut rig.clock).unwrap();
    let entry = rig.bytes(0, 64);
    assert_eq!((entry[0], entry[0x3c], entry[0x3f]), (7, 2, 0));
    // The device's command queue has 16 entries of 128 bytes, and MANAGE_PAGES uses the last of them.
    let page = rig.bare.borrow_mut().pages(1);
    queue.execute(&GivePages { function: PAGES_OF, pages: [page] }, &mut rig.clock).unwrap();
    assert_eq!(rig.bytes(PAGES_ENTRY, 2), [7, 0]);
    assert_eq!(rig.faults.borrow().doorbells, [1, 1, PAGES_DOORBELL]);
    // Tokens wrap around, and 0 is no token.
    for _ in 0..256 {
        queue.execute(&QueryIssi, &mut rig.clock).unwrap();
        assert_ne!(rig.bytes(0x3c, 1), [0]);
    }
}

#[test]
fn what_is_changed_on_its_way_to_the_device_is_refused() {
    let mut rig = Rig::new();
    let mut queue = rig.enabled();
    let function = PAGES_OF;
    // The test flips a bit at these offsets in the command queue entry: in a word of the request, in the
    // token, and in the signature.
    for at in [0x17, 0x3c, 0x3d] {
        rig.before(ANY, flip(at));
        let error = queue.execute(&QueryIssi, &mut rig.clock).unwrap_err();
        assert_eq!(error.to_string(), "QUERY_ISSI was not delivered: signature error");
    }
    let pages: [u64; 100] = {
        let first = rig.bare.borrow_mut().pages(100);
        core::array::from_fn(|page| first + page as u64 * 4096)
    };
    let give = GivePages { function, pages };
    // The test flips a bit at these offsets in the request's second mailbox block: in the data, the number,
    // the token, and both signatures. The reply has no second block, so the device's refusal can only concern
    // the request.
    for at in [0, 0x23b, 0x23d, 0x23e, 0x23f] {
        rig.before(ANY, flip(BLOCKS + 1024 + at));
        let error = queue.execute(&give, &mut rig.clock).unwrap_err();
        assert_eq!(delivery(error), DeliveryStatus::SIGNATURE, "{at:#x}");
    }
    assert_eq!(queue.execute(&give, &mut rig.clock), Ok(()), "the earlier commands gave no pages");
}

#[test]
fn a_list_that_does_not_fit_is_refused() {
    let mut rig = Rig::new();
    let mut queue = rig.enabled();
    let give = GivePages { function: PAGES_OF, pages: [4096; 1100] };
    let error = queue.execute(&give, &mut rig.clock).unwrap_err().to_string();
    assert_eq!(error, "MANAGE_PAGES: 18 blocks needed, the command queue has 16");
    assert_eq!(rig.faults.borrow().doorbells.len(), 1);
}

#[test]
fn a_request_that_is_longer_than_its_type_has_a_mailbox_of_the_caller() {
    let mut rig = Rig::new();
    let (mut queue, _pages) = rig.started();
    let pd = queue.execute(&AllocPd, &mut rig.clock).unwrap();
    let device = queue.execute(&QueryGeneralCapabilities, &mut rig.clock).unwrap();
    let key = Key::new(MkeyIndex::new(1).unwrap(), 0);
    let entries = [KlmEntry { address: 0x1000, length: 512, key }; 5];
    let list = CreateListMkey::new(pd, Access::NONE, 0, MkeyEntries::Klm(&entries), &device).unwrap();
    let (length, needed) = (CreateListMkey::INPUT, list.input_bytes());
    let command = Opcode::CREATE_MKEY;
    let short = Err(CommandError::MailboxTooShort { command, length, needed }.into());
    assert_eq!(queue.execute(&list, &mut rig.clock), short);
    assert!(queue.execute_in(&list, &mut vec![0xa5; needed + 1], &mut rig.clock).is_ok());
}

#[test]
fn firmware_that_wants_more_pages_than_there_are_is_not_started() {
    let mut rig = Rig::new();
    let mut queue = rig.queue();
    let mut pages = rig.pages(100);
    let error = queue.start(&mut pages, &mut rig.clock).unwrap_err();
    // The firmware gets the 5 boot pages. It then wants 150 more, in lists of at most 64. The machine has
    // enough pages for the first list, but only 31 for the remaining 86.
    assert_eq!(error.to_string(), "the firmware wants 86 pages, there are not enough");
    assert_eq!(pages.taken(), 69, "pages that the firmware did not get were put back");
    let early = queue.execute(&AllocPd, &mut rig.clock).unwrap_err();
    let CommandQueueError::Command(CommandError::Status { status, .. }) = early else { panic!("{early}") };
    assert_eq!(status, Status::BAD_SYSTEM_STATE);
    queue.stop(&mut pages, &mut rig.clock).unwrap();
    assert_eq!(pages.taken(), 0, "the firmware returns all pages");
}

#[test]
fn m64_pages_whose_answer_is_lost_may_be_the_device_s_and_come_back() {
    let mut rig = Rig::new();
    let mut queue = rig.queue();
    let mut pages = rig.pages(200);
    rig.behind(PAGES_DOORBELL, flip(PAGES_ENTRY + 0x20));
    let lost = CommandQueueError::Reply { command: Opcode::MANAGE_PAGES };
    assert_eq!(queue.start(&mut pages, &mut rig.clock), Err(lost));
    assert_eq!(pages.taken(), 1, "the device may own the page");
    assert_eq!(queue.stop(&mut pages, &mut rig.clock), Ok(()));
    assert_eq!(pages.taken(), 0);

    // If the device does not return its pages, `stop` asks for them for 5 seconds, and then disables the
    // device.
    rig.before(PAGES_DOORBELL, flip(PAGES_ENTRY + 0x17));
    let error = queue.start(&mut pages, &mut rig.clock).unwrap_err();
    assert_eq!(delivery(error), DeliveryStatus::SIGNATURE);
    rig.clock.0.set(0);
    assert_eq!(queue.stop(&mut pages, &mut rig.clock), Err(CommandQueueError::PagesKept { pages: 1 }));
    assert_eq!((rig.clock.0.get() / 1_000_000, pages.taken()), (5000, 1));
    assert_eq!(queue.start(&mut pages, &mut rig.clock), Ok(()));
}

#[test]
fn m64_a_device_whose_answer_is_bad_is_stopped_once() {
    let mut rig = Rig::new();
    let (mut queue, mut pages) = rig.started();
    rig.behind(ANY, flip(0x20));
    let bad = CommandQueueError::Reply { command: Opcode::TEARDOWN_HCA };
    assert_eq!(queue.stop(&mut pages, &mut rig.clock), Err(bad));
    assert_eq!(pages.taken(), 0, "the firmware owns no page, and the function is disabled");
    assert_eq!(queue.start(&mut pages, &mut rig.clock), Ok(()));
    assert_eq!(queue.stop(&mut pages, &mut rig.clock), Ok(()));
}

#[test]
fn m64_a_function_is_disabled_whatever_its_firmware_refuses() {
    // One changed byte is the opcode, which becomes invalid, so the device refuses the command. The other
    // byte changes by the same bits, so that the signature, an XOR over all bytes, stays valid.
    for (refused, doorbell, entry) in
        [(Opcode::TEARDOWN_HCA, 1, 0), (Opcode::MANAGE_PAGES, PAGES_DOORBELL, PAGES_ENTRY)]
    {
        let mut rig = Rig::new();
        let (mut queue, mut pages) = rig.started();
        rig.before(doorbell, move |bare, address| {
            [0x10, 0x1f].iter().for_each(|at| flip(entry + at)(bare, address));
        });
        let error = queue.stop(&mut pages, &mut rig.clock).unwrap_err();
        let CommandQueueError::Command(CommandError::Status { command, .. }) = error else {
            panic!("{error}")
        };
        assert_eq!(command, refused, "the first error");
        let last = u16::from_be_bytes(rig.bytes(0x10, 2).try_into().unwrap());
        assert_eq!(last, Opcode::DISABLE_HCA.0, "the last command, after {refused}");
        // The software device refuses to disable a running function and to enable an enabled one. After a
        // refused TEARDOWN_HCA the function still runs, and `stop` is called again.
        if refused == Opcode::TEARDOWN_HCA {
            assert_eq!((queue.stop(&mut pages, &mut rig.clock), pages.taken()), (Ok(()), 0));
        }
        assert_eq!(queue.execute(&EnableHca(Function::OWN), &mut rig.clock), Ok(()), "{refused}");
    }
}

#[test]
fn m64_a_function_is_not_disabled_while_a_command_is_undelivered() {
    let mut rig = Rig::new();
    let (mut queue, mut pages) = rig.started();
    for (doorbell, entry) in [(1, 0), (PAGES_DOORBELL, PAGES_ENTRY)] {
        rig.before(doorbell, flip(entry + 0x17));
        let error = queue.stop(&mut pages, &mut rig.clock).unwrap_err();
        assert_eq!((delivery(error), pages.taken()), (DeliveryStatus::SIGNATURE, 155));
        let again = queue.execute(&EnableHca(Function::OWN), &mut rig.clock);
        assert!(matches!(again, Err(CommandQueueError::Command(CommandError::Status { .. }))), "{again:?}");
    }
    assert_eq!((queue.stop(&mut pages, &mut rig.clock), pages.taken()), (Ok(()), 0));
    assert_eq!(queue.execute(&EnableHca(Function::OWN), &mut rig.clock), Ok(()));

    queue.start(&mut pages, &mut rig.clock).unwrap_err();
    queue.stop(&mut pages, &mut rig.clock).unwrap();
    queue.start(&mut pages, &mut rig.clock).unwrap();
    rig.faults.borrow_mut().deaf = true;
    let late = queue.stop(&mut pages, &mut rig.clock).unwrap_err();
    assert!(matches!(late, CommandQueueError::TimedOut { command: Opcode::TEARDOWN_HCA, .. }), "{late}");
    rig.faults.borrow_mut().deaf = false;
    assert_eq!(queue.stop(&mut pages, &mut rig.clock), Err(CommandQueueError::Lost));
}

#[test]
fn m64_pages_that_were_not_given_are_not_taken_back() {
    // The first page in the list of pages that the device returns is replaced: by a page that the firmware
    // never got, by an address inside a page, or by the second page, which is then returned twice.
    for other in [Some(0x1234_5000_u64), Some(0x1234_5678), None] {
        let mut rig = Rig::new();
        let mut queue = rig.try_queue(|config| config.verify_replies = false).unwrap();
        let first = rig.bare.borrow_mut().pages(5);
        // There are enough pages for booting only: the start fails before INIT_HCA, and `stop` first takes
        // the 5 boot pages back.
        let mut pages = Exact::new(first, 5);
        assert_eq!(queue.start(&mut pages, &mut rig.clock), Err(CommandQueueError::NoPages { wanted: 150 }));
        let told = Rc::new(Cell::new(0));
        let seen = told.clone();
        rig.behind(PAGES_DOORBELL, move |bare, address| {
            let second = u64::from_be_bytes(bare.read(address + BLOCKS + 8, 8).try_into().unwrap());
            seen.set(other.unwrap_or(second));
            bare.write(address + BLOCKS, &seen.get().to_be_bytes());
        });
        let error = queue.stop(&mut pages, &mut rig.clock);
        assert_eq!(error, Err(CommandQueueError::ForeignPage { address: told.get() }));
        assert_eq!((pages.pages.len(), pages.taken.len()), (4, 1), "the others are back");
        assert_eq!(queue.execute(&EnableHca(Function::OWN), &mut rig.clock), Ok(()), "it was disabled");
    }
}

/// A source of pages that records which pages are taken. It refuses to take back any other address.
struct Exact {
    pages: Vec<u64>,
    taken: Vec<u64>,
    /// The source once has no page: when it is asked for the page with this number, counted from 1. 0 means
    /// never.
    until_gap: u32,
}

impl Exact {
    /// Makes a source of `count` pages, which begin at this address.
    fn new(first: u64, count: u64) -> Self {
        Self { pages: (0..count).map(|page| first + page * 4096).collect(), taken: Vec::new(), until_gap: 0 }
    }
}

impl PageSource for Exact {
    fn take(&mut self) -> Option<u64> {
        self.until_gap = self.until_gap.wrapping_sub(1);
        let page = if self.until_gap == 0 { None } else { self.pages.pop() }?;
        self.taken.push(page);
        Some(page)
    }

    fn put_back(&mut self, address: u64) -> bool {
        let place = self.taken.iter().position(|page| *page == address);
        self.pages.extend(place.map(|place| self.taken.swap_remove(place)));
        place.is_some()
    }
}

#[test]
fn pages_that_a_source_has_after_a_gap_are_put_back() {
    let mut rig = Rig::new();
    let mut queue = rig.try_queue(|config| config.verify_replies = false).unwrap();
    let first = rig.bare.borrow_mut().pages(200);
    let mut pages = Exact { until_gap: 10, ..Exact::new(first, 200) };
    let error = queue.start(&mut pages, &mut rig.clock).unwrap_err();
    assert!(matches!(error, CommandQueueError::NoPages { .. }), "{error}");
    assert_eq!(pages.taken.len(), 5, "the pages for booting");
}

#[test]
fn a_page_at_address_0_is_refused_and_put_back() {
    let mut rig = Rig::new();
    let mut queue = rig.try_queue(|config| config.verify_replies = false).unwrap();
    let mut pages = Exact::new(rig.bare.borrow_mut().pages(4), 4);
    pages.pages.insert(0, 0);
    let error = queue.start(&mut pages, &mut rig.clock).unwrap_err();
    assert_eq!(error, CommandQueueError::Command(CommandError::PageAtZero));
    assert!(pages.pages.contains(&0) && !pages.taken.contains(&0));
}

#[test]
fn a_range_of_pages_takes_back_what_it_gave() {
    let mut bitmap = [u64::MAX; 1];
    let mut pages = PageRange::new(0x10_0000, 3, &mut bitmap).unwrap();
    assert!(!pages.put_back(0x10_0000), "no page was taken");
    assert_eq!([pages.take(), pages.take()], [Some(0x10_0000), Some(0x10_1000)]);
    for foreign in [0xf_f000, 0x10_2000, 0x10_3000, 0x10_0800, 0x14_0000, 0, u64::MAX, !0xfff] {
        assert!(!pages.put_back(foreign), "{foreign:#x}");
    }
    assert!(pages.put_back(0x10_0000) && !pages.put_back(0x10_0000), "only the first return succeeds");
    assert_eq!((pages.taken(), pages.take()), (1, Some(0x10_0000)), "a returned page can be taken again");
    assert_eq!([pages.take(), pages.take()], [Some(0x10_2000), None]);
    assert!(pages.put_back(0x10_1000) && pages.put_back(0x10_2000) && pages.put_back(0x10_0000));
    assert_eq!((pages.taken(), pages.take()), (0, Some(0x10_0000)), "all are back");
}

#[test]
fn a_range_of_pages_has_a_bit_for_each() {
    for (count, words) in [(0, 0), (1, 1), (64, 1), (65, 2), (128, 2)] {
        let mut bitmap = [0; 3];
        let mut pages = PageRange::new(4096, count, &mut bitmap[..words]).unwrap();
        let taken: Vec<_> = std::iter::from_fn(|| pages.take()).collect();
        assert!(taken.iter().copied().eq((1..=u64::from(count)).map(|page| page << 12)), "{taken:?}");
        let Some(short) = words.checked_sub(1) else { continue };
        let error = PageRange::new(4096, count, &mut bitmap[..short]).unwrap_err();
        assert_eq!(error, CommandError::BitmapTooShort { words: short, needed: words as u32 });
    }
}

/// Returns a command that loads a key into the device.
fn load(pd: Pdn, key: &[u8; 64]) -> CreateDek<'_> {
    let key = DekKey::Plain256 { key: XtsKey::new(key).unwrap(), keytag: None };
    CreateDek { pd, key, opaque: [0; 8] }
}

/// The memory of this process as a file, and a buffer for a copy of the stack below the stack pointer. This
/// part of the stack contains remains of functions that have returned.
#[cfg(target_os = "linux")]
struct Stack(std::fs::File, Vec<u8>);

#[cfg(target_os = "linux")]
impl Stack {
    /// Returns whether the stack below the stack pointer contains these bytes. The function makes few calls
    /// before it reads, because calls overwrite the remains.
    #[inline(never)]
    fn has(&mut self, bytes: &[u8]) -> bool {
        use std::os::unix::fs::FileExt;
        let here = 0_u8;
        let from = std::ptr::from_ref(&here).addr() - self.1.len();
        self.0.read_exact_at(&mut self.1, from as u64).unwrap();
        self.1.windows(bytes.len()).any(|window| window == bytes)
    }
}

#[cfg(target_os = "linux")]
#[test]
fn m66_a_key_leaves_nothing_on_the_stack() {
    // The key is on the heap, so that only the library copies it to the stack. The device receives no
    // doorbell (`deaf`), because its emulation would leave copies of the key.
    let key: Box<[u8; 64]> = Box::new(core::array::from_fn(|index| index as u8 | 0x80));
    let mut stack = Stack(std::fs::File::open("/proc/self/mem").unwrap(), vec![0; 256 << 10]);
    let mut rig = Rig::new();
    let mut queue = rig.try_queue(|config| config.timeout_ms = 1).unwrap();
    rig.faults.borrow_mut().deaf = true;
    let load = load(Pdn::new(1).unwrap(), &key);
    /// Fills the stack with zeros, deeper than the library's functions reach, and writes these bytes in
    /// between.
    #[inline(never)]
    fn fill(bytes: &[u8]) {
        let mut frame = [0; 128 << 10];
        frame[64 << 10..][..bytes.len()].copy_from_slice(bytes);
        std::hint::black_box(&frame);
    }
    fill(&key[..]);
    assert!(stack.has(&key[16..32]), "bytes that remain on the stack are found");
    fill(&[]);
    assert!(!stack.has(&key[16..32]));
    assert!(queue.execute(&load, &mut rig.clock).is_err());
    assert!(!stack.has(&key[16..32]));
}

#[cfg(target_os = "linux")]
#[test]
fn m66_a_key_leaves_nothing_in_the_software_device() {
    let mut scan = secrets::Scan::open();
    let mut rig = Rig::new();
    let (mut queue, _pages) = rig.started();
    let pd = queue.execute(&AllocPd, &mut rig.clock).unwrap();
    let mut key = Box::new([0; 64]);
    secrets::fill(&mut key[..]);
    let needles = secrets::Needle::of(&key[..]);
    assert!(!scan.find(&needles).is_empty(), "bytes in memory are found");
    let dek = queue.execute(&load(pd, &key), &mut rig.clock).unwrap();
    queue.execute(&DestroyDek(dek), &mut rig.clock).unwrap();
    // The refused command stands last, because a later command could overwrite the memory that it used, and
    // with it a remaining key.
    let nowhere = Pdn::new(0x12_3456).unwrap();
    assert!(queue.execute(&load(nowhere, &key), &mut rig.clock).is_err());
    wipe(&mut key[..]);
    scan.expect_gone(&needles);
}
