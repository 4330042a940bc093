//! Finds out two values that only libmlx5 (the reference) knows: the index of its DEK, and address and key of
//! the opaque buffer that memory copies name. libmlx5 posts a request with each, from which the value is
//! read.

use super::case::{self, Work};
use super::compare::word;
use super::ffi;
use super::queues::{self, capacity};
use crate::request::{Flags, Request};
use libmlx5::{Device, RefMkey, RefQueue};
use mlx5_mkey::types::{DekId, Key};
use mlx5_mkey::wqe::Local;
use std::io;
use std::rc::Rc;

/// Makes libmlx5 post a request on a new queue pair, and returns the ring.
fn ring_with(device: &Rc<Device>, has_crypto: bool, work: Work) -> io::Result<Vec<u8>> {
    let mkey = RefMkey::create(device, false, has_crypto, 4)?;
    let mut queue = RefQueue::create(device, capacity(64, queues::INLINE[0], queues::SGES[0]))?;
    match ffi::issue(&mut queue, 0, &[(Flags::default(), work)], &mkey) {
        0 => Ok(queue.ring()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Makes libmlx5 configure an mkey for encryption, and reads the index of the DEK from the request.
pub(super) fn learn_dek(device: &Rc<Device>) -> io::Result<DekId> {
    let ring = ring_with(device, true, Work::Configure(case::crypto_only(DekId::default())))?;
    // The crypto BSF is the last block of the request. The DEK is at its byte 32.
    let end = usize::from(ring[7] & 0x3f) * 16;
    Ok(DekId::from_low_bits(word(&ring, end - 64 + 32)))
}

/// Makes libmlx5 copy memory, and reads address and key of its opaque buffer from the request.
pub(super) fn learn_opaque(device: &Rc<Device>) -> io::Result<Local> {
    let nothing = Local { address: 0, lkey: Key::from_raw(0) };
    let ring = ring_with(device, false, Work::Plain(Request::Memcpy(nothing, nothing, 1)))?;
    let address = u64::from(word(&ring, 24)) << 32 | u64::from(word(&ring, 28));
    Ok(Local { address, lkey: Key::from_raw(word(&ring, 20)) })
}
