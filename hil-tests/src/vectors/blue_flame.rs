//! The library's BlueFlame doorbell over ordinary memory instead of the device's register. The memory keeps
//! the bytes that the doorbell writes, so that they can be compared.

#![allow(unsafe_code)]

use super::format::{Chain, Hex, Qp, WqeSpec};
use crate::request::{Objects, Request};
use crate::way::Way;
use mlx5_mkey::queue::{
    BlueFlame, Doorbell, DoorbellRecord, LastRequest, SendQueue, SendQueueConfig, SendSlot,
};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::Wqebb;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of each of the two halves of a BlueFlame register, in bytes. It is the same in all recordings.
const HALF: usize = 256;
const WORD: usize = size_of::<u64>();
const WORDS: usize = 2 * HALF / WORD;

/// The byte that fills the memory before the doorbell writes.
const PATTERN: u8 = 0x5a;

/// The memory in place of the BlueFlame register.
#[repr(align(64))]
pub(super) struct Page([AtomicU64; WORDS]);

impl Page {
    pub(super) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// Returns a doorbell for the queue pair, whose next write is to the half at `offset`. Returns `None` if
    /// the recorded queue pair has no BlueFlame register of this size.
    pub(super) fn register(&self, qp: &Qp, offset: usize) -> Option<Register<'_>> {
        if qp.bf.uuarn == 0 || qp.bf.buf_size != HALF {
            return None;
        }
        // SAFETY: the page has two halves, aligned to 64 bytes, of atomic words. The returned value borrows
        // them. No device reads the page.
        let doorbell = unsafe { BlueFlame::new(NonNull::from(&self.0).cast(), HALF) };
        let mut register = Register { doorbell, page: PhantomData };
        if self.next(&mut register) != Some(offset) {
            register.ring();
        }
        self.clear();
        Some(register)
    }

    /// Returns the offset of the half to which the doorbell writes next. The function rings the doorbell once
    /// to see the offset, and once more so that the next half is the same as before.
    pub(super) fn next(&self, register: &mut Register<'_>) -> Option<usize> {
        self.clear();
        register.ring();
        let begin = self.bytes().iter().position(|byte| *byte != PATTERN);
        register.ring();
        begin
    }

    fn clear(&self) {
        let word = u64::from_ne_bytes([PATTERN; WORD]);
        self.0.iter().for_each(|place| place.store(word, Ordering::Relaxed));
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    /// Compares the bytes that the library's doorbell has written for a chain with the bytes that libmlx5
    /// wrote. If libmlx5 wrote only 8 bytes because the queue does not prefer BlueFlame, the library must
    /// have written the whole request.
    ///
    /// # Errors
    /// A description of the difference.
    pub(super) fn compare(&self, qp: &Qp, chain: &Chain) -> Result<Written, String> {
        let result = &chain.result;
        let rung = result.doorbell.as_ref().ok_or("nothing was rung for")?;
        let last = result.wqes.last().ok_or("rung for no request")?;
        let written = match rung.kind.as_str() {
            "blueflame" => Written::Request,
            // Without `prefer_bf`, libmlx5 copies only requests with inline data to the register. libmlx5
            // treats UMRs as requests with inline data.
            "ctrl8" if qp.bf.prefer_bf == 0 && result.wqes.len() == 1 && fits(last) => Written::Preferred,
            "ctrl8" => Written::Control,
            other => return Err(format!("recorded is a doorbell of a kind {other}")),
        };
        let mut expected: Vec<Option<u8>> = vec![Some(PATTERN); 2 * HALF];
        let bytes = if written == Written::Control {
            let Hex(bytes) = rung.hex.clone().unwrap_or_default();
            bytes.into_iter().map(Some).collect()
        } else {
            request(chain, last)?
        };
        if rung.len.is_some_and(|len| written == Written::Request && len != bytes.len()) {
            return Err(format!("{} bytes, recorded are {:?}", bytes.len(), rung.len));
        }
        let place = expected.get_mut(rung.offset..rung.offset + bytes.len());
        place.ok_or("recorded behind the register's end")?.copy_from_slice(&bytes);
        for (offset, (ours, theirs)) in self.bytes().into_iter().zip(expected).enumerate() {
            if let Some(theirs) = theirs.filter(|theirs| ours != *theirs) {
                return Err(format!("register, byte {offset}: {ours:#x}, the reference has {theirs:#x}"));
            }
        }
        Ok(written)
    }
}

/// The bytes that the library's doorbell must have written to the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The first 8 bytes of the last request, as libmlx5 writes them.
    Control,
    /// The whole request, as libmlx5 writes it.
    Request,
    /// The whole request, although libmlx5 writes only its first 8 bytes: the queue does not prefer
    /// BlueFlame.
    Preferred,
}

/// Returns whether the request has more than a control segment and fits into a half of the register.
fn fits(wqe: &WqeSpec) -> bool {
    wqe.ds > 1 && wqe.ds * 16 <= HALF
}

/// Returns the recorded bytes of a request, with `None` for bytes that libmlx5 does not write.
fn request(chain: &Chain, wqe: &WqeSpec) -> Result<Vec<Option<u8>>, String> {
    let blocks = chain.result.bbs.iter().skip_while(|block| block.bb != wqe.bb).take(wqe.n_bb);
    let mut bytes = Vec::new();
    for block in blocks {
        let is_free =
            |at: usize| block.untouched.iter().any(|&(start, len)| (start..start + len).contains(&at));
        bytes.extend(block.hex.0.iter().enumerate().map(|(at, byte)| (!is_free(at)).then_some(*byte)));
    }
    if bytes.len() == wqe.n_bb * size_of::<Wqebb>() { Ok(bytes) } else { Err("blocks are missing".into()) }
}

/// A BlueFlame doorbell that writes to a [`Page`].
pub(super) struct Register<'p> {
    doorbell: BlueFlame,
    page: PhantomData<&'p Page>,
}

impl Register<'_> {
    /// Posts a request of one octoword to a queue made for it, and rings the doorbell, which then writes 8
    /// bytes.
    fn ring(&mut self) {
        let (mut ring, mut slots, record) = ([Wqebb::ZERO], SendSlot::array::<1>(), DoorbellRecord::new());
        let config = SendQueueConfig::new(Qpn::from_low_bits(1));
        let mut queue =
            SendQueue::new(config, &mut ring, &mut slots, &record, self).expect("a ring of a block");
        let mut poster = Way::Request.open(&mut queue);
        Request::Nop.perform(poster.request(0), Objects::none()).expect("a block is free");
        poster.publish();
    }
}

impl Doorbell for Register<'_> {
    fn ring(&mut self, last: &LastRequest<'_>) {
        self.doorbell.ring(last);
    }
}
