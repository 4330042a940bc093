//! The properties that a user gives an mkey, in types without invalid values, and the state that the device
//! holds for an mkey.
//!
//! An mkey presents scattered memory as one contiguous space that starts at 0. [`MkeyConfig`] contains
//! changes of an mkey's access rights, signature and crypto properties. [`Layout`] names the memory that the
//! mkey maps. Each part is optional: a part that a request leaves out stays in force (man page
//! `mlx5dv_wr_mkey_configure`).
//!
//! ```
//! use mlx5_mkey::mkey::{
//!     Access, BlockSignature, Domain, KlmEntry, Layout, Mkey, MkeyAttributes, MkeyConfig, Signature,
//!     SignatureAttributes, SignatureChange,
//! };
//! use mlx5_mkey::types::{BlockSize, Key, PsvIndex, Seed};
//!
//! // An mkey with room for 4 entries and with signatures, which take two PSVs.
//! let psvs = SignatureAttributes::new(PsvIndex::new(1)?, PsvIndex::new(2)?);
//! let plain = MkeyAttributes::plain(Key::from_raw(0x1234_00), 4);
//! let mkey = Mkey::new(MkeyAttributes { signature: Some(psvs), ..plain });
//! // The peer may read, and sees a CRC32C after each 512 bytes.
//! let wire = Domain { signature: Signature::Crc32c(Seed::Ones), block_size: BlockSize::B512 };
//! let config = MkeyConfig {
//!     access: Some(Access::REMOTE_READ),
//!     signature: SignatureChange::Set(BlockSignature::wire(wire)),
//!     ..MkeyConfig::UNCHANGED
//! };
//! // Two ranges of registered memory are one space of 4096 bytes, and 4128 bytes on the wire.
//! let key = Key::from_raw(0x5600);
//! let entries = [0x1_0000, 0x9_0000].map(|address| KlmEntry { address, length: 2048, key });
//! let layout = Layout::from(&entries);
//! assert_eq!(BlockSignature::wire(wire).wire_bytes(4096), Some(4128));
//! # Ok::<(), mlx5_mkey::types::OutOfRange>(())
//! ```

// Functions have at most 50 lines (.clippy.toml), except in tests.
#![cfg_attr(not(test), deny(clippy::too_many_lines))]

mod access;
mod attributes;
mod combine;
mod config;
mod crypto;
mod digest;
pub(crate) mod error;
mod fields;
mod ksm;
mod layout;
mod plan;
mod registered_list;
mod signature;
mod signature_error;
mod state;
mod window;

pub use access::Access;
pub(crate) use attributes::{ConfigFlags, KindWord};
pub use attributes::{ErrorCount, MkeyAttributes, MkeyKind, SignatureAttributes, UmrForm};
pub use combine::{Crc32cCombine, Crc64Combine};
pub use config::{MkeyConfig, SignatureChange};
pub(crate) use crypto::units_can_be_encrypted;
pub use crypto::{
    Crypto, Direction, Keytag, SignatureOrder, XtsEngine, job_size_allowed, job_size_can_be_encrypted,
};
pub use digest::{Digest, DigestPart, DigestSpan};
pub(crate) use fields::FieldChanges;
pub use fields::RelaxedOrdering;
pub use ksm::KsmEntry;
pub use layout::{InterleavedEntry, KlmEntry, Layout};
pub(crate) use layout::{LayoutForm, LayoutKind};
pub(crate) use plan::{InForce, Plan};
pub use registered_list::RegisteredList;
pub use signature::{
    BlockSignature, Domain, Escape, Guard, Signature, SignatureCapabilities, T10Dif, check_mask,
};
pub use signature_error::{SignatureError, SignatureErrorKind, SignatureFault};
pub use state::Mkey;
pub use window::MemoryWindow;
