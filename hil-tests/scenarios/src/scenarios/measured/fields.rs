//! Measurements on hardware of fields that the library writes in one way only: in BSFs of block signatures,
//! in layouts, and the modifiers of opcodes.

use super::super::changed::{BSF, FLAGS, SET_PSV, change, configure, run};
use super::super::fixture::{
    ALL_RIGHTS, DIF, MkeyFixture, PLAIN, SIGNATURE, dif_domain, domain, entry, part, pattern,
};
use super::super::raw::{data, wqe};
use super::measurement::{Measurement, Tell, compared, fitting, hex, measurement, send, told};
use crate::board::{Board, MkeySpec};
use crate::expected;
use crate::qp_pair::{CONFIGURE, Tx, Verdict, text};
use alloc::vec::Vec;
use mlx5_mkey::mkey::{BlockSignature, InterleavedEntry, Layout, MkeyConfig, Signature, T10Dif, UmrForm};
use mlx5_mkey::types::{BlockSize, Seed};
use mlx5_mkey::wire::bsf::{BfsPsv, InlineDif, RepeatSeed, SignatureBsf};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::data::{AtomicSegment, RemoteAddressSegment};
use zerocopy::IntoBytes;

pub(super) const ALL: &[Measurement] = &[
    measurement!(gap26_fields_of_signatures, SIGNATURE),
    measurement!(gap27_fields_of_layouts, NOTHING),
    measurement!(gap28_opcode_modifiers, NOTHING),
    measurement!(gap29_answers_to_commands, NOTHING),
];

/// Offsets, in the request, of the format of the wire's signature, of the seed of its T10-DIF, and of guard
/// and tags in the SET_PSV.
const WIRE_FORMAT: usize = BSF + core::mem::offset_of!(SignatureBsf, wire_bfs_psv);
const WIRE_SEED: usize =
    BSF + core::mem::offset_of!(SignatureBsf, wire_inline) + core::mem::offset_of!(InlineDif, rp_inv_seed);
const PSV_GUARD: usize = SET_PSV + 24;
const PSV_TAGS: usize = PSV_GUARD + 2;

/// Reports the signatures on the wire if the format lacks the bit that repeats a CRC, and if the BSF and the
/// PSV have different tags and seeds. Also reports the result of a transfer by a new mkey whose minimal
/// configuration leaves its signature out.
fn gap26_fields_of_signatures(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let data = pattern(1024, 1);
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    fixture.memory = fixture.pair.region(&data);
    let kind = Signature::Crc32c(Seed::Ones);
    let block = BlockSignature::wire(domain(kind));
    let done = configure(&mut fixture, Some(&block), &[(WIRE_FORMAT, BfsPsv::CRC32C)])?;
    let told = match done.and_then(|()| send(&mut fixture, Tx::Send, 0, 2 * 516)) {
        Err(what) => what,
        Ok(wire) => fitting([
            ("a signature for each block", wire == expected::sign(&data, Some(&domain(kind)))),
            ("a signature that goes on", part(&wire, 1028..1032) == expected::signature(&kind, &data, 0)),
        ]),
    };
    tell("CRC32C without the bit that repeats it", &told);

    let block = BlockSignature::wire(dif_domain(DIF, BlockSize::B512));
    let (tags, zeros) = ([0xab, 0xcd, 0x11, 0x22, 0x33, 0x44], RepeatSeed::new().with_repeat_block(true));
    let of_psv = T10Dif { app_tag: 0xabcd, ref_tag: 0x1122_3344, ..DIF };
    let of_zeros = T10Dif { seed: Seed::Zeros, ..DIF };
    for (what, changes) in [
        ("other tags in the PSV", (PSV_TAGS..).zip(tags).collect::<Vec<_>>()),
        ("seed zeros in the BSF", vec![(WIRE_SEED, zeros.into_bits())]),
        ("guard zeros in the PSV", vec![(PSV_GUARD, 0), (PSV_GUARD + 1, 0)]),
    ] {
        let mut fixture = MkeyFixture::new(fixture.pair.board, SIGNATURE);
        fixture.memory = fixture.pair.region(&data);
        let done = configure(&mut fixture, Some(&block), &changes)?;
        let told = match done.and_then(|()| send(&mut fixture, Tx::Send, 0, 1040)) {
            Err(what) => what,
            Ok(wire) => {
                let is = |dif| wire == expected::sign(&data, Some(&dif_domain(dif, BlockSize::B512)));
                fitting([
                    ("without effect", is(DIF)),
                    ("tags of the PSV", is(of_psv)),
                    ("seed zeros", is(of_zeros)),
                ])
            }
        };
        tell(&format!("T10-DIF with {what}"), &told);
    }

    let spec = MkeySpec { form: UmrForm::Minimal, ..SIGNATURE };
    let mut fixture = MkeyFixture::new(fixture.pair.board, spec);
    let done = fixture.install_as(&data, &MkeyConfig::UNCHANGED);
    let found = done.and_then(|()| send(&mut fixture, Tx::Send, 0, data.len()));
    tell("a new mkey whose signature was never configured", &compared(found, &data));
    Ok(())
}

/// Offsets, in a request with a layout, of the lower and the upper bytes of its first entry's number, of the
/// header of an interleaved layout, and of the first entry behind this header.
const FIRST_ENTRY: usize = FLAGS + 6;
const FIRST_ENTRY_UPPER: usize = FLAGS + 16;
const HEADER: usize = 2 * 64;
const STREAM: usize = HEADER + 16;

/// Reports the results of an interleaved layout whose header has another number of bytes, another code, or
/// another number of entries than the library writes, and whose stream is longer than its cycle. Also reports
/// the results of requests that replace entries behind the mkey's room.
fn gap27_fields_of_layouts(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let bytes = pattern(1024, 1);
    let space: Vec<u8> =
        (0..4).flat_map(|cycle| part(&bytes, cycle * 24..cycle * 24 + 16).to_vec()).collect();
    for (what, changes) in [
        ("as the library writes it", vec![]),
        ("with 8 bytes in its header", vec![(HEADER + 3, 8)]),
        ("with 32 bytes in its header", vec![(HEADER + 3, 32)]),
        ("without the code in its header", vec![(HEADER + 6, 0)]),
        ("with no entries in its header", vec![(HEADER + 15, 0)]),
        (
            "with a list entry in its place",
            vec![(STREAM, 0), (STREAM + 1, 0), (STREAM + 2, 0), (STREAM + 3, 16)],
        ),
    ] {
        let mut fixture = MkeyFixture::new(board, PLAIN);
        fixture.memory = fixture.pair.region(&bytes);
        let (address, key) = (fixture.memory.address, fixture.memory.key);
        let stream = [InterleavedEntry { address, bytes: 16, skip: 8, key }];
        let layout = Layout::Interleaved { repeat: 4, entries: &stream };
        fixture.pair.near.hold_back();
        let first = fixture.pair.near.counters().producer;
        fixture.pair.try_configure(fixture.mkey, &ALL_RIGHTS, layout).map_err(text)?;
        change(&mut fixture, first, &changes)?;
        let found = run(&mut fixture)?.and_then(|()| send(&mut fixture, Tx::Send, 0, space.len()));
        tell(&format!("an interleaved layout {what}"), &compared(found, &space));
    }
    for (what, changes) in [
        ("at entry 4 of 8", vec![(FIRST_ENTRY + 1, 4)]),
        ("at entry 8 of 8", vec![(FIRST_ENTRY + 1, 8)]),
        ("at entry 4096 of 8", vec![(FIRST_ENTRY, 16), (FIRST_ENTRY + 1, 0)]),
        ("with an upper part of 1 in its first entry", vec![(FIRST_ENTRY_UPPER + 3, 1)]),
    ] {
        let mut fixture = MkeyFixture::new(board, PLAIN);
        let memory = fixture.pair.region(&bytes);
        let entries: Vec<_> = (0..8).map(|number| entry(&memory, number * 16..number * 16 + 16)).collect();
        fixture.pair.configure(fixture.mkey, &ALL_RIGHTS, entries.as_slice())?;
        let other = [entry(&memory, 512..528); 4];
        fixture.pair.near.hold_back();
        let first = fixture.pair.near.counters().producer;
        let mkey = fixture.pair.mkeys.get_mut(fixture.mkey).ok_or("no such mkey")?;
        let request = fixture.pair.near.request(CONFIGURE).signaled();
        request.replace_entries(mkey, 0, &other).map_err(text)?;
        change(&mut fixture, first, &changes)?;
        let told = match run(&mut fixture)? {
            Err(what) => what,
            Ok(()) => match send(&mut fixture, Tx::Send, 0, 128) {
                Err(what) => format!("done; then {what}"),
                Ok(found) => {
                    let old = found.iter().zip(&bytes).take_while(|(found, old)| found == old).count();
                    format!("done; then the first {old} bytes of 128 are the old ones")
                }
            },
        };
        tell(&format!("four entries replaced {what}"), &told);
    }
    Ok(())
}

/// Reports the results of requests with an opcode modifier of 1, which no driver posts with their opcodes.
fn gap28_opcode_modifiers(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    for opcode in [Opcode::NOP, Opcode::RDMA_WRITE, Opcode::RDMA_READ, Opcode::ATOMIC_FA] {
        let pair = &mut fixture.pair;
        let (near, far) = (pair.region(&[0x11; 8]), pair.region(&[0x22; 8]));
        let place = RemoteAddressSegment {
            address: far.address.into(),
            rkey: far.key.get().into(),
            reserved: 0.into(),
        };
        let local = data(near.sge());
        let operands = AtomicSegment { swap_add: u64::from_ne_bytes([1; 8]).into(), compare: 0.into() };
        let mut bytes = match opcode {
            Opcode::NOP => wqe(opcode, &[]),
            Opcode::ATOMIC_FA => wqe(opcode, &[place.as_bytes(), operands.as_bytes(), local.as_bytes()]),
            _ => wqe(opcode, &[place.as_bytes(), local.as_bytes()]),
        };
        bytes.iter_mut().take(1).for_each(|modifier| *modifier = 1);
        pair.near.request(1).signaled().raw(&bytes).map_err(text)?;
        let done = told(&pair.complete_near(1)?);
        let (near, far) = (hex(&pair.bytes(&near)), hex(&pair.bytes(&far)));
        tell(&format!("{opcode} with modifier 1"), &format!("{done}; memory {near}, of the peer {far}"));
        pair.reconnect();
    }
    Ok(())
}

/// Reports the answers to commands: counters and time stamps of a queue pair, objects of another user
/// context, umems, and new mkeys that the library would not ask for.
fn gap29_answers_to_commands(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let answers = board.ask_by_commands()?;
    if answers.is_empty() {
        tell("commands", "the board lets no program send them");
    }
    answers.iter().for_each(|(what, value)| tell(what, value));
    Ok(())
}
