//! Servers that do not end with their client, and are killed.

use super::device::{Device, LIMIT};
use xtask::run::free_port;

/// A server and its client. The caller replaces the word `PORT` in their command lines by the server's port.
pub(super) struct Served {
    pub(super) name: &'static str,
    /// Environment variables for server and client.
    variables: &'static [(&'static str, &'static str)],
    server: &'static str,
    client: &'static str,
    /// Texts that the client prints on success.
    proofs: &'static [&'static str],
}

/// UCX's small file server. Both sides compare the data (`-q`). UCX uses TCP to connect; the device's log
/// shows that RDMA moves the data. Operations and sizes are random; the time is the seed. A run has 100
/// operations, because runs of 20 sometimes had no long read, which is what UCX performs by RDMA READ.
const fn io_demo(name: &'static str, variables: &'static [(&'static str, &'static str)]) -> Served {
    Served {
        name,
        variables,
        server: "io_demo -q -p PORT -d 1024:65536 -o read,write",
        client: "io_demo -q -p PORT -s 1 -i 100 -d 1024:65536 -o read,write 127.0.0.1",
        proofs: &["Client exit with status 'OK'", "\nRDMA_READ: "],
    }
}

const UCX_DEVICES: (&str, &str) = ("UCX_NET_DEVICES", "mlx5_0:1,lo");
const LOG: (&str, &str) = ("MLX5_UVERBS_LOG", "1");

/// libfabric compares the data (`-c`).
const fn libfabric(name: &'static str, server: &'static str, client: &'static str) -> Served {
    Served { name, variables: &[], server, client, proofs: &["\n1m      20 "] }
}

pub(super) const SERVED: &[Served] = &[
    libfabric(
        "fi_pingpong -p verbs -e msg",
        "fi_pingpong -p verbs -e msg -c -I 20 -B PORT",
        "fi_pingpong -p verbs -e msg -c -I 20 -P PORT 127.0.0.1",
    ),
    libfabric(
        "fi_pingpong -p verbs;ofi_rxm -e rdm",
        "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 20 -B PORT",
        "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 20 -P PORT 127.0.0.1",
    ),
    io_demo("io_demo, libmlx5's queues", &[("UCX_TLS", "rc_v,tcp"), UCX_DEVICES, LOG]),
    io_demo("io_demo, UCX's own queues", &[("UCX_TLS", "rc_x,tcp"), UCX_DEVICES, LOG]),
    // Without rdma_cm (`-cm 1`), qperf names no GID of its peer, and Linux refuses its queue pairs on a RoCE
    // port. qperf's tests of unreliable connections have no rdma_cm, and are left out. Tests named `ver_`
    // compare the results of atomics.
    Served {
        name: "qperf",
        variables: &[],
        server: "qperf -lp PORT",
        client: "qperf localhost -lp PORT -cm 1 -t 1 rc_lat rc_rdma_write_bw ver_rc_compare_swap \
                 ver_rc_fetch_add",
        proofs: &["rc_lat:\n    latency ", "ver_rc_fetch_add:\n    msg_rate "],
    },
];

impl Device<'_> {
    /// Runs a server and then a client. The client must print all texts that prove its success.
    pub(super) fn served(&self, served: &Served) -> Result<String, String> {
        let port = free_port()?;
        let start = |name: &str, line: &str| {
            let mut command = self.line(line, &port.to_string());
            command.envs(served.variables.iter().copied());
            self.start(name, command)
        };
        // The server is killed at the end of this function.
        let mut server = start("server", served.server)?;
        server.wait_for_port(port, LIMIT)?;
        start("client", served.client)?.finish(LIMIT)?.proven("client", served.proofs)?;
        Ok("passed".into())
    }
}
