//! Programs whose server stays when its client is done: it is ended.

use super::{Bench, LIMIT};
use xtask::run::free_port;

/// A server and its client. `PORT` in their words stands for where the server listens.
pub(super) struct Served {
    /// What is told of it.
    pub(super) name: &'static str,
    /// Variables for both.
    variables: &'static [(&'static str, &'static str)],
    server: &'static str,
    client: &'static str,
    /// What the client has said when all went well.
    proofs: &'static [&'static str],
}

/// UCX's file server in small: both sides compare the data (`-q`). TCP is there to connect them; the log shows what moves the data.
/// Operations and sizes are random, and the seed is the time unless one is given: of 20 now and then none was a long read, which is
/// what UCX does by RDMA READ.
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

pub(super) const SERVED: &[Served] = &[
    io_demo("io_demo, libmlx5's queues", &[("UCX_TLS", "rc_v,tcp"), UCX_DEVICES, LOG]),
    io_demo("io_demo, UCX's own queues", &[("UCX_TLS", "rc_x,tcp"), UCX_DEVICES, LOG]),
    // What needs neither rdma_cm nor an address handle: without rdma_cm, qperf names no GID, and libmlx5 makes no handle then.
    // `ver_` compares what atomics have fetched.
    Served {
        name: "qperf",
        variables: &[],
        server: "qperf -lp PORT",
        client: "qperf localhost -lp PORT -t 1 rc_lat rc_rdma_write_bw uc_lat ver_rc_compare_swap ver_rc_fetch_add",
        proofs: &["rc_lat:\n    latency ", "uc_lat:\n    latency ", "ver_rc_fetch_add:\n    msg_rate "],
    },
];

impl Bench<'_> {
    /// Runs a server and, behind it, a client, which has to say what proves that all went well.
    pub(super) fn served(&self, served: &Served) -> Result<String, String> {
        let port = free_port()?;
        let start = |name: &str, line: &str| {
            let port = port.to_string();
            let mut words = line.split(' ').map(|word| if word == "PORT" { &port } else { word });
            let mut command = self.program(words.next().unwrap_or_default(), "plaintext");
            command.args(words).envs(served.variables.iter().copied());
            self.start(name, command)
        };
        // It is ended when this returns.
        let mut server = start("server", served.server)?;
        server.wait_for_port(port, LIMIT)?;
        let end = start("client", served.client)?.finish(LIMIT)?;
        let missing = served.proofs.iter().find(|proof| !end.said.contains(**proof));
        match missing {
            None if end.status.success() => Ok("passed".into()),
            None => Err(end.to_string()),
            Some(proof) => Err(format!("the client does not say `{}`: {end}", proof.trim())),
        }
    }
}
