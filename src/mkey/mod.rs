//! The words: what a user asks an mkey to do, valid by construction, and what the device is known to hold for it.
//!
//! An mkey presents scattered memory as one contiguous space that starts at 0. [`MkeyConfig`] says what to change of it:
//! access rights, layout, block signature, crypto. Each part is optional; what is not given stays as it is
//! (man page `mlx5dv_wr_mkey_configure`).

mod access;
mod config;
mod crypto;
mod layout;
mod signature;
mod state;

pub use access::Access;
pub use config::{MkeyConfig, SignatureChange};
pub(crate) use crypto::CryptoWire;
pub use crypto::{
    Crypto, Direction, Keytag, ReadyCrypto, SignatureOrder, XtsEngine, job_size_allowed, job_size_enciphers,
};
pub(crate) use layout::Entries;
pub use layout::{Interleaved, InterleavedEntry, Layout, List, ListEntry};
pub use signature::{
    BlockSignature, Domain, Escape, Guard, Signature, SignatureCapabilities, T10Dif, check_mask,
};
pub(crate) use signature::{Outline, PsvStarts, ReadySignature, SignatureWords};
pub use state::{
    DomainKind, ErrorCount, Mkey, MkeyAttributes, SignatureAttributes, SignatureError, SignatureErrorKind,
    SignatureFault,
};
pub(crate) use state::{InForce, Kept, Numbers, Outlines, Plan};
