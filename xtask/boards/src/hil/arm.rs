//! Boards that are aarch64 Linux in QEMU, with the arm64 libmlx5 on the software device: our program alone (qemu-user), and a
//! whole machine that is reached over ssh (vdpu).

use super::board::{Board, Trouble};
use super::boards::{Crypto, Program, Reset, Ssh};
use super::ssh::Remote;
use crate::vdpu::Machine;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use xtask::build;
use xtask::debian::{self, Architecture, Dependencies};
use xtask::toolchain::{Board as BlueField, System};

/// The stand-in for the kernel, as it is built and as it lies beside the program on the machine.
const STAND_IN: &str = "libmlx5_uverbs.so";

/// libmlx5, and what it is linked with.
const LIBRARIES: &[&str] = &["ibverbs-providers"];

/// Variables by which a program finds the software device.
fn variables(stand_in: String, crypto: Crypto) -> BTreeMap<String, String> {
    [("LD_PRELOAD", stand_in), ("MLX5_UVERBS_CRYPTO", crypto.name().into())]
        .map(|(name, value)| (name.into(), value))
        .into()
}

/// Builds the stand-in for a BlueField's cores, and returns where it is.
fn stand_in(board: BlueField) -> Result<PathBuf, String> {
    build::file(board, System::Linux, STAND_IN)
}

/// The program under qemu-aarch64.
pub(super) struct QemuUser {
    board: BlueField,
    crypto: Crypto,
    words: Vec<String>,
}

impl QemuUser {
    pub(super) fn new(board: BlueField, crypto: Crypto) -> Self {
        Self { board, crypto, words: Vec::new() }
    }
}

impl Board for QemuUser {
    fn prepare(&mut self) -> Result<(), Trouble> {
        debian::install(debian::EMULATORS)?;
        let libraries = debian::unpack(Architecture::Arm64, "verbs", LIBRARIES, Dependencies::Included)?;
        let program = build::file(self.board, System::Linux, "hil")?;
        // The emulator's own environment is that of this machine's programs.
        let mut words = vec!["qemu-aarch64".to_owned(), "-L".into(), libraries.display().to_string()];
        for (name, value) in variables(stand_in(self.board)?.display().to_string(), self.crypto) {
            words.extend(["-E".into(), format!("{name}={value}")]);
        }
        words.extend([program.display().to_string(), "--device".into(), "uverbs".into()]);
        self.words = words;
        Ok(())
    }

    fn command(&mut self, arguments: &[String]) -> Result<Command, String> {
        let (emulator, rest) = self.words.split_first().ok_or("the board was not prepared")?;
        let mut command = Command::new(emulator);
        command.args(rest).args(arguments).env_remove("LD_PRELOAD").env_remove("SYSFS_PATH");
        Ok(command)
    }

    fn reset(&mut self) -> Result<(), String> {
        // The process that was ended was all there is.
        Ok(())
    }
}

/// The machine over ssh.
pub(super) struct Vdpu {
    crypto: Crypto,
    environment: BTreeMap<String, String>,
    // In this order: what was copied is removed before the machine is.
    remote: Option<Remote>,
    machine: Option<Machine>,
}

impl Vdpu {
    pub(super) fn new(crypto: Crypto, environment: BTreeMap<String, String>) -> Self {
        Self { crypto, environment, remote: None, machine: None }
    }
}

impl Board for Vdpu {
    fn prepare(&mut self) -> Result<(), Trouble> {
        let beside = vec![(STAND_IN, stand_in(BlueField::BlueField2)?)];
        let machine = self.machine.insert(Machine::new()?);
        machine.start()?;
        let mut environment = variables(format!("./{STAND_IN}"), self.crypto);
        environment.extend(self.environment.clone());
        let ssh = Ssh {
            address: "root@127.0.0.1".into(),
            port: Some(machine.port()),
            key: Some(machine.key()),
            known_hosts: Some(machine.known_hosts()),
            device: "uverbs".into(),
            program: Program::Bluefield2,
            environment,
        };
        self.remote.insert(Remote::with(ssh, Reset::Process, beside)).prepare()
    }

    fn command(&mut self, arguments: &[String]) -> Result<Command, String> {
        self.remote.as_mut().ok_or("the board was not prepared")?.command(arguments)
    }

    fn reset(&mut self) -> Result<(), String> {
        let (Some(machine), Some(remote)) = (&mut self.machine, &mut self.remote) else {
            return Err("the board was not prepared".into());
        };
        machine.start()?;
        remote.reset()
    }
}
