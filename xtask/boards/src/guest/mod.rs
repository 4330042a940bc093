//! `cargo xtask guest`: a guest of QEMU in which Linux's own mlx5 drivers drive the software device, a PCI
//! function.

mod boot;
mod check;
mod image;
mod network;
mod options;
mod parts;
mod wireshark;

use crate::machine::arch::Arch;
use crate::machine::qemu::Qemu;
use boot::{DAY, boot};
pub(crate) use options::HELP;
use options::options;
use parts::{Guest, Parts};
use std::io::IsTerminal;
use std::process::ExitCode;
use xtask::run;
use xtask_parsers::boards::{Port, Processor, word};

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--help") {
        return run::print(HELP, 0);
    }
    let Some(mut options) = options(arguments) else { return run::misuse(HELP) };
    if options.finds {
        return run::status(Qemu::find(options.arch(), options.qemu.as_deref()).map(|_| ()));
    }
    if options.command.is_empty() && !std::io::stdin().is_terminal() {
        options.command = "ibv_devinfo".into();
    }
    if options.check {
        return check::run(&options);
    }
    let guest = Guest {
        arch: options.arch(),
        kernel: options.kernel.clone(),
        port: options.port.clone().unwrap_or_else(|| "infiniband".into()),
        device: None,
        faults: options.faults.take(),
        storage: false,
        signatures: true,
        reaches_host: false,
        files: core::mem::take(&mut options.files),
        command: core::mem::take(&mut options.command),
    };
    match Parts::find(&options, &guest).and_then(|parts| boot(&options, &guest, &parts)) {
        Ok(status) => ExitCode::from(status),
        Err(message) => run::failed(&message),
    }
}

/// Returns a command that runs the scenarios in a guest. The caller may append arguments for the scenarios.
pub(crate) fn command(processor: Processor, port: Port) -> Result<Vec<String>, String> {
    let arch = Arch::from(processor);
    let mut words = vec![run::itself()?.to_string_lossy().into_owned()];
    words.extend(["guest", "--arch", &word(processor), "--port", &word(port)].map(String::from));
    words.extend(["--seconds".into(), DAY.to_string()]);
    for file in arch.storage()?.into_iter().chain([arch.scenarios()?]) {
        words.extend(["--file".into(), file.to_string_lossy().into_owned()]);
    }
    words.extend(["--", "hil", "--device", "mlx5_0", "--programs", "/bin"].map(String::from));
    Ok(words)
}
