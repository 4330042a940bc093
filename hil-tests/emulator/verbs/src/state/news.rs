//! Notifications of changes of the device's ports: a subscription to the kernel's reports about interfaces
//! and addresses.

use crate::ground::netdevs::Watch;
use crate::ground::port::{Port, View};
use std::time::{Duration, Instant};

/// The pause between two checks for notifications.
const PERIOD: Duration = Duration::from_millis(20);

/// The subscription to notifications of the port's changes.
#[derive(Debug)]
pub(super) struct News {
    view: View,
    watch: Watch,
    looked: Instant,
}

impl News {
    /// Subscribes to notifications of changed network interfaces. `view` is the selection of interfaces that
    /// the ports follow. Returns `None` without `view`, or if the kernel sends no notifications.
    pub(super) fn new(view: Option<&View>) -> Option<Self> {
        Some(Self { view: view?.clone(), watch: Watch::new()?, looked: Instant::now() })
    }

    /// Returns the descriptor that becomes readable when a notification has arrived.
    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        self.watch.descriptor()
    }

    /// Returns the selection of network interfaces that the ports follow.
    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    /// Returns the ports of all devices, if they may have changed.
    pub(super) fn ports(&mut self) -> Option<Vec<Port>> {
        if self.looked.elapsed() < PERIOD {
            return None;
        }
        self.looked = Instant::now();
        // If an interface that the environment names is gone, `ports` fails, and the ports stay as they were.
        if self.watch.has_news() { self.view.ports().ok() } else { None }
    }
}
