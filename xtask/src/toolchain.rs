//! Finds a compiler for the Arm cores of a BlueField. Toolchains of rustup are used, never changed.

use crate::debian::{self, Architecture, Dependencies, Package};
use crate::run::{self, program, root, tool};
use std::path::Path;
use std::process::Command;

/// A BlueField board. BlueField-2 and BlueField-3 differ in the instructions of their cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Board {
    /// BlueField-2, with Cortex-A72 cores.
    BlueField2,
    /// BlueField-3, with Cortex-A78 cores.
    BlueField3,
}

impl Board {
    /// Both boards.
    pub const ALL: [Self; 2] = [Self::BlueField2, Self::BlueField3];

    /// Returns the name by which options select the board.
    pub fn name(self) -> &'static str {
        match self {
            Self::BlueField2 => "bluefield2",
            Self::BlueField3 => "bluefield3",
        }
    }

    /// Finds a board by its name.
    pub fn named(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|board| board.name() == name);
        known.ok_or(format!("unknown board `{name}`"))
    }

    /// Returns the name of the board's cores for the compiler. The cores of BlueField-3 have all instructions
    /// of BlueField-2's.
    pub fn cpu(self) -> &'static str {
        match self {
            Self::BlueField2 => "cortex-a72",
            Self::BlueField3 => "cortex-a78",
        }
    }
}

/// The operating system for which a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Bare metal, without an operating system.
    None,
    /// Linux with glibc.
    Linux,
}

impl System {
    /// Linux and bare metal.
    pub const ALL: [Self; 2] = [Self::None, Self::Linux];

    /// Returns the name by which options select the system.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Linux => "linux",
        }
    }

    fn triple(self) -> &'static str {
        match self {
            Self::None => BARE,
            Self::Linux => LINUX,
        }
    }
}

/// The triples of rustup's targets.
const LINUX: &str = "aarch64-unknown-linux-gnu";
const BARE: &str = "aarch64-unknown-none";

/// The name of the target specification in `targets/`.
const SPECIFICATION: &str = "aarch64-bluefield-none";

/// The flag for bare metal that keeps the bitcode of libraries. A program with LTO can then use the same
/// libraries as all others.
const BITCODE: &str = "-Cembed-bitcode=yes";

const LINKER: &str = "aarch64-linux-gnu-gcc";

/// A cargo and a rustc that can build for a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// A description for people.
    pub name: String,
    /// The name of cargo's output folder for this target, below the target folder.
    pub triple: String,
    /// The path of rustc.
    pub rustc: String,
    cargo: String,
    /// Arguments for cargo that name the target, and that make cargo build the standard library of the target
    /// if necessary.
    target: Vec<String>,
    /// Arguments for cargo that name the cores, and how crates are compiled for them. They are empty if the
    /// code must run on any core.
    cores: Vec<String>,
    /// Flags for rustc, for code of the target only.
    flags: Vec<String>,
}

/// Returns arguments for cargo that name the cores for each crate. The crates of this repository are compiled
/// for the cores of `board`. No core is named for other crates, hence cargo builds these crates, and the
/// standard library, only once for both boards. `aes` is an exception: on bare metal the crate cannot ask
/// whether the cores have instructions for AES. The cores of both boards have them.
fn cores(board: Board) -> Vec<String> {
    let mut arguments = vec!["-Zprofile-rustflags".to_owned()];
    let flags = |cpu: &str| format!("[\"-Ctarget-cpu={cpu}\"]");
    for profile in ["dev", "release"] {
        for (packages, flags) in [
            ("", flags(board.cpu())),
            ("package.\"*\".", "[]".into()),
            ("package.aes.", flags(Board::BlueField2.cpu())),
            // Build scripts run on this machine, not on the Arm cores.
            ("build-override.", "[]".into()),
        ] {
            arguments.extend(["--config".into(), format!("profile.{profile}.{packages}rustflags={flags}")]);
        }
    }
    arguments
}

impl Toolchain {
    /// Finds a compiler for programs of a board, and installs the Debian packages that the compiler needs.
    pub fn find(board: Board, system: System) -> Result<Self, String> {
        let (cargo, rustc) = (tool("cargo"), tool("rustc"));
        let triple = system.triple();
        let library = Library::of(&rustc, system);
        let installed = debian::install(library.packages(system));
        match library {
            Library::Installed => return installed.map(|()| Self::installed(board, triple, cargo, rustc)),
            Library::Sources => return installed.map(|()| Self::from_source(board, cargo, rustc)),
            Library::Absent => {}
        }
        installed.map_err(|missing| {
            format!(
                "the compiler cannot build for {triple} (rustup target add {triple}, or of Debian:) {missing}"
            )
        })?;
        let (cargo, rustc) = ("/usr/bin/cargo".to_owned(), "/usr/bin/rustc".to_owned());
        match system {
            System::None => Ok(Self::from_source(board, cargo, rustc)),
            System::Linux => {
                // rustc accepts only the standard library of its own build.
                let package = format!("libstd-rust-web-dev={}", debian::version("rustc-web")?);
                let library =
                    debian::unpack(None, Architecture::Arm64, "std", &[&package], Dependencies::Omitted)?;
                let mut found = Self::installed(board, triple, cargo, rustc);
                found.flags.push(format!("--sysroot={}", library.join("usr").display()));
                Ok(found)
            }
        }
    }

    /// Finds a compiler for any Linux machine of an architecture: this machine's, or that of the Arm cores.
    /// Its output does not contain the path of the source folder.
    pub fn portable(triple: &str) -> Result<Self, String> {
        let mut found = if triple == LINUX {
            Self::find(Board::BlueField2, System::Linux)?
        } else {
            Self::installed(Board::BlueField2, triple, tool("cargo"), tool("rustc"))
        };
        found.cores.clear();
        let home = std::env::var("HOME").unwrap_or_default();
        let crates = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
        for (from, to) in [(crates, "crates"), (root().display().to_string(), ".")] {
            found.flags.push(format!("--remap-path-prefix={from}={to}"));
        }
        Ok(found)
    }

    /// Returns a compiler whose standard library for the target is installed.
    fn installed(board: Board, triple: &str, cargo: String, rustc: String) -> Self {
        let flags = match triple {
            LINUX => vec![format!("-Clinker={LINKER}")],
            BARE => vec![BITCODE.into()],
            _ => Vec::new(),
        };
        let mut cores = cores(board);
        if triple == LINUX {
            // No check measures or reads this code, so its build time counts: one codegen unit takes less
            // time than many, and scenarios compute little. Other builds keep their levels. Users of the
            // emulator would notice level "s": messages of 4 KiB take a tenth longer. In the bare-metal
            // image, both levels move callbacks of the scenarios, which allocate, into functions of the
            // library, which must not allocate.
            for setting in [
                "codegen-units=1",
                "package.hil-scenarios.opt-level=0",
                "package.mlx5-uverbs.opt-level=\"s\"",
            ] {
                cores.extend(["--config".into(), format!("profile.release.{setting}")]);
            }
        }
        Self {
            name: format!("{rustc} with its library for {triple}"),
            triple: triple.into(),
            rustc,
            cargo,
            target: vec!["--target".into(), triple.into()],
            cores,
            flags,
        }
    }

    /// Returns a compiler that builds the standard library from its sources, for the target specification in
    /// `targets/`.
    fn from_source(board: Board, cargo: String, rustc: String) -> Self {
        let triple = SPECIFICATION.to_owned();
        let mut target: Vec<String> =
            ["-Zbuild-std=core,alloc", "-Zbuild-std-features=compiler-builtins-mem", "--target"]
                .map(Into::into)
                .into();
        target.push(format!("targets/{triple}.json"));
        // Older versions of cargo accept a target specification without this switch, and refuse the switch.
        let mut help = program(&cargo, &["-Z", "help"]);
        help.env("RUSTC_BOOTSTRAP", "1");
        let switch = "json-target-spec";
        if help.output().is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(switch)) {
            target.push(format!("-Z{switch}"));
        }
        // The specification names `rust-lld`, which only rustup's toolchains contain.
        let linker: &[&str] = match ask(&rustc, &["--print", "target-libdir"]) {
            Some(library) if library.with_file_name("bin").join("rust-lld").exists() => &[],
            _ => &["-Clinker=aarch64-linux-gnu-ld", "-Clinker-flavor=gnu"],
        };
        let flags = [&[BITCODE], linker].concat().into_iter().map(Into::into).collect();
        let name = format!("{rustc} with the sources of its library");
        Self { name, triple, rustc, cargo, target, cores: cores(board), flags }
    }

    /// Returns a call of cargo in a folder outside of this repository. The files in that folder name the
    /// target of the build. `cross` adds this toolchain's flags for rustc.
    pub fn elsewhere(&self, folder: &Path, cross: bool, arguments: &[&str]) -> Command {
        let mut command = program(&self.cargo, arguments);
        command.current_dir(folder).env("RUSTC", &self.rustc).env_remove("LD_LIBRARY_PATH");
        command.env_remove("CARGO_TARGET_DIR").env("RUSTC_BOOTSTRAP", "1");
        if cross {
            command.env("CARGO_ENCODED_RUSTFLAGS", self.flags.join("\u{1f}"));
        }
        command
    }

    /// Adds flags for one package of this repository in release mode, also where the package is a dependency.
    /// `board` is the board of this toolchain.
    pub fn flag(&mut self, board: Board, package: &str, flags: &[&str]) {
        let cpu = format!("-Ctarget-cpu={}", board.cpu());
        let all = [&[cpu.as_str()], flags].concat();
        self.cores
            .extend(["--config".into(), format!("profile.release.package.{package}.rustflags={all:?}")]);
    }

    /// Returns a call of cargo for the target of this toolchain. It builds in `target/cross`.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = program(&self.cargo, arguments);
        command.args(&self.target).args(&self.cores).args(["--target-dir", "target/cross"]);
        command.env("RUSTC", &self.rustc);
        // The rustdoc beside rustc reads the same standard library as rustc.
        if let Some(folder) = Path::new(&self.rustc).parent().filter(|folder| folder.is_absolute()) {
            command.env("RUSTDOC", folder.join("rustdoc"));
        }
        let library = self.flags.iter().filter(|flag| flag.starts_with("--sysroot"));
        command.env("CARGO_ENCODED_RUSTDOCFLAGS", library.cloned().collect::<Vec<_>>().join("\u{1f}"));
        command.env("CARGO_ENCODED_RUSTFLAGS", self.flags.join("\u{1f}"));
        // Cargo sets this variable for the libraries of the compiler that built xtask, which can be another
        // compiler.
        command.env_remove("LD_LIBRARY_PATH");
        // Unstable options need this variable: those that build the standard library, and those that name the
        // cores for each crate. All builds set the variable, because cargo rebuilds crates when its value
        // changes, and both systems share the build scripts and procedural macros of this machine.
        command.env("RUSTC_BOOTSTRAP", "1");
        command
    }
}

/// The form in which the running compiler has its standard library for the Arm cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    /// The toolchain has the compiled standard library.
    Installed,
    /// The toolchain has the sources of the standard library, which are enough for bare metal.
    Sources,
    /// The toolchain does not have the standard library; Debian's compiler is used instead.
    Absent,
}

impl Library {
    fn of(rustc: &str, system: System) -> Self {
        let folder = ask(rustc, &["--print", "target-libdir", "--target", system.triple()]);
        if folder.is_some_and(|at| at.exists()) {
            Self::Installed
        } else if system == System::None && sources(rustc) {
            Self::Sources
        } else {
            Self::Absent
        }
    }

    fn packages(self, system: System) -> &'static [Package] {
        match (self, system) {
            (Self::Absent, _) => debian::CROSS,
            (_, System::Linux) => debian::LINKER,
            (_, System::None) => &[],
        }
    }
}

/// Returns the packages that [`Toolchain::find`] installs.
#[must_use]
pub fn packages() -> Vec<Package> {
    let rustc = tool("rustc");
    System::ALL.into_iter().flat_map(|system| Library::of(&rustc, system).packages(system)).copied().collect()
}

/// Asks a rustc for the path of one of its folders.
fn ask(rustc: &str, arguments: &[&str]) -> Option<std::path::PathBuf> {
    run::answer(program(rustc, arguments)).ok().map(Into::into)
}

/// Returns whether the sources of the standard library are installed beside a compiler.
fn sources(rustc: &str) -> bool {
    let library = Path::new("lib/rustlib/src/rust/library/Cargo.toml");
    ask(rustc, &["--print", "sysroot"]).is_some_and(|at| at.join(library).exists())
}

/// Returns the folder for files that were built for a board.
pub fn folder(board: Board, system: System, release: bool) -> std::path::PathBuf {
    let profile = if release { "release" } else { "debug" };
    root().join("target").join(board.name()).join(system.name()).join(profile)
}
