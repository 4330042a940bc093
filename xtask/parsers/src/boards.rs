//! The file that describes boards, `hil-tests/boards.toml` or one that is named by `--boards`.

use super::limits::Limits;
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xtask::toolchain::Board;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Boards {
    /// Boards by name.
    board: BTreeMap<String, Description>,
    /// Names for several boards, or groups, one after the other.
    #[serde(default)]
    group: BTreeMap<String, Vec<String>>,
}

/// A board: how to reach it, what it can do, how long things may take there, and how to get it back when it
/// is lost.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// How to run something on it.
    pub reach: Reach,
    /// What it can do, at least; a board that lacks one of these fails.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// How long things may take.
    #[serde(default)]
    seconds: Seconds,
    /// How to reset it.
    #[serde(default)]
    pub reset: Reset,
}

impl Description {
    /// A device of this machine, with its name.
    fn device(name: &str) -> Self {
        let reach = Reach::Local { device: name.into() };
        Self { reach, capabilities: vec![], seconds: Seconds::default(), reset: Reset::default() }
    }

    /// Returns how long things may take on it.
    pub fn limits(&self) -> Limits {
        let Seconds { start, case, total } = self.seconds;
        let [start, case, total] = [start, case, total].map(|time| Duration::from_secs_f64(time.0));
        Limits { start, case, total }
    }
}

/// How to run something on a board.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Reach {
    /// In this machine.
    Local {
        /// `softdev`, or the name of an mlx5 device.
        device: String,
    },
    /// In this machine, behind libmlx5 and the stand-in for the kernel.
    Uverbs {
        /// How keys are loaded: in plaintext, unless this is `wrapped`.
        #[serde(default)]
        crypto: Crypto,
        /// The AES-XTS engine: of many data units, unless this is `single-block`; `multi-block-le` takes
        /// tweaks in little endian.
        #[serde(default)]
        engine: Engine,
        /// More variables for the program and the stand-in, which may give the device other limits.
        #[serde(default)]
        environment: BTreeMap<String, String>,
    },
    /// A bare-metal image in an emulator.
    Firmware {
        /// Whose cores it is built for.
        #[serde(deserialize_with = "board")]
        board: Board,
    },
    /// Our program for aarch64 under qemu-aarch64, behind the arm64 libmlx5 and the stand-in for the kernel.
    QemuUser {
        /// Whose cores it is built for.
        #[serde(deserialize_with = "board")]
        board: Board,
        /// How keys are loaded.
        #[serde(default)]
        crypto: Crypto,
    },
    /// A whole aarch64 machine in an emulator, over ssh, with the same.
    Vdpu {
        /// How keys are loaded.
        #[serde(default)]
        crypto: Crypto,
        /// More variables for the program.
        #[serde(default)]
        environment: BTreeMap<String, String>,
    },
    /// A program of your own that speaks the protocol.
    Command {
        /// The program and its arguments; `--filter TEXT` and `--after CASE` are added.
        command: Vec<String>,
    },
    /// Another machine, over ssh.
    Ssh(Ssh),
    /// A machine of a lab, over ssh.
    Labgrid(Place),
}

impl Reach {
    /// Says in words which device is behind it.
    pub fn device(&self) -> String {
        match self {
            Self::Local { device } => format!("{device} of this machine"),
            Self::Uverbs { crypto, engine, environment } => {
                let (crypto, engine) = (crypto.name(), engine.name());
                let more: String =
                    environment.iter().map(|(name, value)| format!(", {name}={value}")).collect();
                format!("software device behind libmlx5, {crypto} keys, {engine} engine{more}")
            }
            Self::Firmware { board } => {
                format!("software device without a system, cores of {}", board.name())
            }
            Self::QemuUser { board, crypto } => {
                let (board, crypto) = (board.name(), crypto.name());
                format!("software device behind the arm64 libmlx5, cores of {board}, {crypto} keys")
            }
            Self::Vdpu { crypto, .. } => {
                format!("software device behind libmlx5 in an emulated machine, {} keys", crypto.name())
            }
            Self::Command { command } => format!("that of `{}`", command.join(" ")),
            Self::Labgrid(place) => {
                let tags: Vec<_> = place.tags.iter().map(|(tag, value)| format!("{tag}={value}")).collect();
                format!("{} of a place with {} at {}", place.device, tags.join(" "), place.coordinator)
            }
            Self::Ssh(ssh) => format!("{} over ssh", ssh.device),
        }
    }
}

/// Reads a board by its name.
fn board<'de, D: Deserializer<'de>>(from: D) -> Result<Board, D::Error> {
    Board::named(&String::deserialize(from)?).map_err(de::Error::custom)
}

/// How the software device takes data encryption keys.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Crypto {
    /// In plaintext.
    #[default]
    Plaintext,
    /// Wrapped, under a login.
    Wrapped,
}

impl Crypto {
    /// Returns its name, as `cargo xtask emulate --crypto` knows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Wrapped => "wrapped",
        }
    }
}

/// The AES-XTS engine of the software device.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Of many data units.
    #[default]
    MultiBlock,
    /// The same, with tweaks in little endian.
    MultiBlockLe,
    /// Of single data units.
    SingleBlock,
}

impl Engine {
    /// Returns its name, as `cargo xtask emulate --engine` knows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MultiBlock => "multi-block",
            Self::MultiBlockLe => "multi-block-le",
            Self::SingleBlock => "single-block",
        }
    }
}

/// A machine that is reached over ssh.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ssh {
    /// `user@host`.
    pub address: String,
    /// The port, unless it is ssh's own choice.
    #[serde(default)]
    pub port: Option<u16>,
    /// The file of the private key, unless it is ssh's own choice.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// The file with the machine's host key, unless it is ssh's own choice.
    #[serde(default)]
    pub known_hosts: Option<PathBuf>,
    /// The mlx5 device there.
    pub device: String,
    /// What is run there.
    pub program: Program,
    /// Variables for it.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// A place of a labgrid coordinator, whose machine is reached over ssh, at the address of its NetworkService.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Place {
    /// Host of the coordinator, and port if it is not labgrid's.
    pub coordinator: String,
    /// Tags that the place has; its name counts as its tag `name`.
    pub tags: BTreeMap<String, String>,
    /// How long to wait until one is free.
    #[serde(default = "wait_seconds")]
    pub wait_seconds: u32,
    /// As of [`Ssh`].
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// The same.
    #[serde(default)]
    pub known_hosts: Option<PathBuf>,
    /// The same.
    pub device: String,
    /// The same.
    pub program: Program,
    /// The same.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

const fn wait_seconds() -> u32 {
    600
}

/// The program that runs the scenarios.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Built for this machine.
    Host,
    /// Built for Linux on a BlueField-2.
    Bluefield2,
    /// Built for Linux on a BlueField-3.
    Bluefield3,
    /// This file.
    File(PathBuf),
}

/// How to reset a board.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Reset {
    /// It is enough to end the program and to start it again.
    #[default]
    Process,
    /// The Arm cores of a BlueField, through the driver of its management interface.
    Rshim {
        /// `/dev/rshim0/misc`, say.
        file: PathBuf,
        /// How long the board may take until it answers again.
        boot_seconds: u32,
    },
    /// A line of this machine that is wired to the board's reset.
    Gpio {
        /// `/dev/gpiochip0`, say.
        chip: PathBuf,
        /// Its number there.
        line: u32,
        /// Low means reset.
        #[serde(default)]
        active_low: bool,
        /// How long the line is held.
        hold_milliseconds: u32,
        /// How long the board may take until it answers again.
        boot_seconds: u32,
    },
    /// Power of the place that a labgrid coordinator has lent.
    Power {
        /// How long the board may take until it answers again.
        boot_seconds: u32,
    },
    /// A program of your own, a switched socket's say.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// How long the board may take until it answers again.
        boot_seconds: u32,
    },
}

/// Time limits.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
struct Seconds {
    /// From the program's start to its first event.
    start: Time,
    /// From one event to the next.
    case: Time,
    /// The whole run.
    total: Time,
}

impl Default for Seconds {
    fn default() -> Self {
        Self { start: Time(30.0), case: Time(60.0), total: Time(1800.0) }
    }
}

/// Seconds, more than none and no more than a week.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(try_from = "f64")]
struct Time(f64);

// It is a number.
impl Eq for Time {}

impl TryFrom<f64> for Time {
    type Error = &'static str;

    fn try_from(seconds: f64) -> Result<Self, Self::Error> {
        const WEEK: f64 = 604_800.0;
        if seconds > 0.0 && seconds <= WEEK {
            Ok(Self(seconds))
        } else {
            Err("a time is over 0 s, up to a week")
        }
    }
}

/// Reads descriptions.
///
/// # Errors
/// What is wrong with them, in a sentence, with the place.
pub fn parse(text: &str) -> Result<Boards, String> {
    let boards: Boards = toml::from_str(text).map_err(|error| error.to_string())?;
    let powerless = |board: &Description| {
        matches!(board.reset, Reset::Power { .. }) && !matches!(board.reach, Reach::Labgrid(_))
    };
    match boards.board.iter().find(|(_, board)| powerless(board)) {
        Some((name, _)) => Err(format!("board {name}: power is of places of labgrid only")),
        None => Ok(boards),
    }
}

/// Reads the file.
///
/// # Errors
/// What is wrong with it, in a sentence.
pub fn read(file: &Path) -> Result<Boards, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", file.display()))
}

impl Boards {
    /// Returns the boards of this name, groups resolved, in order and each once.
    ///
    /// # Errors
    /// That there is no such board, and which there are.
    pub fn find(&self, name: &str) -> Result<Vec<(String, Description)>, String> {
        let mut found = Vec::new();
        let (mut open, mut seen) = (vec![name], vec![]);
        while let Some(name) = open.pop() {
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            if let Some(names) = self.group.get(name) {
                open.extend(names.iter().rev().map(String::as_str));
            } else if let Some(description) = self.board.get(name) {
                found.push((name.into(), description.clone()));
            } else if name.starts_with("mlx5_") {
                // As the kernel calls devices.
                found.push((name.into(), Description::device(name)));
            } else {
                let names: Vec<&str> =
                    self.board.keys().chain(self.group.keys()).map(String::as_str).collect();
                let names = names.join(", ");
                return Err(format!("no board `{name}`; there are {names}, and devices here as mlx5_0"));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::run::root;

    #[test]
    fn our_own_file_describes_the_boards_that_are_always_there() {
        let boards = read(&root().join("hil-tests/boards.toml")).unwrap();
        assert!(boards.board.keys().all(|name| boards.find(name).is_ok()));
        for name in boards.group.keys() {
            assert!(boards.find(name).unwrap().len() > 1, "{name}");
        }
        // No address stands in it.
        assert!(boards.board.values().all(|board| !matches!(board.reach, Reach::Ssh(_) | Reach::Labgrid(_))));
    }

    /// Boards that need an address are commented out; they must make sense nevertheless.
    #[test]
    fn the_examples_in_our_own_file_can_be_used() {
        let text = std::fs::read_to_string(root().join("hil-tests/boards.toml")).unwrap();
        // What is commented out has no blank behind its mark.
        let uncomment = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
            _ => format!("{line}\n"),
        };
        let boards = parse(&text.lines().map(uncomment).collect::<String>()).unwrap();
        let ssh = boards.board.values().filter(|board| matches!(board.reach, Reach::Ssh(_)));
        let resets: Vec<_> = ssh.map(|board| &board.reset).collect();
        assert!(resets.iter().any(|reset| matches!(reset, Reset::Rshim { .. })), "{resets:?}");
        assert!(resets.iter().any(|reset| matches!(reset, Reset::Gpio { .. })), "{resets:?}");
        assert!(boards.board.values().any(|board| {
            matches!((&board.reach, &board.reset), (Reach::Labgrid(_), Reset::Power { .. }))
        }));
    }

    #[test]
    fn groups_are_resolved_each_board_once() {
        let text = "
            board.a.reach = { kind = 'local', device = 'softdev' }
            board.b.reach = { kind = 'uverbs' }
            [group]
            both = ['b', 'a', 'both', 'a']
            gone = ['b', 'c']";
        let boards = parse(text).unwrap();
        let names = |name| -> Result<Vec<String>, String> {
            Ok(boards.find(name)?.into_iter().map(|(name, _)| name).collect())
        };
        assert_eq!(names("both").unwrap(), ["b", "a"]);
        assert_eq!(names("mlx5_7").unwrap(), ["mlx5_7"]);
        assert!(names("gone").unwrap_err().starts_with("no board `c`; there are a, b, both"));
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        for (text, what) in [
            ("a = 1", "line 1"),
            ("board.a = {}", "missing field `reach`"),
            ("board.a.reach = { kind = 'pigeon' }", "unknown variant `pigeon`"),
            ("board.a.reach = { kind = 'local', device = 'x', divice = 'y' }", "unknown field `divice`"),
            ("board.a.reach = { kind = 'uverbs', device = 'y' }", "unknown field `device`"),
            ("board.a.reach = { kind = 'labgrid', coordinator = 'x', device = 'y' }", "missing field `tags`"),
            (
                "board.a = { reach = { kind = 'uverbs' }, reset = { kind = 'power', boot-seconds = 1 } }",
                "board a: power is of places of labgrid only",
            ),
            ("board.a = { reach = { kind = 'uverbs' }, seconds = { case = 0 } }", "over 0 s"),
            ("board.a = { reach = { kind = 'uverbs' }, seconds = { case = nan } }", "over 0 s"),
            ("board.a = { reach = { kind = 'uverbs' }, seconds = { total = 1e300 } }", "up to a week"),
            ("board.a = { reach = { kind = 'uverbs' }, limits = {} }", "unknown field `limits`"),
            ("board.a = { reach = { kind = 'uverbs' }, reset = { kind = 'rshim' } }", "missing field"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
