//! Measurements on hardware of refused requests: the completions and the event of a responder that refuses a
//! request, masked atomics that the library never posts, and vendor syndromes.

use super::super::changed::{self, BSF};
use super::super::fixture::{
    CRYPTO, DIF, KEY_128, MkeyFixture, PLAIN, SIGNATURE, crypto, dif_domain, entry, pattern,
};
use super::super::raw::{data, wqe};
use super::measurement::{Measurement, Tell, hex, measurement, told};
use crate::board::{Board, DekSpec, EndSpec, MkeySpec, ProtectionDomain};
use crate::qp_pair::{QpPairFixture, Verdict, text};
use alloc::string::String;
use mlx5_mkey::mkey::{Access, BlockSignature, Direction, Layout, MkeyConfig, SignatureOrder};
use mlx5_mkey::types::{BlockSize, DekId, Key};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::data::{AtomicSegment, RemoteAddressSegment};
use mlx5_mkey::wqe::{Local, MaskedAtomic, Remote, Sge};
use zerocopy::IntoBytes;

pub(super) const ALL: &[Measurement] = &[
    measurement!(gap21_what_a_responder_does_when_it_refuses, NOTHING),
    measurement!(gap22_refusals_of_masked_atomics, MASKED_ATOMICS),
    measurement!(gap23_vendor_syndromes, NOTHING),
];

/// A request of the peer that the device refuses.
struct Refused {
    what: &'static str,
    /// The mkey that the request names.
    spec: MkeySpec,
    /// The properties of the responder's end.
    end: EndSpec,
    /// Configures the mkey.
    prepare: fn(&mut MkeyFixture<'_>) -> Verdict,
    ask: Ask,
}

/// The operation of the peer.
#[derive(Clone, Copy)]
enum Ask {
    /// Reads this many bytes from this address.
    Read(u64, u32),
    /// Adds to the 8 bytes at this address.
    Add(u64),
    /// Sends a message that is longer than the receives.
    LongSend,
}

fn install(fixture: &mut MkeyFixture<'_>) -> Verdict {
    fixture.install(&pattern(1024, 1), None, None)
}

fn without_rights(fixture: &mut MkeyFixture<'_>) -> Verdict {
    install(fixture)?;
    fixture.change(&MkeyConfig { access: Some(Access::NONE), ..MkeyConfig::UNCHANGED }, Layout::Unchanged)
}

fn with_cipher(fixture: &mut MkeyFixture<'_>, dek: DekId) -> Verdict {
    let order = SignatureOrder::AfterCryptoOnTx;
    let cipher = crypto(Direction::EncryptOnTx, order, BlockSize::B512, dek);
    fixture.install(&pattern(512, 1), None, Some(&cipher))
}

fn with_dek(fixture: &mut MkeyFixture<'_>) -> Verdict {
    let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    with_cipher(fixture, dek)
}

fn without_dek(fixture: &mut MkeyFixture<'_>) -> Verdict {
    with_cipher(fixture, DekId::from_low_bits(0x00ff_fffe))
}

/// Configures a signature. `at` and `byte` replace a byte of its BSF.
fn changed_bsf(fixture: &mut MkeyFixture<'_>, at: usize, byte: u8) -> Verdict {
    fixture.memory = fixture.pair.region(&pattern(512, 1));
    let signature = BlockSignature::wire(dif_domain(DIF, BlockSize::B512));
    changed::configure(fixture, Some(&signature), &[(BSF + at, byte)])?
}

/// The requests that the case tries. The last ones need a cipher or a signature.
fn refused(has_cipher: bool, has_signature: bool) -> impl Iterator<Item = Refused> {
    let row = |what, spec, prepare, ask| Refused { what, spec, end: EndSpec::default(), prepare, ask };
    let denied = EndSpec { denied: Access::REMOTE_READ, ..EndSpec::default() };
    let plain = [
        row("an RDMA READ without the right", PLAIN, without_rights, Ask::Read(0, 8)),
        row("an RDMA READ behind the end", PLAIN, install, Ask::Read(1 << 20, 8)),
        Refused {
            end: denied,
            ..row("an RDMA READ that the queue pair denies", PLAIN, install, Ask::Read(0, 8))
        },
        row("an atomic at address 4", PLAIN, install, Ask::Add(4)),
        row("a SEND longer than the receive", PLAIN, install, Ask::LongSend),
    ];
    let cipher = [
        row("an RDMA READ of half a data unit", CRYPTO, with_dek, Ask::Read(256, 256)),
        row("an RDMA READ without the DEK", CRYPTO, without_dek, Ask::Read(0, 512)),
    ];
    let signature = [
        row(
            "an RDMA READ with block size selector 7",
            SIGNATURE,
            |it| changed_bsf(it, 2, 7),
            Ask::Read(0, 520),
        ),
        row("an RDMA READ without the PSV", SIGNATURE, |it| changed_bsf(it, 9, 0xff), Ask::Read(0, 520)),
    ];
    let cipher = cipher.into_iter().filter(move |_| has_cipher);
    plain.into_iter().chain(cipher).chain(signature.into_iter().filter(move |_| has_signature))
}

/// Reports the completions of both sides and the event of the responder, for requests that the responder
/// refuses while three of its receives are posted.
fn gap21_what_a_responder_does_when_it_refuses(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let has = board.capabilities();
    for Refused { what, spec, end, prepare, ask } in refused(has.xts.is_some(), has.signature) {
        let mut fixture = MkeyFixture::new(board, spec);
        if let Err(error) = prepare(&mut fixture) {
            tell(what, &error);
            continue;
        }
        let (mkey, pair) = (fixture.mkey, &mut fixture.pair);
        pair.reconnect_as(end);
        let (inbox, buffer) = (pair.region(&[0; 8]), pair.region(&[0; 520]));
        for id in 1..=3 {
            pair.near.queues().post_receive(id, &[inbox.sge()]).map_err(text)?;
        }
        pair.near.queues().publish_receives();
        let rkey = pair.key(mkey);
        let remote = |address| Remote { address, rkey };
        let sge = |length| Sge { address: buffer.address, length, lkey: buffer.key };
        let request = pair.far.request(9).signaled();
        match ask {
            Ask::Read(address, length) => request.rdma_read(remote(address), &[sge(length)]),
            Ask::Add(address) => request.fetch_add(remote(address), 1, buffer.place()),
            Ask::LongSend => request.send(&[sge(64)][..]),
        }
        .map_err(text)?;
        tell(&format!("{what}: the requester"), &told(&pair.complete_far(1)?));
        tell(&format!("{what}: three receives"), &told(&pair.wait_near(3)?));
        let event = pair.board.event(&pair.near);
        tell(&format!("{what}: the event"), &event.map_or("none".into(), |event| format!("{event:?}")));
    }
    Ok(())
}

/// An atomic of the peer.
#[derive(Clone, Copy)]
enum Atomic {
    /// A masked addition to 4 bytes.
    Four,
    /// A masked addition to 8 bytes.
    Eight,
    /// An addition without masks.
    Plain,
    /// A masked addition with this opcode modifier.
    Modifier(u8),
}

/// Posts an atomic of the far end that adds 1 in each byte.
fn post(pair: &mut QpPairFixture<'_>, atomic: Atomic, remote: Remote, old: Local) -> Result<(), String> {
    let add = u64::from_ne_bytes([1; 8]);
    let request = pair.far.request(1).signaled();
    match atomic {
        Atomic::Four => {
            let atomic = MaskedAtomic::FetchAdd32 { add: add as u32, boundary: 0 };
            request.masked_atomic(remote, atomic, old)
        }
        Atomic::Eight => request.masked_atomic(remote, MaskedAtomic::FetchAdd64 { add, boundary: 0 }, old),
        Atomic::Plain => request.fetch_add(remote, add, old),
        Atomic::Modifier(modifier) => {
            let place = RemoteAddressSegment {
                address: remote.address.into(),
                rkey: remote.rkey.get().into(),
                reserved: 0.into(),
            };
            let operands = AtomicSegment { swap_add: add.into(), compare: 0.into() };
            let old = data(Sge { address: old.address, length: 8, lkey: old.lkey });
            let segments = [place.as_bytes(), operands.as_bytes(), old.as_bytes()];
            let mut bytes = wqe(Opcode::ATOMIC_MASKED_FA, &segments);
            bytes.iter_mut().take(1).for_each(|byte| *byte = modifier);
            request.raw(&bytes)
        }
    }
    .map_err(text)
}

/// Reports the results of masked atomics at addresses that are no multiples of their lengths, with opcode
/// modifiers that no program posts, and on a queue pair whose atomic mode forbids masks. On that queue pair,
/// reports the result of a plain atomic too.
fn gap22_refusals_of_masked_atomics(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    use Atomic::{Eight, Four, Modifier, Plain};
    let (any, low) = (EndSpec::default(), EndSpec { plain_atomics: true, ..EndSpec::default() });
    let mut fixture = MkeyFixture::new(board, PLAIN);
    for (what, end, address, atomic) in [
        ("4 bytes at 4", any, 4, Four),
        ("4 bytes at 2", any, 2, Four),
        ("8 bytes at 8", any, 8, Eight),
        ("8 bytes at 4", any, 4, Eight),
        ("opcode modifier 0", any, 0, Modifier(0)),
        ("opcode modifier 7", any, 0, Modifier(7)),
        ("opcode modifier 8", any, 0, Modifier(8)),
        ("opcode modifier 9", any, 0, Modifier(9)),
        ("opcode modifier 10", any, 0, Modifier(10)),
        ("4 bytes in the mode without masks", low, 0, Four),
        ("8 bytes in the mode without masks", low, 0, Eight),
        ("an atomic without masks in this mode", low, 0, Plain),
    ] {
        fixture.pair.reconnect_as(end);
        fixture.install(&[0x11; 16], None, None)?;
        // One entry has all bytes, so that no atomic lies in two.
        let whole = [entry(&fixture.memory, 0..16)];
        fixture.change(&MkeyConfig::UNCHANGED, &whole)?;
        let pair = &mut fixture.pair;
        let old = pair.region(&[0; 8]);
        let remote = Remote { address, rkey: pair.key(fixture.mkey) };
        post(pair, atomic, remote, old.place())?;
        let done = told(&pair.complete_far(1)?);
        let (old, memory) = (pair.bytes(&old), pair.bytes(&fixture.memory));
        let value = format!("{done}; old value {}, memory {}", hex(&old), hex(&memory));
        tell(&format!("a masked atomic, {what}"), &value);
    }
    Ok(())
}

/// Reports the error completions, with their vendor syndromes, of requests whose own key is wrong: RDMA
/// WRITEs from the key, and RDMA READs and receives into it. Also reports those of flushed requests.
fn gap23_vendor_syndromes(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    fixture.install(&[0x11; 64], None, None)?;
    let key = fixture.pair.key(fixture.mkey);
    let fresh = fixture.pair.mkey(PLAIN);
    let locked = fixture.pair.mkey(PLAIN);
    let entries = fixture.entries();
    let config = MkeyConfig { access: Some(Access::NONE), ..MkeyConfig::UNCHANGED };
    fixture.pair.configure(locked, &config, &entries)?;
    fixture.pair.board.enter(ProtectionDomain::Second);
    let strange = fixture.pair.region(&[0; 64]);
    fixture.pair.board.enter(ProtectionDomain::First);
    let place = |address, lkey| Sge { address, length: 64, lkey };
    let mut rows = vec![
        ("an unknown key", place(0, Key::from_raw(0x00ff_ff00))),
        ("a key with another tag", place(0, Key::from_raw(key.get() ^ 1))),
        ("a key that was never configured", place(0, fixture.pair.key(fresh))),
        ("a key of another domain", place(strange.address, strange.key)),
        ("a key without the right to write", place(0, fixture.pair.key(locked))),
        ("bytes behind the end", place(1, key)),
    ];
    let mut bound = MkeyFixture::new(fixture.pair.board, PLAIN);
    bound.memory = bound.pair.region(&[0; 64]);
    if let Err(refused) = changed::bind_to_far(&mut bound)? {
        tell("binding an mkey to a queue pair", &refused);
    } else {
        rows.push(("a key of another queue pair", place(0, bound.pair.key(bound.mkey))));
    }
    let pair = &mut bound.pair;
    let plain = pair.region(&[0; 64]);
    let (remote, good) = (plain.remote(), plain.sge());
    for (what, bad) in rows {
        for way in ["RDMA WRITE from", "RDMA READ into", "receive into"] {
            match way {
                "RDMA WRITE from" => pair.near.request(1).signaled().rdma_write(remote, &[bad]),
                "RDMA READ into" => pair.near.request(1).signaled().rdma_read(remote, &[bad]),
                _ => {
                    pair.receive(1, &[bad])?;
                    pair.far.request(2).signaled().send(&[good][..])
                }
            }
            .map_err(text)?;
            pair.run_both()?;
            let mut result = told(&pair.wait_near(1)?);
            if way == "receive into" {
                result += &format!("; its sender: {}", told(&pair.wait_far(1)?));
            }
            tell(&format!("{way} {what}"), &result);
            pair.reconnect();
        }
    }
    let unknown = place(0, Key::from_raw(0x00ff_ff00));
    pair.receive(3, &[good])?;
    pair.near.request(1).signaled().send(&[unknown][..]).map_err(text)?;
    pair.near.request(2).signaled().send(&[good][..]).map_err(text)?;
    tell("a SEND that fails, a flushed SEND, a flushed receive", &told(&pair.complete_near(3)?));
    Ok(())
}
