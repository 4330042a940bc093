//! The counters of the port: the values of all processes, and the files of their sums below `/sys`.
//!
//! Processes whose devices find each other share a directory (`MLX5_UVERBS_DIR`), in which each has a small
//! number, its slot. The file with the values of a process is named by the slot. A later process of the same
//! slot continues with the values of the earlier process, so the sums over all files never become smaller.
//! When a program looks for the files below `/sys`, this library writes them with current values.

use crate::ground::sys;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A number that the device counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Bytes of sent packets, in units of 4 bytes.
    XmitData,
    /// Bytes of received packets, in units of 4 bytes.
    RcvData,
    XmitPackets,
    RcvPackets,
    /// RDMA WRITEs that peers requested. The next two counters are for RDMA READs and atomics of peers.
    RxWriteRequests,
    RxReadRequests,
    RxAtomicRequests,
    /// Requests of peers for which this side had no receive request posted.
    OutOfBuffer,
    /// Requests of this side for which a peer had no receive request posted (RNR NAKs).
    RnrNakRetry,
    /// Requests without an answer.
    LocalAckTimeout,
    /// Completions of requests with an error.
    RequesterErrors,
    /// The part of [`Counter::RequesterErrors`] for requests that were flushed.
    RequesterFlushed,
    /// Completions of receive requests with an error.
    ResponderErrors,
    /// The part of [`Counter::ResponderErrors`] for receive requests that were flushed.
    ResponderFlushed,
    /// Receive requests whose buffers were shorter than the message.
    ResponderLength,
    /// Requests of this side that a peer refused for missing rights.
    RequesterAccess,
    /// Requests of this side that a peer refused as invalid.
    RequesterInvalid,
    /// Requests of peers that this side refused for missing rights.
    ResponderAccess,
}

/// The number of counters.
pub(crate) const COUNT: usize = Counter::ResponderAccess as usize + 1;

/// The values of all counters.
pub(crate) type Values = [u64; COUNT];

/// The files below `ports/1`, with their counters (kernel `drivers/infiniband/core/sysfs.c`,
/// `drivers/infiniband/hw/mlx5/counters.c`). Files without a counter always show zero.
pub(crate) const FILES: &[(&str, Option<Counter>)] = &[
    ("counters/VL15_dropped", None),
    ("counters/excessive_buffer_overrun_errors", None),
    ("counters/link_downed", None),
    ("counters/link_error_recovery", None),
    ("counters/local_link_integrity_errors", None),
    ("counters/multicast_rcv_packets", None),
    ("counters/multicast_xmit_packets", None),
    ("counters/port_rcv_constraint_errors", None),
    ("counters/port_rcv_data", Some(Counter::RcvData)),
    ("counters/port_rcv_errors", None),
    ("counters/port_rcv_packets", Some(Counter::RcvPackets)),
    ("counters/port_rcv_remote_physical_errors", None),
    ("counters/port_rcv_switch_relay_errors", None),
    ("counters/port_xmit_constraint_errors", None),
    ("counters/port_xmit_data", Some(Counter::XmitData)),
    ("counters/port_xmit_discards", None),
    ("counters/port_xmit_packets", Some(Counter::XmitPackets)),
    ("counters/port_xmit_wait", None),
    ("counters/symbol_error", None),
    ("counters/unicast_rcv_packets", Some(Counter::RcvPackets)),
    ("counters/unicast_xmit_packets", Some(Counter::XmitPackets)),
    ("hw_counters/duplicate_request", None),
    ("hw_counters/implied_nak_seq_err", None),
    ("hw_counters/local_ack_timeout_err", Some(Counter::LocalAckTimeout)),
    ("hw_counters/out_of_buffer", Some(Counter::OutOfBuffer)),
    ("hw_counters/out_of_sequence", None),
    ("hw_counters/packet_seq_err", None),
    ("hw_counters/req_cqe_error", Some(Counter::RequesterErrors)),
    ("hw_counters/req_cqe_flush_error", Some(Counter::RequesterFlushed)),
    ("hw_counters/req_remote_access_errors", Some(Counter::RequesterAccess)),
    ("hw_counters/req_remote_invalid_request", Some(Counter::RequesterInvalid)),
    ("hw_counters/resp_cqe_error", Some(Counter::ResponderErrors)),
    ("hw_counters/resp_cqe_flush_error", Some(Counter::ResponderFlushed)),
    ("hw_counters/resp_local_length_error", Some(Counter::ResponderLength)),
    ("hw_counters/resp_remote_access_errors", Some(Counter::ResponderAccess)),
    ("hw_counters/rnr_nak_retry_err", Some(Counter::RnrNakRetry)),
    ("hw_counters/rx_atomic_requests", Some(Counter::RxAtomicRequests)),
    ("hw_counters/rx_dct_connect", None),
    ("hw_counters/rx_read_requests", Some(Counter::RxReadRequests)),
    ("hw_counters/rx_write_requests", Some(Counter::RxWriteRequests)),
];

/// The most milliseconds that the files are behind the device, which is the content of the file `lifespan`.
pub(crate) const LIFESPAN: u64 = 10;

/// Returns the first part of the names of the files that hold counter values. The number of a slot follows.
/// `view` stands for a network namespace and a device (`View::device_name`).
fn prefix(view: &str) -> String {
    format!("counters-{view}-")
}

/// The file with the counter values of this process.
#[derive(Debug)]
pub(crate) struct Numbers {
    file: File,
}

impl Numbers {
    /// Opens the file of a slot. Also returns the values that the slot's earlier processes left there.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn open(directory: &Path, view: &str, slot: u32) -> io::Result<(Self, Values)> {
        let path = directory.join(format!("{}{slot}", prefix(view)));
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let values = read(&file).unwrap_or_default();
        Ok((Self { file }, values))
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Writes the values. If the write fails, the file keeps its old values until the next call.
    pub(crate) fn write(&self, values: &Values) {
        let _ = self.file.write_all_at(values.map(u64::to_ne_bytes).as_flattened(), 0);
    }
}

/// Reads the values of a file. Returns `None` for a file of another size.
fn read(file: &File) -> Option<Values> {
    let mut bytes = [0; 8 * COUNT];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let mut words = bytes.as_chunks::<8>().0.iter();
    Some(std::array::from_fn(|_| words.next().map_or(0, |word| u64::from_ne_bytes(*word))))
}

/// Returns the sums of the values of all processes.
fn sums(directory: &Path, view: &str) -> Values {
    let prefix = prefix(view);
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let slots = entries.filter(|entry| {
        let name = entry.file_name();
        let slot = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        slot.is_some_and(|slot| slot.bytes().all(|byte| byte.is_ascii_digit()))
    });
    slots.filter_map(|entry| read(&File::open(entry.path()).ok()?)).fold([0; COUNT], |mut sums, values| {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
        sums
    })
}

/// Returns names and values of the counters below `hw_counters`: the sums over all processes.
pub(crate) fn hardware(directory: &Path, view: &str) -> Vec<(&'static str, u64)> {
    let sums = sums(directory, view);
    let hardware =
        FILES.iter().filter_map(|(name, counter)| Some((name.strip_prefix("hw_counters/")?, counter)));
    hardware.map(|(name, counter)| (name, value(&sums, *counter))).collect()
}

fn value(sums: &Values, counter: Option<Counter>) -> u64 {
    counter.and_then(|counter| sums.get(counter as usize)).copied().unwrap_or(0)
}

/// Returns the folder of `ports/1` and the rest of `path`, if `path` names a folder of counters or anything
/// below.
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let of = |folder: &[u8]| {
        let at = path.windows(folder.len()).position(|part| part == folder)?;
        let (ports, rest) = path.split_at_checked(at + b"/ports/1".len())?;
        Some((ports, rest.split_first()?.1))
    };
    of(b"/ports/1/counters").or_else(|| of(b"/ports/1/hw_counters"))
}

/// Writes the files that `wanted` names, which is one file, or a folder with all its files. `ports` is the
/// folder `ports/1` in the emulated `/sys` of `view`.
pub(crate) fn refresh(directory: &Path, view: &str, ports: &Path, wanted: &str) {
    let sums = sums(directory, view);
    let wanted = wanted.trim_end_matches('/');
    let is_wanted =
        |name: &str| name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    for (name, counter) in FILES.iter().filter(|(name, _)| is_wanted(name)) {
        let value = value(&sums, *counter);
        // Another process may write the same file. Each file appears whole.
        let draft = draft(directory);
        let _ = fs::write(&draft, format!("{value}\n")).and_then(|()| fs::rename(&draft, ports.join(name)));
    }
}

/// Returns a path that no other process and no other thread uses.
fn draft(directory: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    directory.join(format!("draft-{}-counter-{}", sys::pid(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_counters_are_told_from_others() {
        let split = |path: &'static str| {
            let (ports, rest) = split(path.as_bytes())?;
            Some((std::str::from_utf8(ports).unwrap(), std::str::from_utf8(rest).unwrap()))
        };
        assert_eq!(split("/a/ports/1/counters"), Some(("/a/ports/1", "counters")));
        assert_eq!(split("/a/ports/1/hw_counters/x"), Some(("/a/ports/1", "hw_counters/x")));
        assert_eq!(split("/a/ports/1/state"), None);
    }

    #[test]
    fn numbers_of_all_processes_are_added() {
        let home = tempfile::tempdir().unwrap();
        let ports = home.path().join("ports/1");
        for folder in ["counters", "hw_counters"] {
            fs::create_dir_all(ports.join(folder)).unwrap();
        }
        let values = |counter: Counter, value| {
            let mut values = [0; COUNT];
            values[counter as usize] = value;
            values
        };
        let (first, before) = Numbers::open(home.path(), "7", 0).unwrap();
        assert_eq!(before, [0; COUNT]);
        first.write(&values(Counter::XmitData, 5));
        Numbers::open(home.path(), "7", 1).unwrap().0.write(&values(Counter::XmitData, 6));
        Numbers::open(home.path(), "8", 0).unwrap().0.write(&values(Counter::XmitData, 7));
        fs::write(home.path().join("counters-7-2"), "short").unwrap();
        let shown = |name: &str| fs::read_to_string(ports.join(name)).unwrap_or_default();
        refresh(home.path(), "7", &ports, "counters/port_xmit_data");
        assert_eq!(
            (shown("counters/port_xmit_data"), shown("counters/symbol_error")),
            ("11\n".into(), String::new())
        );
        refresh(home.path(), "7", &ports, "hw_counters/");
        assert_eq!(
            (shown("hw_counters/out_of_buffer"), shown("counters/symbol_error")),
            ("0\n".into(), String::new())
        );
        refresh(home.path(), "7", &ports, "counters");
        assert_eq!(shown("counters/symbol_error"), "0\n");
        let (_, again) = Numbers::open(home.path(), "7", 0).unwrap();
        assert_eq!(again, values(Counter::XmitData, 5), "a later process of the slot goes on");
    }
}
