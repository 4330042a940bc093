//! What the environment asks for.

use crate::ground::fault::Plan;
use crate::ground::sysfs;
use mlx5_softdev::{CryptoMode, DeviceProfile, Timestamps, XtsEngine};
use std::ffi::OsString;
use std::path::PathBuf;

/// Directory in which devices of several processes find each other.
pub(crate) const DIRECTORY: &str = "MLX5_UVERBS_DIR";
/// `plaintext`, which it is if not set, `wrapped` or `none`: how data encryption keys are imported.
pub(crate) const CRYPTO: &str = "MLX5_UVERBS_CRYPTO";
/// `multi-block`, which it is if not set, `multi-block-le` or `single-block`: the AES-XTS engine.
pub(crate) const ENGINE: &str = "MLX5_UVERBS_ENGINE";
/// `yes`, which it is if not set, or `no`: whether queue pairs can be made to drain on signature errors.
pub(crate) const DRAIN: &str = "MLX5_UVERBS_DRAIN";
/// `yes`, which it is if not set, `unordered` or `no`: whether queue pairs can be allowed to copy memory, and
/// keep an order then.
pub(crate) const MEMCPY: &str = "MLX5_UVERBS_MEMCPY";
/// `free-running`, which it is if not set, `real-time` or `both`: the time stamps that queue pairs can have.
pub(crate) const TIMESTAMPS: &str = "MLX5_UVERBS_TIMESTAMPS";
/// `usual`, which it is if not set, or `low`: 4 READs in flight and messages of 16 MiB, where devices have 16
/// and 1 GiB.
pub(crate) const LIMITS: &str = "MLX5_UVERBS_LIMITS";
/// `yes`, which it is if not set, or `no`: whether the kernel has pages for doorbells that gather stores
/// (BlueFlame).
pub(crate) const WRITE_COMBINING: &str = "MLX5_UVERBS_WRITE_COMBINING";
/// Any value but `0`: every work request is written to standard error.
pub(crate) const LOG: &str = "MLX5_UVERBS_LOG";

/// A file to which every request, completion and request of a peer is appended, as a line of JSON.
pub(crate) const LOG_JSON: &str = "MLX5_UVERBS_LOG_JSON";

/// Faults that come on purpose, in the words of `mlx5-emulate --help`.
pub(crate) const FAULTS: &str = "MLX5_UVERBS_FAULTS";

/// A capture to which the packets on the emulated wire are appended.
pub(crate) const PCAP: &str = "MLX5_UVERBS_PCAP";

/// The longest message: as the port says, 1 GiB.
const MAX_MESSAGE: u32 = 1 << 30;

/// How this process's device is to be.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Where devices meet.
    pub(crate) directory: PathBuf,
    /// What kind of device it is.
    pub(crate) profile: DeviceProfile,
    /// There are pages for doorbells that gather stores.
    pub(crate) write_combining: bool,
    /// Every request is printed.
    pub(crate) log: bool,
    /// Where every request and completion goes as a line of JSON.
    pub(crate) log_json: Option<PathBuf>,
    /// Where packets go.
    pub(crate) pcap: Option<PathBuf>,
    /// What is to go wrong.
    pub(crate) faults: Option<Plan>,
}

impl Settings {
    /// Takes the settings from the environment.
    ///
    /// # Errors
    /// What is wrong with which variable, in a sentence.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let crypto = [
            ("plaintext", CryptoMode::Plaintext),
            ("wrapped", CryptoMode::Wrapped),
            ("none", CryptoMode::None),
        ];
        let xts = [
            ("multi-block", XtsEngine::MultiBlock),
            ("multi-block-le", XtsEngine::MultiBlockLittleEndian),
            ("single-block", XtsEngine::SingleBlock),
        ];
        let timestamps = [
            ("free-running", Timestamps::FreeRunning),
            ("real-time", Timestamps::RealTime),
            ("both", Timestamps::Both),
        ];
        let limits =
            [("usual", (DeviceProfile::default().log_max_reads, MAX_MESSAGE)), ("low", (2, 1 << 24))];
        let (log_max_reads, max_message_bytes) = choice(LIMITS, std::env::var_os(LIMITS), limits)?;
        let longest = DeviceProfile::default().log_max_copy;
        let copies = [("yes", (longest, false)), ("unordered", (longest, true)), ("no", (None, false))];
        let (log_max_copy, unordered_copies) = choice(MEMCPY, std::env::var_os(MEMCPY), copies)?;
        let profile = DeviceProfile {
            crypto: choice(CRYPTO, std::env::var_os(CRYPTO), crypto)?,
            xts: choice(ENGINE, std::env::var_os(ENGINE), xts)?,
            drain_sigerr: choice(DRAIN, std::env::var_os(DRAIN), [("yes", true), ("no", false)])?,
            log_max_copy,
            unordered_copies,
            timestamps: choice(TIMESTAMPS, std::env::var_os(TIMESTAMPS), timestamps)?,
            log_max_reads,
            max_message_bytes,
            port_gid: sysfs::gid(),
            ..DeviceProfile::default()
        };
        let log = std::env::var_os(LOG).is_some_and(|value| !value.is_empty() && value != "0");
        let faults = std::env::var(FAULTS).ok().filter(|words| !words.is_empty());
        let faults = faults.map(|words| Plan::parse(&words)).transpose();
        let faults = faults.map_err(|what| format!("{FAULTS}: {what}"))?;
        let write_combining =
            choice(WRITE_COMBINING, std::env::var_os(WRITE_COMBINING), [("yes", true), ("no", false)])?;
        Ok(Self {
            directory: directory(),
            profile,
            write_combining,
            log,
            log_json: path(LOG_JSON),
            pcap: path(PCAP),
            faults,
        })
    }
}

/// Returns what `value` stands for; the first of the choices if it is empty or not set.
fn choice<T: Copy, const N: usize>(
    name: &str,
    value: Option<OsString>,
    choices: [(&str, T); N],
) -> Result<T, String> {
    let value = value.unwrap_or_default();
    let chosen = choices.iter().find(|(word, _)| value.is_empty() || value == **word);
    chosen.map(|(_, choice)| *choice).ok_or_else(|| {
        let words = choices.map(|(word, _)| word).join(", ");
        format!("{name} is `{}`, but there is only: {words}", value.display())
    })
}

/// Returns the file that a variable names.
fn path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns where devices meet unless the environment says otherwise: one place for each user.
pub(crate) fn directory() -> PathBuf {
    match std::env::var_os(DIRECTORY) {
        Some(directory) if !directory.is_empty() => directory.into(),
        _ => std::env::temp_dir().join(format!("mlx5-uverbs-{}", crate::ground::sys::user())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn words_that_stand_for_nothing_are_refused() {
        let choose =
            |value: Option<&str>| choice("NAME", value.map(OsString::from), [("one", 1), ("two", 2)]);
        assert_eq!((choose(None), choose(Some("")), choose(Some("one"))), (Ok(1), Ok(1), Ok(1)));
        assert_eq!(choose(Some("two")), Ok(2));
        assert_eq!(choose(Some("too")).unwrap_err(), "NAME is `too`, but there is only: one, two");
        assert!(choose(Some("One")).is_err());
    }
}
