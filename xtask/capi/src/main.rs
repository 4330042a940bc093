//! `cargo xtask capi`: builds and tests the library and the header for C and C++.

mod abi;
mod header;
mod library;
mod test;

use library::{Architecture, Installed};
use std::process::ExitCode;
use xtask::run;

const HELP: &str = "\
cargo xtask capi [--arch x86-64|arm64] [--compile | --test | --record | --cinstall]

Builds an installation in target/capi/ARCH: include/mlx5_mkey.h, lib/libmlx5_mkey.a and .so, and
lib/pkgconfig. It can be copied to a folder such as /usr/local. The guide for C explains its use.

  --arch NAME           x86-64 or arm64 (default: this machine's); arm64 is for the cores of
                        BlueField-2 and later
  --compile             also compare the ABI with hil-tests/capi/abi.txt, and compile programs in C
                        and C++
  --test                do the same as --compile, compile for arm64 as well, and run the programs on
                        the software device, under valgrind and under qemu-aarch64
  --record              write the ABI to hil-tests/capi/abi.txt, and the header to
                        src/capi/mlx5_mkey.h
  --cinstall            install by cargo-c of Debian sid, which is unpacked below `target`, and run
                        the example with it; build it with CMake and Meson, too
  --help                print this text
";

fn main() -> ExitCode {
    // The call remembers the path of this program, because a later build may replace the file.
    let _ = run::itself();
    let arguments = run::arguments();
    match arguments.split_first().map(|(task, rest)| (task.as_str(), rest)) {
        Some(("capi", rest)) => task(rest),
        _ => run::misuse("call this program by `cargo xtask`"),
    }
}

fn task(arguments: &[String]) -> ExitCode {
    let (mut architecture, mut action) = (Architecture::own(), None);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--help" | "-h" => return run::print(HELP, 0),
            "--compile" => action = Some(test::compile as fn() -> Result<(), String>),
            "--test" => action = Some(test::run),
            "--record" => action = Some(test::record),
            "--cinstall" => action = Some(test::cinstall),
            "--arch" => {
                let name = words.next().unwrap_or_default();
                architecture = Architecture::ALL.into_iter().find(|known| known.name() == name);
                if architecture.is_none() {
                    return run::misuse(&format!("unknown architecture `{name}`\n\n{HELP}"));
                }
            }
            other => return run::misuse(&format!("unexpected argument `{other}`\n\n{HELP}")),
        }
    }
    let Some(architecture) = architecture else {
        return run::misuse("this machine is neither x86-64 nor arm64: name one with --arch");
    };
    let done = match action {
        Some(action) => action(),
        None => Installed::make(architecture).map(|installed| println!("{}", installed.folder.display())),
    };
    run::status(done)
}
