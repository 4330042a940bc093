//! Records of the device's work: the log as text, the log as JSON, and the capture of packets. Each is
//! written only if a setting asks for it.

mod journal;

use crate::fabric::slot_of;
use crate::ground::descriptors;
use crate::ground::errno::Errno;
use crate::ground::notice;
use crate::ground::port;
use crate::ground::process_memory::ProcessMemory;
use crate::ground::settings::Settings;
use crate::state::counting::Tally;
use crate::state::object::{Context, Object, Qp};
use journal::Journal;
use mlx5_mkey::command::PathMtu;
use mlx5_record::Queue;
use mlx5_record::capture::{Capture, Endpoint, Route};
use mlx5_softdev::{Device, Seen, Written};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The capture, if the settings ask for it. The device's tap has the logs.
#[derive(Debug)]
pub(crate) struct Record {
    capture: Option<Arc<Mutex<Capture>>>,
}

/// Opens the file that a setting names, if it names one. Reports a failure on standard error.
fn opened<T>(
    path: Option<&Path>,
    open: impl FnOnce(&Path) -> std::io::Result<T>,
) -> Result<Option<T>, Errno> {
    path.map(|path| {
        open(path).map_err(|error| {
            notice::once(&format!("{}: {error}", path.display()));
            Errno::IO
        })
    })
    .transpose()
}

impl Record {
    /// Opens the files that the settings name, and observes all requests, messages and completions of the
    /// device. Counts them in `tally`.
    ///
    /// # Errors
    /// [`Errno::IO`] for a file that cannot be opened, after a line on standard error.
    pub(crate) fn new(
        settings: &Settings,
        device: &mut Device<ProcessMemory>,
        tally: Arc<Tally>,
    ) -> Result<Self, Errno> {
        let journal = opened(settings.log_json.as_deref(), Journal::open)?;
        let capture = opened(settings.pcap.as_deref(), capture)?.map(Mutex::new).map(Arc::new);
        let told = settings.log;
        let (to_capture, context) = (capture.clone(), mlx5_record::context(device.profile()));
        device.set_tap(move |seen| {
            tally.seen(seen);
            match seen {
                Seen::Completion { cqn, entry, cause: cause @ Some(_) } if told => {
                    notice::always(&format!("mlx5_0 {}", Written { cqn, entry: *entry, cause }));
                }
                Seen::Request { queue, transport, block, bytes } if told => {
                    let queue = Queue { number: queue, transport, device: context };
                    let text = format!("{}\n", mlx5_record::request(&queue, block, bytes));
                    // One write, so that the output of other threads does not split the lines.
                    let _ = std::io::stderr().write_all(text.as_bytes());
                }
                _ => {}
            }
            if let Some(journal) = &journal {
                journal.seen(seen, context);
            }
            if let Some(capture) = &to_capture {
                capture.lock().unwrap_or_else(PoisonError::into_inner).seen(seen);
            }
        });
        Ok(Self { capture })
    }

    /// Updates the capture's routes (attributes of queue pairs that packets depend on) after queue pairs have
    /// changed.
    pub(crate) fn queues<'a>(&self, contexts: impl Iterator<Item = &'a Context>) {
        let Some(capture) = &self.capture else { return };
        let routes = contexts.flat_map(Context::queues).filter_map(|object| match object {
            Object::Qp(qp) => Some((qp.number, route(qp))),
            _ => None,
        });
        let routes: BTreeMap<u32, Route> = routes.collect();
        capture.lock().unwrap_or_else(PoisonError::into_inner).set_routes(routes);
    }
}

fn capture(path: &Path) -> std::io::Result<Capture> {
    let capture = Capture::shared(path, endpoint)?;
    capture.file().into_iter().for_each(descriptors::keep);
    Ok(capture)
}

/// Returns the endpoint of a queue pair on the wire: the device's addresses, to each of which the process's
/// number in the fabric (its slot) is added.
fn endpoint(number: u32) -> Endpoint {
    let moved = |last: [u8; 2]| u16::from_be_bytes(last).wrapping_add(slot_of(number) as u16).to_be_bytes();
    let [a, b, c, d, rest @ ..] = port::mac(0);
    let [e, f] = moved(rest);
    let mut address = port::link_local(port::mac(0));
    if let Some(last) = address.last_chunk_mut() {
        *last = moved(*last);
    }
    Endpoint { mac: [a, b, c, d, e, f], address, number }
}

/// Returns the attributes of a queue pair that the capture needs: those of the queue pair context. An MTU
/// that verbs (MODIFY_QP) have set takes precedence.
fn route(qp: &Qp) -> Route {
    let route = Route::of(&qp.context);
    match qp.values.path_mtu {
        0 => route,
        code => Route { mtu: PathMtu::from_code(code), ..route },
    }
}
