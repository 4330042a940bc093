//! The software device on which programs of other projects run.

use super::running::Running;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use xtask::run::{At, free_port, root};

/// The function that reports a result: it gets the name of a program, and the program's outcome.
pub(super) type Tell<'a> = &'a mut dyn FnMut(&str, Result<String, String>);

/// Debian's Python, for which the package `python3-pyverbs` is built. A checkout's pyverbs runs with it too.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// The time limit of a program. No program needs half of this time.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// The text that our programs around another project's library print when they have compared their data.
pub(super) const COMPARED: &str = "all data compared";

/// The software device on which programs run: the library that replaces the kernel (the stand-in), and the
/// folder for logs, keys and all other files of the run.
pub(crate) struct Device<'a> {
    pub(crate) library: PathBuf,
    pub(crate) folder: &'a Path,
}

impl Device<'_> {
    pub(crate) fn program(&self, name: &str, crypto: &str) -> Command {
        let mut command = Command::new(name);
        command.env("LD_PRELOAD", &self.library).env("MLX5_UVERBS_DIR", self.folder.join("fabric"));
        command.env("MLX5_UVERBS_CRYPTO", crypto).env_remove("SYSFS_PATH");
        command.env("MLX5_CRYPTO_TEST_INFO", root().join("hil-tests/emulator/verbs/crypto_test_info.json"));
        command.current_dir(self.folder).stdin(Stdio::null());
        command
    }

    /// Returns the command of a line, in which `port` replaces the word `PORT`.
    pub(super) fn line(&self, line: &str, port: &str) -> Command {
        let mut words = line.split(' ').map(|word| if word == "PORT" { port } else { word });
        let mut command = self.program(words.next().unwrap_or_default(), "plaintext");
        command.args(words);
        command
    }

    /// Starts a program, and writes its output to a log of this name.
    pub(super) fn start(&self, name: &str, command: Command) -> Result<Running, String> {
        Running::start(command, &self.folder.join(name).with_extension("log"))
    }

    /// Runs a program that compares its data. The program must print all of `proofs`. `name` is that of its
    /// log.
    pub(super) fn compared(&self, name: &str, command: Command, proofs: &[&str]) -> Result<String, String> {
        self.start(name, command)?.finish(LIMIT)?.proven("program", proofs)?;
        Ok(COMPARED.into())
    }

    /// Runs a server and then a client of perftest or rdma-core, with a common port. Returns the output of
    /// the client.
    pub(crate) fn ends(
        &self,
        server: &[&str],
        client: &[&str],
        crypto: &str,
        limit: Duration,
    ) -> Result<String, String> {
        let port = free_port()?;
        let command = |words: &[&str]| {
            let (name, arguments) = words.split_first().ok_or("no program")?;
            let mut command = self.program(name, crypto);
            command.args(arguments).args(["-p", &port.to_string()]);
            Ok::<_, String>(command)
        };
        let mut server = self.start("server", command(server)?)?;
        server.wait_for_port(port, limit)?;
        let mut client = command(client)?;
        client.arg("localhost");
        let client = self.start("client", client)?.finish(limit);
        let (server, client) = (server.finish(limit)?, client?);
        if let Some(end) = [&server, &client].into_iter().find(|end| !end.status.success()) {
            return Err(end.to_string());
        }
        Ok(client.output)
    }

    /// Writes the files with keys, and returns the command lines of `ib_write_bw` for server and client.
    pub(crate) fn encrypted(&self, options: &[&str]) -> Result<(Vec<String>, Vec<String>), String> {
        let info = root().join("hil-tests/emulator/verbs/crypto_test_info.json");
        let info = fs::read_to_string(&info).at(&info)?;
        let lines = |name: &str| {
            let bytes = numbers(&info, name).into_iter().flat_map(u64::to_be_bytes);
            bytes.map(|byte| format!("0x{byte:02x}\n")).collect::<String>()
        };
        let credentials = self.file("credentials", &lines("credential"), 0o600)?;
        let key = self.file("key", &lines("wrapped_key"), 0o600)?;
        // `ib_write_bw` calls a program that writes its data encryption key to a file
        // (`--data_enc_key_app_path`). Server and client call their programs at the same time, for the same
        // file. Hence the server's program sleeps for a second before it writes.
        let tool = |name: &str, wait: &str| {
            self.file(name, &format!("#!/bin/sh\n{wait}\nexec cp '{key}' \"$2\"\n"), 0o700)
        };
        let words = |tool: &str| {
            let mut words: Vec<String> =
                ["ib_write_bw", "-d", "mlx5_0", "-F", "-n", "100", "--aes_xts"].map(String::from).to_vec();
            words.extend(options.iter().map(|option| (*option).to_owned()));
            for (option, value) in [
                ("--kek_path", credentials.as_str()),
                ("--credentials_path", &credentials),
                ("--data_enc_key_app_path", tool),
            ] {
                words.extend([option.to_owned(), value.to_owned()]);
            }
            words
        };
        Ok((words(&tool("late-tool", "sleep 1")?), words(&tool("tool", ":")?)))
    }

    fn file(&self, name: &str, content: &str, mode: u32) -> Result<String, String> {
        let path = self.folder.join(name);
        let written = fs::File::create(&path)
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
        written.at(&path)?;
        Ok(path.to_string_lossy().into_owned())
    }
}

/// Returns the list of numbers with this name in the JSON file of keys.
fn numbers(json: &str, name: &str) -> Vec<u64> {
    let list = json.split_once(&format!("\"{name}\"")).and_then(|(_, rest)| rest.split_once('['));
    let list = list.and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_by_name() {
        let json = "[{\n \"a\": [1,\n 2],\n \"b\": [\n18446744073709551615 ]\n}]";
        assert_eq!(numbers(json, "a"), [1, 2]);
        assert_eq!(numbers(json, "b"), [u64::MAX]);
        assert!(numbers(json, "c").is_empty());
    }
}
