//! A board on this machine: the program `hil`, alone or under qemu-aarch64, a bare-metal image or a guest in
//! QEMU, or a user's command.

use super::board::{Board, Trouble};
use super::{built, reset};
use crate::guest;
use std::process::Command;
use xtask::build::{self, QEMU_IMAGE};
use xtask::host::FIRMWARE;
use xtask::toolchain::{Board as BlueField, System};
use xtask::{debian, emulate, host, qemu_user};
use xtask_parsers::boards::{Program, Reach, Reset, word};

pub(super) struct Local {
    reach: Reach,
    reset: Reset,
    words: Vec<String>,
}

impl Local {
    pub(super) fn new(reach: Reach, reset: Reset) -> Self {
        Self { reach, reset, words: Vec::new() }
    }
}

impl Board for Local {
    fn prepare(&mut self) -> Result<(), Trouble> {
        self.words = match &self.reach {
            Reach::Local { device } if device.starts_with("softdev") => hil(device)?,
            Reach::Local { device } => with_storage(hil(device)?)?,
            Reach::Uverbs { .. } => {
                // The stand-in for the kernel is built here, because a build in `command` would shorten the
                // time that the board has for its first event.
                emulate::library()?;
                with_storage(hil("uverbs")?)?
            }
            Reach::QemuUser { board, crypto } => {
                let program = build::file(*board, System::Linux, "hil")?.display().to_string();
                let words = qemu_user::words(*board, &word(crypto))?;
                [words, vec![program, "--device".into(), "uverbs".into()]].concat()
            }
            Reach::Firmware { board } => firmware(*board)?,
            Reach::Guest { arch, port } => guest::command(*arch, *port)?,
            Reach::Command { command } => command.clone(),
            // These boards are other machines.
            Reach::Vdpu { .. } | Reach::Ssh(_) | Reach::Labgrid(_) => Vec::new(),
        };
        Ok(())
    }

    fn command(&mut self, arguments: &[String]) -> Result<Command, String> {
        let words = [&self.words, arguments].concat();
        match &self.reach {
            Reach::Uverbs { crypto, engine, environment } => {
                let mut command = emulate::command(words, &word(crypto), &word(engine))?;
                command.envs(environment);
                Ok(command)
            }
            Reach::QemuUser { .. } => qemu_user::command(&words),
            _ => {
                let (program, arguments) = words.split_first().ok_or("the board's command is empty")?;
                let mut command = Command::new(program);
                command.args(arguments);
                Ok(command)
            }
        }
    }

    fn reset(&mut self) -> Result<(), String> {
        reset::perform(&self.reset)
    }
}

/// Builds the program `hil`, and returns a command line that runs it on a device.
fn hil(device: &str) -> Result<Vec<String>, String> {
    let program = built::program(&Program::Host)?.to_string_lossy().into_owned();
    Ok(vec![program, "--device".into(), device.into()])
}

/// Builds the programs of the storage example, and adds their folder to the command line of `hil`.
fn with_storage(words: Vec<String>) -> Result<Vec<String>, String> {
    Ok([words, vec!["--programs".into(), host::storage()?.to_string_lossy().into_owned()]].concat())
}

/// Builds the bare-metal image for a BlueField, and returns a command line that runs the image in QEMU.
fn firmware(board: BlueField) -> Result<Vec<String>, String> {
    debian::install(debian::EMULATORS)?;
    let image = build::file(board, System::None, QEMU_IMAGE)?.to_string_lossy().into_owned();
    let run = host::task(FIRMWARE, &["firmware", "--board", board.name(), "--image", &image])?;
    let words = std::iter::once(run.get_program()).chain(run.get_args());
    Ok(words.map(|word| word.to_string_lossy().into_owned()).collect())
}
