//! A target of NVMe over fabrics (RDMA): Linux's own host, nvme-rdma, connects to it by the connection
//! manager, and reads and writes a volume with protection information of type 1.
//!
//! ```text
//!        host: nvme-rdma                                          this target
//!  memory ──▶ integrity region ──▶ data + T10-DIF on the wire ──▶ mkey ──▶ data + T10-DIF in memory ──▶ file
//!      adds and checks the T10-DIF                       checks the T10-DIF in both directions
//! ```
//!
//! The volume is a file of blocks with their T10-DIF. The device of the target checks each block between file
//! and wire. A wrong guard in the file is reported to the host with the status of its command, and in the
//! error log with its LBA. The device of the host finds it too. Blocks with a wrong T10-DIF are not stored.
//!
//! On a machine with an mlx5 device, as root:
//!
//! ```text
//! nvme_target --address 192.0.2.1:4420 --volume /tmp/volume &
//! modprobe nvme-rdma
//! nvme connect --transport rdma --traddr 192.0.2.1 --nqn nqn.2026-11.test:mkey --nr-io-queues 1
//! ```
//!
//! The target has one subsystem with one namespace. Each host has a controller with an admin queue and one
//! I/O queue, and each queue has a thread. Data are never in capsules. Discovery, authentication and
//! reservations are left out.

mod capsule;
mod cm;
mod controller;
mod error;
mod session;
mod volume;

use capsule::{Accepted, Rejected, Request};
use clap::Parser;
use cm::{Event, Id, Listener, Number, Path};
use controller::{DEPTH, Subsystem};
use error::{Error, Result};
use mlx5_mkey::devx::{Device, ProtectionDomain};
use mlx5_mkey::types::BlockSize;
use session::Session;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use volume::{Geometry, Volume};
use zerocopy::IntoBytes;

/// The most connections at a time. Each host has two.
const MAX_CONNECTIONS: usize = 8;

/// Serves a volume with protection information to hosts of NVMe over fabrics.
#[derive(Parser)]
struct Arguments {
    /// Address of an interface of the device
    #[arg(long)]
    address: SocketAddr,
    /// Name of the device, if not the first
    #[arg(long)]
    device: Option<String>,
    /// Name of the subsystem
    #[arg(long, default_value = "nqn.2026-11.test:mkey")]
    nqn: String,
    /// File of the volume. A new one is made
    #[arg(long, default_value = "nvme-volume")]
    volume: PathBuf,
    /// Blocks of the volume
    #[arg(long, default_value_t = 1 << 14, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    blocks: u64,
    /// Bytes of a block, without its protection information: 512 or 4096
    #[arg(long, default_value_t = 512)]
    block_bytes: u32,
}

fn main() -> ExitCode {
    let Err(error) = Target::new(&Arguments::parse()).and_then(|mut target| target.serve()) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// A connection, and the thread that serves it.
struct Connection {
    id: Arc<Id>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The device, the volume and the connections.
struct Target {
    listener: Listener,
    device: Device,
    pd: ProtectionDomain,
    subsystem: Arc<Subsystem>,
    volume: Arc<Volume>,
    connections: HashMap<Number, Connection>,
}

impl Target {
    fn new(arguments: &Arguments) -> Result<Self> {
        let block_size = match arguments.block_bytes {
            512 => BlockSize::B512,
            4096 => BlockSize::B4096,
            other => return Err(format!("blocks have 512 or 4096 bytes, not {other}").into()),
        };
        let geometry = Geometry { blocks: arguments.blocks, block_size };
        let device = Device::open(arguments.device.as_deref())?;
        let pd = device.alloc_pd()?;
        let volume = Arc::new(Volume::open(&arguments.volume, geometry)?);
        let listener = Listener::new(arguments.address)?;
        println!("target: {} at {}", arguments.nqn, arguments.address);
        let subsystem = Arc::new(Subsystem::new(&arguments.nqn, geometry));
        Ok(Self { listener, device, pd, subsystem, volume, connections: HashMap::new() })
    }

    /// Serves hosts until the connection manager fails.
    fn serve(&mut self) -> Result {
        loop {
            match self.listener.next()? {
                Event::Request(id, private_data) => {
                    if let Err(error) = self.accept(id, &private_data) {
                        println!("target: no connection: {error}");
                    }
                }
                Event::End(number) => self.end(number),
                Event::Other => {}
            }
        }
    }

    /// Makes the session of a connection. An error consists of the reason that the host receives and the
    /// error to print.
    fn session(
        &self,
        id: &Id,
        private_data: &[u8],
    ) -> core::result::Result<(Session, Path), (Rejected, Error)> {
        let request = Request::read(private_data, DEPTH);
        let request = request.map_err(|reason| (reason, "its private data are wrong".into()))?;
        let lacking = |error| (Rejected::NO_RESOURCES, error);
        if self.connections.len() >= MAX_CONNECTIONS {
            return Err(lacking("there are too many".into()));
        }
        let path = id.path().map_err(lacking)?;
        let (device, shared) = ((&self.device, &self.pd), (&self.subsystem, &self.volume));
        Ok((Session::new(device, shared, request, &path).map_err(lacking)?, path))
    }

    /// Accepts a connection and starts its thread, or rejects the connection with a reason.
    fn accept(&mut self, id: Id, private_data: &[u8]) -> Result {
        let (mut session, path) = match self.session(&id, private_data) {
            Ok(made) => made,
            Err((reason, error)) => {
                id.reject(reason.as_bytes())?;
                return Err(error);
            }
        };
        let accepted = Accepted { format: 0.into(), receives: DEPTH.into(), reserved: [0; 28] };
        id.accept(session.qpn(), &path, accepted.as_bytes())?;
        let (id, is_over) = (Arc::new(id), Arc::new(AtomicBool::new(false)));
        let (of_thread, until) = (id.clone(), is_over.clone());
        let thread = Builder::new().spawn(move || {
            if let Err(error) = session.serve(&until) {
                println!("target: a connection ends: {error}");
            }
            of_thread.disconnect();
        })?;
        self.connections.insert(id.number(), Connection { id, is_over, thread });
        Ok(())
    }

    /// Ends a connection, if it has not ended yet.
    fn end(&mut self, number: Number) {
        let Some(Connection { id, is_over, thread }) = self.connections.remove(&number) else { return };
        is_over.store(true, Ordering::Relaxed);
        if thread.join().is_err() {
            println!("target: the thread of a connection has panicked");
        }
        drop(id);
    }
}
