//! Tests of the library for C: its header, its ABI, the guide for C, and C programs on the software device.

use crate::abi::{self, Declared};
use crate::header::PUBLISHED;
use crate::library::{self, ADOPT, Architecture, Installed, Linked};
use mlx5_mkey::capi;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::run::{self, At, check, root};
use xtask::toolchain::Board;
use xtask::{debian, emulate, qemu_user};

/// The file with the recorded ABI.
const LISTING: &str = "hil-tests/capi/abi.txt";
/// The C example that the guide quotes.
const EXAMPLE: &str = "hil-tests/examples/c/protected_write.c";
/// An example of a service in two processes, which the guide also quotes.
const STORE: &str = "hil-tests/examples/c/block_store.c";
/// A C program that calls most functions of the library, also with invalid arguments.
const EVERY_CALL: &str = "hil-tests/capi/every_call.c";
/// A C program that calls further functions: digests, streams, shared memory, caches and events.
const MORE_CALLS: &str = "hil-tests/capi/more_calls.c";
/// A C program that calls the functions about the device itself.
const DEVICE_CALLS: &str = "hil-tests/capi/device_calls.c";
const GUIDE: &str = "src/guide/c.md";

/// Returns the Debian packages for compiling and running C programs.
pub(super) fn packages() -> Vec<debian::Package> {
    [debian::C, debian::VERBS_HEADERS, debian::VERBS, debian::VALGRIND, debian::LINKER, debian::EMULATORS]
        .concat()
}

/// The folder of the compiled test programs. It is kept after the tests, so that a person can look at a
/// program.
struct Programs(PathBuf);

impl Programs {
    fn new() -> Result<Self, String> {
        let folder = root().join("target/capi/test");
        fs::create_dir_all(&folder).at(&folder)?;
        Ok(Self(folder))
    }

    fn compile(&self, library: &Installed, source: &Path, linked: Linked) -> Result<PathBuf, String> {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let program = self.0.join(format!("{name}-{}-{linked:?}", library.architecture.name()));
        library.compile(source, linked, &program)?;
        Ok(program)
    }

    fn source(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let file = self.0.join(name);
        fs::write(&file, text).at(&file)?;
        Ok(file)
    }

    fn listing(&self, library: &Installed, declared: &Declared) -> Result<String, String> {
        let source = self.source("sizes.c", &declared.program())?;
        let program = self.compile(library, &source, Linked::Shared)?;
        Ok(declared.listing(&run::answer(Command::new(program))?))
    }
}

pub(super) fn record() -> Result<(), String> {
    let library = own()?;
    let declared = Declared::read(&library.header)?;
    let listing = Programs::new()?.listing(&library, &declared)?;
    fs::write(root().join(LISTING), listing).map_err(|error| format!("{LISTING}: {error}"))?;
    fs::write(root().join(PUBLISHED), &library.header).map_err(|error| format!("{PUBLISHED}: {error}"))
}

/// Installs the library by cargo-c below `target`, and runs the example with it: linked both ways, and built
/// with the lines of the guide for CMake and for Meson.
pub(super) fn cinstall() -> Result<(), String> {
    debian::install(&[debian::C, debian::VERBS, debian::BUILDERS].concat())?;
    let library = Installed::by_cargo_c()?;
    let (programs, example) = (Programs::new()?, root().join(EXAMPLE));
    for linked in [Linked::Static, Linked::Shared] {
        let program = programs.compile(&library, &example, linked)?;
        software_device(&[&program.to_string_lossy()])?;
    }
    BUILDERS.iter().try_for_each(|builder| builder.check(&library, &example))
}

/// A build system for C programs: CMake or Meson.
struct Builder {
    /// The language of the guide's code block that has the lines for this build system.
    language: &'static str,
    file: &'static str,
    /// The lines that precede the guide's lines in the build file.
    head: &'static str,
    /// The two commands of a build. The second one builds the program `build/service`.
    commands: [&'static [&'static str]; 2],
}

const BUILDERS: &[Builder] = &[
    Builder {
        language: "cmake",
        file: "CMakeLists.txt",
        head: "cmake_minimum_required(VERSION 3.16)\nproject(service C)\nadd_executable(service service.c)\n",
        commands: [&["cmake", "-S", ".", "-B", "build"], &["cmake", "--build", "build"]],
    },
    Builder {
        language: "meson",
        file: "meson.build",
        head: "",
        commands: [&["meson", "setup", "build"], &["meson", "compile", "-C", "build"]],
    },
];

impl Builder {
    /// Builds a program by a build file with the guide's lines, and runs the program on the software device.
    fn check(&self, library: &Installed, source: &Path) -> Result<(), String> {
        let page = read(GUIDE)?;
        let fence = format!("```{}\n", self.language);
        let lines = page.split_once(&fence).and_then(|(_, rest)| rest.split_once("```"));
        let (lines, _) = lines.ok_or_else(|| format!("{GUIDE} has no lines for {}", self.language))?;
        let folder = run::temporary(self.language)?;
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::write(&file, text).at(&file)
        };
        write(self.file, &format!("{}{lines}", self.head))?;
        write("service.c", &read(&source.to_string_lossy())?)?;
        for command in self.commands {
            let (name, words) = command.split_first().ok_or("no command")?;
            let mut build = run::program(name, words);
            build.current_dir(&folder).env("PKG_CONFIG_PATH", library.folder.join("lib/pkgconfig"));
            check(build)?;
        }
        let libraries = format!("LD_LIBRARY_PATH={}", library.folder.join("lib").display());
        software_device(&["env", &libraries, &folder.path().join("build/service").to_string_lossy()])
    }
}

/// The compiled C programs for this machine.
struct Compiled {
    /// The example, linked with the static library.
    by_itself: PathBuf,
    /// All programs, linked with the shared library.
    shared: Vec<PathBuf>,
}

/// Runs the tests that need no device: of the header, the ABI and the guide. Also compiles all programs.
pub(super) fn compile() -> Result<(), String> {
    debian::install(&[debian::C, debian::VERBS_HEADERS].concat())?;
    compiled(&Programs::new()?).map(drop)
}

fn compiled(programs: &Programs) -> Result<Compiled, String> {
    let library = own()?;
    let declared = Declared::read(&library.header)?;
    let listing = programs.listing(&library, &declared)?;
    layouts(&listing)?;
    compare(&listing)?;
    published(&library.header)?;
    exports(&library, &declared)?;
    errors(&library.header)?;
    guide()?;
    both_languages(programs, &library)?;
    let example = root().join(EXAMPLE);
    let by_itself = programs.compile(&library, &example, Linked::Static)?;
    let others = [STORE, EVERY_CALL, MORE_CALLS, DEVICE_CALLS, ADOPT].map(|source| root().join(source));
    let sources = [&[example][..], &others].concat();
    let shared = sources.iter().map(|source| programs.compile(&library, source, Linked::Shared));
    let shared: Vec<_> = shared.collect::<Result<_, _>>()?;
    let mut called = Vec::new();
    for program in &shared {
        called.extend(library::symbols(program, "--undefined-only")?);
    }
    are_called(&declared, &called)?;
    Ok(Compiled { by_itself, shared })
}

pub(super) fn run() -> Result<(), String> {
    debian::install(&packages())?;
    let programs = Programs::new()?;
    let compiled = compiled(&programs)?;
    software_device(&[&compiled.by_itself.to_string_lossy()])?;
    for program in compiled.shared {
        let program = program.to_string_lossy();
        if program.contains("block_store") {
            two_processes(&program)?;
            continue;
        }
        software_device(&[VALGRIND, &[&program]].concat())?;
        if program.contains("device_calls") {
            let words = [VALGRIND, &[&program, "wrapped"]].concat();
            check(emulate::command(owned(&words), "wrapped", "multi-block")?)?;
            // This run is without valgrind: the library keeps the memory of an object that the kernel does
            // not destroy, which valgrind would report as a leak.
            software_device(&[&program, "kept"])?;
        }
    }
    arm64(&programs)
}

fn own() -> Result<Installed, String> {
    Installed::make(Architecture::own().ok_or("this machine is neither x86-64 nor arm64")?)
}

/// Checks that each struct of the header has the same size in C and in Rust.
fn layouts(listing: &str) -> Result<(), String> {
    macro_rules! sizes {
        ($($name:literal: $rust:ident,)+) => { [$(($name, size_of::<capi::$rust>())),+] };
    }
    let sizes = sizes! {
        "address": Address,
        "answer": Answer,
        "bad_block": BadBlock,
        "clock": Clock,
        "completion": Completion,
        "config": Config,
        "connect_spec": ConnectSpec,
        "crypto_spec": CryptoSpec,
        "digest_spec": DigestSpec,
        "error": Error,
        "event": Event,
        "key_spec": KeySpec,
        "login_spec": LoginSpec,
        "mkey": TakenMkey,
        "names": Names,
        "outstanding": Outstanding,
        "pool_spec": PoolSpec,
        "qp_info": QpInfo,
        "qp_spec": QpSpec,
        "place": Place,
        "range": Range,
        "request": Request,
        "signature_spec": SignatureSpec,
        "size": Size,
        "stream": Stream,
        "window": TakenWindow,
    };
    let lines: Vec<&str> = listing.lines().filter(|line| line.starts_with("struct ")).collect();
    for (name, size) in sizes {
        let wanted = format!("struct mlx5mk_{name}: {size} bytes;");
        if !lines.iter().any(|line| line.starts_with(&wanted)) {
            return Err(format!("the header has no `{wanted}`"));
        }
    }
    if lines.len() == sizes.len() {
        Ok(())
    } else {
        Err("the header has a struct whose size is not compared".into())
    }
}

fn compare(found: &str) -> Result<(), String> {
    let recorded = fs::read_to_string(root().join(LISTING)).map_err(|error| format!("{LISTING}: {error}"))?;
    match abi::difference(&recorded, found) {
        None => Ok(()),
        Some(lines) => Err(format!(
            "the ABI has changed. If the change is intended, run `cargo xtask capi --record`. If a line is \
             removed, increase the number in the library's SONAME:\n{lines}"
        )),
    }
}

/// Checks that the published header equals the generated one.
fn published(header: &str) -> Result<(), String> {
    let found =
        fs::read_to_string(root().join(PUBLISHED)).map_err(|error| format!("{PUBLISHED}: {error}"))?;
    if found == header {
        Ok(())
    } else {
        Err(format!("{PUBLISHED} is not what the sources say: run `cargo xtask capi --record`"))
    }
}

/// Checks that the shared library exports exactly the functions of the header.
fn exports(library: &Installed, declared: &Declared) -> Result<(), String> {
    let (mut exported, mut wanted) = (library.exports()?, declared.functions());
    exported.sort_unstable();
    wanted.sort_unstable();
    if exported == wanted {
        Ok(())
    } else {
        Err(format!("the library exports {exported:?}, the header has {wanted:?}"))
    }
}

/// Checks that the C programs call every function.
fn are_called(declared: &Declared, called: &[String]) -> Result<(), String> {
    let functions = declared.functions();
    let left: Vec<_> = functions.iter().filter(|name| !called.iter().any(|called| called == *name)).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("no program in C calls {left:?}")) }
}

/// Checks that the header documents the errors of each function that can fail.
fn errors(header: &str) -> Result<(), String> {
    let silent = Declared::without_errors(header);
    if silent.is_empty() { Ok(()) } else { Err(format!("no `Errors:` in the documentation of {silent:?}")) }
}

fn read(file: &str) -> Result<String, String> {
    fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"))
}

/// Checks that each C snippet of the guide occurs in one of the two examples that the guide quotes.
fn guide() -> Result<(), String> {
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let page = read(GUIDE)?;
    let examples = [lines(&read(EXAMPLE)?), lines(&read(STORE)?)];
    let snippets: Vec<_> = page.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    for snippet in &snippets {
        let wanted = lines(snippet);
        let has = |example: &Vec<String>| example.windows(wanted.len()).any(|found| found == wanted);
        if !examples.iter().any(has) {
            return Err(format!("{EXAMPLE} and {STORE} do not contain this snippet of {GUIDE}:\n{snippet}"));
        }
    }
    if snippets.is_empty() { Err(format!("{GUIDE} has no snippet")) } else { Ok(()) }
}

/// Checks that C and C++ programs can include the header twice, and that a C++ program can call the library.
fn both_languages(programs: &Programs, library: &Installed) -> Result<(), String> {
    let text = "#include <mlx5_mkey.h>\n#include <mlx5_mkey.h>\n\n\
                int main()\n{\n    return mlx5mk_code_words(MLX5MK_OK)[0] == 'a' ? 0 : 1;\n}\n";
    // Warnings are errors. A compiler that warned of fields without an initialiser would therefore refuse
    // this program.
    let designated = "#include <mlx5_mkey.h>\n\nint main()\n{\n    \
                      mlx5mk_qp_spec spec = {.send_blocks = 64, .receive_slots = 16};\n    \
                      mlx5mk_config config = {.parts = 2, .wire = {.kind = MLX5MK_CRC32}};\n    \
                      mlx5mk_range range = {1, 2, 3};\n    \
                      return spec.flags == 0 && config.wire.seed == 0 && range.key == 3 ? 0 : 1;\n}\n";
    let plain = text.replace("main()", "main(void)");
    for (name, text) in [("header.cpp", text), ("designated.cc", designated), ("header.c", &plain)] {
        let program = programs.compile(library, &programs.source(name, text)?, Linked::Shared)?;
        check(Command::new(program))?;
    }
    Ok(())
}

/// Runs a program under valgrind, which ends with status 99 after an invalid access or a leak.
const VALGRIND: &[&str] = &[
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
];

fn software_device(words: &[&str]) -> Result<(), String> {
    check(emulate::command(owned(words), "plaintext", "multi-block")?)
}

/// Runs both processes of the example `block_store`, each under valgrind.
fn two_processes(program: &str) -> Result<(), String> {
    let folder = run::temporary("store")?;
    let socket = folder.path().join("socket").display().to_string();
    let process = |role| {
        let words = [VALGRIND, &[program, role, &socket]].concat();
        words.into_iter().map(run::quote).collect::<Vec<_>>().join(" ")
    };
    let script =
        format!("{} & {}; initiator=$?; wait $! && exit $initiator", process("target"), process("initiator"));
    software_device(&["sh", "-c", &script])
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn arm64(programs: &Programs) -> Result<(), String> {
    let library = Installed::make(Architecture::Arm64)?;
    let program = programs.compile(&library, &root().join(EXAMPLE), Linked::Shared)?;
    let mut words = qemu_user::words(Board::BlueField2, "plaintext")?;
    words.push(program.display().to_string());
    check(qemu_user::command(&words)?)
}
