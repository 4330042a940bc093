//! The command queue: it writes a request into memory, rings the doorbell, and waits for the reply.

use super::memory::{BLOCKS_AT, CommandMemory, ENTRIES, is_block_signed, is_signed, sign_block, sign_entry};
use super::registers::{Register, Registers};
use crate::command::error::CommandError;
use crate::command::{Command, Function, wipe};
use crate::hca::error::CommandQueueError;
use crate::queue::{barrier, ring::Ring};
use crate::wire::prm::command::Opcode;
use crate::wire::prm::command_queue::{
    BLOCK_BYTES, CommandBlock, CommandEntry, DeliveryStatus, INLINE_BYTES, INTERFACE_REVISION, Initializing,
    QueueLow, StatusOwn,
};
use embedded_hal::delay::DelayNs;
use zerocopy::{FromZeros, IntoBytes, transmute};

/// The configuration of a command queue.
///
/// ```
/// use mlx5_mkey::hca::CommandQueueConfig;
/// let config = CommandQueueConfig { timeout_ms: 1000, ..CommandQueueConfig::new(0x8000_0000) };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CommandQueueConfig {
    /// The bus address of the queue's memory, a multiple of 4096.
    pub address: u64,
    /// How long the queue waits for the reply to a command, in milliseconds; Linux waits for 60 seconds.
    pub timeout_ms: u32,
    /// How long the queue waits for the firmware to become ready, in milliseconds; Linux waits for two
    /// minutes.
    pub ready_ms: u32,
    /// Whether a wrong token, block number or signature in a reply is an error. Set it only for a device that
    /// signs replies. The drivers of Linux and rdma-core switch signatures off (`cmdif_checksum`). The queue
    /// signs requests in any case.
    pub verify_replies: bool,
}

impl CommandQueueConfig {
    /// Returns a configuration with Linux's time-outs. The queue then accepts replies without checking their
    /// tokens, block numbers and signatures.
    pub const fn new(address: u64) -> Self {
        Self { address, timeout_ms: 60_000, ready_ms: 120_000, verify_replies: false }
    }
}

/// The pause between two reads of an entry while the queue waits for a reply, in microseconds (`POLL_US`),
/// and between two reads of a register while it waits until the firmware is ready, in milliseconds
/// (`READY_MS`).
const POLL_US: u32 = 10;
const READY_MS: u32 = 2;

/// The number of pages that the firmware has for a PCI function, or may have because it did not confirm their
/// receipt.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) function: Function,
    pub(super) pages: u32,
}

/// A device's command queue. It sends one command at a time, and waits for the reply.
///
/// If the device does not answer a command in time, it may still write the reply later, so another command
/// must not use the same memory. After [`CommandQueueError::TimedOut`], the queue therefore refuses further
/// commands ([`CommandQueueError::Lost`]). A new queue is possible only after a reset of the PCI function.
///
/// ```
/// use embedded_hal::delay::DelayNs;
/// use mlx5_mkey::command::{GeneralCapabilities, QueryGeneralCapabilities};
/// use mlx5_mkey::error::CommandQueueError;
/// use mlx5_mkey::hca::{CommandMemory, CommandQueue, CommandQueueConfig, MappedRegisters};
/// /// Queries a device that was started before, and whose function was not reset since.
/// fn ask(
///     registers: MappedRegisters,
///     (memory, address): (&mut CommandMemory<16>, u64),
///     delay: &mut impl DelayNs,
/// ) -> Result<GeneralCapabilities, CommandQueueError> {
///     let mut commands = CommandQueue::new(registers, memory, CommandQueueConfig::new(address), delay)?;
///     commands.execute(&QueryGeneralCapabilities, delay)
/// }
/// ```
pub struct CommandQueue<'m, R> {
    registers: R,
    entries: Ring<'m, CommandEntry>,
    blocks: Ring<'m, CommandBlock>,
    config: CommandQueueConfig,
    log_size: u8,
    log_stride: u8,
    token: u8,
    is_lost: bool,
    pub(super) function: Function,
    /// The pages that the firmware holds for up to two PCI functions: the function that its reply to
    /// QUERY_PAGES named in the boot phase, and the one in the init phase.
    pub(super) held: [Held; 2],
    /// Whether the device runs: it has answered INIT_HCA without refusing it, and no TEARDOWN_HCA or
    /// DISABLE_HCA has stopped the device since.
    pub(super) is_running: bool,
}

crate::fmt::format_counters!(['m, R] CommandQueue ['m, R] { token });

impl<'m, R: Registers> CommandQueue<'m, R> {
    /// Creates a command queue: waits until the firmware is ready, and gives it the address of the queue.
    ///
    /// # Errors
    /// [`CommandError::Misaligned`] if the address is no multiple of 4096, or if the memory would reach the
    /// end of the address space; [`CommandQueueError::Queue`] if `BLOCKS` is no power of two. After these
    /// errors, the device was not accessed. [`CommandQueueError::NotReady`], [`CommandQueueError::Revision`]
    /// or [`CommandQueueError::Layout`] if the device does not meet the requirements. After these errors, no
    /// register was written.
    pub fn new<const BLOCKS: usize>(
        mut registers: R,
        memory: &'m mut CommandMemory<BLOCKS>,
        config: CommandQueueConfig,
        delay: &mut impl DelayNs,
    ) -> Result<Self, CommandQueueError> {
        let ends = config.address.checked_add(size_of::<CommandMemory<BLOCKS>>() as u64);
        if !config.address.is_multiple_of(BLOCKS_AT) || ends.is_none() {
            let what = "command queue";
            return Err(
                CommandError::Misaligned { what, address: config.address, alignment: BLOCKS_AT }.into()
            );
        }
        let CommandMemory { entries, blocks } = memory;
        entries.fill(CommandEntry::ZERO);
        let (entries, blocks) = (
            Ring::new(entries, "entries of a command queue", ENTRIES)?,
            Ring::new(blocks, "mailbox blocks of a command queue", 1 << 16)?,
        );

        let state = wait_ready(&mut registers, config.ready_ms, delay)?;
        let revision = (registers.read(Register::InterfaceRevision) >> 16) as u16;
        if revision != INTERFACE_REVISION {
            return Err(CommandQueueError::Revision { found: revision, known: INTERFACE_REVISION });
        }
        let low = QueueLow::from_bits(registers.read(Register::QueueLow));
        let (log_size, log_stride) = (low.log_size(), low.log_stride());
        // The library needs entries of at least 64 bytes, all in one page, and a doorbell bit for each entry.
        // The doorbell has 32 bits.
        if log_stride < 6 || log_size.saturating_add(log_stride) > 12 || log_size > 5 {
            return Err(CommandQueueError::Layout { log_size, log_stride });
        }
        registers.write(Register::QueueHigh, (config.address >> 32) as u32);
        registers.write(Register::QueueLow, config.address as u32);
        // These stores need no barrier here: before the doorbell of the first command there is a barrier,
        // which waits for all earlier stores.
        let function = Function { embedded_cpu: state.embedded_cpu(), ..Function::OWN };
        Ok(Self {
            registers,
            entries,
            blocks,
            config,
            log_size,
            log_stride,
            token: 0,
            is_lost: false,
            function,
            held: [Held::default(); 2],
            is_running: false,
        })
    }

    /// Returns the PCI function that the queue belongs to.
    pub const fn function(&self) -> Function {
        self.function
    }

    /// Executes a command on the device, and returns the values of its reply. This call keeps request and
    /// reply on the stack, where they take up to 9 KiB for commands of this library.
    ///
    /// # Errors
    /// [`CommandError::MailboxTooShort`] for a command with a list, which [`CommandQueue::execute_in`] can
    /// execute. [`CommandQueueError::Command`] for a request that cannot be encoded, or that the device
    /// refuses; [`CommandQueueError::TooManyBlocks`] if request or reply do not fit into the queue's memory.
    /// After these errors, the device has changed nothing, with one exception: if a reply has invalid values
    /// (also [`CommandQueueError::Command`]), the device has carried out the command.
    ///
    /// [`CommandQueueError::Delivery`] if the device could not read the request, or could not write the
    /// reply; [`CommandQueueError::Reply`] if the reply has a wrong signature or token;
    /// [`CommandQueueError::TimedOut`] if no reply came in time. After these errors, the device may or may
    /// not have carried out the command. After [`CommandQueueError::TimedOut`], the queue sends no further
    /// command, and further calls return [`CommandQueueError::Lost`].
    pub fn execute<C: Command>(
        &mut self,
        command: &C,
        delay: &mut impl DelayNs,
    ) -> Result<C::Reply, CommandQueueError> {
        let mut input = C::Input::new_zeroed();
        self.execute_in(command, input.as_mut_bytes(), delay)
    }

    /// Executes a command like [`CommandQueue::execute`], but encodes the request into `mailbox`, which needs
    /// at least [`Command::input_bytes`] bytes. The function is meant for commands with a list, such as
    /// [`CreateListMkey`](crate::command::CreateListMkey).
    ///
    /// # Errors
    /// [`CommandError::MailboxTooShort`] if `mailbox` is too short, and the other errors of
    /// [`CommandQueue::execute`].
    pub fn execute_in<C: Command>(
        &mut self,
        command: &C,
        mailbox: &mut [u8],
        delay: &mut impl DelayNs,
    ) -> Result<C::Reply, CommandQueueError> {
        let mut output = C::Output::new_zeroed();
        let request = command.encode(mailbox)?;
        self.carry(C::OPCODE, &request, output.as_mut_bytes(), request.is_secret(), &mut |us| {
            delay.delay_us(us);
        })?;
        drop(request);
        Ok(command.decode(output.as_bytes())?)
    }

    /// Sends the bytes of a request to the device, waits, and copies the bytes of the reply into `reply`.
    fn carry(
        &mut self,
        command: Opcode,
        request: &[u8],
        reply: &mut [u8],
        is_secret: bool,
        delay: &mut dyn FnMut(u32),
    ) -> Result<(), CommandQueueError> {
        if self.is_lost {
            return Err(CommandQueueError::Lost);
        }
        let (inputs, outputs) = (blocks_of(request.len()), blocks_of(reply.len()));
        let (needed, blocks) = (inputs.saturating_add(outputs), u64::from(self.blocks.len()));
        if needed > blocks {
            return Err(CommandQueueError::TooManyBlocks {
                command,
                needed: needed as u32,
                blocks: blocks as u32,
            });
        }
        // Consecutive commands have different tokens. If the queue verifies replies, `take_reply` refuses a
        // reply with another token. The token is never 0, as in Linux.
        self.token = self.token.checked_add(1).unwrap_or(1);

        let (begin, rest) = request.split_at_checked(INLINE_BYTES).unwrap_or((request, &[]));
        self.lay_chain(0, inputs, rest);
        self.lay_chain(inputs, outputs, &[]);
        let mut entry =
            CommandEntry { entry_type: CommandEntry::PCI, token: self.token, ..CommandEntry::ZERO };
        entry.input.iter_mut().zip(begin).for_each(|(to, from)| *to = *from);
        entry.input_length.set(request.len() as u32);
        entry.output_length.set(reply.len() as u32);
        entry.input_mailbox.set(self.address_of(0, inputs));
        entry.output_mailbox.set(self.address_of(inputs, needed));
        entry.status_own = StatusOwn::new().with_hardware(true).into_bits();
        sign_entry(&mut entry);
        let slot = self.slot(command);
        let place = slot.wrapping_shl(self.log_stride.into()) / size_of::<CommandEntry>() as u64;
        self.entries.write(place, entry);
        ring_command(slot, &mut self.registers);

        let answered = self.wait(place, delay);
        if is_secret {
            self.wipe(place, inputs);
        }
        let Some(entry) = answered else {
            self.is_lost = true;
            return Err(CommandQueueError::TimedOut { command, milliseconds: self.config.timeout_ms });
        };
        let status = DeliveryStatus(StatusOwn::from_bits(entry.status_own).status());
        if status != DeliveryStatus::OK {
            return Err(CommandQueueError::Delivery { command, status });
        }
        let is_good = self.take_reply(&entry, inputs, outputs, reply);
        if is_good { Ok(()) } else { Err(CommandQueueError::Reply { command }) }
    }

    /// Returns the number of the entry for a command. MANAGE_PAGES uses the last entry, because the firmware
    /// may need pages to finish another command, which occupies the first entry (as in Linux and rdma-core).
    /// All other commands use the first entry.
    fn slot(&self, command: Opcode) -> u64 {
        if command == Opcode::MANAGE_PAGES { !(u64::MAX.wrapping_shl(self.log_size.into())) } else { 0 }
    }

    /// Returns the bus address of the mailbox block with the number `block`, for a link to this block.
    /// Returns 0, which marks the end of a chain, if `block` is `end`.
    fn address_of(&self, block: u64, end: u64) -> u64 {
        if block == end {
            return 0;
        }
        // `new` has checked that the memory ends before 2^64.
        let distance = BLOCKS_AT.wrapping_add(block.wrapping_mul(size_of::<CommandBlock>() as u64));
        self.config.address.wrapping_add(distance)
    }

    /// Writes `bytes` into a chain of `count` mailbox blocks, beginning with the block number `first`.
    fn lay_chain(&mut self, first: u64, count: u64, bytes: &[u8]) {
        let mut chunks = bytes.chunks(BLOCK_BYTES);
        for number in 0..count {
            let mut block = CommandBlock { token: self.token, ..CommandBlock::ZERO };
            let chunk = chunks.next().unwrap_or_default();
            block.data.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            block.block_number.set(number as u32);
            let place = first.wrapping_add(number);
            block.next.set(self.address_of(place.wrapping_add(1), first.wrapping_add(count)));
            sign_block(&mut block);
            self.blocks.write_from(place, &block);
            // This copy of the block on the stack may hold a secret of the request, so it is overwritten.
            wipe(&mut block.data);
        }
    }

    /// Waits until the device has finished the command in an entry, and returns the entry. (The device clears
    /// the entry's ownership bit when the command is finished.) Returns `None` when the time is over.
    fn wait(&self, place: u64, delay: &mut dyn FnMut(u32)) -> Option<CommandEntry> {
        let looks = u64::from(self.config.timeout_ms) * 1000 / u64::from(POLL_US);
        for _ in 0..looks {
            if let Some(entry) = finished_entry(&self.entries, place) {
                return Some(entry);
            }
            delay(POLL_US);
        }
        finished_entry(&self.entries, place)
    }

    /// Overwrites the bytes of a request with zeros, in its entry and in its `inputs` mailbox blocks.
    fn wipe(&mut self, place: u64, inputs: u64) {
        self.entries.wipe(place);
        (0..inputs).for_each(|block| self.blocks.wipe(block));
    }

    /// Copies a reply into `reply`: the beginning from the entry, the rest from `count` mailbox blocks,
    /// beginning with the block number `first`. Returns false if tokens, block numbers or signatures are
    /// wrong and the queue verifies replies.
    fn take_reply(&self, entry: &CommandEntry, first: u64, count: u64, reply: &mut [u8]) -> bool {
        let copy = |to: &mut [u8], from: &[u8]| to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        let mut is_good = is_signed(entry) && entry.token == self.token;
        copy(reply, &entry.output);
        let mut chunks = reply.get_mut(INLINE_BYTES..).unwrap_or_default().chunks_mut(BLOCK_BYTES);
        for number in 0..count {
            let block = self.blocks.read(first.wrapping_add(number));
            let numbered = u64::from(block.block_number.get()) == number;
            is_good &= is_block_signed(&block) && block.token == self.token && numbered;
            copy(chunks.next().unwrap_or_default(), &block.data);
        }
        is_good || !self.config.verify_replies
    }
}

/// Returns how many mailbox blocks a request or a reply of `length` bytes takes.
const fn blocks_of(length: usize) -> u64 {
    length.saturating_sub(INLINE_BYTES).div_ceil(BLOCK_BYTES) as u64
}

/// Rings the doorbell for the entry with number `slot`.
#[inline(never)]
fn ring_command(slot: u64, registers: &mut impl Registers) {
    barrier::record_before_doorbell();
    registers.write(Register::Doorbell, 1_u32.wrapping_shl(slot as u32));
    barrier::flush_doorbell();
}

/// Returns an entry if the device has finished its command, or `None` while the entry belongs to the device.
#[inline(never)]
fn finished_entry(entries: &Ring<'_, CommandEntry>, place: u64) -> Option<CommandEntry> {
    let slot = entries.peek(place);
    let last = slot.read_u64::<56>();
    let [.., status_own] = last;
    if StatusOwn::from_bits(status_own).hardware() {
        return None;
    }
    barrier::owner_before_entry();
    let words = [
        slot.read_u64::<0>(),
        slot.read_u64::<8>(),
        slot.read_u64::<16>(),
        slot.read_u64::<24>(),
        slot.read_u64::<32>(),
        slot.read_u64::<40>(),
        slot.read_u64::<48>(),
        last,
    ];
    Some(transmute!(words))
}

/// Waits until the firmware is ready, and returns the state that it reports.
fn wait_ready(
    registers: &mut impl Registers,
    milliseconds: u32,
    delay: &mut impl DelayNs,
) -> Result<Initializing, CommandQueueError> {
    let mut waited = 0;
    loop {
        let state = Initializing::from_bits(registers.read(Register::Initializing));
        if !state.initializing() {
            return Ok(state);
        }
        if waited >= milliseconds {
            return Err(CommandQueueError::NotReady { milliseconds });
        }
        delay.delay_ms(READY_MS);
        waited = waited.saturating_add(READY_MS);
    }
}
