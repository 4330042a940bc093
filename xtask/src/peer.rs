//! `cargo xtask peer`: other people's programs and tests, unchanged, on the software device.
//!
//! Their tests skip what a device lacks and end well all the same, and one that waits for a completion waits for ever. So
//! how many ran and how many were skipped is pinned here, and everything runs under a time limit.

use crate::run::root;
use crate::{debian, emulate};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const HELP: &str = "\
cargo xtask peer

Runs rdma-core's own tests and perftest, unchanged, on the software device: through the real
libibverbs and libmlx5, with the stand-in where the kernel would be. Debian packages that are
missing are installed when this runs as root, else named.
";

/// Where the tests of rdma-core are, some of them compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// The interpreter that the package is made for.
const PYTHON: &str = "/usr/bin/python3";

/// No program here needs half as long.
const LIMIT: Duration = Duration::from_secs(60);

/// A module of rdma-core's tests on a kind of device, and what is to come of it.
struct Module {
    name: &'static str,
    crypto: &'static str,
    engine: &'static str,
    run: u32,
    skipped: u32,
}

const MODULES: &[Module] = &[
    Module { name: "test_mlx5_mkey", crypto: "none", engine: "multi-block", run: 11, skipped: 0 },
    Module { name: "test_mlx5_mkey", crypto: "plaintext", engine: "multi-block", run: 11, skipped: 0 },
    // Two of seven want keys in plaintext; the other five are the next line's skipped ones.
    Module { name: "test_mlx5_crypto", crypto: "wrapped", engine: "multi-block", run: 7, skipped: 2 },
    Module { name: "test_mlx5_crypto", crypto: "plaintext", engine: "multi-block", run: 7, skipped: 5 },
    // One of each import method wants many blocks.
    Module { name: "test_mlx5_crypto", crypto: "wrapped", engine: "single-block", run: 7, skipped: 3 },
    Module { name: "test_mlx5_crypto", crypto: "plaintext", engine: "single-block", run: 7, skipped: 6 },
    // Skipped: datagrams, XRC, shared receive queues, memory windows, device memory, raw packets, timestamps.
    Module { name: "test_atomic", crypto: "none", engine: "multi-block", run: 9, skipped: 2 },
    Module { name: "test_cq", crypto: "none", engine: "multi-block", run: 4, skipped: 1 },
    Module { name: "test_cq_events", crypto: "none", engine: "multi-block", run: 2, skipped: 1 },
    Module { name: "test_cqex", crypto: "none", engine: "multi-block", run: 5, skipped: 2 },
    Module { name: "test_device", crypto: "none", engine: "multi-block", run: 22, skipped: 10 },
    Module { name: "test_mlx5_cq", crypto: "none", engine: "multi-block", run: 9, skipped: 4 },
    Module { name: "test_mlx5_raw_wqe", crypto: "none", engine: "multi-block", run: 1, skipped: 0 },
    Module { name: "test_mlx5_uar", crypto: "none", engine: "multi-block", run: 1, skipped: 0 },
    Module { name: "test_pd", crypto: "none", engine: "multi-block", run: 4, skipped: 0 },
    Module { name: "test_qp", crypto: "none", engine: "multi-block", run: 26, skipped: 17 },
    Module { name: "test_qpex", crypto: "none", engine: "multi-block", run: 20, skipped: 11 },
];

/// Client and server programs; what both get.
const PAIRS: &[&[&str]] = &[
    &["ibv_rc_pingpong", "-d", "mlx5_0", "-g", "0", "-e", "-n", "200"],
    &["ib_write_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "4096"],
    &["ib_read_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "4096"],
    &["ib_send_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "4096"],
    &["ib_send_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "65536", "-e"],
    &["ib_write_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "4096", "-q", "4"],
];

/// Options of `ib_write_bw` for encrypted traffic, besides the files with keys.
const ENCRYPTED: &[&[&str]] = &[
    &["--aes_block_size=512", "-s", "4096", "--encrypt_on_tx"],
    &["--aes_block_size=4096", "-s", "65536"],
    &["--aes_block_size=512", "-s", "512", "--encrypt_on_tx", "--sig_before"],
];

/// Runs everything and prints a line for each.
pub(crate) fn run() -> ExitCode {
    match check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything and prints a line for each.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn check() -> Result<(), String> {
    debian::install(debian::VERBS)?;
    debian::install(debian::PEERS)?;
    let folder = Folder::new()?;
    let bench = Bench { library: emulate::library()?, folder: &folder.0 };
    bench.unpack()?;
    let mut failed = 0;
    let mut tell = |name: &str, outcome: Result<String, String>| match outcome {
        Ok(what) => println!("ok      {name}: {what}"),
        Err(what) => {
            failed += 1;
            println!("FAILED  {name}: {what}");
        }
    };
    tell("ibv_devinfo", bench.devinfo());
    for module in MODULES {
        let name = format!("{} ({}, {})", module.name, module.crypto, module.engine);
        tell(&name, bench.module(module));
    }
    for pair in PAIRS {
        tell(&pair.join(" "), bench.pair(pair, pair, "plaintext"));
    }
    for options in ENCRYPTED {
        let (server, client) = bench.encrypted(options)?;
        let words = |list: &[String]| bench.pair(&refs(list), &refs(&client), "wrapped");
        tell(&format!("ib_write_bw --aes_xts {}", options.join(" ")), words(&server));
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} peers are not content")) }
}

fn refs(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("mlx5-peer-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The library, and a folder for everything else.
struct Bench<'a> {
    library: PathBuf,
    folder: &'a Path,
}

impl Bench<'_> {
    /// Returns a program that is to run on the device.
    fn program(&self, name: &str, crypto: &str) -> Command {
        let mut command = Command::new(name);
        command.env("LD_PRELOAD", &self.library).env("MLX5_UVERBS_DIR", self.folder.join("fabric"));
        command.env("MLX5_UVERBS_CRYPTO", crypto).env_remove("SYSFS_PATH");
        command.env("MLX5_CRYPTO_TEST_INFO", root().join("hil-tests/uverbs/crypto_test_info.json"));
        command.current_dir(self.folder).stdin(Stdio::null());
        command
    }

    /// Copies rdma-core's tests and unpacks them.
    fn unpack(&self) -> Result<(), String> {
        let tests = self.folder.join("tests");
        let copied = Command::new("cp").arg("-r").arg(TESTS).arg(&tests).status();
        let packed = |path: &Path| path.extension().is_some_and(|extension| extension == "gz");
        let files = fs::read_dir(&tests).map_err(|error| format!("{}: {error}", tests.display()))?;
        let packed = files.flatten().map(|entry| entry.path()).filter(|path| packed(path));
        let unpacked = Command::new("gunzip").args(packed).status();
        let fine = [copied, unpacked].into_iter().all(|status| status.is_ok_and(|status| status.success()));
        if fine { Ok(()) } else { Err("the tests of rdma-core could not be unpacked".into()) }
    }

    fn devinfo(&self) -> Result<String, String> {
        let output = finish(start(self.program("ibv_devinfo", "none"))?)?;
        let text = String::from_utf8_lossy(&output.stdout);
        if output.status.success() && text.contains("mlx5_0") && text.contains("PORT_ACTIVE") {
            Ok("mlx5_0 is there and its port active".into())
        } else {
            Err(said(&output))
        }
    }

    fn module(&self, module: &Module) -> Result<String, String> {
        let mut command = self.program(PYTHON, module.crypto);
        command.env("MLX5_UVERBS_ENGINE", module.engine).args(["tests/run_tests.py", "--dev", "mlx5_0"]);
        command.arg(format!("tests.{}", module.name));
        let output = finish(start(command)?)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let counts = (number_after(&text, "Ran "), number_after(&text, "skipped=").or(Some(0)));
        if output.status.success() && counts == (Some(module.run), Some(module.skipped)) {
            Ok(format!("{} ran, {} skipped", module.run, module.skipped))
        } else {
            Err(format!("{} were to run and {} to be skipped: {}", module.run, module.skipped, said(&output)))
        }
    }

    /// Runs a server and, behind it, a client.
    fn pair(&self, server: &[&str], client: &[&str], crypto: &str) -> Result<String, String> {
        let command = |words: &[&str]| {
            let (name, arguments) = words.split_first().ok_or("no program")?;
            let mut command = self.program(name, crypto);
            command.args(arguments).args(["-p", &port().to_string()]);
            Ok::<_, String>(command)
        };
        let server = start(command(server)?)?;
        // It says nowhere that it listens.
        std::thread::sleep(Duration::from_millis(500));
        let mut client = command(client)?;
        let client = finish(start({
            client.arg("localhost");
            client
        })?);
        let server = finish(server);
        let (server, client) = (server?, client?);
        for output in [&server, &client] {
            if !output.status.success() {
                return Err(said(output));
            }
        }
        Ok("both content".into())
    }

    /// Writes the files with keys, and returns the words for server and client.
    fn encrypted(&self, options: &[&str]) -> Result<(Vec<String>, Vec<String>), String> {
        let info = root().join("hil-tests/uverbs/crypto_test_info.json");
        let info = fs::read_to_string(&info).map_err(|error| format!("{}: {error}", info.display()))?;
        let lines = |name: &str| {
            let bytes = numbers(&info, name).into_iter().flat_map(u64::to_be_bytes);
            bytes.map(|byte| format!("0x{byte:02x}\n")).collect::<String>()
        };
        let credentials = self.file("credentials", &lines("credential"), 0o600)?;
        let key = self.file("key", &lines("wrapped_key"), 0o600)?;
        // Both programs call theirs at once, with the same name for its output: one of them has to wait.
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
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }
}

/// Returns a port that differs from run to run.
fn port() -> u32 {
    20_000 + std::process::id() % 10_000
}

fn start(mut command: Command) -> Result<Child, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("{name}: {error}"))
}

/// Waits for a program, which is ended when its time is over. None here writes more than a pipe holds.
fn finish(mut child: Child) -> Result<Output, String> {
    let start = Instant::now();
    let mut late = false;
    while matches!(child.try_wait(), Ok(None)) {
        if start.elapsed() > LIMIT {
            late = true;
            let _ = child.kill();
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if late { Err(format!("took longer than {} s: {}", LIMIT.as_secs(), said(&output))) } else { Ok(output) }
}

/// Returns the end of what a program has said.
fn said(output: &Output) -> String {
    let text = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].join("\n");
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(12);
    format!("{}\n{}", output.status, lines.get(from..).unwrap_or_default().join("\n"))
}

fn number_after(text: &str, mark: &str) -> Option<u32> {
    let rest = text.split_once(mark)?.1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns the list of numbers called `name` from the file with keys.
fn numbers(json: &str, name: &str) -> Vec<u64> {
    let list = json.split_once(&format!("\"{name}\"")).and_then(|(_, rest)| rest.split_once('['));
    let list = list.and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_the_tests_say() {
        let text = "ss..\n----\nRan 7 tests in 0.1s\n\nOK (skipped=2)\n";
        assert_eq!((number_after(text, "Ran "), number_after(text, "skipped=")), (Some(7), Some(2)));
        assert_eq!(number_after(text, "errors="), None);
    }

    #[test]
    fn keys_are_read_by_name() {
        let json = "[{\n \"a\": [1,\n 2],\n \"b\": [\n18446744073709551615 ]\n}]";
        assert_eq!(numbers(json, "a"), [1, 2]);
        assert_eq!(numbers(json, "b"), [u64::MAX]);
        assert!(numbers(json, "c").is_empty());
    }
}
