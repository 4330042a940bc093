//! Tests of planned faults of the function, and of its log as lines of JSON.

use crate::machine::sealed;
use mlx5_function::{Function, Model, Region, Rights, json};
use mlx5_mkey::inspect::DeviceContext;
use mlx5_plan::Plan;
use mlx5_softdev::DeviceProfile;
use rustix::io::{pread, pwrite};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Arc, Mutex};

const BASE: u64 = 0x1000_0000;
const ENABLE_HCA: u16 = 0x104;
const DISABLE_HCA: u16 = 0x105;
const QUERY_ISSI: u16 = 0x10a;

/// A host whose only memory is the command queue.
struct Host {
    function: Function,
    memory: OwnedFd,
}

impl Host {
    fn new(plan: &str) -> Self {
        let mut function = Function::new(Model::default(), DeviceProfile::default());
        function.plan(Plan::parse(plan).unwrap(), |_| {});
        let memory = sealed(4096);
        function.map(BASE, 4096, Rights { read: true, write: true }, Some((&memory, 0))).unwrap();
        let mut host = Self { function, memory };
        host.start();
        host
    }

    fn start(&mut self) {
        self.function.write(Region::Config, 4, &[6, 0]).unwrap();
        while self.register(0x1fc) >> 31 != 0 {}
        self.function.write(Region::Bar, 0x14, &(BASE as u32).to_be_bytes()).unwrap();
    }

    fn register(&mut self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.function.read(Region::Bar, at, &mut word).unwrap();
        u32::from_be_bytes(word)
    }

    /// Gives the device a command, and returns the status of the command. Returns `None` if the device does
    /// not complete the command.
    fn give(&mut self, opcode: u16) -> Option<u8> {
        let mut entry = [0; 64];
        (entry[0], entry[7], entry[0x3b], entry[0x3f]) = (7, 16, 16, 1);
        entry[0x10..0x12].copy_from_slice(&opcode.to_be_bytes());
        entry[0x3d] = entry.iter().fold(0xff, |sum, byte| sum ^ byte);
        pwrite(&self.memory, &entry, 0).unwrap();
        self.function.write(Region::Bar, 0x18, &1_u32.to_be_bytes()).unwrap();
        pread(&self.memory, &mut entry, 0).unwrap();
        (entry[0x3f] == 0).then_some(entry[0x20])
    }
}

#[test]
fn commands_fail_as_the_plan_says() {
    let mut host = Host::new("call@1=status:8,call@3=unheard,call@4=late");
    assert_eq!(host.give(ENABLE_HCA), Some(8), "not carried out");
    assert_eq!(host.give(ENABLE_HCA), Some(0));
    assert_eq!(host.give(DISABLE_HCA), Some(1), "reported as failed");
    assert_eq!(host.give(ENABLE_HCA), Some(0), "late; DISABLE_HCA was carried out");
}

#[test]
fn a_removed_device_reads_as_ones() {
    let mut host = Host::new("call@1=removed");
    host.give(ENABLE_HCA);
    assert_eq!((host.register(0x4), host.register(0x1010)), (u32::MAX, u32::MAX));
    let mut vendor = [0; 2];
    host.function.read(Region::Config, 0, &mut vendor).unwrap();
    assert_eq!(vendor, [0xff; 2]);
    assert_eq!(host.give(QUERY_ISSI), None);
    host.function.disconnect();
    host.function.read(Region::Config, 0, &mut vendor).unwrap();
    assert_eq!(vendor, [0xb3, 0x15], "the next client has a device");
}

/// After a failure, the device reports it in the health registers that Linux reads (`sensor_fw_synd_rfr` in
/// `health.c` of mlx5_core).
#[test]
fn a_device_that_has_failed_says_so_until_it_is_reset() {
    let mut host = Host::new("call@2=fatal");
    assert_eq!(host.give(ENABLE_HCA), Some(0));
    assert_eq!(host.register(0x23c), 0);
    host.give(QUERY_ISSI);
    assert_eq!((host.register(0x238) >> 31, host.register(0x23c) >> 16 & 0xff), (1, 1));
    assert_eq!(host.register(0x1010), host.register(0x1010), "the health counter stands still");
    assert_eq!(host.give(QUERY_ISSI), None);
    host.function.reset();
    host.start();
    assert_eq!((host.register(0x23c), host.give(ENABLE_HCA)), (0, Some(0)));
}

/// To reset a device that has failed, Linux writes the state of the driver's interface, and waits until the
/// state is "disabled" (`mlx5_error_sw_reset` in `health.c` of mlx5_core). A device that was removed stays
/// away.
#[test]
fn a_driver_resets_a_device_that_has_failed() {
    for (plan, recovers) in [("call@2=fatal", true), ("call@2=removed", false)] {
        let mut host = Host::new(plan);
        assert_eq!(host.give(ENABLE_HCA), Some(0));
        host.give(QUERY_ISSI);
        assert_eq!(host.register(0x1fc) >> 30 & 1, 1, "the reset is supported");
        let reset = |host: &mut Host, state: u32| {
            host.function.write(Region::Bar, 0x14, &(BASE as u32 | state << 8).to_be_bytes()).unwrap();
        };
        reset(&mut host, 0);
        assert_ne!(host.register(0x23c), 0, "no reset");
        reset(&mut host, 7);
        assert_eq!(host.register(0x14) >> 8 & 7, if recovers { 1 } else { 7 }, "disabled");
        if recovers {
            assert_eq!(host.register(0x23c), 0);
            host.start();
            assert_eq!((host.register(0x14) >> 8 & 7, host.give(ENABLE_HCA)), (0, Some(0)));
        }
    }
}

#[test]
fn each_command_is_a_line_of_json() {
    let mut host = Host::new("");
    let lines = Arc::new(Mutex::new(String::new()));
    let seen = lines.clone();
    host.function.device_mut().set_tap(move |event| {
        seen.lock().unwrap().extend(json(event, DeviceContext::UNKNOWN));
    });
    host.give(ENABLE_HCA);
    host.give(ENABLE_HCA);
    let lines = lines.lock().unwrap().clone();
    assert_eq!(lines.lines().count(), 2);
    assert!(lines.contains(r#""command":"ENABLE_HCA","op_mod":0,"status":0"#), "{lines}");
    assert!(lines.contains(r#""status":4"#), "{lines}");
}

#[test]
fn the_program_names_a_word_that_is_no_fault_here() {
    for (words, why) in [
        ("call@1=twice", "`call@1=twice` is no fault"),
        ("read@1=short", "faults at `read`"),
        ("message@3=lost", "faults at `message`"),
        ("seed=1,only=wire", "faults at `wire`"),
        ("now=port-down", "needs the stand-in"),
    ] {
        let program = env!("CARGO_BIN_EXE_mlx5-function");
        let output = Command::new(program).args(["--socket", "/x", "--faults", words]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(why), "{told}");
    }
}
