//! What the environment asks for.

use mlx5_softdev::{CryptoMode, Personality, XtsEngine};
use std::path::PathBuf;

/// Directory in which devices of several processes find each other.
pub(crate) const DIRECTORY: &str = "MLX5_UVERBS_DIR";
/// `wrapped`, `plaintext` or `none`: how data encryption keys are imported.
pub(crate) const CRYPTO: &str = "MLX5_UVERBS_CRYPTO";
/// `single-block` or `multi-block`: the AES-XTS engine.
pub(crate) const ENGINE: &str = "MLX5_UVERBS_ENGINE";
/// Any value but `0`: every work request is written to standard error.
pub(crate) const LOG: &str = "MLX5_UVERBS_LOG";

/// The longest message: as the port says, 1 GiB.
pub(crate) const MAX_MESSAGE: u32 = 1 << 30;

/// The 256-bit key that wraps keys and credentials for an emulated device. Not a secret.
pub(crate) const FACTORY_KEK: [u8; 32] = *b"mlx5 emulated key-encryption key";
/// The credential that an emulated device knows. Not a secret.
pub(crate) const FACTORY_CREDENTIAL: [u8; 40] = *b"mlx5 emulated device: login credential..";

/// How this process's device is to be.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Where devices meet.
    pub(crate) directory: PathBuf,
    /// What kind of device it is.
    pub(crate) personality: Personality,
    /// Every request is printed.
    pub(crate) log: bool,
}

impl Settings {
    /// Takes the settings from the environment. What makes no sense is as if it were not there.
    pub(crate) fn from_environment() -> Self {
        let crypto = match std::env::var(CRYPTO).as_deref() {
            Ok("wrapped") => CryptoMode::Wrapped,
            Ok("none") => CryptoMode::None,
            _ => CryptoMode::Plaintext,
        };
        let xts = match std::env::var(ENGINE).as_deref() {
            Ok("single-block") => XtsEngine::SingleBlock,
            _ => XtsEngine::MultiBlock,
        };
        let log = std::env::var_os(LOG).is_some_and(|value| !value.is_empty() && value != "0");
        let personality =
            Personality { crypto, xts, max_message_bytes: MAX_MESSAGE, ..Personality::default() };
        Self { directory: directory(), personality, log }
    }
}

/// Returns where devices meet unless the environment says otherwise: one place for each user.
fn directory() -> PathBuf {
    match std::env::var_os(DIRECTORY) {
        Some(directory) if !directory.is_empty() => directory.into(),
        _ => std::env::temp_dir().join(format!("mlx5-uverbs-{}", crate::sys::user())),
    }
}
