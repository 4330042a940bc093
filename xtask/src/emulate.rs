//! `cargo xtask emulate -- COMMAND…`: runs any verbs program on a software device that it opens as `mlx5_0`.

use crate::debian;
use crate::run::{cargo, check, root};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const USAGE: &str = "\
Usage: cargo xtask emulate [options] -- COMMAND...

Runs COMMAND with a library before it that stands in for the kernel: libibverbs and libmlx5 find and open the device
mlx5_0, and a software device executes their work. Programs that are started with the same directory reach each other.

  --crypto KIND      how data encryption keys are imported: wrapped, plaintext (default) or none
  --engine KIND      the AES-XTS engine: multi-block (default) or single-block
  --log              every work request in words, to standard error
  --dir PATH         where programs meet (default: one place for each user)
  --help             this text

Set for COMMAND: LD_PRELOAD, MLX5_UVERBS_* and MLX5_CRYPTO_TEST_INFO, with credentials and keys that fit the device.
The exit status is that of COMMAND; 2 for arguments that make no sense.
";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    crypto: Option<String>,
    engine: Option<String>,
    log: bool,
    directory: Option<String>,
    help: bool,
    command: Vec<String>,
}

/// Runs `cargo xtask emulate` with the arguments after `emulate`.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let options = match parse(arguments) {
        Ok(options) if options.help => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(options) => options,
        Err(message) => {
            eprint!("emulate: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match prepare(&options) {
        // Returns only if it fails.
        Ok(mut command) => {
            let error = command.exec();
            eprintln!("emulate: `{}` could not be run: {error}", options.command.join(" "));
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("emulate: {message}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = |choices: &[&str]| {
            let value = rest.next().ok_or(format!("{argument} needs a value"))?;
            if choices.is_empty() || choices.contains(&value.as_str()) {
                Ok(Some(value.clone()))
            } else {
                Err(format!("{argument} is one of {}", choices.join(", ")))
            }
        };
        match argument.as_str() {
            "--crypto" => options.crypto = value(&["wrapped", "plaintext", "none"])?,
            "--engine" => options.engine = value(&["multi-block", "single-block"])?,
            "--dir" => options.directory = value(&[])?,
            "--log" => options.log = true,
            "--help" | "-h" => options.help = true,
            "--" => {
                options.command = rest.by_ref().cloned().collect();
                break;
            }
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    if options.command.is_empty() && !options.help {
        return Err("no command".into());
    }
    Ok(options)
}

/// Returns a command as it is to be run on the software device.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn command(words: Vec<String>) -> Result<Command, String> {
    prepare(&Options { command: words, ..Options::default() })
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
    command.env("LD_PRELOAD", preload).env_remove("SYSFS_PATH");
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
    if options.log {
        command.env("MLX5_UVERBS_LOG", "1");
    }
    Ok(command)
}

/// Builds the library and returns where it is.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn library() -> Result<PathBuf, String> {
    check(cargo(&["build", "--quiet", "--release", "--package", "mlx5-uverbs"]))?;
    // Where cargo put this very program, two folders up, is where it puts that library.
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = this.ancestors().nth(2).ok_or("no target directory")?;
    let library = target.join("release/libmlx5_uverbs.so");
    if library.exists() { Ok(library) } else { Err(format!("{} was not built", library.display())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let options = parse(&words("--crypto wrapped --log -- ls --crypto nonsense")).unwrap_or_default();
        assert_eq!(options.crypto.as_deref(), Some("wrapped"));
        assert!(options.log);
        assert_eq!(options.command, words("ls --crypto nonsense"));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in
            ["", "--crypto", "--crypto magic -- ls", "--engine both -- ls", "--loud -- ls", "ls", "--"]
        {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
    }
}
