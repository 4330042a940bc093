//! Failures on demand, for programs that run on the emulated mlx5 device.
//!
//! A [`Rule`] says which failure happens when. [`emulator::add`] hands rules to the emulator that serves this
//! process. Without the emulator, for example on hardware, the answer is [`emulator::Error::NotEmulated`].
//!
//! Each rule is also a word, which `mlx5-emulate --faults` and a file of faults take. [`Rule::parse`] reads a
//! word, and `Display` writes it. `EMULATOR.md` lists all words.
//!
//! ```
//! use mlx5_faults::{CallKind, Incident, Rule, Status, calls, emulator, requests};
//! use std::time::Duration;
//!
//! // The third request of queue pair 0x41 reports that the peer has refused the access.
//! let refused = requests(3).of(0x41).fail(Status::RemoteAccess);
//! assert_eq!(refused.to_string(), "request:0x41@3=REM_ACCESS_ERR");
//! assert_eq!(Rule::parse("request:0x41@3=REM_ACCESS_ERR"), Ok(refused));
//!
//! // All requests of the queue pair are slow.
//! let slow = requests(1).and_later().of(0x41).delay(Duration::from_millis(10));
//! assert_eq!(slow.to_string(), "request:0x41@1+=delay:10000");
//!
//! // The next protection domain cannot be allocated, and the port goes down.
//! let no_domain = calls(1).named(CallKind::AllocPd).fail(libc::ENOMEM);
//! let down = Rule::Now(Incident::PortDown);
//! match emulator::add(&[no_domain, down]) {
//!     Err(emulator::Error::NotEmulated) => println!("SKIPPED: no emulator"),
//!     other => other.unwrap(),
//! }
//! ```

pub mod emulator;
mod incident;
mod kinds;
mod rule;
mod status;
pub mod visits;
mod word;

pub use incident::{DeviceEvent, Ending, Incident, QueueEvent};
pub use rule::{CallKind, Rule, Subject, Unknown};
pub use status::Status;
pub use visits::{calls, completions, ends, receives, requests};
pub use word::{Fault, Place};
