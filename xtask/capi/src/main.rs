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
        Some(("capi", rest)) => run::with_options(rest, HELP, parse, task),
        _ => run::misuse("call this program by `cargo xtask`"),
    }
}

type Action = fn() -> Result<(), String>;

fn parse(words: &mut run::Options) -> Result<(Option<Architecture>, Option<Action>), String> {
    let (mut architecture, mut action) = (Architecture::own(), None);
    while let Some(option) = words.word()? {
        match option.as_str() {
            "--compile" => action = Some(test::compile as Action),
            "--test" => action = Some(test::run),
            "--record" => action = Some(test::record),
            "--cinstall" => action = Some(test::cinstall),
            "--arch" => architecture = Some(words.one_of(&Architecture::ALL.map(|one| (one.name(), one)))?),
            other => return Err(run::unknown(other)),
        }
    }
    Ok((architecture, action))
}

fn task((architecture, action): (Option<Architecture>, Option<Action>)) -> ExitCode {
    let Some(architecture) = architecture else {
        return run::misuse("this machine is neither x86-64 nor arm64: name one with --arch");
    };
    let done = match action {
        Some(action) => action(),
        None => Installed::make(architecture).map(|installed| println!("{}", installed.folder.display())),
    };
    run::status(done)
}
