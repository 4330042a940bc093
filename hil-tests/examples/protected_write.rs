//! Opens a device through libmlx5, creates an mkey with T10-DIF on the wire inside AES-XTS, writes through
//! the mkey to plain memory and compares the result. Then reads the data back with a flipped bit, and prints
//! which block is wrong.
//!
//! `cargo xtask emulate -- cargo run --package hil-tests --example protected_write` runs the example on the
//! software device. On a BlueField or any other mlx5 device with plaintext keys the program runs unchanged.
//! Argument: the name of the device; the first one by default.

#![allow(clippy::indexing_slicing)] // There is exactly one mkey.

use mlx5_mkey::command::{DekKey, XtsKey};
use mlx5_mkey::devx::{CqReader, CqSpec, Device, MkeySpec, Mkeys, QueuePair, QueuePairSpec};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, Escape, Guard, Keytag, MkeyConfig, Signature,
    SignatureChange, SignatureOrder, T10Dif,
};
use mlx5_mkey::queue::{Completion, Outcome, QpRouter};
use mlx5_mkey::types::{BlockSize, Seed, Tweak};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::error::Error;
use std::time::Duration;

/// Bytes of data: two blocks.
const DATA: usize = 1024;
/// Bytes on the wire: each block of 512 bytes has 8 bytes of T10-DIF.
const WIRE: usize = 1040;

/// Some of the bytes that the write has to produce, with their offsets: the beginning, and the end of each
/// block with its T10-DIF. They were computed with Python. The T10-DIF follows its definition: CRC-16 of
/// polynomial 0x8bb7 over 512 bytes, application tag, and reference tag 0x1000 plus one for each block, all
/// big-endian. `modes.XTS` of the package `cryptography` then encrypts each 520 bytes. The tweak is 0x1000
/// plus one for each block, in 16 bytes, little-endian.
const CIPHERTEXT: [(usize, u128); 3] = [
    (0, 0xee38_628d_24d5_d1f7_ea6e_dada_475e_8b73),
    (504, 0xcfc6_9ae7_6f26_4d10_a45f_da3d_d15c_1c01),
    (1024, 0x2ba1_493d_59f7_088c_8972_0f39_4ac0_c025),
];

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
    let (cq, mut completions) = device.create_cq(CqSpec::entries_for(1, 64, 16, 1))?;
    let mut queue: QueuePair = device.create_qp(&pd, &cq, &cq, QueuePairSpec::default())?;
    queue.control().connect_loopback()?;
    // A real program takes keys from a random number generator, or wrapped from a key server.
    let key: [u8; 64] = std::array::from_fn(|index| (index * 7 + 1) as u8);
    let dek = pd.create_dek(DekKey::Plain256 { key: XtsKey::new(&key)?, keytag: None }, *b"example!")?;

    let mut source = pd.alloc_buffer(DATA, Access::LOCAL_WRITE)?;
    let mut target =
        pd.alloc_buffer(WIRE, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)?;
    let data: Vec<u8> = (0..DATA).map(|index| index as u8).collect();
    source.write(0, &data)?;

    let spec = MkeySpec { max_entries: 4, signature: Some(&cq), crypto: true, ..MkeySpec::default() };
    let mut mkeys = pd.create_mkeys(1, spec)?;
    let dif = T10Dif {
        guard: Guard::Crc,
        seed: Seed::Zeros,
        app_tag: 0xf11e,
        ref_tag: 0x1000,
        ref_remap: true,
        escape: Escape::Never,
    };
    let domain = Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 };
    let crypto = Crypto {
        direction: Direction::EncryptOnTx,
        order: SignatureOrder::BeforeCryptoOnTx,
        data_unit: BlockSize::B520,
        tweak: Tweak::from_lba(0x1000),
        dek: dek.id(),
        keytag: Keytag::default(),
    };
    let config = MkeyConfig {
        access: Some(Access::LOCAL_WRITE),
        signature: SignatureChange::Set(BlockSignature::wire(domain)),
        crypto: Some(crypto),
    };
    let prepared = PreparedConfig::new(mkeys[0].kind(), &config)?;
    // Map two pieces of memory to one space, and write the whole space to the peer. One doorbell publishes
    // both requests.
    let entries = [source.entry(0..300)?, source.entry(300..DATA)?];
    let remote = Remote { address: target.address(), rkey: target.rkey() };
    let all = Sge { address: 0, length: WIRE as u32, lkey: mkeys[0].key() };
    let mut batch = queue.batch();
    batch.request(1).configure_mkey(&mut mkeys[0], &prepared, &entries)?;
    batch.request(2).signaled().rdma_write(remote, &[all])?;
    drop(batch);
    finish(2, &mut completions, &mut queue, &mut mkeys)?;
    println!("written: encrypted, each block with its T10-DIF");
    for (at, expected) in CIPHERTEXT {
        let mut found = [0; 16];
        target.read(at, &mut found)?;
        if found != expected.to_be_bytes() {
            return Err(format!("the ciphertext from byte {at} is another").into());
        }
    }

    // Read back with a flipped bit in the second block: the device decrypts, checks and finds the error.
    let mut byte = [0];
    target.read(WIRE - 100, &mut byte)?;
    target.write(WIRE - 100, &[byte[0] ^ 1])?;
    let mut batch = queue.batch();
    batch.request(3).configure_mkey(&mut mkeys[0], &prepared, &entries)?;
    batch.request(4).signaled().rdma_read(remote, &[all])?;
    drop(batch);
    finish(4, &mut completions, &mut queue, &mut mkeys)?;
    // The transfer has completed. `check` returns the first wrong signature of the transferred data, if any.
    match completions.check(&mut mkeys[0])? {
        Some(error) if error.block_index() == 1 => println!("read back: block 1 is wrong: {error:?}"),
        other => return Err(format!("a flipped bit in block 1, and the mkey says {other:?}").into()),
    }
    Ok(())
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
