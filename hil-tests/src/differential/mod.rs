//! Random requests, issued by the installed libmlx5 and by the library: compared byte by byte, then executed.
//!
//! The reference writes into the ring of a queue pair that its device does not execute; the library into an array, with
//! the same numbers and limits. What the reference keeps to itself, the numbers of an mkey's PSVs and of the DEK and the opaque buffer
//! of copies, is read from what it wrote first, and must stay the same from then on.
//!
//! Then both rings are copied as they stand to software devices that were alike so far, and must be alike afterwards
//! (`execute`). The completions go back to the reference's completion queue and to one of the library's, which frees room
//! in the rings and tells both sides of signature errors; what they say of them must be the same.
//!
//! The library's queue is made with the reference's limits, or without one or both of them; each chain is posted in one of the
//! ways (`way.rs`), in a ring of each size that libmlx5 makes.
//!
//! A memory window of type 2 is bound over memory that is there, data is moved by its key, and it is revoked; others have random keys,
//! which both devices refuse.
//!
//! Not drawn, since libmlx5 is no peer for it here: completion entries of 128 bytes and time stamps (the entries that both sides poll
//! are the software devices' own, of 64 bytes, whose clocks nobody compares: units and scenarios do), and BlueFlame (the reference rings in a page of
//! the stand-in that keeps nothing: the vectors `blueflame` are replayed byte for byte).
//!
//! Not reached: what differs on purpose (`vectors/DIFFERENCES.md`; sums of lengths over 2^31). Chains that
//! both sides refuse are not compared further: the mkey is then made anew.

mod case;
mod check;
mod compare;
mod counting;
mod coverage;
mod execute;
mod ffi;
mod pair;
mod polling;
mod post;
mod queues;
mod refusal;
mod session;

use crate::request::{Flags, Request};
use case::{Kind, Work};
use compare::word;
pub use coverage::{Coverage, OfWay, Tally};
use execute::Twins;
use libmlx5::abi::QpCap;
use libmlx5::{Device, RefMkey, RefQueue};
use mlx5_mkey::types::{DekId, Key};
use mlx5_mkey::wqe::Local;
use session::Session;
use std::io;
use std::rc::Rc;

/// The device that is opened: that of the stand-in.
const DEVICE: &str = "mlx5_0";
/// Bytes that the reference's ring holds before a chain.
const PATTERN: u8 = 0xcc;
/// Smallest and largest ring of the reference, in blocks: a power of two.
const MIN_BLOCKS: usize = 4;
const MAX_BLOCKS: usize = 1 << 15;
/// Sizes of rings.
const SIZES: usize = (MAX_BLOCKS / MIN_BLOCKS).ilog2() as usize + 1;
/// Entries that the completion queue of the reference is asked for.
const ENTRIES: u16 = 1000;
/// Completions that are taken at once, at most.
const COMPLETIONS: usize = 512;

/// Runs chains until `count` configurations have been tried, on a device whose engine takes one data unit, or many.
///
/// # Errors
/// What the installed libraries could not do.
pub fn run(count: u64, seed: u64, single_block: bool) -> io::Result<Tally> {
    let mut session = Session::new(seed, single_block)?;
    let mut pair = None;
    while session.tally.configurations < count {
        session.run_queue(count, &mut pair)?;
    }
    Ok(session.tally)
}

fn new_twins(single_block: bool, dek: DekId) -> io::Result<Twins> {
    use mlx5_softdev::XtsEngine;
    let engine = if single_block { XtsEngine::SingleBlock } else { XtsEngine::MultiBlock };
    Twins::new(engine, dek, &libmlx5::DEK_KEY)
}

/// Has the reference configure an mkey for encryption and reads the number of the DEK from it.
fn learn_dek(device: &Rc<Device>) -> io::Result<DekId> {
    let kind = Kind { signature: false, crypto: true };
    let mkey = RefMkey::create(device, kind.signature, kind.crypto, 4)?;
    let mut queue = RefQueue::create(device, capacity(64, queues::INLINE[0], queues::SGES[0]))?;
    queue.fill(PATTERN);
    let chain = [(Flags::default(), Work::Configure(case::crypto_only(DekId::from_low_bits(0))))];
    let errno = ffi::issue(&mut queue, 0, &chain, &mkey);
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    let ring = queue.ring();
    // The crypto BSF is the last block of the request; the DEK stands at byte 32.
    let end = usize::from(ring[7] & 0x3f) * 16;
    Ok(DekId::from_low_bits(word(&ring, end - 64 + 32)))
}

/// Has the reference copy memory, and reads from that which opaque buffer it has for that.
fn learn_opaque(device: &Rc<Device>) -> io::Result<Local> {
    let mkey = RefMkey::create(device, false, false, 4)?;
    let mut queue = RefQueue::create(device, capacity(64, queues::INLINE[0], queues::SGES[0]))?;
    let nothing = Local { address: 0, lkey: Key::from_raw(0) };
    let copy = Work::Plain(Request::Memcpy(nothing, nothing, 1));
    let errno = ffi::issue(&mut queue, 0, &[(Flags::default(), copy)], &mkey);
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    let ring = queue.ring();
    let address = u64::from(word(&ring, 24)) << 32 | u64::from(word(&ring, 28));
    Ok(Local { address, lkey: Key::from_raw(word(&ring, 20)) })
}

/// What a queue pair is asked for.
fn capacity(max_send_wr: u32, max_inline_data: u32, max_send_sge: u32) -> QpCap {
    QpCap { max_send_wr, max_send_sge, max_inline_data, ..QpCap::default() }
}
