//! A machine for tests: a client of the function, the memory that it lends, and the function behind a socket.

use mlx5_function::{Function, Model, serve_stream};
use mlx5_softdev::DeviceProfile;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use tempfile::TempDir;
use vfio_user::Client;

pub const BAR: u32 = 0;
pub const CONFIG: u32 = 7;
pub const MSI_X: u32 = 2;

/// The server of the function: a thread of this process, or the program `mlx5-function`.
enum Server {
    Thread(Option<JoinHandle<()>>),
    Program(Child),
}

/// A function with a server, and its socket.
pub struct Served {
    folder: TempDir,
    server: Server,
}

impl Served {
    /// Serves one client in a thread of this process.
    pub fn here(profile: DeviceProfile) -> Self {
        let folder = TempDir::new().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let thread = std::thread::spawn(move || {
            let mut function = Function::new(Model::BlueField3, profile);
            let (stream, _) = listener.accept().unwrap();
            serve_stream(stream, &mut function).unwrap();
        });
        Self { folder, server: Server::Thread(Some(thread)) }
    }

    /// Starts the program `mlx5-function`, and waits until it has its socket.
    pub fn program() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("socket");
        let program = env!("CARGO_BIN_EXE_mlx5-function");
        let child = Command::new(program).arg("--socket").arg(&socket).spawn().unwrap();
        while !socket.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Self { folder, server: Server::Program(child) }
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("socket")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        match &mut self.server {
            Server::Thread(thread) => {
                let ended = thread.take().unwrap().join();
                assert!(ended.is_ok() || std::thread::panicking(), "the function panicked");
            }
            Server::Program(child) => {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }
}

/// A client that lends memory to the function at a bus address.
pub struct Machine {
    pub client: Client,
    pub memory: OwnedFd,
    /// The bus address of the memory.
    pub base: u64,
}

/// Returns memory that a client can lend to the function.
pub fn sealed(bytes: u64) -> OwnedFd {
    let memory = memfd_create("memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, bytes).unwrap();
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    memory
}

impl Machine {
    pub fn new(socket: &Path, base: u64, bytes: u64) -> Self {
        let mut client = Client::new(socket).unwrap();
        let memory = sealed(bytes);
        client.dma_map(0, base, bytes, memory.as_raw_fd()).unwrap();
        Self { client, memory, base }
    }

    pub fn config<const N: usize>(&mut self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.client.region_read(CONFIG, at, &mut bytes).unwrap();
        bytes
    }

    pub fn write_config(&mut self, at: u64, bytes: &[u8]) {
        self.client.region_write(CONFIG, at, bytes).unwrap();
    }

    /// Sets whether the function may read and write memory.
    pub fn set_master(&mut self, on: bool) {
        let [low, high] = self.config(4);
        self.write_config(4, &[if on { low | 4 } else { low & !4 }, high]);
    }

    pub fn register(&mut self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client.region_read(BAR, at, &mut bytes).unwrap();
        u32::from_be_bytes(bytes)
    }

    pub fn write_register(&mut self, at: u64, value: u32) {
        self.client.region_write(BAR, at, &value.to_be_bytes()).unwrap();
    }

    /// Reads memory at a bus address.
    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert_eq!(pread(&self.memory, &mut bytes, address - self.base).unwrap(), length);
        bytes
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        assert_eq!(pwrite(&self.memory, bytes, address - self.base).unwrap(), bytes.len());
    }

    /// Makes a descriptor that signals a vector, and returns it.
    pub fn interrupt(&mut self, vector: u32) -> OwnedFd {
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        // Flags: the message has descriptors, and the function signals them.
        self.client.set_irqs(MSI_X, 1 << 2 | 1 << 5, vector, 1, &[descriptor.as_raw_fd()]).unwrap();
        descriptor
    }
}

/// Waits at most a second for an interrupt. Returns how often the interrupt was raised since the last call.
pub fn raised(descriptor: &OwnedFd) -> u64 {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    if poll(&mut polled, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap() == 0 {
        return 0;
    }
    let mut count = [0; 8];
    rustix::io::read(descriptor, &mut count).unwrap();
    u64::from_ne_bytes(count)
}

/// Returns whether an interrupt is raised now.
pub fn is_raised(descriptor: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}
