//! Commands written by hand: entries and blocks of the command queue, and requests as fields at their
//! offsets.

use mlx5_softdev::{Device, Memory};

/// The doorbell register: its bits name the entries to execute.
pub const DOORBELL: usize = 0x18;

/// The entry of the command queue that the tests use.
pub const ENTRY: u64 = 2;

pub fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// A command: its entry in the command queue, and its mailbox blocks, each with its address.
#[derive(Clone)]
pub struct Posted {
    pub at: u64,
    pub entry: [u8; 64],
    pub blocks: Vec<(u64, [u8; 576])>,
}

impl Posted {
    /// Returns a command with room for a reply of `room` bytes. `queue` is the address of the command queue.
    /// The mailbox blocks of the request begin 4 KiB after this address, the blocks of the reply 16 KiB after
    /// it.
    pub fn new(queue: u64, request: &[u8], room: usize) -> Self {
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(request.len() as u32).to_be_bytes());
        entry[0x10..0x20].copy_from_slice(&request[..16]);
        entry[0x38..0x3c].copy_from_slice(&(room as u32).to_be_bytes());
        entry[0x3c] = 0x5a;
        entry[0x3f] = 1;
        let mut blocks = Vec::new();
        let parts =
            [(queue + 0x1000, 8, &request[16..]), (queue + 0x4000, 0x30, &vec![0; room.saturating_sub(16)])];
        for (base, pointer, data) in parts {
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
        let mut posted = Self { at: queue + (ENTRY << 7), entry, blocks };
        posted.sign();
        posted
    }

    /// Signs the entry and all blocks.
    pub fn sign(&mut self) {
        self.entry[0x3d] = 0;
        self.entry[0x3d] = !xor(&self.entry);
        for (_, block) in &mut self.blocks {
            (block[0x23e], block[0x23f]) = (0, 0);
            block[0x23e] = !xor(&block[0x200..0x23e]);
            block[0x23f] = !xor(&block[..]);
        }
    }

    /// Gives the command to the device, and returns the entry as the device has written it.
    pub fn give<M: Memory>(&self, device: &mut Device<M>) -> [u8; 64] {
        device.memory_mut().write(self.at, &self.entry).unwrap();
        for (address, block) in &self.blocks {
            device.memory_mut().write(*address, block).unwrap();
        }
        device.write_register(DOORBELL, 1 << ENTRY);
        let mut entry = [0; 64];
        device.memory().read(self.at, &mut entry).unwrap();
        entry
    }
}

/// The bytes of a request. Each method sets one field; all other fields are 0.
#[derive(Clone, Debug)]
pub struct Words(pub Vec<u8>);

impl Words {
    pub fn new(opcode: u16, length: usize) -> Self {
        Self(vec![0; length]).u16(0, opcode)
    }

    pub fn bytes(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub fn u8(self, at: usize, value: u8) -> Self {
        self.bytes(at, &[value])
    }

    pub fn u16(self, at: usize, value: u16) -> Self {
        self.bytes(at, &value.to_be_bytes())
    }

    /// Sets a field of 24 bits, such as the number of an object.
    pub fn u24(self, at: usize, value: u32) -> Self {
        self.bytes(at, &value.to_be_bytes()[1..])
    }

    pub fn u32(self, at: usize, value: u32) -> Self {
        self.bytes(at, &value.to_be_bytes())
    }

    pub fn u64(self, at: usize, value: u64) -> Self {
        self.bytes(at, &value.to_be_bytes())
    }
}
