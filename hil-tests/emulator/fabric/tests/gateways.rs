//! Tests of the program `mlx5-fabric`: gateways join two or three directories on this machine. Sockets of the
//! tests play the programs that meet in the directories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen.
const LIMIT: Duration = Duration::from_secs(60);

/// A gateway, which is killed at the end of the test.
struct Gateway {
    child: Child,
    directory: PathBuf,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(home: &Path, name: &str, way: &str, address: &str, secret: &str) -> Command {
    let file = home.join(format!("{name}.secret"));
    fs::write(&file, secret).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-fabric"));
    command.args([way, address, "--secret"]).arg(file).arg("--dir").arg(home.join(name));
    command.stdout(Stdio::piped());
    command
}

/// Starts a gateway, and waits until it is ready.
fn start(home: &Path, name: &str, way: &str, address: &str) -> Gateway {
    let mut child = command(home, name, way, address, SECRET).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready: member "), "{line:?}");
    Gateway { child, directory: home.join(name) }
}

const SECRET: &str = "a secret of 24 letters..\n";

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Plays a program that has taken the slot: makes its socket and its two lists.
fn program(gateway: &Gateway, slot: u8, address: &str) -> UnixListener {
    let file = |what: &str| gateway.directory.join(format!("slot-{slot}.{what}"));
    let listener = UnixListener::bind(file("socket")).unwrap();
    fs::write(file("services"), "1 262 [::]:7 4026\n").unwrap();
    fs::write(file("addresses"), address).unwrap();
    listener
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn programs_of_two_directories_reach_each_other() {
    let (home, address) = (tempfile::tempdir().unwrap(), free_address());
    let hub = start(home.path(), "hub", "--listen", &address);
    let first = start(home.path(), "first", "--connect", &address);
    let second = start(home.path(), "second", "--connect", &address);
    // Peers that send nonsense, stay silent, or have a wrong secret do not disturb the others.
    let mut nonsense = TcpStream::connect(&address).unwrap();
    nonsense.write_all(&[0xff; 4096]).unwrap();
    let _silent = TcpStream::connect(&address).unwrap();
    let mut third = command(home.path(), "third", "--connect", &address, "another secret of 24 letters");
    assert_eq!(third.status().unwrap().code(), Some(1));
    assert!(!home.path().join("third").exists(), "it has no directory");

    let table = "::ffff:192.0.2.1 026d6c783501\n";
    let program = program(&first, 16, table);
    for gateway in [&hub, &second] {
        let file = |what: &str| gateway.directory.join(format!("slot-16.{what}"));
        wait("the program is shown", || {
            fs::read_to_string(file("addresses")).is_ok_and(|shown| shown == table)
        });
        assert_eq!(fs::read_to_string(file("services")).unwrap(), "1 262 [::]:7 4026-member-1\n");
        // The writer sends more bytes than a channel holds (`WINDOW`), to a program that does not read at
        // first.
        let mut stream = UnixStream::connect(file("socket")).unwrap();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let writer = {
            let sent = sent.clone();
            std::thread::spawn(move || {
                stream.write_all(&sent).unwrap();
                stream
            })
        };
        // Two connections arrive at the program. The gateway makes one to notice the program's end, and sends
        // nothing on it. The loop finds the other connection, which carries the bytes.
        let received = loop {
            let (mut accepted, _) = program.accept().unwrap();
            accepted.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let mut first = [0];
            if accepted.read(&mut first).is_ok_and(|length| length == 1) {
                accepted.set_read_timeout(Some(LIMIT)).unwrap();
                let mut received = vec![0; sent.len()];
                received[0] = first[0];
                accepted.read_exact(&mut received[1..]).unwrap();
                // When the writer closes its connection, the program's connection ends too.
                drop(writer.join().unwrap());
                assert_eq!(accepted.read(&mut first).unwrap(), 0);
                break received;
            }
            // The gateway takes the end of its own connection for the end of the program, so the connection
            // stays open.
            std::mem::forget(accepted);
        };
        assert!(received == sent);
    }
    drop(first);
    for gateway in [&hub, &second] {
        let socket = gateway.directory.join("slot-16.socket");
        wait("the program is gone with its member", || !socket.exists());
    }
}

/// Starts a hub and a member, and a program of the hub. Returns them with the path by which programs of the
/// member reach this program.
fn pair(home: &Path) -> (Gateway, Gateway, UnixListener, PathBuf) {
    let address = free_address();
    let hub = start(home, "hub", "--listen", &address);
    let member = start(home, "member", "--connect", &address);
    let program = program(&hub, 0, "::ffff:192.0.2.1 026d6c783501\n");
    // The first connection is the gateway's own. The gateway takes the end of this connection for the end of
    // the program, so the connection stays open.
    std::mem::forget(program.accept().unwrap());
    let socket = member.directory.join("slot-0.socket");
    wait("the program is shown", || socket.exists());
    (hub, member, program, socket)
}

/// While the hub is stopped, the bytes of 96 channels wait for the member's link to the hub. They exceed the
/// limit for other waiting bytes (64 MiB), but the member must not drop the link.
#[test]
fn a_link_has_room_for_the_windows_of_its_channels() {
    const BYTES: usize = 1 << 20;
    let home = tempfile::tempdir().unwrap();
    let (hub, _member, program, socket) = pair(home.path());
    let signal = |name: &str| {
        let id = hub.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    signal("-STOP");
    let streams: Vec<_> = (0..96)
        .map(|_| {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.write_all(&[7; BYTES]).unwrap();
            stream
        })
        .collect();
    signal("-CONT");
    for _ in &streams {
        let (mut accepted, _) = program.accept().unwrap();
        accepted.set_read_timeout(Some(LIMIT)).unwrap();
        accepted.read_exact(&mut vec![0; BYTES]).unwrap();
    }
}

/// A program closes its connection before its peer has read the bytes. The peer still gets all bytes.
#[test]
fn the_last_bytes_of_a_program_arrive() {
    const BYTES: usize = 1_000_000;
    let home = tempfile::tempdir().unwrap();
    let (_hub, _member, program, socket) = pair(home.path());
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(&[7; BYTES]).unwrap();
    drop(stream);
    let (mut accepted, _) = program.accept().unwrap();
    // A second channel ends after the first one. When its end has arrived, the gateway has also handled the
    // end of the first channel.
    drop(UnixStream::connect(&socket).unwrap());
    let (mut second, _) = program.accept().unwrap();
    second.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(second.read(&mut [0]).unwrap(), 0);
    accepted.set_read_timeout(Some(LIMIT)).unwrap();
    let mut received = Vec::new();
    accepted.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), BYTES);
}

/// A gateway whose peer never proves that it knows the secret ends, and says so.
#[test]
fn a_member_does_not_wait_for_a_silent_peer() {
    let (home, silent) = (tempfile::tempdir().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = silent.local_addr().unwrap().to_string();
    let mut member = command(home.path(), "member", "--connect", &address, SECRET);
    let output = member.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("has not proven in time"));
}

#[test]
fn a_directory_is_reserved_before_programs_start() {
    let (home, address) = (tempfile::tempdir().unwrap(), free_address());
    let refused = |way: &str, name: &str| {
        let output =
            command(home.path(), name, way, &address, SECRET).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let _hub = start(home.path(), "hub", "--listen", &address);
    assert!(refused("--connect", "hub").contains("another mlx5-fabric serves it"));
    // In the directory `busy`, a program has already taken the first slot. This slot belongs to the hub's
    // range, so a member cannot reserve it.
    fs::create_dir(home.path().join("busy")).unwrap();
    let lock = fs::File::create(home.path().join("busy/slot-0.lock")).unwrap();
    lock.lock().unwrap();
    assert!(refused("--connect", "busy").contains("start mlx5-fabric first"));
    // A gateway refuses a secret whose file others may read.
    let mut open = command(home.path(), "open", "--connect", &address, SECRET);
    fs::set_permissions(home.path().join("open.secret"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(open.status().unwrap().code(), Some(1));
}
