//! The load of the initiator: which blocks it reads and writes next, and the bytes that each block must have.
//! The bytes depend on the block's address and generation (the number of its writes).

use super::storage::MAGIC;
use super::storage::capsule::Command;
use fastrand::Rng;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;

/// Length of the head of a block: the constant [`MAGIC`], the address and the generation. Random bytes
/// (noise) fill the rest.
const HEAD: usize = 24;

/// A phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Writes every block of the volume, from the block with this number on.
    Fill(u64),
    /// Makes this number of reads and writes of all sizes at random addresses.
    Mix(u64),
    /// Reads every block of the volume, from the block with this number on.
    Check(u64),
}

/// A read or a write of consecutive blocks of the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// [`Command::READ`] or [`Command::WRITE`].
    pub(crate) opcode: u8,
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
}

impl Part {
    pub(crate) fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.lba as usize..self.lba as usize + self.blocks as usize
    }
}

/// The load of a run: its commands, and the expected bytes of each block.
pub(crate) struct Load {
    pub(crate) phase: Phase,
    /// How often each block was written.
    generations: Vec<u32>,
    /// Blocks with an operation in progress. No other operation touches them, so that their content is known.
    busy: Vec<bool>,
    max_blocks: u32,
    mix: Mix,
    random: Rng,
    /// An operation (opcode, number of blocks) that was drawn at random, and waits until enough blocks are
    /// free.
    drawn: Option<(u8, u32)>,
    /// Random bytes, from which the noise of each block is copied. Copying is faster than new random numbers.
    noise: Vec<u8>,
}

/// The operations of the phase [`Phase::Mix`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) ios: u64,
    /// Percentage of reads.
    pub(crate) reads: u64,
}

impl Load {
    /// Makes a load for a volume of `blocks` blocks, with commands of up to `max_blocks` blocks.
    pub(crate) fn new(blocks: u64, max_blocks: u32, mix: Mix, seed: u64) -> Self {
        let (generations, busy) = (vec![0; blocks as usize], vec![false; blocks as usize]);
        let mut random = Rng::with_seed(seed);
        let noise = std::iter::repeat_with(|| random.u8(..)).take(1 << 16).collect();
        Self { phase: Phase::Fill(0), generations, busy, max_blocks, mix, random, drawn: None, noise }
    }

    fn blocks(&self) -> u64 {
        self.busy.len() as u64
    }

    pub(crate) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Fill(next) | Phase::Check(next) => next == self.blocks(),
            Phase::Mix(left) => left == 0,
        }
    }

    /// Returns the expected number of reads in the phase [`Phase::Mix`] that are still to come.
    pub(crate) fn reads_to_come(&self) -> u64 {
        let ios = match self.phase {
            Phase::Fill(_) => self.mix.ios,
            Phase::Mix(left) => left,
            Phase::Check(_) => 0,
        };
        ios * self.mix.reads / 100
    }

    /// Returns the next read or write, or `None` if all are done or its blocks are busy.
    pub(crate) fn next(&mut self) -> Option<Part> {
        if self.is_over() {
            return None;
        }
        match self.phase {
            Phase::Fill(lba) => self.next_of_all(Command::WRITE, lba, Phase::Fill),
            Phase::Check(lba) => self.next_of_all(Command::READ, lba, Phase::Check),
            Phase::Mix(left) => {
                let (opcode, blocks) = self.drawn.take().unwrap_or_else(|| self.draw());
                // If no free blocks are found, the operation waits. With another operation instead, long
                // operations would be rare, because they seldom find enough free blocks.
                let part = (0..16).find_map(|_| {
                    let lba = self.random.u64(..=self.blocks() - u64::from(blocks));
                    self.begin(Part { opcode, lba, blocks })
                });
                let Some(part) = part else {
                    self.drawn = Some((opcode, blocks));
                    return None;
                };
                self.phase = Phase::Mix(left - 1);
                Some(part)
            }
        }
    }

    fn next_of_all(&mut self, opcode: u8, lba: u64, phase: fn(u64) -> Phase) -> Option<Part> {
        let blocks = (self.blocks() - lba).min(self.max_blocks.into()) as u32;
        let part = self.begin(Part { opcode, lba, blocks })?;
        self.phase = phase(lba + u64::from(blocks));
        Some(part)
    }

    /// Selects the next operation and its number of blocks at random.
    fn draw(&mut self) -> (u8, u32) {
        let blocks = match self.random.u32(..100) {
            0..70 => 8,
            70..90 => 128,
            90..95 => 1,
            _ => 2048,
        };
        let is_read = self.random.u64(..100) < self.mix.reads;
        (if is_read { Command::READ } else { Command::WRITE }, self.max_blocks.min(blocks))
    }

    /// Marks the blocks of a part as busy, raises their generation if the part is a write, and returns the
    /// part. Returns `None` if a block of the part is busy already.
    fn begin(&mut self, part: Part) -> Option<Part> {
        let busy = self.busy.get_mut(part.range())?;
        if busy.contains(&true) {
            return None;
        }
        busy.fill(true);
        if part.opcode == Command::WRITE {
            self.generations.get_mut(part.range())?.iter_mut().for_each(|generation| *generation += 1);
        }
        Some(part)
    }

    /// Marks the blocks of a part as free for other operations.
    pub(crate) fn end(&mut self, part: Part) {
        if let Some(busy) = self.busy.get_mut(part.range()) {
            busy.fill(false);
        }
    }

    /// Writes the expected bytes of a part into `bytes`.
    pub(crate) fn content(&self, part: Part, bytes: &mut [u8]) {
        let generations = self.generations.get(part.range()).unwrap_or_default();
        for ((lba, generation), block) in (part.lba..).zip(generations).zip(bytes.chunks_exact_mut(BLOCK)) {
            let generation = u64::from(*generation);
            let others = self.noise.len() - (BLOCK - HEAD);
            let at = Rng::with_seed(lba ^ generation << 32).usize(..others);
            let noise = self.noise.get(at..at + BLOCK - HEAD).unwrap_or_default();
            let (head, tail) = block.split_at_mut(HEAD);
            let fields = [MAGIC, lba.to_le_bytes(), generation.to_le_bytes()];
            head.copy_from_slice(fields.as_flattened());
            tail.copy_from_slice(noise);
        }
    }

    /// Compares the bytes that were read with the last written ones, and returns the first block that
    /// differs. `wanted` is scratch memory as long as `bytes`.
    pub(crate) fn difference(&self, part: Part, bytes: &[u8], wanted: &mut [u8]) -> Option<u64> {
        self.content(part, wanted);
        if wanted == bytes {
            return None;
        }
        let blocks = wanted.chunks(BLOCK).zip(bytes.chunks(BLOCK));
        Some(part.lba + blocks.take_while(|(wanted, found)| wanted == found).count() as u64)
    }
}
