//! The directory in which the programs of one machine meet. A slot is the place of one process: the files
//! `slot-N` of a lock, a socket, and two lists, of addresses and of services.

use mlx5_fabric::{Table, member_of};
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most bytes that are read of a list of addresses or services.
const LONGEST_LIST: u64 = 1 << 16;

/// Mode bits that let group and others write.
const OTHERS_WRITE: u32 = 0o022;

/// Returns the user ID of this process.
pub(crate) fn user() -> Result<u32, String> {
    fs::metadata("/proc/self").map(|itself| itself.uid()).map_err(|error| format!("/proc/self: {error}"))
}

/// The directory that this gateway serves. Each gateway is a member of the fabric. The slots of all other
/// members are reserved.
pub(crate) struct Directory {
    path: PathBuf,
    member: u8,
    /// Locked files: the locks of the slots of other members, and `fabric.lock`, which shows that a gateway
    /// serves the directory.
    _locks: Vec<File>,
    /// The living processes of this directory by their slots, each with its lists, and with a connection that
    /// ends when the process ends.
    processes: BTreeMap<u8, (UnixStream, Table)>,
    looked: Option<Instant>,
}

impl Directory {
    /// Makes the directory, and locks all slots of other members, so that no program of this directory takes
    /// them.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(crate) fn reserve(path: &Path, member: u8) -> Result<Self, String> {
        let lost = |error: io::Error| format!("{}: {error}", path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(lost)?;
        let metadata = fs::symlink_metadata(path).map_err(lost)?;
        if !metadata.is_dir() || metadata.uid() != user()? || metadata.mode() & OTHERS_WRITE != 0 {
            return Err(format!(
                "{}: the directory is someone else's, or others may write to it",
                path.display()
            ));
        }
        let lock = |name: &str| {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600);
            let file = options.open(path.join(name)).map_err(lost)?;
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            Ok::<Option<File>, String>(locked.is_ok().then_some(file))
        };
        let mark = lock("fabric.lock")?;
        let mut locks =
            vec![mark.ok_or_else(|| format!("{}: another mlx5-fabric serves it", path.display()))?];
        for slot in (0..=u8::MAX).filter(|slot| member_of(*slot) != member) {
            let file = lock(&format!("slot-{slot}.lock"))?;
            let taken = || format!("{}: programs run already; start mlx5-fabric first", path.display());
            locks.push(file.ok_or_else(taken)?);
        }
        let directory = Self {
            path: path.to_path_buf(),
            member,
            _locks: locks,
            processes: BTreeMap::new(),
            looked: None,
        };
        // A gateway that was killed may have left its files behind.
        for slot in (0..=u8::MAX).filter(|slot| member_of(*slot) != member) {
            directory.hide(slot);
        }
        Ok(directory)
    }

    fn file(&self, slot: u8, what: &str) -> PathBuf {
        self.path.join(format!("slot-{slot}.{what}"))
    }

    /// Reads the lists of the process in a slot. A list without a file is empty.
    fn table(&self, slot: u8) -> Table {
        let read = |what| {
            let mut bytes = Vec::new();
            // A process without services has no list of them.
            if let Ok(file) = File::open(self.file(slot, what)) {
                let _ = file.take(LONGEST_LIST).read_to_end(&mut bytes);
            }
            bytes
        };
        Table { addresses: read("addresses"), services: read("services") }
    }

    /// Returns the processes of this directory that have started, have changed their lists, or have ended
    /// (`None`) since the last call, by their slots. Reads the directory at most once in each `period`.
    pub(crate) fn changes(&mut self, period: Duration) -> Vec<(u8, Option<Table>)> {
        if self.looked.is_some_and(|looked| looked.elapsed() < period) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let mut changes = Vec::new();
        for slot in (0..=u8::MAX).filter(|slot| member_of(*slot) == self.member) {
            let table = self.table(slot);
            match self.processes.get_mut(&slot) {
                Some((stream, known)) => {
                    let is_alive = matches!(stream.read(&mut [0; 1]), Err(error) if is_temporary(&error));
                    if !is_alive {
                        self.processes.remove(&slot);
                        changes.push((slot, None));
                    } else if *known != table {
                        known.clone_from(&table);
                        changes.push((slot, Some(table)));
                    }
                }
                // A process publishes its addresses after it has made its socket, so a connection should
                // succeed.
                None if !table.addresses.is_empty() => {
                    if let Some(stream) = self.connect(slot) {
                        self.processes.insert(slot, (stream, table.clone()));
                        changes.push((slot, Some(table)));
                    }
                }
                None => {}
            }
        }
        changes
    }

    /// Connects to the process of a slot, and never waits. Returns `None` if there is no process, or if the
    /// process accepts no connections at the moment.
    pub(crate) fn connect(&self, slot: u8) -> Option<UnixStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        rustix::net::connect(&stream, &SocketAddrUnix::new(self.file(slot, "socket")).ok()?).ok()?;
        Some(stream.into())
    }

    /// Writes the lists of a process of another member, so that the programs of this directory find the
    /// process. For a new process, also makes and returns the socket to which these programs connect.
    pub(crate) fn show(&self, slot: u8, table: &Table, is_new: bool) -> Option<UnixListener> {
        let listener = if is_new {
            remove(&self.file(slot, "socket"));
            let listener = UnixListener::bind(self.file(slot, "socket")).ok()?;
            listener.set_nonblocking(true).ok()?;
            Some(listener)
        } else {
            None
        };
        self.put(slot, "services", &foreign(slot, &table.services));
        self.put(slot, "addresses", &table.addresses);
        listener
    }

    fn put(&self, slot: u8, what: &str, bytes: &[u8]) {
        let draft = self.path.join(format!("draft-{slot}.{what}"));
        // A failure is ignored. Without the list, programs of this directory do not find the process.
        let _ = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, self.file(slot, what)));
    }

    /// Removes the files of a process of another member. An earlier process of the slot may have left a file
    /// `rings`. With this file, programs would send messages through shared memory, and a gateway could not
    /// pass the messages on.
    pub(crate) fn hide(&self, slot: u8) {
        for what in ["addresses", "rings", "services", "socket"] {
            remove(&self.file(slot, what));
        }
    }
}

/// Returns the list of services of a process of another member, as this directory shows it. Each line ends
/// with the name of the network namespace. Namespaces of two machines may have the same name, so the function
/// appends the member's number to the name.
fn foreign(slot: u8, services: &[u8]) -> Vec<u8> {
    let lines = services.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mark = format!("-member-{}\n", member_of(slot));
    lines.flat_map(|line| [line, mark.as_bytes()].concat()).collect()
}

/// Returns whether a failed call may succeed if it is repeated, now or later.
pub(crate) fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Removes a file, if it exists.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

impl Drop for Directory {
    fn drop(&mut self) {
        for slot in (0..=u8::MAX).filter(|slot| member_of(*slot) != self.member) {
            self.hide(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_another_member_are_in_another_namespace() {
        assert_eq!(
            foreign(17, b"1 262 [::]:5 4026\n2 262 [::]:6 \n"),
            b"1 262 [::]:5 4026-member-1\n2 262 [::]:6 -member-1\n"
        );
        assert_eq!(foreign(17, b""), b"");
    }
}
