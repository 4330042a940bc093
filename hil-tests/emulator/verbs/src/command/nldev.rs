//! Answers to requests for the list of RDMA devices, as iproute2's `rdma` and libibverbs send them
//! (`rdma/rdma_netlink.h`; kernel `drivers/infiniband/core/nldev.c`).

use crate::ground::netlink::{self, ACK, DUMP, MULTI, Message, attribute, attributes, u32_at};
use crate::ground::port::{Port, SUBNET_MANAGER, guid};
use crate::ground::sysfs;
use crate::state::port::NUMBER;

/// The part of a message's type that names the client `RDMA_NL_NLDEV`.
const CLIENT: u16 = 5 << 10;

/// Commands of requests (`enum rdma_nldev_command`).
const GET: u16 = 1;
const PORT_GET: u16 = 5;
const SYSTEM_GET: u16 = 6;
const RESOURCES_GET: u16 = 9;
const CHARACTER_DEVICE_GET: u16 = 15;
const STATISTICS_GET: u16 = 17;

/// Types of attributes (`enum rdma_nldev_attr`).
mod kind {
    pub(super) const DEVICE_INDEX: u16 = 1;
    pub(super) const DEVICE_NAME: u16 = 2;
    pub(super) const PORT_INDEX: u16 = 3;
    pub(super) const CAPABILITIES: u16 = 4;
    pub(super) const FIRMWARE: u16 = 5;
    pub(super) const NODE_GUID: u16 = 6;
    pub(super) const SYSTEM_GUID: u16 = 7;
    pub(super) const SUBNET_PREFIX: u16 = 8;
    pub(super) const LID: u16 = 9;
    pub(super) const SUBNET_MANAGER_LID: u16 = 10;
    pub(super) const LID_MASK: u16 = 11;
    pub(super) const PORT_STATE: u16 = 12;
    pub(super) const PHYSICAL_STATE: u16 = 13;
    pub(super) const NODE_TYPE: u16 = 14;
    pub(super) const INTERFACE_INDEX: u16 = 50;
    pub(super) const INTERFACE_NAME: u16 = 51;
    pub(super) const NAMESPACE_MODE: u16 = 66;
    pub(super) const PROTOCOL: u16 = 67;
    pub(super) const CHARACTER_DEVICE_TYPE: u16 = 69;
    pub(super) const CHARACTER_DEVICE_NAME: u16 = 70;
    pub(super) const CHARACTER_DEVICE_ABI: u16 = 71;
    pub(super) const CHARACTER_DEVICE: u16 = 72;
    pub(super) const DRIVER: u16 = 73;
    pub(super) const STATISTICS_OF_RESOURCES: u16 = 75;
    pub(super) const COUNTERS: u16 = 80;
    pub(super) const COUNTER: u16 = 81;
    pub(super) const COUNTER_NAME: u16 = 82;
    pub(super) const COUNTER_VALUE: u16 = 83;
    /// The flag of an attribute that consists of attributes (`NLA_F_NESTED`).
    pub(super) const NESTED: u16 = 1 << 15;
}

/// The device's node type (`RDMA_NODE_IB_CA`).
const CHANNEL_ADAPTER: u8 = 1;
/// The mode in which all network namespaces share the devices.
const SHARED: u8 = 1;
/// The number of the mlx5 driver (`RDMA_DRIVER_MLX5`).
const MLX5: u64 = 1;
/// The kernel's ABI version of uverbs.
const ABI: u64 = 1;

/// The function that returns the names and values of a device's hardware counters.
pub(crate) type Counters<'a> = &'a dyn Fn(usize) -> Vec<(&'static str, u64)>;

/// Returns the messages that answer a request of the netlink socket `socket`.
pub(crate) fn answers(request: &[u8], socket: u32, ports: &[Port], counters: Counters<'_>) -> Vec<Vec<u8>> {
    netlink::messages(request)
        .filter(|message| message.flags & netlink::REQUEST != 0)
        .flat_map(|message| answer(&message, socket, ports, counters))
        .collect()
}

fn answer(message: &Message<'_>, socket: u32, ports: &[Port], counters: Counters<'_>) -> Vec<Vec<u8>> {
    let is_dump = message.flags & DUMP == DUMP;
    let to = [message.sequence, socket];
    let built = |kind, flags, body: &[u8]| {
        let mut out = Vec::new();
        netlink::message(&mut out, kind, flags, to, |out| out.extend_from_slice(body));
        out
    };
    let ended = |error: i32| {
        // The answer repeats the header of the request, with the length of the header alone.
        let mut body = [error.cast_unsigned(), netlink::HEADER as u32].map(u32::to_ne_bytes).concat();
        body.extend([message.kind, message.flags].map(u16::to_ne_bytes).as_flattened());
        body.extend([message.sequence, socket].map(u32::to_ne_bytes).as_flattened());
        built(netlink::ERROR, 0, &body)
    };
    let bodies = match asked(message, is_dump, ports, counters) {
        Ok(bodies) => bodies,
        Err(errno) => return vec![ended(-errno)],
    };
    let flags = if is_dump { MULTI } else { 0 };
    let mut all: Vec<_> = bodies.iter().map(|body| built(message.kind, flags, body)).collect();
    if is_dump {
        all.push(built(netlink::DONE, MULTI, &[0; 4]));
    } else if message.flags & ACK != 0 {
        all.push(ended(0));
    }
    all
}

/// Returns the attributes of the answers to a request, or the errno of a refusal.
fn asked(
    message: &Message<'_>,
    is_dump: bool,
    ports: &[Port],
    counters: Counters<'_>,
) -> Result<Vec<Vec<u8>>, i32> {
    let has = |wanted| attributes(message.body).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let number = |wanted| has(wanted).and_then(|value| u32_at(value, 0));
    let wanted = number(kind::DEVICE_INDEX).map(|index| index as usize);
    let found = wanted.and_then(|index| Some((index, ports.get(index)?)));
    if message.kind & !0x3ff != CLIENT {
        return Err(libc::EINVAL);
    }
    match message.kind & 0x3ff {
        GET if is_dump => {
            let all = ports.iter().enumerate();
            Ok(all.map(|(index, port)| filled(|out| device(index, port, out))).collect())
        }
        command @ (GET | PORT_GET) => match found {
            Some((index, port)) if command == GET => Ok(vec![filled(|out| device(index, port, out))]),
            Some((index, port)) if is_dump || number(kind::PORT_INDEX) == Some(NUMBER.into()) => {
                Ok(vec![filled(|out| port_of(index, port, out))])
            }
            _ => Err(if wanted.is_some() { libc::ENODEV } else { libc::EINVAL }),
        },
        SYSTEM_GET => Ok(vec![filled(|out| attribute(out, kind::NAMESPACE_MODE, &[SHARED]))]),
        CHARACTER_DEVICE_GET => match (has(kind::CHARACTER_DEVICE_TYPE), found) {
            (Some([b'u', b'v', b'e', b'r', b'b', b's', ..]), Some((index, _))) => {
                Ok(vec![filled(|out| character_device(index, out))])
            }
            (Some(_), _) => Err(libc::ENODEV),
            (None, _) => Err(libc::EINVAL),
        },
        // The stand-in has no counters of single queue pairs.
        STATISTICS_GET if !is_dump && has(kind::STATISTICS_OF_RESOURCES).is_none() => match found {
            Some((index, _)) if number(kind::PORT_INDEX) == Some(NUMBER.into()) => {
                Ok(vec![filled(|out| statistics(index, &counters(index), out))])
            }
            _ => Err(libc::EINVAL),
        },
        // The list of objects is empty, because only the kernel could know the objects of all processes.
        RESOURCES_GET if is_dump => Ok(Vec::new()),
        _ => Err(libc::EOPNOTSUPP),
    }
}

fn string(out: &mut Vec<u8>, kind: u16, value: &str) {
    attribute(out, kind, &[value.as_bytes(), &[0]].concat());
}

/// Returns the attributes that a function appends.
fn filled(append: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out);
    out
}

fn handle(index: usize, out: &mut Vec<u8>) {
    attribute(out, kind::DEVICE_INDEX, &(index as u32).to_ne_bytes());
    string(out, kind::DEVICE_NAME, &sysfs::device(index));
}

fn device(index: usize, port: &Port, out: &mut Vec<u8>) {
    handle(index, out);
    // In a device's answer, this attribute is the number of ports.
    attribute(out, kind::PORT_INDEX, &u32::from(NUMBER).to_ne_bytes());
    attribute(out, kind::CAPABILITIES, &0_u64.to_ne_bytes());
    string(out, kind::FIRMWARE, sysfs::FIRMWARE);
    let guid = u64::from_be_bytes(guid(index)).to_ne_bytes();
    attribute(out, kind::NODE_GUID, &guid);
    attribute(out, kind::SYSTEM_GUID, &guid);
    attribute(out, kind::NODE_TYPE, &[CHANNEL_ADAPTER]);
    string(out, kind::PROTOCOL, if port.is_infiniband() { "ib" } else { "roce" });
}

fn port_of(index: usize, port: &Port, out: &mut Vec<u8>) {
    handle(index, out);
    attribute(out, kind::PORT_INDEX, &u32::from(NUMBER).to_ne_bytes());
    if port.is_infiniband() {
        let [prefix @ .., _, _, _, _, _, _, _, _] = port.default_gid();
        attribute(out, kind::SUBNET_PREFIX, &u64::from_be_bytes(prefix).to_ne_bytes());
        attribute(out, kind::LID, &u32::from(port.lid).to_ne_bytes());
        attribute(out, kind::SUBNET_MANAGER_LID, &u32::from(SUBNET_MANAGER).to_ne_bytes());
        attribute(out, kind::LID_MASK, &[0]);
    }
    let (state, physical) = port.states();
    attribute(out, kind::PORT_STATE, &[state]);
    attribute(out, kind::PHYSICAL_STATE, &[physical]);
    if port.interface.index != 0 {
        attribute(out, kind::INTERFACE_INDEX, &port.interface.index.to_ne_bytes());
        string(out, kind::INTERFACE_NAME, &port.interface.name);
    }
}

fn statistics(index: usize, counters: &[(&str, u64)], out: &mut Vec<u8>) {
    handle(index, out);
    attribute(out, kind::PORT_INDEX, &u32::from(NUMBER).to_ne_bytes());
    let mut all = Vec::new();
    for (name, value) in counters {
        let mut one = Vec::new();
        string(&mut one, kind::COUNTER_NAME, name);
        attribute(&mut one, kind::COUNTER_VALUE, &value.to_ne_bytes());
        attribute(&mut all, kind::COUNTER | kind::NESTED, &one);
    }
    attribute(out, kind::COUNTERS | kind::NESTED, &all);
}

fn character_device(index: usize, out: &mut Vec<u8>) {
    attribute(out, kind::CHARACTER_DEVICE, &sysfs::STAND_IN_NUMBERS.to_ne_bytes());
    attribute(out, kind::CHARACTER_DEVICE_ABI, &ABI.to_ne_bytes());
    string(out, kind::CHARACTER_DEVICE_NAME, &format!("uverbs{index}"));
    attribute(out, kind::DEVICE_INDEX, &(index as u32).to_ne_bytes());
    attribute(out, kind::DRIVER, &MLX5.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(command: u16, flags: u16, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<(u16, Vec<u8>)> {
        let mut request = Vec::new();
        netlink::message(&mut request, CLIENT | command, netlink::REQUEST | flags, [7, 0], fill);
        let all: Vec<_> = answers(&request, 9, &[Port::alone()], &|_| vec![("one", 5), ("two", 6)]).concat();
        let parsed = netlink::messages(&all).map(|message| {
            assert_eq!(message.sequence, 7);
            (message.kind, message.body.to_vec())
        });
        parsed.collect()
    }

    fn error(answer: &[(u16, Vec<u8>)]) -> i32 {
        let [(netlink::ERROR, body)] = answer else { panic!("{answer:?}") };
        -i32::from_ne_bytes(body[..4].try_into().unwrap())
    }

    #[test]
    fn the_device_is_in_the_list() {
        let all = ask(GET, DUMP, |_| ());
        assert_eq!(all.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [CLIENT | GET, netlink::DONE]);
        let found: Vec<_> = attributes(&all[0].1).collect();
        assert!(
            found.contains(&(kind::DEVICE_NAME, b"mlx5_0\0")) && found.contains(&(kind::NODE_TYPE, &[1]))
        );
        let one = |index: u32| ask(GET, 0, |out| attribute(out, kind::DEVICE_INDEX, &index.to_ne_bytes()));
        assert_eq!(one(0)[0].1, all[0].1);
        assert_eq!(error(&one(1)), libc::ENODEV);
        assert_eq!(error(&ask(GET, 0, |_| ())), libc::EINVAL);
        assert_eq!(error(&ask(2, ACK, |_| ())), libc::EOPNOTSUPP, "no name can be set");
    }

    #[test]
    fn a_port_has_a_state() {
        let port = |index: u32| {
            ask(PORT_GET, ACK, |out| {
                attribute(out, kind::DEVICE_INDEX, &0_u32.to_ne_bytes());
                attribute(out, kind::PORT_INDEX, &index.to_ne_bytes());
            })
        };
        let answer = port(1);
        assert_eq!(answer.len(), 2);
        assert!(attributes(&answer[0].1).any(|found| found == (kind::PORT_STATE, &[4])));
        assert_eq!((answer[1].0, &answer[1].1[..4]), (netlink::ERROR, &[0; 4][..]));
        assert_eq!(error(&port(2)), libc::ENODEV);
    }

    #[test]
    fn a_port_has_counters() {
        let statistics = |port: u32, flags| {
            ask(STATISTICS_GET, flags, |out| {
                attribute(out, kind::DEVICE_INDEX, &0_u32.to_ne_bytes());
                attribute(out, kind::PORT_INDEX, &port.to_ne_bytes());
            })
        };
        let answer = statistics(1, 0);
        let of = |bytes: &[u8], wanted| -> Vec<Vec<u8>> {
            attributes(bytes).filter(|(kind, _)| *kind == wanted).map(|(_, value)| value.to_vec()).collect()
        };
        let all = of(&answer[0].1, kind::COUNTERS);
        let counters = of(&all[0], kind::COUNTER);
        let names: Vec<_> = counters.iter().flat_map(|one| of(one, kind::COUNTER_NAME)).collect();
        let values: Vec<_> = counters.iter().flat_map(|one| of(one, kind::COUNTER_VALUE)).collect();
        assert_eq!(
            (names, values),
            (
                vec![b"one\0".to_vec(), b"two\0".to_vec()],
                [5_u64, 6].map(|value| value.to_ne_bytes().to_vec()).into()
            )
        );
        assert_eq!(error(&statistics(2, 0)), libc::EINVAL);
        assert_eq!(error(&statistics(1, DUMP)), libc::EOPNOTSUPP);
    }

    #[test]
    fn nonsense_is_answered_or_dropped() {
        for length in 0..64 {
            for byte in [0, 1, 0x14, 0xff] {
                let _ = answers(&vec![byte; length], 1, &[Port::alone()], &|_| Vec::new());
            }
        }
        for command in 0..64 {
            let _ = ask(command, DUMP, |out| out.extend_from_slice(&[0xff; 7]));
        }
    }
}
