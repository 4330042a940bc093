//! Rates and latencies of whole I/Os on a device: a queue pair that is connected to itself writes memory of
//! this process, through an mkey that is configured for each I/O.

use mlx5_mkey::command::{DekKey, KeyImport, XtsKey};
use mlx5_mkey::devx::{
    Buffer, CqReader, CqSpec, Dek, Device, MkeySpec, Mkeys, ProtectionDomain, QueuePair, QueuePairSpec,
};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, Escape, Guard, Keytag, MkeyConfig, Signature,
    SignatureChange, SignatureOrder, T10Dif, XtsEngine,
};
use mlx5_mkey::queue::{Completion, Outcome, QpRouter};
use mlx5_mkey::types::{BlockSize, Seed, Tweak};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::error::Error;
use std::time::{Duration, Instant};

/// I/Os in flight while rates are measured, each with its mkey and its memory.
const DEPTH: usize = 16;
/// Sizes of the queues: blocks of the send queue, enough for [`DEPTH`] I/Os, and receive requests of the
/// receive queue, which stays empty.
const BLOCKS: u32 = 256;
const SLOTS: u32 = 16;
/// Pieces of memory of an I/O.
const PIECES: usize = 4;
/// Bytes of an I/O.
const SIZES: [usize; 2] = [4096, 65536];
/// The most I/Os, and the longest time, of one measurement.
const IOS: usize = 4000;
const LIMIT: Duration = Duration::from_millis(500);
/// The time without a completion after which polling gives its processor core to other programs.
const SPIN: Duration = Duration::from_micros(50);
/// How long the program waits for a completion before it fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// The properties of the mkey of an I/O.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    name: &'static str,
    mkey: bool,
    signature: bool,
    xts: bool,
}

const KINDS: [Kind; 5] = [
    Kind { name: "write", mkey: false, signature: false, xts: false },
    Kind { name: "mkey", mkey: true, signature: false, xts: false },
    Kind { name: "mkey+t10dif", mkey: true, signature: true, xts: false },
    Kind { name: "mkey+xts", mkey: true, signature: false, xts: true },
    Kind { name: "mkey+t10dif+xts", mkey: true, signature: true, xts: true },
];

/// Measures each kind of I/O in each size, and prints a line for each: kind, bytes, I/Os in a second with
/// [`DEPTH`] in flight, then the latency of single I/Os in microseconds (median, 99 %, longest). For a kind
/// that the device does not support, the line has the word `skipped` and the reason.
pub(crate) fn measure(name: &str) -> Result<(), Box<dyn Error>> {
    let device = Device::open(Some(name))?;
    for kind in KINDS {
        for bytes in SIZES {
            match missing(&device, kind, bytes) {
                Some(reason) => println!("{} {bytes} skipped {reason}", kind.name),
                None => println!("{} {bytes} {}", kind.name, Load::new(&device, kind, bytes)?.measure()?),
            }
        }
    }
    Ok(())
}

/// Returns the reason why a device cannot do a kind of I/O.
fn missing(device: &Device, kind: Kind, bytes: usize) -> Option<&'static str> {
    let engine = device.capabilities().xts_engine();
    if kind.signature && device.capabilities().signatures().is_none() {
        return Some("the device has no signatures");
    }
    match device.crypto().key_import() {
        _ if !kind.xts => None,
        KeyImport::Unavailable(reason) => Some(reason),
        KeyImport::Wrapped => Some("keys must be wrapped, and only the owner can log in"),
        KeyImport::Plaintext if engine != Some(XtsEngine::SingleBlock) => None,
        KeyImport::Plaintext if bytes == 4096 && !kind.signature => None,
        KeyImport::Plaintext => Some("the engine takes one data unit for each mkey"),
    }
}

/// The objects of a measurement. The order of the fields is the order in which they are dropped.
struct Load {
    queue: QueuePair,
    completions: CqReader,
    mkeys: Mkeys,
    prepared: Option<PreparedConfig>,
    source: Buffer,
    target: Buffer,
    /// Bytes of an I/O in memory (`bytes`) and on the wire (`wire`).
    bytes: usize,
    wire: usize,
    _dek: Option<Dek>,
    _domain: ProtectionDomain,
}

impl Load {
    fn new(device: &Device, kind: Kind, bytes: usize) -> Result<Self, Box<dyn Error>> {
        let domain = device.alloc_pd()?;
        let (cq, completions) = device.create_cq(CqSpec::entries_for(1, BLOCKS, SLOTS, DEPTH as u32))?;
        let spec = QueuePairSpec { send_blocks: BLOCKS, receive_slots: SLOTS, ..QueuePairSpec::default() };
        let queue = device.create_qp(&domain, &cq, &cq, spec)?;
        queue.control().connect_loopback()?;
        let spec = MkeySpec {
            max_entries: PIECES as u32,
            signature: kind.signature.then_some(&cq),
            crypto: kind.xts,
            ..MkeySpec::default()
        };
        let mkeys = domain.create_mkeys(DEPTH, spec)?;
        let key: [u8; 64] = core::array::from_fn(|at| at as u8);
        let dek = if kind.xts {
            let key = DekKey::Plain256 { key: XtsKey::new(&key)?, keytag: None };
            Some(domain.create_dek(key, *b"loopback")?)
        } else {
            None
        };
        let wire = if kind.signature { bytes / 512 * 520 } else { bytes };
        let dif = T10Dif {
            guard: Guard::Crc,
            seed: Seed::Zeros,
            app_tag: 1,
            ref_tag: 1,
            ref_remap: true,
            escape: Escape::Never,
        };
        let signature = Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 };
        let crypto = |dek: &Dek| Crypto {
            direction: Direction::EncryptOnTx,
            order: SignatureOrder::BeforeCryptoOnTx,
            data_unit: if kind.signature { BlockSize::B520 } else { BlockSize::B4096 },
            tweak: Tweak::from_lba(1),
            dek: dek.id(),
            keytag: Keytag::default(),
        };
        let config = MkeyConfig {
            access: Some(Access::LOCAL_WRITE),
            signature: if kind.signature {
                SignatureChange::Set(BlockSignature::wire(signature))
            } else {
                SignatureChange::Keep
            },
            crypto: dek.as_ref().map(crypto),
        };
        let prepared = match mkeys.first() {
            Some(mkey) if kind.mkey => Some(PreparedConfig::new(mkey.kind(), &config)?),
            _ => None,
        };
        let source = domain.alloc_buffer(DEPTH * bytes, Access::LOCAL_WRITE)?;
        let target = domain.alloc_buffer(DEPTH * wire, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(Self {
            queue,
            completions,
            mkeys,
            prepared,
            source,
            target,
            bytes,
            wire,
            _dek: dek,
            _domain: domain,
        })
    }

    /// Measures, and returns the numbers for a line of the output of [`measure`].
    fn measure(&mut self) -> Result<String, Box<dyn Error>> {
        // The first run is not measured: its I/Os are slow, because the kernel assigns memory pages at their
        // first use.
        self.run(DEPTH, DEPTH)?;
        let (start, ios) = (Instant::now(), self.run(IOS, DEPTH)?.len());
        let rate = ios as f64 / start.elapsed().as_secs_f64();
        let mut times = self.run(IOS / 4, 1)?;
        times.sort_unstable();
        let at = |share: f64| {
            let place = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
            times.get(place).copied().unwrap_or_default().as_secs_f64() * 1e6
        };
        Ok(format!("{rate:.0} {:.1} {:.1} {:.1}", at(0.5), at(0.99), at(1.0)))
    }

    /// Performs up to `ios` I/Os with at most `depth` in flight, for [`LIMIT`] at most. Returns the time of
    /// each, from its post to its completion.
    fn run(&mut self, ios: usize, depth: usize) -> Result<Vec<Duration>, Box<dyn Error>> {
        let start = Instant::now();
        let mut posted = [start; DEPTH];
        let mut free: Vec<usize> = (0..depth.min(DEPTH)).collect();
        let (mut begun, mut times, mut last) = (0, Vec::new(), start);
        loop {
            while begun < ios && start.elapsed() < LIMIT {
                let Some(slot) = free.pop() else { break };
                posted[slot] = Instant::now();
                self.post(slot)?;
                begun += 1;
            }
            if begun == times.len() {
                return Ok(times);
            }
            let Self { queue, completions, mkeys, .. } = self;
            match completions.poll(&mut QpRouter { queues: queue, mkeys }).transpose()? {
                None if last.elapsed() > PATIENCE => return Err("no completion within ten seconds".into()),
                // A software device may need the processor core on which this loop polls.
                None if last.elapsed() > SPIN => std::thread::yield_now(),
                None => std::hint::spin_loop(),
                Some(Completion::SignatureError { position, .. }) => {
                    return Err(format!("mkey {position} has a signature error").into());
                }
                Some(Completion::Work(work)) => {
                    if let Outcome::Failed(failure) = work.outcome {
                        return Err(format!("an I/O has failed: {}", failure.syndrome).into());
                    }
                    let slot = usize::try_from(work.id)?;
                    last = Instant::now();
                    times.push(last - posted[slot]);
                    free.push(slot);
                }
            }
        }
    }

    /// Posts an I/O in the slot `slot`. A slot is the memory and the mkey of one of the [`DEPTH`] I/Os in
    /// flight.
    fn post(&mut self, slot: usize) -> Result<(), Box<dyn Error>> {
        let Self { queue, mkeys, prepared, source, target, bytes, wire, .. } = self;
        let (at, piece) = (slot * *bytes, *bytes / PIECES);
        let address = target.address() + (slot * *wire) as u64;
        let remote = Remote { address, rkey: target.rkey() };
        let id = slot as u64;
        let mut batch = queue.batch();
        let data = match prepared {
            None => source.sge(at..at + *bytes)?,
            Some(prepared) => {
                let mut entries = [source.entry(at..at + piece)?; PIECES];
                for (number, entry) in entries.iter_mut().enumerate() {
                    let begin = at + number * piece;
                    *entry = source.entry(begin..begin + piece)?;
                }
                batch.request(id).configure_mkey(&mut mkeys[slot], prepared, &entries)?;
                Sge { address: 0, length: *wire as u32, lkey: mkeys[slot].key() }
            }
        };
        batch.request(id).signaled().rdma_write(remote, &[data])?;
        drop(batch);
        Ok(())
    }
}
