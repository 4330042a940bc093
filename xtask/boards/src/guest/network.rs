//! Boots guests whose devices are on one network: two guests, or a guest and programs of this machine behind
//! the stand-in for the kernel.

use super::boot::{ENDED, machine, served};
use super::options::Options;
use super::parts::{Guest, Parts};
use super::wireshark;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use xtask::run::{Ends, free_port};
use xtask::{debian, emulate, host, run};

/// The name of the file to which the process of a PCI function writes its packets.
const CAPTURE: &str = "packets.pcap";

/// Kinds of frames that each capture of two guests must have: ARP, neighbour discovery, and a segment of TCP.
const FRAMES: &[&str] = &["eth:ethertype:arp", "eth:ethertype:ipv6:icmpv6", "eth:ethertype:ip:tcp"];

/// Kinds of RoCE packets that each capture must have: SEND and RDMA WRITE of one packet, request and response
/// of an RDMA READ, an acknowledgement, and a datagram.
const ROCE: &[&str] = &["RoCE 4", "RoCE 10", "RoCE 12", "RoCE 16", "RoCE 17", "RoCE 100"];

/// Starts the PCI function of a guest on a network. The function writes its packets to a capture in `folder`.
/// Returns the function's socket, which is in `folder` too.
fn serve(options: &Options, guest: &Guest, network: &Path, folder: &Path) -> Result<(PathBuf, Ends), String> {
    let socket = folder.join("socket");
    let mut served = served(options, guest, Some(network));
    served.extend(["--pcap".to_owned(), folder.join(CAPTURE).display().to_string()]);
    host::serve(&socket, &served).map(|function| (socket, function))
}

/// Boots two guests on one network at the same time. The first one dies at the end of each of its scripts but
/// the last, and boots again with the next one. Returns the exit status of the command that has failed, or 0.
pub(super) fn boot_two(
    options: &Options,
    first: &[Guest],
    second: &Guest,
    parts: &Parts,
) -> Result<u8, String> {
    let folders = [run::temporary("guest")?, run::temporary("guest")?];
    let [own, other] = folders.each_ref().map(|folder| folder.path());
    let network = own.join("network");
    // The order matters: the function that joins the network first gets the first address.
    let (socket, _function) = serve(options, first.first().ok_or("no first guest")?, &network, own)?;
    let (other_socket, _other_function) = serve(options, second, &network, other)?;
    let status = std::thread::scope(|scope| {
        let boots = scope.spawn(|| {
            for (number, guest) in first.iter().enumerate() {
                match machine(options, guest, parts, &socket, own) {
                    Err(why) if why == ENDED && number + 1 < first.len() => {}
                    ended => return ended,
                }
            }
            Err(ENDED.into())
        });
        let status = machine(options, second, parts, &other_socket, other);
        let first = boots.join().map_err(|_| "the first guest has no end")?;
        match (status, first) {
            (Ok(0), first) => first,
            (status, Ok(_)) => status,
            (status, Err(why)) => Err(format!("{why}; the second guest: {status:?}")),
        }
    })?;
    // Without signatures, the second guest only reads and writes a volume, and sends few kinds of RoCE
    // packets.
    let roce = if second.signatures { ROCE } else { &[] };
    [own, other].iter().try_for_each(|folder| judged(status, folder, &[FRAMES, roce].concat()))?;
    Ok(status)
}

/// Boots a guest, and carries out its orders (shell commands) on this machine, behind the stand-in for the
/// kernel. The devices of both are on one network. Returns the exit status of the guest's command.
pub(super) fn boot_beside(options: &Options, guest: &Guest, parts: &Parts) -> Result<u8, String> {
    debian::install(debian::VERBS)?;
    debian::install(debian::PROGRAMS)?;
    let folder = run::temporary("guest")?;
    let folder = folder.path();
    let network = folder.join("network");
    let (socket, _function) = serve(options, guest, &network, folder)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("orders: {error}"))?;
    let port = listener.local_addr().map_err(|error| format!("orders: {error}"))?.port();
    let orders = Orders { library: emulate::library()?, storage: host::storage()?, network };
    // The thread ends with this process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Err(error) = orders.take(stream) {
                eprintln!("an order of the guest: {error}");
            }
        }
    });
    let command = format!("orders={port} data={}\n{}", free_port()?, guest.command);
    let status = machine(options, &Guest { command, ..guest.clone() }, parts, &socket, folder)?;
    judged(status, folder, ROCE)?;
    Ok(status)
}

/// Has Wireshark judge the capture in a folder. If the guest has failed, its capture may be incomplete, and
/// is not judged.
fn judged(status: u8, folder: &Path, kinds: &[&str]) -> Result<(), String> {
    if status == 0 { wireshark::judge(&folder.join(CAPTURE), kinds) } else { Ok(()) }
}

/// The longest order of a guest in bytes.
const LONGEST: u64 = 4096;

/// The files that the orders of a guest (shell commands) need on this machine.
struct Orders {
    /// The library that is the stand-in for the kernel.
    library: PathBuf,
    /// The folder with the programs of the storage example.
    storage: PathBuf,
    /// The directory in which the guest's function and the stand-in meet.
    network: PathBuf,
}

impl Orders {
    /// Carries out an order: a command for the shell, with its output on the connection to the guest. The
    /// connection ends when the last program that writes to it has ended.
    fn take(&self, stream: TcpStream) -> Result<(), String> {
        let lost = |error: std::io::Error| error.to_string();
        let mut line = String::new();
        BufReader::new((&stream).take(LONGEST)).read_line(&mut line).map_err(lost)?;
        let directory = self.network.display().to_string();
        // `timeout` ends an order that takes longer than 120 s. A program that the order leaves in the
        // background needs a limit of its own.
        let words = ["--dir", &directory, "--", "timeout", "120", "sh", "-c", &line].map(String::from);
        let mut command = emulate::with_library(&self.library, &words);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.storage.display())).current_dir(&self.network);
        let output = OwnedFd::from(stream);
        command.stdin(Stdio::null()).stderr(output.try_clone().map_err(lost)?).stdout(output);
        let mut child = command.spawn().map_err(lost)?;
        std::thread::spawn(move || child.wait());
        Ok(())
    }
}
