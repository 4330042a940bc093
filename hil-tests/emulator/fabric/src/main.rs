//! The program `mlx5-fabric`, the gateway of one directory of programs. The program reads and writes sockets
//! and files for [`mlx5_fabric::Node`], which makes all decisions.

mod directory;

use directory::{Directory, is_temporary};
use mlx5_fabric::{Channel, Effect, Node, Nonce, Role, Secret};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "\
mlx5-fabric (--listen | --connect) HOST:PORT --secret FILE [--dir PATH]

Joins the programs of mlx5-emulate on several machines, or in several containers or network
namespaces. One mlx5-fabric runs for each directory in which programs meet. One of them listens, and
up to 15 others connect to it. Start it before the programs, and wait for the line `ready`.

  --listen HOST:PORT   waits for the others here
  --connect HOST:PORT  joins the one that listens there
  --secret FILE        the secret that all share, of at least 16 bytes; FILE is for its owner alone
  --dir PATH           where programs meet: the --dir of mlx5-emulate (default: the same as there)
  --help               this text

A peer that does not know the secret is refused. The secret keeps others out; it does not encrypt:
who can read the network reads the data. README.md says more.
";

/// The pause between two readings of the directory, and the longest wait for a socket.
const PERIOD: Duration = Duration::from_millis(5);

/// The time in which a peer has to prove that it knows the secret.
const GREETING: Duration = Duration::from_secs(5);

/// The most links (connections to other gateways). A link counts even before its peer has proven the secret.
const LINKS: usize = 64;

/// The most bytes that one read of a socket takes.
const CHUNK: usize = 1 << 16;

/// The most bytes that wait to be written to a link, in addition to the windows of the link's channels
/// (`WINDOW` bytes for each channel). A link for which more bytes wait is dropped.
const MOST_WAITING: usize = 1 << 26;

/// The most connections that stay open after the end of their channels, until their processes have taken all
/// bytes. The waiting bytes of further connections are lost.
const MOST_ENDING: usize = 256;

struct Options {
    role: Role,
    address: String,
    secret: PathBuf,
    directory: PathBuf,
}

fn options() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let (mut place, mut secret, mut directory) = (None, None, None);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        let role = match argument {
            Long("help") | Short('h') => return Ok(None),
            Long("listen") => Role::Hub,
            Long("connect") => Role::Member,
            Long("secret") => {
                secret = Some(PathBuf::from(arguments.value()?));
                continue;
            }
            Long("dir") => {
                directory = Some(PathBuf::from(arguments.value()?));
                continue;
            }
            other => return Err(other.unexpected()),
        };
        if place.replace((role, arguments.value()?.string()?)).is_some() {
            return Err("only one of --listen and --connect makes sense".into());
        }
    }
    let (role, address) = place.ok_or("neither --listen nor --connect")?;
    let secret = secret.ok_or("--secret is missing")?;
    let directory = directory.unwrap_or_else(mlx5_peers::place::of_environment);
    Ok(Some(Options { role, address, secret, directory }))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the secret from a file that only its owner may read.
fn secret(path: &Path) -> Result<Secret, String> {
    let lost = |error: io::Error| format!("{}: {error}", path.display());
    let mut file = File::open(path).map_err(lost)?;
    if file.metadata().map_err(lost)?.mode() & 0o077 != 0 {
        return Err(format!("{}: others may read or write it (chmod 600)", path.display()));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(lost)?;
    Secret::new(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn nonce() -> io::Result<Nonce> {
    let mut nonce = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}

/// A connection to another gateway.
struct Link {
    stream: TcpStream,
    waiting: VecDeque<u8>,
    since: Instant,
}

/// A connection to a process of this directory. The process gets the bytes of one channel.
struct Writing {
    stream: UnixStream,
    waiting: VecDeque<u8>,
}

struct Gateway {
    node: Node,
    listener: Option<TcpListener>,
    links: BTreeMap<u32, Link>,
    next_link: u32,
    /// The directory that this gateway serves. `None` until the gateway has its number in the fabric.
    directory: Option<Directory>,
    path: PathBuf,
    /// The listening sockets that stand for the processes of other members, by the slots of these processes.
    shown: BTreeMap<u8, UnixListener>,
    /// Connections of processes of this directory to the sockets in `shown`.
    reading: BTreeMap<Channel, UnixStream>,
    writing: BTreeMap<Channel, Writing>,
    /// Connections whose channels are over. Each is closed when its process has taken the waiting bytes.
    ending: Vec<Writing>,
}

fn run(options: &Options) -> Result<(), String> {
    let secret = secret(&options.secret)?;
    let lost = |error: io::Error| format!("{}: {error}", options.address);
    let mut gateway = Gateway {
        node: Node::new(options.role, secret),
        listener: None,
        links: BTreeMap::new(),
        next_link: 0,
        directory: None,
        path: options.directory.clone(),
        shown: BTreeMap::new(),
        reading: BTreeMap::new(),
        writing: BTreeMap::new(),
        ending: Vec::new(),
    };
    match options.role {
        Role::Hub => {
            let listener = TcpListener::bind(&options.address).map_err(lost)?;
            listener.set_nonblocking(true).map_err(lost)?;
            gateway.listener = Some(listener);
            gateway.join(0)?;
        }
        Role::Member => {
            let stream = TcpStream::connect(&options.address).map_err(lost)?;
            gateway.link(stream).map_err(lost)?;
        }
    }
    loop {
        gateway.turn()?;
        if options.role == Role::Member && gateway.links.is_empty() {
            return Err(format!("{}: the connection is over", options.address));
        }
    }
}

impl Gateway {
    /// Reserves the slots of all other members in the directory, and prints the line `ready`. `member` is the
    /// number that this gateway has got.
    fn join(&mut self, member: u8) -> Result<(), String> {
        self.directory = Some(Directory::reserve(&self.path, member)?);
        // A failed write is ignored: the reader of standard output may be gone.
        let _ = writeln!(io::stdout(), "ready: member {member} of the fabric");
        let _ = io::stdout().flush();
        Ok(())
    }

    fn link(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let nonce = nonce()?;
        let number = self.next_link;
        self.next_link = number.wrapping_add(1);
        self.links.insert(number, Link { stream, waiting: VecDeque::new(), since: Instant::now() });
        self.node.connect(number, nonce);
        Ok(())
    }

    /// Carries all data that have arrived, then waits until more arrive, at most [`PERIOD`].
    fn turn(&mut self) -> Result<(), String> {
        self.accept();
        self.drop_silent();
        self.read_links();
        self.look();
        self.read_processes();
        self.carry_out()?;
        self.flush();
        self.carry_out()?;
        self.wait();
        Ok(())
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        let mut streams = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            streams.push(stream);
        }
        for stream in streams {
            // A connection that is beyond the limit or cannot be set up is closed at once.
            if self.links.len() < LINKS {
                let _ = self.link(stream);
            }
        }
    }

    /// Drops links whose peers have not proven in time that they know the secret.
    fn drop_silent(&mut self) {
        let late = |link: &Link| link.since.elapsed() > GREETING;
        let slow = self.links.iter().filter(|(number, link)| late(link) && !self.node.is_up(**number));
        for number in slow.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.node.drop_link(number, "it has not proven in time that it knows the secret");
        }
    }

    fn read_links(&mut self) {
        let mut buffer = vec![0; CHUNK];
        for number in self.links.keys().copied().collect::<Vec<_>>() {
            let Some(link) = self.links.get_mut(&number) else { continue };
            match link.stream.read(&mut buffer) {
                Ok(0) => self.node.drop_link(number, "its connection is over"),
                Ok(length) => self.node.receive(number, buffer.get(..length).unwrap_or_default()),
                Err(error) if is_temporary(&error) => {}
                Err(_) => self.node.drop_link(number, "its connection is broken"),
            }
        }
    }

    /// Tells the node which processes of this directory have started, have changed their lists of addresses
    /// or services, or have ended.
    fn look(&mut self) {
        if let Some(directory) = &mut self.directory {
            for (slot, table) in directory.changes(PERIOD) {
                self.node.process(slot, table);
            }
        }
    }

    /// Accepts connections of this directory's processes to processes of other members, and reads from these
    /// connections.
    fn read_processes(&mut self) {
        for (slot, listener) in &self.shown {
            while let Ok((stream, _)) = listener.accept() {
                if stream.set_nonblocking(true).is_ok()
                    && let Some(channel) = self.node.open(*slot)
                {
                    self.reading.insert(channel, stream);
                }
            }
        }
        let mut buffer = vec![0; CHUNK];
        self.reading.retain(|channel, stream| {
            let room = self.node.room(*channel).min(CHUNK);
            let Some(room) = buffer.get_mut(..room).filter(|room| !room.is_empty()) else { return true };
            match stream.read(room) {
                Ok(length) if length > 0 => {
                    self.node.write(*channel, room.get(..length).unwrap_or_default());
                    true
                }
                Err(error) if is_temporary(&error) => true,
                _ => {
                    self.node.close(*channel);
                    false
                }
            }
        });
    }

    fn carry_out(&mut self) -> Result<(), String> {
        while let Some(effect) = self.node.effect() {
            match effect {
                Effect::Send(number, bytes) => {
                    if let Some(link) = self.links.get_mut(&number) {
                        link.waiting.extend(bytes);
                    }
                }
                Effect::Drop(number, why) => {
                    if let Some(mut link) = self.links.remove(&number) {
                        let peer =
                            link.stream.peer_addr().map_or_else(|_| "?".into(), |peer| peer.to_string());
                        eprintln!("mlx5-fabric: {peer} is no member any more: {why}");
                        write(&mut link.stream, &mut link.waiting);
                    }
                }
                Effect::Joined(member) => self.join(member)?,
                Effect::Show(slot, table) => {
                    if let Some(directory) = &self.directory
                        && let Some(listener) = directory.show(slot, &table, !self.shown.contains_key(&slot))
                    {
                        self.shown.insert(slot, listener);
                    }
                }
                Effect::Hide(slot) => {
                    self.shown.remove(&slot);
                    if let Some(directory) = &self.directory {
                        directory.hide(slot);
                    }
                }
                Effect::Connect(channel, slot) => {
                    match self.directory.as_ref().and_then(|directory| directory.connect(slot)) {
                        Some(stream) => {
                            self.writing.insert(channel, Writing { stream, waiting: VecDeque::new() });
                        }
                        None => self.node.close(channel),
                    }
                }
                Effect::Write(channel, bytes) => {
                    if let Some(writing) = self.writing.get_mut(&channel) {
                        writing.waiting.extend(bytes);
                    }
                }
                Effect::Close(channel) => {
                    self.reading.remove(&channel);
                    let ended = self.writing.remove(&channel);
                    self.ending.extend(ended.filter(|_| self.ending.len() < MOST_ENDING));
                }
            }
        }
        Ok(())
    }

    /// Writes waiting bytes, as far as the sockets take them. Drops links and closes channels whose
    /// connections have ended, and drops links for which too many bytes wait.
    fn flush(&mut self) {
        for (number, link) in &mut self.links {
            let is_over = |more| more > self.node.window_of(*number);
            if write(&mut link.stream, &mut link.waiting).is_none() {
                self.node.drop_link(*number, "its connection is broken");
            } else if link.waiting.len().checked_sub(MOST_WAITING).is_some_and(is_over) {
                self.node.drop_link(*number, "it takes no bytes");
            }
        }
        self.ending.retain_mut(|writing| {
            write(&mut writing.stream, &mut writing.waiting).is_some() && !writing.waiting.is_empty()
        });
        self.writing.retain(|channel, writing| {
            let Some(taken) = write(&mut writing.stream, &mut writing.waiting) else {
                self.node.close(*channel);
                return false;
            };
            if taken > 0 {
                self.node.taken(*channel, taken as u32);
            }
            // The process sends no bytes on this connection, so a read finds only the connection's end.
            let is_open = matches!(writing.stream.read(&mut [0; 1]), Err(error) if is_temporary(&error));
            if !is_open {
                self.node.close(*channel);
            }
            is_open
        });
    }

    fn wait(&self) {
        let mut polled = Vec::new();
        if let Some(listener) = &self.listener {
            polled.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
        for link in self.links.values() {
            let out = if link.waiting.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            polled.push(PollFd::from_borrowed_fd(link.stream.as_fd(), PollFlags::IN | out));
        }
        for listener in self.shown.values() {
            polled.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
        for (channel, stream) in &self.reading {
            if self.node.room(*channel) > 0 {
                polled.push(PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN));
            }
        }
        for writing in self.writing.values().chain(&self.ending) {
            let out = if writing.waiting.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            polled.push(PollFd::from_borrowed_fd(writing.stream.as_fd(), PollFlags::IN | out));
        }
        let period = Timespec { tv_sec: 0, tv_nsec: PERIOD.as_nanos() as i64 };
        let _ = poll(&mut polled, Some(&period));
    }
}

/// Writes waiting bytes. Returns the number of bytes that were taken, or `None` if the connection is broken.
fn write(stream: &mut impl Write, waiting: &mut VecDeque<u8>) -> Option<usize> {
    let mut taken = 0;
    while !waiting.is_empty() {
        let (front, _) = waiting.as_slices();
        match stream.write(front) {
            Ok(length) if length > 0 => {
                waiting.drain(..length);
                taken += length;
            }
            Err(error) if is_temporary(&error) => break,
            _ => return None,
        }
    }
    Some(taken)
}
