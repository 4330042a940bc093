//! Servers and their clients, whose command lines differ.

use super::device::{Device, LIMIT};
use super::running::Running;
use std::fs;
use std::time::{Duration, Instant};
use xtask::run::free_port;

/// A server and its client. The caller replaces the word `PORT` in their command lines by the server's port.
pub(super) struct Served {
    pub(super) name: &'static str,
    /// Environment variables for server and client.
    variables: &'static [(&'static str, &'static str)],
    server: &'static str,
    client: &'static str,
    /// Whether the server listens by rdma_cm. Otherwise it listens at a TCP port.
    by_rdma_cm: bool,
    /// Whether the server ends by itself when the client disconnects. Otherwise it is killed.
    ends: bool,
    /// Texts that the client prints on success, and also the server if it ends by itself.
    proofs: &'static [&'static str],
}

/// Programs over TCP, whose server is killed.
const fn over_tcp(server: &'static str, client: &'static str, proofs: &'static [&'static str]) -> Served {
    Served { name: client, variables: &[], server, client, by_rdma_cm: false, ends: false, proofs }
}

/// Programs over rdma_cm, whose server ends by itself.
const fn over_rdma_cm(server: &'static str, client: &'static str, proofs: &'static [&'static str]) -> Served {
    Served { by_rdma_cm: true, ends: true, ..over_tcp(server, client, proofs) }
}

/// UCX's small file server. Both sides compare the data (`-q`). UCX uses TCP to connect; the device's log
/// shows that RDMA moves the data. Operations and sizes are random; the time is the seed. A run has 100
/// operations, because runs of 20 sometimes had no long read, which is what UCX performs by RDMA READ.
const IO_DEMO: Served = over_tcp(
    "io_demo -q -p PORT -d 1024:65536 -o read,write",
    "io_demo -q -p PORT -s 1 -i 100 -d 1024:65536 -o read,write 127.0.0.1",
    &["Client exit with status 'OK'", "\nRDMA_READ: "],
);

const UCX_DEVICES: (&str, &str) = ("UCX_NET_DEVICES", "mlx5_0:1,lo");
const LOG: (&str, &str) = ("MLX5_UVERBS_LOG", "1");

/// The text that a client of libfabric prints after its largest messages. It compares the data (`-c`).
const LIBFABRIC: &[&str] = &["\n1m      20 "];

/// The text that `rping` prints with the last data. It compares the data (`-V`).
const RPING: &[&str] = &["rdma-ping-9: "];

/// The text of a job of fio without an error.
const FIO: &[&str] = &["err= 0:"];

pub(super) const SERVED: &[Served] = &[
    over_tcp(
        "fi_pingpong -p verbs -e msg -c -I 20 -B PORT",
        "fi_pingpong -p verbs -e msg -c -I 20 -P PORT 127.0.0.1",
        LIBFABRIC,
    ),
    over_tcp(
        "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 20 -B PORT",
        "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 20 -P PORT 127.0.0.1",
        LIBFABRIC,
    ),
    Served {
        name: "io_demo, libmlx5's queues",
        variables: &[("UCX_TLS", "rc_v,tcp"), UCX_DEVICES, LOG],
        ..IO_DEMO
    },
    Served {
        name: "io_demo, UCX's own queues",
        variables: &[("UCX_TLS", "rc_x,tcp"), UCX_DEVICES, LOG],
        ..IO_DEMO
    },
    // Without rdma_cm (`-cm 1`), qperf names no GID of its peer, and Linux refuses its queue pairs on a RoCE
    // port. qperf's tests of unreliable connections have no rdma_cm, and are left out. Tests named `ver_`
    // compare the results of atomics.
    over_tcp(
        "qperf -lp PORT",
        "qperf localhost -lp PORT -cm 1 -t 1 rc_lat rc_rdma_write_bw ver_rc_compare_swap ver_rc_fetch_add",
        &["rc_lat:\n    latency ", "ver_rc_fetch_add:\n    msg_rate "],
    ),
    over_rdma_cm("rping -s -v -C 10 -p PORT", "rping -c -V -v -C 10 -p PORT -a 127.0.0.1", RPING),
    Served {
        ends: false,
        ..over_rdma_cm("rping -s -P -p PORT -a ::", "rping -c -V -v -C 10 -p PORT -a ::1", RPING)
    },
    // `udaddy` and `ucmatose` check their states.
    over_rdma_cm(
        "ucmatose -p PORT -c 4 -C 20 -S 1000",
        "ucmatose -p PORT -c 4 -C 20 -S 1000 -s 127.0.0.1",
        &[],
    ),
    over_rdma_cm("udaddy -c 2 -C 20", "udaddy -c 2 -C 20 -s 127.0.0.1", &[]),
    over_rdma_cm("rdma_server -p PORT", "rdma_client -p PORT -s 127.0.0.1", &[]),
    over_rdma_cm(
        "ib_send_bw -R -d mlx5_0 -F -n 100 -s 4096 -p PORT",
        "ib_send_bw -R -d mlx5_0 -F -n 100 -s 4096 -p PORT 127.0.0.1",
        &[],
    ),
    over_rdma_cm(
        "ib_write_lat -R -d mlx5_0 -F -n 100 -s 64 -p PORT",
        "ib_write_lat -R -d mlx5_0 -F -n 100 -s 64 -p PORT 127.0.0.1",
        &[],
    ),
    // Two jobs of fio: one that reads, and one that writes with the verb of its option. Each job is a thread
    // of its process: no job survives when the process is killed.
    over_rdma_cm(
        "fio --thread --name=reader --ioengine=rdma --port PORT --rw=read --bs=64k --size=4m --iodepth=4",
        "fio --thread --name=writer --ioengine=rdma --port PORT --rw=write --bs=64k --size=4m --verb=write \
         --hostname=127.0.0.1",
        FIO,
    ),
    // The reader gets the data by receives, and compares their checksums. Data that arrive by RDMA WRITE come
    // without a completion, so that fio's reader cannot check them.
    over_rdma_cm(
        "fio --thread --name=reader --ioengine=rdma --port PORT --rw=read --bs=64k --size=4m --iodepth=4 \
         --verify=crc32c",
        "fio --thread --name=writer --ioengine=rdma --port PORT --rw=write --bs=64k --size=4m --verb=send \
         --verify=crc32c --do_verify=0 --hostname=127.0.0.1",
        FIO,
    ),
];

/// The port of `udaddy`, which has no option for another port.
const FIXED_PORT: u16 = 7174;

/// The pause between two checks whether a server listens.
const LOOK: Duration = Duration::from_millis(20);

impl Device<'_> {
    /// Runs a server and then a client. The client must succeed, and also the server if it ends by itself.
    pub(super) fn served(&self, served: &Served) -> Result<String, String> {
        let port = if served.server.contains("PORT") { free_port()? } else { FIXED_PORT };
        let start = |name: &str, line: &str| {
            let mut command = self.line(line, &port.to_string());
            command.envs(served.variables.iter().copied());
            self.start(name, command)
        };
        // A server that does not end is killed at the end of this function.
        let mut server = start("server", served.server)?;
        if served.by_rdma_cm {
            self.wait_for_service(&mut server, port)?;
        } else {
            server.wait_for_port(port, LIMIT)?;
        }
        start("client", served.client)?.finish(LIMIT)?.proven("client", served.proofs)?;
        if served.ends {
            server.finish(LIMIT)?.proven("server", served.proofs)?;
        }
        Ok("passed".into())
    }

    /// Waits until a process listens at a port. Some programs print nothing and accept a single connection,
    /// so a test connection is impossible. This function reads the lists of listening services, which the
    /// stand-in for the kernel writes to the folder `fabric`.
    fn wait_for_service(&self, server: &mut Running, port: u16) -> Result<(), String> {
        let start = Instant::now();
        let offers = |text: String| text.lines().any(|line| line.contains(&format!(":{port} ")));
        while start.elapsed() < LIMIT {
            let files = fs::read_dir(self.folder.join("fabric")).into_iter().flatten().flatten();
            let mut lists = files.filter(|file| file.file_name().to_string_lossy().ends_with(".services"));
            if lists.any(|list| fs::read_to_string(list.path()).is_ok_and(offers)) {
                return Ok(());
            }
            server.is_running(LOOK)?;
        }
        Err(format!("offers no service at port {port}"))
    }
}
