//! Searches all memory of this process for secrets.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a secret to search for, masked, so that the search does not find the needle itself.
pub struct Needle([u8; LENGTH]);

/// The length of a needle: the length of the shortest AES key. The round keys that a cipher computes from an
/// AES key begin with the key itself, so a needle finds the key and its round keys.
pub const LENGTH: usize = 16;
const MASK: u8 = 0xa5;
/// Bytes of memory that are searched at once.
const CHUNK: usize = 1 << 16;
const PAGE: usize = 1 << 12;
/// The most bytes of the list of this process's mappings.
const MAPS: usize = 1 << 20;
const PLACES: usize = 1 << 10;

impl Needle {
    /// Divides a secret into needles.
    pub fn of(secret: &[u8]) -> Vec<Self> {
        let masked = |part: &[u8]| Self(std::array::from_fn(|at| part[at] ^ MASK));
        secret.chunks_exact(LENGTH).map(masked).collect()
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        let first = self.0[0] ^ MASK;
        let candidates = bytes.windows(LENGTH).filter(|window| window[0] == first);
        let is_here = |window: &[u8]| window.iter().zip(&self.0).all(|(byte, masked)| byte ^ MASK == *masked);
        candidates.into_iter().any(is_here)
    }
}

/// Memory for a search, allocated before there is a secret. A later allocation could overwrite memory in
/// which a secret was left.
pub struct Scan {
    memory: File,
    maps: File,
    text: Vec<u8>,
    buffer: Vec<u8>,
    zeros: Vec<u8>,
    /// The numbers of the found needles, each with the address of the chunk that contains it.
    places: Vec<(usize, u64)>,
}

impl Scan {
    /// Opens the memory of this process, and allocates all room for searches.
    pub fn open() -> Self {
        let [memory, maps] = ["/proc/self/mem", "/proc/self/maps"].map(|path| File::open(path).unwrap());
        let [buffer, zeros] = [(); 2].map(|()| vec![0; CHUNK + LENGTH]);
        Self { memory, maps, text: vec![0; MAPS], buffer, zeros, places: Vec::with_capacity(PLACES) }
    }

    /// Searches this process's memory for the needles. Returns the numbers of the found needles, each with
    /// the address of the chunk that contains it.
    pub fn find(&mut self, needles: &[Needle]) -> &[(usize, u64)] {
        let Self { memory, maps, text, buffer, zeros, places } = self;
        places.clear();
        let mut length = 0;
        loop {
            match maps.read_at(&mut text[length..], length as u64).unwrap() {
                0 => break,
                more => length += more,
            }
        }
        assert!(length < MAPS, "more areas than there is room for");
        for line in std::str::from_utf8(&text[..length]).unwrap().lines() {
            if !line.contains(" rw") || line.contains("/dev/") {
                continue;
            }
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [from, to] = [from, to].map(|end| u64::from_str_radix(end, 16).unwrap());
            for at in (from..to).step_by(CHUNK) {
                let bytes = &mut buffer[..usize::try_from(to - at).unwrap().min(CHUNK + LENGTH)];
                if memory.read_exact_at(bytes, at).is_err() {
                    // Some pages cannot be read, such as pages after the end of a mapped file.
                    for (page, at) in bytes.chunks_mut(PAGE).zip((at..).step_by(PAGE)) {
                        if memory.read_exact_at(page, at).is_err() {
                            page.fill(0);
                        }
                    }
                }
                // Most chunks are all zeros, and contain no needle.
                if bytes == &zeros[..bytes.len()] {
                    continue;
                }
                let found = (0..).zip(needles).filter(|(_, needle)| needle.is_in(bytes));
                let room = PLACES - places.len();
                places.extend(found.map(|(number, _)| (number, at)).take(room));
                // Later steps of the search must not find this buffer's copy of the needle.
                buffer.fill(0);
            }
        }
        places
    }

    /// Panics if a needle is left in memory.
    #[track_caller]
    pub fn expect_gone(&mut self, needles: &[Needle]) {
        let places = self.find(needles);
        assert!(places.is_empty(), "parts that are left, and where: {places:x?}");
    }
}

/// Fills `secret` in place with bytes that no earlier call returned.
pub fn fill(secret: &mut [u8]) {
    static SEED: AtomicU64 = AtomicU64::new(0);
    let seed = SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let mut state = u64::from(std::process::id()) << 32 ^ seed | 1;
    for byte in secret {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 24) as u8;
    }
}
