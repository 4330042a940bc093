//! A board that QEMU emulates: an aarch64 machine with Linux, the arm64 libmlx5 and the software device. The
//! machine is reached over ssh.

use super::board::{Board, Trouble};
use super::ssh::{Remote, UVERBS};
use crate::vdpu::Machine;
use std::collections::BTreeMap;
use std::process::Command;
use xtask::qemu_user::{self, STAND_IN};
use xtask_parsers::boards::{Crypto, Program, Reset, Ssh, word};

pub(super) struct Vdpu {
    /// Whether Linux's own mlx5 drivers in the machine drive the software device. Otherwise the program `hil`
    /// uses libmlx5 with the stand-in for the kernel, a preloaded library that contains the software device.
    drives: bool,
    crypto: Crypto,
    environment: BTreeMap<String, String>,
    // The order of fields matters: `remote` removes its files before the machine is dropped.
    remote: Option<Remote>,
    machine: Option<Machine>,
}

impl Vdpu {
    pub(super) fn new(drives: bool, crypto: Crypto, environment: BTreeMap<String, String>) -> Self {
        Self { drives, crypto, environment, remote: None, machine: None }
    }
}

impl Board for Vdpu {
    fn prepare(&mut self) -> Result<(), Trouble> {
        let machine = self.machine.insert(Machine::new(self.drives)?);
        machine.start()?;
        let mut environment = BTreeMap::new();
        if !self.drives {
            environment.extend(qemu_user::variables(format!("./{STAND_IN}"), &word(self.crypto)));
        }
        environment.extend(self.environment.clone());
        let ssh = Ssh {
            address: "root@127.0.0.1".into(),
            port: Some(machine.port()),
            key: Some(machine.key()),
            known_hosts: Some(machine.known_hosts()),
            device: if self.drives { "mlx5_0" } else { UVERBS }.into(),
            program: Program::Bluefield2,
            environment,
        };
        self.remote.insert(Remote::new(ssh, Reset::Process)).prepare()
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
