//! Settings of the stand-in, taken from environment variables.

use crate::ground::fault::Plan;
use crate::ground::port::{Port, View};
pub(crate) use mlx5_peers::place::of_environment as directory;
use mlx5_softdev::{CryptoMode, DeviceProfile, Port as Network, Timestamps, XtsEngine};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The variable that says how data encryption keys are imported: `plaintext` (the default), `wrapped` or
/// `none`.
pub(crate) const CRYPTO: &str = "MLX5_UVERBS_CRYPTO";
/// The variable with the AES-XTS engine: `multi-block` (the default), `multi-block-le` or `single-block`.
pub(crate) const ENGINE: &str = "MLX5_UVERBS_ENGINE";
/// The variable that says whether queue pairs can drain on signature errors: `yes` (the default) or `no`.
pub(crate) const DRAIN: &str = "MLX5_UVERBS_DRAIN";
/// The variable that says whether queue pairs can copy memory, and whether the copies keep their order: `yes`
/// (the default), `unordered` or `no`.
pub(crate) const MEMCPY: &str = "MLX5_UVERBS_MEMCPY";
/// The variable with the time stamps that queue pairs can have: `free-running` (the default), `real-time` or
/// `both`.
pub(crate) const TIMESTAMPS: &str = "MLX5_UVERBS_TIMESTAMPS";
/// The variable with the device's limits: `usual` (the default) for 16 READs in flight and messages of 1 GiB,
/// `low` for 4 READs in flight and messages of 16 MiB.
pub(crate) const LIMITS: &str = "MLX5_UVERBS_LIMITS";
/// The variable with the features that the device lacks, as words with commas between them: `cq-oi`,
/// `cqe-version`, `atomic`, `fixed-buffer-size`. By default, the device has all of them.
pub(crate) const LACKS: &str = "MLX5_UVERBS_LACKS";
/// The variable that says whether the kernel has write-combining pages for doorbells (BlueFlame): `yes` (the
/// default) or `no`.
pub(crate) const WRITE_COMBINING: &str = "MLX5_UVERBS_WRITE_COMBINING";
/// The variable that says whether the device executes work requests: `yes` (the default) or `no`. `no` is for
/// programs that compare the contents of rings, or measure how long it takes to write them.
pub(crate) const EXECUTE: &str = "MLX5_UVERBS_EXECUTE";
/// The variable that turns the log on: with any value but `0`, every work request is written to standard
/// error.
pub(crate) const LOG: &str = "MLX5_UVERBS_LOG";

/// The variable with the file to which every request, completion and request of a peer is appended as a line
/// of JSON.
pub(crate) const LOG_JSON: &str = "MLX5_UVERBS_LOG_JSON";

/// The variable with a plan of deliberate faults, in the words of `mlx5-emulate --help`.
pub(crate) const FAULTS: &str = "MLX5_UVERBS_FAULTS";

/// The variable with the capture file to which the packets on the emulated wire are appended.
pub(crate) const PCAP: &str = "MLX5_UVERBS_PCAP";

/// The longest message that the port reports: 1 GiB.
const MAX_MESSAGE: u32 = 1 << 30;

/// The settings of this process's devices.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The directory in which devices of several processes find each other.
    pub(crate) directory: PathBuf,
    /// The features of the devices. Only the field `port_gid` differs between devices.
    pub(crate) profile: DeviceProfile,
    /// The ports, one of each device. They follow changes of the interfaces of `view`. Ports without a view
    /// never change.
    pub(crate) ports: Vec<Port>,
    pub(crate) view: Option<View>,
    /// Whether the kernel has write-combining pages for doorbells.
    pub(crate) write_combining: bool,
    /// Whether the device executes work requests.
    pub(crate) executes: bool,
    /// Whether every request is printed on standard error.
    pub(crate) log: bool,
    /// The file to which every request and completion is appended as a line of JSON.
    pub(crate) log_json: Option<PathBuf>,
    /// The capture file to which packets are appended.
    pub(crate) pcap: Option<PathBuf>,
    pub(crate) faults: Option<Plan>,
}

impl Settings {
    /// Takes the settings from the environment.
    ///
    /// # Errors
    /// A sentence for the user that names the wrong variable and the reason.
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
        let view = View::from_environment();
        let ports = view.ports()?;
        let lacked = lacked(&std::env::var_os(LACKS).unwrap_or_default())?;
        let has = |feature| !lacked.contains(&feature);
        let is_infiniband = ports.iter().any(Port::is_infiniband);
        let profile = DeviceProfile {
            port: if is_infiniband { Network::InfiniBand } else { Network::Ethernet },
            cq_oi: has("cq-oi"),
            user_indices: has("cqe-version"),
            atomic: has("atomic"),
            fixed_entries: has("fixed-buffer-size"),
            crypto: choice(CRYPTO, std::env::var_os(CRYPTO), crypto)?,
            xts: choice(ENGINE, std::env::var_os(ENGINE), xts)?,
            drain_sigerr: choice(DRAIN, std::env::var_os(DRAIN), [("yes", true), ("no", false)])?,
            log_max_copy,
            unordered_copies,
            timestamps: choice(TIMESTAMPS, std::env::var_os(TIMESTAMPS), timestamps)?,
            log_max_reads,
            max_message_bytes,
            doorbell_alone: true,
            ..DeviceProfile::default()
        };
        let log = std::env::var_os(LOG).is_some_and(|value| !value.is_empty() && value != "0");
        let faults = std::env::var(FAULTS).ok().filter(|words| !words.is_empty());
        let faults = faults.map(|words| plan(&words)).transpose();
        let faults = faults.map_err(|what| format!("{FAULTS}: {what}"))?;
        let write_combining =
            choice(WRITE_COMBINING, std::env::var_os(WRITE_COMBINING), [("yes", true), ("no", false)])?;
        let executes = choice(EXECUTE, std::env::var_os(EXECUTE), [("yes", true), ("no", false)])?;
        Ok(Self {
            directory: directory(),
            profile,
            ports,
            view: Some(view),
            write_combining,
            executes,
            log,
            log_json: path(LOG_JSON),
            pcap: path(PCAP),
            faults,
        })
    }
}

/// Returns the plan of faults that words describe. With `@` in front, the words name a file with the plan.
fn plan(words: &str) -> Result<Plan, String> {
    match words.strip_prefix('@') {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
            Plan::parse(&text)
        }
        None => Plan::parse(words),
    }
}

/// The features that [`LACKS`] can name.
const FEATURES: [&str; 4] = ["cq-oi", "cqe-version", "atomic", "fixed-buffer-size"];

/// Returns the features that a list names.
fn lacked(list: &OsStr) -> Result<Vec<&'static str>, String> {
    let list = list.to_string_lossy();
    let words = list.split(',').filter(|word| !word.is_empty());
    let feature = |word| FEATURES.into_iter().find(|feature| *feature == word);
    words
        .map(|word| {
            let known = || format!("{LACKS} names `{word}`, but there is only: {}", FEATURES.join(", "));
            feature(word).ok_or_else(known)
        })
        .collect()
}

/// Returns the choice that `value` names, or the first choice if `value` is empty or not set.
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

/// Returns the file that a variable names, or `None` if the variable is empty or not set.
fn path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
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
        assert_eq!(lacked(OsStr::new("")), Ok(Vec::new()));
        assert_eq!(lacked(OsStr::new("atomic,cq-oi")), Ok(vec!["atomic", "cq-oi"]));
        assert!(lacked(OsStr::new("atomic,cq_oi")).unwrap_err().contains("`cq_oi`"));
    }
}
