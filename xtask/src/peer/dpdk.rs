//! DPDK's crypto driver, unchanged, under DPDK's own test programs: `dpdk-test-crypto-perf`, and the crypto
//! tests of `dpdk-test` with NVIDIA's vectors. For lines that end with "limits changed",
//! `hil-tests/peer/dpdk/limits.c` lowers limits that the test program asks for.

use super::device::{Device, LIMIT, Tell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::debian::{self, Architecture, Dependencies};
use xtask::{host, run};

/// Other packages that DPDK's programs need and a small Debian with libibverbs lacks.
#[rustfmt::skip]
const OTHERS: &[&str] =
    &["libbsd0", "libdbus-1-3", "libelf1", "libfdt1", "libjansson4", "libmd0", "libnuma1", "libpcap0.8"];

/// DPDK's own packages: libraries that the two programs are linked with, the driver, and its dependencies.
/// Debian's name of the package of `x` is `librte-x23`.
#[rustfmt::skip]
const LIBRARIES: &[&str] = &[
    "acl", "bbdev", "bitratestats", "bpf", "bus-auxiliary", "bus-pci", "bus-vdev", "cfgfile", "cmdline",
    "common-mlx5-", "compressdev", "crypto-mlx5-", "crypto-scheduler", "cryptodev", "distributor",
    "dmadev", "eal", "efd", "ethdev", "event-skeleton", "eventdev", "fib", "gpudev", "graph", "gro",
    "gso", "hash", "ip-frag", "ipsec", "jobstats", "kvargs", "latencystats", "lpm", "mbuf", "member",
    "mempool", "mempool-ring", "mempool-stack", "meter", "metrics", "net", "net-bond", "net-null",
    "net-ring", "node", "pcapng", "pci", "pdump", "pipeline", "port", "power", "rawdev", "rcu",
    "regexdev", "reorder", "rib", "ring", "sched", "security", "stack", "table", "telemetry", "timer",
    "vhost",
];

/// The name of Debian's library folder for this architecture.
const TRIPLET: &str = if cfg!(target_arch = "aarch64") { "aarch64-linux-gnu" } else { "x86_64-linux-gnu" };

/// The plugins that DPDK loads: the PCI bus, a memory pool, and the driver.
const PLUGINS: &[&str] = &["librte_bus_pci.so.23", "librte_mempool_ring.so.23", "librte_crypto_mlx5.so.23"];

/// The device argument of DPDK: PCI address, class and keytag. All keys of the vectors have this keytag.
const DEVICE: &str = "0000:c1:00.0,class=crypto,keytag=0x0123456789abcdef";

/// The number of operations in a run, more than the slots of a queue pair.
const OPERATIONS: u64 = 5000;

/// The settings of a run of `dpdk-test-crypto-perf`.
#[derive(Clone, Copy)]
struct Work {
    crypto: &'static str,
    engine: &'static str,
    /// The beginning of the vector's name. The order of the tweak's bytes and the kind of key follow it.
    vector: &'static str,
    /// The operation: `encrypt` or `decrypt`.
    operation: &'static str,
    options: &'static [&'static str],
}

const fn work(
    crypto: &'static str,
    engine: &'static str,
    operation: &'static str,
    vector: &'static str,
    options: &'static [&'static str],
) -> Work {
    Work { crypto, engine, vector, operation, options }
}

/// Options that split the data of an operation into 8 segments, the driver's default limit.
const IN_SEGMENTS: &[&str] = &["--segment-sz", "512"];
/// Options with which the result goes to a buffer other than the data's.
const APART: &[&str] = &["--out-of-place", "--segment-sz", "8192"];

const WORK: &[Work] = &[
    work("plaintext", "multi-block", "encrypt", "512-128", &[]),
    work("plaintext", "multi-block", "decrypt", "4096-256", IN_SEGMENTS),
    work("plaintext", "multi-block", "encrypt", "4096-256", APART),
    work("plaintext", "multi-block", "decrypt", "512-128", APART),
    work("plaintext", "multi-block-le", "encrypt", "4096-128", IN_SEGMENTS),
    work("plaintext", "single-block", "encrypt", "4096-128", IN_SEGMENTS),
    work("plaintext", "single-block", "decrypt", "512-256", &[]),
    work("wrapped", "multi-block", "encrypt", "4096-128", IN_SEGMENTS),
    work("wrapped", "multi-block", "decrypt", "512-256", APART),
    work("wrapped", "single-block", "encrypt", "512-256", &[]),
    work("wrapped", "single-block", "decrypt", "4096-128", IN_SEGMENTS),
];

/// The number of tests of `cryptodev_mlx5_autotest` that pass.
const PASSED: usize = 15;

/// Tests that fail before they call the driver: they take 4,096 bytes twice from buffers of 4,288 bytes.
const FAILED: &[&str] = &[
    "AES-256-XTS Encryption (4096-byte plaintext Dataunit 4096) Scatter gather OOP",
    "AES-256-XTS Decryption (4096-byte plaintext Dataunit 4096) Scatter gather OOP",
    "AES-256-XTS Encryption (4096-byte plaintext Dataunit 0) Scatter gather OOP",
    "AES-256-XTS Decryption (4096-byte plaintext Dataunit 0) Scatter gather OOP",
];

/// DPDK's packages, unpacked below `root`, and the device on which DPDK's programs run.
pub(super) struct Dpdk<'a> {
    device: &'a Device<'a>,
    root: PathBuf,
    /// The library folders, for `LD_LIBRARY_PATH`.
    libraries: String,
    /// The library that changes limits. It is loaded before DPDK's libraries.
    limits: PathBuf,
}

impl<'a> Dpdk<'a> {
    /// Unpacks DPDK, writes vectors and credentials into the device's folder, and compiles the library that
    /// lowers limits.
    pub(super) fn new(device: &'a Device<'a>) -> Result<Self, String> {
        let libraries: Vec<String> = LIBRARIES.iter().map(|name| format!("librte-{name}23")).collect();
        let packages: Vec<&str> = ["dpdk-dev"]
            .into_iter()
            .chain(libraries.iter().map(String::as_str))
            .chain(OTHERS.iter().copied())
            .collect();
        let root = debian::unpack(None, Architecture::Own, "dpdk", &packages, Dependencies::Omitted)?;
        run::check(host::task("xtask-device", &["dpdk", &device.folder.to_string_lossy()])?)?;
        let limits = device.folder.join("limits.so");
        let mut compiler = run::program("cc", &["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]);
        compiler.arg(&limits).arg(run::root().join("hil-tests/peer/dpdk/limits.c"));
        run::check(compiler)?;
        let folders = ["usr/lib", "lib"].map(|folder| root.join(folder).join(TRIPLET).display().to_string());
        Ok(Self { device, root, libraries: folders.join(":"), limits })
    }

    pub(super) fn run(&self, tell: Tell<'_>) {
        tell("dpdk-test-crypto-perf throughput", self.throughput());
        for work in WORK {
            let Work { crypto, engine, vector, operation, options } = work;
            let words =
                [["dpdk-test-crypto-perf", *operation, *vector].as_slice(), *options].concat().join(" ");
            let limits = if *crypto == "wrapped" { "; limits changed" } else { "" };
            let name = format!("{words} ({crypto}, {engine}{limits})");
            tell(&name, self.verify(work, order(engine), 0));
        }
        let wrong = work("plaintext", "multi-block", "encrypt", "512-128", &[]);
        tell(
            "dpdk-test-crypto-perf with tweaks in the wrong byte order",
            self.verify(&wrong, "le", OPERATIONS),
        );
        tell(
            "dpdk-test cryptodev_mlx5_autotest (wrapped, single-block; limits changed)",
            self.autotest(Some(&self.limits), LIMIT),
        );
    }

    /// Runs DPDK's crypto tests with NVIDIA's vectors.
    pub(super) fn autotest(&self, limits: Option<&Path>, limit: Duration) -> Result<String, String> {
        // The keys of these vectors have no keytag, and are wrapped with the second key of the device.
        let credential = self.device.folder.join("credential-1");
        let device = format!("0000:c1:00.0,class=crypto,import_kek_id=1,wcs_file={}", credential.display());
        let mut command = self.program("dpdk-test", &device, 1024, ["wrapped", "single-block"], limits)?;
        command.arg("cryptodev_mlx5_autotest");
        let end = self.device.start("autotest", command)?.finish(limit)?;
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, outcome) in end.output.lines().filter_map(case) {
            found.entry(outcome).or_default().push(name);
        }
        let (passed, failed) = (found.remove("succeeded"), found.remove("failed"));
        let (passed, failed) = (passed.map_or(0, |names| names.len()), failed.unwrap_or_default());
        if (passed, failed.as_slice()) == (PASSED, FAILED) {
            Ok(format!("{passed} passed; {} fail in the test itself", failed.len()))
        } else {
            Err(format!("{passed} of {PASSED} passed, failed: {failed:?}\n{end}"))
        }
    }

    fn throughput(&self) -> Result<String, String> {
        let work = work("plaintext", "multi-block", "encrypt", "4096-256", &["--silent"]);
        let mut command = self.perf(&work, "throughput")?;
        command.args(["--cipher-key-sz", "64"]);
        match self.row(command)?.as_slice() {
            [_, _, _, enqueued, dequeued, ..] if [*enqueued, *dequeued] == [OPERATIONS; 2] => {
                Ok(format!("{dequeued} operations"))
            }
            row => Err(format!("not {OPERATIONS} operations: {row:?}")),
        }
    }

    /// Runs operations, and has DPDK compare the results with a vector. Exactly `wrong` results must differ.
    /// `order` is the byte order of the tweak in the vector's name.
    fn verify(&self, work: &Work, order: &str, wrong: u64) -> Result<String, String> {
        let Work { crypto, vector, .. } = work;
        let mut command = self.perf(work, "verify")?;
        let bits: u32 = vector.split('-').nth(1).and_then(|bits| bits.parse().ok()).ok_or("no bits")?;
        // Both halves of the key together have `bits` / 4 bytes. A wrapped key also has 8 bytes of keytag,
        // and the wrapping adds 8 bytes.
        let key = bits / 4 + if *crypto == "wrapped" { 16 } else { 0 };
        command.args([
            "--cipher-key-sz",
            &key.to_string(),
            "--test-name",
            &format!("{vector}-{order}-{crypto}"),
        ]);
        command.arg("--test-file").arg(self.device.folder.join("vectors"));
        match self.row(command)?.as_slice() {
            [_, _, _, enqueued, dequeued, _, _, failed]
                if [*enqueued, *dequeued, *failed] == [OPERATIONS, OPERATIONS, wrong] =>
            {
                Ok(format!("{dequeued} operations, {failed} wrong"))
            }
            row => Err(format!("not {OPERATIONS} operations with {wrong} wrong ones: {row:?}")),
        }
    }

    /// Returns a command that runs `dpdk-test-crypto-perf`. The caller adds the options for the key.
    fn perf(&self, work: &Work, test: &str) -> Result<Command, String> {
        let Work { crypto, engine, vector, operation, options } = work;
        let (mut device, mut limits) = (DEVICE.to_owned(), None);
        if *crypto == "wrapped" {
            device.push_str(&format!(",wcs_file={}", self.device.folder.join("credential-0").display()));
            limits = Some(self.limits.as_path());
        }
        let mut command = self.program("dpdk-test-crypto-perf", &device, 256, [crypto, engine], limits)?;
        let unit = vector.split('-').next().unwrap_or_default();
        let operations = OPERATIONS.to_string();
        command.args(["--", "--devtype", "mlx5_pci", "--optype", "cipher-only", "--cipher-algo", "aes-xts"]);
        command.args(["--cipher-iv-sz", "16", "--desc-nb", "64", "--burst-sz", "32", "--pool-sz", "1024"]);
        command.args(["--ptest", test, "--cipher-op", operation, "--buffer-sz", unit]);
        command.args(["--total-ops", &operations]).args(*options);
        Ok(command)
    }

    /// Runs a command, and returns the numbers of the only row of its table.
    fn row(&self, command: Command) -> Result<Vec<u64>, String> {
        let end = self.device.start("perf", command)?.finish(LIMIT)?;
        let rows: Vec<Vec<u64>> = end.output.lines().filter_map(numbers).collect();
        match rows.as_slice() {
            [row] if end.status.success() => Ok(row.clone()),
            _ => Err(end.to_string()),
        }
    }

    /// Returns a command that runs a program of DPDK with `megabytes` of memory, on a device with these keys
    /// and this engine.
    fn program(
        &self,
        name: &str,
        device: &str,
        megabytes: u32,
        [crypto, engine]: [&str; 2],
        limits: Option<&Path>,
    ) -> Result<Command, String> {
        let mut command =
            self.device.program(&self.root.join("usr/bin").join(name).to_string_lossy(), crypto);
        command.env("MLX5_UVERBS_ENGINE", engine).env("LD_LIBRARY_PATH", &self.libraries);
        command.env("RUNTIME_DIRECTORY", self.device.folder);
        if let Some(limits) = limits {
            command.env("LD_PRELOAD", format!("{}:{}", limits.display(), self.device.library.display()));
        }
        command.args(["--no-huge", "-m", &megabytes.to_string(), "--no-shconf", "--no-telemetry"]);
        command.args(["-a", device]);
        // DPDK runs two threads on all processors of this process: one submits operations, one controls the
        // test.
        command.args(["--lcores", &format!("(0,1)@({})", processors()?)]);
        command.args(PLUGINS.iter().flat_map(|plugin| ["-d", plugin]));
        Ok(command)
    }
}

/// Returns the byte order of a tweak in memory, by engine. DPDK copies the tweak's bytes unchanged.
fn order(engine: &str) -> &'static str {
    if engine == "multi-block" { "be" } else { "le" }
}

/// Returns the processors of this process, as a list of ranges.
fn processors() -> Result<String, String> {
    let status = fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|list| list.trim().to_owned()).ok_or_else(|| "the processors are not told".into())
}

/// Returns name and outcome of a test case from a line of `dpdk-test`.
fn case(line: &str) -> Option<(&str, &str)> {
    line.trim().strip_prefix("+ TestCase [")?.split_once("] : ")?.1.rsplit_once(' ')
}

/// Returns the integer parts of the numbers in a line of numbers.
fn numbers(line: &str) -> Option<Vec<u64>> {
    let number = |word: &str| word.split('.').next()?.parse().ok();
    let row: Vec<u64> = line.split_ascii_whitespace().map(number).collect::<Option<_>>()?;
    (row.len() > 5).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_cases_are_read() {
        let row = "  1   512   32   5000   4999     3250200     3417749           0";
        assert_eq!(numbers(row), Some(vec![1, 512, 32, 5000, 4999, 3_250_200, 3_417_749, 0]));
        assert_eq!(
            numbers("   1   512   32   1000   1000   7   8   0.0148   0.0605   176126.00").unwrap().len(),
            10
        );
        for other in ["# size of crypto op / mbuf pool: 2048", "lcore id    Buf Size  Burst Size", "", "1 2"]
        {
            assert_eq!(numbers(other), None, "{other}");
        }
        let line = " + TestCase [49] : AES-256-XTS Encryption (4096-byte plaintext Dataunit 0) \
                    Scatter gather OOP failed";
        assert_eq!(
            case(line),
            Some(("AES-256-XTS Encryption (4096-byte plaintext Dataunit 0) Scatter gather OOP", "failed"))
        );
        assert_eq!(case(" + Tests Passed :       0"), None);
    }
}
