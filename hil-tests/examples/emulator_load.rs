//! Two measurements for `cargo xtask bench --emulator`, beside those of perftest: how many mkeys per second
//! the device `mlx5_0` creates and destroys, and how fast this machine copies memory and sends data between
//! processes. Prints a name and a number for each.
//!
//! `emulator_load mkeys` needs a device. `emulator_load machine CORE` needs none: it starts a second process
//! of itself on the processor core CORE, as the other end of a connection.

use mlx5_mkey::devx::{Device, MkeySpec};
use std::error::Error;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(1);
/// Bytes of a message between two processes.
const PING: usize = 4096;
/// Bytes of a write to a connection, and of a copy in memory.
const BLOCK: usize = 1 << 16;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("mkeys"), None) => mkeys(),
        (Some("machine"), Some(core)) => machine(&core),
        (Some("echo"), None) => echo(),
        (Some("send"), Some(address)) => send(&address),
        _ => Err("usage: emulator_load mkeys | machine CORE".into()),
    }
}

fn mkeys() -> Result<(), Box<dyn Error>> {
    let device = Device::open(None)?;
    let pd = device.alloc_pd()?;
    let spec = MkeySpec { max_entries: 4, ..MkeySpec::default() };
    let made = rate(|| {
        drop(pd.create_mkey(spec)?);
        Ok(())
    })?;
    println!("mkeys_per_s {made:.0}");
    Ok(())
}

fn machine(core: &str) -> Result<(), Box<dyn Error>> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut child = itself("echo", core)?.stdin(OwnedFd::from(theirs)).spawn()?;
    let mut message = [1; PING];
    let trips = rate(|| {
        ours.write_all(&message)?;
        Ok(ours.read_exact(&mut message)?)
    })?;
    println!("socketpair_us {:.2}", 1e6 / trips);
    drop(ours);
    child.wait()?;

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut child = itself("send", core)?.arg(listener.local_addr()?.to_string()).spawn()?;
    let (mut stream, _) = listener.accept()?;
    let mut block = vec![0; BLOCK];
    let mut bytes = 0;
    let start = Instant::now();
    while start.elapsed() < TIME {
        bytes += stream.read(&mut block)?;
    }
    println!("loopback_tcp_64k_mb_s {:.0}", bytes as f64 / start.elapsed().as_secs_f64() / 1e6);
    drop(stream);
    stop(&mut child)?;

    let source = vec![1; BLOCK];
    let copies = rate(|| {
        black_box(&mut block).copy_from_slice(black_box(&source));
        Ok(())
    })?;
    println!("memcpy_mb_s {:.0}", copies * BLOCK as f64 / 1e6);
    Ok(())
}

/// Repeats a piece of work. Returns the repetitions per second.
fn rate(mut work: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    let mut count = 0_u64;
    while start.elapsed() < TIME {
        work()?;
        count += 1;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// Sends back the bytes of standard input, which is a socket, until the other end closes.
fn echo() -> Result<(), Box<dyn Error>> {
    let mut socket = UnixStream::from(std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?);
    let mut message = [0; PING];
    while socket.read_exact(&mut message).is_ok() {
        socket.write_all(&message)?;
    }
    Ok(())
}

/// Connects to `address`, and sends until the other end closes.
fn send(address: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    let block = vec![1; BLOCK];
    while stream.write_all(&block).is_ok() {}
    Ok(())
}

/// Returns a command that runs this program in the role `role` (`echo` or `send`), on the processor core
/// `core`.
fn itself(role: &str, core: &str) -> std::io::Result<Command> {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(std::env::current_exe()?).arg(role).stdin(Stdio::null());
    Ok(command)
}

fn stop(child: &mut Child) -> std::io::Result<()> {
    // The child may have ended already, because its connection is closed.
    let _ = child.kill();
    child.wait().map(drop)
}
