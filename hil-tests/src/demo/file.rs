//! Sends a file through an mkey to the peer and back, with T10-DIF and AES-XTS on the wire: row C of the
//! table in man page `mlx5dv_wr_set_mkey_crypto`.

use super::kit::{KEY, OPEN, dif, domain, no_signature_error, same, signature_error};
use super::scatter::Scattered;
use crate::board::{Board, DekSpec, MkeySpec};
use crate::doorbell::Silent;
use crate::expected;
use crate::qp_pair::{QpPairFixture, Region, Rx, Tx, Verdict};
use mlx5_mkey::error::ConfigError;
use mlx5_mkey::mkey::{
    BlockSignature, Crypto, Direction, Keytag, KlmEntry, Mkey, MkeyConfig, MkeyKind, Signature,
    SignatureChange, SignatureError, SignatureErrorKind, SignatureOrder,
};
use mlx5_mkey::queue::{DoorbellRecord, SendQueue, SendQueueConfig, SendSlot};
use mlx5_mkey::types::{BlockSize, DekId, DomainKind, Tweak};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::PreparedConfig;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// The size of a protected block, in bytes.
pub const BLOCK: usize = 512;
/// The size of a block with its T10-DIF, in bytes. It is also the data unit of the cipher.
pub const UNIT: usize = 520;
/// The number of bytes of the file that one transfer moves.
pub const CHUNK: usize = 256 << 10;
/// Tweak and reference tag of the file's first block. Both increase by one from block to block.
pub const FIRST_LBA: u64 = 0x1000;
/// Application tag of all blocks.
pub const APP_TAG: u16 = 0xf11e;

/// The number of leading bytes of the file, and of the wire, that the report shows.
const SHOWN: usize = 64;

/// Relative sizes of the buffers from which a chunk of the file is sent.
const SOURCE: &[u64] = &[23, 5, 61, 3, 17, 41, 11];
/// Relative sizes of the buffers into which a chunk of the file is received.
const TARGET: &[u64] = &[7, 53, 19, 2, 31];

/// The report of sending a file and receiving it back.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of bytes that were read from the file.
    pub bytes: u64,
    /// Number of blocks of the file.
    pub blocks: u64,
    /// The number of zero bytes that fill the file's last block.
    pub padding: usize,
    /// The number of transfers in each direction: out of the source buffers, and into the target buffers.
    pub transfers: u64,
    /// Lengths of the ranges of the source buffers that the first transfer sends.
    pub source: Vec<usize>,
    /// Lengths of the ranges of the target buffers that the first transfer fills.
    pub target: Vec<usize>,
    /// The first bytes of the file.
    pub head: Vec<u8>,
    /// The first bytes that the device put on the wire.
    pub wire: Vec<u8>,
    /// The first work request, which configures the sending mkey.
    pub wqe: Vec<u8>,
    /// The bits that were flipped in the wire bytes of the first transfer, each with the device's report.
    pub spoilt: Vec<Spoilt>,
    /// The error that ended the run, if any.
    pub wrong: Option<String>,
    /// Time of configurations and transfers, without the comparisons.
    pub device_time: Duration,
}

/// A bit that was flipped in the bytes on the wire.
#[derive(Clone, Debug)]
pub struct Spoilt {
    /// The index of the byte on the wire.
    pub byte: usize,
    /// The number of the bit in that byte.
    pub bit: u8,
    /// The device's report of the flipped bit, or an error if the report was missing or wrong.
    pub caught: Result<SignatureError, String>,
}

/// Sends all bytes of `source` through one mkey to the peer, receives them back through another mkey, and
/// compares.
///
/// # Errors
/// An error of reading `source`. Errors of the device are in the report.
pub fn run(board: &mut dyn Board, mut source: impl Read) -> io::Result<Report> {
    let mut report = Report::default();
    let mut trip = Trip::new(board);
    let mut chunk = Vec::with_capacity(CHUNK);
    loop {
        chunk.clear();
        source.by_ref().take(CHUNK as u64).read_to_end(&mut chunk)?;
        if chunk.is_empty() {
            return Ok(report);
        }
        if let Err(wrong) = trip.carry(&chunk, &mut report) {
            report.wrong = Some(wrong);
            return Ok(report);
        }
    }
}

/// The path of the file: out of the source buffers, over the wire to the peer's queue pair, and back into the
/// target buffers.
struct Trip<'b> {
    pair: QpPairFixture<'b>,
    /// The configuration of both mkeys for the file's first block, or the library's refusal of it. For each
    /// chunk of the file, tweak and reference tag are changed in this configuration.
    prepared: Result<PreparedConfig, ConfigError>,
    source: Scattered,
    target: Scattered,
    /// The memory of the peer's queue pair, which receives the bytes of the wire and sends them back.
    far: Region,
    /// Positions in `pair.mkeys`: the mkey for sending (`out`), and the mkey for receiving (`back`).
    out: usize,
    back: usize,
}

impl<'b> Trip<'b> {
    fn new(board: &'b mut dyn Board) -> Self {
        let mut pair = QpPairFixture::new(board);
        let spec = MkeySpec { entries: 8, signature: true, crypto: true, ..MkeySpec::default() };
        let dek = pair.board.create_dek(DekSpec { key: &KEY, keytag: None });
        let (out, back) = (pair.mkey(spec), pair.mkey(spec));
        Self {
            prepared: prepare(pair.mkeys[out].kind(), dek),
            source: Scattered::new(&mut pair, SOURCE, CHUNK),
            target: Scattered::new(&mut pair, TARGET, CHUNK),
            far: pair.region(&vec![0; CHUNK / BLOCK * UNIT]),
            out,
            back,
            pair,
        }
    }

    /// Sends a chunk of the file to the peer's queue pair and receives it back.
    fn carry(&mut self, chunk: &[u8], report: &mut Report) -> Verdict {
        let blocks = chunk.len().div_ceil(BLOCK);
        let mut data = chunk.to_vec();
        data.resize(blocks * BLOCK, 0);
        let prepared = at_block(self.prepared, report.blocks).map_err(|error| error.to_string())?;
        let first_transfer = report.transfers == 0;
        if first_transfer {
            report.source = self.source.lengths(data.len());
            report.target = self.target.lengths(data.len());
            report.head = chunk.iter().take(SHOWN).copied().collect();
            report.wqe = first_wqe(&mut self.pair, self.out, &prepared, &self.source.entries(data.len()))?;
        }
        let far = Region { length: blocks * UNIT, ..self.far };
        let wire = self.send(&data, &prepared, &far, report)?;
        self.receive(chunk, data.len(), &prepared, &far, report)?;
        if first_transfer {
            report.wire = wire.iter().take(SHOWN).copied().collect();
        }
        report.bytes += chunk.len() as u64;
        report.blocks += blocks as u64;
        report.padding = data.len() - chunk.len();
        report.transfers += 1;
        if first_transfer {
            // The run flips a bit in the first block, and a bit near the end of the last block's data.
            for (byte, bit) in [(100, 0), (wire.len() - 40, 7)] {
                let caught = self.spoil(&wire, (byte, bit), &prepared, data.len());
                report.spoilt.push(Spoilt { byte, bit, caught });
            }
            if let Some(wrong) = report.spoilt.iter().find_map(|spoilt| spoilt.caught.clone().err()) {
                return Err(format!("spoilt wire: {wrong}"));
            }
        }
        Ok(())
    }

    /// Sends data to the peer's queue pair, and checks the bytes on the wire. Returns these bytes.
    fn send(
        &mut self,
        data: &[u8],
        prepared: &PreparedConfig,
        far: &Region,
        report: &mut Report,
    ) -> Result<Vec<u8>, String> {
        self.source.write(&mut self.pair, data);
        let start = Instant::now();
        self.pair.configure_prepared(self.out, prepared, self.source.entries(data.len()).as_slice())?;
        let wire = self.pair.tx_to(Tx::Send, self.out, 0, far)?.ok()?;
        report.device_time += start.elapsed();
        let MkeyConfig { signature, crypto, .. } = prepared.config();
        let crypto = crypto.as_ref().map(|crypto| (crypto, &KEY[..]));
        same("wire", &wire, &expected::images(data, signature.signature(), crypto).wire)?;
        no_signature_error(&mut self.pair, self.out)?;
        Ok(wire)
    }

    /// Receives `length` bytes from the peer's queue pair, and checks that the received bytes are the chunk,
    /// followed by zeros.
    fn receive(
        &mut self,
        chunk: &[u8],
        length: usize,
        prepared: &PreparedConfig,
        far: &Region,
        report: &mut Report,
    ) -> Verdict {
        self.target.write(&mut self.pair, &vec![0; length]);
        let start = Instant::now();
        self.pair.configure_prepared(self.back, prepared, self.target.entries(length).as_slice())?;
        self.pair.rx_from(Rx::Receive, self.back, 0, far)?.ok()?;
        report.device_time += start.elapsed();
        let mut received = self.target.read(&self.pair, length)?;
        no_signature_error(&mut self.pair, self.back)?;
        if received.drain(chunk.len()..).any(|byte| byte != 0) {
            return Err("the padding did not come back as zeros".into());
        }
        same("file", &received, chunk)
    }

    /// Flips a bit of the wire bytes in the peer's memory, receives the bytes from there, and checks the
    /// device's report.
    fn spoil(
        &mut self,
        wire: &[u8],
        (byte, bit): (usize, u8),
        prepared: &PreparedConfig,
        length: usize,
    ) -> Result<SignatureError, String> {
        let mut spoilt = wire.to_vec();
        spoilt[byte] ^= 1 << bit;
        let far = Region { length: wire.len(), ..self.far };
        self.pair.board.write(far.address, &spoilt);
        self.pair.configure_prepared(self.back, prepared, self.target.entries(length).as_slice())?;
        self.pair.rx_from(Rx::Receive, self.back, 0, &far)?.ok()?;
        let error = signature_error(&mut self.pair, self.back)?;
        let crypto = prepared.config().crypto.ok_or("no cipher")?;

        let block = byte / UNIT;
        let tweak = Tweak::new(crypto.tweak.get() + block as u128);
        let unit = &spoilt[block * UNIT..][..UNIT];
        let plain = expected::decrypt(&KEY, crypto.data_unit, tweak, unit);
        let (data, field) = plain.split_at(BLOCK);
        let dif = dif(APP_TAG, tweak.get() as u32);
        let computed = expected::signature(&Signature::T10Dif(dif), data, 0);
        let guard = |bytes: &[u8]| u64::from(bytes[0]) << 8 | u64::from(bytes[1]);
        let right = SignatureError {
            kind: SignatureErrorKind::Guard,
            domain: DomainKind::Wire,
            found: guard(field),
            computed: guard(&computed),
            offset: ((block + 1) * UNIT - 1) as u64,
            stride: UNIT as u32,
        };
        if error == right { Ok(error) } else { Err(format!("reported: {error}; expected: {right}")) }
    }
}

/// Prepares the mkeys' configuration for the first block of a file.
fn prepare(kind: MkeyKind, dek: DekId) -> Result<PreparedConfig, ConfigError> {
    let signature = domain(Signature::T10Dif(dif(APP_TAG, FIRST_LBA as u32)), BlockSize::B512);
    let crypto = Crypto {
        direction: Direction::EncryptOnTx,
        order: SignatureOrder::BeforeCryptoOnTx,
        data_unit: BlockSize::B520,
        tweak: Tweak::from_lba(FIRST_LBA),
        dek,
        keytag: Keytag::default(),
    };
    let signature = SignatureChange::Set(BlockSignature::wire(signature));
    PreparedConfig::new(kind, &MkeyConfig { signature, crypto: Some(crypto), ..OPEN })
}

/// Returns the configuration for a transfer that begins with block number `first` of the file.
fn at_block(
    prepared: Result<PreparedConfig, ConfigError>,
    first: u64,
) -> Result<PreparedConfig, ConfigError> {
    let (mut prepared, lba) = (prepared?, FIRST_LBA + first);
    prepared.set_tweak(Tweak::from_lba(lba))?;
    prepared.set_ref_tag(DomainKind::Wire, lba as u32)?;
    Ok(prepared)
}

/// Returns the bytes of the next work request that configures this mkey. The request is posted to a ring that
/// no device reads.
fn first_wqe(
    pair: &mut QpPairFixture<'_>,
    mkey: usize,
    prepared: &PreparedConfig,
    entries: &[KlmEntry],
) -> Result<Vec<u8>, String> {
    const BLOCKS: usize = 32;
    let (mut ring, mut slots) = ([Wqebb::ZERO; BLOCKS], SendSlot::array::<BLOCKS>());
    let record = DoorbellRecord::new();
    let settings = SendQueueConfig {
        first_block: pair.near.counters().producer,
        ..SendQueueConfig::new(pair.near.qpn())
    };
    let start = settings.first_block as usize % BLOCKS;
    let mut mkey: Mkey = pair.mkeys[mkey].clone();
    let mut queue = SendQueue::new(settings, &mut ring, &mut slots, &record, Silent)
        .map_err(|error| error.to_string())?;
    let request = queue.request(0).signaled();
    request.configure_mkey(&mut mkey, prepared, entries).map_err(|error| error.to_string())?;
    let octowords = usize::from(ring[start].0[7] & 0x3f);
    Ok(ring.iter().cycle().skip(start).flat_map(|block| block.0).take(octowords * 16).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::kit::pattern;
    use crate::demo::soft_board;
    use mlx5_mkey::mkey::{SignatureCapabilities, UmrForm, XtsEngine};
    use mlx5_softdev::Faults;

    #[test]
    fn files_of_any_length_come_back() {
        for (length, blocks, padding) in [
            (0, 0, 0),
            (1, 1, 511),
            (511, 1, 1),
            (512, 1, 0),
            (513, 2, 511),
            (CHUNK, 512, 0),
            (CHUNK + 1, 513, 511),
            (2 * CHUNK + 5000, 1034, 120),
        ] {
            let report = run(&mut soft_board(Faults::default()), &pattern(length)[..]).unwrap();
            assert_eq!(report.wrong, None, "{length}");
            assert_eq!((report.bytes, report.blocks, report.padding), (length as u64, blocks, padding));
            assert_eq!(report.transfers, length.div_ceil(CHUNK) as u64);
            assert_eq!(report.spoilt.len(), if length == 0 { 0 } else { 2 });
            assert_eq!(report.wqe.len(), if length == 0 { 0 } else { 6 * 64 });
        }
    }

    #[test]
    fn transfers_continue_one_another() {
        let data = pattern(6 * BLOCK);
        let engine = Some(XtsEngine::MultiBlock);
        let kind = MkeyKind {
            max_entries: 8,
            signature: Some(SignatureCapabilities::ALL),
            crypto: engine,
            form: UmrForm::Complete,
            entry_size: None,
        };
        let prepared = prepare(kind, DekId::default());
        let wire = |data: &[u8], first| {
            let MkeyConfig { signature, crypto, .. } = *at_block(prepared, first).unwrap().config();
            let cipher = crypto.as_ref().map(|crypto| (crypto, &KEY[..]));
            expected::images(data, signature.signature(), cipher).wire
        };
        let (start, rest) = data.split_at(2 * BLOCK);
        assert_eq!([wire(start, 0), wire(rest, 2)].concat(), wire(&data, 0));
    }

    #[test]
    fn the_first_work_request_is_the_one_that_the_device_reads() {
        let mut board = soft_board(Faults::default());
        let mut pair = QpPairFixture::new(&mut board);
        let mkey = pair.mkey(MkeySpec { entries: 8, signature: true, crypto: true, ..MkeySpec::default() });
        let mr = pair.region(&[0; BLOCK]);
        let entries = [KlmEntry { address: mr.address, length: BLOCK as u32, key: mr.key }];
        let prepared = prepare(pair.mkeys[mkey].kind(), DekId::default()).unwrap();
        // This configuration moves the producer forward, so that the request below begins at another block of
        // the ring.
        pair.configure_prepared(mkey, &prepared, &entries).unwrap();
        let wqe = first_wqe(&mut pair, mkey, &prepared, &entries).unwrap();
        let first = pair.near.counters().producer;
        assert_eq!(wqe[1..4], [(first >> 8) as u8, first as u8, 0x25]);
        assert_eq!(wqe.len(), usize::from(wqe[7]) * 16);
        assert_eq!(wqe[128..132], (BLOCK as u32).to_be_bytes());
        assert_eq!(wqe[136..144], mr.address.to_be_bytes());
    }
}
