//! Opens a device through libmlx5, makes an mkey with T10-DIF on the wire inside AES-XTS, writes through it to plain memory
//! and prints what arrived and how it completed.
//!
//! `cargo xtask emulate -- cargo run --package hil-tests --example protected_write` runs it on the software device; on a
//! BlueField or any mlx5 device with plaintext keys it runs as it is. Argument: the device's name, if not the first.

#![allow(unsafe_code)] // Registering memory is a promise about it.

use mlx5_mkey::command::{DekKey, XtsKey};
use mlx5_mkey::devx::{CqReader, CqSpec, Device, MkeySpec, QueuePair, QueuePairSpec};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, Escape, Guard, Keytag, KlmEntry, MkeyConfig,
    Signature, SignatureChange, SignatureOrder, T10Dif,
};
use mlx5_mkey::queue::{Completion, CompletionRouter, QpRouter};
use mlx5_mkey::types::{BlockSize, Seed, Tweak};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::error::Error;
use std::time::Duration;

/// Bytes of data: two blocks.
const DATA: usize = 1024;
/// The same on the wire: each block of 512 with 8 bytes of T10-DIF.
const WIRE: usize = 1040;

/// What is to arrive, at some offsets: the beginning, and the end of each block with its T10-DIF. Computed once with Python: the
/// T10-DIF by its definition (CRC-16 of polynomial 0x8bb7 over 512 bytes, application tag, reference tag 0x1000 and one more for
/// each block, all big-endian), then `modes.XTS` of the package `cryptography` over each 520 bytes, where the tweak is the
/// number 0x1000 and one more for each block, in 16 bytes, little-endian.
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

/// Does it on the device of this name, or on the first.
pub(crate) fn run(name: Option<&str>) -> Result<(), Box<dyn Error>> {
    let device = Device::open(name)?;
    println!("device: {device}");
    let pd = device.alloc_pd()?;
    let (cq, mut completions) = device.create_cq(CqSpec::entries_for(1, 64, 16, 1))?;
    let mut queue: QueuePair<64, 16> = device.create_qp(&pd, &cq, &cq, QueuePairSpec::default())?;
    queue.control().connect_loopback()?;
    // Keys of your own come from a random number generator, or wrapped from a key server.
    let key: [u8; 64] = std::array::from_fn(|index| (index * 7 + 1) as u8);
    let dek = pd.create_dek(DekKey::Plain256 { key: XtsKey::new(&key)?, keytag: None }, *b"example!")?;

    let mut source: Vec<u8> = (0..DATA).map(|index| index as u8).collect();
    let mut target = vec![0_u8; WIRE];
    // SAFETY: the vector lives to the end of `run` and is not touched between posting and completion.
    let from = unsafe { pd.register(source.as_mut_ptr(), DATA, Access::LOCAL_WRITE)? };
    // SAFETY: as above.
    let to = unsafe { pd.register(target.as_mut_ptr(), WIRE, Access::LOCAL_WRITE | Access::REMOTE_WRITE)? };

    let spec = MkeySpec { max_entries: 4, signature: Some(&cq), crypto: true, ..MkeySpec::default() };
    let mut mkeys = pd.create_mkeys(1, spec)?;
    let [mkey] = &mut mkeys[..] else { return Err("one mkey was asked for".into()) };
    let address = source.as_ptr().expose_provenance() as u64;
    let entry = |offset, length| KlmEntry { address: address + offset, length, key: from.lkey() };
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
    let prepared = PreparedConfig::new(mkey.kind(), &config)?;
    queue.request(1).configure_mkey(mkey, &prepared, &[entry(0, 300), entry(300, 724)])?;
    let remote = Remote { address: target.as_ptr().expose_provenance() as u64, rkey: to.rkey() };
    let all = Sge { address: 0, length: WIRE as u32, lkey: mkey.key() };
    queue.request(2).signaled().rdma_write(remote, &[all])?;
    queue.ring_doorbell();

    println!("{:?}", wait(&mut completions, &mut QpRouter { queues: &mut queue, mkeys: &mut mkeys })?);
    println!("ciphertext: {:02x?}", target.first_chunk::<16>());
    for (at, expected) in CIPHERTEXT {
        if target.get(at..at + 16) != Some(&expected.to_be_bytes()[..]) {
            return Err(format!("the ciphertext from byte {at} is another").into());
        }
    }
    Ok(())
}

/// Takes the next completion, or gives up after some five seconds.
fn wait(
    completions: &mut CqReader,
    router: &mut impl CompletionRouter,
) -> Result<Completion, Box<dyn Error>> {
    for _ in 0..5000 {
        if let Some(completion) = completions.poll(router) {
            return Ok(completion?);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("no completion within some five seconds".into())
}
