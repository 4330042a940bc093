//! The work done with the library, as a program would.

use crate::{BATCH, BLOCKS, Fault, MAX_ENTRIES, REQUESTS, Side, Work};
use core::array;
use core::hint::black_box;
use mlx5_mkey::error::PostError;
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, DomainKind, Escape, Guard, Interleaved,
    InterleavedEntry, Keytag, Layout, List, ListEntry, Mkey, MkeyAttributes, MkeyConfig, ReadyCrypto,
    Signature, SignatureAttributes, SignatureChange, SignatureOrder, T10Dif, XtsEngine,
};
use mlx5_mkey::queue::{
    Completion, CompletionQueue, DoorbellRecord, QpRouter, ReceiveQueue, ReceiveQueueConfig, Request,
    SendQueue, SendQueueConfig, SharedSendQueue, UarDoorbell,
};
use mlx5_mkey::types::{BlockSize, DekId, Key, PsvIndex, Qpn, Seed, Tweak};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, OpOwn};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::data::DataSegment;
use mlx5_mkey::wqe::{MkeyTemplate, Remote, Sge};
use zerocopy::big_endian::{U16, U32};

const QPN: Qpn = Qpn::from_low_bits(0x77);
/// Entries of the completion queue, and of the receive queue.
const ENTRIES: usize = REQUESTS.next_power_of_two();
/// Bytes of a piece of memory.
const PIECE: u32 = 4096;
/// Pieces of memory that requests name.
static PIECES: [ListEntry; MAX_ENTRIES] = match ListEntry::new(ADDRESS, PIECE, KEY) {
    Ok(piece) => [piece; MAX_ENTRIES],
    Err(_) => panic!("a piece"),
};

/// What all requests of this side are posted as.
type Queue<'m> = SendQueue<'m, UarDoorbell, BLOCKS>;
type Pending<'q, 'm, const BATCHED: bool> = Request<'q, 'm, UarDoorbell, BLOCKS, BATCHED>;

/// What a program knows of its work.
const KEY: Key = Key::from_raw(0x500);
const ADDRESS: u64 = 0x7f00_0000_0000;
const ACCESS: Access = Access::REMOTE_READ;
const DIF: T10Dif = T10Dif {
    guard: Guard::Crc,
    seed: Seed::Zeros,
    app_tag: 0x1234,
    ref_tag: 0x5678,
    ref_remap: true,
    escape: Escape::Never,
};
const CRYPTO: ReadyCrypto = ReadyCrypto::new(Crypto {
    direction: Direction::EncryptOnTx,
    order: SignatureOrder::BeforeCryptoOnTx,
    data_unit: BlockSize::B512,
    tweak: Tweak::from_lba(0),
    dek: DekId::from_low_bits(0x123),
    keytag: Keytag([0; 8]),
});

/// Memory that [`Ours`] works on.
pub struct OursMemory {
    rings: [[Wqebb; BLOCKS]; 2],
    records: [DoorbellRecord; 4],
    receives: [DataSegment; ENTRIES],
    entries: [Cqe; ENTRIES],
    ios: [Io; REQUESTS],
}

impl OursMemory {
    /// Memory for rings, and requests to be.
    pub fn new() -> Self {
        let stride = InterleavedEntry::new(ADDRESS, 512, 8, KEY).expect("a stride");
        Self {
            rings: [[Wqebb::ZERO; BLOCKS]; 2],
            records: [const { DoorbellRecord::new() }; 4],
            receives: [DataSegment::default(); ENTRIES],
            entries: [Cqe::UNWRITTEN; ENTRIES],
            ios: array::from_fn(|at| Io {
                mkey: mkey(Work::Sge1),
                list: List::new(),
                strides: Interleaved::new(4, &[stride; 3]).expect("a layout"),
                pieces: &PIECES,
                templates: Templates::new(&PIECES),
                signature: wire(Signature::T10Dif(DIF)),
                crypto: CRYPTO,
                remote: Remote::new(ADDRESS, Key::from_raw(0x600)),
                data: [Sge::new(0, PIECE, KEY).expect("a piece")],
                lba: at as u32,
            }),
        }
    }
}

impl Default for OursMemory {
    fn default() -> Self {
        Self::new()
    }
}

/// A request as a program keeps it: what it is about, and the mkey that it uses.
struct Io {
    mkey: Mkey,
    /// Pieces as a program keeps them that posts them more than once, or gets them one by one.
    list: List<{ MAX_ENTRIES / 4 }>,
    strides: Interleaved<1>,
    /// Pieces as they come from elsewhere.
    pieces: &'static [ListEntry],
    templates: Templates,
    signature: BlockSignature,
    crypto: ReadyCrypto,
    remote: Remote,
    data: [Sge; 1],
    /// Where it stands on the disk: its address, its tweak, or its reference tag.
    lba: u32,
}

/// Requests made ready, of each kind of mkey.
struct Templates {
    sge1: MkeyTemplate<1>,
    sge4_crypto: MkeyTemplate<4, 1>,
    sge1_t10dif: MkeyTemplate<1, 1, 1>,
    sge4_t10dif_crypto: MkeyTemplate<4, 2, 1>,
}

impl Templates {
    fn new(pieces: &[ListEntry]) -> Self {
        let (one, four) = (pieces.get(..1).expect("a piece"), pieces.get(..4).expect("pieces"));
        let t10dif = wire(Signature::T10Dif(DIF));
        let of = |pieces| MkeyConfig {
            access: Some(ACCESS),
            layout: Some(Layout::list(pieces)),
            ..MkeyConfig::KEEP
        };
        let (signature, crypto) = (SignatureChange::Set(&t10dif), Some(&CRYPTO));
        let (plain, encrypted) = (of(one), MkeyConfig { crypto, ..of(four) });
        let (signed, both) = (MkeyConfig { signature, ..of(one) }, MkeyConfig { signature, ..encrypted });
        Self {
            sge1: MkeyTemplate::new(&mkey(Work::Sge1), &plain).expect("a template"),
            sge4_crypto: MkeyTemplate::new(&mkey(Work::Sge4Crypto), &encrypted).expect("a template"),
            sge1_t10dif: MkeyTemplate::new(&mkey(Work::Sge1T10Dif), &signed).expect("a template"),
            sge4_t10dif_crypto: MkeyTemplate::new(&mkey(Work::Sge4T10DifCrypto), &both).expect("a template"),
        }
    }
}

/// Posts a request for each of the first `requests`, and publishes each batch. A macro, since those of a batch are of a type of
/// their own.
macro_rules! post {
    ($ours:ident, $batched:ident, $requests:ident, |$request:ident, $io:ident| $one:expr) => {
        $ours.post::<$batched>($requests, |$request, $io| $one, |$request, $io| $one)
    };
}

/// The library.
// In this order, so that what is counted does not depend on where a compiler puts what.
#[repr(C)]
pub struct Ours<'m> {
    /// By reference, as a program has them that takes them from a queue.
    ios: [&'m mut Io; REQUESTS],
    queue: Queue<'m>,
    shared: SharedSendQueue<'m, UarDoorbell, BLOCKS>,
    receive: ReceiveQueue<'m, ENTRIES>,
    entries: &'m mut [Cqe],
    cq_record: &'m DoorbellRecord,
    /// Receives that are done.
    received: u16,
}

impl<'m> Ours<'m> {
    /// Makes queues on this memory; each of two send queues has a doorbell.
    pub fn new(memory: &'m mut OursMemory, doorbells: [UarDoorbell; 2]) -> Self {
        let OursMemory { rings: [ring, shared], records, receives, entries, ios } = memory;
        let [send, second, receive, cq_record] = records;
        let [doorbell, other] = doorbells;
        let config = SendQueueConfig::new(QPN);
        let receive_config = ReceiveQueueConfig { qpn: QPN, entries_per_slot: 1 };
        let shared = Queue::new(config, shared, second, other).expect("a ring");
        Self {
            queue: Queue::new(config, ring, send, doorbell).expect("a ring"),
            shared: SharedSendQueue::new(shared),
            receive: ReceiveQueue::new(receive_config, receives, receive).expect("a ring"),
            entries,
            cq_record,
            ios: ios.each_mut(),
            received: 0,
        }
    }

    #[inline(always)]
    fn post<const BATCHED: usize>(
        &mut self,
        requests: usize,
        one: impl Fn(Pending<'_, 'm, false>, &mut Io) -> Result<(), PostError>,
        one_of_many: impl Fn(Pending<'_, 'm, true>, &mut Io) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let Self { queue, ios, .. } = self;
        for ios in first(ios, requests).as_chunks_mut::<BATCHED>().0 {
            if BATCHED == 1 {
                for io in ios {
                    one(queue.request(u64::from(io.lba)).signaled(), io)?;
                }
                queue.ring_doorbell();
            } else {
                let mut batch = queue.batch();
                for io in ios {
                    one_of_many(batch.request(u64::from(io.lba)).signaled(), io)?;
                }
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn list<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| list(request, io))
    }

    #[inline(never)]
    fn interleaved<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            let layout = Some(io.strides.layout());
            request.configure_mkey(
                &mut io.mkey,
                &MkeyConfig { access: Some(ACCESS), layout, ..MkeyConfig::KEEP },
            )
        })
    }

    #[inline(never)]
    fn encrypted<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            let layout = Some(io.list.layout());
            let config =
                MkeyConfig { access: Some(ACCESS), layout, crypto: Some(&io.crypto), ..MkeyConfig::KEEP };
            request.configure_mkey(&mut io.mkey, &config)
        })
    }

    #[inline(never)]
    fn signed<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            let (layout, signature) = (Some(io.list.layout()), SignatureChange::Set(&io.signature));
            let config = MkeyConfig { access: Some(ACCESS), layout, signature, ..MkeyConfig::KEEP };
            request.configure_mkey(&mut io.mkey, &config)
        })
    }

    #[inline(never)]
    fn signed_and_encrypted<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            let (layout, signature) = (Some(io.list.layout()), SignatureChange::Set(&io.signature));
            let config = MkeyConfig { access: Some(ACCESS), layout, signature, crypto: Some(&io.crypto) };
            request.configure_mkey(&mut io.mkey, &config)
        })
    }

    #[inline(never)]
    fn slice<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            let layout = Some(Layout::list(io.pieces));
            request.configure_mkey(
                &mut io.mkey,
                &MkeyConfig { access: Some(ACCESS), layout, ..MkeyConfig::KEEP },
            )
        })
    }

    #[inline(never)]
    fn rdma_write<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| request.rdma_write(io.remote, &io.data))
    }

    #[inline(never)]
    fn shared<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        let Self { shared, ios, .. } = self;
        for batch in first(ios, requests).as_chunks_mut::<BATCHED>().0 {
            shared.with(|queue| {
                batch.iter_mut().try_for_each(|io| list(queue.request(u64::from(io.lba)).signaled(), io))
            })?;
        }
        Ok(())
    }

    #[inline(never)]
    fn receive<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        let Self { receive, ios, .. } = self;
        for batch in first(ios, requests).as_chunks_mut::<BATCHED>().0 {
            for io in batch {
                let [data] = io.data;
                receive.post(u64::from(io.lba), &[data])?;
            }
            receive.publish();
        }
        Ok(())
    }

    /// The same mkey for other pieces, which are described here.
    #[inline(never)]
    fn new_addresses<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            let first = ADDRESS + u64::from(io.lba) * 4 * u64::from(PIECE);
            let piece = |at| ListEntry::new(first + at * u64::from(PIECE), PIECE, KEY);
            let (Ok(one), Ok(two), Ok(three), Ok(four)) = (piece(0), piece(1), piece(2), piece(3)) else {
                return Ok(());
            };
            let pieces = [one, two, three, four];
            let layout = Some(Layout::list(&pieces));
            request.configure_mkey(&mut io.mkey, &MkeyConfig { layout, ..MkeyConfig::KEEP })
        })
    }

    #[inline(never)]
    fn new_tweak<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            io.crypto.set_tweak(Tweak::from_lba(u64::from(io.lba)));
            request.configure_mkey(&mut io.mkey, &MkeyConfig { crypto: Some(&io.crypto), ..MkeyConfig::KEEP })
        })
    }

    #[inline(never)]
    fn new_ref_tag<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            io.signature.set_ref_tag(DomainKind::Wire, io.lba)?;
            let signature = SignatureChange::Set(&io.signature);
            request.configure_mkey(&mut io.mkey, &MkeyConfig { signature, ..MkeyConfig::KEEP })
        })
    }

    #[inline(never)]
    fn template<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| request.configure_from(&mut io.mkey, &io.templates.sge1))
    }

    #[inline(never)]
    fn template_encrypted<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            request.configure_from(&mut io.mkey, &io.templates.sge4_crypto)
        })
    }

    #[inline(never)]
    fn template_signed<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            request.configure_from(&mut io.mkey, &io.templates.sge1_t10dif)
        })
    }

    #[inline(never)]
    fn template_both<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            request.configure_from(&mut io.mkey, &io.templates.sge4_t10dif_crypto)
        })
    }

    #[inline(never)]
    fn template_address<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            let address = ADDRESS + u64::from(io.lba) * u64::from(PIECE);
            io.templates.sge1.set_address(0, address)?;
            request.configure_from(&mut io.mkey, &io.templates.sge1)
        })
    }

    #[inline(never)]
    fn template_tweak<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            io.templates.sge4_crypto.set_tweak(Tweak::from_lba(u64::from(io.lba)))?;
            request.configure_from(&mut io.mkey, &io.templates.sge4_crypto)
        })
    }

    #[inline(never)]
    fn template_ref_tag<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        post!(self, BATCHED, requests, |request, io| {
            io.templates.sge1_t10dif.set_ref_tag(DomainKind::Wire, io.lba)?;
            request.configure_from(&mut io.mkey, &io.templates.sge1_t10dif)
        })
    }

    /// Takes completions one by one.
    #[inline(never)]
    fn poll(&mut self, completions: usize) -> Result<(), Fault> {
        let mut queue = CompletionQueue::new(self.entries, self.cq_record).map_err(|_| "completion queue")?;
        let mut router = QpRouter { queues: &mut self.queue, mkeys: &mut [] };
        for _ in 0..completions {
            match queue.poll(&mut router) {
                Some(Ok(Completion::Work(work))) => drop(black_box(work.id)),
                _ => return Err("no completion"),
            }
        }
        Ok(())
    }

    /// Takes completions by the batch.
    #[inline(never)]
    fn poll_batches(&mut self, completions: usize) -> Result<(), Fault> {
        let mut queue = CompletionQueue::new(self.entries, self.cq_record).map_err(|_| "completion queue")?;
        let mut router = QpRouter { queues: &mut self.queue, mkeys: &mut [] };
        for _ in 0..completions / BATCH {
            let mut failed = false;
            let count = queue.poll_batch(BATCH, &mut router, |completion| match completion {
                Ok(Completion::Work(work)) => drop(black_box(work.id)),
                _ => failed = true,
            });
            if failed || count != BATCH {
                return Err("no completion");
            }
        }
        Ok(())
    }

    /// Posts short requests until the next one of each queue begins so many blocks before the ring's end.
    fn go_to(&mut self, blocks_to_end: usize) -> Result<(), Fault> {
        let step = |queue: &mut Queue<'m>| {
            let there = BLOCKS - queue.producer() as usize % BLOCKS == blocks_to_end;
            if !there {
                queue.request(0).nop().map_err(|_| "a short request")?;
                queue.ring_doorbell();
            }
            Ok(there)
        };
        while !(step(&mut self.queue)? & self.shared.with(step)?) {
            self.take_all()?;
        }
        Ok(())
    }

    /// Retires what is posted. The last request begins at the last block, or some blocks before.
    fn take_all(&mut self) -> Result<(), Fault> {
        let retire = |queue: &mut Queue<'m>| {
            let end = queue.producer() as u16;
            queue.outstanding() == 0
                || (1..=BLOCKS as u16).any(|back| queue.retire(end.wrapping_sub(back)).is_some())
        };
        if retire(&mut self.queue) && self.shared.with(retire) { Ok(()) } else { Err("nothing to retire") }
    }

    /// Posts the work.
    fn post_all(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), PostError> {
        macro_rules! batched {
            ($method:ident) => {
                match batch {
                    1 => self.$method::<1>(requests),
                    _ => self.$method::<BATCH>(requests),
                }
            };
        }
        match work {
            Work::Sge1 | Work::Sge4 | Work::Sge16 | Work::Sge16Wrapped | Work::FirstSge1 | Work::List(_) => {
                batched!(list)
            }
            Work::Interleaved3 => batched!(interleaved),
            Work::Sge4Crypto => batched!(encrypted),
            Work::Sge1T10Dif | Work::Sge1Crc32c => batched!(signed),
            Work::Sge4T10DifCrypto | Work::FirstSge4T10DifCrypto => batched!(signed_and_encrypted),
            Work::RdmaWrite | Work::Poll1 | Work::Poll16 => batched!(rdma_write),
            Work::SharedSge4 => batched!(shared),
            Work::Receive => batched!(receive),
            Work::ReconfigureAddresses => batched!(new_addresses),
            Work::ReconfigureTweak => batched!(new_tweak),
            Work::ReconfigureRefTag => batched!(new_ref_tag),
            Work::Slice4 => batched!(slice),
            Work::TemplateSge1 => batched!(template),
            Work::TemplateSge4Crypto => batched!(template_encrypted),
            Work::TemplateSge1T10Dif => batched!(template_signed),
            Work::TemplateSge4T10DifCrypto => batched!(template_both),
            Work::TemplateAddress => batched!(template_address),
            Work::TemplateTweak => batched!(template_tweak),
            Work::TemplateRefTag => batched!(template_ref_tag),
        }
    }
}

impl Side for Ours<'_> {
    fn prepare(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        let pieces = PIECES.get(..work.entries()).ok_or("too many pieces")?;
        for io in &mut self.ios {
            io.mkey = mkey(work);
            io.pieces = black_box(pieces);
            io.list.clear();
            for piece in pieces {
                io.list.push(*piece).map_err(|_| "too many pieces")?;
            }
            io.signature = wire(if work == Work::Sge1Crc32c {
                Signature::Crc32c(Seed::Ones)
            } else {
                Signature::T10Dif(DIF)
            });
        }
        if !work.is_first() {
            self.post_all(work.before(), 1, requests).map_err(|_| "a first configuration")?;
            self.drain(work.before(), requests)?;
        }
        self.go_to(work.blocks_to_end())?;
        if matches!(work, Work::Poll1 | Work::Poll16) {
            self.post_all(Work::RdmaWrite, 1, requests).map_err(|_| "a request to complete")?;
            let start = self.queue.producer().wrapping_sub(requests as u32) as u16;
            for (entry, at) in self.entries.iter_mut().zip(0..) {
                *entry = if usize::from(at) < requests {
                    completion(QPN, 0, start.wrapping_add(at))
                } else {
                    Cqe::UNWRITTEN
                };
            }
        }
        Ok(())
    }

    fn run(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), Fault> {
        match work {
            Work::Poll1 => self.poll(requests),
            Work::Poll16 => self.poll_batches(requests),
            _ => self.post_all(work, batch, requests).map_err(|_| "refused"),
        }
    }

    fn blocks(&self) -> u16 {
        self.queue.producer().wrapping_add(self.shared.with(|queue| queue.producer())) as u16
    }

    fn drain(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        if work == Work::Receive {
            self.received = self.received.wrapping_add(requests as u16);
            self.receive.retire(self.received.wrapping_sub(1)).ok_or("no receive to retire")?;
        }
        self.take_all()
    }
}

/// Returns the entry that a device writes for a send request that begins at this block, in its first lap.
pub fn completion(qpn: Qpn, user_index: u32, counter: u16) -> Cqe {
    Cqe {
        user_index: U32::new(user_index),
        sop_qpn: U32::new(u32::from(Opcode::RDMA_WRITE.0) << 24 | qpn.get()),
        wqe_counter: U16::new(counter),
        op_own: OpOwn::new().with_opcode(CqeOpcode::REQUESTER.0).into_bits(),
        ..Cqe::UNWRITTEN
    }
}

/// The first so many requests.
fn first<'i, 'm>(ios: &'i mut [&'m mut Io], requests: usize) -> &'i mut [&'m mut Io] {
    let count = requests.min(ios.len());
    ios.split_at_mut(count).0
}

/// Configures an mkey for a list.
#[inline(always)]
fn list<const BATCHED: bool>(request: Pending<'_, '_, BATCHED>, io: &mut Io) -> Result<(), PostError> {
    let layout = Some(io.list.layout());
    request.configure_mkey(&mut io.mkey, &MkeyConfig { access: Some(ACCESS), layout, ..MkeyConfig::KEEP })
}

/// A signature of blocks of 512 bytes on the wire.
const fn wire(signature: Signature) -> BlockSignature {
    BlockSignature::wire(Domain { signature, block_size: BlockSize::B512 })
}

/// An mkey that has not been configured, of the kind that the work needs.
fn mkey(work: Work) -> Mkey {
    let psv = PsvIndex::from_low_bits;
    Mkey::new(MkeyAttributes {
        signature: work.has_signature().then(|| SignatureAttributes::new(psv(0x10), psv(0x11))),
        crypto: work.has_crypto().then_some(XtsEngine::MultiBlock),
        ..MkeyAttributes::plain(Key::from_raw(0x0012_3400), MAX_ENTRIES as u16)
    })
}
