//! The connection beside the queue pairs: a line of JSON for each message, over TCP.
//!
//! Over it both sides learn of each other's queue pairs, and notice at once that the other side is gone.

use super::Lost;
use super::link::Address;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// A message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The target's first: what it serves, and its queue pairs.
    Offer(Offer),
    /// The initiator's answer: who it is, its queue pairs, and how many reads are still to come.
    Accept { initiator: u64, queues: Vec<Address>, reads: u64 },
    /// The target is connected.
    Ready,
    /// Asks the target what it uses.
    Ask,
    /// What the target uses.
    Usage(super::process::Usage),
    /// The initiator is done.
    Bye,
    /// The target's answer: what it has corrupted and what it has found.
    Account(Account),
}

/// What a target serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// Blocks of the volume.
    pub(crate) blocks: u64,
    /// Most blocks of a command.
    pub(crate) max_blocks: u32,
    /// Most blocks of an mkey.
    pub(crate) blocks_per_mkey: u32,
    /// Commands of a queue pair at a time.
    pub(crate) depth: usize,
    /// Those of the target.
    pub(crate) queues: Vec<Address>,
}

/// What a target did to its volume, and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Corruptions that were asked for.
    pub(crate) asked: u64,
    /// The blocks that were corrupted.
    pub(crate) corrupted: Vec<u64>,
    /// Blocks that the target's device named although they were not corrupted.
    pub(crate) unexpected: Vec<u64>,
    /// Blocks of the file that begin as the initiator's data does: there must be none, they are encrypted.
    pub(crate) plaintext: u64,
}

/// One end of the connection.
pub(crate) struct Control {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Control {
    /// Takes a connection that has just been made.
    ///
    /// # Errors
    /// The other side is gone.
    pub(crate) fn new(stream: TcpStream) -> Result<Self, Lost> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Ends the connection, so that the other side notices.
    #[allow(dead_code, reason = "the target takes another connection where this one is gone")]
    pub(crate) fn close(&self) {
        // Fails where it has ended.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other side is gone.
    pub(crate) fn say(&mut self, line: &Line) -> Result<(), Lost> {
        let mut text = serde_json::to_vec(line).map_err(io::Error::from)?;
        text.push(b'\n');
        self.stream.set_nonblocking(false)?;
        Ok(self.stream.write_all(&text)?)
    }

    /// Returns a message that has come, if one has.
    ///
    /// # Errors
    /// The other side is gone, or says what makes no sense.
    pub(crate) fn heard(&mut self) -> Result<Option<Line>, Lost> {
        self.stream.set_nonblocking(true)?;
        match self.next() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            line => Ok(Some(line?)),
        }
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// As [`Control::heard`], and where none comes within `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Line, Lost> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(limit))?;
        Ok(self.next()?)
    }

    fn next(&mut self) -> io::Result<Line> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line)?);
            }
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the other side is gone")),
                count => self.received.extend_from_slice(bytes.get(..count).unwrap_or_default()),
            }
        }
    }
}
