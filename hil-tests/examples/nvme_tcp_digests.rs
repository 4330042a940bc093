//! An NVMe/TCP PDU with header digest and data digest, in one pass. The device computes both digests while it
//! writes the PDU, and checks and strips both while it reads the PDU. Then one bit of the data is flipped:
//! the data's mkey reports an error, the header's mkey does not.
//!
//! There are two mkeys, each with its own digest on the wire. One chain of requests configures both mkeys and
//! moves header, digest, data and digest. Each mkey has a transfer of its own, because no source says whether
//! devices accept two digests in one transfer.
//!
//! `cargo xtask emulate -- cargo run --package hil-tests --example nvme_tcp_digests` runs the example on the
//! software device. On an mlx5 device with CRC32C the program runs unchanged. Argument: the name of the
//! device; the first one by default.

#![allow(clippy::indexing_slicing)] // There are exactly two mkeys.

use mlx5_mkey::devx::{
    Buffer, CqReader, CqSpec, Device, MkeySpec, Mkeys, PieceError, QueuePair, QueuePairSpec,
};
use mlx5_mkey::mkey::{Access, Digest, KlmEntry, MkeyConfig, SignatureChange, SignatureErrorKind};
use mlx5_mkey::queue::{Completion, Outcome, QpRouter};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::error::Error;
use std::time::Duration;

/// The header of a C2HData PDU with both digests and 4096 bytes of data, the last one of command 0x1234
/// (NVMe/TCP transport specification).
const HEADER: [u8; 24] =
    [7, 7, 24, 28, 0x20, 0x10, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0];
const DATA: usize = 4096;
const DIGEST: usize = Digest::BYTES as usize;
const PDU: usize = HEADER.len() + DIGEST + DATA + DIGEST;
/// The digests, computed with a bitwise CRC32C in Python.
const HEADER_DIGEST: u32 = 0xd804_94e0;
const DATA_DIGEST: u32 = 0xc014_3a6f;
/// Offset of the data digest in the PDU. The header digest follows the header.
const DATA_DIGEST_AT: usize = PDU - DIGEST;

fn main() -> std::process::ExitCode {
    let Err(error) = run(std::env::args().nth(1).as_deref()) else { return std::process::ExitCode::SUCCESS };
    eprintln!("error: {error}");
    std::process::ExitCode::FAILURE
}

/// Runs the example on the device of this name, or on the first one.
pub(crate) fn run(name: Option<&str>) -> Result<(), Box<dyn Error>> {
    let device = Device::open(name)?;
    println!("device: {device}");
    let pd = device.alloc_pd()?;
    let (cq, mut completions) = device.create_cq(CqSpec::entries_for(1, 64, 16, 2))?;
    let mut queue: QueuePair = device.create_qp(&pd, &cq, &cq, QueuePairSpec::default())?;
    queue.control().connect_loopback()?;

    let mut memory = pd.alloc_buffer(HEADER.len() + DATA, Access::LOCAL_WRITE)?;
    let mut peer = pd.alloc_buffer(PDU, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)?;
    let data: Vec<u8> = (0..DATA).map(|index| (index * 7) as u8).collect();
    memory.write(0, &HEADER)?;
    memory.write(HEADER.len(), &data)?;

    let spec = MkeySpec { max_entries: 4, signature: Some(&cq), ..MkeySpec::default() };
    let mut mkeys = pd.create_mkeys(2, spec)?;
    let config = MkeyConfig {
        access: Some(Access::LOCAL_WRITE),
        signature: SignatureChange::Digest(Digest::wire()),
        ..MkeyConfig::UNCHANGED
    };
    let prepared = PreparedConfig::new(mkeys[0].kind(), &config)?;
    // The layouts: the header is one piece of memory, the data are two pieces.
    let (header, middle) = ([memory.entry(0..HEADER.len())?], HEADER.len() + 1000);
    let pieces = [memory.entry(HEADER.len()..middle)?, memory.entry(middle..HEADER.len() + DATA)?];
    let layouts = [&header[..], &pieces[..]];
    let remote = Remote { address: peer.address(), rkey: peer.rkey() };

    let [header, data] = configure(1, &mut queue, &mut mkeys, &prepared, layouts)?;
    queue.request(2).rdma_write(remote, &[header])?;
    queue.request(2).signaled().rdma_write(behind(remote, header), &[data])?;
    queue.ring_doorbell();
    finish(2, &mut completions, &mut queue, &mut mkeys)?;
    let digests = [digest(&peer, HEADER.len())?, digest(&peer, DATA_DIGEST_AT)?];
    if digests != [HEADER_DIGEST, DATA_DIGEST] {
        return Err(format!("other digests: {digests:08x?}").into());
    }
    println!("written: {PDU} bytes, header digest {HEADER_DIGEST:08x}, data digest {DATA_DIGEST:08x}");

    // Reads the PDU back twice, correct and with a flipped bit of the data: the device checks and strips both
    // digests.
    for (id, flip) in [(4, 0), (6, 0x40)] {
        let mut byte = [0];
        peer.read(PDU - 100, &mut byte)?;
        peer.write(PDU - 100, &[byte[0] ^ flip])?;
        let [header, data] = configure(id - 1, &mut queue, &mut mkeys, &prepared, layouts)?;
        queue.request(id).rdma_read(remote, &[header])?;
        queue.request(id).signaled().rdma_read(behind(remote, header), &[data])?;
        queue.ring_doorbell();
        finish(id, &mut completions, &mut queue, &mut mkeys)?;
        let [of_header, of_data] = [completions.check(&mut mkeys[0])?, completions.check(&mut mkeys[1])?];
        match (of_header, of_data) {
            (None, None) if flip == 0 => println!("read back: both digests are good"),
            (None, Some(error)) if flip != 0 && error.kind == SignatureErrorKind::Digest => {
                println!("read back with a bit flipped: {error}");
            }
            other => return Err(format!("with {flip:#x} flipped the mkeys say {other:?}").into()),
        }
    }
    Ok(())
}

/// Returns the address in the PDU that follows the header and its digest.
const fn behind(remote: Remote, header: Sge) -> Remote {
    Remote { address: remote.address + header.length as u64, ..remote }
}

/// Configures the two mkeys over the header and over the data. Returns the data segments of both, each of
/// which includes the digest.
fn configure(
    id: u64,
    queue: &mut QueuePair,
    mkeys: &mut Mkeys,
    prepared: &PreparedConfig,
    layouts: [&[KlmEntry]; 2],
) -> Result<[Sge; 2], Box<dyn Error>> {
    for (mkey, layout) in mkeys.iter_mut().zip(layouts) {
        queue.request(id).configure_mkey(mkey, prepared, layout)?;
    }
    let all = |mkey: usize| {
        let length = mkeys[mkey].wire_length().unwrap_or_default() as u32;
        Sge { address: 0, length, lkey: mkeys[mkey].key() }
    };
    Ok([all(0), all(1)])
}

/// Reads the 4 bytes of a digest at offset `at`, in little endian.
fn digest(memory: &Buffer, at: usize) -> Result<u32, PieceError> {
    let mut bytes = [0; DIGEST];
    memory.read(at, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Takes completions up to that of request `id`. Fails after five seconds.
fn finish(
    id: u64,
    completions: &mut CqReader,
    queue: &mut QueuePair,
    mkeys: &mut Mkeys,
) -> Result<(), Box<dyn Error>> {
    let mut router = QpRouter { queues: queue, mkeys };
    loop {
        let limit = Some(Duration::from_secs(5));
        match completions.wait(&mut router, limit)?.ok_or("no completion within five seconds")? {
            // A signature error arrives before the completion of the data. The router has recorded it in the
            // mkey.
            Completion::SignatureError { position, .. } => println!("mkey {position} has a signature error"),
            Completion::Work(work) => match work.outcome {
                Outcome::Failed(failure) => {
                    return Err(format!("request {} failed: {}", work.id, failure.syndrome).into());
                }
                _ if work.id == id => return Ok(()),
                _ => {}
            },
        }
    }
}
