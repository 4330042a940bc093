//! The directory that this gateway serves: reserves slots, reads the lists of the processes in other slots,
//! and shows the processes of other members.

use mlx5_fabric::{Table, member_of};
use mlx5_peers::place::{self, ADDRESSES, GATEWAY, LOCK, RINGS, SERVICES, SOCKET, file};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
        place::prepare(path)?;
        let shown = path.display();
        let lock = |path: PathBuf, taken: &str| {
            let file = place::lock(&path).map_err(|error| format!("{shown}: {error}"))?;
            file.ok_or_else(|| format!("{shown}: {taken}"))
        };
        let mut locks = vec![lock(path.join(GATEWAY), "another mlx5-fabric serves it")?];
        for slot in (0..=u8::MAX).filter(|slot| member_of(*slot) != member) {
            let taken = "programs run already; start mlx5-fabric first";
            locks.push(lock(file(path, slot.into(), LOCK), taken)?);
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

    /// Reads the lists of the process in a slot. A list without a file is empty.
    fn table(&self, slot: u8) -> Table {
        let read = |kind| place::list(&self.path, slot.into(), kind).unwrap_or_default();
        Table { addresses: read(ADDRESSES), services: read(SERVICES) }
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
        place::connect(&self.path, slot.into()).ok()
    }

    /// Writes the lists of a process of another member, so that the programs of this directory find the
    /// process. For a new process, also makes and returns the socket to which these programs connect.
    pub(crate) fn show(&self, slot: u8, table: &Table, is_new: bool) -> Option<UnixListener> {
        let listener = if is_new { Some(place::listen(&self.path, slot.into()).ok()?) } else { None };
        for (kind, list) in [(SERVICES, &foreign(slot, &table.services)), (ADDRESSES, &table.addresses)] {
            place::replace(&self.path, slot.into(), kind, list);
        }
        listener
    }

    /// Removes the files of a process of another member. An earlier process of the slot may have left a file
    /// `rings`. With this file, programs would send messages through shared memory, and a gateway could not
    /// pass the messages on.
    pub(crate) fn hide(&self, slot: u8) {
        for kind in [ADDRESSES, RINGS, SERVICES, SOCKET] {
            let _ = fs::remove_file(file(&self.path, slot.into(), kind));
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
