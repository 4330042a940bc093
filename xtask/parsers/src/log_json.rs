//! Reads requests and completion entries from a log with a JSON object in each line.

use super::digits::digits;
use serde_json::Value;

/// A request or completion entry of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// Where the request or entry is, such as `mlx5_0 qp 0x40 block 1` or `mlx5_0 cq 0x3`.
    pub place: String,
    /// Whether the bytes are a completion entry. Otherwise they are a request.
    pub completion: bool,
    /// The kind of the request's queue, in the words of `--queue` of `cargo xtask decode`. Empty if the log
    /// names none.
    pub queue: String,
    /// The bytes of the request or entry.
    pub bytes: Vec<u8>,
}

/// Reads the requests and entries from the lines that have a field `bytes`, in order.
///
/// # Errors
/// The line that is no JSON or lacks another field.
pub(crate) fn read(text: &str) -> Result<Vec<Logged>, String> {
    let mut logged = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &dyn std::fmt::Display| format!("line {}: {what}", index + 1);
        let value: Value = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        let number =
            |name: &str| value.get(name).and_then(Value::as_u64).ok_or_else(|| wrong(&format!("no {name}")));
        let Some(bytes) = value.get("bytes").and_then(Value::as_str) else { continue };
        let completion = value.get("kind").is_some_and(|kind| kind == "completion");
        let place = match completion {
            true => format!("mlx5_0 cq {:#x}", number("completion_queue")?),
            false => format!("mlx5_0 qp {:#x} block {}", number("queue_pair")?, number("block")?),
        };
        let bytes = digits(bytes).map_err(|what| wrong(&format!("no hex: {what}")))?;
        let queue = value.get("queue").and_then(Value::as_str).unwrap_or_default().to_owned();
        logged.push(Logged { place, completion, queue, bytes });
    }
    Ok(logged)
}
