//! Programs in network namespaces of their own: two namespaces that gateways join, one with two devices, and
//! one with InfiniBand ports.

use super::device::Device;
use std::process::Command;
use std::time::Duration;
use xtask::host;
use xtask::run::root;

/// The time limit of a script, which takes a quarter of this time on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);

impl Device<'_> {
    /// Runs perftest and UCX over two devices whose processes share no directory.
    pub(super) fn namespaces(&self) -> Result<String, String> {
        self.script("namespaces", "two namespaces reach each other, a third is refused")
    }

    pub(super) fn two_devices(&self) -> Result<String, String> {
        self.script("devices", "two devices reach each other, and rdma_cm finds each by its address")
    }

    pub(super) fn infiniband(&self) -> Result<String, String> {
        self.script("infiniband", "InfiniBand ports reach each other by LID and by GID")
    }

    /// Runs a script of this folder as root of a new user namespace, in a new network namespace. At its end,
    /// the script prints `proof`.
    fn script(&self, name: &str, proof: &str) -> Result<String, String> {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh"]);
        command.arg(root().join(format!("xtask/src/peer/{name}.sh")));
        command.env("FABRIC", host::executes("mlx5-fabric")?).env("LIBRARY", &self.library);
        command.env("FOLDER", self.folder.join(name));
        let end = self.start(name, command)?.finish(LIMIT)?;
        end.proven("script", &[proof])?;
        let passed = end.output.lines().filter(|line| line.starts_with("passed ")).count();
        Ok(format!("{passed} programs passed, and {proof}"))
    }
}
