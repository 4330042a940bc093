//! AES-XTS over data units (IEEE 1619) and the unwrapping of keys (RFC 3394), on top of RustCrypto.

use aes::cipher::array::ArraySize;
use aes::cipher::consts::U16;
use aes::cipher::{
    Array, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
};
use aes::{Aes128, Aes256};
use aes_kw::{KwAes128, KwAes256};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;
use zeroize::Zeroizing;

/// A length that AES-XTS cannot process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSize;

/// What to do with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Plaintext to ciphertext.
    Encrypt,
    /// Ciphertext to plaintext.
    Decrypt,
}

/// An expanded AES-XTS key. It is wiped when dropped.
pub struct Xts(Size);

enum Size {
    Aes128(Box<Engine<Aes128>>),
    Aes256(Box<Engine<Aes256>>),
}

impl core::fmt::Debug for Xts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Xts(..)")
    }
}

impl Xts {
    /// Expands key 1 followed by key 2: 32 or 64 bytes. `None` for other lengths.
    pub fn new(key: &[u8]) -> Option<Self> {
        let (first, second) = key.split_at_checked(key.len() / 2)?;
        leaving_nothing(|| {
            Some(Self(match key.len() {
                32 => Size::Aes128(Engine::new(first, second)?),
                64 => Size::Aes256(Engine::new(first, second)?),
                _ => return None,
            }))
        })
    }

    /// Processes a stream of data units of `unit` bytes in place; unit `i` uses `tweak + i * step`.
    ///
    /// # Errors
    /// [`JobSize`] where the length breaks the rule of R166-R168 or leaves less than 16 bytes in the last unit (D8).
    pub fn apply(
        &self,
        direction: Direction,
        stream: &mut [u8],
        unit: u32,
        tweak: u128,
        step: u128,
    ) -> Result<(), JobSize> {
        if !job_size_allowed(stream.len() as u64, unit) {
            return Err(JobSize);
        }
        leaving_nothing(|| match &self.0 {
            Size::Aes128(engine) => engine.units(direction, stream, unit as usize, tweak, step),
            Size::Aes256(engine) => engine.units(direction, stream, unit as usize, tweak, step),
        });
        Ok(())
    }
}

/// One key size.
///
/// `xts-mode` would give the cipher one block at a time, which costs most of the speed. This is the same (IEEE 1619 5.3), with as
/// many blocks at a time as the cipher takes; the tests compare both.
struct Engine<C> {
    data: C,
    tweak: C,
}

type Block = Array<u8, U16>;

/// What is added to a block before and after the cipher, in halves.
type Mask = [U64; 2];

/// The bytes of a block.
const BLOCK: usize = 16;

/// Units that are processed together, at most.
const UNITS: usize = 16;

/// Their bytes, at most, unless one has more.
const TOGETHER: usize = 1 << 14;

impl<C> Engine<C>
where
    C: KeyInit + BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt,
{
    fn new(first: &[u8], second: &[u8]) -> Option<Box<Self>> {
        Some(Box::new(Self { data: C::new_from_slice(first).ok()?, tweak: C::new_from_slice(second).ok()? }))
    }

    /// Processes units of at least one block, of which `i` has the tweak `tweak + i * step`. The last may be shorter.
    fn units(&self, direction: Direction, stream: &mut [u8], unit: usize, tweak: u128, step: u128) {
        // Assumption: the tweak carries beyond 64 bits (gap 4).
        let tweak_of = |index: usize| tweak.wrapping_add(step.wrapping_mul(index as u128));
        let unit = unit.max(BLOCK);
        let count = stream.len() / unit;
        let (whole, rest) = stream.split_at_mut(count * unit);
        let together = (TOGETHER / unit).clamp(1, UNITS);
        for (batch, units) in whole.chunks_mut(unit * together).enumerate() {
            self.alike(direction, units, unit, |index| tweak_of(batch * together + index));
        }
        if rest.len() >= BLOCK {
            let length = rest.len();
            self.alike(direction, rest, length, |_| tweak_of(count));
        }
    }

    /// Processes up to [`UNITS`] units, all of `unit` bytes.
    fn alike(&self, direction: Direction, units: &mut [u8], unit: usize, tweak_of: impl Fn(usize) -> u128) {
        let mut starts: [Block; UNITS] = core::array::from_fn(|index| Array(tweak_of(index).to_le_bytes()));
        let (starts, _) = starts.split_at_mut(units.len() / unit);
        let mut masks = vec![Mask::default(); starts.len() * unit.div_ceil(BLOCK)];
        self.tweak.encrypt_with_backend(Masks { starts, masks: &mut masks });
        let whole = unit / BLOCK;
        if unit.is_multiple_of(BLOCK) {
            return self.masked(direction, Block::slice_as_chunks_mut(units).0, &masks);
        }
        // The part of a block behind the whole ones takes what it lacks from the last of them, which goes through the cipher
        // again. Decryption meets their masks in the other order.
        let (all, mut seconds) = (mem::take(&mut masks), Vec::with_capacity(UNITS));
        for of_unit in all.chunks(whole + 1) {
            let Some((mut second, of_whole)) = of_unit.split_last().map(|(second, rest)| (*second, rest))
            else {
                return;
            };
            masks.extend_from_slice(of_whole);
            if let Some(last) = masks.last_mut().filter(|_| direction == Direction::Decrypt) {
                mem::swap(last, &mut second);
            }
            seconds.push(second);
        }
        let mut blocks = Vec::with_capacity(masks.len());
        units.chunks(unit).for_each(|bytes| blocks.extend_from_slice(Block::slice_as_chunks(bytes).0));
        self.masked(direction, &mut blocks, &masks);
        let mut lasts = Vec::with_capacity(UNITS);
        for (bytes, done) in units.chunks_mut(unit).zip(blocks.chunks_mut(whole)) {
            let (place, part) = Block::slice_as_chunks_mut(bytes);
            let Some(last) = done.last_mut() else { return };
            part.iter_mut().zip(last.iter_mut()).for_each(|(part, byte)| mem::swap(part, byte));
            lasts.push(*last);
            place.copy_from_slice(done);
        }
        self.masked(direction, &mut lasts, &seconds);
        for (bytes, done) in units.chunks_mut(unit).zip(lasts) {
            let place = Block::slice_as_chunks_mut(bytes).0.last_mut();
            place.into_iter().for_each(|last| *last = done);
        }
    }

    /// Puts blocks through the cipher, each masked before and after.
    fn masked(&self, direction: Direction, blocks: &mut [Block], masks: &[Mask]) {
        let blocks = Masked { blocks, masks };
        match direction {
            Direction::Encrypt => self.data.encrypt_with_backend(blocks),
            Direction::Decrypt => self.data.decrypt_with_backend(blocks),
        }
    }
}

/// Blocks, and their masks, for a cipher that takes several at a time.
///
/// Masks are added where the cipher works: there the compiler may use the instructions that the cipher was found to have.
struct Masked<'a> {
    blocks: &'a mut [Block],
    masks: &'a [Mask],
}

impl Masked<'_> {
    #[inline(always)]
    fn run<N: ArraySize>(self, cipher: impl Fn(&mut Array<Block, N>)) {
        let many = |blocks: &mut Array<Block, N>, masks: &[Mask]| {
            add(blocks, masks);
            cipher(blocks);
            add(blocks, masks);
        };
        let (arrays, rest) = Array::slice_as_chunks_mut(self.blocks);
        let (masks, masks_of_rest) = self.masks.split_at(arrays.len() * N::USIZE);
        arrays.iter_mut().zip(masks.chunks_exact(N::USIZE)).for_each(|(blocks, masks)| many(blocks, masks));
        if !rest.is_empty() {
            // Together with blocks that nobody wants: that takes no longer than two by themselves.
            let mut blocks = Array::<Block, N>::default();
            blocks.iter_mut().zip(rest.iter()).for_each(|(block, wanted)| *block = *wanted);
            many(&mut blocks, masks_of_rest);
            rest.iter_mut().zip(&blocks).for_each(|(block, done)| *block = *done);
        }
    }
}

/// Adds masks to blocks in GF(2^128).
#[inline(always)]
fn add(blocks: &mut [Block], masks: &[Mask]) {
    let bytes = Array::slice_as_flattened_mut(blocks);
    bytes.iter_mut().zip(masks.as_bytes()).for_each(|(byte, mask)| *byte ^= mask);
}

impl BlockSizeUser for Masked<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Masked<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, cipher: &B) {
        self.run(|blocks| cipher.encrypt_par_blocks_inplace(blocks));
    }
}

impl BlockCipherDecClosure for Masked<'_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, cipher: &B) {
        self.run(|blocks| cipher.decrypt_par_blocks_inplace(blocks));
    }
}

/// The first masks of units, and room for all: each is the one before it, multiplied by x in GF(2^128) (IEEE 1619 5.2).
struct Masks<'a> {
    /// Tweaks; the masks are made of what the cipher makes of them.
    starts: &'a mut [Block],
    masks: &'a mut [Mask],
}

impl Masks<'_> {
    /// Writes the masks of a unit.
    #[inline(always)]
    fn fill(start: &Block, masks: &mut [Mask]) {
        // Eight side by side, in halves, which the compiler multiplies together.
        let mut next = u128::from_le_bytes(start.0);
        let chains: [u128; LANES] = core::array::from_fn(|_| {
            let mask = next;
            next = times_x(mask);
            mask
        });
        let (mut low, mut high) = (chains.map(|mask| mask as u64), chains.map(|mask| (mask >> 64) as u64));
        for places in masks.chunks_mut(LANES) {
            for ((place, low), high) in places.iter_mut().zip(low).zip(high) {
                *place = [low, high].map(U64::new);
            }
            let over = high.map(|high| reduced(high >> (u64::BITS as usize - LANES)));
            for ((high, low), over) in high.iter_mut().zip(&mut low).zip(over) {
                *high = *high << LANES | *low >> (u64::BITS as usize - LANES);
                *low = *low << LANES ^ over;
            }
        }
    }
}

impl BlockSizeUser for Masks<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Masks<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, cipher: &B) {
        let Self { starts, masks } = self;
        let count = masks.len() / starts.len().max(1);
        let blocks = Masked { blocks: starts, masks: &[Mask::default(); UNITS] };
        BlockCipherEncClosure::call(blocks, cipher);
        for (start, masks) in starts.iter().zip(masks.chunks_mut(count.max(1))) {
            Self::fill(start, masks);
        }
    }
}

/// Masks that are computed together.
const LANES: usize = 8;

/// Multiplies a mask by x.
const fn times_x(mask: u128) -> u128 {
    mask << 1 ^ reduced((mask >> 127) as u64) as u128
}

/// Returns what the bits over the 128th are, modulo x^128 + x^7 + x^2 + x + 1.
const fn reduced(over: u64) -> u64 {
    over ^ over << 1 ^ over << 2 ^ over << 7
}

/// Returns whether `job` bytes can be processed in units of `unit` bytes (R166-R168, D8).
pub fn job_size_allowed(job: u64, unit: u32) -> bool {
    let unit = u64::from(unit);
    if unit < 16 {
        return false;
    }
    let rest = job % unit;
    rest == 0 || (job.is_multiple_of(16) && (16..=unit - 16).contains(&rest))
}

/// Why a wrapped key was not unwrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwrapError {
    /// The lengths do not fit RFC 3394.
    Length,
    /// The integrity check failed: another KEK, or changed bytes.
    Integrity,
}

/// Unwraps a key with a KEK of 16 or 32 bytes (RFC 3394, default initial value).
///
/// # Errors
/// [`UnwrapError`].
pub fn unwrap_key(kek: &[u8], wrapped: &[u8]) -> Result<Zeroizing<Vec<u8>>, UnwrapError> {
    let mut key = Zeroizing::new(vec![0; wrapped.len().saturating_sub(8)]);
    let outcome = leaving_nothing(|| match kek.len() {
        16 => KwAes128::new_from_slice(kek).ok().map(|kw| kw.unwrap_key(wrapped, &mut key).map(drop)),
        32 => KwAes256::new_from_slice(kek).ok().map(|kw| kw.unwrap_key(wrapped, &mut key).map(drop)),
        _ => None,
    });
    match outcome {
        Some(Ok(())) => Ok(key),
        Some(Err(aes_kw::Error::IntegrityCheckFailed)) => Err(UnwrapError::Integrity),
        _ => Err(UnwrapError::Length),
    }
}

/// Wraps a key, as [`unwrap_key`] unwraps it. `None` for lengths that do not fit.
pub fn wrap_key(kek: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let mut wrapped = vec![0; plain.len() + 8];
    leaving_nothing(|| match kek.len() {
        16 => KwAes128::new_from_slice(kek).ok()?.wrap_key(plain, &mut wrapped).map(drop).ok(),
        32 => KwAes256::new_from_slice(kek).ok()?.wrap_key(plain, &mut wrapped).map(drop).ok(),
        _ => None,
    })?;
    Some(wrapped)
}

/// Stack that working with a key takes, and more: half of it is enough, a quarter is not.
const STACK_BYTES: usize = 16 << 10;

/// Does something with a key and overwrites the stack below: what expands a key and what moves the result leave copies there,
/// which no value owns that could wipe them.
fn leaving_nothing<T>(work: impl FnOnce() -> T) -> T {
    #[inline(never)]
    fn call<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
    #[inline(never)]
    fn overwrite() {
        core::hint::black_box(&mut [0_u8; STACK_BYTES]);
    }
    let result = call(work);
    overwrite();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn ieee_1619_vectors() {
        let xts = Xts::new(&[[0x11; 16], [0x22; 16]].concat()).unwrap();
        let mut data = [0x44; 32];
        xts.apply(Direction::Encrypt, &mut data, 512, 0x33_3333_3333, 1).unwrap();
        assert_eq!(data[..], hex("c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0"));

        let key = hex("2718281828459045235360287471352631415926535897932384626433832795");
        let xts = Xts::new(&key).unwrap();
        let plain: Vec<u8> = (0..512).map(|i| i as u8).collect();
        let mut data = [plain.clone(), plain.clone()].concat();
        xts.apply(Direction::Encrypt, &mut data, 512, 0, 1).unwrap();
        assert_eq!(data[..16], hex("27a7479befa1d476489f308cd4cfa6e2"));
        assert_eq!(data[496..512], hex("0a282df920147beabe421ee5319d0568"));
        xts.apply(Direction::Decrypt, &mut data, 512, 0, 1).unwrap();
        assert_eq!(data, [plain.clone(), plain].concat());
    }

    #[test]
    fn ieee_1619_unit_one_advances() {
        // DEVICE.md 4.6: the plaintext of vector 5 is the ciphertext of vector 4.
        let xts = Xts::new(&hex("2718281828459045235360287471352631415926535897932384626433832795")).unwrap();
        let plain: Vec<u8> = (0..512).map(|i| i as u8).collect();
        let mut one = plain.clone();
        xts.apply(Direction::Encrypt, &mut one, 512, 1, 1).unwrap();
        let mut two = [plain.clone(), plain].concat();
        xts.apply(Direction::Encrypt, &mut two, 512, 0, 1).unwrap();
        assert_eq!(two[512..], one[..]);
        assert_eq!(one[..16], hex("bbf9d6a74a7465fee20f42adf9a623fc"));
    }

    #[test]
    fn units_equal_those_of_the_crate() {
        for length in (16..130).chain([496, 511, 512, 513, 520, 527, 528, 1027, 4048, 4096, 4160]) {
            let key: Vec<u8> = (0..64).map(|i| i * 3).collect();
            let (first, second) = (Aes256::new_from_slice(&key[..32]), Aes256::new_from_slice(&key[32..]));
            let reference = xts_mode::Xts128::new(first.unwrap(), second.unwrap());
            let mut want: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            let plain = want.clone();
            let mut got = want.clone();
            reference.encrypt_sector(&mut want, Array(99u128.to_le_bytes()));
            let xts = Engine::<Aes256>::new(&key[..32], &key[32..]).unwrap();
            xts.units(Direction::Encrypt, &mut got, length, 99, 1);
            assert_eq!(got, want, "{length}");
            xts.units(Direction::Decrypt, &mut got, length, 99, 1);
            assert_eq!(got, plain, "{length}");
        }
    }

    #[test]
    fn rfc_3394_vector() {
        let kek: Vec<u8> = (0..32).collect();
        let data = hex("00112233445566778899aabbccddeeff000102030405060708090a0b0c0d0e0f");
        let mut wrapped =
            hex("28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21");
        assert_eq!(unwrap_key(&kek, &wrapped), Ok(data.into()));
        wrapped[9] ^= 1;
        assert_eq!(unwrap_key(&kek, &wrapped), Err(UnwrapError::Integrity));
        assert_eq!(unwrap_key(&kek[..8], &wrapped), Err(UnwrapError::Length));
    }

    #[test]
    fn job_sizes() {
        for (job, unit, allowed) in [
            (512, 512, true),
            (128, 512, true),
            (47, 512, false),
            (520, 520, true),
            (496, 520, true),
            (512, 520, false),
            (528, 520, false),
            (1568, 520, false),
        ] {
            assert_eq!(job_size_allowed(job, unit), allowed, "{job} in {unit}");
        }
    }
}
