//! Programs in two network namespaces, which two gateways join.

use super::device::Device;
use std::process::Command;
use std::time::Duration;
use xtask::host;
use xtask::run::root;

/// The script, and the line that it prints at its end.
const SCRIPT: &str = "xtask/src/peer/namespaces.sh";
const PROOF: &str = "two namespaces reach each other, a third is refused";

/// The time limit of the script. It takes a quarter of this time on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);

impl Device<'_> {
    /// Runs perftest and UCX over two devices whose processes share no directory.
    pub(super) fn namespaces(&self) -> Result<String, String> {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh"]).arg(root().join(SCRIPT));
        command.env("FABRIC", host::executes("mlx5-fabric")?).env("LIBRARY", &self.library);
        command.env("FOLDER", self.folder.join("namespaces"));
        let end = self.start("namespaces", command)?.finish(LIMIT)?;
        if end.status.success() && end.output.contains(PROOF) {
            let passed = end.output.lines().filter(|line| line.starts_with("passed ")).count();
            Ok(format!("{passed} programs passed, and {PROOF}"))
        } else {
            Err(end.to_string())
        }
    }
}
