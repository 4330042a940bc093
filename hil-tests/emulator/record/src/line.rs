//! Formats posted requests, completions, and requests of peers as lines of JSON.

use super::queue::Queue;
use mlx5_mkey::inspect::WorkRequest;
use mlx5_mkey::inspect::cqe::CompletionEntry;
use mlx5_mkey::wire::cqe::{CqeOpcode, OpcodeQpn};
use mlx5_softdev::{Cause, Change, Payload, Request};
use std::fmt::{Display, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A JSON object on one line, which `Line::end` closes.
#[derive(Clone, Debug)]
pub struct Line(String);

impl Line {
    /// Begins a line of this kind, with the current time and this process's ID.
    pub fn now(kind: &str) -> Self {
        Self::new(kind, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), std::process::id())
    }

    fn new(kind: &str, time: Duration, process: u32) -> Self {
        let (seconds, nanoseconds) = (time.as_secs(), time.subsec_nanos());
        Self(format!("{{\"time\":{seconds}.{nanoseconds:09},\"process\":{process},\"kind\":\"{kind}\""))
    }

    /// Appends a field with a number.
    #[must_use]
    pub fn number(mut self, name: &str, number: impl Into<u64>) -> Self {
        let number: u64 = number.into();
        // Writing to a string cannot fail.
        let _ = write!(self.0, ",\"{name}\":{number}");
        self
    }

    /// Appends a field with a text. The texts of `inspect` have no control characters, so only quotes and
    /// backslashes are escaped.
    #[must_use]
    pub fn text(mut self, name: &str, text: impl Display) -> Self {
        let text = text.to_string().replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(self.0, ",\"{name}\":\"{text}\"");
        self
    }

    /// Appends a field with bytes as hexadecimal digits.
    #[must_use]
    pub fn bytes(self, name: &str, bytes: &[u8]) -> Self {
        let mut hex = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            let _ = write!(hex, "{byte:02x}");
        }
        self.text(name, hex)
    }

    /// Appends the findings of `inspect` about a request (faults in its bytes), if there are any.
    #[must_use]
    fn findings(mut self, findings: &[String]) -> Self {
        let quoted: Vec<String> = findings.iter().map(|finding| format!("{finding:?}")).collect();
        if !quoted.is_empty() {
            let _ = write!(self.0, ",\"findings\":[{}]", quoted.join(","));
        }
        self
    }

    /// Closes the JSON object, and returns it as a line.
    #[must_use]
    pub fn end(self) -> String {
        self.0 + "}\n"
    }
}

/// Returns the line of a posted request, with the text of [`WorkRequest::summary`]. `block` is the number of
/// the request's first block.
pub fn posted(line: Line, queue: &Queue, block: u16, bytes: &[u8]) -> String {
    let line = line.number("queue_pair", queue.number).text("direction", "out").number("block", block);
    let line = match queue.kind_name() {
        "" => line,
        kind => line.text("queue", kind),
    };
    let mut findings = Vec::new();
    let line = match WorkRequest::parse(bytes) {
        Ok(request) => {
            let request = request.on_queue(queue.kind());
            request.findings(&queue.device, |finding| findings.push(finding.to_string()));
            line.text("words", request.summary(queue.device))
        }
        Err(error) => line.text("words", error),
    };
    line.findings(&findings).bytes("bytes", bytes).end()
}

/// Returns the line of a completion entry. `cause` is the cause of an error.
pub fn completed(line: Line, cqn: u32, entry: &[u8; 64], cause: Option<Cause>) -> String {
    let line = line.number("completion_queue", cqn);
    let Ok(entry) = CompletionEntry::parse(entry) else { return line.bytes("bytes", entry).end() };
    let line = match entry.cqe().opcode() {
        // A signature error names an mkey instead of a request.
        CqeOpcode::SIGNATURE_ERROR => line,
        opcode => {
            let own = matches!(opcode, CqeOpcode::REQUESTER | CqeOpcode::REQUESTER_ERROR);
            let qpn = OpcodeQpn::from_bits(entry.cqe().sop_qpn.get()).qpn();
            line.number("queue_pair", qpn).text("direction", if own { "out" } else { "in" })
        }
    };
    let line = line.text("words", entry.summary(None));
    let line = match cause {
        Some(cause) => line.text("cause", cause),
        None => line,
    };
    line.bytes("bytes", entry.bytes()).end()
}

/// Returns the line of a request that a peer sends from its queue pair `from` to queue pair `to`.
pub fn asked(line: Line, from: u32, to: u32, request: &Request) -> String {
    let line = line.number("queue_pair", to).text("direction", "in").number("peer", from);
    match request {
        Request::Send { data, payload, .. } => {
            let with = match payload {
                Payload::None => String::new(),
                Payload::Immediate(word) => format!(", immediate {word:#010x}"),
                Payload::Invalidate(key) => format!(", invalidates key {key:#010x}"),
            };
            line.text("words", format_args!("SEND, {} bytes{with}", data.len()))
        }
        Request::Write { rkey, address, data, immediate, .. } => {
            let with = immediate.map_or(String::new(), |word| format!(", immediate {word:#010x}"));
            let length = data.len();
            line.text(
                "words",
                format_args!("RDMA_WRITE, {length} bytes to {address:#x} key {rkey:#010x}{with}"),
            )
        }
        Request::Read { rkey, address, length } => {
            line.text("words", format_args!("RDMA_READ, {length} bytes from {address:#x} key {rkey:#010x}"))
        }
        Request::Atomic { rkey, address, width, change, masked } => {
            let kind = match change {
                Change::CompareSwap { .. } => "CS",
                Change::FetchAdd { .. } => "FA",
            };
            let (masks, bytes) = match masked {
                true => ("MASKED_", format!(", {} bytes", width.bytes())),
                false => ("", String::new()),
            };
            line.text("words", format_args!("ATOMIC_{masks}{kind}{bytes} at {address:#x} key {rkey:#010x}"))
        }
    }
    .end()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected lines are in a file that the test of `cargo xtask decode` also reads, so that both tests
    /// agree on the format.
    #[test]
    fn lines_are_as_decode_reads_them() {
        let nop = [0, 0, 1, 0, 0, 0, 0x40, 1, 0, 0, 0, 8, 0, 0, 0, 0];
        let write = [[0, 0, 2, 8, 0, 0, 0x41, 3, 0, 0, 0, 8, 0, 0, 0, 0], [0x11; 16], [0x22; 16]].concat();
        let line = |kind| Line::new(kind, Duration::new(1_700_000_000, 5_000), 77);
        let mut lines = [(0x40, 1, &nop[..]), (0x41, 2, &write)]
            .map(|(qpn, block, bytes)| posted(line("request"), &Queue::connected(qpn), block, bytes))
            .concat();
        let mut entry = [0; 64];
        entry[56..].copy_from_slice(&[8, 0, 0, 0x41, 0, 2, 0, 0]);
        lines += &completed(line("completion"), 3, &entry, None);
        let data = vec![1; 9].into();
        let request =
            Request::Write { rkey: 0x500, address: 0x1000, data, immediate: Some(7), solicited: false };
        lines += &asked(line("peer"), 0x1_0040, 0x41, &request);
        assert_eq!(lines, include_str!("../log.jsonl"));
    }

    #[test]
    fn text_is_quoted() {
        let line =
            Line::new("a", Duration::from_millis(1_005), 1).text("b", "\"\\").findings(&["c\"".into()]);
        assert_eq!(
            line.end(),
            "{\"time\":1.005000000,\"process\":1,\"kind\":\"a\",\"b\":\"\\\"\\\\\",\"findings\":[\"c\\\"\"]}\n"
        );
    }
}
