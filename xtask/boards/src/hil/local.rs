//! A board on this machine: the program `hil`, a bare-metal image or a guest in QEMU, or a user's command.

use super::board::{Board, Trouble};
use super::{built, reset};
use crate::guest;
use std::collections::BTreeMap;
use std::process::Command;
use xtask::build::{self, QEMU_IMAGE};
use xtask::host::FIRMWARE;
use xtask::toolchain::{Board as BlueField, System};
use xtask::{debian, emulate, host};
use xtask_parsers::boards::{Crypto, Engine, Port, Processor, Program, Reset};

pub(super) struct Local {
    pub(super) words: Vec<String>,
    pub(super) kind: Kind,
    pub(super) reset: Reset,
}

/// The program that the board runs.
pub(super) enum Kind {
    /// The program `hil`, which contains the software device.
    Softdev,
    /// The program `hil`, on an mlx5 device.
    Device,
    /// The program `hil` with libmlx5 and the stand-in for the kernel, a preloaded library that contains the
    /// software device. The values are the import method of keys, the AES-XTS engine, and further environment
    /// variables.
    Uverbs(Crypto, Engine, BTreeMap<String, String>),
    /// `cargo xtask firmware`, which runs the bare-metal image for a BlueField in QEMU.
    Firmware(BlueField),
    /// `cargo xtask guest`, which boots a guest of QEMU and runs the program `hil` there.
    Guest(Processor, Port),
    /// A user's program, with its arguments.
    Command,
}

impl Board for Local {
    fn prepare(&mut self) -> Result<(), Trouble> {
        match self.kind {
            Kind::Softdev | Kind::Device | Kind::Uverbs(..) => {
                let program = built::program(&Program::Host)?;
                self.words.insert(0, program.to_string_lossy().into_owned());
            }
            Kind::Firmware(board) => self.words = firmware(board)?,
            Kind::Guest(processor, port) => self.words = guest::command(processor, port)?,
            Kind::Command => {}
        }
        if matches!(self.kind, Kind::Device | Kind::Uverbs(..)) {
            self.words.extend(["--programs".into(), host::storage()?.to_string_lossy().into_owned()]);
        }
        if matches!(self.kind, Kind::Uverbs(..)) {
            // The stand-in for the kernel is built here, because a build in `command` would shorten the time
            // that the board has for its first event.
            emulate::library()?;
        }
        Ok(())
    }

    fn command(&mut self, arguments: &[String]) -> Result<Command, String> {
        let words = [&self.words, arguments].concat();
        if let Kind::Uverbs(crypto, engine, environment) = &self.kind {
            let mut command = emulate::command(words, crypto.name(), engine.name())?;
            command.envs(environment);
            return Ok(command);
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

/// Builds the bare-metal image for a BlueField, and returns a command line that runs the image in QEMU.
fn firmware(board: BlueField) -> Result<Vec<String>, String> {
    debian::install(debian::EMULATORS)?;
    let image = build::file(board, System::None, QEMU_IMAGE)?.to_string_lossy().into_owned();
    let run = host::task(FIRMWARE, &["firmware", "--board", board.name(), "--image", &image])?;
    let words = std::iter::once(run.get_program()).chain(run.get_args());
    Ok(words.map(|word| word.to_string_lossy().into_owned()).collect())
}
