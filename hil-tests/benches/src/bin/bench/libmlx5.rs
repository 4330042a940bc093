//! The work done by the installed libmlx5, on a queue pair that the device does not execute.

#![allow(unsafe_code)]

use core::ptr;
use libmlx5::abi::{
    ConfAttr, CrcAttr, CryptoAttr, DifAttr, DomainAttr, IbvContext, IbvQp, IbvSge, Interleaved, Mlx5QpEx,
    QpCap, QpEx, RecvWr, SigBlockAttr, WorkCompletion,
};
use libmlx5::{CqRing, Device, RefMkey, RefQueue};
use mlx5_bench::{BATCH, Fault, MAX_ENTRIES, REQUESTS, Side, Work, ours};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, OpOwn};
use std::io;
use std::rc::Rc;

const ADDRESS: u64 = 0x7f00_0000_0000;
const PIECE: u32 = 4096;
const KEY: u32 = 0x500;
/// `IBV_SEND_SIGNALED`, and with `IBV_SEND_INLINE`.
const SIGNALED: u32 = 2;
const INLINE: u32 = 8;
/// `IBV_ACCESS_REMOTE_READ`.
const REMOTE_READ: u32 = 4;

/// libmlx5.
pub(crate) struct Libmlx5 {
    // Before the device, which they hold.
    mkeys: Vec<RefMkey>,
    queue: RefQueue,
    device: Rc<Device>,
    cq: CqRing,
    /// Entries that the bench has written to the completion queue.
    written: u32,
    pieces: [IbvSge; MAX_ENTRIES],
    strides: [Interleaved; 3],
    dif: DifAttr,
    crc: CrcAttr,
    crypto: CryptoAttr,
}

/// A domain of blocks of 512 bytes.
fn domain<T>(kind: u32, details: &T) -> DomainAttr {
    DomainAttr { kind, details: ptr::from_ref(details).cast(), block_size: 0, comp_mask: 0 }
}

fn signature(wire: &DomainAttr) -> SigBlockAttr {
    SigBlockAttr { memory: ptr::null(), wire, flags: 0, check_mask: 0xff, copy_mask: 0, comp_mask: 0 }
}

impl Libmlx5 {
    /// Opens the device of the stand-in.
    pub(crate) fn open() -> io::Result<Self> {
        let device = Device::open("mlx5_0", 64)?;
        let cap = QpCap {
            max_send_wr: 128,
            max_recv_wr: 2 * REQUESTS as u32,
            max_send_sge: 16,
            max_recv_sge: 1,
            max_inline_data: 828,
        };
        let queue = RefQueue::create(&device, cap)?;
        let cq = device.cq_ring()?;
        Ok(Self {
            mkeys: Vec::new(),
            cq,
            written: 0,
            pieces: [const { IbvSge { address: ADDRESS, length: PIECE, lkey: KEY } }; MAX_ENTRIES],
            strides: [const { Interleaved { address: ADDRESS, bytes: 512, skip: 8, lkey: KEY } }; 3],
            dif: DifAttr { guard: 0, seed: 0, app_tag: 0x1234, ref_tag: 0x5678, flags: 1 },
            crc: CrcAttr { kind: 1, seed: u64::from(u32::MAX) },
            crypto: CryptoAttr {
                standard: 0,
                encrypt_on_tx: true,
                order: 1,
                data_unit: 0,
                tweak: [0; 16],
                dek: device.dek(),
                keytag: [0; 8],
                comp_mask: 0,
            },
            queue,
            device,
        })
    }

    /// Issues a chain for each batch, as a program does with the functions of the headers.
    ///
    /// # Safety
    /// `one` issues one request on this queue pair, by the rules of the manual pages.
    #[inline(always)]
    unsafe fn post<const BATCHED: usize>(
        &self,
        requests: usize,
        flags: u32,
        one: impl Fn(*mut QpEx, *mut Mlx5QpEx, &RefMkey, u64),
    ) -> Result<(), Fault> {
        let (ex, mlx5) = (self.queue.ex(), self.queue.mlx5());
        let mut lba = 0;
        for batch in self.mkeys[..requests].chunks_exact(BATCHED) {
            // SAFETY: the queue pair is live, of libmlx5, and used by nobody else.
            unsafe { ((*ex).start)(ex) };
            for mkey in batch {
                // SAFETY: as above.
                unsafe {
                    (*ex).wr_id = lba;
                    (*ex).wr_flags = flags;
                }
                one(ex, mlx5, mkey, lba);
                lba += 1;
            }
            // SAFETY: as above.
            if unsafe { ((*ex).complete)(ex) } != 0 {
                return Err("libmlx5 refuses");
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn list<const BATCHED: usize>(&self, requests: usize, count: u16) -> Result<(), Fault> {
        // SAFETY: two setters behind the builder; what they are given lives during the calls.
        unsafe {
            self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, mkey, _| {
                let mut attr = ConfAttr { flags: 0, comp_mask: 0 };
                ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), 2, &mut attr);
                ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
                ((*mlx5).set_mkey_list)(mlx5, count, self.pieces.as_ptr());
            })
        }
    }

    #[inline(never)]
    fn interleaved<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        // SAFETY: as in `list`.
        unsafe {
            self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, mkey, _| {
                let mut attr = ConfAttr { flags: 0, comp_mask: 0 };
                ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), 2, &mut attr);
                ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
                ((*mlx5).set_mkey_interleaved)(mlx5, 4, 3, self.strides.as_ptr());
            })
        }
    }

    #[inline(never)]
    fn encrypted<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        // SAFETY: as in `list`, with three setters.
        unsafe {
            self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, mkey, _| {
                let mut attr = ConfAttr { flags: 0, comp_mask: 0 };
                ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), 3, &mut attr);
                ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
                ((*mlx5).set_mkey_list)(mlx5, 4, self.pieces.as_ptr());
                ((*mlx5).set_mkey_crypto)(mlx5, &self.crypto);
            })
        }
    }

    #[inline(never)]
    fn signed<const BATCHED: usize>(&self, requests: usize, wire: &DomainAttr) -> Result<(), Fault> {
        let signature = signature(wire);
        // SAFETY: as in `list`, with three setters.
        unsafe {
            self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, mkey, _| {
                let mut attr = ConfAttr { flags: 0, comp_mask: 0 };
                ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), 3, &mut attr);
                ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
                ((*mlx5).set_mkey_list)(mlx5, 1, self.pieces.as_ptr());
                ((*mlx5).set_mkey_sig)(mlx5, &signature);
            })
        }
    }

    #[inline(never)]
    fn signed_and_encrypted<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        let wire = domain(0, &self.dif);
        let signature = signature(&wire);
        // SAFETY: as in `list`, with four setters.
        unsafe {
            self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, mkey, _| {
                let mut attr = ConfAttr { flags: 0, comp_mask: 0 };
                ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), 4, &mut attr);
                ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
                ((*mlx5).set_mkey_list)(mlx5, 4, self.pieces.as_ptr());
                ((*mlx5).set_mkey_sig)(mlx5, &signature);
                ((*mlx5).set_mkey_crypto)(mlx5, &self.crypto);
            })
        }
    }

    #[inline(never)]
    fn rdma_write<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        // SAFETY: a setter behind the builder.
        unsafe {
            self.post::<BATCHED>(requests, SIGNALED, |ex, _, _, _| {
                ((*ex).rdma_write)(ex, 0x600, ADDRESS);
                ((*ex).set_sge)(ex, KEY, 0, PIECE);
            })
        }
    }

    /// The same mkey for other pieces, which are described here; and of the rest what a template has.
    #[inline(always)]
    fn pieces<const BATCHED: usize, const PIECES: usize, const WHOLE: bool>(
        &self,
        requests: usize,
    ) -> Result<(), Fault> {
        // SAFETY: as in `list`, with one setter or two.
        unsafe {
            self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, mkey, lba| {
                let first = ADDRESS + lba * PIECES as u64 * u64::from(PIECE);
                let piece = |at: usize| {
                    let address = first + at as u64 * u64::from(PIECE);
                    IbvSge { address, length: PIECE, lkey: KEY }
                };
                let pieces: [IbvSge; PIECES] = std::array::from_fn(piece);
                let mut attr = ConfAttr { flags: 0, comp_mask: 0 };
                ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), 1 + u8::from(WHOLE), &mut attr);
                if WHOLE {
                    ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
                }
                ((*mlx5).set_mkey_list)(mlx5, PIECES as u16, pieces.as_ptr());
            })
        }
    }

    #[inline(never)]
    fn new_addresses<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        self.pieces::<BATCHED, 4, false>(requests)
    }

    #[inline(never)]
    fn whole_address<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        self.pieces::<BATCHED, 1, true>(requests)
    }

    #[inline(always)]
    fn tweak<const BATCHED: usize, const WHOLE: bool>(&self, requests: usize) -> Result<(), Fault> {
        let CryptoAttr { standard, encrypt_on_tx, order, data_unit, dek, keytag, .. } = self.crypto;
        // SAFETY: as in `list`, with one setter or three.
        unsafe {
            self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, mkey, lba| {
                let tweak = u128::from(lba).to_le_bytes();
                let crypto = CryptoAttr {
                    standard,
                    encrypt_on_tx,
                    order,
                    data_unit,
                    tweak,
                    dek,
                    keytag,
                    comp_mask: 0,
                };
                let mut attr = ConfAttr { flags: 0, comp_mask: 0 };
                ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), 1 + 2 * u8::from(WHOLE), &mut attr);
                if WHOLE {
                    ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
                    ((*mlx5).set_mkey_list)(mlx5, 4, self.pieces.as_ptr());
                }
                ((*mlx5).set_mkey_crypto)(mlx5, &crypto);
            })
        }
    }

    #[inline(never)]
    fn new_tweak<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        self.tweak::<BATCHED, false>(requests)
    }

    #[inline(never)]
    fn whole_tweak<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        self.tweak::<BATCHED, true>(requests)
    }

    #[inline(always)]
    fn ref_tag<const BATCHED: usize, const WHOLE: bool>(&self, requests: usize) -> Result<(), Fault> {
        let DifAttr { guard, seed, app_tag, flags, .. } = self.dif;
        // SAFETY: as in `list`, with one setter or three.
        unsafe {
            self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, mkey, lba| {
                let dif = DifAttr { guard, seed, app_tag, ref_tag: lba as u32, flags };
                let wire = domain(0, &dif);
                let signature = signature(&wire);
                let mut attr = ConfAttr { flags: 0, comp_mask: 0 };
                ((*mlx5).mkey_configure)(mlx5, mkey.as_ptr(), 1 + 2 * u8::from(WHOLE), &mut attr);
                if WHOLE {
                    ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
                    ((*mlx5).set_mkey_list)(mlx5, 1, self.pieces.as_ptr());
                }
                ((*mlx5).set_mkey_sig)(mlx5, &signature);
            })
        }
    }

    #[inline(never)]
    fn new_ref_tag<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        self.ref_tag::<BATCHED, false>(requests)
    }

    #[inline(never)]
    fn whole_ref_tag<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        self.ref_tag::<BATCHED, true>(requests)
    }

    /// Posts receives, chained within a batch.
    #[inline(never)]
    fn receive<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        let context: *const IbvContext = self.device.context().as_ptr();
        let qp: *mut IbvQp = self.queue.qp();
        let mut chain =
            [const { RecvWr { wr_id: 0, next: ptr::null(), sges: ptr::null(), count: 1 } }; BATCHED];
        for _ in 0..requests / BATCHED {
            let mut next: *const RecvWr = ptr::null();
            for receive in chain.iter_mut().rev() {
                *receive = RecvWr { wr_id: 0, next, sges: self.pieces.as_ptr(), count: 1 };
                next = receive;
            }
            let mut bad = ptr::null();
            // SAFETY: context and queue pair are live and of libmlx5; the chain lives during the call.
            if unsafe { ((*context).post_recv)(qp, next, &mut bad) } != 0 {
                return Err("libmlx5 refuses a receive");
            }
        }
        Ok(())
    }

    /// Takes so many completions and returns the name of the last one's request.
    #[inline(never)]
    fn poll<const BATCHED: usize>(&self, completions: usize) -> Result<u64, Fault> {
        let context: *const IbvContext = self.device.context().as_ptr();
        let mut taken = [WorkCompletion::default(); BATCHED];
        let mut last = 0;
        for _ in 0..completions / BATCHED {
            // SAFETY: context and completion queue are live and of libmlx5; there is room for so many.
            let count = unsafe { ((*context).poll_cq)(self.device.cq(), BATCHED as i32, taken.as_mut_ptr()) };
            if usize::try_from(count) != Ok(BATCHED) {
                return Err("libmlx5 finds no completion");
            }
            for completion in &taken {
                if completion.status != 0 {
                    return Err("libmlx5 finds a failure");
                }
                last = std::hint::black_box(completion.wr_id);
            }
        }
        Ok(last)
    }

    /// Writes an entry to the completion queue, as the device would.
    fn complete(&mut self, mut entry: Cqe) {
        let lap = self.written & self.cq.entries != 0;
        entry.op_own |= u8::from(lap);
        let at = (self.written & (self.cq.entries - 1)) as usize;
        let bytes: [u8; 64] = zerocopy::transmute!(entry);
        // SAFETY: the ring has that many entries, and nobody else writes: the device executes nothing.
        unsafe { self.cq.first.add(at).write(bytes) };
        self.written = self.written.wrapping_add(1);
    }

    /// Completes the send request that begins so many blocks before the next one.
    fn complete_send(&mut self, blocks_back: usize) {
        let counter = self.producer().wrapping_sub(blocks_back as u16);
        // The only queue pair has user index 0.
        self.complete(ours::completion(Qpn::from_low_bits(self.queue.number), 0, counter));
    }

    /// The block at which the next request begins.
    fn producer(&self) -> u16 {
        let [.., high, low] = self.queue.counter();
        u16::from_be_bytes([high, low])
    }

    /// Posts the work.
    fn post_all(&self, work: Work, batch: usize, requests: usize) -> Result<(), Fault> {
        macro_rules! batched {
            ($method:ident $(, $argument:expr)?) => {
                match batch {
                    1 => self.$method::<1>(requests $(, $argument)?),
                    _ => self.$method::<BATCH>(requests $(, $argument)?),
                }
            };
        }
        match work {
            Work::Sge1
            | Work::Sge4
            | Work::Sge16
            | Work::Sge16Wrapped
            | Work::SharedSge4
            | Work::FirstSge1
            | Work::Slice4
            | Work::TemplateSge1
            | Work::List(_) => batched!(list, work.entries() as u16),
            Work::Interleaved3 => batched!(interleaved),
            Work::Sge4Crypto | Work::TemplateSge4Crypto => batched!(encrypted),
            Work::Sge1T10Dif | Work::TemplateSge1T10Dif => batched!(signed, &domain(0, &self.dif)),
            Work::Sge1Crc32c => batched!(signed, &domain(1, &self.crc)),
            Work::Sge4T10DifCrypto | Work::FirstSge4T10DifCrypto | Work::TemplateSge4T10DifCrypto => {
                batched!(signed_and_encrypted)
            }
            Work::RdmaWrite => batched!(rdma_write),
            Work::ReconfigureAddresses => batched!(new_addresses),
            Work::ReconfigureTweak => batched!(new_tweak),
            Work::ReconfigureRefTag => batched!(new_ref_tag),
            Work::TemplateAddress => batched!(whole_address),
            Work::TemplateTweak => batched!(whole_tweak),
            Work::TemplateRefTag => batched!(whole_ref_tag),
            Work::Receive => batched!(receive),
            Work::Poll1 => self.poll::<1>(requests).map(drop),
            Work::Poll16 => self.poll::<BATCH>(requests).map(drop),
        }
    }
}

impl Side for Libmlx5 {
    fn prepare(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        self.mkeys.clear();
        for _ in 0..requests {
            let mkey =
                RefMkey::create(&self.device, work.has_signature(), work.has_crypto(), MAX_ENTRIES as u16);
            self.mkeys.push(mkey.map_err(|_| "libmlx5 creates no mkey")?);
        }
        if !(matches!(work, Work::Poll1 | Work::Poll16) || work.is_first()) {
            self.post_all(work.before(), 1, requests)?;
            self.drain(work.before(), requests)?;
        }
        while self.queue.blocks - usize::from(self.producer()) % self.queue.blocks != work.blocks_to_end() {
            self.post_all(Work::RdmaWrite, 1, 1)?;
            self.drain(Work::RdmaWrite, 1)?;
        }
        if matches!(work, Work::Poll1 | Work::Poll16) {
            self.post_all(Work::RdmaWrite, 1, requests)?;
            (1..=requests).rev().for_each(|back| self.complete_send(back));
        }
        Ok(())
    }

    fn run(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), Fault> {
        self.post_all(work, batch, requests)
    }

    fn blocks(&self) -> u16 {
        self.producer()
    }

    fn drain(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        match work {
            Work::Poll1 | Work::Poll16 => Ok(()),
            Work::Receive => {
                for _ in 0..requests {
                    let mut entry = ours::completion(Qpn::from_low_bits(self.queue.number), 0, 0);
                    entry.op_own = OpOwn::new().with_opcode(CqeOpcode::RESPONDER_SEND.0).into_bits();
                    self.complete(entry);
                }
                self.poll::<1>(requests).map(drop)
            }
            _ => {
                self.complete_send(work.last_blocks());
                // Another request than the last would leave the queue fuller each time.
                let last = self.poll::<1>(1)?;
                if last + 1 == requests as u64 { Ok(()) } else { Err("libmlx5 completes another request") }
            }
        }
    }
}
