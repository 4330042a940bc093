//! The code of a service for one request: converts native values to the library's types, and posts them.

use super::parts::{OurIo, Queue, mkey, use_completion};
use crate::{Fault, Io, Work};
use core::hint::black_box;
use mlx5_mkey::error::PostError;
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, Escape, Guard, InterleavedEntry, Keytag, KlmEntry,
    Layout, MkeyConfig, Signature, SignatureChange, SignatureOrder, T10Dif,
};
use mlx5_mkey::queue::{CompletionQueue, Doorbell, QpRouter, SendQueue};
use mlx5_mkey::types::{BlockSize, DekId, DomainKind, Key, Seed, Tweak};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};

/// Returns the prepared configuration for all I/Os of a volume. Only tweak and reference tag change.
pub(super) fn prepared(work: Work) -> PreparedConfig {
    let kind = mkey(work.kind()).kind();
    // All sides have data units of 512 bytes in this work, also with a signature, so that their counts can be
    // compared.
    PreparedConfig::with_any_data_unit(kind, &config(work)).expect("what such an mkey can have")
}

/// Returns the full configuration of an mkey, for its first request. Later requests change only a part.
pub(super) fn complete(work: Work) -> PreparedConfig {
    prepared(match work {
        Work::ReconfigureList4 => Work::List4,
        Work::ReconfigureTweak => Work::Xts4,
        Work::ReconfigureRefTag => Work::T10Dif1,
        work => work,
    })
}

/// Returns the properties that the requests of a work change, without the layout.
fn config(work: Work) -> MkeyConfig {
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
    let signature = BlockSignature::wire(Domain { signature, block_size: BlockSize::B512 });
    let crypto = Crypto {
        direction: Direction::EncryptOnTx,
        order: SignatureOrder::BeforeCryptoOnTx,
        data_unit: BlockSize::B512,
        tweak: Tweak::from_lba(0),
        dek: DekId::from_low_bits(0x123),
        keytag: Keytag([0; 8]),
    };
    let gives_less =
        matches!(work, Work::ReconfigureList4 | Work::ReconfigureTweak | Work::ReconfigureRefTag);
    MkeyConfig {
        access: (!gives_less).then_some(Access::REMOTE_READ),
        signature: match work.kind().has_signature() {
            true => SignatureChange::Set(signature),
            false => SignatureChange::Keep,
        },
        crypto: work.kind().has_crypto().then_some(crypto),
    }
}

/// Returns the target of an I/O's RDMA WRITE.
#[inline(always)]
const fn remote(io: &Io) -> Remote {
    Remote { address: io.remote, rkey: Key::from_raw(io.rkey) }
}

/// Returns the first `COUNT` entries of an I/O, a number that the compiler knows.
#[inline(always)]
fn entries<const COUNT: usize>(io: &Io) -> &[KlmEntry] {
    io.entries.first_chunk::<COUNT>().map_or(&[], |entries| entries)
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
                $volume: &mut PreparedConfig,
            ) -> Result<(), PostError> {
                for ios in ios.as_chunks_mut::<BATCHED>().0 {
                    let mut batch = queue.batch();
                    for $our in ios {
                        let $request = batch.request($our.io.id).signaled();
                        $body?;
                    }
                }
                Ok(())
            }
        )*
    };
}

posts! {
    list1(request, our, volume) {
        request.configure_mkey(&mut our.mkey, volume, entries::<1>(&our.io))
    }

    /// Posts a list of 4 entries, also for work that changes only the list.
    list4(request, our, volume) {
        request.configure_mkey(&mut our.mkey, volume, entries::<4>(&our.io))
    }

    /// Posts a list with a number of entries that the compiler does not know.
    list_dyn(request, our, volume) {
        request.configure_mkey(&mut our.mkey, volume, our.list.as_slice())
    }

    /// Posts a list of 4 entries, and crypto with a new tweak.
    xts4(request, our, volume) {
        volume.set_tweak(Tweak::from_lba(our.io.lba))?;
        request.configure_mkey(&mut our.mkey, volume, entries::<4>(&our.io))
    }

    /// Posts a list of 1 entry, and T10-DIF with a new reference tag.
    t10dif1(request, our, volume) {
        volume.set_ref_tag(DomainKind::Wire, our.io.lba as u32)?;
        request.configure_mkey(&mut our.mkey, volume, entries::<1>(&our.io))
    }

    /// Posts a list of 4 entries, T10-DIF with a new reference tag, and crypto with a new tweak.
    t10dif_xts4(request, our, volume) {
        volume.set_tweak(Tweak::from_lba(our.io.lba))?;
        volume.set_ref_tag(DomainKind::Wire, our.io.lba as u32)?;
        request.configure_mkey(&mut our.mkey, volume, entries::<4>(&our.io))
    }

    interleaved3(request, our, volume) {
        let stream = |entry: &KlmEntry| InterleavedEntry {
            address: entry.address,
            bytes: entry.length as u16,
            skip: 8,
            key: entry.key,
        };
        let [a, b, c, ..] = &our.io.entries;
        let layout = Layout::Interleaved { repeat: 4, entries: &[stream(a), stream(b), stream(c)] };
        request.configure_mkey(&mut our.mkey, volume, layout)
    }

    rdma_write(request, our, _volume) {
        request.rdma_write(remote(&our.io), core::slice::from_ref(&our.io.data))
    }

    new_tweak(request, our, volume) {
        volume.set_tweak(Tweak::from_lba(our.io.lba))?;
        request.configure_mkey(&mut our.mkey, volume, Layout::Unchanged)
    }

    new_ref_tag(request, our, volume) {
        volume.set_ref_tag(DomainKind::Wire, our.io.lba as u32)?;
        request.configure_mkey(&mut our.mkey, volume, Layout::Unchanged)
    }
}

/// Posts [`list4`] requests to a queue that threads share, while it is locked.
#[inline(always)]
pub(super) fn list4_locked(
    queue: &mut Queue<'_>,
    ios: &mut [OurIo],
    volume: &PreparedConfig,
) -> Result<(), PostError> {
    for our in ios {
        let request = queue.request(our.io.id).signaled();
        request.configure_mkey(&mut our.mkey, volume, entries::<4>(&our.io))?;
    }
    Ok(())
}

/// Posts lists of 4 entries to a full queue, which must refuse each.
#[inline(never)]
pub(super) fn list4_refused(
    queue: &mut Queue<'_>,
    ios: &mut [OurIo],
    volume: &PreparedConfig,
) -> Result<(), Fault> {
    for our in ios {
        let request = queue.request(our.io.id).signaled();
        match request.configure_mkey(&mut our.mkey, volume, entries::<4>(&our.io)) {
            Err(error @ (PostError::SendRingFull { .. } | PostError::TooManyRequests { .. })) => {
                black_box(error);
            }
            _ => return Err("not refused"),
        }
    }
    Ok(())
}

/// Posts lists of 4 entries, each after a completion that frees space for it.
#[inline(never)]
pub(super) fn list4_after_completion(
    queue: &mut Queue<'_>,
    completions: &mut CompletionQueue<'_>,
    ios: &mut [OurIo],
    volume: &PreparedConfig,
) -> Result<Result<(), Fault>, PostError> {
    for our in ios {
        let mut router = QpRouter { queues: &mut *queue, mkeys: &mut [] };
        if let Err(fault) = use_completion(&completions.poll(&mut router)) {
            return Ok(Err(fault));
        }
        let request = queue.request(our.io.id).signaled();
        request.configure_mkey(&mut our.mkey, volume, entries::<4>(&our.io))?;
        queue.ring_doorbell();
    }
    Ok(Ok(()))
}

/// Posts the RDMA WRITE of an I/O, as [`rdma_write`] does.
#[inline(always)]
pub(super) fn write<D: Doorbell>(queue: &mut SendQueue<'_, D>, io: &Io) -> Result<(), PostError> {
    queue.request(io.id).signaled().rdma_write(remote(io), core::slice::from_ref(&io.data))
}

/// Posts RDMA WRITEs of one I/O, of which only the last is signalled.
pub(super) fn writes(queue: &mut Queue<'_>, io: &Io, count: usize) -> Result<(), PostError> {
    for _ in 1..count {
        queue.request(0).rdma_write(remote(io), &[io.data])?;
    }
    queue.request(io.id).signaled().rdma_write(remote(io), &[io.data])?;
    queue.ring_doorbell();
    Ok(())
}

/// Declares functions that do whole I/Os: an unsignalled configuration, a signalled RDMA WRITE of the whole
/// mkey, the doorbell, and the completion.
macro_rules! ios {
    ($($name:ident($our:ident, $volume:ident) $prepare:block $entries:expr;)*) => {
        $(
            #[inline(never)]
            pub(super) fn $name(
                queue: &mut Queue<'_>,
                completions: &mut CompletionQueue<'_>,
                ios: &mut [OurIo],
                $volume: &mut PreparedConfig,
            ) -> Result<Result<(), Fault>, PostError> {
                for $our in ios {
                    $prepare;
                    let (id, mkey) = ($our.io.id, &mut $our.mkey);
                    queue.request(id).configure_mkey(mkey, $volume, $entries)?;
                    let all = Sge { address: 0, length: mkey.length() as u32, lkey: mkey.key() };
                    queue.request(id).signaled().rdma_write(remote(&$our.io), &[all])?;
                    queue.ring_doorbell();
                    if let Err(fault) = use_completion(&completions.poll(queue)) {
                        return Ok(Err(fault));
                    }
                }
                Ok(Ok(()))
            }
        )*
    };
}

ios! {
    io_list4(our, volume) {} entries::<4>(&our.io);
    io_list4_dyn(our, volume) {} our.list.as_slice();
    io_xts4(our, volume) { volume.set_tweak(Tweak::from_lba(our.io.lba))? } entries::<4>(&our.io);
    io_t10dif1(our, volume) {
        volume.set_ref_tag(DomainKind::Wire, our.io.lba as u32)?;
    } entries::<1>(&our.io);
    io_t10dif_xts4(our, volume) {
        volume.set_tweak(Tweak::from_lba(our.io.lba))?;
        volume.set_ref_tag(DomainKind::Wire, our.io.lba as u32)?;
    } entries::<4>(&our.io);
}
