//! Servers that are found by rdma_cm, and their clients.

use super::device::{Device, LIMIT};
use super::running::Running;
use std::fs;
use std::time::{Duration, Instant};
use xtask::run::free_port;

/// A server and its client. The caller replaces the word `PORT` in their command lines by the server's port.
pub(super) struct Connected {
    server: &'static str,
    /// The client's command line, without the address.
    pub(super) client: &'static str,
    /// The address that the client connects to.
    pub(super) address: &'static str,
    /// Whether the server ends by itself when the client disconnects.
    ends: bool,
    /// Texts that both sides print when they have done their work.
    proofs: &'static [&'static str],
}

const fn both(line: &'static str, client: &'static str, address: &'static str) -> Connected {
    Connected { server: line, client, address, ends: true, proofs: &[] }
}

const fn perftest(line: &'static str) -> Connected {
    both(line, line, "127.0.0.1")
}

const fn rping(server: &'static str, address: &'static str) -> Connected {
    Connected { proofs: &["rdma-ping-9: "], ..both(server, "rping -c -V -v -C 10 -p PORT -a", address) }
}

/// Two jobs of fio: one that reads, and one that writes with the verb at the end of `client`. Each job is a
/// thread of its process: no job survives when the process is killed.
const fn fio(server: &'static str, client: &'static str) -> Connected {
    Connected { proofs: &["err= 0:"], ..both(server, client, "--hostname=127.0.0.1") }
}

/// Programs of rdma-core, perftest with `-R`, and fio. `rping -V` compares the data; `udaddy` and `ucmatose`
/// check their states.
pub(super) const CONNECTED: &[Connected] = &[
    rping("rping -s -v -C 10 -p PORT", "127.0.0.1"),
    Connected { ends: false, ..rping("rping -s -P -p PORT -a ::", "::1") },
    both("ucmatose -p PORT -c 4 -C 20 -S 1000", "ucmatose -p PORT -c 4 -C 20 -S 1000 -s", "127.0.0.1"),
    both("udaddy -c 2 -C 20", "udaddy -c 2 -C 20 -s", "127.0.0.1"),
    both("rdma_server -p PORT", "rdma_client -p PORT -s", "127.0.0.1"),
    perftest("ib_send_bw -R -d mlx5_0 -F -n 100 -s 4096 -p PORT"),
    perftest("ib_write_lat -R -d mlx5_0 -F -n 100 -s 64 -p PORT"),
    fio(
        "fio --thread --name=reader --ioengine=rdma --port PORT --rw=read --bs=64k --size=4m --iodepth=4",
        "fio --thread --name=writer --ioengine=rdma --port PORT --rw=write --bs=64k --size=4m --verb=write",
    ),
    // The reader gets the data by receives, and compares their checksums. Data that arrive by RDMA WRITE come
    // without a completion, so that fio's reader cannot check them.
    fio(
        "fio --thread --name=reader --ioengine=rdma --port PORT --rw=read --bs=64k --size=4m --iodepth=4 \
         --verify=crc32c",
        "fio --thread --name=writer --ioengine=rdma --port PORT --rw=write --bs=64k --size=4m --verb=send \
         --verify=crc32c --do_verify=0",
    ),
];

/// The port of `udaddy`, which has no option for another port.
const FIXED_PORT: &str = "7174";

/// The pause between two checks whether a server listens.
const LOOK: Duration = Duration::from_millis(20);

impl Device<'_> {
    /// Runs a server and then a client. The client must succeed, and also the server if it ends by itself.
    pub(super) fn connected(&self, line: &Connected) -> Result<String, String> {
        let port = match line.server.contains("PORT") {
            true => free_port()?.to_string(),
            false => FIXED_PORT.to_owned(),
        };
        let start = |name: &str, line: &str, address: &str| {
            let mut command = self.line(line, &port);
            command.args(Some(address).filter(|address| !address.is_empty()));
            self.start(name, command)
        };
        let mut server = start("server", line.server, "")?;
        self.wait_for_service(&mut server, &port)?;
        start("client", line.client, line.address)?.finish(LIMIT)?.proven("client", line.proofs)?;
        if line.ends {
            server.finish(LIMIT)?.proven("server", line.proofs)?;
        }
        Ok("both passed".into())
    }

    /// Waits until a process listens at a port. Some programs print nothing and accept a single connection,
    /// so a test connection is impossible. This function reads the lists of listening services, which the
    /// stand-in for the kernel writes to the folder `fabric`.
    fn wait_for_service(&self, server: &mut Running, port: &str) -> Result<(), String> {
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
