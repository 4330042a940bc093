//! News of the port: the kernel tells of changes of interfaces and addresses.

use crate::ground::netdevs::Watch;
use crate::ground::port::{Port, View};
use std::time::{Duration, Instant};

/// How often the news are looked at.
const PERIOD: Duration = Duration::from_millis(20);

/// The news of the port.
#[derive(Debug)]
pub(super) struct News {
    view: View,
    watch: Watch,
    looked: Instant,
}

impl News {
    /// Subscribes to the news, if the port has a view and the kernel sends any.
    pub(super) fn new(view: Option<&View>) -> Option<Self> {
        Some(Self { view: view?.clone(), watch: Watch::new()?, looked: Instant::now() })
    }

    /// Returns the descriptor to wait on.
    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        self.watch.descriptor()
    }

    /// Returns the interfaces of the port.
    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    /// Returns the port, if it may have changed.
    pub(super) fn port(&mut self) -> Option<Port> {
        if self.looked.elapsed() < PERIOD {
            return None;
        }
        self.looked = Instant::now();
        // A port whose interface is gone stays as it was.
        if self.watch.has_news() { self.view.port().ok() } else { None }
    }
}
