//! Descriptions of the boards that `cargo xtask hil` can use: from `hil-tests/boards.toml`, or from the file
//! of the option `--boards`.

use super::limits::Limits;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xtask::run::At;
use xtask::toolchain::Board;

/// The content of a file with descriptions of boards.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Boards {
    /// Boards by name.
    board: BTreeMap<String, Description>,
    /// Groups by name: lists of boards or of other groups.
    #[serde(default)]
    group: BTreeMap<String, Vec<String>>,
    /// Lists of skipped cases by name: the capability that a board lacks, and the cases that need it.
    #[serde(default)]
    skips: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// The description of a board: how to run programs on it, its capabilities, time limits, and how to reset it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// How to run a program on the board.
    pub reach: Reach,
    /// The capabilities that the board must have. If the board lacks one of them, the run fails.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The time limits of a run, in seconds.
    #[serde(default)]
    seconds: Seconds,
    /// How to reset the board when it hangs.
    #[serde(default)]
    pub reset: Reset,
    /// Cases that may end differently on this board than on another one in a comparison, each with the
    /// reason.
    #[serde(default)]
    pub differs: BTreeMap<String, String>,
    /// The name of the board's list of skipped cases.
    skips: Option<String>,
    /// The cases that the board must skip, each with the capability that the board lacks. `None` for a board
    /// without a list.
    #[serde(skip)]
    pub skipped: Option<BTreeMap<String, String>>,
}

impl Description {
    /// Returns a description of the board that consists of this machine and its mlx5 device `name`.
    fn device(name: &str) -> Self {
        let reach = Reach::Local { device: name.into() };
        Self {
            reach,
            capabilities: vec![],
            seconds: Seconds::default(),
            reset: Reset::default(),
            differs: BTreeMap::new(),
            skips: None,
            skipped: None,
        }
    }

    /// Returns the time limits of a run on the board.
    pub fn limits(&self) -> Limits {
        let Seconds { start, case, total } = self.seconds;
        let [start, case, total] = [start, case, total].map(|time| Duration::from_secs_f64(time.0));
        Limits { start, case, total }
    }
}

/// How to run a program on a board.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Reach {
    /// The program runs on this machine.
    Local {
        /// `softdev`, or the name of an mlx5 device.
        device: String,
    },
    /// The program runs on this machine and uses libmlx5. A library that contains the software device stands
    /// in for the kernel's mlx5 driver.
    Uverbs {
        /// How data encryption keys are imported: `plaintext` (default) or `wrapped`.
        #[serde(default)]
        crypto: Crypto,
        /// The AES-XTS engine: `multi-block` (default), `multi-block-le` with tweaks in little endian, or
        /// `single-block`.
        #[serde(default)]
        engine: Engine,
        /// Additional environment variables for the program and the stand-in. Some of them set limits of the
        /// device.
        #[serde(default)]
        environment: BTreeMap<String, String>,
    },
    /// The program is a bare-metal image that runs in QEMU.
    Firmware {
        /// The board (BlueField-2 or BlueField-3) for whose Arm cores the program is built.
        #[serde(deserialize_with = "board")]
        board: Board,
    },
    /// The program for aarch64 runs under qemu-aarch64 (user mode). It uses the arm64 libmlx5 and the
    /// stand-in for the kernel's driver.
    QemuUser {
        /// The board (BlueField-2 or BlueField-3) for whose Arm cores the program is built.
        #[serde(deserialize_with = "board")]
        board: Board,
        /// How data encryption keys are imported: `plaintext` (default) or `wrapped`.
        #[serde(default)]
        crypto: Crypto,
    },
    /// The program runs on an emulated aarch64 machine, which is reached over ssh. It uses libmlx5 and the
    /// stand-in for the kernel's driver.
    Vdpu {
        /// If true, the software device is a PCI function of the machine, which the machine's own drivers use
        /// in place of the stand-in.
        #[serde(default)]
        function: bool,
        /// How data encryption keys are imported: `plaintext` (default) or `wrapped`.
        #[serde(default)]
        crypto: Crypto,
        /// Additional environment variables for the program.
        #[serde(default)]
        environment: BTreeMap<String, String>,
    },
    /// The program runs in a guest of QEMU. The software device is a PCI function of the guest, which the
    /// guest's own drivers use.
    Guest {
        /// The processor architecture of the guest.
        #[serde(default)]
        arch: Processor,
        /// The link layer of the PCI function's port.
        #[serde(default)]
        port: Port,
    },
    /// A program of the user runs the scenarios and prints the events of `hil_scenarios::protocol`.
    Command {
        /// The program and its arguments. `--filter TEXT` and `--after CASE` are appended.
        command: Vec<String>,
    },
    /// The program runs on another machine, which is reached over ssh.
    Ssh(Ssh),
    /// The program runs on a machine that a labgrid coordinator manages and that is reached over ssh.
    Labgrid(Place),
}

impl Reach {
    /// Returns a description of the board's device in words.
    pub fn device(&self) -> String {
        match self {
            Self::Local { device } => format!("{device} of this machine"),
            Self::Uverbs { crypto, engine, environment } => {
                let (crypto, engine) = (word(crypto), word(engine));
                let more: String =
                    environment.iter().map(|(name, value)| format!(", {name}={value}")).collect();
                format!("software device behind libmlx5, {crypto} keys, {engine} engine{more}")
            }
            Self::Firmware { board } => {
                format!("software device without a system, cores of {}", board.name())
            }
            Self::QemuUser { board, crypto } => {
                let (board, crypto) = (board.name(), word(crypto));
                format!("software device behind the arm64 libmlx5, cores of {board}, {crypto} keys")
            }
            Self::Vdpu { function: true, .. } => {
                "software device as a PCI function of an emulated arm64 machine".into()
            }
            Self::Vdpu { crypto, .. } => {
                format!("software device behind libmlx5 in an emulated machine, {} keys", word(crypto))
            }
            Self::Guest { arch, port } => {
                let (arch, port) = (word(arch), word(port));
                format!("software device as a PCI function of a guest, {arch}, {port} port")
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

/// Returns the word for a value in the file of boards, which is also the word for the value on command lines.
pub fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Deserializes a board from its name.
fn board<'de, D: Deserializer<'de>>(from: D) -> Result<Board, D::Error> {
    Board::named(&String::deserialize(from)?).map_err(de::Error::custom)
}

/// The processor architecture of a guest.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub enum Processor {
    /// x86-64.
    #[default]
    #[serde(rename = "x86-64")]
    X86,
    /// aarch64.
    #[serde(rename = "arm64")]
    Arm64,
}

/// The link layer of the PCI function's port.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Port {
    /// InfiniBand.
    #[default]
    Infiniband,
    /// Ethernet, which carries RoCE.
    Ethernet,
}

/// How data encryption keys are imported into the software device.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Crypto {
    /// Keys are imported in plaintext.
    #[default]
    Plaintext,
    /// Keys are wrapped, and imported under a crypto login.
    Wrapped,
}

/// The AES-XTS engine of the software device.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// A transfer may contain many data units.
    #[default]
    MultiBlock,
    /// A transfer may contain many data units. Tweaks are in little endian.
    MultiBlockLe,
    /// A transfer contains one data unit.
    SingleBlock,
}

/// A machine that is reached over ssh.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ssh {
    /// The user and the host, as `user@host`.
    pub address: String,
    /// The port of the ssh server. If `None`, ssh's own configuration decides.
    pub port: Option<u16>,
    /// The file of the private key. If `None`, ssh's own configuration decides.
    pub key: Option<PathBuf>,
    /// The file with the machine's host key. If `None`, ssh's own configuration decides.
    pub known_hosts: Option<PathBuf>,
    /// The name of the mlx5 device on that machine.
    pub device: String,
    /// The program that runs the scenarios on that machine.
    pub program: Program,
    /// Environment variables for the program.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// A machine that a labgrid coordinator manages as a place. The machine is reached over ssh, at the address
/// of the place's resource NetworkService.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Place {
    /// The host of the coordinator, with its port unless the port is labgrid's default.
    pub coordinator: String,
    /// The tags that the place must have. The name of a place counts as the tag `name`.
    pub tags: BTreeMap<String, String>,
    /// The longest wait for a free place, in seconds.
    #[serde(default = "wait_seconds")]
    pub wait_seconds: u32,
    /// The file of the private key. If `None`, ssh's own configuration decides.
    pub key: Option<PathBuf>,
    /// The file with the machine's host key. If `None`, ssh's own configuration decides.
    pub known_hosts: Option<PathBuf>,
    /// The name of the mlx5 device on the place's machine.
    pub device: String,
    /// The program that runs the scenarios on the place's machine.
    pub program: Program,
    /// Environment variables for the program.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

const fn wait_seconds() -> u32 {
    600
}

/// Where the program that runs the scenarios comes from.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// The program is built for the machine on which `cargo xtask` runs.
    Host,
    /// The program is built for Linux on a BlueField-2.
    Bluefield2,
    /// The program is built for Linux on a BlueField-3.
    Bluefield3,
    /// A program that is already built: the path of its file.
    File(PathBuf),
}

/// How to reset a board.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Reset {
    /// The program is killed and started again. The board itself is not reset.
    #[default]
    Process,
    /// The Arm cores of a BlueField are reset through its management interface (rshim).
    Rshim {
        /// The file of the rshim driver, for example `/dev/rshim0/misc`.
        file: PathBuf,
        /// The longest time from the reset until the board answers again, in seconds.
        boot_seconds: u32,
    },
    /// A GPIO line of this machine, which is wired to the board's reset input, gets a pulse.
    Gpio {
        /// The device file of the GPIO chip, for example `/dev/gpiochip0`.
        chip: PathBuf,
        /// The number of the GPIO line on the chip.
        line: u32,
        /// Whether a low level of the line resets the board. Otherwise a high level does.
        #[serde(default)]
        active_low: bool,
        /// How long the pulse lasts, in milliseconds.
        hold_milliseconds: u32,
        /// The longest time from the reset until the board answers again, in seconds.
        boot_seconds: u32,
    },
    /// The power of a labgrid place is switched off and on, by the power switch that the coordinator lists
    /// for the place.
    Power {
        /// The longest time from the reset until the board answers again, in seconds.
        boot_seconds: u32,
    },
    /// A program of the user resets the board, for example by a switched socket.
    Command {
        /// The program that resets the board, and its arguments.
        command: Vec<String>,
        /// The longest time from the reset until the board answers again, in seconds.
        boot_seconds: u32,
    },
}

/// The time limits of a run, in seconds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
struct Seconds {
    /// The longest time from the program's start to its first event.
    start: Time,
    /// The longest time from one event to the next.
    case: Time,
    /// The longest time of the whole run, including resets.
    total: Time,
}

impl Default for Seconds {
    fn default() -> Self {
        Self { start: Time(30.0), case: Time(60.0), total: Time(1800.0) }
    }
}

/// A number of seconds, above 0 and at most a week.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(try_from = "f64")]
struct Time(f64);

// A `Time` is never NaN, so that each one equals itself.
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

/// Parses descriptions of boards from a text in TOML.
///
/// # Errors
/// A description of the fault in the text and its place.
pub fn parse(text: &str) -> Result<Boards, String> {
    let boards: Boards = toml::from_str(text).map_err(|error| error.to_string())?;
    let powerless = |board: &Description| {
        matches!(board.reset, Reset::Power { .. }) && !matches!(board.reach, Reach::Labgrid(_))
    };
    let unlisted =
        |board: &&Description| board.skips.as_ref().is_some_and(|list| !boards.skips.contains_key(list));
    if let Some(list) = boards.board.values().find(unlisted).and_then(|board| board.skips.as_ref()) {
        return Err(format!("no list `{list}` of skipped cases"));
    }
    match boards.board.iter().find(|(_, board)| powerless(board)) {
        Some((name, _)) => Err(format!("board {name}: power is of places of labgrid only")),
        None => Ok(boards),
    }
}

/// Reads a file with descriptions of boards.
///
/// # Errors
/// A description of the fault in the file.
pub fn read(file: &Path) -> Result<Boards, String> {
    let text = std::fs::read_to_string(file).at(file)?;
    parse(&text).at(file)
}

impl Boards {
    /// Returns the board with this name, or the boards of the group with this name, each once and in order. A
    /// name that begins with `mlx5_` and that no description has is a device of this machine.
    ///
    /// # Errors
    /// No board or group has the name, and the name does not begin with `mlx5_`. The error lists the known
    /// boards and groups.
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
                let list = description.skips.as_ref().and_then(|list| self.skips.get(list));
                let of = |(lacks, cases): (&String, &Vec<String>)| {
                    cases.iter().map(|case| (case.clone(), lacks.clone())).collect::<Vec<_>>()
                };
                let skipped = list.map(|list| list.iter().flat_map(of).collect());
                found.push((name.into(), Description { skipped, ..description.clone() }));
            } else if name.starts_with("mlx5_") {
                // The name is the kernel's name of an mlx5 device of this machine.
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
        // In the repository, the file contains no address of a machine.
        assert!(boards.board.values().all(|board| !matches!(board.reach, Reach::Ssh(_) | Reach::Labgrid(_))));
    }

    /// `hil-tests/boards.toml` contains, in comments, example descriptions of boards that need an address.
    /// These descriptions must be valid too.
    #[test]
    fn the_examples_in_our_own_file_can_be_used() {
        let text = std::fs::read_to_string(root().join("hil-tests/boards.toml")).unwrap();
        // Commented descriptions have no blank after the `#`, other comments do.
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
    fn a_board_has_its_list_of_skipped_cases() {
        let text = "
            board.a = { reach = { kind = 'uverbs' }, skips = 'few' }
            board.b.reach = { kind = 'uverbs' }
            [skips.few]
            xts = ['one', 'two']
            bare = ['three']";
        let boards = parse(text).unwrap();
        let skipped = |name| boards.find(name).unwrap().remove(0).1.skipped;
        let words = [("one", "xts"), ("three", "bare"), ("two", "xts")];
        assert_eq!(skipped("a"), Some(words.map(|(case, lacks)| (case.into(), lacks.into())).into()));
        assert_eq!(skipped("b"), None);
        assert_eq!(parse(&text.replace("'few'", "'all'")), Err("no list `all` of skipped cases".into()));
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
