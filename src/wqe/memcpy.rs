//! Requests that copy within the memory of this side, without a peer.

use super::control::{self, ControlFields};
use super::data_path::Local;
use crate::wire::ctrl::{Opcode, OpcodeWord};
use crate::wire::data::{DataSegment, MmoMetadataSegment};
use crate::wire::{Block, blocks_of};
use crate::wqe::error::PostError;
use zerocopy::big_endian::{U32, U64};
use zerocopy::transmute;

/// The opaque buffer and the limit of a send queue's copies in memory (`mlx5dv_wr_memcpy`).
///
/// ```
/// use mlx5_mkey::command::GeneralCapabilities;
/// use mlx5_mkey::queue::SendQueueConfig;
/// use mlx5_mkey::wqe::{Local, MemcpyConfig};
/// /// Adds copies, if the device has them. The queue pair was allowed to copy (`command::Init2Init`).
/// fn with_memcpy(config: SendQueueConfig, device: &GeneralCapabilities, opaque: Local) -> SendQueueConfig {
///     let most = device.log_max_memcpy_bytes();
///     let memcpy = most.map(|log_max_bytes| MemcpyConfig { opaque, log_max_bytes });
///     SendQueueConfig { memcpy, ..config }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MemcpyConfig {
    /// The opaque buffer: [`MemcpyConfig::OPAQUE_BYTES`] of memory with local write access. The device may
    /// write its report of a copy into this buffer. Software ignores the report, so all queue pairs of a
    /// protection domain may share one buffer.
    pub opaque: Local,
    /// Base-2 logarithm of the longest copy in bytes. A value over 31 counts as 31.
    pub log_max_bytes: u8,
}

impl MemcpyConfig {
    /// Size and alignment of the opaque buffer in bytes (rdma-core `MLX5_OPAQUE_BUF_LEN`).
    pub const OPAQUE_BYTES: usize = 64;

    /// Base-2 logarithm of the longest copy that a data segment can describe: the length has 31 bits, and a
    /// length of 0 stands for 2^31.
    const MAX_LOG_BYTES: u8 = 31;
}

/// A copy in memory. The request takes one block.
#[derive(Clone, Copy)]
pub(crate) struct Memcpy {
    opaque: Local,
    to: Local,
    from: Local,
    bytes: u32,
}

impl Memcpy {
    /// Number of octowords of the request: control segment, metadata, source and target.
    pub(crate) const OCTOWORDS: usize = 4;
    pub(crate) const BLOCKS: usize = blocks_of(Self::OCTOWORDS);

    /// Checks a copy against the limits of the queue pair, and returns the request.
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

    /// Writes the request.
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
        let segment = |place: Local| place.sge(self.bytes & DataSegment::MAX_BYTES).to_wire();
        *source = transmute!(segment(self.from));
        *target = transmute!(segment(self.to));
    }
}
