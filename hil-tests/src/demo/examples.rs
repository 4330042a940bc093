//! The examples of the man pages `mlx5dv_wr_mkey_configure`, `mlx5dv_wr_set_mkey_sig_block` and
//! `mlx5dv_wr_set_mkey_crypto`, run with the pages' own parameters. Some statements of the pages are shown in
//! the same way.

use super::kit::{KEY, OPEN, dif, domain, no_signature_error, pattern, same, signature_error};
use super::scatter::Scattered;
use crate::board::{Board, DekSpec, MkeySpec};
use crate::expected::{self, Images};
use crate::qp_pair::{QpPairFixture, Rx, Tx, Verdict};
use crate::{ensure, ensure_eq};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, Escape, InterleavedEntry, Keytag, KlmEntry, Layout,
    MkeyConfig, Signature, SignatureChange, SignatureErrorKind, SignatureOrder, T10Dif, check_mask,
    job_size_allowed,
};
use mlx5_mkey::queue::{Outcome, RequestKind};
use mlx5_mkey::types::{BlockSize, Key, Seed, Tweak};
use mlx5_mkey::wire::cqe::Syndrome;

/// The observed result of an example, or the error.
type Seen = Result<String, String>;

/// An example of a man page.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The name of the man page.
    pub page: &'static str,
    /// Number or heading of the example in the man page.
    pub name: &'static str,
    /// The operation and its expected result.
    pub what: &'static str,
    /// Runs the example on a board. Returns the observed result, or the error.
    pub run: fn(&mut dyn Board) -> Seen,
}

const CONFIGURE: &str = "mlx5dv_wr_mkey_configure";
const SIG_BLOCK: &str = "mlx5dv_wr_set_mkey_sig_block";
const CRYPTO: &str = "mlx5dv_wr_set_mkey_crypto";

const fn example(
    page: &'static str,
    name: &'static str,
    run: fn(&mut dyn Board) -> Seen,
    what: &'static str,
) -> Example {
    Example { page, name, what, run }
}

/// All examples, in the pages' order.
pub const EXAMPLES: &[Example] = &[
    example(
        CONFIGURE,
        "Create QP and MKEY",
        create,
        "connected QP, indirect mkey, a request without setters",
    ),
    example(
        CONFIGURE,
        "List data layout",
        list_layout,
        "peer RDMA WRITEs 4160 bytes: 64 to mr1, 4096 to mr2",
    ),
    example(
        CONFIGURE,
        "Interleaved data layout",
        interleaved_layout,
        "2 x (512 in mr1 and skip 4, 8 in mr2); peer RDMA WRITEs 1040",
    ),
    example(
        CONFIGURE,
        "Access flags (setter)",
        access_override,
        "REMOTE_READ, then REMOTE_WRITE: only writing is allowed",
    ),
    example(
        CONFIGURE,
        "LOCAL_INV (usage)",
        local_invalidate,
        "clears the configuration; a new one brings the mkey back",
    ),
    example(SIG_BLOCK, "Example 1", sig_1, "memory CRC32 every 512, wire none: SEND checks and strips"),
    example(
        SIG_BLOCK,
        "Example 1.1",
        sig_1_1,
        "the same, RECV: generates and scatters a CRC32 after every 512",
    ),
    example(SIG_BLOCK, "Example 2", sig_2, "memory none, wire T10-DIF every 4K: peer RDMA READs"),
    example(
        SIG_BLOCK,
        "Example 2.1",
        sig_2_1,
        "the same, peer RDMA WRITEs: checks, strips, scatters the data",
    ),
    example(
        SIG_BLOCK,
        "check_mask",
        partial_check,
        "one half of the application tag is checked, the other is not",
    ),
    example(
        SIG_BLOCK,
        "copy_mask",
        preserve,
        "an application tag not known in advance is preserved unchecked",
    ),
    example(SIG_BLOCK, "APP_ESCAPE", escape, "blocks with application tag FFFF are not checked"),
    example(CRYPTO, "Example 1", crypto_1, "row F: memory is encrypted, SEND decrypts; either order"),
    example(CRYPTO, "Example 1.1", crypto_1_1, "the same, RECV encrypts; either order"),
    example(CRYPTO, "Example 2", crypto_2, "row C: wire T10-DIF every 512, units of 520: peer READs"),
    example(CRYPTO, "Example 2.1", crypto_2_1, "the same, peer WRITEs: decrypts, checks, strips, scatters"),
    example(CRYPTO, "key_tag", keytag, "must match that of the DEK, where the DEK has one"),
    example(CRYPTO, "job_size, unit 512", job_sizes_512, "512 (rule 1) and 128 (rule 2) pass, 47 does not"),
    example(CRYPTO, "job_size, unit 520", job_sizes_520, "520 (rule 1) and 496 (rule 2) pass, 512 does not"),
];

/// The byte that fills memory before, between and after the data.
const GAP: u8 = 0x5c;

// ── Examples of mlx5dv_wr_mkey_configure ──

fn create(board: &mut dyn Board) -> Seen {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(MkeySpec { entries: 4, ..MkeySpec::default() });
    pair.configure(mkey, &MkeyConfig::UNCHANGED, Layout::Unchanged)?;
    let moved = pair.tx(Tx::Write, mkey, 0, 64)?;
    ensure!(moved.requester.is_some(), "an mkey without layout let 64 bytes through");
    Ok("configured (DRIVER1); without a layout it carries nothing".into())
}

fn list_layout(board: &mut dyn Board) -> Seen {
    let mut pair = QpPairFixture::new(board);
    let mr1 = pair.region(&[GAP; 100]);
    let mr2 = pair.region(&[GAP; 4200]);
    let mkey = pair.mkey(MkeySpec { entries: 4, ..MkeySpec::default() });
    let sgl = [entry(mr1.address, 64, mr1.key), entry(mr2.address, 4096, mr2.key)];
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    pair.configure(mkey, &MkeyConfig { access: Some(access), ..MkeyConfig::UNCHANGED }, &sgl)?;
    let data = pattern(4160);
    pair.rx(Rx::PeerWrite, mkey, 0, &data)?.ok()?;
    same("mr1", &pair.bytes(&mr1), &[&data[..64], &[GAP; 36]].concat())?;
    same("mr2", &pair.bytes(&mr2), &[&data[64..], &[GAP; 104]].concat())?;
    same("read back", &pair.tx(Tx::PeerRead, mkey, 0, 4160)?.ok()?, &data)?;
    Ok("bytes 0-63 in mr1, 64-4159 in mr2, nothing beside them; peer READs the same".into())
}

fn interleaved_layout(board: &mut dyn Board) -> Seen {
    let mut pair = QpPairFixture::new(board);
    let mr1 = pair.region(&[GAP; 1100]);
    let mr2 = pair.region(&[GAP; 40]);
    // The man page requires an mkey with one entry more than the layout has.
    let mkey = pair.mkey(MkeySpec { entries: 3, ..MkeySpec::default() });
    let entries = [
        InterleavedEntry { address: mr1.address, bytes: 512, skip: 4, key: mr1.key },
        InterleavedEntry { address: mr2.address, bytes: 8, skip: 0, key: mr2.key },
    ];
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let config = MkeyConfig { access: Some(access), ..MkeyConfig::UNCHANGED };
    pair.configure(mkey, &config, Layout::Interleaved { repeat: 2, entries: &entries })?;
    let sent = pattern(1040);
    pair.rx(Rx::PeerWrite, mkey, 0, &sent)?.ok()?;
    let (found1, found2) = (pair.bytes(&mr1), pair.bytes(&mr2));
    same("mr1 from 0", &found1[..512], &sent[..512])?;
    same("gap in mr1", &found1[512..516], &[GAP; 4])?;
    same("mr1 from 516", &found1[516..1028], &sent[520..1032])?;
    same("mr1 from 1028", &found1[1028..], &[GAP; 72])?;
    same("mr2", &found2[..16], &[&sent[512..520], &sent[1032..]].concat())?;
    same("mr2 from 16", &found2[16..], &[GAP; 24])?;
    same("read back", &pair.tx(Tx::PeerRead, mkey, 0, 1040)?.ok()?, &sent)?;
    Ok("0-511 mr1+0, 512-519 mr2+0, 520-1031 mr1+516, 1032-1039 mr2+8; mr1[512..516) intact".into())
}

fn access_override(board: &mut dyn Board) -> Seen {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(64);
    let mr = pair.region(&data);
    let mkey = pair.mkey(MkeySpec { entries: 4, ..MkeySpec::default() });
    let sgl = [entry(mr.address, 64, mr.key)];
    let access = |access| MkeyConfig { access: Some(access), ..MkeyConfig::UNCHANGED };
    pair.configure(mkey, &access(Access::REMOTE_READ), &sgl)?;
    same("READ", &pair.tx(Tx::PeerRead, mkey, 0, 64)?.ok()?, &data)?;
    refused(&mut pair, "WRITE under REMOTE_READ", |pair| pair.rx(Rx::PeerWrite, mkey, 0, &[1; 64]))?;
    same("memory", &pair.bytes(&mr), &data)?;

    pair.configure(mkey, &access(Access::REMOTE_WRITE), Layout::Unchanged)?;
    let new = [0xa7; 64];
    pair.rx(Rx::PeerWrite, mkey, 0, &new)?.ok()?;
    same("memory", &pair.bytes(&mr), &new)?;
    let why = refused(&mut pair, "READ under REMOTE_WRITE", |pair| pair.tx(Tx::PeerRead, mkey, 0, 64))?;
    Ok(format!("after the second request WRITE passes and READ is refused: {why}"))
}

fn local_invalidate(board: &mut dyn Board) -> Seen {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(64);
    let mr = pair.region(&data);
    let mkey = pair.mkey(MkeySpec { entries: 4, ..MkeySpec::default() });
    let sgl = [entry(mr.address, 64, mr.key)];
    pair.configure(mkey, &OPEN, &sgl)?;
    same("wire", &pair.tx(Tx::Write, mkey, 0, 64)?.ok()?, &data)?;
    pair.near
        .request(1)
        .signaled()
        .invalidate_mkey(&mut pair.mkeys[mkey])
        .map_err(|error| error.to_string())?;
    pair.near.ring_doorbell();
    pair.run_device()?;
    let done: Vec<_> = pair.wait_near(1)?.into_iter().map(|completion| completion.outcome).collect();
    ensure_eq!(done, [Outcome::Sent { kind: RequestKind::LocalInvalidate, bytes: 0 }], "LOCAL_INV");
    let why = refused(&mut pair, "use after LOCAL_INV", |pair| pair.tx(Tx::Write, mkey, 0, 64))?;
    pair.configure(mkey, &OPEN, &sgl)?;
    same("wire", &pair.tx(Tx::Write, mkey, 0, 64)?.ok()?, &data)?;
    Ok(format!("use of the cleared mkey is refused: {why}"))
}

const fn entry(address: u64, length: u32, key: Key) -> KlmEntry {
    KlmEntry { address, length, key }
}

/// Performs an operation that the device must refuse, and reconnects the queue pairs, which the error has
/// stopped. Returns the syndrome that the requester received.
fn refused(
    pair: &mut QpPairFixture<'_>,
    what: &str,
    act: impl FnOnce(&mut QpPairFixture<'_>) -> Result<crate::qp_pair::Moved, String>,
) -> Result<Syndrome, String> {
    let moved = act(pair)?;
    pair.reconnect();
    moved.requester.map(|failure| failure.syndrome).ok_or_else(|| format!("{what} was not refused"))
}

// ── Examples of mlx5dv_wr_set_mkey_sig_block ──

/// An mkey with a signature or crypto properties, its memory, and the bytes that are expected in memory and
/// on the wire.
pub(super) struct Setup<'b> {
    pair: QpPairFixture<'b>,
    mkey: usize,
    signature: Option<BlockSignature>,
    crypto: Option<Crypto>,
    buffers: Scattered,
    images: Images,
}

impl<'b> Setup<'b> {
    /// Creates an mkey and its memory, and configures the mkey.
    pub(super) fn new(
        board: &'b mut dyn Board,
        data: &[u8],
        signature: Option<BlockSignature>,
        crypto: Option<Crypto>,
    ) -> Result<Self, String> {
        let mut pair = QpPairFixture::new(board);
        let mkey = pair.mkey(MkeySpec {
            entries: 4,
            signature: signature.is_some(),
            crypto: crypto.is_some(),
            ..MkeySpec::default()
        });
        let cipher = crypto.as_ref().map(|crypto| (crypto, &KEY[..]));
        let images = expected::images(data, signature.as_ref(), cipher);
        let buffers = Scattered::holding(&mut pair, &[13, 2, 29, 7], &images.memory);
        let mut setup = Self { pair, mkey, signature, crypto, buffers, images };
        setup.configure()?;
        Ok(setup)
    }

    /// Configures the mkey over the same memory again.
    fn configure(&mut self) -> Verdict {
        let entries = self.buffers.entries(self.images.memory.len());
        let config = MkeyConfig {
            signature: self.signature.map_or(SignatureChange::Keep, SignatureChange::Set),
            crypto: self.crypto,
            ..OPEN
        };
        self.pair.configure(self.mkey, &config, entries.as_slice())
    }

    /// Moves data out of the mkey and compares the bytes on the wire with the expected ones.
    pub(super) fn transmit(&mut self, way: Tx) -> Verdict {
        let wire = self.pair.tx(way, self.mkey, 0, self.images.wire.len())?.ok()?;
        same("wire", &wire, &self.images.wire)?;
        self.quiet()
    }

    /// Moves data into the mkey and compares memory with the expected bytes.
    pub(super) fn receive(&mut self, way: Rx) -> Verdict {
        let length = self.images.memory.len();
        self.buffers.write(&mut self.pair, &vec![0; length]);
        self.pair.rx(way, self.mkey, 0, &self.images.wire)?.ok()?;
        same("memory", &self.buffers.read(&self.pair, length)?, &self.images.memory)?;
        self.quiet()
    }

    fn quiet(&mut self) -> Verdict {
        if self.signature.is_some() { no_signature_error(&mut self.pair, self.mkey) } else { Ok(()) }
    }

    /// Flips a bit of the byte at each of these offsets in memory.
    fn spoil_memory(&mut self, places: &[usize]) {
        let spoilt = spoil(&self.images.memory, places);
        self.buffers.write(&mut self.pair, &spoilt);
    }

    fn lengths(&self) -> String {
        format!("{} in memory, {} on the wire", self.images.memory.len(), self.images.wire.len())
    }
}

fn spoil(bytes: &[u8], places: &[usize]) -> Vec<u8> {
    let mut spoilt = bytes.to_vec();
    places.iter().for_each(|&place| spoilt[place] ^= 0x10);
    spoilt
}

/// The signature of example 1 in `mlx5dv_wr_set_mkey_sig_block`. The man page does not state the seed.
const CRC32: BlockSignature = BlockSignature::memory(domain(Signature::Crc32(Seed::Ones), BlockSize::B512));

/// The signature of example 2 in `mlx5dv_wr_set_mkey_sig_block`. The man page does not state the tags.
const DIF_4K: BlockSignature =
    BlockSignature::wire(domain(Signature::T10Dif(dif(0xabcd, 0xffff_fffe)), BlockSize::B4096));

fn sig_1(board: &mut dyn Board) -> Seen {
    let mut setup = Setup::new(board, &pattern(4 * 512), Some(CRC32), None)?;
    setup.transmit(Tx::Send)?;
    // A byte of block 2 is wrong. The device finds the error while it sends.
    setup.spoil_memory(&[2 * 516 + 77]);
    setup.pair.tx(Tx::Send, setup.mkey, 0, 4 * 512)?.ok()?;
    let error = signature_error(&mut setup.pair, setup.mkey)?;
    let blocks: Vec<&[u8]> = setup.images.memory.chunks(516).collect();
    let spoilt = spoil(blocks[2], &[77]);
    let computed = expected::signature(&Signature::Crc32(Seed::Ones), &spoilt[..512], 2);
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    ensure_eq!(
        (error.kind, error.block_index(), error.found, error.computed),
        (SignatureErrorKind::Guard, 2, word(&spoilt[512..]), word(&computed)),
        "signature error"
    );
    Ok(format!("{}; byte spoilt: {error}", setup.lengths()))
}

fn sig_1_1(board: &mut dyn Board) -> Seen {
    let mut setup = Setup::new(board, &pattern(4 * 512), Some(CRC32), None)?;
    setup.receive(Rx::Receive)?;
    Ok(setup.lengths())
}

fn sig_2(board: &mut dyn Board) -> Seen {
    let mut setup = Setup::new(board, &pattern(3 * 4096), Some(DIF_4K), None)?;
    setup.transmit(Tx::PeerRead)?;
    Ok(setup.lengths())
}

fn sig_2_1(board: &mut dyn Board) -> Seen {
    let mut setup = Setup::new(board, &pattern(3 * 4096), Some(DIF_4K), None)?;
    setup.receive(Rx::PeerWrite)?;
    // The device reports the first of two wrong blocks. After a new configuration it reports errors of the
    // mkey again.
    for places in [[4104 + 9, 2 * 4104 + 9], [100, 4104 + 9]] {
        let spoilt = spoil(&setup.images.wire, &places);
        setup.pair.rx(Rx::PeerWrite, setup.mkey, 0, &spoilt)?.ok()?;
        let error = signature_error(&mut setup.pair, setup.mkey)?;
        ensure_eq!(error.kind, SignatureErrorKind::Guard, "kind of the signature error");
        ensure_eq!(error.block_index(), places[0] as u64 / 4104, "block of the signature error");
        setup.configure()?;
    }
    Ok(format!("{}; spoilt blocks 1 and 2: block 1 reported", setup.lengths()))
}

fn partial_check(board: &mut dyn Board) -> Seen {
    let dif = Signature::T10Dif(dif(0xabcd, 7));
    // The mask leaves out the low byte of the application tag.
    let signature = BlockSignature::wire(domain(dif, BlockSize::B512)).with_check_mask(!0x10);
    let mut setup = Setup::new(board, &pattern(512), Some(signature), None)?;
    let spoilt = spoil(&setup.images.wire, &[515]);
    setup.pair.rx(Rx::Receive, setup.mkey, 0, &spoilt)?.ok()?;
    no_signature_error(&mut setup.pair, setup.mkey)?;
    let spoilt = spoil(&setup.images.wire, &[514]);
    setup.pair.rx(Rx::Receive, setup.mkey, 0, &spoilt)?.ok()?;
    let error = signature_error(&mut setup.pair, setup.mkey)?;
    ensure_eq!((error.kind, error.found), (SignatureErrorKind::AppTag, 0xbbcd), "signature error");
    Ok(format!("mask ef: low byte changed: passes; high byte: {error}"))
}

fn preserve(board: &mut dyn Board) -> Seen {
    let dif = domain(Signature::T10Dif(dif(0, 7)), BlockSize::B512);
    let signature = BlockSignature::both(dif, dif)
        .with_check_mask(!check_mask::T10DIF_APP_TAG)
        .with_copy_mask(check_mask::T10DIF_APP_TAG)
        .map_err(|error| error.to_string())?;
    let mut setup = Setup::new(board, &pattern(2 * 512), Some(signature), None)?;
    for (block, tag) in [0xfeed_u16, 0x0bad].into_iter().enumerate() {
        let at = block * 520 + 514;
        setup.images.memory[at..at + 2].copy_from_slice(&tag.to_be_bytes());
    }
    setup.images.wire = setup.images.memory.clone();
    let memory = setup.images.memory.clone();
    setup.buffers.write(&mut setup.pair, &memory);
    setup.transmit(Tx::Send)?;
    setup.receive(Rx::Receive)?;
    Ok("masks check cf, copy 30: tags feed and 0bad cross in both directions".into())
}

fn escape(board: &mut dyn Board) -> Seen {
    let escaping = T10Dif { escape: Escape::AppTag, ..dif(0xabcd, 7) };
    let of = |dif| BlockSignature::wire(domain(Signature::T10Dif(dif), BlockSize::B512));
    let mut setup = Setup::new(board, &pattern(2 * 512), Some(of(escaping)), None)?;
    let mut wire = setup.images.wire.clone();
    wire[512..516].copy_from_slice(&[0, 0, 0xff, 0xff]);
    setup.pair.rx(Rx::Receive, setup.mkey, 0, &wire)?.ok()?;
    no_signature_error(&mut setup.pair, setup.mkey)?;
    setup.signature = Some(of(T10Dif { escape: Escape::Never, ..escaping }));
    setup.configure()?;
    setup.pair.rx(Rx::Receive, setup.mkey, 0, &wire)?.ok()?;
    let error = signature_error(&mut setup.pair, setup.mkey)?;
    ensure_eq!((error.kind, error.found), (SignatureErrorKind::Guard, 0), "signature error");
    Ok(format!("wrong guard, tag FFFF: passes; without the flag: {error}"))
}

// ── Examples of mlx5dv_wr_set_mkey_crypto ──

/// Creates a DEK from the demo's key, and returns crypto properties that use the DEK.
fn crypto(
    board: &mut dyn Board,
    direction: Direction,
    order: SignatureOrder,
    data_unit: BlockSize,
) -> Crypto {
    let dek = board.create_dek(DekSpec { key: &KEY, keytag: None });
    Crypto { direction, order, data_unit, tweak: Tweak::from_lba(0x1000), dek, keytag: Keytag::default() }
}

/// Runs `act` on row F of the table in `mlx5dv_wr_set_mkey_crypto`, with both orders of cipher and signature.
fn row_f(board: &mut dyn Board, act: fn(&mut Setup<'_>) -> Verdict) -> Seen {
    let mut seen = String::new();
    for order in [SignatureOrder::AfterCryptoOnTx, SignatureOrder::BeforeCryptoOnTx] {
        let crypto = crypto(board, Direction::DecryptOnTx, order, BlockSize::B512);
        let mut setup = Setup::new(board, &pattern(3 * 512), None, Some(crypto))?;
        act(&mut setup).map_err(|error| format!("{order:?}: {error}"))?;
        seen = format!("{}; both orders give the same bytes", setup.lengths());
    }
    Ok(seen)
}

fn crypto_1(board: &mut dyn Board) -> Seen {
    row_f(board, |setup| setup.transmit(Tx::Send))
}

fn crypto_1_1(board: &mut dyn Board) -> Seen {
    row_f(board, |setup| setup.receive(Rx::Receive))
}

/// Configures an mkey as row C of the table in `mlx5dv_wr_set_mkey_crypto` says, with the parameters of
/// example 2 of this man page, which does not state tags and tweak.
fn row_c(board: &mut dyn Board) -> Result<Setup<'_>, String> {
    let order = SignatureOrder::BeforeCryptoOnTx;
    let crypto = crypto(board, Direction::EncryptOnTx, order, BlockSize::B520);
    let dif: Domain = domain(Signature::T10Dif(dif(0xabcd, 0x1000)), BlockSize::B512);
    Setup::new(board, &pattern(3 * 512), Some(BlockSignature::wire(dif)), Some(crypto))
}

fn crypto_2(board: &mut dyn Board) -> Seen {
    let mut setup = row_c(board)?;
    setup.transmit(Tx::PeerRead)?;
    Ok(setup.lengths())
}

fn crypto_2_1(board: &mut dyn Board) -> Seen {
    let mut setup = row_c(board)?;
    setup.receive(Rx::PeerWrite)?;
    let spoilt = spoil(&setup.images.wire, &[520 + 33]);
    setup.pair.rx(Rx::PeerWrite, setup.mkey, 0, &spoilt)?.ok()?;
    let error = signature_error(&mut setup.pair, setup.mkey)?;
    ensure_eq!((error.kind, error.block_index()), (SignatureErrorKind::Guard, 1), "signature error");
    Ok(format!("{}; bit spoilt: {error}", setup.lengths()))
}

fn keytag(board: &mut dyn Board) -> Seen {
    const TAG: [u8; 8] = *b"disk-007";
    let order = SignatureOrder::AfterCryptoOnTx;
    let plain = crypto(board, Direction::EncryptOnTx, order, BlockSize::B512);
    let dek = board.create_dek(DekSpec { key: &KEY, keytag: Some(TAG) });
    let right = Crypto { dek, keytag: Keytag(TAG), ..plain };
    let mut setup = Setup::new(board, &pattern(512), None, Some(right))?;
    setup.transmit(Tx::Write)?;
    let mkey = setup.mkey;
    setup.crypto = Some(Crypto { keytag: Keytag(*b"disk-008"), ..right });
    let why = match setup.configure() {
        Ok(()) => {
            refused(&mut setup.pair, "a wrong keytag", |pair| pair.tx(Tx::Write, mkey, 0, 512))?.to_string()
        }
        Err(error) => error,
    };
    Ok(format!("the right tag passes, a wrong one is refused: {why}"))
}

/// Sends transfers ("jobs") of these three lengths through an mkey with crypto properties. The last length
/// breaks the man page's rule for job sizes, so the device must refuse it.
fn job_sizes(board: &mut dyn Board, unit: BlockSize, jobs: [usize; 3]) -> Seen {
    let mut why = String::new();
    for job in jobs {
        let allowed = job != jobs[2];
        ensure_eq!(job_size_allowed(job as u64, unit), allowed, "job_size_allowed({job})");
        let crypto = crypto(board, Direction::EncryptOnTx, SignatureOrder::AfterCryptoOnTx, unit);
        if allowed {
            let mut setup = Setup::new(board, &pattern(job), None, Some(crypto))?;
            setup.transmit(Tx::Write).map_err(|error| format!("{job} bytes: {error}"))?;
            setup.receive(Rx::Receive).map_err(|error| format!("{job} bytes: {error}"))?;
        } else {
            // The mkey maps two whole data units, so only the length of the transfer is wrong.
            let data = pattern(2 * unit.bytes() as usize);
            let mut setup = Setup::new(board, &data, None, Some(crypto))?;
            let mkey = setup.mkey;
            let reason =
                refused(&mut setup.pair, "a job of that size", |pair| pair.tx(Tx::Write, mkey, 0, job))?;
            why = format!("{} and {} pass, {job} is refused: {reason}", jobs[0], jobs[1]);
        }
    }
    Ok(why)
}

fn job_sizes_512(board: &mut dyn Board) -> Seen {
    job_sizes(board, BlockSize::B512, [512, 128, 47])
}

fn job_sizes_520(board: &mut dyn Board) -> Seen {
    job_sizes(board, BlockSize::B520, [520, 496, 512])
}
