//! The modules of rdma-core's tests, and what is to come of each.

use std::collections::BTreeMap;
use std::fmt;

/// A module of rdma-core's tests on a kind of device, and what is to come of it.
pub(super) struct Module {
    pub(super) name: &'static str,
    pub(super) crypto: &'static str,
    pub(super) engine: &'static str,
    /// Tests, with those that are skipped.
    pub(super) run: u32,
    /// How many are skipped for a reason, in their words.
    pub(super) skipped: &'static [(u32, &'static str)],
}

/// What came of a module, or is to come.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counts {
    run: Option<u32>,
    skipped: BTreeMap<String, u32>,
}

impl Module {
    /// Returns what is to come of the module.
    pub(super) fn counts(&self) -> Counts {
        let skipped = self.skipped.iter().map(|(count, reason)| ((*reason).to_owned(), *count));
        Counts { run: Some(self.run), skipped: skipped.collect() }
    }
}

/// Returns what came of a module, by what its tests say with `-v`.
pub(super) fn counts(said: &str) -> Counts {
    let run = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok());
    let mut skipped = BTreeMap::new();
    for reason in said.lines().filter_map(reason) {
        *skipped.entry(reason.to_owned()).or_default() += 1;
    }
    Counts { run, skipped }
}

/// Returns why a test was skipped, where a line says that it was: quoted, in either way.
fn reason(line: &str) -> Option<&str> {
    let quoted = line.split_once("skipped ")?.1;
    let inside = |quote| quoted.strip_prefix(quote)?.strip_suffix(quote);
    inside('\'').or_else(|| inside('"'))
}

impl Counts {
    /// Whether the tests came to their end.
    pub(super) const fn has_run(&self) -> bool {
        self.run.is_some()
    }

    /// Returns how many tests ran and how many were skipped, without the reasons.
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

/// All that can run here, in part at least. What of `test_mr` is left out is memory of the device and of graphics cards.
pub(super) const MODULES: &[Module] = &[
    Module { name: "test_mlx5_mkey", crypto: "none", engine: "multi-block", run: 11, skipped: &[] },
    Module { name: "test_mlx5_mkey", crypto: "plaintext", engine: "multi-block", run: 11, skipped: &[] },
    Module { name: "test_mlx5_mkey", crypto: "wrapped", engine: "multi-block", run: 11, skipped: &[] },
    Module { name: "test_mlx5_devx", crypto: "none", engine: "multi-block", run: 1, skipped: &[] },
    Module { name: "test_mlx5_devx", crypto: "wrapped", engine: "multi-block", run: 1, skipped: &[] },
    // What one of these devices skips another runs.
    Module {
        name: "test_mlx5_crypto",
        crypto: "wrapped",
        engine: "multi-block",
        run: 7,
        skipped: &[(2, "The device does not support plaintext DEK")],
    },
    Module {
        name: "test_mlx5_crypto",
        crypto: "plaintext",
        engine: "multi-block",
        run: 7,
        skipped: &[(5, "The device does not support wrapped DEK")],
    },
    Module {
        name: "test_mlx5_crypto",
        crypto: "wrapped",
        engine: "single-block",
        run: 7,
        skipped: &[
            (2, "The device crypto engines does not support multi blocks"),
            (1, "The device does not support plaintext DEK"),
        ],
    },
    Module {
        name: "test_mlx5_crypto",
        crypto: "plaintext",
        engine: "single-block",
        run: 7,
        skipped: &[
            (2, "The device crypto engines does not support multi blocks"),
            (4, "The device does not support wrapped DEK"),
        ],
    },
    Module {
        name: "test_atomic",
        crypto: "none",
        engine: "multi-block",
        run: 9,
        skipped: &[(2, "Create XRCD is not supported")],
    },
    Module {
        name: "test_cq",
        crypto: "none",
        engine: "multi-block",
        run: 4,
        skipped: &[(1, "Resize CQ is not supported")],
    },
    Module { name: "test_cq_events", crypto: "none", engine: "multi-block", run: 2, skipped: &[] },
    Module {
        name: "test_cqex",
        crypto: "none",
        engine: "multi-block",
        run: 5,
        skipped: &[(1, "Create XRCD is not supported")],
    },
    Module {
        name: "test_device",
        crypto: "none",
        engine: "multi-block",
        run: 22,
        skipped: &[
            (1, "All gid indices populated, cannot check bad flow"),
            (9, "Device memory is not supported"),
        ],
    },
    Module {
        name: "test_mlx5_cq",
        crypto: "none",
        engine: "multi-block",
        run: 9,
        skipped: &[
            (1, "Create DC QP is not supported"),
            (1, "Device caps doesn't support Support CQE 128B compression (16)"),
            (2, "Device caps doesn't support Support CQE 128B padding (32)"),
        ],
    },
    Module { name: "test_mlx5_dma_memcpy", crypto: "none", engine: "multi-block", run: 4, skipped: &[] },
    Module { name: "test_mr.MRTest", crypto: "none", engine: "multi-block", run: 5, skipped: &[] },
    Module { name: "test_mr.MWTest", crypto: "none", engine: "multi-block", run: 7, skipped: &[] },
    Module { name: "test_addr", crypto: "none", engine: "multi-block", run: 3, skipped: &[] },
    Module { name: "test_fork", crypto: "none", engine: "multi-block", run: 1, skipped: &[] },
    Module { name: "test_mlx5_raw_wqe", crypto: "none", engine: "multi-block", run: 1, skipped: &[] },
    Module { name: "test_mlx5_uar", crypto: "none", engine: "multi-block", run: 1, skipped: &[] },
    Module { name: "test_pd", crypto: "none", engine: "multi-block", run: 4, skipped: &[] },
    Module {
        name: "test_qp",
        crypto: "none",
        engine: "multi-block",
        run: 26,
        skipped: &[
            (1, "Create Raw Packet QP with attrs is not supported"),
            (1, "Create Raw Packet QP with extended attrs is not supported"),
            (2, "Create Raw Packet QP without attrs is not supported"),
            (1, "Create Raw Packet QP without extended attrs is not supported"),
        ],
    },
    Module {
        name: "test_qpex",
        crypto: "none",
        engine: "multi-block",
        run: 20,
        skipped: &[(2, "Create XRCD is not supported"), (1, "Extended QP is not supported on this device")],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_the_tests_say() {
        let said = "test_a (tests.X.test_a) ... skipped 'No x'\ntest_b (tests.X.test_b)\nSays skipped. ... \
                    skipped \"device doesn't y\"\ntest_c ... ok\ntest_d ... skipped 'No x'\n\nRan 4 tests in 0.1s\n\n\
                    OK (skipped=3)\n";
        let module = Module {
            name: "",
            crypto: "",
            engine: "",
            run: 4,
            skipped: &[(2, "No x"), (1, "device doesn't y")],
        };
        assert_eq!(counts(said), module.counts());
        assert_eq!(module.counts().to_string(), "4 ran, 3 skipped (2 × No x; 1 × device doesn't y)");
        assert_eq!(counts("Traceback").run, None);
    }
}
