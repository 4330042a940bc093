//! `cargo xtask peer`: other people's programs and tests, unchanged, on the software device.
//!
//! Their tests skip what a device lacks and end well all the same, and one that waits for a completion waits for ever. So
//! how many ran, how many were skipped and why is pinned, and everything runs under a time limit.

mod dpdk;
mod head;
mod modules;
mod pairs;
mod running;
mod served;
mod spdk;

use dpdk::Dpdk;
use modules::{MODULES, Module, counts};
use pairs::{ENCRYPTED, PAIRS, proof};
use running::Running;
use served::SERVED;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use xtask::run::{self, free_port, root};
use xtask::{debian, emulate};

pub(crate) const HELP: &str = "\
cargo xtask peer [--only TEXT | --dpdk | --rdma-core DIR | --spdk DIR [--record FILE]]

Runs rdma-core's own tests, perftest, UCX's programs, qperf, and DPDK's crypto driver under DPDK's
test programs, all unchanged (DPDK's but for limits), on the software device: through the real
libibverbs and libmlx5, with the stand-in where the kernel would be. Debian packages that are
missing are installed when this runs as root, else named; DPDK's are only unpacked, below target.

  --only TEXT      what has TEXT in its line, without DPDK; at least one has to
  --dpdk           instead: DPDK alone, and besides, its cryptodev_mlx5_autotest with queue pairs as
                   large as it asks for; half a million mkeys for each case take half an hour
  --rdma-core DIR  instead: all tests of a checkout of rdma-core that was built in place (cmake with
                   -DIN_PLACE=1, in its folder build), on three kinds of device; none may fail, and
                   errors are taken only where a table says what is not there
  --spdk DIR       instead: lib/mlx5 of the checkout of SPDK in DIR, as it is, with a program that
                   does with it what SPDK's accel module does (AES-XTS, CRC32C, copies, recovery),
                   for each AES-XTS engine; results are compared with OpenSSL's
  --record FILE    besides, writes work requests of a shorter run and their results to FILE (gzip),
                   as in hil-tests/vectors/spdk.jsonl.gz, which a test executes again
  --help           this text
";

/// Where the tests of rdma-core are, some of them compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// The interpreter that the package is made for.
const PYTHON: &str = "/usr/bin/python3";

/// No program here needs half as long.
const LIMIT: Duration = Duration::from_secs(60);

/// A case of `dpdk-test` takes no time, but half a million mkeys are made before it.
const AUTOTEST: Duration = Duration::from_secs(2 * 60 * 60);

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    only: Option<String>,
    dpdk: bool,
    rdma_core: Option<PathBuf>,
    spdk: Option<PathBuf>,
    record: Option<PathBuf>,
    help: bool,
}

/// Runs `cargo xtask peer` with the arguments after `peer`.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let outcome = match parse(arguments) {
        Ok(Options { help: true, .. }) => return run::print(HELP, 0),
        Ok(Options { spdk: Some(checkout), record, .. }) => spdk::check(&checkout, record.as_deref()),
        Ok(Options { rdma_core: Some(checkout), .. }) => {
            on_bench(|bench, tell| bench.checkout(&checkout, tell))
        }
        Ok(Options { dpdk: true, .. }) => check_dpdk(),
        Ok(Options { only, .. }) => check(only.as_deref()),
        Err(message) => return run::misuse(&format!("error: {message}\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => run::failed(&message),
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    use lexopt::prelude::*;
    let explain = |error: lexopt::Error| error.to_string();
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(explain)? {
        match argument {
            Long("only") => {
                options.only = Some(parser.value().and_then(|value| value.string()).map_err(explain)?);
            }
            Long("dpdk") => options.dpdk = true,
            Long("rdma-core") => options.rdma_core = Some(parser.value().map_err(explain)?.into()),
            Long("spdk") => options.spdk = Some(parser.value().map_err(explain)?.into()),
            Long("record") => options.record = Some(parser.value().map_err(explain)?.into()),
            Long("help") | Short('h') => options.help = true,
            other => return Err(explain(other.unexpected())),
        }
    }
    let chosen = [options.only.is_some(), options.dpdk, options.rdma_core.is_some(), options.spdk.is_some()];
    if chosen.into_iter().filter(|chosen| *chosen).count() > 1 {
        return Err("one of --only, --dpdk, --rdma-core, --spdk".into());
    }
    if options.record.is_some() && options.spdk.is_none() {
        return Err("only SPDK's requests are recorded".into());
    }
    Ok(options)
}

/// Runs everything, or what has `only` in its line, and prints a line for each.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn check(only: Option<&str>) -> Result<(), String> {
    debian::install(debian::PEERS)?;
    on_bench(|bench, tell| {
        bench.unpack()?;
        let mut any = false;
        let mut run = |name: &str, body: &dyn Fn() -> Result<String, String>| {
            if only.is_none_or(|only| name.contains(only)) {
                any = true;
                tell(name, body());
            }
        };
        run("ibv_devinfo", &|| bench.devinfo());
        for module in MODULES {
            let name = format!("{} ({}, {})", module.name, module.crypto, module.engine);
            run(&name, &|| bench.module(module));
        }
        for pair in PAIRS {
            run(&pair.join(" "), &|| bench.pair(pair, pair, "plaintext"));
        }
        for served in SERVED {
            run(served.name, &|| bench.served(served));
        }
        for options in ENCRYPTED {
            run(&format!("ib_write_bw --aes_xts {}", options.join(" ")), &|| {
                let (server, client) = bench.encrypted(options)?;
                bench.pair(&refs(&server), &refs(&client), "wrapped")
            });
        }
        match only {
            None => Dpdk::new(bench)?.run(tell),
            Some(only) if !any => return Err(format!("nothing has {only:?} in its line")),
            Some(_) => {}
        }
        Ok(())
    })
}

/// Runs DPDK's programs alone, and its tests of crypto devices as large as they are.
fn check_dpdk() -> Result<(), String> {
    on_bench(|bench, tell| {
        let dpdk = Dpdk::new(bench)?;
        dpdk.run(&mut *tell);
        tell("dpdk-test cryptodev_mlx5_autotest", dpdk.autotest(None, AUTOTEST));
        Ok(())
    })
}

/// What is told of each program: its name, and what came of it.
type Tell<'a> = &'a mut dyn FnMut(&str, Result<String, String>);

/// Has programs run on the device, and prints a line for each.
fn on_bench(body: impl FnOnce(&Bench<'_>, Tell<'_>) -> Result<(), String>) -> Result<(), String> {
    debian::install(debian::VERBS)?;
    let folder = run::temporary("peer")?;
    let bench = Bench { library: emulate::library()?, folder: folder.path() };
    let mut failed = 0;
    body(&bench, &mut |name, outcome| match outcome {
        Ok(what) => println!("passed  {name}: {what}"),
        Err(what) => {
            failed += 1;
            println!("FAILED  {name}: {what}");
        }
    })?;
    if failed == 0 { Ok(()) } else { Err(format!("{failed} peers failed")) }
}

fn refs(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

/// The library, and a folder for everything else.
pub(crate) struct Bench<'a> {
    pub(crate) library: PathBuf,
    pub(crate) folder: &'a Path,
}

impl Bench<'_> {
    /// Returns a program that is to run on the device.
    pub(crate) fn program(&self, name: &str, crypto: &str) -> Command {
        let mut command = Command::new(name);
        command.env("LD_PRELOAD", &self.library).env("MLX5_UVERBS_DIR", self.folder.join("fabric"));
        command.env("MLX5_UVERBS_CRYPTO", crypto).env_remove("SYSFS_PATH");
        command.env("MLX5_CRYPTO_TEST_INFO", root().join("hil-tests/emulator/verbs/crypto_test_info.json"));
        command.current_dir(self.folder).stdin(Stdio::null());
        command
    }

    /// Starts a program, whose output goes to a file of that name.
    fn start(&self, name: &str, command: Command) -> Result<Running, String> {
        Running::start(command, &self.folder.join(name).with_extension("log"))
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
        let end = self.start("devinfo", self.program("ibv_devinfo", "none"))?.finish(LIMIT)?;
        if end.status.success() && end.said.contains("mlx5_0") && end.said.contains("PORT_ACTIVE") {
            Ok("mlx5_0 is there and its port active".into())
        } else {
            Err(end.to_string())
        }
    }

    fn module(&self, module: &Module) -> Result<String, String> {
        let mut command = self.program(PYTHON, module.crypto);
        command.env("MLX5_UVERBS_ENGINE", module.engine).args([
            "tests/run_tests.py",
            "--dev",
            "mlx5_0",
            "-v",
        ]);
        command.arg(format!("tests.{}", module.name));
        let end = self.start("module", command)?.finish(LIMIT)?;
        let (expected, found) = (module.counts(), counts(&end.said));
        if end.status.success() && found == expected {
            Ok(expected.to_string())
        } else {
            Err(format!("expected {expected}\nfound {found}\n{end}"))
        }
    }

    /// Runs a server and, behind it, a client.
    fn pair(&self, server: &[&str], client: &[&str], crypto: &str) -> Result<String, String> {
        let (said, proof) = (self.ends(server, client, crypto, LIMIT)?, proof(client));
        if said.contains(proof) {
            Ok("both passed".into())
        } else {
            Err(format!("the client does not say `{}`:\n{said}", proof.trim()))
        }
    }

    /// Runs a server and, behind it, a client, and returns what the client has said.
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
        Ok(client.said)
    }

    /// Writes the files with keys, and returns the words for server and client.
    pub(crate) fn encrypted(&self, options: &[&str]) -> Result<(Vec<String>, Vec<String>), String> {
        let info = root().join("hil-tests/emulator/verbs/crypto_test_info.json");
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
    fn a_recording_is_of_spdk() {
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        let options = parse(&words("--spdk spdk --record file")).unwrap();
        assert_eq!((options.spdk, options.record), (Some("spdk".into()), Some("file".into())));
        assert_eq!(parse(&[]), Ok(Options::default()));
        assert_eq!(parse(&words("--only UD")).unwrap().only.as_deref(), Some("UD"));
        for line in [
            "--only UD --dpdk",
            "--dpdk --spdk spdk",
            "--rdma-core core --spdk spdk",
            "--record file",
            "--spdk",
            "spdk",
        ] {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn keys_are_read_by_name() {
        let json = "[{\n \"a\": [1,\n 2],\n \"b\": [\n18446744073709551615 ]\n}]";
        assert_eq!(numbers(json, "a"), [1, 2]);
        assert_eq!(numbers(json, "b"), [u64::MAX]);
        assert!(numbers(json, "c").is_empty());
    }
}
