//! Encodes requests into blocks of 64 bytes, and checks the caller's values while writing them. All functions
//! are pure: they have no I/O and no state.
//!
//! The number of a request's blocks is known before its first byte is written. The caller reserves the blocks
//! in a ring and passes them as a slice.
//!
//! ```
//! use mlx5_mkey::error::PostError;
//! use mlx5_mkey::mkey::{KlmEntry, Mkey, MkeyAttributes, MkeyKind};
//! use mlx5_mkey::queue::{Doorbell, SendQueue};
//! use mlx5_mkey::types::Key;
//! use mlx5_mkey::wqe::{PreparedConfig, Remote, RequestSize, Sge};
//!
//! const KIND: MkeyKind = MkeyAttributes::plain(Key::from_raw(0), 4).kind();
//! /// The blocks that `write` takes of a ring.
//! const SIZE: RequestSize = RequestSize::configure_mkey(&KIND, 4, 0).and(RequestSize::rdma(1));
//! assert_eq!(SIZE.blocks, 4);
//!
//! /// Lays an mkey over four pages, and writes all of it to the peer.
//! fn write<D: Doorbell>(
//!     queue: &mut SendQueue<'_, D>,
//!     mkey: &mut Mkey,
//!     prepared: &PreparedConfig,
//!     pages: &[KlmEntry; 4],
//!     remote: Remote,
//! ) -> Result<(), PostError> {
//!     queue.request(1).configure_mkey(mkey, prepared, pages)?;
//!     let all = Sge { address: 0, length: 4 * 4096, lkey: mkey.key() };
//!     queue.request(2).signaled().rdma_write(remote, &[all])
//! }
//! ```

// Functions have at most 50 lines (.clippy.toml), except in tests.
#![cfg_attr(not(test), deny(clippy::too_many_lines))]

pub(crate) mod bsf;
pub(crate) mod control;
pub(crate) mod data_path;
pub(crate) mod error;
pub(crate) mod invalidate;
pub(crate) mod layout;
pub(crate) mod lists;
pub(crate) mod masked_atomic;
pub(crate) mod memcpy;
pub(crate) mod prepared;
pub(crate) mod raw;
pub(crate) mod size;
pub(crate) mod umr;
pub(crate) mod window;

pub use data_path::{Local, Payload, Remote, Sge};
pub use layout::AnyLayout;
pub use masked_atomic::MaskedAtomic;
pub use memcpy::MemcpyConfig;
pub use prepared::PreparedConfig;
pub use size::RequestSize;
