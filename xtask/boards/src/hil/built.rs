//! Builds the programs that run on a board, for the processor of the board: `hil`, the storage example, and
//! the stand-in for the kernel.

use std::path::PathBuf;
use xtask::host::STORAGE;
use xtask::toolchain::{Board as BlueField, System};
use xtask::{build, host, qemu_user, run};
use xtask_parsers::boards::Program;

/// Builds the program `hil`, which runs the scenarios, and returns its path. A file that the user names is
/// not built.
pub(super) fn program(program: &Program) -> Result<PathBuf, String> {
    match program {
        Program::Host => host::executes("hil"),
        Program::File(file) => Ok(run::root().join(file)),
        Program::Bluefield2 => build::file(BlueField::BlueField2, System::Linux, "hil"),
        Program::Bluefield3 => build::file(BlueField::BlueField3, System::Linux, "hil"),
    }
}

/// Builds the stand-in for the kernel, a library that is preloaded into the program `hil`, for the BlueField
/// on which `program` runs. Returns its path. Returns `None` if `hil` is built for this machine, or is the
/// user's own file.
pub(super) fn stand_in(program: &Program) -> Result<Option<PathBuf>, String> {
    let board = match program {
        Program::Host | Program::File(_) => return Ok(None),
        Program::Bluefield2 => BlueField::BlueField2,
        Program::Bluefield3 => BlueField::BlueField3,
    };
    qemu_user::stand_in(board).map(Some)
}

/// Builds the programs of the storage example for the processor on which `program` runs. Returns their names
/// and paths. Returns an empty list if `program` is the user's own file, because its processor is unknown.
pub(super) fn storage(program: &Program) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let board = match program {
        Program::Host => {
            let folder = host::storage()?;
            return Ok(STORAGE.map(|name| (name, folder.join(name))).into());
        }
        Program::File(_) => return Ok(vec![]),
        Program::Bluefield2 => BlueField::BlueField2,
        Program::Bluefield3 => BlueField::BlueField3,
    };
    Ok(STORAGE.into_iter().zip(build::storage(board)?).collect())
}
