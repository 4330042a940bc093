//! Copies in memory, without a peer.

use super::control::{self, ControlFields};
use super::data_path::Local;
use crate::error::PostError;
use crate::wire::ctrl::{Opcode, OpcodeWord};
use crate::wire::data::{DataSegment, MmoMetadataSegment};
use crate::wire::{Block, OCTOWORD_BYTES, blocks_of};
use zerocopy::big_endian::{U32, U64};
use zerocopy::transmute;

/// What a send queue has to know to copy memory (`mlx5dv_wr_memcpy`).
///
/// ```
/// use mlx5_mkey::command::GeneralCapabilities;
/// use mlx5_mkey::queue::SendQueueConfig;
/// use mlx5_mkey::wqe::{Local, MemcpyConfig};
/// /// For a queue pair that was allowed to copy (`command::Init2Init`), if the device has copies at all.
/// fn with_memcpy(config: SendQueueConfig, device: &GeneralCapabilities, opaque: Local) -> SendQueueConfig {
///     let most = device.log_max_memcpy_bytes();
///     let memcpy = most.map(|log_max_bytes| MemcpyConfig { opaque, log_max_bytes });
///     SendQueueConfig { memcpy, ..config }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MemcpyConfig {
    /// The opaque buffer: [`MemcpyConfig::OPAQUE_BYTES`] of memory with local writing, where the device may
    /// write its report of a copy. Nobody reads it; all queue pairs of a protection domain may share one.
    pub opaque: Local,
    /// Logarithm of the longest copy in bytes; over 31 it counts as 31.
    pub log_max_bytes: u8,
}

impl MemcpyConfig {
    /// Bytes of the opaque buffer, which is aligned to as many (rdma-core `MLX5_OPAQUE_BUF_LEN`).
    pub const OPAQUE_BYTES: usize = 64;

    /// The longest copy of any device: the data segments have 31 bits for the length, and 0 stands for this.
    const MAX_LOG_BYTES: u8 = 31;
}

/// A copy: one block.
#[derive(Clone, Copy)]
pub(crate) struct Memcpy {
    opaque: Local,
    to: Local,
    from: Local,
    bytes: u32,
}

impl Memcpy {
    /// Control, metadata, source, target.
    pub(crate) const OCTOWORDS: usize = 4;
    pub(crate) const BLOCKS: usize = blocks_of(Self::OCTOWORDS);

    /// Takes a copy that the queue pair may post.
    ///
    /// # Errors
    /// [`PostError::MemcpyUnsupported`], [`PostError::MemcpyEmpty`], [`PostError::MemcpyTooLong`].
    pub(crate) const fn new(
        config: Option<MemcpyConfig>,
        to: Local,
        from: Local,
        bytes: u32,
    ) -> Result<Self, PostError> {
        let Some(MemcpyConfig { opaque, log_max_bytes }) = config else {
            return Err(PostError::MemcpyUnsupported);
        };
        let most = MemcpyConfig::MAX_LOG_BYTES;
        let log_max = if log_max_bytes > most { most } else { log_max_bytes };
        if bytes == 0 {
            Err(PostError::MemcpyEmpty)
        } else if bytes > 1 << log_max {
            let mebibytes = bytes.div_ceil(1 << 20) as u16;
            Err(PostError::MemcpyTooLong { mebibytes, log_max })
        } else {
            Ok(Self { opaque, to, from, bytes })
        }
    }

    /// Writes it.
    pub(crate) fn write(&self, blocks: &mut [Block], fields: ControlFields) {
        let Some([control, metadata, source, target]) = blocks.first_mut() else { return };
        control::write(control, Opcode::MMO, Self::OCTOWORDS, fields, 0);
        let [opmod, ..] = control;
        *opmod = OpcodeWord::OPMOD_MEMCPY;
        let Local { address, lkey } = self.opaque;
        *metadata = transmute!(MmoMetadataSegment {
            control: U32::ZERO,
            opaque_lkey: U32::new(lkey.get()),
            opaque_address: U64::new(address),
        });
        *source = self.segment(self.from);
        *target = self.segment(self.to);
    }

    fn segment(&self, place: Local) -> [u8; OCTOWORD_BYTES] {
        transmute!(DataSegment {
            byte_count: U32::new(self.bytes & DataSegment::MAX_BYTES),
            lkey: U32::new(place.lkey.get()),
            address: U64::new(place.address),
        })
    }
}
