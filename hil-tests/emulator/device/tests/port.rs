//! Tests of commands about the PCI function and its port: capabilities, registers and addresses (`fw.c`,
//! `vport.c` and `port.c` of Linux's mlx5_core).

use crate::commands::*;
use crate::common::*;
use mlx5_softdev::{PSID, Port};

#[test]
fn a_port_tells_what_it_is() {
    for port in [Port::Ethernet, Port::InfiniBand] {
        let mut setup = with_port(port);
        let is_ethernet = port == Port::Ethernet;
        let register = |number: u16, reads: u16| Words::new(0x805, 16 + 64).u16(6, reads).u16(0xa, number);
        let speed = told(&mut setup, register(0x5004, 1), 64);
        assert_eq!(speed[0x28..0x2c] == [0, 4, 0, 0x40], !is_ethernet);
        assert_eq!(speed[0x24..0x28] == [0, 0x10, 0, 0], is_ethernet);
        let mtu = told(&mut setup, register(0x5003, 1), 64);
        assert_eq!(u16::from_be_bytes([mtu[4], mtu[5]]), if is_ethernet { 9978 } else { 4096 });
        told(&mut setup, register(0x6001, 0).bytes(16, b"a node"), 64);
        assert_eq!(told(&mut setup, register(0x6001, 1), 64)[..7], *b"a node\0");
        told(&mut setup, register(0x7004, 0), 64);
        // The port is up, whatever state and MTU the host sets. Each virtual lane is the only one.
        told(&mut setup, register(0x5006, 0).u8(16 + 2, 2), 64);
        told(&mut setup, register(0x5003, 0), 64);
        assert_eq!(told(&mut setup, register(0x5006, 1), 64)[..4], [0, 0, 1, 1]);
        let lanes = told(&mut setup, register(0x500f, 1), 64);
        assert_eq!(lanes[..16], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
        // Linux reads the pause settings of the port (register 0x5007) together with its counters.
        assert_eq!(told(&mut setup, register(0x5007, 1), 64)[4..], [0; 60]);
        setup.refused(register(0x7777, 1), BAD_PARAMETER, "no such register");
        setup.refused(register(0x5004, 2), BAD_PARAMETER, "neither read nor write");
        assert_eq!(told(&mut setup, Words::new(0x764, 16), 16), GID);
        assert_eq!(told(&mut setup, Words::new(0x764, 16).u16(0xe, 1), 16), [0; 16]);
        assert_eq!(told(&mut setup, Words::new(0x765, 16), 4), [0, 0, 0xff, 0xff]);
        let context = told(&mut setup, Words::new(0x762, 16), 0x200);
        assert_eq!((context[0x22..0x24].to_vec(), &context[0x30..0x38]), (vec![0x50, 0x44], &GID[8..]));
    }
}

/// A management packet is answered with the status of an unknown attribute, and is otherwise as it was.
#[test]
fn a_management_packet_is_answered() {
    let mut setup = Setup::new();
    let mut packet = pattern(256, 3);
    packet[..4].copy_from_slice(&[1, 1, 1, 1]);
    let answer = told(&mut setup, Words::new(0x50d, 0x110).bytes(16, &packet), 256);
    packet[3..6].copy_from_slice(&[0x81, 0, 0x0c]);
    assert_eq!(answer, packet);
}

/// QUERY_ADAPTER returns the vendor's number of Mellanox, and the name of the board.
#[test]
fn an_adapter_has_a_vendor_and_a_board() {
    let adapter = reply(&mut Setup::new(), Words::new(0x101, 16), 0x100);
    assert_eq!(adapter[0x28..0x2c], [0, 0, 0x02, 0xc9]);
    assert_eq!(adapter[0x100..], *PSID.as_bytes());
    assert_eq!(adapter.iter().filter(|byte| **byte != 0).count(), 2 + PSID.len());
}

/// A host may report that it manages connections (`cap_mask1`, bit 16), and set nothing else.
#[test]
fn a_host_reports_that_it_manages_connections() {
    let mut setup = with_port(Port::InfiniBand);
    let report = |field: u32, mask: u32| Words::new(0x763, 0x210).u32(0x10, field).u32(0x54, mask);
    for (field, mask) in [(8, 1 << 16), (8, 0), (0, 0)] {
        setup.good(report(field, mask));
    }
    for (field, mask) in [(8, 1 << 17), (8, 1 << 16 | 1), (1, 1 << 16), (9, 0)] {
        setup.refused(report(field, mask), BAD_PARAMETER, "another property");
    }
}

/// An InfiniBand port is managed by commands (`ib_virt`). An Ethernet port has flow tables, offloads and
/// RoCE.
#[test]
fn capabilities_are_those_of_the_port() {
    let capabilities =
        |setup: &mut Setup, kind: u16| told(setup, Words::new(0x100, 16).u16(6, kind << 1 | 1), 0x1000);
    let mut infiniband = with_port(Port::InfiniBand);
    assert_eq!(capabilities(&mut infiniband, 0)[0x34] & 0x22, 0x20);
    let mut ethernet = with_port(Port::Ethernet);
    let general = capabilities(&mut ethernet, 0);
    assert_eq!((general[0x34] & 0x22, &general[0x52..0x54]), (0x02, &[4, 0][..]));
    // `csum_cap`, `roce_version` and `ft_support` are in structures of their own.
    let expected = [(1, [0x80, 0, 0]), (4, [0, 4, 0]), (7, [0, 0, 0x80])];
    for (kind, fields) in expected {
        let told = capabilities(&mut ethernet, kind);
        assert_eq!([told[0] & 0x80, told[0x13], told[0x40] & 0x80], fields, "{kind}");
    }
}

/// The MAC address consists of the first and the last three bytes of the GUID. The bit for a universal
/// address is inverted (EUI-64).
#[test]
fn an_ethernet_port_is_up_and_has_an_address() {
    let mut setup = with_port(Port::Ethernet);
    let mac = [0, 2, 3, 6, 7, 8];
    assert_eq!(setup.host.device.mac(), mac);
    let context = told(&mut setup, Words::new(0x754, 16), 0x100);
    assert_eq!((&context[0x30..0x38], &context[0xf6..0xfc]), (&GID[8..], &mac[..]));
    assert_eq!(reply(&mut setup, Words::new(0x750, 16), 0)[0xf], 0x11);
}
