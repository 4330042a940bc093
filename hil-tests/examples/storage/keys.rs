//! The keys of a volume, and their rotation while commands run.
//!
//! [`Keys`] records for each block the key that encrypts it. A rotation makes a new key the current one: from
//! then on all writes use the new key, and a read uses the key of its blocks. Meanwhile the target
//! re-encrypts the other blocks: the device copies them from an mkey that decrypts with the old key to an
//! mkey that encrypts with the current one, over a queue pair that is connected to itself. The plaintext is
//! never in memory. The old key is destroyed when no block has it and no command in progress uses it.
//!
//! A real service would store with each block the number of its key. In this example the numbers are lost
//! when the process ends.

use super::geometry::Geometry;
use super::ledger::PROTECTED_BLOCK;
use super::storage::control::Rotations;
use super::storage::link::{Event, Link, LinkSpec};
use super::storage::{self, Lost, Outcome};
use mlx5_mkey::command::{DekKey, XtsKey};
use mlx5_mkey::devx::{Buffer, Dek, Device, ProtectionDomain};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Keytag, MkeyConfig, MkeyKind, SignatureChange, SignatureOrder,
};
use mlx5_mkey::types::{BlockSize, DomainKind, Tweak};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A key of the volume, with the configurations that use it.
pub(crate) struct VolumeKey {
    number: u32,
    dek: Dek,
    /// Configurations for data from the volume to the wire, and from the wire to the volume.
    pub(crate) outgoing: PreparedConfig,
    pub(crate) incoming: PreparedConfig,
}

impl VolumeKey {
    /// Loads the key with this number. The value is computed here; a real service would get it from its key
    /// management.
    fn load(pd: &ProtectionDomain, kind: MkeyKind, number: u32) -> Outcome<Self> {
        let value: [u8; 64] = std::array::from_fn(|index| index as u8 ^ number as u8);
        let key = DekKey::Plain256 { key: XtsKey::new(&value)?, keytag: None };
        let dek = pd.create_dek(key, *b"example!")?;
        let prepare = |access| {
            let crypto = Crypto {
                // Memory holds the ciphertext, with the signature inside.
                direction: Direction::DecryptOnTx,
                order: SignatureOrder::AfterCryptoOnTx,
                data_unit: BlockSize::B520,
                tweak: Tweak::from_lba(0),
                dek: dek.id(),
                keytag: Keytag::default(),
            };
            let config = MkeyConfig {
                access: Some(access),
                signature: SignatureChange::Set(BlockSignature::both(storage::DIF, storage::DIF)),
                crypto: Some(crypto),
            };
            PreparedConfig::new(kind, &config)
        };
        // The mkeys for incoming data also allow remote writing, because a rotation copies blocks to them
        // over a queue pair, as a peer would.
        let (outgoing, incoming) =
            (prepare(Access::NONE)?, prepare(Access::LOCAL_WRITE | Access::REMOTE_WRITE)?);
        Ok(Self { number, dek, outgoing, incoming })
    }
}

/// Sets tweak and reference tags of a configuration to the first block.
pub(crate) fn set_lba(prepared: &mut PreparedConfig, lba: u64) -> Outcome {
    prepared.set_tweak(Tweak::from_lba(lba))?;
    prepared.set_ref_tag(DomainKind::Memory, lba as u32)?;
    Ok(prepared.set_ref_tag(DomainKind::Wire, lba as u32)?)
}

/// The number of the key of each block. The numbers stay valid when the objects of the device are created
/// anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyNumbers {
    pub(crate) current: u32,
    of_blocks: Vec<u32>,
}

impl KeyNumbers {
    /// Returns the numbers of a new volume, whose blocks all have the first key.
    pub(crate) fn new(blocks: u64) -> Self {
        Self { current: 0, of_blocks: vec![0; blocks as usize] }
    }

    /// Splits a range of blocks into parts, each of whose blocks have one key. Returns the parts in order,
    /// each with the number of its key.
    pub(crate) fn parts(&self, blocks: Range<u64>) -> impl Iterator<Item = (Range<u64>, u32)> {
        let numbers = self.of_blocks.get(blocks.start as usize..blocks.end as usize).unwrap_or_default();
        let mut end = blocks.start;
        numbers.chunk_by(|one, next| one == next).filter_map(move |part| {
            let first = end;
            end += part.len() as u64;
            Some((first..end, *part.first()?))
        })
    }

    /// Records the key of blocks that were stored.
    pub(crate) fn set(&mut self, blocks: Range<u64>, number: u32) {
        if let Some(blocks) = self.of_blocks.get_mut(blocks.start as usize..blocks.end as usize) {
            blocks.fill(number);
        }
    }

    /// Returns the first range of at most `limit` blocks, from block `from` on, that do not have the current
    /// key. After the last block, the search continues at block 0.
    fn next_to_move(&self, from: u64, limit: u64) -> Option<Range<u64>> {
        let (head, tail) = self.of_blocks.split_at_checked(from as usize)?;
        let is_old = |number: &u32| *number != self.current;
        let first = tail.iter().position(is_old).map(|at| from + at as u64);
        let first = first.or_else(|| head.iter().position(is_old).map(|at| at as u64))?;
        let end = (first + limit).min(self.of_blocks.len() as u64);
        self.parts(first..end).next().map(|(part, _)| part)
    }
}

/// A rotation in progress: the old key, and the object that copies its blocks.
struct Rotation {
    old: VolumeKey,
    mover: Mover,
}

/// The keys of the volume on the device, and the rotation in progress.
pub(crate) struct Keys {
    pub(crate) numbers: KeyNumbers,
    current: VolumeKey,
    rotation: Option<Rotation>,
    device: Device,
    pd: ProtectionDomain,
    kind: MkeyKind,
    geometry: Geometry,
    gid_index: u8,
}

impl Keys {
    /// Loads the current key, and the old key if blocks of the volume still have it. `kind` is the kind of
    /// the mkeys that will use the keys.
    pub(crate) fn new(
        device: Device,
        pd: &ProtectionDomain,
        kind: MkeyKind,
        numbers: KeyNumbers,
        geometry: Geometry,
        gid_index: u8,
    ) -> Outcome<Self> {
        let current = VolumeKey::load(pd, kind, numbers.current)?;
        let old = numbers.of_blocks.iter().find(|number| **number != numbers.current).copied();
        let mut keys =
            Self { numbers, current, rotation: None, device, pd: pd.clone(), kind, geometry, gid_index };
        if let Some(number) = old {
            let old = VolumeKey::load(pd, kind, number)?;
            keys.rotation = Some(Rotation { old, mover: keys.mover()? });
        }
        Ok(keys)
    }

    /// Creates the objects for copies.
    fn mover(&self) -> Outcome<Mover> {
        Mover::new(&self.device, &self.pd, self.geometry, self.gid_index)
    }

    pub(crate) fn get(&mut self, number: u32) -> Outcome<&mut VolumeKey> {
        let Self { current, rotation, .. } = self;
        let mut keys = std::iter::once(current).chain(rotation.as_mut().map(|rotation| &mut rotation.old));
        Ok(keys.find(|key| key.number == number).ok_or("the volume has no key of this number")?)
    }

    /// Records that a command has stored blocks with the key of this number.
    pub(crate) fn stored(&mut self, blocks: Range<u64>, number: u32) {
        self.numbers.set(blocks.clone(), number);
        let copying = self.rotation.as_mut().and_then(|rotation| rotation.mover.copying.as_mut());
        if let Some(copy) = copying {
            // The command began before the rotation and has stored its blocks with the old key. So these
            // blocks are newer than the copy, but the number of their key does not show it.
            let overlaps = blocks.start < copy.blocks.end && copy.blocks.start < blocks.end;
            copy.is_stale |= overlaps && number != self.numbers.current;
        }
    }

    /// Returns the time at which the copy in progress began, if there is one.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.rotation.as_ref()?.mover.copying.as_ref().map(|copy| copy.begun)
    }

    /// Abandons the copy in progress after an error. The rotation continues with another copy.
    pub(crate) fn reset(&mut self) -> Outcome {
        self.rotation.as_mut().map_or(Ok(()), |rotation| rotation.mover.reset())
    }

    /// Returns whether the volume has two keys at present.
    pub(crate) fn is_rotating(&self) -> bool {
        self.rotation.is_some()
    }

    /// Makes a new key the current one.
    pub(crate) fn rotate(&mut self) -> Outcome {
        if self.is_rotating() {
            return Err("the volume has two keys already".into());
        }
        let mover = self.mover()?;
        let next = VolumeKey::load(&self.pd, self.kind, self.numbers.current + 1)?;
        self.numbers.current = next.number;
        self.rotation = Some(Rotation { old: std::mem::replace(&mut self.current, next), mover });
        Ok(())
    }

    /// Continues the rotation without waiting for the device: stores the blocks whose copy is complete, then
    /// begins the next copy, or if no block has the old key any more, destroys that key. `is_used` returns
    /// whether a command in progress uses the key with this number.
    pub(crate) fn advance(
        &mut self,
        volume: &File,
        rotations: &mut Rotations,
        is_used: impl Fn(u32) -> bool,
    ) -> Outcome {
        let Some(Rotation { old, mover }) = &mut self.rotation else { return Ok(()) };
        rotations.moved += mover.end(volume, &mut self.numbers)?;
        if mover.copying.is_some() {
            return Ok(());
        }
        if let Some(blocks) = self.numbers.next_to_move(mover.next, self.geometry.max_blocks().into()) {
            return mover.begin(volume, blocks, old, &mut self.current);
        }
        if is_used(old.number) {
            return Ok(());
        }
        // Mkeys that are not in use may still name the destroyed data encryption key. This is harmless: they
        // move no data before their next configuration, and no peer knows their memory keys.
        if let Some(Rotation { old, .. }) = self.rotation.take() {
            println!("target: every block has key {}, key {} is destroyed", self.current.number, old.number);
            old.dek.destroy().map_err(|(error, _)| error)?;
            rotations.done += 1;
        }
        Ok(())
    }
}

/// A copy of blocks from the old key to the current one that is in progress.
struct Copy {
    blocks: Range<u64>,
    begun: Instant,
    /// Whether a command has stored newer blocks with the old key meanwhile.
    is_stale: bool,
}

/// Copies blocks of the volume from the old key to the current one, a range of blocks at a time.
struct Mover {
    /// A queue pair that is connected to itself. The first half of the mkeys decrypts, the second half
    /// encrypts.
    link: Link,
    geometry: Geometry,
    /// Memory for the blocks of a copy. The first half holds the blocks from the volume, the second half the
    /// copied blocks.
    memory: Buffer,
    scratch: Vec<u8>,
    copying: Option<Copy>,
    /// The block at which the search for the next range begins.
    next: u64,
}

impl Mover {
    fn new(device: &Device, pd: &ProtectionDomain, geometry: Geometry, gid_index: u8) -> Outcome<Self> {
        let mkeys_per_command = 2 * geometry.mkeys_per_command;
        let spec = LinkSpec { queues: 1, depth: 1, mkeys_per_command, crypto: true, gid_index };
        let link = Link::new(device, pd, spec)?;
        let bytes = geometry.max_blocks() as usize * PROTECTED_BLOCK;
        let memory = pd.alloc_buffer(2 * bytes, Access::LOCAL_WRITE)?;
        let mut mover = Self { link, geometry, memory, scratch: vec![0; bytes], copying: None, next: 0 };
        mover.connect()?;
        Ok(mover)
    }

    /// Connects the queue pair to itself.
    fn connect(&mut self) -> Outcome {
        let own = self.link.addresses()?;
        self.link.connect(&own)
    }

    /// Abandons the copy in progress, and connects the queue pair again. The blocks of the copy keep their
    /// key.
    fn reset(&mut self) -> Outcome {
        self.copying = None;
        self.link.reset()?;
        self.connect()
    }

    /// Posts the copy of a range of blocks, which all have the old key.
    fn begin(
        &mut self,
        volume: &File,
        blocks: Range<u64>,
        old: &mut VolumeKey,
        current: &mut VolumeKey,
    ) -> Outcome {
        let Self { link, geometry, memory, scratch, .. } = self;
        let count = (blocks.end - blocks.start) as u32;
        let bytes = scratch.get_mut(..count as usize * PROTECTED_BLOCK).ok_or("too long")?;
        volume.read_exact_at(bytes, blocks.start * PROTECTED_BLOCK as u64)?;
        memory.write(0, bytes)?;
        let (queue, mkeys) = link.queue_and_mkeys(0)?;
        let mut mkeys: Vec<_> = mkeys.iter_mut().collect();
        let (sources, copies) = mkeys.split_at_mut(geometry.mkeys_per_command);
        let mut batch = queue.batch();
        for ((chunk, source), copy) in geometry.chunks(count).zip(sources).zip(copies) {
            let lba = blocks.start + u64::from(chunk.start);
            set_lba(&mut old.outgoing, lba)?;
            set_lba(&mut current.incoming, lba)?;
            let is_last = chunk.end == count;
            let from = memory.entry(geometry.staged(0, chunk.clone()))?;
            let to = memory.entry(geometry.staged(1, chunk))?;
            batch.request(lba).configure_mkey(source, &old.outgoing, &[from])?;
            batch.request(lba).configure_mkey(copy, &current.incoming, &[to])?;
            let remote = Remote { address: 0, rkey: copy.key() };
            let sges = [Sge { address: 0, length: from.length, lkey: source.key() }];
            let request = batch.request(lba);
            let request = if is_last { request.signaled() } else { request };
            request.rdma_write(remote, &sges[..])?;
        }
        drop(batch);
        self.copying = Some(Copy { blocks, begun: Instant::now(), is_stale: false });
        Ok(())
    }

    /// Writes the blocks of the copy in progress to the volume with their new key, if the copy is complete.
    /// Returns the number of stored blocks.
    ///
    /// Blocks that a command has stored meanwhile with the current key are newer than the copy, and stay as
    /// they are. A stale copy is dropped, and its blocks are copied again later. A block with a wrong
    /// signature keeps its old key until the initiator has read it and rewritten it.
    fn end(&mut self, volume: &File, numbers: &mut KeyNumbers) -> Outcome<u64> {
        let mut events = Vec::new();
        self.link.take(Duration::ZERO, &mut events)?;
        let mut is_complete = false;
        for event in events {
            match event {
                Event::Sent(_) => is_complete = true,
                Event::Failed(why) => return Err(Lost(why).into()),
                Event::Message { .. } => {}
            }
        }
        let Some(Copy { blocks, is_stale, .. }) = self.copying.take_if(|_| is_complete) else { return Ok(0) };
        let count = (blocks.end - blocks.start) as u32;
        let mut good = blocks.end;
        for (number, chunk) in self.geometry.chunks(count).enumerate() {
            for mkey in [number, self.geometry.mkeys_per_command + number] {
                if let Some(error) = self.link.check(mkey)? {
                    good = good.min(blocks.start + u64::from(chunk.start) + error.block_index());
                }
            }
        }
        if is_stale {
            return Ok(0);
        }
        // The next search begins behind the block with a wrong signature.
        self.next = blocks.end.min(good + 1);
        let current = numbers.current;
        let parts = numbers.parts(blocks.start..good).filter(|(_, number)| *number != current);
        let mut stored = 0;
        for (part, _) in parts.collect::<Vec<_>>() {
            let length = (part.end - part.start) as usize * PROTECTED_BLOCK;
            let offset = (part.start - blocks.start) as usize * PROTECTED_BLOCK;
            let bytes = self.scratch.get_mut(..length).ok_or("too long")?;
            self.memory.read(self.geometry.staged(1, 0..0).start + offset, bytes)?;
            volume.write_all_at(bytes, part.start * PROTECTED_BLOCK as u64)?;
            stored += part.end - part.start;
            numbers.set(part, current);
        }
        Ok(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_key_are_found() {
        let mut numbers = KeyNumbers::new(10);
        assert_eq!(numbers.next_to_move(0, 4), None);
        numbers.current = 1;
        numbers.set(3..5, 1);
        assert_eq!(numbers.parts(0..10).next(), Some((0..3, 0)));
        assert_eq!(numbers.parts(0..10).collect::<Vec<_>>(), [(0..3, 0), (3..5, 1), (5..10, 0)]);
        assert_eq!(numbers.parts(3..4).next(), Some((3..4, 1)));
        assert_eq!(numbers.parts(4..4).next(), None);
        assert_eq!(numbers.next_to_move(0, 2), Some(0..2));
        assert_eq!(numbers.next_to_move(3, 4), Some(5..9));
        numbers.set(5..10, 1);
        assert_eq!(numbers.next_to_move(10, 4), Some(0..3), "the search goes on at block 0");
        numbers.set(0..3, 1);
        assert_eq!(numbers.next_to_move(4, 4), None);
    }
}
