//! AES-XTS over data units (IEEE 1619) and the unwrapping of keys (RFC 3394), on top of RustCrypto.

use crate::wiped::Wiped;
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

/// The error for a length that AES-XTS cannot process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSize;

/// The direction of the cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Plaintext to ciphertext.
    Encrypt,
    /// Ciphertext to plaintext.
    Decrypt,
}

/// An expanded AES-XTS key. The key is wiped when dropped.
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
    /// Expands key 1 followed by key 2: 32 or 64 bytes. Returns `None` for other lengths.
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

    /// Returns whether this key and another have the same size.
    pub(crate) fn is_as_long_as(&self, other: &Self) -> bool {
        mem::discriminant(&self.0) == mem::discriminant(&other.0)
    }

    /// Encrypts or decrypts a stream of data units of `unit` bytes in place. Unit `i` has the tweak `tweak +
    /// i * step`.
    ///
    /// # Errors
    /// [`JobSize`] where the length breaks the rule for job sizes (man page `mlx5dv_wr_set_mkey_crypto`), or
    /// leaves less than 16 bytes in the last unit, which AES-XTS cannot encrypt.
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

/// AES-XTS of one key size.
///
/// The crate `xts-mode` gives the cipher one block at a time, which costs most of the speed. This engine
/// computes the same (IEEE 1619 5.3) with as many blocks at a time as the cipher takes. The tests compare
/// both.
struct Engine<C> {
    data: C,
    tweak: C,
}

type Block = Array<u8, U16>;

/// The mask of a block, in two halves. The engine XORs the mask with the block before and after the cipher.
type Mask = [U64; 2];

/// The number of bytes of a block of AES.
const BLOCK: usize = 16;

/// The most units whose tweaks are encrypted together.
const UNITS: usize = 64;

/// The number of masks of a unit that are computed together. The compiler vectorizes a loop of this length,
/// but unrolls a shorter loop, which is slower.
const LANES: usize = 32;

/// A piece of a data unit: its blocks, or the masks of these blocks.
type Piece<T> = [T; LANES];

/// The number of pieces that pass through the cipher in one call. These pieces may belong to several data
/// units.
const PIECES: usize = 2;

/// Aligns a value to 64 bytes, so that the compiler can store a vector register of this size at once.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Aligned<T>(T);

impl<C> Engine<C>
where
    C: KeyInit + BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt,
{
    fn new(first: &[u8], second: &[u8]) -> Option<Box<Self>> {
        Some(Box::new(Self { data: C::new_from_slice(first).ok()?, tweak: C::new_from_slice(second).ok()? }))
    }

    /// Encrypts or decrypts units of at least one block. Unit `i` has the tweak `tweak + i * step`. The last
    /// unit may be shorter than the others.
    fn units(&self, direction: Direction, stream: &mut [u8], unit: usize, tweak: u128, step: u128) {
        // Assumption: the sum carries into the upper 64 bits of the tweak (the scenario `gap04_tweaks`
        // measures it).
        let mut tweaks = core::iter::successors(Some(tweak), |tweak| Some(tweak.wrapping_add(step)));
        let unit = unit.max(BLOCK);
        let count = stream.len() / unit;
        let (whole, rest) = stream.split_at_mut(count * unit);
        for units in whole.chunks_mut(unit.saturating_mul(UNITS)) {
            self.alike(direction, units, unit, &mut tweaks);
        }
        if rest.len() >= BLOCK {
            let length = rest.len();
            self.alike(direction, rest, length, &mut tweaks);
        }
    }

    /// Encrypts or decrypts up to [`UNITS`] units, all of `unit` bytes.
    fn alike(&self, direction: Direction, bytes: &mut [u8], unit: usize, tweaks: impl Iterator<Item = u128>) {
        let mut starts = [Block::default(); UNITS];
        let starts = starts.get_mut(..bytes.len() / unit).unwrap_or_default();
        starts.iter_mut().zip(tweaks).for_each(|(start, tweak)| start.0 = tweak.to_le_bytes());
        self.tweak.encrypt_blocks(starts);
        let units = Units { bytes, unit, starts };
        match direction {
            Direction::Encrypt => self.data.encrypt_with_backend(units),
            Direction::Decrypt => self.data.decrypt_with_backend(units),
        }
    }
}

/// Data units to encrypt or decrypt, for a cipher that takes several blocks at a time.
///
/// Masks are computed and added inside the function that the cipher calls. In this function the compiler may
/// use the vector instructions that the cipher has detected.
struct Units<'a> {
    bytes: &'a mut [u8],
    unit: usize,
    /// The first mask of each unit. With ciphertext stealing, the mask for the second pass of the last whole
    /// block replaces it.
    starts: &'a mut [Block],
}

impl Units<'_> {
    #[inline(always)]
    fn run<N: ArraySize>(self, direction: Direction, cipher: impl Fn(&mut Array<Block, N>)) {
        let Self { bytes, unit, starts } = self;
        let steals = !unit.is_multiple_of(BLOCK);
        let mut batch = Aligned([Piece::default(); PIECES]);
        let mut masks = Aligned([Piece::default(); PIECES]);
        let mut places: [&mut [Block]; PIECES] = Default::default();
        let mut filled = 0;
        for (unit, start) in bytes.chunks_mut(unit).zip(starts.iter_mut()) {
            let mut chain = Chain::new(start);
            let pieces = Block::slice_as_chunks_mut(unit).0.chunks_mut(LANES);
            let last = pieces.len() - 1;
            for (number, piece) in pieces.enumerate() {
                if let Some(((place, masks), blocks)) =
                    places.get_mut(filled).zip(masks.0.get_mut(filled)).zip(batch.0.get_mut(filled))
                {
                    chain.next(masks);
                    if steals && number == last {
                        *start = chain.split(masks, piece.len(), direction);
                    }
                    match piece.first_chunk::<LANES>() {
                        Some(piece) => add(blocks, piece, masks.as_bytes()),
                        None => add(blocks, piece, masks.as_bytes()),
                    }
                    *place = piece;
                }
                filled += 1;
                if filled == PIECES {
                    pass(&mut batch, &mut places, &masks, &cipher);
                    filled = 0;
                }
            }
        }
        pass(&mut batch, places.get_mut(..filled).unwrap_or_default(), &masks, &cipher);
        if steals {
            steal(bytes, unit, starts, &cipher);
        }
    }
}

/// Passes masked pieces of units through the cipher, adds their masks again, and stores the results in
/// `places`.
#[inline(always)]
fn pass<N: ArraySize>(
    batch: &mut Aligned<[Piece<Block>; PIECES]>,
    places: &mut [&mut [Block]],
    masks: &Aligned<[Piece<Mask>; PIECES]>,
    cipher: impl Fn(&mut Array<Block, N>),
) {
    let blocks = batch.0.as_flattened_mut();
    many(blocks.get_mut(..places.len() * LANES).unwrap_or_default(), cipher);
    for ((blocks, place), masks) in batch.0.iter().zip(places).zip(&masks.0) {
        match place.first_chunk_mut::<LANES>() {
            Some(place) => add(place, blocks, masks.as_bytes()),
            None => add(place, blocks, masks.as_bytes()),
        }
    }
}

/// Finishes units whose length is no multiple of a block (ciphertext stealing). Their whole blocks are done.
/// The partial block takes its missing bytes from the last whole block, which passes the cipher again.
#[inline(always)]
fn steal<N: ArraySize>(
    bytes: &mut [u8],
    unit: usize,
    masks: &[Block],
    cipher: impl Fn(&mut Array<Block, N>),
) {
    let mut blocks = [Block::default(); UNITS];
    for (block, unit) in blocks.iter_mut().zip(bytes.chunks_mut(unit)) {
        let (whole, part) = Block::slice_as_chunks_mut(unit);
        if let Some(last) = whole.last() {
            *block = *last;
        }
        if let Some(begin) = block.get_mut(..part.len()) {
            begin.swap_with_slice(part);
        }
    }
    let masked = blocks;
    add(&mut blocks, &masked, Array::slice_as_flattened(masks));
    many(blocks.get_mut(..masks.len()).unwrap_or_default(), cipher);
    let masked = blocks;
    add(&mut blocks, &masked, Array::slice_as_flattened(masks));
    for (block, unit) in blocks.iter().zip(bytes.chunks_mut(unit)) {
        if let Some(last) = Block::slice_as_chunks_mut(unit).0.last_mut() {
            *last = *block;
        }
    }
}

/// Passes blocks through the cipher.
#[inline(always)]
fn many<N: ArraySize>(blocks: &mut [Block], cipher: impl Fn(&mut Array<Block, N>)) {
    let (arrays, rest) = Array::slice_as_chunks_mut(blocks);
    arrays.iter_mut().for_each(&cipher);
    if !rest.is_empty() {
        // The cipher takes N blocks in a call, so unused blocks fill the array. N blocks in one call take no
        // longer than two single blocks.
        let mut blocks = Array::<Block, N>::default();
        blocks.iter_mut().zip(rest.iter()).for_each(|(block, wanted)| *block = *wanted);
        cipher(&mut blocks);
        rest.iter_mut().zip(&blocks).for_each(|(block, done)| *block = *done);
    }
}

/// Adds masks to blocks in GF(2^128). This addition is an XOR.
#[inline(always)]
fn add(to: &mut [Block], from: &[Block], masks: &[u8]) {
    let (to, from) = (Array::slice_as_flattened_mut(to), Array::slice_as_flattened(from));
    to.iter_mut().zip(from).zip(masks).for_each(|((to, from), mask)| *to = from ^ mask);
}

impl BlockSizeUser for Units<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Units<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, cipher: &B) {
        self.run(Direction::Encrypt, |blocks| cipher.encrypt_par_blocks_inplace(blocks));
    }
}

impl BlockCipherDecClosure for Units<'_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, cipher: &B) {
        self.run(Direction::Decrypt, |blocks| cipher.decrypt_par_blocks_inplace(blocks));
    }
}

/// The masks of a unit. Each mask is the previous mask multiplied by x in GF(2^128) (IEEE 1619 5.2).
struct Chain {
    low: u64,
    high: u64,
}

impl Chain {
    #[inline(always)]
    fn new(start: &Block) -> Self {
        let start = u128::from_le_bytes(start.0);
        Self { low: start as u64, high: (start >> 64) as u64 }
    }

    /// Writes the masks of the next blocks to `masks`.
    #[inline(always)]
    fn next(&mut self, masks: &mut Piece<Mask>) {
        let Self { low, high } = *self;
        for (mask, power) in masks.iter_mut().zip(0_u64..) {
            // With a power of 0, all 64 bits of the half are shifted out. Rust allows no single shift by 64
            // bits, so there are two shifts.
            let over = |half: u64| half >> 1 >> (63 - power);
            *mask = [low << power ^ reduced(over(high)), high << power | over(low)].map(U64::new);
        }
        self.low = low << LANES ^ reduced(high >> (64 - LANES));
        self.high = high << LANES | low >> (64 - LANES);
    }

    /// Returns the mask for the second pass of the last whole block (see [`steal`]). `masks` are the last
    /// computed masks, of which `count` belong to whole blocks. Decryption uses the last two masks in the
    /// other order.
    #[inline(always)]
    fn split(&self, masks: &mut Piece<Mask>, count: usize, direction: Direction) -> Block {
        let behind = [self.low, self.high];
        let mut second = masks.get(count).copied().unwrap_or(behind.map(U64::new));
        if direction == Direction::Decrypt
            && let Some(last) = count.checked_sub(1).and_then(|last| masks.get_mut(last))
        {
            mem::swap(last, &mut second);
        }
        Array(zerocopy::transmute!(second))
    }
}

/// Reduces the bits of a product above the 128th, `over`, modulo x^128 + x^7 + x^2 + x + 1, and returns the
/// result.
const fn reduced(over: u64) -> u64 {
    over ^ over << 1 ^ over << 2 ^ over << 7
}

/// Returns whether `job` bytes can be processed in units of `unit` bytes: by the rule for job sizes (man page
/// `mlx5dv_wr_set_mkey_crypto`), and with at least 16 bytes in the last unit.
pub fn job_size_allowed(job: u64, unit: u32) -> bool {
    let unit = u64::from(unit);
    if unit < 16 {
        return false;
    }
    let rest = job % unit;
    rest == 0 || (job.is_multiple_of(16) && (16..=unit - 16).contains(&rest))
}

/// The reason why a wrapped key cannot be unwrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwrapError {
    /// RFC 3394 does not allow the length of the KEK or of the wrapped key.
    Length,
    /// The integrity check failed: another KEK has wrapped the key, or its bytes were changed.
    Integrity,
}

/// Unwraps a key with a KEK of 16 or 32 bytes (RFC 3394, default initial value).
///
/// # Errors
/// [`UnwrapError`] if a length is wrong or the integrity check fails.
pub fn unwrap_key(kek: &[u8], wrapped: &[u8]) -> Result<Wiped, UnwrapError> {
    let mut key = Wiped::from(vec![0; wrapped.len().saturating_sub(8)]);
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

/// Wraps a key for [`unwrap_key`]. Returns `None` for lengths that RFC 3394 does not allow.
pub fn wrap_key(kek: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let mut wrapped = vec![0; plain.len() + 8];
    leaving_nothing(|| match kek.len() {
        16 => KwAes128::new_from_slice(kek).ok()?.wrap_key(plain, &mut wrapped).map(drop).ok(),
        32 => KwAes256::new_from_slice(kek).ok()?.wrap_key(plain, &mut wrapped).map(drop).ok(),
        _ => None,
    })?;
    Some(wrapped)
}

/// The number of bytes of stack to wipe. Work with a key uses less than half of them.
const STACK_BYTES: usize = 24 << 10;

/// Runs `work`, which uses a key, then overwrites the stack below the current frame. The expansion and the
/// move of a key leave copies on the stack that no destructor wipes.
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
        // The expected ciphertext is not the ciphertext of vector 5, because the plaintext of vector 5 is the
        // ciphertext of vector 4 (DEVICE.md, "Tweaks").
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
            // The stream has more units than the engine processes together.
            let mut want: Vec<u8> = (0..length * (UNITS + 3)).map(|i| (i * 7) as u8).collect();
            let plain = want.clone();
            let mut got = want.clone();
            for (unit, tweak) in want.chunks_mut(length).zip(99u128..) {
                reference.encrypt_sector(unit, Array(tweak.to_le_bytes()));
            }
            let xts = Engine::<Aes256>::new(&key[..32], &key[32..]).unwrap();
            xts.units(Direction::Encrypt, &mut got, length, 99, 1);
            assert!(got == want, "{length}");
            xts.units(Direction::Decrypt, &mut got, length, 99, 1);
            assert!(got == plain, "{length}");
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
