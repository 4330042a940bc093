//! Notifications of changes of the device's ports: a subscription to the kernel's reports about interfaces
//! and addresses.

use crate::ground::netdevs::Watch;
use crate::ground::port::{Port, View};
use crate::ground::sys;

/// The pause between two checks for notifications, in nanoseconds.
const PERIOD: u64 = 20_000_000;

/// The subscription to notifications of the port's changes.
#[derive(Debug)]
pub(super) struct News {
    view: View,
    watch: Watch,
    /// The time of the last check, in nanoseconds of the monotonic clock.
    looked: u64,
}

impl News {
    /// Subscribes to notifications of changed network interfaces. `view` is the selection of interfaces that
    /// the ports follow. Returns `None` without `view`, or if the kernel sends no notifications.
    pub(super) fn new(view: Option<&View>) -> Option<Self> {
        Some(Self { view: view?.clone(), watch: Watch::new()?, looked: sys::nanoseconds() })
    }

    /// Returns the descriptor that becomes readable when a notification has arrived.
    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        self.watch.descriptor()
    }

    /// Returns the selection of network interfaces that the ports follow.
    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    /// Returns the ports of all devices, if they may have changed. `now` is the time in nanoseconds of the
    /// monotonic clock.
    pub(super) fn ports(&mut self, now: u64) -> Option<Vec<Port>> {
        if now.saturating_sub(self.looked) < PERIOD {
            return None;
        }
        self.looked = now;
        // If an interface that the environment names is gone, `ports` fails, and the ports stay as they were.
        if self.watch.has_news() { self.view.ports().ok() } else { None }
    }
}
