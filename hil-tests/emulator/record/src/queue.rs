//! The queue pair whose requests are recorded, and the properties of its device.

use mlx5_mkey::inspect::{DeviceContext, QueueKind};
use mlx5_mkey::mkey;
use mlx5_softdev::{CryptoMode, DeviceProfile, Transport, XtsEngine};

/// Returns the properties of a device on which the findings of `inspect` depend.
pub const fn context(profile: &DeviceProfile) -> DeviceContext {
    let engine = match profile.xts {
        _ if matches!(profile.crypto, CryptoMode::None) => None,
        XtsEngine::SingleBlock => Some(mkey::XtsEngine::SingleBlock),
        XtsEngine::MultiBlock => Some(mkey::XtsEngine::MultiBlock),
        XtsEngine::MultiBlockLittleEndian => Some(mkey::XtsEngine::MultiBlockLittleEndian),
    };
    DeviceContext { engine, ..DeviceContext::UNKNOWN }
}

/// A queue pair whose requests are logged.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// The number of the queue pair.
    pub number: u32,
    /// The transport of the queue pair.
    pub transport: Transport,
    /// The properties of the device on which the findings of `inspect` depend.
    pub device: DeviceContext,
}

impl Queue {
    #[cfg(test)]
    pub(crate) const fn connected(number: u32) -> Self {
        Self { number, transport: Transport::ReliableConnection, device: DeviceContext::UNKNOWN }
    }

    /// Returns the kind of the queue.
    pub const fn kind(&self) -> QueueKind {
        match self.transport {
            Transport::UnreliableDatagram => QueueKind::Datagram,
            _ => QueueKind::Connected,
        }
    }

    /// Returns the name of the queue's kind for `--queue` of `cargo xtask decode`. The name is empty for a
    /// connected queue pair, the most common kind.
    pub const fn kind_name(&self) -> &'static str {
        match self.transport {
            Transport::UnreliableDatagram => "ud",
            _ => "",
        }
    }
}
