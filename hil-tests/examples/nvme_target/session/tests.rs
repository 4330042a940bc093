//! Tests of sessions with a host that is not Linux. The host sends commands to sessions on the software
//! device, through libmlx5 and the stand-in for the kernel.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::volume::Geometry;
use mlx5_mkey::command::QpAccess;
use mlx5_mkey::devx::ConnectOptions;
use mlx5_mkey::types::BlockSize;
use mlx5_testing::preload::{Side::Inside, preloaded};
use std::fs;
use std::thread::JoinHandle;

const NAME: &str = "nqn.2026-11.test:mkey";
const GEOMETRY: Geometry = Geometry { blocks: 64, block_size: BlockSize::B512 };
const CHECKED: u32 = 1 << 28 | 1 << 26;
const INSERTED: u32 = 1 << 29;
/// Where responses arrive in the host's memory. Commands are at 0, data at [`DATA`].
const RESPONSES: usize = 1024;
const DATA: usize = 4096;

/// A queue of a host.
struct Host {
    queue: QueuePair,
    completions: CqReader,
    memory: Buffer,
    session: JoinHandle<Result>,
}

impl Host {
    /// Connects a queue of this number to a new session.
    fn new(shared: &(Device, ProtectionDomain, Arc<Subsystem>, Arc<Volume>), number: u16) -> Self {
        let (device, pd, subsystem, volume) = shared;
        let (cq, completions) = device.create_cq(CqSpec::entries_for(1, 64, 16, 0)).unwrap();
        let spec = QueuePairSpec { access: QpAccess::READ_WRITE, ..QueuePairSpec::default() };
        let queue = device.create_qp(pd, &cq, &cq, spec).unwrap();
        let options = ConnectOptions::default();
        let path = Path { peer: queue.control().address(&options).unwrap(), options };
        let request = [0, number, 32, 31].map(u16::to_le_bytes).concat();
        let request = Request::read(&request, DEPTH).unwrap();
        let mut session = Session::new((device, pd), (subsystem, volume), request, &path).unwrap();
        queue.control().connect(&session.queue.control().address(&options).unwrap(), &options).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let memory = pd.alloc_buffer(65536, access).unwrap();
        let session = std::thread::spawn(move || session.serve(&AtomicBool::new(false)));
        Self { queue, completions, memory, session }
    }

    /// Sends a command with memory of this length at `DATA`.
    fn send(&mut self, opcode: u8, length: usize, words: &[u32]) {
        let mut command = vec![0; COMMAND];
        let mut put = |at: usize, bytes: &[u8]| {
            command.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = *byte);
        };
        put(0, &[opcode, 0x40, 7, 0, 1]);
        put(24, &(self.memory.address() + DATA as u64).to_le_bytes());
        put(32, &(length as u32).to_le_bytes());
        put(35, &self.memory.rkey().get().to_le_bytes());
        put(39, &[0x40]);
        words.iter().enumerate().for_each(|(index, word)| put(40 + 4 * index, &word.to_le_bytes()));
        self.send_bytes(&command);
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.memory.write(0, bytes).unwrap();
        let response = self.memory.sge(RESPONSES..RESPONSES + size_of::<Response>()).unwrap();
        self.queue.post_receive(0, &[response]).unwrap();
        self.queue.publish_receives();
        let sge = self.memory.sge(0..bytes.len()).unwrap();
        self.queue.batch().request(1).signaled().send(&[sge]).unwrap();
    }

    /// Waits for a response, and returns its status and result.
    fn response(&mut self) -> (u16, u64) {
        loop {
            let completion = self.completions.wait(&mut self.queue, Some(Duration::from_secs(60)));
            let Completion::Work(work) = completion.unwrap().unwrap() else { continue };
            assert!(!matches!(work.outcome, Outcome::Failed(_)), "{work:?}");
            if let Outcome::Received { .. } = work.outcome {
                break;
            }
        }
        let mut bytes = [0; size_of::<Response>()];
        self.memory.read(RESPONSES, &mut bytes).unwrap();
        let response = Response::read_from_bytes(&bytes).unwrap();
        assert_eq!(response.id, 7);
        (response.status.get(), response.result.get())
    }

    fn run(&mut self, opcode: u8, length: usize, words: &[u32]) -> u16 {
        self.send(opcode, length, words);
        self.response().0
    }

    /// Sends Connect for a controller. Returns the number of the controller.
    fn connect(&mut self, number: u32, controller: u16) -> u64 {
        let mut data = [0; size_of::<ConnectData>()];
        let (head, name) = data.split_at_mut(256);
        head.iter_mut().skip(16).zip(controller.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        name.iter_mut().zip(NAME.bytes()).for_each(|(place, byte)| *place = byte);
        self.memory.write(DATA, &data).unwrap();
        self.send(Command::FABRICS, data.len(), &[number << 16, 31]);
        let (status, controller) = self.response();
        assert_eq!(status, 0);
        controller
    }
}

#[test]
fn a_host_reads_and_writes_blocks_with_protection() {
    let Inside = preloaded() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("volume");
    let device = Device::open(None).unwrap();
    let pd = device.alloc_pd().unwrap();
    let volume = Arc::new(Volume::open(&file, GEOMETRY).unwrap());
    let shared = (device, pd, Arc::new(Subsystem::new(NAME, GEOMETRY)), volume);
    let mut admin = Host::new(&shared, 0);
    assert_eq!(admin.run(Command::IDENTIFY, 4096, &[1]), Status::SEQUENCE.field(), "before Connect");
    let controller = admin.connect(0, ConnectData::NEW) as u16;
    let mut io = Host::new(&shared, 1);
    io.connect(1, controller);

    // The host writes and reads blocks without T10-DIF: the target's device inserts the T10-DIF and
    // strips it.
    let data: Vec<u8> = (0..1024).map(|index| (index / 3) as u8).collect();
    io.memory.write(DATA, &data).unwrap();
    assert_eq!(io.run(Command::WRITE, 1024, &[9, 0, INSERTED | CHECKED | 1, 0, 9]), 0);
    io.memory.write(DATA, &[0; 1024]).unwrap();
    assert_eq!(io.run(Command::READ, 1024, &[9, 0, INSERTED | CHECKED | 1, 0, 9]), 0);
    let mut found = vec![0; 1024];
    io.memory.read(DATA, &mut found).unwrap();
    assert!(found == data);
    // Blocks that the host reads with their T10-DIF are equal to the blocks in the file.
    assert_eq!(io.run(Command::READ, 1040, &[9, 0, CHECKED | 1, 0, 9]), 0);
    let mut wire = vec![0; 1040];
    io.memory.read(DATA, &mut wire).unwrap();
    let stored = fs::read(&file).unwrap();
    assert!(stored.get(9 * 520..11 * 520) == Some(&wire[..]));
    assert!(wire.get(..512) == data.get(..512) && wire.get(516..520) == Some(&[0, 0, 0, 9]));

    // The target does not store a block that arrives with a wrong guard. A wrong guard in the file is
    // reported for its block.
    let last = wire.len() - 8;
    wire.iter_mut().skip(last).take(1).for_each(|byte| *byte ^= 1);
    io.memory.write(DATA, &wire).unwrap();
    assert_eq!(io.run(Command::WRITE, 1040, &[9, 0, CHECKED | 1, 0, 9]), Status::GUARD.field());
    assert!(fs::read(&file).unwrap() == stored);
    assert_eq!(io.run(Command::WRITE, 1040, &[9, 0, 1, 0, 9]), 0, "nothing is compared");
    assert_eq!(io.run(Command::READ, 1040, &[9, 0, CHECKED | 1, 0, 9]), Status::GUARD.field());
    assert_eq!(io.run(Command::READ, 520, &[9, 0, CHECKED, 0, 9]), 0);
    assert_eq!(io.run(Command::FLUSH, 0, &[]), 0);
    assert_eq!(admin.run(Command::GET_LOG_PAGE, 64, &[1]), 0);
    let mut log = [0; 64];
    admin.memory.read(DATA, &mut log).unwrap();
    assert_eq!((log.first(), log.get(16)), (Some(&2), Some(&10)), "the second error, at block 10");

    // A command with an invalid key or length ends its connection, but no other connection.
    for length in [65, 10] {
        let mut other = Host::new(&shared, 1);
        other.connect(1, controller);
        other.send_bytes(&vec![0; length]);
        assert!(other.session.join().unwrap().is_err());
    }
    let mut other = Host::new(&shared, 1);
    other.connect(1, controller);
    other.send(Command::READ, 520, &[1, 0, 0]);
    other.response();
    let beyond = [&[Command::READ, 0x40, 7, 0, 1][..], &[0; 19], &[0xff; 8], &[8, 2, 0, 9, 9, 9, 9, 0x40]];
    other.send_bytes(&[beyond.concat(), vec![0; 24]].concat());
    assert!(other.session.join().unwrap().is_err());
    // The end of the admin queue ends the I/O queue.
    admin.send_bytes(&[0]);
    assert!(admin.session.join().unwrap().is_err());
    assert!(io.session.join().unwrap().is_err());
}
