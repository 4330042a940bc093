//! The installation of the library for C in a folder: libraries, header, and the file for pkg-config.

use crate::header;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::debian;
use xtask::run::{self, At, cargo, check, program, root};
use xtask::toolchain::{Board, System, Toolchain};

/// The SONAME, by which the dynamic linker finds the library for C. Its number grows with each change that
/// breaks compiled programs.
const SONAME: &str = "libmlx5_mkey.so.1";
const SHARED: &str = "libmlx5_mkey.so";
pub(super) const STATIC: &str = "libmlx5_mkey.a";

/// A C program that passes objects of libibverbs to the library.
pub(super) const ADOPT: &str = "hil-tests/capi/adopt.c";

/// The libraries that programs with the static library also need, from `rustc --print native-static-libs` on
/// Linux with glibc.
const PRIVATE: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    X86,
    Arm64,
}

impl Architecture {
    pub(super) const ALL: [Self; 2] = [Self::X86, Self::Arm64];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86-64",
            Self::Arm64 => "arm64",
        }
    }

    fn is_this_machine(self) -> bool {
        let own = match std::env::consts::ARCH {
            "aarch64" => Self::Arm64,
            _ => Self::X86,
        };
        self == own
    }

    pub(super) fn own() -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.is_this_machine())
    }

    /// Builds the static and the shared library, and returns cargo's output folder.
    fn build(self) -> Result<PathBuf, String> {
        let soname = format!("-Clink-arg=-Wl,-soname,{SONAME}");
        let arguments = [
            "rustc",
            "--quiet",
            "--release",
            "--lib",
            "--package",
            "mlx5-mkey",
            "--features",
            "capi",
            "--crate-type",
            "cdylib,staticlib",
        ];
        if self.is_this_machine() {
            let mut command = cargo(&arguments);
            command.args(["--", &soname]);
            check(command)?;
            let file = run::built("release", SHARED)?;
            return file.parent().map(Path::to_path_buf).ok_or_else(|| "no folder".into());
        }
        if self == Self::X86 {
            return Err("libraries for x86-64 are built on an x86-64 machine only".into());
        }
        // This toolchain sets the same compiler flags as for the program `hil`, so that cargo builds the
        // dependencies of both only once.
        let toolchain = Toolchain::find(Board::BlueField2, System::Linux)?;
        let mut command = toolchain.cargo(&arguments);
        command.args(["--", &soname]);
        check(command)?;
        Ok(root().join("target/cross").join(&toolchain.triple).join("release"))
    }

    pub(super) fn compiler(self) -> &'static str {
        if self.is_this_machine() { "gcc" } else { "aarch64-linux-gnu-gcc" }
    }
}

/// An installation in a folder that has the structure of `/usr/local`: `include` and `lib`.
pub(super) struct Installed {
    pub(super) architecture: Architecture,
    pub(super) folder: PathBuf,
    pub(super) header: String,
}

/// How a program is linked with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Linked {
    Static,
    Shared,
}

impl Installed {
    /// Builds the libraries, and installs them with the header and the file for pkg-config below
    /// `target/capi`.
    pub(super) fn make(architecture: Architecture) -> Result<Self, String> {
        let folder = root().join("target/capi").join(architecture.name());
        let built = architecture.build()?;
        let (include, lib) = (folder.join("include"), folder.join("lib"));
        run::empty(&folder)?;
        for folder in [&include, &lib.join("pkgconfig")] {
            fs::create_dir_all(folder).at(folder)?;
        }
        let header = header::make()?;
        fs::write(include.join("mlx5_mkey.h"), &header).at(&folder)?;
        fs::copy(built.join(STATIC), lib.join(STATIC)).at(&folder)?;
        fs::copy(built.join(SHARED), lib.join(SONAME)).at(&folder)?;
        symlink(SONAME, lib.join(SHARED)).at(&folder)?;
        fs::write(lib.join("pkgconfig/mlx5-mkey.pc"), pkg_config()).at(&folder)?;
        Ok(Self { architecture, folder, header })
    }

    /// Installs the library by `cargo cinstall` of cargo-c, as a packager does. cargo-c comes from Debian's
    /// unstable release, because that of the stable release cannot read this package.
    pub(super) fn by_cargo_c() -> Result<Self, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("cargo-c is unpacked on x86-64 machines only".into());
        }
        let tool = debian::unpack(
            debian::SID,
            debian::Architecture::Own,
            "cargo-c",
            &["cargo-c"],
            debian::Dependencies::Included,
        )?;
        let folder = root().join("target/capi/cinstall");
        run::empty(&folder)?;
        // cargo-c was unpacked, not installed: its own dynamic loader starts it with its own libraries.
        let mut install = program(&tool.join("usr/lib64/ld-linux-x86-64.so.2").to_string_lossy(), &[]);
        install.arg("--library-path").arg(tool.join("usr/lib/x86_64-linux-gnu"));
        install.arg(tool.join("usr/bin/cargo-cinstall")).args(["cinstall", "--release"]);
        install.args(["--package", "mlx5-mkey", "--libdir", "lib", "--prefix"]).arg(&folder);
        install.arg("--target-dir").arg(root().join("target/capi/cargo-c"));
        check(install)?;
        let file = folder.join("include/mlx5_mkey.h");
        let header = fs::read_to_string(&file).at(&file)?;
        Ok(Self { architecture: Architecture::X86, folder, header })
    }

    /// Compiles a C or C++ program with the flags of pkg-config. A warning is an error.
    pub(super) fn compile(&self, source: &Path, linked: Linked, to: &Path) -> Result<(), String> {
        let mut compiler = match source.extension().and_then(|extension| extension.to_str()) {
            Some("cpp") => program("g++", &["-std=c++11"]),
            // Designated initialisers are part of C++ since C++20.
            Some("cc") => program("g++", &["-std=c++20"]),
            _ => program(self.architecture.compiler(), &["-std=c11"]),
        };
        compiler.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"]).arg(to).arg(source);
        compiler.args(self.flags(source, linked)?);
        check(compiler)
    }

    /// Returns the flags for a program from pkg-config. The program [`ADOPT`] also needs the flags of
    /// libibverbs and libmlx5.
    fn flags(&self, source: &Path, linked: Linked) -> Result<Vec<String>, String> {
        let mut ask = Command::new("pkg-config");
        ask.env("PKG_CONFIG_PATH", self.folder.join("lib/pkgconfig"));
        ask.args(["--cflags", "--libs", "mlx5-mkey"]);
        if source.ends_with(ADOPT) {
            ask.args(["libmlx5", "libibverbs"]);
        }
        if linked == Linked::Static {
            ask.arg("--static");
        }
        let flags = run::answer(ask)?;
        let word = |word: &str| match (word, linked) {
            // The linker prefers the shared library if both are in one folder.
            ("-lmlx5_mkey", Linked::Static) => format!("-l:{STATIC}"),
            _ => word.into(),
        };
        let mut words: Vec<String> = flags.split_whitespace().map(word).collect();
        if linked == Linked::Shared {
            words.push(format!("-Wl,-rpath,{}", self.folder.join("lib").display()));
        }
        Ok(words)
    }

    pub(super) fn exports(&self) -> Result<Vec<String>, String> {
        symbols(&self.folder.join("lib").join(SHARED), "--defined-only")
    }
}

/// Returns names of the dynamic symbol table of a file, without symbol versions. `which` is an option of
/// `nm`, which selects defined or undefined symbols.
pub(super) fn symbols(file: &Path, which: &str) -> Result<Vec<String>, String> {
    let listed = run::answer(program("nm", &["--dynamic", which, &file.to_string_lossy()]))?;
    let names = listed.lines().filter_map(|line| line.rsplit(' ').next()?.split('@').next());
    Ok(names.map(str::to_owned).collect())
}

/// Returns the text of the file for pkg-config. Paths are relative to the file, so that the folder can be
/// moved.
fn pkg_config() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib\n\n\
         Name: mlx5-mkey\n\
         Description: Memory keys of NVIDIA mlx5 devices: layouts, T10-DIF and CRC signatures, AES-XTS\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lmlx5_mkey\n\
         Libs.private: {PRIVATE}\n"
    )
}
