//! Connects the emulated PCI function to a network: the directory in which the processes of emulated devices
//! meet (`mlx5-peers`). The function exchanges messages of queue pairs, and frames of its network interface,
//! with these processes.

use crate::memory::GuestMemory;
use mlx5_faults::{Fault, Place};
use mlx5_mkey::wire::prm::qp_context::Qpc;
use mlx5_peers::{Fabric, Gid, Host, News, SLOT_SHIFT, Waiting, slot_of};
use mlx5_record::capture::{Capture, Endpoint, Route};
use mlx5_softdev::{Datagram, Device, Message, Seen};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use zerocopy::FromBytes;

/// The number of slots of the directory that functions can take. A process's slot is the upper part of its
/// queue pair numbers. Numbers with this slot or a higher slot are reserved for the send queues of Ethernet
/// packets.
const SLOTS: u32 = 0xf0;

/// The highest number of a management queue pair (QP0, QP1). Every port has queue pairs with these two
/// numbers, so a message to one of them selects its port by a GID.
const MANAGEMENT: u32 = 1;

/// The process that contains the function's [`Fabric`], as the fabric sees it. No other program runs in this
/// process, and no faults of messages are planned.
#[derive(Debug)]
struct Alone;

impl Host for Alone {
    fn keep(_: &impl AsRawFd) {}

    fn visit(_: Place) -> Option<Fault> {
        None
    }
}

/// The function's connection to the network.
#[derive(Debug)]
pub struct Network {
    fabric: Fabric<Alone>,
    /// Messages of other processes that the device has not received yet.
    waiting: Waiting,
    /// The GIDs that the function has published to the other processes.
    published: Vec<Gid>,
    capture: Option<Capture>,
}

impl Network {
    /// Joins the network of a directory.
    ///
    /// # Errors
    /// A sentence for the user that says why the function cannot join.
    pub fn join(directory: &Path) -> Result<Self, String> {
        let fabric = Fabric::join(directory)?;
        if fabric.slot() >= SLOTS {
            return Err(format!("{}: no place for another function", directory.display()));
        }
        Ok(Self { fabric, waiting: Waiting::default(), published: Vec::new(), capture: None })
    }

    /// Captures all packets from now on: frames of the interface, and messages of queue pairs.
    ///
    /// # Errors
    /// The system's error.
    pub fn capture(&mut self, path: &Path) -> io::Result<()> {
        self.capture = Some(Capture::of_port(path, endpoint)?);
        Ok(())
    }

    /// Returns the link-local GID of the port, which no other function of the directory has.
    pub const fn gid(&self) -> Gid {
        gid(self.fabric.slot())
    }

    /// Returns the first and the last number of the port's queue pairs.
    pub(crate) const fn numbers(&self) -> (u32, u32) {
        self.fabric.qpns()
    }

    /// Asks the peers to wake this process when they send, and returns descriptors, one of which becomes
    /// readable when messages arrive or are already there.
    pub(crate) fn prepare_sleep(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.fabric.prepare_sleep()
    }

    /// Returns whether received messages wait for their delivery, or sent messages wait for a peer that reads
    /// them.
    pub(crate) fn is_due(&self) -> bool {
        !self.waiting.is_empty() || self.fabric.is_behind()
    }

    /// Drops the messages that wait for the device, since the device was reset.
    pub(crate) fn reset(&mut self) {
        self.waiting.retain(|_| false);
    }

    /// Delivers messages and frames of other processes to the device.
    pub(crate) fn receive(&mut self, device: &mut Device<GuestMemory>) {
        self.set_routes(device);
        let mut news = Vec::new();
        let Self { waiting, capture, .. } = self;
        let take = |message| {
            if let Some(capture) = capture {
                capture.seen(Seen::Received(&message));
            }
            waiting.push(arrived(message));
        };
        self.fabric.exchange(take, &mut news);
        self.waiting.deliver(device, |from| self.fabric.takes_messages(from), Some);
        for message in self.waiting.take_refused() {
            self.waiting.extend(self.fabric.send(message));
        }
        for news in news {
            if let News::Frame(frame) = news {
                self.see_frame(&frame);
                device.deliver_frame(&frame);
            }
        }
    }

    /// Sends the device's messages and frames to other processes.
    pub(crate) fn transmit(&mut self, device: &mut Device<GuestMemory>) {
        self.set_routes(device);
        while let Some(message) = device.take_message() {
            let Some(message) = self.addressed(message) else { continue };
            if let Some(capture) = &mut self.capture {
                capture.seen(Seen::Sent(&message));
            }
            self.waiting.extend(self.fabric.send(message));
        }
        while let Some(frame) = device.take_frame() {
            self.see_frame(&frame);
            self.fabric.send_frame(&frame);
        }
        self.fabric.flush();
        if !device.gids().eq(self.published.iter().copied()) {
            self.published = device.gids().collect();
            let mac = device.mac();
            self.fabric.publish(self.published.iter().map(|gid| (*gid, mac)));
        }
    }

    fn see_frame(&mut self, frame: &[u8]) {
        if let Some(capture) = &mut self.capture {
            capture.frame(frame);
        }
    }

    /// Gives the capture those attributes of each queue pair on which the bytes of its packets depend.
    fn set_routes(&mut self, device: &Device<GuestMemory>) {
        let Some(capture) = &mut self.capture else { return };
        let route = |(number, bytes)| Some((number, Route::of(Qpc::ref_from_prefix(bytes).ok()?.0)));
        capture.set_routes(device.contexts().filter_map(route).collect());
    }

    /// Inserts the slots of sender and receiver into the queue pair numbers of a datagram between management
    /// queue pairs. Returns `None` if no process has the datagram's destination GID. Other messages stay
    /// unchanged.
    fn addressed(&self, message: Message) -> Option<Message> {
        match message {
            Message::Unanswered { from, to, datagram: Some(datagram), request } if to <= MANAGEMENT => {
                let slot = self.fabric.slot_with(destination(&datagram)?)?;
                let (from, to) = (from | self.fabric.slot() << SLOT_SHIFT, to | slot << SLOT_SHIFT);
                Some(Message::Unanswered { from, to, datagram: Some(datagram), request })
            }
            other => Some(other),
        }
    }
}

/// Returns the link-local GID of the port with this slot.
const fn gid(slot: u32) -> Gid {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x6d, 0x6c, 0xff, 0xfe, 0, 1, slot as u8]
}

/// Returns the endpoint of a queue pair in a capture: the addresses of its port, which its slot determines.
const fn endpoint(number: u32) -> Endpoint {
    let slot = slot_of(number);
    Endpoint { mac: [0x02, 0x6d, 0x6c, 0, 1, slot as u8], address: gid(slot), number: plain(number) }
}

/// Returns the destination of a datagram: the last 16 bytes of its route.
fn destination(datagram: &Datagram) -> Option<Gid> {
    datagram.route.last_chunk().copied()
}

/// Returns an arrived message in the form that the device expects: the numbers of management queue pairs
/// contain no slot.
fn arrived(message: Message) -> Message {
    match message {
        Message::Unanswered { from, to, datagram, request } => {
            Message::Unanswered { from: plain(from), to: plain(to), datagram, request }
        }
        other => other,
    }
}

const fn plain(number: u32) -> u32 {
    let low = number & ((1 << SLOT_SHIFT) - 1);
    if low <= MANAGEMENT && slot_of(number) < SLOTS { low } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_softdev::DeviceProfile;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn queue_pairs_of_management_have_no_slot_on_the_device() {
        assert_eq!([0x5_0001, 0, 1, 0x5_0040, 0x5_0002].map(plain), [1, 0, 1, 0x5_0040, 0x5_0002]);
    }

    /// Another process of the directory may send malformed bytes. The function must stay on the network.
    #[test]
    fn bytes_of_others_do_no_harm() {
        let home = tempfile::tempdir().unwrap();
        let mut own = Network::join(home.path()).unwrap();
        let mut device =
            Device::new(GuestMemory::default(), DeviceProfile { port_gid: own.gid(), ..Default::default() });
        device.join(own.numbers().0, own.numbers().1).unwrap();
        let hostile = || UnixStream::connect(home.path().join("slot-0.socket")).unwrap();
        let mut inputs = vec![vec![0xff; 64], vec![], vec![4, 0, 0, 0, 1, 5], vec![0; 5]];
        for (kind, byte) in (0..=8).flat_map(|kind| [0, 0x55, 0xff].map(|byte| (kind, byte))) {
            // The length of the data, the count of the fields, the fields from the kind on, the data.
            inputs.extend([(0, 0), (0, 9), (0, 17), (9, 19), (200, 0), (200, 31)].map(|(data, fields)| {
                [vec![data, 0, 0, 0, fields + 1, kind], vec![byte; (fields + data).into()]].concat()
            }));
        }
        for input in inputs {
            let mut peer = hostile();
            peer.write_all(&input).unwrap();
            for _ in 0..3 {
                own.receive(&mut device);
                own.transmit(&mut device);
            }
        }
        // After all these bytes, the function still publishes its address, and a new peer finds it.
        let other = Network::join(home.path()).unwrap();
        own.transmit(&mut device);
        assert_eq!(other.fabric.slot_with(own.published[0]), Some(0));
    }

    #[test]
    fn functions_of_a_directory_have_different_addresses() {
        let home = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| Network::join(home.path()).unwrap());
        assert_ne!(one.gid(), other.gid());
        assert_eq!((one.numbers().0, other.numbers().0), (0x40, 0x1_0040));
    }
}
