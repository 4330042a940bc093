//! What a service writes for one request: native values become what the library takes, and that is posted.

use super::{OurIo, Queue, mkey, use_completion};
use crate::{Fault, Io, Kind, MAX_ENTRIES, Piece, Work};
use mlx5_mkey::error::PostError;
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, DomainKind, Escape, Guard, InterleavedEntry, Keytag,
    Layout, List, ListEntry, MkeyConfig, ReadyCrypto, Signature, SignatureChange, SignatureOrder, T10Dif,
};
use mlx5_mkey::queue::{CompletionQueue, QpRouter};
use mlx5_mkey::types::{BlockSize, DekId, Key, OutOfRange, Seed, Tweak};
use mlx5_mkey::wqe::{MkeyTemplate, Remote, Sge};

const ACCESS: Access = Access::REMOTE_READ;

/// What is the same for all I/Os of a volume but for tweak and reference tag.
pub(super) struct Volume {
    pub(super) signature: BlockSignature,
    pub(super) crypto: ReadyCrypto,
    /// Room for the entries of one request.
    room: [ListEntry; 16],
}

impl Volume {
    pub(super) fn new(work: Work) -> Self {
        let t10dif = T10Dif {
            guard: Guard::Crc,
            seed: Seed::Zeros,
            app_tag: 0x1234,
            ref_tag: 0x5678,
            ref_remap: true,
            escape: Escape::Never,
        };
        let signature = match work {
            Work::Crc32c1 => Signature::Crc32c(Seed::Ones),
            _ => Signature::T10Dif(t10dif),
        };
        let crypto = Crypto {
            direction: Direction::EncryptOnTx,
            order: SignatureOrder::BeforeCryptoOnTx,
            data_unit: BlockSize::B512,
            tweak: Tweak::from_lba(0),
            dek: DekId::from_low_bits(0x123),
            keytag: Keytag([0; 8]),
        };
        Self {
            signature: BlockSignature::wire(Domain { signature, block_size: BlockSize::B512 }),
            crypto: ReadyCrypto::new(crypto),
            room: [piece(); 16],
        }
    }
}

/// Some piece of memory.
fn piece() -> ListEntry {
    ListEntry::new(0x7f00_0000_0000, 4096, Key::from_raw(0x500)).expect("a piece")
}

/// Requests made ready, of each kind of mkey.
pub(super) struct Templates {
    list1: MkeyTemplate<1>,
    xts4: MkeyTemplate<4, 1>,
    t10dif1: MkeyTemplate<1, 1, 1>,
    t10dif_xts4: MkeyTemplate<4, 2, 1>,
}

impl Templates {
    pub(super) fn new() -> Self {
        let (one, four) = ([piece()], [piece(); 4]);
        let Volume { signature, crypto, .. } = &Volume::new(Work::T10DifXts4);
        let (signature, crypto) = (SignatureChange::Set(signature), Some(crypto));
        let (one, four) = (plain(Layout::list(&one)), plain(Layout::list(&four)));
        let encrypted = MkeyConfig { crypto, ..four };
        let (signed, both) = (MkeyConfig { signature, ..one }, MkeyConfig { signature, ..encrypted });
        Self {
            list1: MkeyTemplate::new(&mkey(Kind::Plain), &one).expect("a template"),
            xts4: MkeyTemplate::new(&mkey(Kind::Encrypted), &encrypted).expect("a template"),
            t10dif1: MkeyTemplate::new(&mkey(Kind::Signed), &signed).expect("a template"),
            t10dif_xts4: MkeyTemplate::new(&mkey(Kind::Both), &both).expect("a template"),
        }
    }
}

#[inline(always)]
fn refused(error: OutOfRange) -> PostError {
    PostError::Config(error.into())
}

/// One piece of a list.
#[inline(always)]
pub(super) fn entry(piece: &Piece) -> Result<ListEntry, PostError> {
    ListEntry::new(piece.address, piece.length, Key::from_raw(piece.key)).map_err(refused)
}

/// One piece of a data transfer.
#[inline(always)]
pub(super) fn sge(piece: &Piece) -> Result<Sge, PostError> {
    Sge::new(piece.address, piece.length, Key::from_raw(piece.key)).map_err(refused)
}

/// A configuration without signature and crypto.
#[inline(always)]
pub(super) const fn plain(layout: Layout<'_>) -> MkeyConfig<'_> {
    MkeyConfig { access: Some(ACCESS), layout: Some(layout), ..MkeyConfig::KEEP }
}

// What follows are macros, and no functions: a function between these lines and the loop that returns an error of this size
// costs some 50 instructions, which a service saves that writes its requests in its loop.

/// A list of 4 entries.
macro_rules! list4 {
    ($request:expr, $our:ident, $volume:ident) => {{
        let [a, b, c, d, ..] = &$our.io.pieces;
        let entries = [entry(a)?, entry(b)?, entry(c)?, entry(d)?];
        $request.configure_mkey(&mut $our.mkey, &plain(Layout::list(&entries)))
    }};
}

/// The same, and crypto with a new tweak.
macro_rules! xts4 {
    ($request:expr, $our:ident, $volume:ident) => {{
        $volume.crypto.set_tweak(Tweak::from_lba($our.io.lba));
        let [a, b, c, d, ..] = &$our.io.pieces;
        let entries = [entry(a)?, entry(b)?, entry(c)?, entry(d)?];
        let crypto = Some(&$volume.crypto);
        $request.configure_mkey(&mut $our.mkey, &MkeyConfig { crypto, ..plain(Layout::list(&entries)) })
    }};
}

/// A list of 1 entry, and the volume's signature.
macro_rules! signed1 {
    ($request:expr, $our:ident, $volume:ident) => {{
        let ([piece, ..], signature) = (&$our.io.pieces, SignatureChange::Set(&$volume.signature));
        let entries = [entry(piece)?];
        $request.configure_mkey(&mut $our.mkey, &MkeyConfig { signature, ..plain(Layout::list(&entries)) })
    }};
}

/// The same with a new reference tag.
macro_rules! t10dif1 {
    ($request:expr, $our:ident, $volume:ident) => {{
        $volume.signature.set_ref_tag(DomainKind::Wire, $our.io.lba as u32)?;
        signed1!($request, $our, $volume)
    }};
}

/// A list of 4 entries, T10-DIF with a new reference tag, and crypto with a new tweak.
macro_rules! t10dif_xts4 {
    ($request:expr, $our:ident, $volume:ident) => {{
        $volume.crypto.set_tweak(Tweak::from_lba($our.io.lba));
        $volume.signature.set_ref_tag(DomainKind::Wire, $our.io.lba as u32)?;
        let (signature, crypto) = (SignatureChange::Set(&$volume.signature), Some(&$volume.crypto));
        let [a, b, c, d, ..] = &$our.io.pieces;
        let entries = [entry(a)?, entry(b)?, entry(c)?, entry(d)?];
        let config = MkeyConfig { signature, crypto, ..plain(Layout::list(&entries)) };
        $request.configure_mkey(&mut $our.mkey, &config)
    }};
}

/// Declares functions that post a request for each I/O and publish each batch.
macro_rules! posts {
    ($($(#[$doc:meta])* $name:ident($request:ident, $our:ident, $volume:ident) $body:block)*) => {
        $(
            $(#[$doc])*
            #[inline(never)]
            pub(super) fn $name<const BATCHED: usize>(
                queue: &mut Queue<'_>,
                ios: &mut [OurIo],
                $volume: &mut Volume,
            ) -> Result<(), PostError> {
                for ios in ios.as_chunks_mut::<BATCHED>().0 {
                    if BATCHED == 1 {
                        for $our in ios {
                            let $request = queue.request($our.io.id).signaled();
                            $body?;
                        }
                        queue.ring_doorbell();
                    } else {
                        let mut batch = queue.batch();
                        for $our in ios {
                            let $request = batch.request($our.io.id).signaled();
                            $body?;
                        }
                    }
                }
                Ok(())
            }
        )*
    };
}

posts! {
    list1(request, our, _volume) {
        let [piece, ..] = &our.io.pieces;
        let entries = [entry(piece)?];
        request.configure_mkey(&mut our.mkey, &plain(Layout::list(&entries)))
    }

    list4(request, our, _volume) {
        list4!(request, our, _volume)
    }

    /// A list whose number of entries is not known, at most 16, gathered piece by piece.
    list_dyn(request, our, _volume) {
        let mut list = List::<4>::new();
        for piece in our.io.pieces.iter().take(our.io.count) {
            list.push(entry(piece)?)?;
        }
        request.configure_mkey(&mut our.mkey, &plain(list.layout()))
    }

    /// A list whose number of entries is not known, in room for 16 that the service keeps.
    list16(request, our, volume) {
        let Some(pieces) = our.io.pieces.get(..our.io.count) else { return Ok(()) };
        for (room, piece) in volume.room.iter_mut().zip(pieces) {
            *room = entry(piece)?;
        }
        let entries = volume.room.get(..our.io.count).unwrap_or_default();
        request.configure_mkey(&mut our.mkey, &plain(Layout::list(entries)))
    }

    /// As `list_dyn`, with at most as many entries as a request holds.
    entries_dyn(request, our, _volume) {
        let mut list = List::<{ MAX_ENTRIES / 4 }>::new();
        for piece in our.io.pieces.iter().take(our.io.count) {
            list.push(entry(piece)?)?;
        }
        request.configure_mkey(&mut our.mkey, &plain(list.layout()))
    }

    xts4(request, our, volume) {
        xts4!(request, our, volume)
    }

    t10dif1(request, our, volume) {
        t10dif1!(request, our, volume)
    }

    crc32c1(request, our, volume) {
        signed1!(request, our, volume)
    }

    t10dif_xts4(request, our, volume) {
        t10dif_xts4!(request, our, volume)
    }

    interleaved3(request, our, _volume) {
        let stream = |piece: &Piece| {
            InterleavedEntry::new(piece.address, piece.length, 8, Key::from_raw(piece.key)).map_err(refused)
        };
        let [a, b, c, ..] = &our.io.pieces;
        let streams = [stream(a)?, stream(b)?, stream(c)?];
        request.configure_mkey(&mut our.mkey, &plain(Layout::interleaved(4, &streams)?))
    }

    rdma_write(request, our, _volume) {
        let remote = Remote::new(our.io.remote, Key::from_raw(our.io.rkey));
        request.rdma_write(remote, &[sge(&our.io.data)?])
    }

    new_list4(request, our, _volume) {
        let [a, b, c, d, ..] = &our.io.pieces;
        let entries = [entry(a)?, entry(b)?, entry(c)?, entry(d)?];
        let layout = Some(Layout::list(&entries));
        request.configure_mkey(&mut our.mkey, &MkeyConfig { layout, ..MkeyConfig::KEEP })
    }

    new_tweak(request, our, volume) {
        volume.crypto.set_tweak(Tweak::from_lba(our.io.lba));
        let crypto = Some(&volume.crypto);
        request.configure_mkey(&mut our.mkey, &MkeyConfig { crypto, ..MkeyConfig::KEEP })
    }

    new_ref_tag(request, our, volume) {
        volume.signature.set_ref_tag(DomainKind::Wire, our.io.lba as u32)?;
        let signature = SignatureChange::Set(&volume.signature);
        request.configure_mkey(&mut our.mkey, &MkeyConfig { signature, ..MkeyConfig::KEEP })
    }

    template_list1(request, our, _volume) {
        request.configure_from(&mut our.mkey, &our.templates.list1)
    }

    template_xts4(request, our, _volume) {
        request.configure_from(&mut our.mkey, &our.templates.xts4)
    }

    template_t10dif1(request, our, _volume) {
        request.configure_from(&mut our.mkey, &our.templates.t10dif1)
    }

    template_t10dif_xts4(request, our, _volume) {
        request.configure_from(&mut our.mkey, &our.templates.t10dif_xts4)
    }

    template_address(request, our, _volume) {
        let [piece, ..] = &our.io.pieces;
        our.templates.list1.set_address(0, piece.address)?;
        request.configure_from(&mut our.mkey, &our.templates.list1)
    }

    template_tweak(request, our, _volume) {
        our.templates.xts4.set_tweak(Tweak::from_lba(our.io.lba))?;
        request.configure_from(&mut our.mkey, &our.templates.xts4)
    }

    template_ref_tag(request, our, _volume) {
        our.templates.t10dif1.set_ref_tag(DomainKind::Wire, our.io.lba as u32)?;
        request.configure_from(&mut our.mkey, &our.templates.t10dif1)
    }
}

/// [`list4`] while a queue that threads share is locked.
#[inline(always)]
pub(super) fn list4_locked(queue: &mut Queue<'_>, ios: &mut [OurIo]) -> Result<(), PostError> {
    for our in ios {
        list4!(queue.request(our.io.id).signaled(), our, volume)?;
    }
    Ok(())
}

/// RDMA WRITEs of one I/O, of which the last is signalled.
pub(super) fn writes(queue: &mut Queue<'_>, io: &Io, count: usize) -> Result<(), PostError> {
    let remote = Remote::new(io.remote, Key::from_raw(io.rkey));
    for _ in 1..count {
        queue.request(0).rdma_write(remote, &[sge(&io.data)?])?;
    }
    queue.request(io.id).signaled().rdma_write(remote, &[sge(&io.data)?])?;
    queue.ring_doorbell();
    Ok(())
}

/// Declares functions that do whole I/Os: a silent configuration, an RDMA WRITE of all of the mkey, the doorbell, and the
/// completion.
macro_rules! ios {
    ($($name:ident: $configure:ident)*) => {
        $(
            #[inline(never)]
            pub(super) fn $name(
                queue: &mut Queue<'_>,
                completions: &mut CompletionQueue<'_>,
                ios: &mut [OurIo],
                #[allow(unused_variables)] volume: &mut Volume,
            ) -> Result<Result<(), Fault>, PostError> {
                for our in ios {
                    $configure!(queue.request(our.io.id), our, volume)?;
                    let all = Sge::new(0, our.mkey.length() as u32, our.mkey.key()).map_err(refused)?;
                    let remote = Remote::new(our.io.remote, Key::from_raw(our.io.rkey));
                    queue.request(our.io.id).signaled().rdma_write(remote, &[all])?;
                    queue.ring_doorbell();
                    let mut router = QpRouter { queues: &mut *queue, mkeys: &mut [] };
                    if let Err(fault) = use_completion(completions.poll(&mut router)) {
                        return Ok(Err(fault));
                    }
                }
                Ok(Ok(()))
            }
        )*
    };
}

ios! {
    io_list4: list4
    io_xts4: xts4
    io_t10dif1: t10dif1
    io_t10dif_xts4: t10dif_xts4
}
