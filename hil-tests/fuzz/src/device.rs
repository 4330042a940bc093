//! Fuzz target for the software device, with arbitrary rings, contexts, BSFs and messages. The device must
//! not panic or hang, and must leave memory that no key maps unchanged.

use crate::input::Input;
use crate::memory::zeros_are_of_the_kernel;
use crate::values::{KEY, edge};
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::{
    Access, Change, CryptoMode, Datagram, DeviceProfile, Message, Payload, QpState, Request, Response, Width,
    XtsEngine,
};
use mlx5_testing::host::{
    self, A, AT, B, Config, Host, LOG_RQ, LOG_SQ, LW, Mkey, RQ_STRIDE, RR, RW, Sig, Wqe, XTS_KEY, pattern,
    segment,
};
use zerocopy::IntoBytes;

/// The most steps of a sequence.
const STEPS: usize = 40;

/// The number of bytes of the memory region that the keys map.
const REGION: usize = 8192;

/// An AES-XTS key of two 128-bit keys, and one of two 256-bit keys.
const XTS_KEYS: [&[u8]; 2] = [&XTS_KEY, &KEY];

/// A host with keys of all kinds, so that random requests often use a valid one.
struct World {
    host: Host,
    /// Address of the region, its key, and the mkeys.
    at: u64,
    region: Key,
    mkeys: Vec<Mkey>,
    deks: Vec<u32>,
    /// The address of memory that no key maps, which must stay unchanged.
    aside: u64,
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let profile = DeviceProfile {
            max_message_bytes: 1 << 16,
            max_ranges: 1 << 10,
            crypto: CryptoMode::Plaintext,
            xts: input.pick(&[
                XtsEngine::MultiBlock,
                XtsEngine::SingleBlock,
                XtsEngine::MultiBlockLittleEndian,
            ]),
            ..DeviceProfile::default()
        };
        let mut host = Host::with(profile, |_| {});
        host.device.set_copies(host.q[A].qpn, true).unwrap();
        let (at, region) = host.filled(&pattern(REGION, 3));
        let aside = host.alloc(4096);
        host.put(aside, &pattern(4096, 9));
        let deks: Vec<u32> = XTS_KEYS.iter().map(|key| host.dek(key)).collect();
        let kinds = [(true, true), (true, false), (false, true), (false, false)];
        let mkeys: Vec<Mkey> =
            kinds.iter().map(|(signature, crypto)| host.mkey(*signature, *crypto)).collect();
        for mkey in &mkeys {
            let list = Config::new(mkey).access(LW | RR | RW | AT).list(&[(at, 4160, region)]);
            let list = if mkey.signature { list.signature(Sig::t10(1, 2), Sig::None, 0xff) } else { list };
            let list = if mkey.crypto { list.crypto(0, 1, [0; 16], deks[0]) } else { list };
            host.configure(list);
        }
        Self { host, at, region, mkeys, deks, aside }
    }

    /// Chooses a word: a number that this device knows, or a random one.
    fn word(&self, input: &mut Input<'_>) -> u32 {
        match input.below(8) {
            0 | 1 => self.key(input).get(),
            2 => input.below(16),
            3 => self.at as u32,
            4 => input.pick(&[
                0x400,
                0x8000_0010,
                512,
                520,
                4096,
                4160,
                1 << 31,
                u32::MAX,
                0x7f00,
                0x8000_0000,
            ]),
            5 => (self.at >> 32) as u32,
            _ => edge(input) as u32,
        }
    }

    fn key(&self, input: &mut Input<'_>) -> Key {
        match input.below(6) {
            0 => self.region,
            1 => Key::from_raw(input.any()),
            _ => self.mkeys[input.below(self.mkeys.len() as u32) as usize].key,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0..3 => self.any_request(input),
            3 | 4 => self.configure(input),
            5 => self.raw(input),
            6 => {
                let segments: Vec<_> = (0..input.below(5)).map(|_| self.segment(input)).collect();
                let at = input.pick(&[A, B]);
                self.host.post_receive(at, &segments[..segments.len().min(usize::from(RQ_STRIDE) / 16)]);
            }
            7 => self.message(input),
            8 => self.change_state(input),
            9 => self.transfer(input),
            10 => self.host.ring(input.pick(&[A, B])),
            _ => {
                let queue = self.host.q[input.pick(&[A, B])];
                let _ = self.host.device.doorbell_at(queue.qpn, input.any());
                self.host.device.run();
            }
        }
    }

    fn segment(&self, input: &mut Input<'_>) -> mlx5_mkey::wire::data::DataSegment {
        let address = if input.any() { self.at + u64::from(input.any::<u16>()) } else { edge(input) };
        segment(address, edge(input) as u32, self.key(input))
    }

    /// Posts a request of random words after a valid control segment.
    fn any_request(&mut self, input: &mut Input<'_>) {
        let opcode = if input.one_in(8) {
            input.any()
        } else {
            input.pick(&[0x00, 0x01, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x20, 0x25])
        };
        let imm = self.word(input);
        let mut wqe = Wqe::new(Opcode(opcode), imm);
        // The device refuses most UMRs (opcode 0x25) with random flags, so this UMR gets valid ones.
        if opcode == 0x25 {
            wqe = wqe
                .with(&[0x80_u8, 0, 0, 0, 0, 4 * (imm as u8 & 1), 0, 4, 0, 0, 0, 0, 0x20, 0x3c, 0x72, 1][..]);
        }
        // An MMO request is a copy if its opcode modifier is 1. The device refuses other modifiers.
        if opcode == 0x2f {
            wqe.0[0] = 1;
        }
        for _ in 0..input.below(59) {
            wqe.0.extend(self.word(input).to_be_bytes());
        }
        wqe.0.resize(wqe.0.len().next_multiple_of(16).min(63 * 16), 0);
        let at = input.pick(&[A, B]);
        self.host.post(at, wqe);
    }

    /// Posts a valid configuration, with some changed bytes in mkey context, masks and BSFs.
    fn configure(&mut self, input: &mut Input<'_>) {
        let mkey = self.mkeys[input.below(4) as usize];
        let mut config = Config::new(&mkey).access(input.any());
        let entries: Vec<_> = (0..1 + input.below(4))
            .map(|_| (self.at + u64::from(input.any::<u8>()), 1 + edge(input) as u32 % 4200, self.key(input)))
            .collect();
        config = if input.one_in(3) {
            let streams: Vec<_> =
                entries.iter().map(|(at, bytes, key)| (*at, *bytes as u16, 7, *key)).collect();
            config.strided(edge(input) as u32, &streams)
        } else {
            config.list(&entries)
        };
        if mkey.signature {
            let pick = |input: &mut Input<'_>| match input.below(3) {
                0 => Sig::None,
                _ => Sig::t10(input.any(), input.any()),
            };
            config = config.signature(pick(input), pick(input), input.any());
            mutate(input, &mut config.signature);
        }
        if mkey.crypto {
            let dek = self.deks[input.below(2) as usize];
            config = config.crypto(input.below(4) as u8, input.below(8) as u8, [input.any(); 16], dek);
            mutate(input, &mut config.crypto);
        }
        if input.one_in(4) {
            config.mask ^= 1 << input.below(64);
            let context = config.context.as_mut_bytes();
            let at = input.below(context.len() as u32) as usize;
            context[at] = input.any();
        }
        self.host.post_config(A, config);
    }

    /// Writes random bytes to rings and doorbell records.
    fn raw(&mut self, input: &mut Input<'_>) {
        let queue = self.host.q[input.pick(&[A, B])];
        let (at, room) = match input.below(4) {
            0 => (queue.attributes.sq, 64 << LOG_SQ),
            1 => (queue.receives_at(), u32::from(RQ_STRIDE) << LOG_RQ),
            2 => (queue.attributes.doorbell_record, 8),
            _ => (input.pick(&[queue.send_cq.record, queue.recv_cq.record]), 8),
        };
        let length: u8 = input.any();
        let bytes = input.bytes(1 + usize::from(length));
        let offset = input.below(room);
        let fits = bytes.len().min((room - offset) as usize);
        self.host.put(at + u64::from(offset), &bytes[..fits]);
    }

    /// Moves data through a key, out of memory or into it.
    fn transfer(&mut self, input: &mut Input<'_>) {
        let (key, length, offset) = (self.key(input), 1 + edge(input) as u32 % 9000, edge(input) % 5000);
        let local = segment(offset, length, key);
        let plain = segment(self.at, length.min(REGION as u32), self.region);
        let (opcode, address, remote, local) = match input.below(4) {
            0 => (Opcode::RDMA_WRITE, offset, key, plain),
            1 => (Opcode::RDMA_READ, offset, key, plain),
            2 => (Opcode::RDMA_WRITE, self.at, self.region, local),
            _ => (Opcode::RDMA_READ, self.at, self.region, local),
        };
        self.host.post(A, host::rdma(opcode, 0, address, remote, &[local]));
        self.host.ring(A);
    }

    /// Delivers a message of another device to this one.
    fn message(&mut self, input: &mut Input<'_>) {
        let rkey = self.key(input).get();
        let address = if input.any() { self.at + u64::from(input.any::<u8>()) } else { edge(input) };
        let length = edge(input) as u32;
        let count: u8 = input.any();
        let data = input.bytes(count.into());
        let solicited = input.any();
        let request = match input.below(8) {
            0 => Request::Send { data: data.into(), payload: Payload::Invalidate(rkey), solicited },
            1 => Request::Send { data: data.into(), payload: Payload::Immediate(length), solicited },
            2 => Request::Write {
                rkey,
                address,
                data: data.into(),
                immediate: input.maybe(Input::any),
                solicited,
            },
            3 => Request::Read { rkey, address, length },
            4 => Request::compare_swap(rkey, address, input.any(), input.any()),
            5 => Request::fetch_add(rkey, address, input.any()),
            6 => {
                let change = match input.any() {
                    true => Change::CompareSwap {
                        compare: input.any(),
                        compare_mask: input.any(),
                        swap: input.any(),
                        swap_mask: input.any(),
                    },
                    false => Change::FetchAdd { add: input.any(), boundary: input.any() },
                };
                let width = if input.any() { Width::Four } else { Width::Eight };
                Request::Atomic { rkey, address, width, change, masked: true }
            }
            _ => Request::Send { data: data.into(), payload: Payload::None, solicited },
        };
        let datagram = input.maybe(|input| Datagram { qkey: input.below(2), route: [input.any(); 40] });
        let to = if input.one_in(8) { input.any() } else { self.host.q[input.pick(&[A, B])].qpn };
        let sequence = input.any::<u8>().into();
        self.host.device.deliver(match input.below(3) {
            0 => Message::Request { from: input.below(3), to, sequence, request },
            1 => Message::Unanswered { from: 1, to, datagram, request },
            _ => {
                let response = match input.below(5) {
                    0 => Response::Done,
                    1 => Response::Data(input.bytes(64)),
                    2 => Response::Original(input.any()),
                    3 => Response::ReceiverNotReady { timer: 20 },
                    _ => Response::Unreachable,
                };
                Message::Response { to, sequence, response }
            }
        });
        while self.host.device.take_message().is_some() {}
    }

    fn change_state(&mut self, input: &mut Input<'_>) {
        let queue = self.host.q[input.pick(&[A, B])];
        match input.below(8) {
            0 => self.host.device.fill(queue.send_cq.cqn),
            1 => {
                let _ = self.host.device.set_rights(queue.qpn, input.pick(&[Access::ALL, Access::LOCAL]));
            }
            2 => {
                let _ = self.host.device.destroy_mkey(self.key(input).index());
            }
            3 => self.host.recover(),
            _ => {
                let _ = self.host.device.modify(queue.qpn, input.pick(&QpState::ALL));
            }
        }
    }
}

/// Changes a byte of a BSF in some cases.
fn mutate<T: IntoBytes + zerocopy::FromBytes>(input: &mut Input<'_>, bsf: &mut Option<T>) {
    if let Some(bytes) = bsf.as_mut().map(IntoBytes::as_mut_bytes)
        && input.any()
    {
        let at = input.below(bytes.len() as u32) as usize;
        bytes[at] = input.any();
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    zeros_are_of_the_kernel();
    let mut world = World::new(&mut input);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    let host = &mut world.host;
    for at in [A, B] {
        let _ = host.device.doorbell(host.q[at].qpn);
    }
    for _ in 0..4 {
        host.device.run();
    }
    for at in [A, B] {
        let _ = host.device.modify(host.q[at].qpn, QpState::Error);
    }
    host.device.run();
    host.device.take_events();
    assert_eq!(host.get(world.aside, 4096), pattern(4096, 9), "memory under no key");
}
