//! Finds out two values that only libmlx5 (the reference) knows: the index of its DEK, and address and key of
//! the opaque buffer that memory copies name. libmlx5 posts a request with each, from which the value is
//! read.

use super::case::{self, Kind, Work};
use super::compare::word;
use super::ffi;
use super::queues::{self, capacity};
use super::sizes::PATTERN;
use crate::request::{Flags, Request};
use libmlx5::{Device, RefMkey, RefQueue};
use mlx5_mkey::types::{DekId, Key};
use mlx5_mkey::wqe::Local;
use std::io;
use std::rc::Rc;

/// Makes libmlx5 configure an mkey for encryption, and reads the index of the DEK from the request.
pub(super) fn learn_dek(device: &Rc<Device>) -> io::Result<DekId> {
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

/// Makes libmlx5 copy memory, and reads address and key of its opaque buffer from the request.
pub(super) fn learn_opaque(device: &Rc<Device>) -> io::Result<Local> {
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
