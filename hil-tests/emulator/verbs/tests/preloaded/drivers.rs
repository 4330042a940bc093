//! Tests of properties of queues on which drivers for hardware rely (DEVICE.md, "Queues").

use crate::verbs::{Context, End, IGNORE_OVERRUN};
use crate::{DONE, REQUEST_FAILED};
use mlx5_mkey::command::QpAccess;
use mlx5_mkey::types::Qpn;
use mlx5_testing::loopback::{encoded, loopback};
use mlx5_testing::preload::{Side::Inside, preloaded};
use std::fs;
use std::path::PathBuf;

/// Offset of the path's port number in a command that changes the state.
const PORT: usize = 0x18 + 0x18 + 0x25;

/// Returns the commands that connect a queue pair to itself. The path has no port.
fn without_port(qpn: u32, access: QpAccess) -> [Vec<u8>; 3] {
    let (initialise, receive, send) = loopback(Qpn::new(qpn).unwrap(), access);
    let mut receive = encoded(&receive);
    assert_eq!(std::mem::take(&mut receive[PORT]), 1);
    [encoded(&initialise), receive, encoded(&send)]
}

#[test]
fn commands_connect_a_verbs_queue_pair_to_itself() {
    let Inside = preloaded() else { return };
    for (access, outcome) in
        [(QpAccess::READ_WRITE, (DONE, 0)), (QpAccess::default(), (REQUEST_FAILED, 0x12))]
    {
        let mut end = End::new();
        assert_eq!(end.context.query(end.qp), (0, 1), "port 1 in RESET");
        for (step, input) in without_port(end.qpn, access).iter().enumerate() {
            assert_eq!(end.context.command(end.qp, input), Ok(()), "{step}");
        }
        assert_eq!(end.context.query(end.qp), (3, 1), "ready to send");
        end.data.write(0, b"loopback");
        end.write(8, end.data.0 + 512, end.key);
        let (opcode, syndrome) = end.poll();
        assert_eq!((opcode, if opcode == DONE { 0 } else { syndrome }), outcome, "{access:?}");
        assert_eq!(end.data.read(512, 8) == b"loopback", opcode == DONE);
    }
}

/// A command that changes the state to RTR also sets the peer's rights that its mask names, and only these.
/// UCX sets the rights in this way.
#[test]
fn rights_may_come_late() {
    let Inside = preloaded() else { return };
    for (mask, outcome) in [(0b1110, DONE), (0b0010, REQUEST_FAILED), (0, REQUEST_FAILED)] {
        let mut end = End::new();
        let [full, ..] = without_port(end.qpn, QpAccess::READ_WRITE);
        let [initialise, mut ready, send] = without_port(end.qpn, QpAccess::default());
        for (at, _) in full.iter().zip(&initialise).enumerate().filter(|(_, (a, b))| a != b) {
            ready[at] |= full[at];
        }
        // The byte at 0x13 is the lowest byte of the mask.
        ready[0x13] |= mask;
        for input in [&initialise, &ready, &send] {
            assert_eq!(end.context.command(end.qp, input), Ok(()));
        }
        end.write(8, end.data.0 + 512, end.key);
        assert_eq!(end.poll().0, outcome, "{mask:#06b}");
    }
}

#[test]
fn ports_are_bound_to_no_other() {
    let Inside = preloaded() else { return };
    let (mut input, mut output) = ([0; 16], [0xff; 16]);
    input[..2].copy_from_slice(&[0x08, 0x42]);
    assert_eq!(Context::new().other(&input, &mut output), Ok(()));
    assert_eq!((output[0], output[8 + 3] & 7), (0, 0), "status, lag_state");
}

#[test]
fn a_path_that_is_no_loopback_needs_a_port() {
    let Inside = preloaded() else { return };
    let end = End::new();
    let [initialise, mut ready, _] = without_port(end.qpn, QpAccess::READ_WRITE);
    assert_eq!(end.context.command(end.qp, &initialise), Ok(()));
    // This line clears `fl`, the first bit of the path, which forces loopback.
    ready[0x18 + 0x18] &= 0x7f;
    assert_eq!(end.context.command(end.qp, &ready), Err(libc::EREMOTEIO));
}

#[test]
fn a_queue_that_ignores_overruns_is_read_without_a_word() {
    let Inside = preloaded() else { return };
    let mut end = End::with(IGNORE_OVERRUN);
    end.silent = true;
    end.connect(end.qpn);
    // There are more rounds than the queue has entries.
    for round in 0..200_u64 {
        end.data.write(0, &round.to_ne_bytes());
        assert_eq!(end.write_once(), DONE, "{round}");
        assert_eq!(end.data.read(512, 8), round.to_ne_bytes());
    }
    assert_eq!(Context::new().cq(end.data.0, end.data.0 + 2048, 1 << 7), Err(libc::EINVAL));
}

/// DPDK looks for the device on the PCI bus. The PCI function must have a driver, and the same name as in
/// libibverbs.
#[test]
fn the_device_is_on_the_pci_bus() {
    let Inside = preloaded() else { return };
    let devices = PathBuf::from(std::env::var_os("SYSFS_PCI_DEVICES").unwrap());
    let tree = PathBuf::from(std::env::var_os("SYSFS_PATH").unwrap());
    assert!(devices.starts_with(&tree));
    let names: Vec<_> = fs::read_dir(&devices).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let [name] = names.as_slice() else { panic!("{names:?}") };
    let read = |name: &str| fs::read_to_string(devices.join(name)).unwrap();
    let slot = format!("PCI_SLOT_NAME={}\n", name.display());
    let [vendor, kind, event, resource] =
        ["vendor", "device", "uevent", "resource"].map(|file| read(&format!("{}/{file}", name.display())));
    assert_eq!((vendor.as_str(), kind.as_str()), ("0x15b3\n", "0x101d\n"));
    assert!(resource.lines().count() >= 6 && resource.lines().all(|line| line.split(' ').count() == 3));
    assert!(event.contains(&slot));
    let driver = fs::read_link(devices.join(name).join("driver")).unwrap();
    assert_eq!(driver.file_name().unwrap(), "mlx5_core");
    assert_eq!(event, fs::read_to_string(tree.join("class/infiniband/mlx5_0/device/uevent")).unwrap());
}

#[test]
fn the_function_s_own_port_has_roce() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let mut input = vec![0; 16];
    input[..2].copy_from_slice(&[0x07, 0x54]);
    let mut output = vec![0; 16 + 0x100];
    assert_eq!(context.other(&input, &mut output), Ok(()));
    assert_eq!((output[0], output[16 + 3] & 1), (0, 1), "status, roce_en");
    let guid = [0x02, 0x6d, 0x6c, 0xff, 0xfe, 0x78, 0x35, 0x01];
    assert_eq!((&output[16 + 0x28..16 + 0x30], &output[16 + 0x38..16 + 0x40]), (&guid[..], &guid[..]));
    // The device refuses the vport of another function (EREMOTEIO). The kernel itself refuses the command
    // 0x755, which it passes on to no device (EINVAL).
    input[8] = 0x80;
    assert_eq!(context.other(&input, &mut output), Err(libc::EREMOTEIO));
    input[..2].copy_from_slice(&[0x07, 0x55]);
    assert_eq!(context.other(&input, &mut output), Err(libc::EINVAL));
}
