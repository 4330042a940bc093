//! Tests of the port: its GID table in calls and in files, and the events of its changes.

use crate::verbs::{Attribute, Context, DEVICE, End, call, in_a_namespace, message};
use crate::{DONE, REQUEST_FAILED};
use mlx5_testing::preload::{Side::Inside, preloaded, preloaded_with, prepared};
use std::fs::{self, File};
use std::net::Ipv6Addr;
use std::process::Command;
use std::sync::atomic::Ordering;

const PORT: &str = "/sys/class/infiniband/mlx5_0/ports/1";

/// Returns the interface's index, the version of RoCE (1 or 2) and the GID of an entry of the GID table.
fn entry(context: &Context, index: u32) -> Result<(u32, u32, Ipv6Addr), i32> {
    let mut entry = [0; 32];
    let mut attributes = [
        Attribute::Number(0, 1),
        Attribute::Number(1, index.into()),
        Attribute::In(2, &[0; 4]),
        Attribute::Out(3, &mut entry),
    ];
    call(context.0, 0, 6, &mut attributes)?;
    let word = |at: usize| u32::from_ne_bytes(entry[at..at + 4].try_into().unwrap());
    assert_eq!((word(16), word(20)), (index, 1), "index and port");
    Ok((word(28), word(24), Ipv6Addr::from(<[u8; 16]>::try_from(&entry[..16]).unwrap())))
}

#[test]
fn the_table_of_gids_is_the_same_in_calls_and_files() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let (mut table, mut count) = ([0; 256 * 32], [0; 8]);
    let mut attributes = [
        Attribute::Number(0, 32),
        Attribute::In(1, &[0; 4]),
        Attribute::Out(2, &mut table),
        Attribute::Out(3, &mut count),
    ];
    call(context.0, 0, 5, &mut attributes).unwrap();
    let count = u64::from_ne_bytes(count) as usize;
    assert!(count >= 2, "the default GIDs are always there");
    for index in 0..256 {
        let shown = fs::read_to_string(format!("{PORT}/gids/{index}")).unwrap();
        let kind = fs::read_to_string(format!("{PORT}/gid_attrs/types/{index}"));
        let name = fs::read_to_string(format!("{PORT}/gid_attrs/ndevs/{index}"));
        let Ok((interface, version, gid)) = entry(&context, index as u32) else {
            assert!(index >= count && kind.is_err() && name.is_err(), "{index}");
            assert_eq!(entry(&context, index as u32), Err(libc::ENODATA));
            assert_eq!(shown, "0000:0000:0000:0000:0000:0000:0000:0000\n");
            continue;
        };
        assert_eq!(shown.trim().parse(), Ok(gid));
        assert_eq!(kind.unwrap(), ["IB/RoCE v1\n", "RoCE v2\n"][version as usize - 1]);
        assert_eq!(version as usize, index % 2 + 1);
        assert_eq!(table[index * 32..][..16], gid.octets());
        assert_eq!((interface, name.unwrap().as_str()), (1, "lo\n"), "the only interface");
    }
    assert_eq!(entry(&context, 256), Err(libc::EINVAL));
    let mut narrow = [0; 32];
    let mut attributes = [
        Attribute::Number(0, 32),
        Attribute::In(1, &[0; 4]),
        Attribute::Out(2, &mut narrow),
        Attribute::Out(3, &mut [0; 8]),
    ];
    assert_eq!(call(context.0, 0, 5, &mut attributes), Err(libc::EINVAL), "no room");
    let files = ["state", "phys_state", "rate", "lid", "sm_lid", "lid_mask_count", "cap_mask"];
    assert!(files.iter().all(|file| File::open(format!("{PORT}/{file}")).is_ok()));
}

/// Returns a counter's value, as this process and another process see it.
fn counter(name: &str) -> (u64, u64) {
    let path = format!("{PORT}/{name}");
    let other = Command::new("cat").arg(&path).output().unwrap();
    let value = |shown: String| shown.trim().parse().unwrap();
    (value(fs::read_to_string(&path).unwrap()), value(String::from_utf8(other.stdout).unwrap()))
}

#[test]
fn counters_count_what_the_port_does() {
    let Inside = preloaded() else { return };
    let listed = |folder: &str| fs::read_dir(format!("{PORT}/{folder}")).unwrap().count();
    assert_eq!((listed("counters"), listed("hw_counters")), (21, 20));
    assert_eq!(fs::read_to_string(format!("{PORT}/hw_counters/lifespan")).unwrap(), "10\n");
    let mut end = End::loopback();
    assert_eq!(end.write_once(), DONE);
    end.write(8, end.data.0 + 512, end.key ^ 1);
    assert_eq!(end.poll(), (REQUEST_FAILED, 0x13));
    // The files of the counters are written with a short delay.
    while counter("hw_counters/req_remote_access_errors").0 == 0 {
        std::thread::yield_now();
    }
    for (name, value) in [
        ("counters/port_xmit_packets", 4),
        ("counters/unicast_rcv_packets", 4),
        ("counters/symbol_error", 0),
        ("hw_counters/rx_write_requests", 2),
        ("hw_counters/rx_read_requests", 0),
        ("hw_counters/req_cqe_error", 1),
        ("hw_counters/req_cqe_flush_error", 0),
        ("hw_counters/req_remote_access_errors", 1),
        ("hw_counters/resp_remote_access_errors", 1),
    ] {
        assert_eq!(counter(name), (value, value), "{name}");
    }
    let (words, _) = counter("counters/port_rcv_data");
    assert!((2 * (78 + 16 + 8) / 4..200).contains(&words), "{words}");
    let name = fs::read_dir("/sys/class/infiniband/mlx5_0/device/net").unwrap();
    let names: Vec<_> = name.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["lo"]);
}

/// While the peer has no receive request, the device repeats the request every millisecond. All repetitions
/// within the time of the peer's RNR timer (10.24 ms for code 20) count as one attempt.
#[test]
fn a_peer_without_a_receive_has_the_time_that_it_asks_for() {
    let Inside = preloaded() else { return };
    let mut end = End::new();
    let modify = |mask, state, change| {
        end.context.modify_with(end.qp, mask, state, end.qpn, &[change]).unwrap();
    };
    modify(0x39, 1, (104, 1));
    modify(0x12_9181, 2, (103, 20));
    modify(0x1_2e01, 3, (107, 2));
    end.post(9, 8, end.data.0 + 512, end.key);
    assert_eq!(end.poll(), (REQUEST_FAILED, 0x16));
    while counter("hw_counters/req_cqe_error").0 == 0 {
        std::thread::yield_now();
    }
    // The first request is followed by two attempts of 11 ms each, and each attempt has 11 repetitions.
    assert_eq!(counter("hw_counters/out_of_buffer").0, 1 + 2 * 11);
}

#[test]
fn an_interface_that_is_not_there_is_no_port() {
    let Inside = preloaded_with(&[("MLX5_UVERBS_NETDEV", "none")]) else { return };
    assert_eq!(crate::open(), Err(libc::EINVAL));
    assert!(File::open(PORT).is_err());
}

#[test]
fn two_devices_of_a_process_reach_each_other() {
    let Inside = preloaded_with(&[("MLX5_UVERBS_DEVICES", "2")]) else { return };
    let file = |device: usize, name: &str| {
        fs::read_to_string(format!("/sys/class/infiniband/mlx5_{device}/{name}")).unwrap()
    };
    for name in ["node_guid", "node_desc", "ports/1/gids/0"] {
        assert_ne!(file(0, name), file(1, name), "{name}");
    }
    let verbs =
        |device: usize| fs::read_to_string(format!("/sys/class/infiniband_verbs/uverbs{device}/ibdev"));
    assert_eq!([verbs(0).unwrap(), verbs(1).unwrap()], ["mlx5_0\n", "mlx5_1\n"]);
    let mut first = End::new();
    DEVICE.store(2, Ordering::Relaxed);
    assert_eq!(crate::open(), Err(libc::ENOENT), "there are only two");
    DEVICE.store(1, Ordering::Relaxed);
    let mut second = End::new();
    assert_ne!(entry(&first.context, 0).unwrap().2, entry(&second.context, 0).unwrap().2);
    first.connect(second.qpn);
    second.connect(first.qpn);
    first.data.write(0, b"of the first");
    first.write(12, second.data.0 + 512, second.key);
    assert_eq!(first.poll().0, DONE);
    assert_eq!(second.data.read(512, 12), b"of the first");
    second.data.write(0, b"of the other");
    second.write(12, first.data.0 + 1024, first.key);
    assert_eq!(second.poll().0, DONE);
    assert_eq!(first.data.read(1024, 12), b"of the other");
    first.write(12, second.data.0, second.key ^ 1);
    assert_eq!(first.poll(), (REQUEST_FAILED, 0x13), "each device has its own keys");
}

/// The path of a queue pair on an InfiniBand port names a LID, or a GID. A path to a port that does not exist
/// is accepted, and leads nowhere.
#[test]
fn an_infiniband_port_is_addressed_by_lid() {
    let prepare = |command: &mut Command, _: &std::path::Path| {
        command.env("MLX5_UVERBS_PORT", "infiniband").env_remove("MLX5_UVERBS_NETDEV");
    };
    let Inside = prepared(prepare) else { return };
    let file = |name: &str| fs::read_to_string(format!("{PORT}/{name}")).unwrap();
    assert_eq!([file("link_layer"), file("lid"), file("sm_lid")], ["InfiniBand\n", "0x1\n", "0x1\n"]);
    assert!(fs::read_dir("/sys/class/infiniband/mlx5_0/device/net").is_err());
    let own: Ipv6Addr = file("gids/0").trim().parse().unwrap();
    /// Offsets in `struct ib_uverbs_qp_dest`.
    const LID: usize = 20;
    const IS_GLOBAL: usize = 30;
    let by_lid = |lid| vec![(LID, lid), (IS_GLOBAL, 0)];
    let by_gid = |gid: Ipv6Addr| gid.octets().into_iter().enumerate().collect::<Vec<_>>();
    for (path, arrives) in [
        (by_lid(1), true),
        (by_lid(0), false),
        (by_lid(9), false),
        (by_gid(own), true),
        (by_gid("fe80::9".parse().unwrap()), false),
    ] {
        let mut end = End::new();
        end.context.modify(end.qp, 0x39, 1, 0).unwrap();
        end.context.modify_with(end.qp, 0x12_9181, 2, end.qpn, &path).unwrap();
        end.context.modify(end.qp, 0x1_2e01, 3, 0).unwrap();
        end.write(8, end.data.0 + 512, end.key);
        match arrives {
            true => assert_eq!(end.poll().0, DONE, "{path:?}"),
            // The syndrome 0x15 means that the transport has used up its retries.
            false => assert_eq!(end.poll(), (REQUEST_FAILED, 0x15), "{path:?}"),
        }
    }
}

/// A program may change to a directory of the device and use relative paths, as a shell does for patterns.
#[test]
fn a_program_may_be_in_a_directory_of_the_device() {
    let Inside = preloaded() else { return };
    std::env::set_current_dir("/sys/class/infiniband").unwrap();
    assert_eq!(fs::read_to_string("mlx5_0/ports/1/state").unwrap(), "4: ACTIVE\n");
    let shell = Command::new("sh").args(["-c", "cd /sys/class/infiniband && cat */ports/*/lid"]).output();
    assert_eq!(String::from_utf8(shell.unwrap().stdout).unwrap(), "0x0\n");
}

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).status().is_ok_and(|status| status.success())
}

#[test]
fn changes_of_addresses_and_links_are_events() {
    let Inside = preloaded() else { return };
    if !in_a_namespace() || !ip("link set lo up") {
        println!("SKIPPED: this user cannot make a network namespace, or has no program `ip`");
        return;
    }
    let context = Context::new();
    let events = call(context.0, 0x10, 0, &mut [Attribute::New(0)]).unwrap() as i32;
    let kind = || {
        let event = message(events);
        assert_eq!(event[..8], 1_u64.to_ne_bytes(), "the port");
        u32::from_ne_bytes(event[8..12].try_into().unwrap())
    };
    let has = |wanted: &str| {
        let wanted: Ipv6Addr = wanted.parse().unwrap();
        (0..256).any(|index| entry(&context, index).is_ok_and(|(.., gid)| gid == wanted))
    };
    assert!(!has("::ffff:192.0.2.9"));
    assert!(ip("addr add 192.0.2.9/32 dev lo"));
    assert_eq!(kind(), 18, "IBV_EVENT_GID_CHANGE");
    assert!(has("::ffff:192.0.2.9"));
    assert!(ip("link set lo down"));
    // The IPv6 addresses vanish with the link, so events of changed GIDs may arrive before the event of
    // the port.
    while kind() != 10 {}
    assert!(ip("link set lo up"));
    while kind() != 9 {}
}
