//! The control connection between target and initiator, beside the queue pairs: lines of JSON over TCP.
//!
//! The connection carries the addresses of the queue pairs, and shows at once if the other side ends.

use super::Lost;
use super::link::Address;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// A message on the control connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The target's first message: the size of its volume, limits of commands, and the addresses of its queue
    /// pairs.
    Offer(Offer),
    /// The initiator's answer: its identity, the addresses of its queue pairs, and the expected number of
    /// reads.
    Accept { initiator: u64, queues: Vec<Address>, reads: u64 },
    /// The target's answer to `Accept`: its queue pairs are connected.
    Ready,
    /// Asks the target for its resource usage.
    Ask,
    /// The resource usage of the target.
    Usage(super::process::Usage),
    /// Asks the target to complete the rotations of its keys.
    Settle,
    /// The target's answer to `Settle`: no block has an old key.
    Settled,
    /// The initiator is done, and asks for the target's account.
    Bye,
    /// The target's answer to `Bye`: its account of the run.
    Account(Account),
}

/// The contents of [`Line::Offer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// Blocks of the volume.
    pub(crate) blocks: u64,
    /// The most blocks of a command.
    pub(crate) max_blocks: u32,
    /// The most blocks that one of the target's mkeys maps.
    pub(crate) blocks_per_mkey: u32,
    /// The most commands that may be in progress on a queue pair.
    pub(crate) depth: usize,
    /// The addresses of the target's queue pairs.
    pub(crate) queues: Vec<Address>,
}

/// The target's account of a run: corruptions, unexpected reports, and plaintext in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Number of corruptions that the target was started with (`--corrupt`).
    pub(crate) asked: u64,
    /// The corrupted blocks.
    pub(crate) corrupted: Vec<u64>,
    /// Blocks that the target's device reported although they were not corrupted.
    pub(crate) unexpected: Vec<u64>,
    /// Blocks of the file that begin like the initiator's plaintext. The number must be 0, because the file
    /// is encrypted.
    pub(crate) plaintext: u64,
    pub(crate) rotations: Rotations,
}

/// Statistics of the key rotations of a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rotations {
    /// Number of keys that were replaced and destroyed.
    pub(crate) done: u64,
    /// Number of blocks that the target re-encrypted with the next key.
    pub(crate) moved: u64,
    /// Number of reads whose blocks had two keys.
    pub(crate) mixed: u64,
}

/// The largest message in bytes, with its line end. It is enough for an account that lists 800,000 blocks.
const LONGEST: usize = 1 << 24;

/// One end of the control connection.
pub(crate) struct Control {
    stream: BufReader<TcpStream>,
    received: Vec<u8>,
}

impl Control {
    /// Wraps a new TCP connection as the control connection.
    ///
    /// # Errors
    /// If the other side is gone.
    pub(crate) fn new(stream: TcpStream) -> Result<Self, Lost> {
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), received: Vec::new() })
    }

    /// Closes the control connection, so that the other side notices.
    #[allow(dead_code, reason = "the target takes another connection where this one is gone")]
    pub(crate) fn close(&self) {
        // The call fails if the connection is closed already, which does no harm.
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the other side is gone.
    pub(crate) fn say(&mut self, line: &Line) -> Result<(), Lost> {
        let mut text = serde_json::to_vec(line).map_err(io::Error::from)?;
        text.push(b'\n');
        let mut stream = self.stream.get_ref();
        stream.set_nonblocking(false)?;
        Ok(stream.write_all(&text)?)
    }

    /// Returns the next message if a complete one has arrived. Otherwise returns `None` at once.
    ///
    /// # Errors
    /// If the other side is gone, or sends an invalid message.
    pub(crate) fn heard(&mut self) -> Result<Option<Line>, Lost> {
        self.stream.get_ref().set_nonblocking(true)?;
        match self.next() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            line => Ok(Some(line?)),
        }
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// As [`Control::heard`], or if no message arrives within `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Line, Lost> {
        self.stream.get_ref().set_nonblocking(false)?;
        self.stream.get_ref().set_read_timeout(Some(limit))?;
        Ok(self.next()?)
    }

    /// Returns the next message. If the stream blocks in the middle of a message, its beginning stays in
    /// `received`.
    fn next(&mut self) -> io::Result<Line> {
        let room = LONGEST.saturating_sub(self.received.len());
        self.stream.by_ref().take(room as u64).read_until(b'\n', &mut self.received)?;
        if self.received.ends_with(b"\n") {
            let line = serde_json::from_slice(&self.received);
            self.received.clear();
            return Ok(line?);
        }
        if self.received.len() >= LONGEST {
            let why = format!("a message does not end within {LONGEST} bytes");
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        Err(io::Error::new(ErrorKind::UnexpectedEof, "the other side is gone"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Returns a control connection, and its other end as a plain stream.
    fn connected() -> (Control, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Control::new(listener.accept().unwrap().0).unwrap(), other)
    }

    #[test]
    fn a_message_that_does_not_end_is_refused() {
        let (mut control, mut other) = connected();
        // Because of the limit `LONGEST`, the reader stops and the error names it. Without the limit, it
        // would read on to the end of the stream. The result of the writer is ignored, because writing fails
        // when the reader stops.
        let sender = thread::spawn(move || drop(other.write_all(&vec![b'['; LONGEST + 1])));
        let why = control.next().expect_err("no message");
        assert_eq!(why.to_string(), format!("a message does not end within {LONGEST} bytes"));
        drop(control);
        sender.join().unwrap();
    }

    #[test]
    fn a_message_comes_whole_however_it_is_cut() {
        let (mut control, mut other) = connected();
        for byte in b"\"Ready\"\n" {
            assert!(control.heard().unwrap().is_none());
            other.write_all(&[*byte]).unwrap();
        }
        assert!(matches!(control.wait(Duration::from_secs(10)), Ok(Line::Ready)));
        other.write_all(b"\"Ask\"\n\"Bye\"\nno message\n\"By").unwrap();
        assert!(matches!(control.wait(Duration::from_secs(10)), Ok(Line::Ask)));
        assert!(matches!(control.heard(), Ok(Some(Line::Bye))));
        assert!(control.heard().is_err(), "what is no message is none");
        drop(other);
        assert!(control.wait(Duration::from_secs(10)).is_err(), "half a message is none");
    }
}
