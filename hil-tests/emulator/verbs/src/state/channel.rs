//! Channels: queues of events that the program reads from a file descriptor, for completions and for
//! asynchronous events.
//!
//! The program gets one end of a pair of sockets that keeps messages apart, so the kernel itself provides
//! reading, polling and non-blocking mode. Answers to asynchronous commands also come through a channel. This
//! library keeps a second descriptor of the program's end. With this descriptor, the library takes back
//! unread events when their object is destroyed, as the kernel does.

use crate::ground::errno::Errno;
use crate::ground::{descriptors, sys};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

/// The most bytes of an event: a cookie and an entry of an event queue
/// (`struct mlx5_ib_uapi_devx_async_event_hdr`).
const LONGEST: usize = 8 + 64;

/// The purpose of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Asynchronous events of verbs.
    Asynchronous,
    /// Events of completion queues of verbs.
    Completions,
    /// Events of objects that commands of the device made, with or without the data of the events.
    Devx {
        /// Whether events carry only their cookies.
        omit_data: bool,
    },
    /// Answers to asynchronous commands of the device.
    Commands,
}

impl Kind {
    /// Returns the errno of a read from an empty channel of this kind after the end of its context. The
    /// channels of the mlx5 driver (events and answers of DEVX) look for the end only when a read would wait,
    /// so a non-blocking read finds them empty (`devx_async_event_read`, `devx_async_cmd_event_read`).
    pub(crate) const fn after_the_end(self, is_nonblocking: bool) -> Errno {
        match self {
            Self::Devx { .. } | Self::Commands if is_nonblocking => Errno::AGAIN,
            _ => Errno::IO,
        }
    }
}

/// A queue of events that the program reads from a file descriptor.
#[derive(Debug)]
pub(crate) struct Channel {
    kind: Kind,
    /// The number of the channel's context.
    context: u32,
    writer: UnixDatagram,
    reader: OwnedFd,
    /// Events that did not yet fit into the socket.
    backlog: VecDeque<Vec<u8>>,
}

impl Channel {
    /// Makes a channel of a context. The second value is the descriptor that the program gets and owns.
    ///
    /// # Errors
    /// An error of the system, if no file descriptor is left.
    pub(crate) fn new(kind: Kind, context: u32) -> io::Result<(Self, OwnedFd)> {
        let (writer, reader) = UnixDatagram::pair()?;
        writer.set_nonblocking(true)?;
        let ours = reader.as_fd().try_clone_to_owned()?;
        descriptors::keep(&writer);
        descriptors::keep(&ours);
        Ok((Self { kind, context, writer, reader: ours, backlog: VecDeque::new() }, reader.into()))
    }

    /// Returns the purpose of the channel.
    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns whether events are sent without their data.
    pub(crate) fn omits_data(&self) -> bool {
        self.kind == Kind::Devx { omit_data: true }
    }

    /// Returns whether the channel belongs to this context.
    pub(crate) const fn is_of(&self, context: u32) -> bool {
        self.context == context
    }

    /// Ends the channel because its context is gone. Threads that wait for an event wake up, and their reads
    /// fail. Unread events are lost, apart from asynchronous events of verbs.
    pub(crate) fn end(&mut self) {
        if self.kind != Kind::Asynchronous {
            self.retract(|_| true);
        }
        sys::end_socket(self.reader.as_fd());
    }

    /// Returns whether some events did not fit into the socket at the last attempt.
    pub(crate) fn is_behind(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Appends an event.
    pub(crate) fn push(&mut self, event: &[u8]) {
        self.backlog.push_back(event.to_vec());
        self.flush();
    }

    /// Moves events of the backlog into the socket, as far as the socket has room.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.backlog.front() {
            if self.writer.send(event).is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Removes the unread events that `of` selects, so that the program never reads them. Returns their
    /// number.
    pub(crate) fn retract(&mut self, of: impl Fn(&[u8]) -> bool) -> u32 {
        let mut unread: VecDeque<Vec<u8>> = VecDeque::new();
        let mut buffer = [0; LONGEST];
        while let Some(length) = sys::take_message(self.reader.as_fd(), &mut buffer) {
            unread.push_back(buffer.get(..length).unwrap_or_default().to_vec());
        }
        unread.append(&mut self.backlog);
        let before = unread.len();
        unread.retain(|event| !of(event));
        let taken = before - unread.len();
        self.backlog = unread;
        self.flush();
        taken as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_events_can_be_taken_back() {
        let (mut channel, _program) = Channel::new(Kind::Completions, 0).unwrap();
        for event in [1u8, 2, 1, 3] {
            channel.push(&[event; 8]);
        }
        assert_eq!(channel.retract(|event| event[0] == 1), 2);
        let mut buffer = [0; LONGEST];
        assert_eq!(sys::take_message(channel.reader.as_fd(), &mut buffer), Some(8));
        assert_eq!(buffer[0], 2);
        assert_eq!(channel.retract(|_| true), 1);
        assert_eq!(sys::take_message(channel.reader.as_fd(), &mut buffer), None);
    }

    #[test]
    fn more_events_than_the_socket_holds_are_kept_in_order() {
        let (mut channel, _program) = Channel::new(Kind::Completions, 0).unwrap();
        for event in 0..5000u64 {
            channel.push(&event.to_ne_bytes());
        }
        let mut buffer = [0; LONGEST];
        for event in 0..5000u64 {
            channel.flush();
            assert_eq!(sys::take_message(channel.reader.as_fd(), &mut buffer), Some(8));
            assert_eq!(buffer[..8], event.to_ne_bytes());
        }
    }
}
