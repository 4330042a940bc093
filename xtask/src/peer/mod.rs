//! `cargo xtask peer`: runs unchanged programs and tests of other projects on the software device.
//!
//! These tests skip features that a device lacks, and pass nevertheless. So `modules.rs` lists the expected
//! numbers of tests and skips, and the reasons of the skips. Every program has a time limit, because a test
//! that misses a completion waits for ever.

mod built;
mod device;
mod dpdk;
mod modules;
mod namespaces;
mod pairs;
mod pypi;
mod rdma_core;
mod running;
mod served;
mod spdk;

pub(crate) use device::Device;
use device::{LIMIT, PYTHON, Tell};
use dpdk::Dpdk;
use modules::{MODULES, Module, counts};
use pairs::{ENCRYPTED, PAIRS, proof};
use served::SERVED;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use xtask::run::{self, At};
use xtask::{debian, emulate};

pub(crate) const HELP: &str = "\
cargo xtask peer [--only TEXT | --dpdk | --pypi | --built | --rdma-core DIR |
                  --spdk DIR [--record FILE]]

Runs programs of others, unchanged, on the software device: rdma-core's tests, perftest, UCX, qperf,
fio, libfabric, and DPDK's crypto driver under DPDK's test programs (some with changed limits). They
use the real libibverbs and libmlx5; the stand-in takes the place of the kernel. As root, this task
installs missing Debian packages; else it names them. DPDK is only unpacked, below target.

  --only TEXT      run the programs whose line contains TEXT, without DPDK; one at least must match
  --dpdk           run DPDK alone, and also its cryptodev_mlx5_autotest with queue pairs of the size
                   that it asks for: half a million mkeys for each case take half an hour
  --pypi           run two ranks of Open MPI 5 over UCX 1.20, over each of UCX's transports, and
                   Mooncake's transfer engine; they compare their data. Their Python packages are
                   installed below target
  --built          build and run the tests of the crate sideway, below target, a program whose
                   queues sideway makes and this library takes over, and a program over librpma;
                   both programs compare their data
  --rdma-core DIR  run all tests of a checkout of rdma-core that was built in place (cmake with
                   -DIN_PLACE=1, in its folder build), on three kinds of device. No test may fail; a
                   table lists the tests that end with an error for a missing feature
  --spdk DIR       run lib/mlx5 of a checkout of SPDK under a program that calls it as SPDK's accel
                   module does (AES-XTS, CRC32C, copies, recovery), for each AES-XTS engine; results
                   are compared with OpenSSL's
  --record FILE    with --spdk: write the work requests and results of a shorter run to FILE (gzip),
                   for hil-tests/vectors/spdk.jsonl.gz, which a test executes again
  --help           this text
";

/// The folder with rdma-core's tests. Some files in it are compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// The time limit of `dpdk-test`. Its cases are short, but half a million mkeys are made before each.
const AUTOTEST: Duration = Duration::from_secs(2 * 60 * 60);

/// Programs that show the device's port, and the texts that each must print.
const SHOWN: &[(&str, &[&str])] = &[
    ("ibv_devinfo", &["mlx5_0", "PORT_ACTIVE"]),
    ("ibstat", &["CA 'mlx5_0'", "State: Active", "Physical state: LinkUp", "Link layer: Ethernet"]),
    ("ibstatus", &["'mlx5_0' port 1", "fe80:0000:0000:0000:", "4: ACTIVE", "5: LinkUp", "Ethernet"]),
    ("rdma link", &["link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev "]),
    ("rdma statistic", &["link mlx5_0/1 ", "rx_write_requests ", "out_of_buffer "]),
    ("rdma -j dev", &["\"ifname\":\"mlx5_0\"", "\"node_type\":\"ca\""]),
    ("ibv_devinfo -v", &["GID[  0]:\t\tfe80:", "GID[  1]:\t\tfe80:", ", RoCE v1", ", RoCE v2"]),
];

/// The programs that an option selects.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Only(String),
    Dpdk,
    Pypi,
    Built,
    RdmaCore(PathBuf),
    Spdk(PathBuf),
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    run::with_options(arguments, HELP, parse, |(choice, record)| {
        run::status(match choice {
            None => check(None),
            Some(Choice::Only(text)) => check(Some(&text)),
            Some(Choice::Dpdk) => check_dpdk(),
            Some(Choice::Pypi) => on_device(pypi::run),
            Some(Choice::Built) => on_device(built::run),
            Some(Choice::RdmaCore(checkout)) => on_device(|device, tell| device.checkout(&checkout, tell)),
            Some(Choice::Spdk(checkout)) => spdk::check(&checkout, record.as_deref()),
        })
    })
}

/// Returns the selected programs, and the file of `--record`.
fn parse(words: &mut run::Options) -> Result<(Option<Choice>, Option<PathBuf>), String> {
    let (mut choice, mut record) = (None, None);
    while let Some(option) = words.word()? {
        let chosen = match option.as_str() {
            "--only" => Choice::Only(words.value()?),
            "--dpdk" => Choice::Dpdk,
            "--pypi" => Choice::Pypi,
            "--built" => Choice::Built,
            "--rdma-core" => Choice::RdmaCore(words.value()?),
            "--spdk" => Choice::Spdk(words.value()?),
            "--record" => {
                record = Some(words.value()?);
                continue;
            }
            other => return Err(run::unknown(other)),
        };
        if choice.replace(chosen).is_some() {
            return Err("--only, --dpdk, --pypi, --built, --rdma-core and --spdk exclude each other".into());
        }
    }
    if record.is_some() && !matches!(choice, Some(Choice::Spdk(_))) {
        return Err("--record goes with --spdk".into());
    }
    Ok((choice, record))
}

/// Runs all programs, or only the programs whose line contains `only`. Prints a line for each.
pub(crate) fn check(only: Option<&str>) -> Result<(), String> {
    debian::install(debian::PEERS)?;
    on_device(|device, tell| {
        device.unpack()?;
        let mut any = false;
        let mut run = |name: &str, body: &dyn Fn() -> Result<String, String>| {
            if only.is_none_or(|only| name.contains(only)) {
                any = true;
                tell(name, body());
            }
        };
        for (line, proofs) in SHOWN {
            run(line, &|| device.shown(line, proofs));
        }
        for module in MODULES {
            let name = format!("{} ({}, {})", module.name, module.crypto, module.engine);
            run(&name, &|| device.module(module));
        }
        for line in PAIRS {
            let pair: Vec<&str> = line.split(' ').collect();
            run(line, &|| device.pair(&pair, &pair, "plaintext"));
        }
        for served in SERVED {
            run(served.name, &|| device.served(served));
        }
        run("perftest and UCX in two network namespaces", &|| device.namespaces());
        run("two devices of one network namespace", &|| device.two_devices());
        run("ping-pong, perftest and ibstat over InfiniBand ports", &|| device.infiniband());
        for options in ENCRYPTED {
            run(&format!("ib_write_bw --aes_xts {}", options.join(" ")), &|| {
                let (server, client) = device.encrypted(options)?;
                device.pair(&refs(&server), &refs(&client), "wrapped")
            });
        }
        match only {
            None => Dpdk::new(device)?.run(tell),
            Some(only) if !any => return Err(format!("no line contains {only:?}")),
            Some(_) => {}
        }
        Ok(())
    })
}

/// Runs DPDK's programs alone. Its crypto tests run once more, with the limits that they ask for.
fn check_dpdk() -> Result<(), String> {
    on_device(|device, tell| {
        let dpdk = Dpdk::new(device)?;
        dpdk.run(&mut *tell);
        tell("dpdk-test cryptodev_mlx5_autotest", dpdk.autotest(None, AUTOTEST));
        Ok(())
    })
}

/// Installs libmlx5, and calls `body` with a software device. Prints a line for each result that `body`
/// reports. Returns an error if a reported result is an error.
fn on_device(body: impl FnOnce(&Device<'_>, Tell<'_>) -> Result<(), String>) -> Result<(), String> {
    debian::install(debian::VERBS)?;
    let folder = run::temporary("peer")?;
    let device = Device { library: emulate::library()?, folder: folder.path() };
    let mut failed = 0;
    body(&device, &mut |name, outcome| match outcome {
        Ok(summary) => println!("passed  {name}: {summary}"),
        Err(error) => {
            failed += 1;
            println!("FAILED  {name}: {error}");
        }
    })?;
    if failed == 0 { Ok(()) } else { Err(format!("{failed} peers failed")) }
}

fn refs(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

impl Device<'_> {
    /// Copies rdma-core's tests to the folder of the run, and unpacks compressed files.
    fn unpack(&self) -> Result<(), String> {
        let tests = self.folder.join("tests");
        let copied = Command::new("cp").arg("-r").arg(TESTS).arg(&tests).status();
        let packed = |path: &Path| path.extension().is_some_and(|extension| extension == "gz");
        let files = fs::read_dir(&tests).at(&tests)?;
        let packed = files.flatten().map(|entry| entry.path()).filter(|path| packed(path));
        let unpacked = Command::new("gunzip").args(packed).status();
        let fine = [copied, unpacked].into_iter().all(|status| status.is_ok_and(|status| status.success()));
        if fine { Ok(()) } else { Err("the tests of rdma-core could not be unpacked".into()) }
    }

    /// Runs a program that must print all of `proofs`.
    fn shown(&self, line: &str, proofs: &[&str]) -> Result<String, String> {
        self.start("shown", self.line(line, ""))?.finish(LIMIT)?.proven("program", proofs)?;
        Ok("shows the port".into())
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
        let (expected, found) = (module.counts(), counts(&end.output));
        if end.status.success() && found == expected {
            Ok(expected.to_string())
        } else {
            Err(format!("expected {expected}\nfound {found}\n{end}"))
        }
    }

    /// Runs a server and then a client, and checks that the client prints the text that proves its success.
    fn pair(&self, server: &[&str], client: &[&str], crypto: &str) -> Result<String, String> {
        let (output, proof) = (self.ends(server, client, crypto, LIMIT)?, proof(client));
        if output.contains(proof) {
            Ok("both passed".into())
        } else {
            Err(format!("the client did not print `{}`:\n{output}", proof.trim()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_of_spdk() {
        let parsed = |line: &str| parse(&mut run::Options::new(line.split_whitespace()));
        let recorded = (Some(Choice::Spdk("spdk".into())), Some("file".into()));
        assert_eq!(parsed("--record file --spdk spdk"), Ok(recorded));
        assert_eq!(parsed(""), Ok((None, None)));
        assert_eq!(parsed("--only UD"), Ok((Some(Choice::Only("UD".into())), None)));
        for line in [
            "--only UD --dpdk",
            "--dpdk --spdk spdk",
            "--dpdk --pypi",
            "--pypi --built",
            "--rdma-core core --spdk spdk",
            "--record file",
            "--spdk",
            "spdk",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
