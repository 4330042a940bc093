//! Random requests, posted by the installed libmlx5 and by the library. Their bytes are compared, then
//! executed.
//!
//! The reference writes into the ring of a queue pair that its device does not execute. The library writes
//! into an array, with the same numbers and limits. Some numbers only the reference knows: PSVs of an mkey,
//! the DEK, and the opaque buffer of copies. The library takes them from the first request of the reference
//! that contains them; in later requests they must stay the same.
//!
//! Both rings are then copied to two software devices, which were equal so far and must be equal afterwards
//! (`execute`). Their completions go to the reference's completion queue and to one of the library. They free
//! room in the rings and report signature errors; both sides must report the same.
//!
//! The library's queue has the reference's limits, or lacks one or both of them. Each chain is posted by one
//! of the methods of `way.rs`, in a ring of each size that libmlx5 creates.
//!
//! A memory window of type 2 is bound to a region, moves data, and is revoked. Other bindings have random
//! keys, which both devices refuse.
//!
//! Excluded, because libmlx5 is no peer for them here: completion entries of 128 bytes and timestamps (both
//! sides poll entries of 64 bytes that the software devices wrote; unit tests and scenarios cover the rest),
//! and BlueFlame (the register of the stand-in keeps nothing; the vectors `blueflame` cover it byte by byte).
//!
//! Also excluded: deliberate differences (`vectors/DIFFERENCES.md`, sums of lengths over 2^31). After a chain
//! that both sides refuse, nothing is compared and the mkey is created anew.

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

/// The device of the stand-in.
const DEVICE: &str = "mlx5_0";
/// The fill byte of the reference's ring.
const PATTERN: u8 = 0xcc;
/// The smallest and the largest ring of the reference, in blocks (powers of two).
const MIN_BLOCKS: usize = 4;
const MAX_BLOCKS: usize = 1 << 15;
/// Number of ring sizes.
const SIZES: usize = (MAX_BLOCKS / MIN_BLOCKS).ilog2() as usize + 1;
/// Entries that the reference requests for its completion queue.
const ENTRIES: u16 = 1000;
/// The most completions that are taken at once.
const COMPLETIONS: usize = 512;

/// Runs chains until `count` configurations were tried. With `single_block` the engine of the device
/// processes single data units.
///
/// # Errors
/// An error of the installed libraries.
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

/// Makes the reference configure an mkey for encryption, and reads the index of the DEK from the request.
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
    // The crypto BSF is the last block of the request. The DEK is at its byte 32.
    let end = usize::from(ring[7] & 0x3f) * 16;
    Ok(DekId::from_low_bits(word(&ring, end - 64 + 32)))
}

/// Makes the reference copy memory, and reads its opaque buffer from the request.
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

/// Returns the capacity that a queue pair requests.
fn capacity(max_send_wr: u32, max_inline_data: u32, max_send_sge: u32) -> QpCap {
    QpCap { max_send_wr, max_send_sge, max_inline_data, ..QpCap::default() }
}
