//! What the runner needs of a board: a command that speaks the protocol, and a way to get the board back.

use super::arm::{QemuUser, Vdpu};
use super::labgrid::Lab;
use super::reset;
use super::ssh::Remote;
use crate::firmware;
use std::path::PathBuf;
use std::process::Command;
use xtask::host::STORAGE;
use xtask::toolchain::{Board as BlueField, System};
use xtask::{build, emulate, host, qemu_user, run};
use xtask_parsers::boards::{Crypto, Description, Engine, Program, Reach, Reset};

/// Why there is nothing to run anything on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The board is not there: the run is skipped, unless a board is required.
    Unreachable(String),
    /// Something else went wrong.
    Broken(String),
}

impl From<String> for Trouble {
    fn from(what: String) -> Self {
        Self::Broken(what)
    }
}

/// A board, as the runner sees it. Whatever a board has started ends when it is dropped.
pub(super) trait Board {
    /// Gets the board for this run alone, and waits for it if need be. Called once, before all else.
    ///
    /// # Errors
    /// Why it is not to be had.
    fn take(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    /// Which place of a lab it is, once it was taken.
    fn place(&self) -> Option<&str> {
        None
    }

    /// Makes everything ready to be started: builds, boots, copies. Called once, of one board at a time.
    ///
    /// # Errors
    /// Why nothing can run.
    fn prepare(&mut self) -> Result<(), Trouble>;

    /// Returns the command whose standard output speaks the protocol, with `--ways WAYS`,
    /// `--filter TEXT` and `--after CASE` as given.
    ///
    /// # Errors
    /// Why there is none, in a sentence.
    fn command(&mut self, arguments: &[String]) -> Result<Command, String>;

    /// Brings the board back to where `prepare` left it. The command's process has been ended before.
    ///
    /// # Errors
    /// Why it is lost, in a sentence.
    fn reset(&mut self) -> Result<(), String>;
}

/// Makes the board of a description.
pub(super) fn make(description: &Description) -> Box<dyn Board> {
    let reset = description.reset.clone();
    match &description.reach {
        Reach::Local { device } => {
            let kind = if device.starts_with("softdev") { Kind::Softdev } else { Kind::Device };
            Box::new(Local { words: vec!["--device".into(), device.clone()], kind, reset })
        }
        Reach::Uverbs { crypto, engine } => {
            let kind = Kind::Uverbs(*crypto, *engine);
            Box::new(Local { words: vec!["--device".into(), "uverbs".into()], kind, reset })
        }
        Reach::Firmware { board } => Box::new(Local { words: vec![], kind: Kind::Firmware(*board), reset }),
        Reach::QemuUser { board, crypto } => Box::new(QemuUser::new(*board, *crypto)),
        Reach::Vdpu { crypto, environment } => Box::new(Vdpu::new(*crypto, environment.clone())),
        Reach::Command { command } => Box::new(Local { words: command.clone(), kind: Kind::Command, reset }),
        Reach::Ssh(ssh) => Box::new(Remote::new(ssh.clone(), reset)),
        Reach::Labgrid(place) => Box::new(Lab::new(place.clone(), reset)),
    }
}

/// What runs on this machine.
struct Local {
    words: Vec<String>,
    kind: Kind,
    reset: Reset,
}

/// What its words are.
enum Kind {
    /// Arguments of our own program, which has the device in it.
    Softdev,
    /// The same, on an mlx5 device.
    Device,
    /// The same, behind the stand-in for the kernel, whose device is of this kind.
    Uverbs(Crypto, Engine),
    /// None yet: an image is run by this very program.
    Firmware(BlueField),
    /// A program and its arguments.
    Command,
}

impl Board for Local {
    fn prepare(&mut self) -> Result<(), Trouble> {
        match self.kind {
            Kind::Softdev | Kind::Device | Kind::Uverbs(..) => {
                let program = program(&Program::Host)?;
                self.words.insert(0, program.to_string_lossy().into_owned());
            }
            Kind::Firmware(board) => self.words = firmware::command(board)?,
            Kind::Command => {}
        }
        if matches!(self.kind, Kind::Device | Kind::Uverbs(..)) {
            self.words.extend(["--programs".into(), host::storage()?.to_string_lossy().into_owned()]);
        }
        if matches!(self.kind, Kind::Uverbs(..)) {
            // Built here, not while the board's first event is waited for.
            emulate::library()?;
        }
        Ok(())
    }

    fn command(&mut self, arguments: &[String]) -> Result<Command, String> {
        let words = [&self.words, arguments].concat();
        if let Kind::Uverbs(crypto, engine) = self.kind {
            return emulate::command(words, crypto.name(), engine.name());
        }
        let (program, arguments) = words.split_first().ok_or("the board's command is empty")?;
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(command)
    }

    fn reset(&mut self) -> Result<(), String> {
        reset::perform(&self.reset)
    }
}

/// Builds the program that runs the scenarios, and returns where it is.
///
/// # Errors
/// What went wrong, in a sentence.
pub(super) fn program(program: &Program) -> Result<PathBuf, String> {
    match program {
        Program::Host => host::optimised("hil"),
        Program::File(file) => Ok(run::root().join(file)),
        Program::Bluefield2 => build::file(BlueField::BlueField2, System::Linux, "hil"),
        Program::Bluefield3 => build::file(BlueField::BlueField3, System::Linux, "hil"),
    }
}

/// Builds the stand-in for the kernel for a BlueField whose program that is, and returns where it is.
///
/// # Errors
/// What went wrong, in a sentence.
pub(super) fn stand_in(program: &Program) -> Result<Option<PathBuf>, String> {
    let board = match program {
        Program::Host | Program::File(_) => return Ok(None),
        Program::Bluefield2 => BlueField::BlueField2,
        Program::Bluefield3 => BlueField::BlueField3,
    };
    qemu_user::stand_in(board).map(Some)
}

/// Builds the programs of the storage example for where that program runs, and returns where they are. There are none beside
/// a program of your own.
///
/// # Errors
/// What went wrong, in a sentence.
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
