//! Notifications of the port's changes. The kernel reports changes of interfaces and addresses.

use crate::ground::netdevs::Watch;
use crate::ground::port::{Port, View};
use std::time::{Duration, Instant};

/// The time between two looks for notifications.
const PERIOD: Duration = Duration::from_millis(20);

/// The subscription to notifications of the port's changes.
#[derive(Debug)]
pub(super) struct News {
    view: View,
    watch: Watch,
    looked: Instant,
}

impl News {
    /// Subscribes to notifications of the port's interfaces. Returns `None` if the port has no view of
    /// interfaces, or if the kernel sends no notifications.
    pub(super) fn new(view: Option<&View>) -> Option<Self> {
        Some(Self { view: view?.clone(), watch: Watch::new()?, looked: Instant::now() })
    }

    /// Returns the descriptor that becomes readable when a notification has arrived.
    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        self.watch.descriptor()
    }

    /// Returns the view of interfaces that determines the port.
    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    /// Returns the ports of all devices, if they may have changed.
    pub(super) fn ports(&mut self) -> Option<Vec<Port>> {
        if self.looked.elapsed() < PERIOD {
            return None;
        }
        self.looked = Instant::now();
        // Ports stay as they were if a chosen interface is gone.
        if self.watch.has_news() { self.view.ports().ok() } else { None }
    }
}
