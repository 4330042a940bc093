//! Doorbells of queues that no device reads.

use alloc::vec::Vec;
use mlx5_mkey::queue::{CqDoorbell, Doorbell, LastRequest};

/// A doorbell without effect.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: &LastRequest<'_>) {}
}

impl CqDoorbell for Silent {
    fn ring(&mut self, _: [u8; 4]) {}
}

/// A doorbell that records, each time it is rung, the first 8 bytes of the last request's control segment.
#[derive(Clone, Debug, Default)]
pub struct Recorder(pub Vec<[u8; 8]>);

impl Doorbell for Recorder {
    fn ring(&mut self, last: &LastRequest<'_>) {
        self.0.push(last.control());
    }
}
