//! Checks the programs and libraries that are built for the Arm cores of a BlueField: a step of `cargo xtask
//! test`. Also `cargo xtask dist`, which packs archives and Debian packages.

mod barriers;
mod dist;
mod emulated;
mod files;
mod glibc;
mod packages;
mod panics;
mod planted;
mod reach;
mod reached;
mod size;

use reach::Graph;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::run::{self, At, answer, check, program, root};
use xtask::toolchain::{Board, System, Toolchain};
use xtask::{build, debian};

fn main() -> ExitCode {
    if let [task, rest @ ..] = run::arguments().as_slice()
        && task == "dist"
    {
        return dist::run(rest);
    }
    run::status(check_all())
}

/// Builds everything for the Arm cores in release mode, and checks the compiled code.
///
/// # Errors
/// A description of the first failed check.
fn check_all() -> Result<(), String> {
    let say = |text: String| writeln!(io::stdout(), "{text}").map_err(|error| error.to_string());
    let public = public()?;
    let called = called()?;
    for board in Board::ALL {
        for file in build::build(board, System::Linux, true)? {
            say(glibc::check(&file, glibc::UBUNTU_22_04)?)?;
        }
        let files = build::build(board, System::None, true)?;
        say(check_bare(board, &public, &called)?)?;
        for image in files
            .iter()
            .filter(|file| [build::QEMU_IMAGE, build::BOARD_IMAGE].iter().any(|name| file.ends_with(name)))
        {
            say(format!("{}: {}", image.display(), panics::check_image(&disassemble(image)?)?))?;
        }
    }
    say(check_planted(&public)?)?;
    say(smallest_service()?)
}

/// Builds the smallest service (a bare-metal program) for a Cortex-A72, optimised for size and speed, and
/// checks the size of its code.
fn smallest_service() -> Result<String, String> {
    let toolchain = Toolchain::find(Board::BlueField2, System::None)?;
    // The flags are for the program only: with a profile of its own, cargo would compile `core` and the
    // library once more. The level is 2, because level 3 would unroll the loops of `memcpy` a second time.
    let mut command = toolchain.cargo(&["rustc", "--quiet", "--release", "--package", "hil-minimal"]);
    command.args(["--", "-Clto=fat", "-Ccodegen-units=1", "-Copt-level=2"]);
    check(command)?;
    let file = root().join("target/cross").join(&toolchain.triple).join("release/hil-minimal");
    size::check(&fs::read(&file).at(&file)?)
}

fn disassemble(path: &Path) -> Result<String, String> {
    debian::install(debian::LINKER)?;
    let mut objdump = program("aarch64-linux-gnu-objdump", &["--disassemble", "--no-show-raw-insn"]);
    objdump.arg(path);
    answer(objdump)
}

/// Returns the graph of the freestanding program, which calls every generic function of the library. This
/// build inlines nothing and takes no generic function from another crate, so that each called function has
/// a symbol. One build is enough for both boards, because the calls do not depend on the core.
fn called() -> Result<Graph, String> {
    let bare =
        Bare { toolchain: Toolchain::find(Board::BlueField2, System::None)?, folder: root(), features: &[] };
    let flags = ["-Copt-level=0", "-Clink-dead-code", "-Zshare-generics=no", "-Csymbol-mangling-version=v0"];
    Graph::read(&[bare.freestanding(&flags)?.1]).map_err(|error| error.to_string())
}

/// Builds the library for bare metal and checks its compiled code: the order of barriers, that no function
/// panics, and that every public function is in this code. Returns a summary.
fn check_bare(board: Board, public: &str, called: &Graph) -> Result<String, String> {
    let bare = Bare { toolchain: Toolchain::find(board, System::None)?, folder: root(), features: &[] };
    let (program, freestanding) = bare.freestanding(&[])?;
    let barriers = barriers::check(&disassemble(&program)?)?;
    let library = bare.library()?;
    let symbols = Graph::read(std::slice::from_ref(&library)).map_err(|error| error.to_string())?;
    let panics = panics::check(&[freestanding, library])?;
    let reached = reached::check(public, &symbols.names(), &called.names())?;
    Ok(format!("{}, none: {barriers}; {panics}; {reached}", board.name()))
}

/// Checks that the search for panics covers each public function: each public function of a copy of the
/// library gets a panic, and the search must find each. The copy has the feature `defmt`. No other build for
/// bare metal has it.
fn check_planted(public: &str) -> Result<String, String> {
    let places = reached::places(public).ok_or("rustdoc's JSON has no places")?;
    let copy = planted::Copy::make(&places)?;
    let mut toolchain = Toolchain::find(Board::BlueField2, System::None)?;
    // With these flags, the freestanding program contains all functions of the library. One build is
    // therefore enough.
    toolchain.flag(Board::BlueField2, "mlx5-mkey", &WHOLE);
    let bare = Bare { toolchain, folder: copy.folder, features: &["--features", "mlx5-mkey/defmt"] };
    panics::check_planted(&[bare.freestanding(&[])?.1], planted::MODULE, &copy.functions)
}

/// Flags with which a library contains all its functions, also those that are usually inlined or left out.
const WHOLE: [&str; 3] =
    ["-Clink-dead-code", "-Zcross-crate-inline-threshold=never", "-Csymbol-mangling-version=v0"];

/// Builds libraries for bare metal from the workspace in `folder`.
struct Bare {
    toolchain: Toolchain,
    folder: PathBuf,
    /// Arguments for cargo that turn features on.
    features: &'static [&'static str],
}

impl Bare {
    /// Builds the freestanding program, which uses every generic function of the library. Returns its path
    /// and its bytes.
    fn freestanding(&self, flags: &[&str]) -> Result<(PathBuf, Vec<u8>), String> {
        self.rustc("hil-freestanding", "staticlib", "libhil_freestanding.a", flags)
    }

    /// Builds the library with all its functions, including those that the freestanding program does not call
    /// and those that are usually inlined.
    fn library(&self) -> Result<Vec<u8>, String> {
        self.rustc("mlx5-mkey", "lib", "libmlx5_mkey.rlib", &WHOLE).map(|(_, library)| library)
    }

    fn rustc(
        &self,
        package: &str,
        kind: &str,
        file: &str,
        flags: &[&str],
    ) -> Result<(PathBuf, Vec<u8>), String> {
        let Self { toolchain, folder, features } = self;
        let mut command = toolchain.cargo(&["rustc", "--quiet", "--release", "--lib", "--package", package]);
        command.current_dir(folder).args(*features).args(["--crate-type", kind, "--"]).args(flags);
        check(command)?;
        let path = folder.join("target/cross").join(&toolchain.triple).join("release").join(file);
        let bytes = fs::read(&path).at(&path)?;
        Ok((path, bytes))
    }
}

/// Returns rustdoc's description of the library in JSON.
fn public() -> Result<String, String> {
    // The toolchain for Linux contains a compiled standard library. For bare metal, cargo would have to
    // compile the standard library first.
    let toolchain = Toolchain::find(Board::BlueField2, System::Linux)?;
    let mut rustdoc =
        toolchain.cargo(&["rustdoc", "--quiet", "--release", "--package", "mlx5-mkey", "--lib"]);
    rustdoc.args(["--", "-Zunstable-options", "--output-format", "json"]);
    check(rustdoc)?;
    let path = root().join("target/cross").join(&toolchain.triple).join("doc/mlx5_mkey.json");
    fs::read_to_string(&path).at(&path)
}
