//! The board that is always there: the software device, in this process.

#![allow(unsafe_code)]

use super::{
    AnyDoorbell, Board, COMPLETIONS, Capabilities, DekSpec, HostMemory, MkeySpec, Port, RECEIVE_SLOTS,
    SEND_BLOCKS,
};
use mlx5_mkey::mkey::{Access, Mkey, MkeyAttributes, SignatureAttributes, XtsEngine};
use mlx5_mkey::queue::{
    CompletionQueue, Doorbell, ReceiveQueue, ReceiveQueueConfig, SendQueue, SendQueueConfig,
};
use mlx5_mkey::types::{DekId, Key, PsvIndex, Qpn};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::Cqe;
use mlx5_mkey::wire::data::DataSegment;
use mlx5_softdev as softdev;
use softdev::{Device, Faults, KeyMaterial, Memory, Peer, Personality, QpState, Retries};

/// Entries of a receive slot.
const ENTRIES_PER_SLOT: usize = 4;

/// The software device looks at doorbell records when it is told to run, so its doorbell does nothing.
struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: [u8; 8]) {}
}

/// The software device, in this process.
pub struct SoftBoard {
    device: Device<HostMemory>,
    pd: u32,
}

impl SoftBoard {
    /// Makes a device of the given kind.
    pub fn new(personality: Personality) -> Self {
        let mut device = Device::new(HostMemory::default(), personality);
        let pd = device.alloc_pd().expect("a new device has numbers left");
        Self { device, pd }
    }

    /// Breaks the device in some way.
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.device.set_faults(faults);
        self
    }

    /// Returns the device.
    pub fn device(&mut self) -> &mut Device<HostMemory> {
        &mut self.device
    }

    fn create_port(&mut self) -> Port {
        let memory = self.device.memory_mut();
        let entries = vec![DataSegment::default(); RECEIVE_SLOTS * ENTRIES_PER_SLOT];
        // SAFETY: rings and records go into the queues below and nowhere else; the device only reads records.
        let ((sq, sq_address), (rq, rq_address), (cq, cq_address)) = unsafe {
            (
                memory.share(vec![Wqebb::ZERO; SEND_BLOCKS].into_boxed_slice()),
                memory.share(entries.into_boxed_slice()),
                memory.share(vec![Cqe::UNWRITTEN; COMPLETIONS].into_boxed_slice()),
            )
        };
        // SAFETY: as above.
        let ((qp_record, qp_record_address), (cq_record, cq_record_address)) =
            unsafe { (memory.share_record(), memory.share_record()) };
        let cqn = self
            .device
            .create_cq(softdev::CqAttributes {
                ring: cq_address,
                log_entries: COMPLETIONS.ilog2() as u8,
                entry_bytes: 64,
                doorbell_record: cq_record_address,
            })
            .expect("create CQ");
        let qpn = self
            .device
            .create_qp(softdev::QpAttributes {
                pd: self.pd,
                sq: sq_address,
                log_sq_blocks: SEND_BLOCKS.ilog2() as u8,
                rq: rq_address,
                log_rq_slots: RECEIVE_SLOTS.ilog2() as u8,
                rq_stride: (ENTRIES_PER_SLOT * 16) as u16,
                doorbell_record: qp_record_address,
                send_cqn: cqn,
                recv_cqn: cqn,
                user_index: 0,
                drain_sigerr: false,
                rnr_retry: Retries::Infinite,
            })
            .expect("create QP");
        let qpn = Qpn::from_low_bits(qpn);
        let doorbell = AnyDoorbell(Box::new(Silent));
        let receive = ReceiveQueueConfig { qpn, entries_per_slot: ENTRIES_PER_SLOT as u32 };
        Port {
            send: SendQueue::new(SendQueueConfig::new(qpn), sq, qp_record, doorbell).expect("send queue"),
            receive: ReceiveQueue::new(receive, rq, qp_record).expect("receive queue"),
            completions: CompletionQueue::new(cq, cq_record).expect("completion queue"),
        }
    }
}

fn rights(access: Access) -> softdev::Access {
    softdev::Access {
        local_read: true,
        local_write: access.contains(Access::LOCAL_WRITE),
        remote_read: access.contains(Access::REMOTE_READ),
        remote_write: access.contains(Access::REMOTE_WRITE),
        remote_atomic: access.contains(Access::REMOTE_ATOMIC),
    }
}

impl Board for SoftBoard {
    fn name(&self) -> &'static str {
        "softdev"
    }

    fn capabilities(&self) -> Capabilities {
        let xts = match self.device.personality().xts {
            softdev::XtsEngine::MultiBlock => XtsEngine::MultiBlock,
            softdev::XtsEngine::SingleBlock => XtsEngine::SingleBlock,
        };
        Capabilities { xts: Some(xts), signature: true, drain: true }
    }

    fn alloc(&mut self, length: usize) -> u64 {
        self.device.memory_mut().alloc(length)
    }

    fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.device.memory().read(address, &mut bytes).expect("memory of this board");
        bytes
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.device.memory_mut().write(address, bytes).expect("memory of this board");
    }

    fn register(&mut self, address: u64, length: usize, access: Access) -> Key {
        self.device.register(self.pd, address, length as u64, rights(access)).expect("register")
    }

    fn create_mkey(&mut self, spec: MkeySpec) -> Mkey {
        let attributes = softdev::MkeyAttributes {
            signature: spec.signature,
            crypto: spec.crypto,
            remote_invalidate: spec.remote_invalidate,
            ..softdev::MkeyAttributes::new(self.pd, u32::from(spec.entries))
        };
        let key = self.device.create_mkey(attributes).expect("create mkey");
        let signature = spec.signature.then(|| {
            let psvs = self.device.create_psvs(self.pd, 2).expect("create PSVs");
            SignatureAttributes::new(PsvIndex::from_low_bits(psvs[0]), PsvIndex::from_low_bits(psvs[1]))
        });
        let crypto = if spec.crypto { self.capabilities().xts } else { None };
        let attributes = MkeyAttributes {
            signature,
            crypto,
            tag_update: true,
            ..MkeyAttributes::plain(key, spec.entries)
        };
        Mkey::new(attributes).expect("the device can change tags")
    }

    fn create_dek(&mut self, spec: DekSpec<'_>) -> DekId {
        let size = match spec.key.len() {
            32 => softdev::KeySize::Bits128,
            _ => softdev::KeySize::Bits256,
        };
        let mut bytes = spec.key.to_vec();
        bytes.extend(spec.keytag.iter().flatten());
        let attributes = softdev::DekAttributes {
            pd: self.pd,
            size,
            has_keytag: spec.keytag.is_some(),
            key: KeyMaterial::Plaintext(&bytes),
        };
        DekId::from_low_bits(self.device.create_dek(attributes).expect("create DEK"))
    }

    fn connect(&mut self) -> (Port, Port) {
        let (a, b) = (self.create_port(), self.create_port());
        let (qpn_a, qpn_b) = (a.send.qpn().get(), b.send.qpn().get());
        for (from, to) in [(qpn_a, qpn_b), (qpn_b, qpn_a)] {
            self.device.connect(from, Peer::Local(to)).expect("connect");
            self.device.activate(from).expect("activate");
        }
        (a, b)
    }

    fn settle(&mut self) {
        self.device.run();
    }

    fn drain_on_signature_error(&mut self, port: &Port) {
        self.device.set_drain_sigerr(port.send.qpn().get(), true).expect("queue pair of this board");
    }

    fn drained_at(&mut self, port: &Port) -> Option<u16> {
        let view = self.device.query(port.send.qpn().get()).expect("queue pair of this board");
        (view.state == QpState::SendQueueDrained).then_some(view.hw_sq_wqebb_counter)
    }

    fn resume(&mut self, port: &Port) {
        let qpn = port.send.qpn().get();
        self.device.modify(qpn, QpState::ReadyToSend).expect("drained queue pair of this board");
    }
}
