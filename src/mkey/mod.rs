//! The words: what a user asks an mkey to do, valid by construction, and what the device is known to hold for it.
//!
//! An mkey presents scattered memory as one contiguous space that starts at 0. [`MkeyConfig`] says what to change of its
//! access rights, block signature and crypto properties, and [`Layout`] which memory it maps. Each part is optional; what is not
//! given stays as it is (man page `mlx5dv_wr_mkey_configure`).

mod access;
mod attributes;
mod config;
mod crypto;
mod layout;
mod plan;
mod signature;
mod signature_error;
mod state;

pub use access::Access;
pub(crate) use attributes::KindWord;
pub use attributes::{ErrorCount, MkeyAttributes, MkeyKind, SignatureAttributes};
pub use config::{MkeyConfig, SignatureChange};
pub use crypto::{
    Crypto, Direction, Keytag, SignatureOrder, XtsEngine, job_size_allowed, job_size_can_be_encrypted,
};
pub use layout::{InterleavedEntry, KlmEntry, Layout};
pub(crate) use plan::{InForce, Plan};
pub use signature::{
    BlockSignature, Domain, Escape, Guard, Signature, SignatureCapabilities, T10Dif, check_mask,
};
pub use signature_error::{SignatureError, SignatureErrorKind, SignatureFault};
pub use state::Mkey;
