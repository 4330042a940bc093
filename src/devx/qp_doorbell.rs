//! The doorbell of a queue pair, plain or with BlueFlame.

use crate::queue::{BlueFlame, Doorbell, LastRequest, UarDoorbell};

/// The doorbell of a queue pair. A plain doorbell writes 8 bytes to its register. The doorbell of a queue
/// pair that has a BlueFlame register ([`super::QueuePairSpec::blue_flame`]) can write a whole request.
#[derive(Debug)]
pub struct QpDoorbell(Kind);

#[derive(Debug)]
enum Kind {
    Register(UarDoorbell),
    BlueFlame(BlueFlame),
}

impl From<UarDoorbell> for QpDoorbell {
    fn from(doorbell: UarDoorbell) -> Self {
        Self(Kind::Register(doorbell))
    }
}

impl From<BlueFlame> for QpDoorbell {
    fn from(doorbell: BlueFlame) -> Self {
        Self(Kind::BlueFlame(doorbell))
    }
}

impl Doorbell for QpDoorbell {
    #[inline]
    fn ring(&mut self, last: &LastRequest<'_>) {
        match &mut self.0 {
            Kind::Register(doorbell) => doorbell.ring(last),
            Kind::BlueFlame(doorbell) => doorbell.ring(last),
        }
    }
}
