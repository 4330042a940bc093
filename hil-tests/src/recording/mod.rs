//! Recorded work requests of another driver, with their memory. The software device executes them again
//! (`vectors/FORMAT.md`).
//!
//! This module has no code of the recorded driver. It creates the objects as recorded, fills rings with the
//! recorded bytes, and compares the written memory with the results that were computed at recording time.

pub mod compare;
mod event;
pub mod replay;

pub use event::{Engine, Event};

#[cfg(test)]
mod tests {
    use super::replay::Tally;
    use super::*;
    use crate::vectors;
    use mlx5_mkey::inspect::{Body, DeviceContext, Requests, Severity, Style};
    use mlx5_mkey::mkey::XtsEngine;
    use mlx5_softdev::Faults;

    fn spdk() -> Vec<Event> {
        vectors::read_file(&vectors::folder().join(vectors::SPDK)).unwrap()
    }

    #[test]
    fn spdk_works() {
        let tally = replay::replay(&spdk(), Faults::default()).unwrap();
        assert_eq!(tally, Tally { devices: 2, requests: 5688, completions: 1016, results: 1152 });
    }

    /// The replay of SPDK's requests must fail on a device with one of these faults, because the requests
    /// rely on the rule that the fault breaks.
    #[test]
    fn a_broken_device_is_noticed() {
        let events = spdk();
        let none = Faults::default();
        for faults in [
            Faults { tweak_not_advancing: true, ..none },
            Faults { crc_seed_inverted: true, ..none },
            Faults { psv_not_reset_by_set_psv: true, ..none },
            Faults { dek256_as_128: true, ..none },
            Faults { keytag_ignored: true, ..none },
        ] {
            let outcome = replay::replay(&events, faults);
            assert!(outcome.is_err(), "{faults:?}: {outcome:?}");
        }
    }

    /// All recorded requests can be decoded completely. SPDK posts such requests to hardware, so no finding
    /// may be worse than a note.
    #[test]
    fn inspect_has_no_more_than_notes_for_spdk() {
        let (mut device, mut requests) = (DeviceContext::UNKNOWN, 0);
        for event in spdk() {
            let blocks = match event {
                Event::Device { engine: Engine::MultiBlock } => {
                    device.engine = Some(XtsEngine::MultiBlock);
                    continue;
                }
                Event::Device { engine: Engine::SingleBlock } => {
                    device.engine = Some(XtsEngine::SingleBlock);
                    continue;
                }
                Event::Ring { blocks, .. } => blocks.0,
                _ => continue,
            };
            for (_, request) in Requests::new(&blocks) {
                requests += 1;
                let page = request.pretty(device, Style::Plain);
                assert!(request.worst(&device) <= Some(Severity::Note), "{page}");
                assert!(!matches!(request.body(), Body::Unknown), "{page}");
                let words = request.summary(device).to_string();
                assert!(!words.contains("unreadable") && !words.contains("not decoded"), "{words}");
            }
        }
        assert_eq!(requests, 5688);
    }
}
