//! A board with libmlx5: a real device, or the software device behind the stand-in for the kernel.

#![allow(unsafe_code)]

use super::{
    AnyDoorbell, Board, COMPLETIONS, Capabilities, DekSpec, MkeySpec, Port, RECEIVE_SLOTS, SEND_BLOCKS,
};
use mlx5_mkey::command::{DekKey, MkeyFeatures, QpState};
use mlx5_mkey::devx::{
    Cq, Dek, Device, DevxError, MemoryRegion, MkeyObject, MkeySpec as DevxMkeySpec, ProtectionDomain,
    QpControl, QueuePairSpec,
};
use mlx5_mkey::mkey::{Access, Keytag, Mkey};
use mlx5_mkey::queue::{CompletionQueue, DoorbellRecord, ReceiveQueue, SendQueue};
use mlx5_mkey::types::{DekId, Key, Qpn};
use std::ptr;
use std::time::{Duration, Instant};

/// How long the device may take until everything is quiet.
const PATIENCE: Duration = Duration::from_secs(2);

/// An mlx5 device behind libmlx5.
pub struct DevxBoard {
    name: &'static str,
    device: Device,
    pd: ProtectionDomain,
    // What lives as long as the board.
    regions: Vec<MemoryRegion>,
    mkeys: Vec<MkeyObject>,
    deks: Vec<Dek>,
    queues: Vec<Watched>,
}

/// A queue pair, and where its progress can be seen.
struct Watched {
    control: QpControl,
    record: &'static DoorbellRecord,
    peer: Qpn,
    _cq: Cq,
}

impl DevxBoard {
    /// Opens a device; `name` is what the user calls the board.
    ///
    /// # Errors
    /// What to install, enable or ask for.
    pub fn open(name: &'static str, device: Option<&str>) -> Result<Self, DevxError> {
        let device = Device::open(device)?;
        let pd = device.alloc_pd()?;
        Ok(Self { name, device, pd, regions: vec![], mkeys: vec![], deks: vec![], queues: vec![] })
    }

    fn port(&mut self) -> Result<(Port, Watched), DevxError> {
        let (cq, reader) = self.device.create_cq(COMPLETIONS as u32)?;
        let queue = self.device.create_qp::<SEND_BLOCKS, RECEIVE_SLOTS>(
            &self.pd,
            &cq,
            &cq,
            QueuePairSpec::default(),
        )?;
        let leaked = queue.leak();
        let send: SendQueue<'static, AnyDoorbell, SEND_BLOCKS> =
            leaked.send.map_doorbell(|doorbell| AnyDoorbell(Box::new(doorbell)));
        let receive: ReceiveQueue<'static, RECEIVE_SLOTS> = leaked.receive;
        let completions: CompletionQueue<'static> = reader.leak();
        let record = send.record();
        let watched = Watched { control: leaked.control, record, peer: send.qpn(), _cq: cq };
        Ok((Port { send, receive, completions }, watched))
    }

    fn watched(&mut self, port: &Port) -> &mut Watched {
        let found = self.queues.iter_mut().find(|queue| queue.control.qpn() == port.send.qpn());
        found.expect("a port of this board")
    }

    /// Whether a queue pair has done all that was published, or will not go on by itself.
    fn is_quiet(queue: &Watched) -> bool {
        let [_, announced] = queue.record.bytes();
        let announced = u32::from_be_bytes(announced) as u16;
        let info = queue.control.query().expect("query a queue pair of this board");
        info.state != QpState::RTS || info.next_send_block == announced
    }
}

impl Board for DevxBoard {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        let general = self.device.capabilities();
        Capabilities {
            xts: general.xts_engine(),
            signature: general.signatures().is_some(),
            drain: general.drain_signature_errors,
        }
    }

    fn alloc(&mut self, length: usize) -> u64 {
        // Whole pages, so that no two regions share one.
        let words = vec![0_u64; (length.max(1).next_multiple_of(4096) + 4096) / 8].leak();
        (words.as_mut_ptr().expose_provenance() as u64).next_multiple_of(4096)
    }

    fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        // SAFETY: the address comes from `alloc`, whose memory is leaked and to which nobody holds a reference; the device is
        // quiet when a scenario looks, and any bytes are bytes.
        unsafe {
            ptr::copy_nonoverlapping(
                ptr::with_exposed_provenance(address as usize),
                bytes.as_mut_ptr(),
                length,
            );
        }
        bytes
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        // SAFETY: as in `read`.
        unsafe {
            let target = ptr::with_exposed_provenance_mut::<u8>(address as usize);
            ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    fn register(&mut self, address: u64, length: usize, access: Access) -> Key {
        let target = ptr::with_exposed_provenance_mut(address as usize);
        // The kernel wants local writing with remote writing.
        let access =
            if access.contains(Access::REMOTE_WRITE) { access | Access::LOCAL_WRITE } else { access };
        // SAFETY: memory of `alloc` stays mapped, and Rust code uses it through `read` and `write` only.
        let region = unsafe { self.pd.register(target, length.max(1), access) }.expect("register");
        let key = region.lkey();
        self.regions.push(region);
        key
    }

    fn create_mkey(&mut self, spec: MkeySpec) -> Mkey {
        let features = MkeyFeatures {
            block_signature: spec.signature,
            crypto: spec.crypto,
            remote_invalidate: spec.remote_invalidate,
            update_tag: true,
            ..MkeyFeatures::default()
        };
        let object =
            self.pd.create_mkey(DevxMkeySpec { max_entries: spec.entries, features }).expect("create mkey");
        let mkey = object.mkey.clone();
        self.mkeys.push(object);
        mkey
    }

    fn create_dek(&mut self, spec: DekSpec<'_>) -> DekId {
        let keytag = spec.keytag.map(Keytag);
        let key = match spec.key.len() {
            32 => DekKey::Plain128 { key: spec.key.try_into().expect("32 bytes"), keytag },
            _ => DekKey::Plain256 { key: spec.key.try_into().expect("32 or 64 bytes"), keytag },
        };
        let dek = self.pd.create_dek(key, [0; 8]).expect("create DEK");
        let id = dek.id();
        self.deks.push(dek);
        id
    }

    fn connect(&mut self) -> (Port, Port) {
        let (near, mut near_watched) = self.port().expect("make a queue pair");
        let (far, mut far_watched) = self.port().expect("make a queue pair");
        (near_watched.peer, far_watched.peer) = (far.send.qpn(), near.send.qpn());
        for watched in [&near_watched, &far_watched] {
            watched.control.connect_local(watched.peer).expect("connect");
        }
        self.queues.extend([near_watched, far_watched]);
        (near, far)
    }

    fn settle(&mut self) {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !self.queues.iter().all(Self::is_quiet) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn drain_on_signature_error(&mut self, port: &Port) {
        let queue = self.watched(port);
        queue.control.restart(true).expect("restart a queue pair");
        queue.control.connect_local(queue.peer).expect("connect");
    }

    fn drained_at(&mut self, port: &Port) -> Option<u16> {
        let info = self.watched(port).control.query().expect("query a queue pair of this board");
        (info.state == QpState::SQ_DRAINED).then_some(info.next_send_block)
    }

    fn resume(&mut self, port: &Port) {
        self.watched(port).control.resume().expect("resume a drained queue pair");
    }
}
