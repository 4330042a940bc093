//! Measurements on hardware of mkeys with a signature or a cipher in uses that no documentation describes:
//! under another mkey, as a list of entries, in atomics and in copies. Also of copies with unequal lengths,
//! and of memory windows that exceed their region.

use super::super::changed;
use super::super::fixture::{
    ALL_RIGHTS, CRYPTO, DIF, KEY_128, MkeyFixture, PLAIN, SIGNATURE, crypto, dif_domain, part, pattern,
};
use super::measurement::{Measurement, Tell, compared, fitting, hex, measurement, outcome, told};
use crate::board::{Board, DekSpec, MkeySpec, ProtectionDomain};
use crate::expected::Images;
use crate::qp_pair::{CONFIGURE, QpPairFixture, Rx, Tx, Verdict, text};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::mkey::{
    Access, BlockSignature, Direction, KlmEntry, MemoryWindow, RegisteredList, SignatureOrder,
};
use mlx5_mkey::types::BlockSize;
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::{Local, MemcpyConfig, Remote};

pub(super) const ALL: &[Measurement] = &[
    measurement!(gap17_protected_mkeys_under_other_mkeys, NOTHING),
    measurement!(gap18_protected_mkeys_as_lists_and_in_atomics, NOTHING),
    measurement!(gap19_copies, MEMCPY),
    measurement!(gap20_windows_over_too_much, NOTHING),
];

/// The properties of an mkey under test.
#[derive(Clone, Copy, Debug)]
enum Protection {
    Signature,
    Cipher,
}

/// Returns the kinds of protection that the board has, with their names.
fn protections(board: &dyn Board) -> impl Iterator<Item = (&'static str, Protection)> + use<> {
    let has = board.capabilities();
    let signature = has.signature.then_some(("a signature", Protection::Signature));
    signature.into_iter().chain(has.xts.is_some().then_some(("a cipher", Protection::Cipher)))
}

/// Makes an mkey with this protection over 512 bytes of memory. Returns the bytes in memory and on the wire.
fn protected<'b>(
    board: &'b mut dyn Board,
    protection: Protection,
    memory: &[u8],
) -> Result<(MkeyFixture<'b>, Images), String> {
    let (mut fixture, signature, cipher);
    match protection {
        Protection::Signature => {
            fixture = MkeyFixture::new(board, SIGNATURE);
            (signature, cipher) = (Some(BlockSignature::wire(dif_domain(DIF, BlockSize::B512))), None);
        }
        Protection::Cipher => {
            fixture = MkeyFixture::new(board, CRYPTO);
            let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
            let order = SignatureOrder::AfterCryptoOnTx;
            (signature, cipher) = (None, Some(crypto(Direction::EncryptOnTx, order, BlockSize::B512, dek)));
        }
    }
    let with_key = cipher.as_ref().map(|cipher| (cipher, &KEY_128[..]));
    let images = fixture.install_images(memory, signature.as_ref(), with_key)?;
    Ok((fixture, images))
}

/// Describes bytes that were moved through the mkey: whether they equal the bytes in memory, the bytes on the
/// wire, or the old content of the target.
fn which(found: Result<Vec<u8>, String>, images: &Images) -> String {
    match found {
        Err(what) => what,
        Ok(found) => {
            let begins = |image: &[u8]| part(image, 0..found.len()) == found;
            let words = fitting([
                ("the bytes of memory", begins(&images.memory)),
                ("the bytes of the wire", begins(&images.wire)),
                ("the bytes that were there before", found.iter().all(|byte| *byte == 0xcc)),
            ]);
            format!("{} bytes: {words}; {}", found.len(), hex(part(&found, 0..found.len().min(8))))
        }
    }
}

/// Reports the results of transfers by a plain mkey whose only entry is in the space of an mkey with a
/// signature or a cipher. The entry is as long as the bytes in memory, or as the bytes on the wire.
fn gap17_protected_mkeys_under_other_mkeys(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    for (name, protection) in protections(board) {
        let lengths = if matches!(protection, Protection::Signature) { &[512, 520][..] } else { &[512] };
        for &length in lengths {
            for (direction, is_out) in [("out", true), ("in", false)] {
                let (mut fixture, images) = protected(board, protection, &pattern(512, 1))?;
                let what = format!("{length} bytes of an mkey with {name} under another");
                let over = fixture.pair.mkey(PLAIN);
                let entries = [KlmEntry { address: 0, length, key: fixture.pair.key(fixture.mkey) }];
                if let Err(refused) = fixture.pair.configure(over, &ALL_RIGHTS, &entries) {
                    tell(&format!("{what}, {direction}"), &refused);
                    continue;
                }
                let tx = [Tx::Send, Tx::PeerRead].into_iter().filter(|_| is_out);
                for way in tx {
                    let moved = fixture.pair.tx(way, over, 0, length as usize);
                    let found = outcome(&mut fixture, moved);
                    tell(&format!("{what}, {way:?}"), &which(found, &images));
                }
                let rx = [Rx::Receive, Rx::PeerWrite].into_iter().filter(|_| !is_out);
                for way in rx {
                    fixture.write(&[0xcc; 512]);
                    let moved = fixture.pair.rx(way, over, 0, part(&images.wire, 0..length as usize));
                    let done = outcome(&mut fixture, moved);
                    let found = done.map(|_| fixture.pair.bytes(&fixture.memory));
                    tell(&format!("{what}, {way:?}"), &which(found, &images));
                }
            }
        }
    }
    Ok(())
}

/// Reports the result of a configuration whose list of entries is in the space of an mkey with a signature or
/// a cipher, and the result of an atomic of a peer on such an mkey.
fn gap18_protected_mkeys_as_lists_and_in_atomics(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    for (name, protection) in protections(board) {
        let (mut fixture, _) = protected(board, protection, &[0; 512])?;
        let target = fixture.pair.region(&pattern(64, 2));
        let mut blocks = vec![Wqebb::ZERO; RegisteredList::blocks_for(1)];
        let inner = fixture.pair.key(fixture.mkey);
        let mut list = RegisteredList::new(&mut blocks, 0, inner).map_err(text)?;
        let whole = KlmEntry { address: target.address, length: 64, key: target.key };
        list.write(&[whole]).map_err(text)?;
        let bytes: Vec<u8> = list.blocks().iter().flat_map(|block| block.0).collect();
        fixture.write(&bytes);
        let over = fixture.pair.mkey(PLAIN);
        let prepared = fixture.pair.prepare(over, &ALL_RIGHTS).map_err(text)?;
        let mkey = fixture.pair.mkeys.get_mut(over).ok_or("no such mkey")?;
        let request = fixture.pair.near.request(CONFIGURE).signaled();
        request.configure_mkey_by_pointer(mkey, &prepared, &mut list).map_err(text)?;
        let value = match changed::run(&mut fixture)? {
            Err(what) => what,
            Ok(()) => {
                let moved = fixture.pair.tx(Tx::Send, over, 0, 64);
                let found = outcome(&mut fixture, moved);
                format!("configured; then {}", compared(found, &pattern(64, 2)))
            }
        };
        tell(&format!("a list of entries in an mkey with {name}"), &value);

        let (mut fixture, _) = protected(board, protection, &[1; 512])?;
        let old = fixture.pair.region(&[0; 8]);
        let remote = Remote { address: 0, rkey: fixture.pair.key(fixture.mkey) };
        fixture.pair.far.request(1).signaled().fetch_add(remote, 1, old.place()).map_err(text)?;
        let done = told(&fixture.pair.complete_far(1)?);
        let (old, new) = (fixture.pair.bytes(&old), fixture.pair.board.read(fixture.memory.address, 8));
        let value = format!("{done}; old value {}, memory {}", hex(&old), hex(&new));
        tell(&format!("an atomic on an mkey with {name}"), &value);
    }
    Ok(())
}

/// Offsets, in a copy, of the key and the address of the opaque buffer, and of the lengths of source and
/// target.
const OPAQUE_KEY: usize = 20;
const OPAQUE_ADDRESS: usize = 24;
const SOURCE_LENGTH: usize = 32;
const TARGET_LENGTH: usize = 48;

/// Reports the results of copies whose source or target is an mkey with a signature or a cipher, and of
/// copies with two different lengths. Also reports the bytes that a copy leaves in its opaque buffer.
fn gap19_copies(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    for (name, protection) in protections(board) {
        for (role, is_source) in [("source", true), ("target", false)] {
            let (mut fixture, images) = protected(board, protection, &pattern(512, 1))?;
            let plain = fixture.pair.region(&images.wire);
            let ends = [Local { address: 0, lkey: fixture.pair.key(fixture.mkey) }, plain.place()];
            let [to, from] = if is_source { [ends[1], ends[0]] } else { ends };
            let (cleared, copied) = if is_source { (plain, plain) } else { (fixture.memory, fixture.memory) };
            fixture.pair.board.write(cleared.address, &vec![0xcc; cleared.length]);
            fixture.pair.near.request(1).signaled().memcpy(to, from, plain.length as u32).map_err(text)?;
            let done = told(&fixture.pair.complete_near(1)?);
            let bytes = which(Ok(fixture.pair.bytes(&copied)), &images);
            tell(&format!("a copy with an mkey with {name} as its {role}"), &format!("{done}; {bytes}"));
        }
    }
    for (what, at) in [("source", SOURCE_LENGTH), ("target", TARGET_LENGTH)] {
        let mut fixture = MkeyFixture::new(board, PLAIN);
        let (from, to) = (fixture.pair.region(&[0x11; 64]), fixture.pair.region(&[0xcc; 64]));
        let opaque = fixture.pair.region(&[0xcc; MemcpyConfig::OPAQUE_BYTES]);
        fixture.pair.near.hold_back();
        let first = fixture.pair.near.counters().producer;
        fixture.pair.near.request(1).signaled().memcpy(to.place(), from.place(), 64).map_err(text)?;
        let changes = [(at + 3, 32)].into_iter();
        let changes = changes.chain((OPAQUE_KEY..).zip(opaque.key.get().to_be_bytes()));
        let changes = changes.chain((OPAQUE_ADDRESS..).zip(opaque.address.to_be_bytes()));
        changed::change(&mut fixture, first, &changes.collect::<Vec<_>>())?;
        let told = changed::run(&mut fixture)?.err().unwrap_or("done".into());
        let copied = fixture.pair.bytes(&to).iter().filter(|byte| **byte == 0x11).count();
        tell(&format!("a copy of 64 bytes, of 32 by its {what}"), &format!("{told}; {copied} bytes copied"));
        let report = fixture.pair.bytes(&opaque);
        let told = if report == [0xcc; 64] { "nothing".into() } else { hex(&report) };
        tell(&format!("in the opaque buffer of a copy of 32 bytes by its {what}"), &told);
    }
    Ok(())
}

/// Reports when the device refuses a memory window whose range ends behind its region, or whose region is in
/// another protection domain: when the window is bound, or when it is used.
fn gap20_windows_over_too_much(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    for (what, domain, length, part, address) in [
        ("its region", ProtectionDomain::First, 64, "first", 0),
        ("more than its region", ProtectionDomain::First, 8192, "first", 0),
        ("more than its region", ProtectionDomain::First, 8192, "last", 8192 - 64),
        ("a region of another domain", ProtectionDomain::Second, 64, "first", 0),
    ] {
        let mut pair = QpPairFixture::new(board);
        pair.board.enter(domain);
        let region = pair.region(&pattern(64, 1));
        pair.board.enter(ProtectionDomain::First);
        let spec = MkeySpec { remote_invalidate: true, ..PLAIN };
        let mut window = MemoryWindow::new(pair.board.create_mkey(spec).key());
        let range = KlmEntry { address: region.address, length, key: region.key };
        let request = pair.near.request(1).signaled();
        request.bind_window(&mut window, range, Access::REMOTE_READ, 0).map_err(text)?;
        let bound = told(&pair.complete_near(1)?);
        let buffer = pair.region(&[0; 64]);
        let remote = Remote { address, rkey: window.key() };
        pair.far.request(2).signaled().rdma_read(remote, &[buffer.sge()]).map_err(text)?;
        let used = told(&pair.complete_far(1)?);
        tell(&format!("a window over {what}, its {part} 64 bytes"), &format!("bound: {bound}; read: {used}"));
    }
    Ok(())
}
