//! `cargo xtask emulate -- COMMAND…`: runs any verbs program on a software device that it opens as `mlx5_0`.

use crate::run::{self, root};
use crate::{debian, host};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The answer to `--help`.
pub const HELP: &str = "\
cargo xtask emulate [options] -- COMMAND...

Runs COMMAND with a library before it that stands in for the kernel: libibverbs and libmlx5 find and
open the device mlx5_0, and a software device executes their work. Programs that are started with
the same directory reach each other.

  --crypto KIND      how data encryption keys are imported: wrapped, plaintext (default) or none
  --engine KIND      the AES-XTS engine: multi-block (default), single-block, or multi-block-le with
                     tweaks in little endian, which libmlx5 and this library do not know
  --log              every work request in words, to standard error (cargo xtask decode reads it)
  --log-json FILE    appends to FILE a line of JSON for each work request, each completion and each
                     request of a peer: time, process, queue pair, words, bytes; decode reads it too
  --pcap FILE        appends to FILE the packets that COMMAND sends, as RoCEv2, for Wireshark; give
                     programs that talk to each other the same FILE, and it has both sides
  --dir PATH         where programs meet (default: one place for each user)
  --help             this text

Set for COMMAND: LD_PRELOAD, MLX5_UVERBS_* and MLX5_CRYPTO_TEST_INFO, with credentials and keys that
fit the device. COMMAND's libibverbs and DPDK look for devices where there is only this one
(SYSFS_PATH, SYSFS_PCI_DEVICES); to DPDK it is 0000:c1:00.0 on the PCI bus. The exit status is that
of COMMAND; 2 for arguments that make no sense.
";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    crypto: Option<String>,
    engine: Option<String>,
    log: bool,
    log_json: Option<String>,
    pcap: Option<String>,
    directory: Option<String>,
    help: bool,
    command: Vec<String>,
}

/// Runs `cargo xtask emulate` with the arguments after `emulate`.
pub fn run(arguments: &[String]) -> ExitCode {
    let options = match parse(arguments) {
        Ok(options) if options.help => return run::print(HELP, 0),
        Ok(options) => options,
        Err(message) => return run::misuse(&format!("error: {message}\n\n{HELP}")),
    };
    match prepare(&options) {
        Ok(command) => run::replace(command),
        Err(message) => run::failed(&message),
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    use lexopt::prelude::*;
    // What follows the first `--` is the command's own.
    let mut parts = arguments.splitn(2, |argument| argument == "--");
    let own = parts.next().unwrap_or_default();
    let mut options = Options { command: parts.next().unwrap_or_default().to_vec(), ..Options::default() };
    let mut parser = lexopt::Parser::from_args(own.iter().map(OsString::from));
    let explain = |error: lexopt::Error| error.to_string();
    let text = |parser: &mut lexopt::Parser| parser.value().and_then(|value| value.string()).map_err(explain);
    let choice = |parser: &mut lexopt::Parser, choices: &[&str]| {
        let value = text(parser)?;
        if choices.contains(&value.as_str()) {
            Ok(Some(value))
        } else {
            Err(format!("`{value}` is not one of {}", choices.join(", ")))
        }
    };
    while let Some(argument) = parser.next().map_err(explain)? {
        match argument {
            Long("crypto") => options.crypto = choice(&mut parser, &["wrapped", "plaintext", "none"])?,
            Long("engine") => {
                options.engine = choice(&mut parser, &["multi-block", "multi-block-le", "single-block"])?
            }
            Long("dir") => options.directory = Some(text(&mut parser)?),
            Long("log") => options.log = true,
            Long("log-json") => options.log_json = Some(text(&mut parser)?),
            Long("pcap") => options.pcap = Some(text(&mut parser)?),
            Long("help") | Short('h') => options.help = true,
            other => return Err(explain(other.unexpected())),
        }
    }
    if options.command.is_empty() && !options.help {
        return Err("no command".into());
    }
    Ok(options)
}

/// Returns a command as it is to be run on the software device, which takes keys in the way that `crypto` says and has this
/// AES-XTS engine.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn command(words: Vec<String>, crypto: &str, engine: &str) -> Result<Command, String> {
    let (crypto, engine) = (Some(crypto.into()), Some(engine.into()));
    prepare(&Options { command: words, crypto, engine, ..Options::default() })
}

/// Builds the library and returns the command as it is to be run.
fn prepare(options: &Options) -> Result<Command, String> {
    debian::install(debian::VERBS)?;
    let library = library()?;
    let (name, arguments) = options.command.split_first().ok_or("no command")?;
    let mut command = Command::new(name);
    command.args(arguments);
    // Another library that is to come first stays there.
    let preload = match std::env::var("LD_PRELOAD") {
        Ok(others) if !others.is_empty() => format!("{others}:{}", library.display()),
        _ => library.display().to_string(),
    };
    command.env("LD_PRELOAD", preload).env_remove("SYSFS_PATH").env_remove("SYSFS_PCI_DEVICES");
    command.env("MLX5_CRYPTO_TEST_INFO", root().join("hil-tests/uverbs/crypto_test_info.json"));
    let chosen = [
        ("MLX5_UVERBS_CRYPTO", &options.crypto),
        ("MLX5_UVERBS_ENGINE", &options.engine),
        ("MLX5_UVERBS_DIR", &options.directory),
    ];
    for (name, value) in chosen {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let files = [("MLX5_UVERBS_LOG_JSON", &options.log_json), ("MLX5_UVERBS_PCAP", &options.pcap)];
    for (name, file) in files {
        if let Some(file) = file {
            // The command may run elsewhere.
            let file = std::path::absolute(file).map_err(|error| format!("{file}: {error}"))?;
            command.env(name, file);
        }
    }
    if options.log {
        command.env("MLX5_UVERBS_LOG", "1");
    }
    Ok(command)
}

/// Builds the library and returns where it is.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn library() -> Result<PathBuf, String> {
    host::optimised("libmlx5_uverbs.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let options = parse(&words("--crypto wrapped --log -- ls --crypto nonsense -- --help")).unwrap();
        assert_eq!(options.crypto.as_deref(), Some("wrapped"));
        assert!(options.log && !options.help);
        assert_eq!(options.command, words("ls --crypto nonsense -- --help"));
    }

    #[test]
    fn files_are_named() {
        let options = parse(&words("--log-json a.jsonl --pcap b.pcap -- ls")).unwrap();
        assert_eq!((options.log_json.as_deref(), options.pcap.as_deref()), (Some("a.jsonl"), Some("b.pcap")));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "--crypto",
            "--crypto magic -- ls",
            "--engine both -- ls",
            "--loud -- ls",
            "--pcap -- ls",
            "ls",
            "--",
        ] {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
    }
}
