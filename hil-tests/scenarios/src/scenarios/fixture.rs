//! The fixture of most scenarios: two connected ends and an mkey with its memory. Its functions configure the
//! mkey, move data through it, and check bytes and errors.

use crate::assumption::assumed;
use crate::board::{Board, DekSpec, MkeySpec};
use crate::expected::{Images, images};
use crate::qp_pair::{Moved, QpPairFixture, Region, Rx, Tx, Verdict, Within, text};
use crate::{ensure, ensure_eq};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{Debug, Display};
use core::ops::Range;
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, Escape, Guard, Keytag, KlmEntry, Layout, MkeyConfig,
    Signature, SignatureChange, SignatureError, SignatureErrorKind, SignatureOrder, T10Dif, UmrForm,
};
use mlx5_mkey::queue::Failure;
use mlx5_mkey::types::{BlockSize, DekId, DomainKind, Seed, Tweak};
use mlx5_mkey::wire::cqe::Syndrome;

/// A plain mkey with room for eight entries.
pub(super) const PLAIN: MkeySpec = MkeySpec {
    entries: 8,
    signature: false,
    crypto: false,
    remote_invalidate: false,
    form: UmrForm::Complete,
    entry_size: None,
};
/// An mkey that can have a block signature.
pub(super) const SIGNATURE: MkeySpec = MkeySpec { signature: true, ..PLAIN };
/// An mkey that can have crypto properties.
pub(super) const CRYPTO: MkeySpec = MkeySpec { crypto: true, ..PLAIN };
/// An mkey that can have both block signature and crypto properties.
pub(super) const BOTH: MkeySpec = MkeySpec { signature: true, crypto: true, ..PLAIN };

/// All access rights. Layout, signature and crypto properties stay as they are.
pub(super) const ALL_RIGHTS: MkeyConfig = MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED };

/// A T10-DIF in which no field has its zero value.
pub(super) const DIF: T10Dif = T10Dif {
    guard: Guard::Crc,
    seed: Seed::Ones,
    app_tag: 0x5678,
    ref_tag: 0xf0de_bc9a,
    ref_remap: true,
    escape: Escape::Never,
};

/// Keys for AES-128-XTS (`KEY_128`) and AES-256-XTS (`KEY_256`).
pub(super) const KEY_128: [u8; 32] = {
    let mut key = [0x27; 32];
    key[0] = 1;
    key[31] = 2;
    key
};
pub(super) const KEY_256: [u8; 64] = {
    let mut key = [0x93; 64];
    key[0] = 3;
    key[15] = 4;
    key[31] = 5;
    key[32] = 6;
    key[63] = 7;
    key
};

/// Returns a domain with this T10-DIF and block size.
pub(super) const fn dif_domain(dif: T10Dif, block_size: BlockSize) -> Domain {
    Domain { signature: Signature::T10Dif(dif), block_size }
}

/// Returns a domain with this signature after each 512 bytes.
pub(super) const fn domain(signature: Signature) -> Domain {
    Domain { signature, block_size: BlockSize::B512 }
}

/// Returns crypto properties with this direction, order, data unit and DEK. The first tweak is the same in
/// all scenarios.
pub(super) const fn crypto(
    direction: Direction,
    order: SignatureOrder,
    data_unit: BlockSize,
    dek: DekId,
) -> Crypto {
    Crypto { direction, order, data_unit, tweak: Tweak::from_lba(0x1000), dek, keytag: Keytag([0; 8]) }
}

/// Creates a DEK of `KEY_128`. Returns crypto properties that encrypt outgoing blocks of 512 bytes together
/// with their T10-DIF.
pub(super) fn cipher_over_dif(board: &mut dyn Board) -> Crypto {
    let dek = board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    crypto(Direction::EncryptOnTx, SignatureOrder::BeforeCryptoOnTx, BlockSize::B520, dek)
}

/// Returns pseudo-random bytes. No two blocks are equal, and each `salt` makes other bytes.
pub(super) fn pattern(length: usize, salt: u8) -> Vec<u8> {
    let mut state = 0x9e37_79b9u32 ^ u32::from(salt) << 24;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as u8
        })
        .collect()
}

/// Returns the bytes of a range, or no bytes if the range reaches past their end.
pub(super) fn part(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or(&[])
}

/// Returns a copy of the bytes in which the `bits` of the byte at `at` are flipped.
pub(super) fn flipped(bytes: &[u8], at: usize, bits: u8) -> Vec<u8> {
    replaced(bytes, at, &[part(bytes, at..at + 1).first().copied().unwrap_or(0) ^ bits])
}

/// Returns a copy of the bytes in which the bytes from `at` on are replaced by `with`. The length stays the
/// same.
pub(super) fn replaced(bytes: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    [part(bytes, 0..at), with, bytes.get(at + with.len()..).unwrap_or(&[])].concat()
}

/// Makes an entry of a list layout.
pub(super) fn entry(region: &Region, range: Range<usize>) -> KlmEntry {
    KlmEntry { address: region.address + range.start as u64, length: range.len() as u32, key: region.key }
}

/// Checks that a transfer failed with these syndromes at requester and receiver. `None` means that the side
/// has no failure.
pub(super) fn fails(
    what: impl Display,
    moved: &Moved,
    requester: Option<Syndrome>,
    receiver: Option<Syndrome>,
) -> Verdict {
    let syndrome = |failure: Option<Failure>| failure.map(|failure| failure.syndrome);
    ensure_eq!(syndrome(moved.requester), requester, "{what}: requester");
    ensure_eq!(syndrome(moved.receiver), receiver, "{what}: receiver");
    Ok(())
}

/// Returns the syndromes, at requester and receiver, of a transfer out of an mkey without the required access
/// right.
pub(super) const fn tx_refusal(way: Tx) -> (Option<Syndrome>, Option<Syndrome>) {
    match way {
        Tx::Send | Tx::Write => (Some(Syndrome::LOCAL_PROTECTION), None),
        Tx::PeerRead => (Some(Syndrome::REMOTE_ACCESS), None),
    }
}

/// Returns the syndromes, at requester and receiver, of a transfer into an mkey without the required access
/// right.
pub(super) const fn rx_refusal(way: Rx) -> (Option<Syndrome>, Option<Syndrome>) {
    match way {
        Rx::Receive => (Some(Syndrome::REMOTE_OPERATION), Some(Syndrome::LOCAL_PROTECTION)),
        Rx::PeerWrite => (Some(Syndrome::REMOTE_ACCESS), None),
        Rx::Read => (Some(Syndrome::LOCAL_PROTECTION), None),
    }
}

/// Checks that the device refuses a transfer out of an mkey as it refuses one without the required access
/// right. Reconnects the pair.
pub(super) fn refuses_tx(
    pair: &mut QpPairFixture<'_>,
    way: Tx,
    mkey: usize,
    offset: u64,
    length: usize,
) -> Verdict {
    let moved = pair.tx(way, mkey, offset, length)?;
    let (requester, receiver) = tx_refusal(way);
    fails(format_args!("{way:?} of {length} bytes at {offset:#x}"), &moved, requester, receiver)?;
    pair.reconnect();
    Ok(())
}

/// Checks that the device refuses a transfer into an mkey, as [`refuses_tx`] does.
pub(super) fn refuses_rx(
    pair: &mut QpPairFixture<'_>,
    way: Rx,
    mkey: usize,
    offset: u64,
    wire: &[u8],
) -> Verdict {
    let moved = pair.rx(way, mkey, offset, wire)?;
    let (requester, receiver) = rx_refusal(way);
    fails(format_args!("{way:?} of {} bytes at {offset:#x}", wire.len()), &moved, requester, receiver)?;
    pair.reconnect();
    Ok(())
}

/// Moves data out of an mkey by each method (SEND, RDMA WRITE, RDMA READ), and checks the bytes.
pub(super) fn out(pair: &mut QpPairFixture<'_>, mkey: usize, offset: u64, expected: &[u8]) -> Verdict {
    for way in Tx::ALL {
        let bytes = pair.tx(way, mkey, offset, expected.len())?.ok()?;
        same(&bytes, expected).within(format_args!("{way:?} of {} at {offset}", expected.len()))?;
    }
    Ok(())
}

/// Two connected ends, an mkey of the near end, and the mkey's memory.
pub(super) struct MkeyFixture<'b> {
    pub(super) pair: QpPairFixture<'b>,
    pub(super) mkey: usize,
    pub(super) memory: Region,
    spec: MkeySpec,
}

impl<'b> MkeyFixture<'b> {
    /// Connects two ends of the board, and creates an mkey of the near end. The mkey has no configuration,
    /// and its memory is a single byte.
    pub(super) fn new(board: &'b mut dyn Board, spec: MkeySpec) -> Self {
        let mut pair = QpPairFixture::new(board);
        let mkey = pair.mkey(spec);
        let memory = pair.region(&[0]);
        Self { pair, mkey, memory, spec }
    }

    /// Connects two ends, and installs an mkey over these bytes, without signature and crypto properties.
    ///
    /// # Errors
    /// If the device refuses the configuration.
    pub(super) fn plain(board: &'b mut dyn Board, spec: MkeySpec, memory: &[u8]) -> Result<Self, String> {
        let mut fixture = Self::new(board, spec);
        fixture.install(memory, None, None)?;
        Ok(fixture)
    }

    /// Connects two ends, and installs an mkey with this signature, whose memory contains `data`. Returns the
    /// bytes in memory and on the wire, too.
    ///
    /// # Errors
    /// If the device refuses the configuration.
    pub(super) fn signed(
        board: &'b mut dyn Board,
        data: &[u8],
        signature: &BlockSignature,
    ) -> Result<(Self, Images), String> {
        let mut fixture = Self::new(board, SIGNATURE);
        let images = fixture.install_images(data, Some(signature), None)?;
        Ok((fixture, images))
    }

    /// Replaces the mkey by a new one. Call this after a violated assumption: the device may have reported a
    /// signature error for the old mkey, and the old mkey's state is unknown.
    pub(super) fn renew_mkey(&mut self) {
        self.mkey = self.pair.mkey(self.spec);
    }

    /// Writes the bytes to new memory, and configures the mkey over it in three entries of uneven lengths,
    /// with all rights, and with this signature and these crypto properties.
    pub(super) fn install(
        &mut self,
        memory: &[u8],
        signature: Option<&BlockSignature>,
        crypto: Option<&Crypto>,
    ) -> Verdict {
        let signature = signature.copied().map_or(SignatureChange::Reset, SignatureChange::Set);
        self.install_as(memory, &MkeyConfig { signature, crypto: crypto.copied(), ..ALL_RIGHTS })
    }

    /// Installs the bytes that `data` (plaintext without signatures) have in memory with this signature and
    /// these crypto properties and key. Returns the bytes in memory and on the wire.
    pub(super) fn install_images(
        &mut self,
        data: &[u8],
        signature: Option<&BlockSignature>,
        crypto: Option<(&Crypto, &[u8])>,
    ) -> Result<Images, String> {
        let images = images(data, signature, crypto);
        self.install(&images.memory, signature, crypto.map(|(crypto, _)| crypto))?;
        Ok(images)
    }

    /// Writes the bytes to new memory, and configures the mkey over it as [`MkeyFixture::install`] does, with
    /// this configuration.
    pub(super) fn install_as(&mut self, memory: &[u8], config: &MkeyConfig) -> Verdict {
        self.memory = self.pair.region(memory);
        let entries = self.entries();
        self.change(config, &entries)
    }

    /// Divides the memory into three entries whose borders are not aligned.
    pub(super) fn entries(&self) -> [KlmEntry; 3] {
        let length = self.memory.length;
        let (first, second) = (length / 3 + 1, (length / 2 + 3).min(length - 1));
        [
            entry(&self.memory, 0..first),
            entry(&self.memory, first..second),
            entry(&self.memory, second..length),
        ]
    }

    /// Configures the mkey, and waits for the completion.
    pub(super) fn change<'l>(&mut self, config: &MkeyConfig, layout: impl Into<Layout<'l>>) -> Verdict {
        self.pair.configure(self.mkey, config, layout)
    }

    /// Sets a signature and keeps all other properties.
    pub(super) fn set_signature(&mut self, block: &BlockSignature) -> Verdict {
        let signature = SignatureChange::Set(*block);
        self.change(&MkeyConfig { signature, ..MkeyConfig::UNCHANGED }, Layout::Unchanged)
    }

    /// Moves data out of the mkey, and checks that the bytes equal `wire` and that there is no signature
    /// error.
    pub(super) fn out(&mut self, way: Tx, offset: u64, wire: &[u8]) -> Verdict {
        let moved = self.pair.tx(way, self.mkey, offset, wire.len())?;
        let bytes = moved.ok().within(format_args!("{way:?}"))?;
        same(&bytes, wire).map_err(|error| format!("{way:?}: on the wire {error}"))?;
        self.no_error(way)
    }

    /// Moves data into the mkey, and checks that there is no signature error.
    pub(super) fn take(&mut self, way: Rx, offset: u64, wire: &[u8]) -> Verdict {
        let moved = self.pair.rx(way, self.mkey, offset, wire)?;
        moved.ok().within(format_args!("{way:?}"))?;
        self.no_error(way)
    }

    /// Overwrites the memory, moves `wire` into the mkey, and checks that the memory then equals `memory`.
    pub(super) fn store(&mut self, way: Rx, wire: &[u8], memory: &[u8]) -> Verdict {
        self.write(&vec![0xcc; memory.len()]);
        self.take(way, 0, wire)?;
        self.holds(memory).within(format_args!("{way:?}"))
    }

    /// Moves data into the mkey. Returns the signature error, which must occur.
    pub(super) fn take_bad(&mut self, way: Rx, wire: &[u8]) -> Result<SignatureError, String> {
        self.pair.rx(way, self.mkey, 0, wire)?.ok().within(format_args!("{way:?}"))?;
        self.error()?.ok_or_else(|| format!("{way:?}: the wrong signature went unnoticed"))
    }

    /// Moves data out of the mkey. Returns the signature error, which must occur.
    pub(super) fn out_bad(&mut self, way: Tx, length: usize) -> Result<SignatureError, String> {
        self.pair.tx(way, self.mkey, 0, length)?.ok().within(format_args!("{way:?}"))?;
        self.error()?.ok_or_else(|| format!("{way:?}: the wrong signature went unnoticed"))
    }

    /// Moves data out of the mkey by each method, as [`MkeyFixture::out`] does.
    pub(super) fn out_each(&mut self, offset: u64, wire: &[u8]) -> Verdict {
        Tx::ALL.into_iter().try_for_each(|way| self.out(way, offset, wire))
    }

    /// Moves data into the mkey by each method, as [`MkeyFixture::store`] does.
    pub(super) fn store_each(&mut self, wire: &[u8], memory: &[u8]) -> Verdict {
        Rx::ALL.into_iter().try_for_each(|way| self.store(way, wire, memory))
    }

    /// Moves all data out of the mkey and into it, by each method (SEND, RDMA WRITE, RDMA READ), and checks
    /// the bytes of both sides.
    pub(super) fn both_ways(&mut self, images: &Images) -> Verdict {
        self.out_each(0, &images.wire)?;
        self.store_each(&images.wire, &images.memory)
    }

    /// Judges `done`, the result of a check. If `known` is true, a source states the checked rule, and a
    /// failed check fails the scenario. Otherwise the rule is an assumption: [`assumed`] reports a violation,
    /// and after one the function reconnects the pair.
    pub(super) fn right(&mut self, known: bool, what: impl Display, done: Verdict) -> Verdict {
        if known {
            return done.within(what);
        }
        if !assumed(self.pair.board, what, done, Ok(()))? {
            self.pair.reconnect();
        }
        Ok(())
    }

    /// Writes bytes to the beginning of the mkey's memory.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.pair.board.write(self.memory.address, bytes);
    }

    /// Checks that the mkey's memory begins with `memory`.
    pub(super) fn holds(&self, memory: &[u8]) -> Verdict {
        same(&self.pair.board.read(self.memory.address, memory.len()), memory)
            .map_err(|error| format!("in memory {error}"))
    }

    /// Returns the first signature error of the mkey since the last call, if any.
    pub(super) fn error(&mut self) -> Result<Option<SignatureError>, String> {
        let mkey = self.pair.mkeys.get_mut(self.mkey).ok_or("no such mkey")?;
        if mkey.error_count().is_none() {
            return Ok(None);
        }
        self.pair.check(self.mkey).map_err(text)
    }

    /// Checks that the mkey has no signature error.
    pub(super) fn no_error(&mut self, what: impl Debug) -> Verdict {
        match self.error()? {
            None => Ok(()),
            Some(error) => Err(format!("{what:?}: {error}")),
        }
    }
}

/// Checks that `found` equals `expected`. The error names the first difference.
pub(super) fn same(found: &[u8], expected: &[u8]) -> Verdict {
    if found == expected {
        return Ok(());
    }
    ensure_eq!(found.len(), expected.len(), "length");
    let at = found.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
    let (found, expected) =
        (part(found, at..(at + 8).min(found.len())), part(expected, at..expected.len().min(at + 8)));
    Err(format!("byte {at} on: {found:02x?}, expected {expected:02x?}"))
}

/// Checks the kind, the domain, the block and the offset of a signature error, and that its found value
/// differs from the computed one. `stride` is the number of bytes of a block with its signature.
pub(super) fn reports(
    error: &SignatureError,
    kind: SignatureErrorKind,
    domain: DomainKind,
    block: u64,
    stride: u32,
) -> Verdict {
    ensure_eq!(error.kind, kind, "kind of error");
    ensure_eq!(error.domain, domain, "domain of the error");
    ensure_eq!(error.block_index(), block, "failing block");
    ensure_eq!(error.offset, (block + 1) * u64::from(stride) - 1, "offset of the failing block's last byte");
    ensure!(error.found != error.computed, "found and computed value are both {:#x}", error.found);
    Ok(())
}
