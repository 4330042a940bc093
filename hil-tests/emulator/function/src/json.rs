//! Formats events of the device as lines of JSON.

use crate::words::{command, words};
use mlx5_mkey::inspect::DeviceContext;
use mlx5_record::{Line, Queue, completed, posted};
use mlx5_softdev::Seen;

/// Returns the line of an event: of a command, a posted request, a completion or a packet. The line of a
/// request has findings (faults in its bytes), which depend on the device's properties in `device`. Returns
/// `None` for messages between queue pairs.
pub fn json(seen: Seen<'_>, device: DeviceContext) -> Option<String> {
    match seen {
        Seen::Command { opcode, op_mod, status, syndrome } => {
            let name = command(opcode).map_or_else(|| format!("{opcode:#x}"), String::from);
            let line = Line::now("command").text("command", name).number("op_mod", op_mod);
            let line = line.number("status", status).number("syndrome", syndrome);
            Some(line.text("words", words(seen, device)?).end())
        }
        Seen::Request { queue, transport, block, bytes } => {
            let queue = Queue { number: queue, transport, device };
            Some(posted(Line::now("request"), &queue, block, bytes))
        }
        Seen::Completion { cqn, entry, cause } => Some(completed(Line::now("completion"), cqn, entry, cause)),
        Seen::Packet { queue, packets, bytes, .. } => {
            let line = Line::now("packet").number("send_queue", queue);
            let line = line.number("packets", packets).number("bytes", bytes);
            Some(line.text("words", words(seen, device)?).end())
        }
        Seen::Sent(_) | Seen::Received(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_softdev::Transport;

    #[test]
    fn each_event_is_a_line() {
        let told = |seen| json(seen, DeviceContext::UNKNOWN).unwrap();
        let line = told(Seen::Command { opcode: 0x500, op_mod: 0, status: 3, syndrome: 2 });
        assert!(
            line.contains(r#""kind":"command","command":"CREATE_QP","op_mod":0,"status":3,"syndrome":2"#)
        );
        let nop = [0, 0, 1, 0, 0, 0, 0x40, 1, 0, 0, 0, 8, 0, 0, 0, 0];
        let transport = Transport::ReliableConnection;
        let line = told(Seen::Request { queue: 0x40, transport, block: 1, bytes: &nop });
        assert!(line.contains(r#""kind":"request""#) && line.contains(r#""queue_pair":64"#), "{line}");
        let line = told(Seen::Completion { cqn: 3, entry: &[0; 64], cause: None });
        assert!(line.contains(r#""kind":"completion""#) && line.ends_with("}\n"), "{line}");
        let line = told(Seen::Packet { queue: 1, packets: 1, bytes: 60, header: &[0; 60] });
        assert!(line.contains(r#""kind":"packet","send_queue":1,"packets":1,"bytes":60"#), "{line}");
    }
}
