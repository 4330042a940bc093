//! The modules of rdma-core's tests, with their expected results.

use std::collections::BTreeMap;
use std::fmt;

/// A module of rdma-core's tests on a device, with its expected result.
pub(super) struct Module {
    pub(super) name: &'static str,
    pub(super) crypto: &'static str,
    pub(super) engine: &'static str,
    /// The number of tests, skipped ones included.
    pub(super) run: u32,
    /// The number of skipped tests for each reason, in the words of the tests.
    pub(super) skipped: Skipped,
}

/// The result of a module, found or expected.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counts {
    run: Option<u32>,
    skipped: BTreeMap<String, u32>,
}

impl Module {
    pub(super) fn counts(&self) -> Counts {
        let skipped = self.skipped.iter().map(|(count, reason)| ((*reason).to_owned(), *count));
        Counts { run: Some(self.run), skipped: skipped.collect() }
    }
}

/// Parses the result from the output of the tests (option `-v`).
pub(super) fn counts(output: &str) -> Counts {
    let run = output.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok());
    let mut skipped = BTreeMap::new();
    for reason in output.lines().filter_map(reason) {
        *skipped.entry(reason.to_owned()).or_default() += 1;
    }
    Counts { run, skipped }
}

/// Returns the reason of a skipped test from its line. Quotes of either kind enclose the reason.
fn reason(line: &str) -> Option<&str> {
    let quoted = line.split_once("skipped ")?.1;
    let inside = |quote| quoted.strip_prefix(quote)?.strip_suffix(quote);
    inside('\'').or_else(|| inside('"'))
}

impl Counts {
    /// Returns whether all tests have ended.
    pub(super) const fn has_run(&self) -> bool {
        self.run.is_some()
    }

    /// Returns the number of tests and of skips, without the reasons.
    pub(super) fn totals(&self) -> String {
        let run = self.run.map_or_else(|| "an unknown number".into(), |run| run.to_string());
        format!("{run} ran, {} skipped", self.skipped.values().sum::<u32>())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.totals())?;
        for (index, (reason, count)) in self.skipped.iter().enumerate() {
            write!(f, "{}{count} × {reason}", if index == 0 { " (" } else { "; " })?;
        }
        if self.skipped.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

type Skipped = &'static [(u32, &'static str)];

const fn on(
    name: &'static str,
    crypto: &'static str,
    engine: &'static str,
    run: u32,
    skipped: Skipped,
) -> Module {
    Module { name, crypto, engine, run, skipped }
}

/// Returns a module on a device without crypto.
const fn module(name: &'static str, run: u32, skipped: Skipped) -> Module {
    on(name, "none", "multi-block", run, skipped)
}

/// All modules of which at least some tests can run on the software device. The other tests of `test_mr` are
/// about memory of the device and of graphics cards.
#[rustfmt::skip]
pub(super) const MODULES: &[Module] = &[
    module("test_mlx5_mkey", 11, &[]),
    on("test_mlx5_mkey", "plaintext", "multi-block", 11, &[]),
    on("test_mlx5_mkey", "wrapped", "multi-block", 11, &[]),
    module("test_mlx5_devx", 1, &[]),
    on("test_mlx5_devx", "wrapped", "multi-block", 1, &[]),
    // A test that one of these devices skips runs on another.
    on("test_mlx5_crypto", "wrapped", "multi-block", 7, &[
        (2, "The device does not support plaintext DEK"),
    ]),
    on("test_mlx5_crypto", "plaintext", "multi-block", 7, &[
        (5, "The device does not support wrapped DEK"),
    ]),
    on("test_mlx5_crypto", "wrapped", "single-block", 7, &[
        (2, "The device crypto engines does not support multi blocks"),
        (1, "The device does not support plaintext DEK"),
    ]),
    on("test_mlx5_crypto", "plaintext", "single-block", 7, &[
        (2, "The device crypto engines does not support multi blocks"),
        (4, "The device does not support wrapped DEK"),
    ]),
    module("test_atomic", 9, &[(2, "Create XRCD is not supported")]),
    module("test_cq", 4, &[(1, "Resize CQ is not supported")]),
    module("test_cq_events", 2, &[]),
    module("test_cqex", 5, &[(1, "Create XRCD is not supported")]),
    module("test_device", 22, &[
        (9, "Device memory is not supported"),
    ]),
    module("test_mlx5_cq", 9, &[
        (1, "Create DC QP is not supported"),
        (1, "Device caps doesn't support Support CQE 128B compression (16)"),
        (2, "Device caps doesn't support Support CQE 128B padding (32)"),
    ]),
    module("test_mlx5_dma_memcpy", 4, &[]),
    module("test_mr.MRTest", 5, &[]),
    module("test_mr.MWTest", 7, &[]),
    module("test_addr", 3, &[]),
    module("test_fork", 1, &[]),
    module("test_mlx5_raw_wqe", 1, &[]),
    module("test_mlx5_uar", 1, &[]),
    module("test_pd", 4, &[]),
    module("test_qp", 26, &[
        (1, "Create Raw Packet QP with attrs is not supported"),
        (1, "Create Raw Packet QP with extended attrs is not supported"),
        (2, "Create Raw Packet QP without attrs is not supported"),
        (1, "Create Raw Packet QP without extended attrs is not supported"),
    ]),
    module("test_rdmacm", 10, &[
        (3, "Multicast is not supported on this device"),
    ]),
    module("test_qpex", 20, &[
        (2, "Create XRCD is not supported"),
        (1, "Extended QP is not supported on this device"),
    ]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_the_tests_say() {
        let output = "test_a (tests.X.test_a) ... skipped 'No x'\ntest_b (tests.X.test_b)\nSays skipped. ... \
                    skipped \"device doesn't y\"\ntest_c ... ok\ntest_d ... skipped 'No x'\n\n\
                    Ran 4 tests in 0.1s\n\nOK (skipped=3)\n";
        let module = module("", 4, &[(2, "No x"), (1, "device doesn't y")]);
        assert_eq!(counts(output), module.counts());
        assert_eq!(module.counts().to_string(), "4 ran, 3 skipped (2 × No x; 1 × device doesn't y)");
        assert_eq!(counts("Traceback").run, None);
    }
}
