//! A device without a driver: the library alone takes the device from reset to its first signed and encrypted
//! RDMA WRITE.

use super::scenario::{Scenario, scenario};
use crate::board::{Bare, BareRings, Board};
use crate::expected;
use crate::qp_pair::{Verdict, text};
use crate::way::Way;
use crate::{ensure, ensure_eq};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use embedded_hal::delay::DelayNs;
use mlx5_mkey::command::{
    AckTimeout, AllocPd, AllocUar, Command, CqSize, CreateCqOnPages, CreateDek, CreateEq, CreateListMkey,
    CreateMkey, CreatePhysicalRegion, CreatePsv, CreateQpOnPages, DekKey, EntryCount, EqSize, Eqn,
    GeneralCapabilities, Init2Rtr, LogAckInterval, LogMaxRdAtomic, LogMessage, LogPageSize, MkeyEntries,
    MkeyFeatures, PageList, Path, PathMtu, Pdn, Psn, QpAccess, QueryGeneralCapabilities, Retries, RnrTimer,
    Rst2Init, Rtr2Rts, SendRingSize, TimestampFormat, UarPage, UserIndex, XtsKey,
};
use mlx5_mkey::error::{CommandError, CommandQueueError};
use mlx5_mkey::hca::{CommandQueue, CommandQueueConfig, PageRange, Register, Registers};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, Escape, Guard, Keytag, KlmEntry, Mkey, MkeyConfig,
    Signature, SignatureChange, SignatureOrder, T10Dif,
};
use mlx5_mkey::queue::{
    Completion, CompletionQueue, Doorbell, Outcome, QpRouter, SendQueue, SendQueueConfig, SendSlot,
    SharedSendQueue,
};
use mlx5_mkey::types::{BlockSize, DekId, Qpn, Seed, Tweak};
use mlx5_mkey::wire::prm::command::Status;
use mlx5_mkey::wire::prm::event::EventEntry;
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use zerocopy::IntoBytes;

pub(super) const ALL: &[Scenario] = &[scenario!(m64_a_bare_machine_brings_its_device_up, BARE, ["M64"])];

/// The length of the data in memory (`DATA`) and on the wire (`WIRE`). On the wire, each block of 512 bytes
/// is followed by 8 bytes of T10-DIF.
const DATA: usize = 1024;
const WIRE: usize = 1040;

/// The most 4 KiB pages of memory that the device may get for its firmware.
const FIRMWARE: u32 = 200;

/// The registers of any board, wrapped in one type: the command queue has the type of its registers as a
/// parameter.
struct Window(Box<dyn Registers>);

impl Registers for Window {
    fn read(&mut self, register: Register) -> u32 {
        self.0.read(register)
    }

    fn write(&mut self, register: Register, value: u32) {
        self.0.write(register, value);
    }
}

/// The delay of any board, wrapped in one type: the library's functions take a sized type.
struct Pause(Box<dyn DelayNs>);

impl DelayNs for Pause {
    fn delay_ns(&mut self, time: u32) {
        self.0.delay_ns(time);
    }
}

/// The command queue of a device, and the delay between polls for replies.
struct Machine {
    commands: CommandQueue<'static, Window>,
    delay: Pause,
}

impl Machine {
    fn try_execute<C: Command>(&mut self, command: &C) -> Result<C::Reply, CommandQueueError> {
        self.commands.execute(command, &mut self.delay)
    }

    fn execute<C: Command>(&mut self, command: &C) -> Result<C::Reply, String> {
        self.try_execute(command).map_err(text)
    }
}

/// A device in reset is brought up without a driver: from registers and firmware pages to queue pairs that
/// transfer data, and back to reset.
fn m64_a_bare_machine_brings_its_device_up(board: &mut dyn Board) -> Verdict {
    let way = *board.way();
    let mut bare = board.bare().ok_or("the board has no device in reset")?;
    let (registers, mut delay) = (Window(bare.registers()), Pause(bare.delay()));
    let (memory, address) = bare.command_memory();
    let mut bitmap = [0; FIRMWARE.div_ceil(64) as usize];
    let mut pages = PageRange::new(bare.pages(FIRMWARE), FIRMWARE, &mut bitmap).map_err(text)?;
    let config = CommandQueueConfig { verify_replies: true, ..CommandQueueConfig::new(address) };
    let commands = CommandQueue::new(registers, memory, config, &mut delay).map_err(text)?;
    let mut machine = Machine { commands, delay };

    // Before the start of its firmware, a device refuses commands that create objects.
    let early = machine.try_execute(&AllocPd);
    let is_refused = matches!(
        early,
        Err(CommandQueueError::Command(CommandError::Status { status: Status::BAD_SYSTEM_STATE, .. }))
    );
    ensure!(is_refused, "an object in reset: {early:?}");
    machine.commands.start(&mut pages, &mut machine.delay).map_err(text)?;
    ensure!(pages.taken() > 64, "the firmware has {} pages, which is no list", pages.taken());
    write(&mut machine, &mut *bare, way)?;
    machine.commands.stop(&mut pages, &mut machine.delay).map_err(text)?;
    ensure_eq!(pages.taken(), 0, "pages that the firmware keeps");
    let late = machine.try_execute(&AllocPd);
    ensure!(late.is_err(), "an object of a device that was stopped");

    // The device starts a second time, and gets the pages again that it has returned.
    machine.commands.start(&mut pages, &mut machine.delay).map_err(text)?;
    write(&mut machine, &mut *bare, way)
}

/// Creates all objects, RDMA WRITEs data to the peer out of an mkey with T10-DIF and AES-XTS, and checks the
/// bytes at the peer.
fn write(machine: &mut Machine, bare: &mut dyn Bare, way: Way) -> Verdict {
    let capabilities = machine.execute(&QueryGeneralCapabilities)?;
    let pd = machine.execute(&AllocPd)?;
    let uar = machine.execute(&AllocUar)?;
    let event_queue = events(machine, bare, uar)?;
    let place = Place { pd, uar, event_queue };
    let (mut near, far) = (place.end(machine, bare.rings())?, place.end(machine, bare.rings())?);
    for (one, other) in [(near.qpn, far.qpn), (far.qpn, near.qpn)] {
        connect(machine, one, other, &capabilities)?;
    }
    let all = machine.execute(&CreatePhysicalRegion {
        pd,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        tag: 0x17,
    })?;
    let key: [u8; 64] = core::array::from_fn(|index| (index * 7 + 1) as u8);
    let dek = {
        let key = DekKey::Plain256 { key: XtsKey::new(&key).map_err(text)?, keytag: None };
        machine.execute(&CreateDek { pd, key, opaque: *b"bare.dek" })?
    };
    let features = MkeyFeatures { block_signature: true, crypto: true, ..MkeyFeatures::default() };
    let command = CreateMkey { pd, max_entries: EntryCount::new(4).map_err(text)?, features, tag: 0 };
    let psvs = machine.execute(&CreatePsv::<2>::new(pd))?;
    let mkey = machine.execute(&command)?;
    let mut mkey = Mkey::new(command.attributes(mkey, &capabilities, psvs).map_err(text)?);

    let (source, target) = (bare.pages(1), bare.pages(1));
    let data: Vec<u8> = (0..DATA).map(|index| (index * 3) as u8).collect();
    bare.write(source, &data);
    let config = configuration(dek.dek_id());
    let prepared = way.prepare(mkey.kind(), &config).map_err(text)?;
    let entries = [(0, 300_u32), (300, DATA as u32 - 300)].map(|(at, length)| KlmEntry {
        address: source + at,
        length,
        key: all,
    });
    let mut doorbell = bare.doorbell(uar);
    // The RDMA WRITE goes to an mkey over two ranges of the peer's memory. The command CREATE_MKEY itself
    // contains the list of ranges.
    let ranges = [(0, 100_u32), (100, WIRE as u32 - 100)].map(|(at, length)| KlmEntry {
        address: target + at,
        length,
        key: all,
    });
    let remote = {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let command = CreateListMkey::new(pd, access, 0x7000, MkeyEntries::Klm(&ranges), &capabilities);
        let command = command.map_err(text)?;
        let mut mailbox = [0; CreateListMkey::INPUT + 64];
        let key = machine.commands.execute_in(&command, &mut mailbox, &mut machine.delay).map_err(text)?;
        Remote { address: 0x7000, rkey: key }
    };
    near.post(way, &mut *doorbell, &mut mkey, &prepared, &entries, remote)?;

    let SignatureChange::Set(signature) = &config.signature else { return Err("no signature".into()) };
    let crypto = config.crypto.as_ref().ok_or("no crypto")?;
    let wire = expected::images(&data, Some(signature), Some((crypto, &key))).wire;
    ensure_eq!(wire.len(), WIRE, "bytes on the wire");
    ensure!(bare.read(target, WIRE) == wire, "the write left other bytes than T10-DIF inside AES-XTS");
    Ok(())
}

/// Returns a configuration with T10-DIF on the wire. AES-XTS encrypts both data and T10-DIF.
fn configuration(dek: DekId) -> MkeyConfig {
    let dif = T10Dif {
        guard: Guard::Crc,
        seed: Seed::Zeros,
        app_tag: 0xf11e,
        ref_tag: 0x1000,
        ref_remap: true,
        escape: Escape::Never,
    };
    let domain = Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 };
    let crypto = Crypto {
        direction: Direction::EncryptOnTx,
        order: SignatureOrder::BeforeCryptoOnTx,
        data_unit: BlockSize::B520,
        tweak: Tweak::from_lba(0x1000),
        dek,
        keytag: Keytag::default(),
    };
    MkeyConfig {
        access: Some(Access::LOCAL_WRITE),
        signature: SignatureChange::Set(BlockSignature::wire(domain)),
        crypto: Some(crypto),
    }
}

/// Creates an event queue, because CREATE_CQ requires one. Nobody reads its events.
fn events(machine: &mut Machine, bare: &mut dyn Bare, uar: UarPage) -> Result<Eqn, String> {
    let size = EqSize::new(64).map_err(text)?;
    let address = bare.pages(1);
    bare.write(address, [EventEntry::UNWRITTEN; 64].as_bytes());
    let entries = page(address)?;
    machine.execute(&CreateEq { size, uar, events: 0, interrupt: 0, entries })
}

/// Returns the page list of a ring that fills one page.
fn page(address: u64) -> Result<PageList<1>, String> {
    PageList::new(LogPageSize::P4K, [address]).map_err(text)
}

/// The objects with which queue pairs and completion queues are created.
struct Place {
    pd: Pdn,
    uar: UarPage,
    event_queue: Eqn,
}

/// A queue pair with a send queue, and its completion queue.
struct End {
    qpn: Qpn,
    rings: BareRings,
}

impl Place {
    fn end(&self, machine: &mut Machine, rings: BareRings) -> Result<End, String> {
        let cq = machine.execute(&CreateCqOnPages {
            size: CqSize::new(rings.entries.0.len() as u32).map_err(text)?,
            uar: self.uar,
            event_queue: self.event_queue,
            entries: page(rings.entries.1)?,
            doorbell: rings.cq_record.1,
            ignore_overrun: false,
        })?;
        let qpn = machine.execute(&CreateQpOnPages {
            pd: self.pd,
            uar: self.uar,
            send_cq: cq,
            receive_cq: cq,
            user_index: UserIndex::default(),
            send_ring: SendRingSize::new(rings.blocks.0.len() as u32).map_err(text)?,
            receive_ring: None,
            rings: page(rings.blocks.1)?,
            doorbell: rings.record.1,
            timestamps: TimestampFormat::DeviceDefault,
        })?;
        Ok(End { qpn, rings })
    }
}

/// Takes a queue pair from reset to ready-to-send (RST2INIT, INIT2RTR, RTR2RTS), within the capabilities of
/// the device.
fn connect(machine: &mut Machine, qp: Qpn, remote_qp: Qpn, device: &GeneralCapabilities) -> Verdict {
    let [log_max_in, log_max_out] = [device.log_max_reads_in, device.log_max_reads_out].map(|log| {
        LogMaxRdAtomic::new(log).map_or(LogMaxRdAtomic::SIXTEEN, |log| log.min(LogMaxRdAtomic::SIXTEEN))
    });
    machine.execute(&Rst2Init { qp, port: 1, pkey_index: 0, access: QpAccess::READ_WRITE })?;
    machine.execute(&Init2Rtr {
        qp,
        remote_qp,
        path: Path::Loopback,
        port: 1,
        mtu: PathMtu::B4096,
        log_max_message: LogMessage::new(device.log_max_message).map_err(text)?,
        first_psn: Psn::default(),
        log_max_rd_atomic: log_max_in,
        rnr_timer: RnrTimer::US_640,
    })?;
    machine.execute(&Rtr2Rts {
        qp,
        first_psn: Psn::default(),
        log_max_rd_atomic: log_max_out,
        ack_timeout: AckTimeout::MS_67,
        retries: Retries::MAX,
        rnr_retries: Retries::MAX,
        log_ack_interval: LogAckInterval::PACKETS_256,
    })
}

impl End {
    /// Configures the mkey, RDMA WRITEs all its data to the peer, and takes the completion of the write.
    fn post(
        &mut self,
        way: Way,
        doorbell: &mut dyn Doorbell,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        entries: &[KlmEntry],
        remote: Remote,
    ) -> Verdict {
        let BareRings { blocks, record, entries: completions, cq_record } = &mut self.rings;
        let config = SendQueueConfig::new(self.qpn);
        let mut slots = SendSlot::array::<64>();
        let queue = SendQueue::new(config, blocks.0, &mut slots, record.0, doorbell).map_err(text)?;
        let mut completions = CompletionQueue::new(completions.0, cq_record.0).map_err(text)?;
        let all = Sge { address: 0, length: WIRE as u32, lkey: mkey.key() };
        // The queue is wrapped in `SharedSendQueue`, which several cores would share, so that a scenario
        // tests this type. One doorbell at the end publishes all requests.
        let shared = SharedSendQueue::new(queue);
        let posted = shared.with(|queue| {
            let mut poster = way.open(queue);
            poster.request(1).configure_mkey(mkey, prepared, entries)?;
            poster.request(2).signaled().rdma_write(remote, &[all])
        });
        posted.map_err(text)?;
        let mut queue = shared.into_inner();
        let mut router = QpRouter { queues: &mut queue, mkeys: core::slice::from_mut(mkey) };
        match completions.poll(&mut router) {
            Some(Ok(Completion::Work(work)))
                if work.id == 2 && !matches!(work.outcome, Outcome::Failed(_)) =>
            {
                Ok(())
            }
            other => Err(format!("the write completed as {other:?}")),
        }
    }
}
