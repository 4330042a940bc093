//! The library's layer over libmlx5 (`devx`) as a side of the benchmarks: an implementation that does the
//! measured work. This side does only whole I/Os. The device does not execute the requests of its queue pair.

#![allow(unsafe_code)]

use core::hint::black_box;
use mlx5_bench::ours::{completion, mkey, use_completion};
use mlx5_bench::{BLOCKS, ENTRIES, Fault, IOS, Io, Side, Work};
use mlx5_mkey::devx::{CqReader, Device, DevxError, ProtectionDomain, QueuePair, QueuePairSpec};
use mlx5_mkey::error::PostError;
use mlx5_mkey::mkey::{Access, Mkey, MkeyConfig};
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::Cqe;
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::error::Error;

/// Size of the receive queue, to which nothing is posted.
const SLOTS: usize = 16;

pub(crate) struct Devx {
    queue: QueuePair,
    completions: CqReader,
    /// Number of entries that the bench has written to the completion queue, in place of the device.
    written: usize,
    prepared: PreparedConfig,
    ios: Vec<(Io, Mkey)>,
    // These fields come last, so that they are dropped after the objects that were created from them.
    _domain: ProtectionDomain,
    _device: Device,
}

impl Devx {
    /// Opens the device of the kernel's stand-in through libmlx5, and creates a queue pair.
    pub(crate) fn open() -> Result<Self, Box<dyn Error>> {
        let work = Work::IoList4Devx;
        let (device, domain, completions, queue) = Self::make()?;
        let config = MkeyConfig { access: Some(Access::REMOTE_READ), ..MkeyConfig::UNCHANGED };
        let io = |io| (io, mkey(work.kind()));
        Ok(Self {
            queue,
            completions,
            written: 0,
            prepared: PreparedConfig::new(mkey(work.kind()).kind(), &config)?,
            ios: Io::all(work.entries()).into_iter().map(io).collect(),
            _domain: domain,
            _device: device,
        })
    }

    fn make() -> Result<(Device, ProtectionDomain, CqReader, QueuePair), DevxError> {
        let device = Device::open(Some("mlx5_0"))?;
        let domain = device.alloc_pd()?;
        let (cq, completions) = device.create_cq(ENTRIES as u32)?;
        let spec = QueuePairSpec {
            send_blocks: BLOCKS as u32,
            receive_slots: SLOTS as u32,
            ..QueuePairSpec::default()
        };
        let queue = device.create_qp(&domain, &cq, &cq, spec)?;
        Ok((device, domain, completions, queue))
    }

    /// Writes an entry to the completion queue, in place of the device.
    fn complete(&mut self, mut entry: Cqe) {
        entry.op_own |= u8::from(self.written & ENTRIES != 0);
        let ring = self.completions.cq().ring_address() as *mut Cqe;
        // SAFETY: the ring has `ENTRIES` entries. Nobody else writes, since the device executes nothing.
        unsafe { ring.add(self.written % ENTRIES).write_volatile(entry) };
        self.written += 1;
    }

    #[inline(never)]
    fn io(&mut self) -> Result<Result<(), Fault>, PostError> {
        let Self { queue, completions, prepared, ios, .. } = black_box(self);
        for (io, mkey) in ios {
            let entries = io.entries.first_chunk::<4>().map_or(&[][..], |entries| entries);
            queue.request(io.id).configure_mkey(mkey, prepared, entries)?;
            let all = Sge { address: 0, length: mkey.length() as u32, lkey: mkey.key() };
            let remote = Remote { address: io.remote, rkey: Key::from_raw(io.rkey) };
            queue.request(io.id).signaled().rdma_write(remote, &[all])?;
            queue.ring_doorbell();
            if let Err(fault) = use_completion(&completions.poll(queue)) {
                return Ok(Err(fault));
            }
        }
        Ok(Ok(()))
    }
}

impl Side for Devx {
    fn does(&self, work: Work, _batch: usize) -> bool {
        work == Work::IoList4Devx
    }

    fn prepare(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        for at in 1..=requests {
            let last = self.queue.producer() + (at * work.blocks() - 1) as u32;
            self.complete(completion(self.queue.qpn(), 0, last as u16));
        }
        Ok(())
    }

    fn run(&mut self, _work: Work, _batch: usize, requests: usize) -> Result<(), Fault> {
        for _ in 0..requests / IOS {
            self.io().map_err(|_| "refused")??;
        }
        Ok(())
    }

    fn blocks(&self) -> u16 {
        self.queue.producer() as u16
    }
}
