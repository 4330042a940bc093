//! The state of an mkey over several configurations: signatures that stay, end or restart; signature errors
//! and recovery from them; send queues that drain at a signature error.

use super::fixture::{
    ALL_RIGHTS, BOTH, DIF, KEY_128, MkeyFixture, PLAIN, SIGNATURE, cipher_over_dif, dif_domain, domain,
    entry, flipped, out, part, pattern, reports, same,
};
use super::scenario::{Scenario, scenario};
use crate::assumption::assumed;
use crate::board::{Board, EndSpec, QpEvent};
use crate::expected;
use crate::qp_pair::{QpPairFixture, Rx, Tx, Verdict, Within, ids, text};
use crate::{ensure, ensure_eq};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::error::{CheckError, PostError};
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, KlmEntry, Layout, MkeyConfig, Signature, SignatureChange,
    SignatureErrorKind, T10Dif,
};
use mlx5_mkey::queue::{Outcome, RequestKind};
use mlx5_mkey::types::{BlockSize, DomainKind, Seed, Tweak, UmrFence};
use mlx5_mkey::wire::ctrl::FmCeSe;
use mlx5_mkey::wqe::{Payload, Remote, Sge};

pub(super) const ALL: &[Scenario] = &[
    scenario!(r001_configurations_and_transfers_in_one_chain, NOTHING, ["R1", "R17"]),
    scenario!(r007_what_was_not_rung_does_not_run, NOTHING, ["R7", "R121"]),
    scenario!(r010_other_fields_stay, SIGNATURE, ["R10", "R54"]),
    scenario!(r017_used_at_once_without_waiting, BOTH, ["R17", "R1", "R176"]),
    scenario!(m77_a_request_behind_a_change_of_an_mkey_is_fenced, NOTHING, ["M77", "R17"]),
    scenario!(r018_no_completion_unless_asked, SIGNATURE, ["R18"]),
    scenario!(r019_one_completion_for_all_parts, SIGNATURE, ["R19", "R177"]),
    scenario!(r024_reset_ends_the_signature, SIGNATURE, ["R20", "R24", "R54"]),
    scenario!(r024_reset_ends_the_signature_beside_crypto, BOTH, ["R24", "R54"]),
    scenario!(r025_the_signature_outlives_a_new_layout, SIGNATURE, ["R25", "R20"]),
    scenario!(r055_a_new_signature_is_complete, SIGNATURE, ["R55"]),
    scenario!(r059_creation_to_transfer, SIGNATURE, ["R59", "R3"]),
    scenario!(r175_every_start_slot_of_the_ring, BOTH, ["R175"]),
    scenario!(r175_block_numbers_wrap_at_16_bits, NOTHING, ["R175"]),
    scenario!(r176_set_psv_starts_the_signature, SIGNATURE, ["R176"]),
    scenario!(r179_the_first_configuration_arms_the_mkey, SIGNATURE, ["R179"]),
    scenario!(r180_errors_are_reported_again_after_recovery, SIGNATURE, ["R180"]),
    scenario!(r180_recovery_without_a_new_signature, SIGNATURE, ["R180", "R11"]),
    scenario!(r181_no_spurious_errors_without_a_signature, SIGNATURE, ["R181", "M15", "M15"]),
    scenario!(r182_transfer_completes_and_error_is_told_apart, SIGNATURE, ["R182", "M8", "M9"]),
    scenario!(r182_an_error_behind_an_invalidation_is_readable, SIGNATURE, ["R12", "R182", "M13"]),
    scenario!(r183_the_first_error_is_kept, SIGNATURE, ["R183", "M10"]),
    scenario!(r184_the_right_mkey_is_told, SIGNATURE, ["R184", "M62"]),
    scenario!(r185_halves_equal_the_whole, BOTH, ["R185"]),
    scenario!(r185_halves_in_one_request, BOTH, ["R185", "R16"]),
    scenario!(r185_the_second_half_names_its_own_block, SIGNATURE, ["R185"]),
    scenario!(r186_part_of_a_block, SIGNATURE, ["R186"]),
    scenario!(m19_a_draining_queue_stops_behind_an_error, DRAIN, ["R182", "M19", "M20", "M21"]),
    scenario!(m17_cancelled_requests_complete_and_do_nothing, DRAIN, ["M16", "M17", "M18", "M22", "M23"]),
    scenario!(m19_a_draining_queue_without_errors_goes_on, DRAIN, ["M19"]),
];

const WIRE: BlockSignature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));

/// Resets the signature, and keeps all other properties.
const RESET: MkeyConfig = MkeyConfig { signature: SignatureChange::Reset, ..MkeyConfig::UNCHANGED };

/// Configurations and transfers on one queue, with one doorbell, execute in order.
fn r001_configurations_and_transfers_in_one_chain(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(PLAIN);
    let data = pattern(3 * 64, 1);
    let (source, target) = (pair.region(&data), pair.region(&[0; 3 * 64]));
    for number in 0..3u64 {
        let start = number as usize * 64;
        let entries = [entry(&source, start..start + 64)];
        pair.try_configure(mkey, &MkeyConfig::UNCHANGED, &entries).map_err(text)?;
        let remote = Remote { address: target.address + number * 64, rkey: target.key };
        let sge = Sge { address: 0, length: 64, lkey: pair.key(mkey) };
        pair.near.request(100 + number).signaled().rdma_write(remote, &[sge]).map_err(text)?;
        pair.near.request(200 + number).nop().map_err(text)?;
    }
    ensure_eq!(ids(&pair.complete_near(6)?), [0xc0, 100, 0xc0, 101, 0xc0, 102], "order of completions");
    same(&pair.bytes(&target), &data)
}

/// Posted requests stay without effect until their doorbell rings.
fn r007_what_was_not_rung_does_not_run(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    fixture.pair.near.hold_back();
    let data = pattern(64, 1);
    fixture.install(&data, None, None)?;
    let other = fixture.pair.region(&pattern(64, 2));
    let entries = [entry(&other, 0..64)];
    fixture.pair.try_configure(fixture.mkey, &MkeyConfig::UNCHANGED, &entries).map_err(text)?;
    fixture.pair.run_device()?;
    ensure!(fixture.pair.poll_near()?.is_empty(), "an unrung request completed");
    // The far end publishes an RDMA READ while the new configuration of the near end is still unpublished. So
    // the READ must use the old configuration.
    let target = fixture.pair.region(&[0; 64]);
    let remote = Remote { address: 0, rkey: fixture.pair.key(fixture.mkey) };
    fixture.pair.far.request(1).signaled().rdma_read(remote, &[target.sge()]).map_err(text)?;
    ensure_eq!(fixture.pair.complete_far(1)?.len(), 1, "completions of the reader");
    same(&fixture.pair.bytes(&target), &data).within("before the doorbell")?;
    ensure_eq!(fixture.pair.complete_near(1)?.len(), 1, "completions behind the doorbell");
    fixture.out(Tx::PeerRead, 0, &pattern(64, 2))
}

/// New rights keep layout and signature. A new layout keeps rights and signature.
fn r010_other_fields_stay(board: &mut dyn Board) -> Verdict {
    let data = pattern(1024, 1);
    let (mut fixture, images) = MkeyFixture::signed(board, &data, &WIRE)?;
    let rights = MkeyConfig { access: Some(Access::REMOTE_READ), ..MkeyConfig::UNCHANGED };
    fixture.change(&rights, Layout::Unchanged)?;
    fixture.out_each(0, &images.wire)?;
    let entries = fixture.entries();
    fixture.change(&MkeyConfig::UNCHANGED, &entries)?;
    fixture.out_each(0, &images.wire)?;
    ensure!(
        fixture.pair.rx(Rx::PeerWrite, fixture.mkey, 0, &images.wire)?.requester.is_some(),
        "rights came back"
    );
    Ok(())
}

/// A request that is published together with the configuration before it uses the new layout, signature and
/// cipher.
fn r017_used_at_once_without_waiting(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(BOTH);
    let cipher = cipher_over_dif(pair.board);
    for round in 0..20u8 {
        let data = pattern(1024, round);
        let (source, target) = (pair.region(&data), pair.region(&[0; 1040]));
        let crypto = Crypto { tweak: Tweak::from_lba(round.into()), ..cipher };
        let entries = [entry(&source, 0..1000), entry(&source, 1000..1024)];
        let signature = SignatureChange::Set(WIRE);
        let config = MkeyConfig { access: Some(Access::NONE), signature, crypto: Some(crypto) };
        let prepared = pair.prepare(mkey, &config).map_err(text)?;
        let mkey = pair.mkeys.get_mut(mkey).ok_or("no such mkey")?;
        pair.near.request(1).configure_mkey(mkey, &prepared, &entries).map_err(text)?;
        let sge = Sge { address: 0, length: 1040, lkey: mkey.key() };
        pair.near.request(2).signaled().rdma_write(target.remote(), &[sge]).map_err(text)?;
        ensure_eq!(ids(&pair.complete_near(1)?), [2], "round {round}: completions");
        let images = expected::images(&data, Some(&WIRE), Some((&crypto, &KEY_128)));
        same(&pair.bytes(&target), &images.wire).within(format_args!("round {round}"))?;
    }
    Ok(())
}

/// If a request is published together with a configuration before it, it has the fence that the device
/// requires; other requests have none. The request moves the memory of the new layout. The check runs with
/// RDMA WRITE, RDMA READ and SEND.
fn m77_a_request_behind_a_change_of_an_mkey_is_fenced(board: &mut dyn Board) -> Verdict {
    const BYTES: usize = 4096;
    let mut pair = QpPairFixture::new(board);
    let fence = match pair.board.umr_fence() {
        UmrFence::Strong => FmCeSe::FM_STRONG,
        UmrFence::Small => FmCeSe::FM_SMALL,
        UmrFence::None => FmCeSe::FM_NONE,
    };
    let mkey = pair.mkey(PLAIN);
    let prepared = pair.prepare(mkey, &ALL_RIGHTS).map_err(text)?;
    for round in 0..24u8 {
        let near = pair.region(&pattern(BYTES, round));
        let far = pair.region(&pattern(BYTES, !round));
        let begin = pair.near.counters().producer;
        let half = BYTES / 2;
        let entries = [entry(&near, half..BYTES), entry(&near, 0..half)];
        let of = pair.mkeys.get_mut(mkey).ok_or("no such mkey")?;
        let sge = Sge { address: 0, length: BYTES as u32, lkey: of.key() };
        pair.near.request(1).configure_mkey(of, &prepared, &entries).map_err(text)?;
        let request = pair.near.request(2);
        let reads = match round % 3 {
            0 => request.rdma_write(far.remote(), &[sge]).map(|()| false),
            1 => request.rdma_read(far.remote(), &[sge]).map(|()| true),
            _ => {
                // The far end posts a receive request before the near end sends the message.
                pair.far.queues().post_receive(3, &[far.sge()]).map_err(text)?;
                pair.far.queues().publish_receives();
                request.send(&[sge]).map(|()| false)
            }
        };
        let reads = reads.map_err(text)?;
        pair.near.request(4).signaled().nop().map_err(text)?;
        ensure_eq!(ids(&pair.complete_near(1)?), [4], "round {round}: completions");
        let received = usize::from(round % 3 == 2);
        ensure_eq!(pair.wait_far(received)?.len(), received, "round {round}: messages");
        let (from, to) = if reads { (far, near) } else { (near, far) };
        let bytes = pattern(BYTES, if reads { !round } else { round });
        let turned = [part(&bytes, half..BYTES), part(&bytes, 0..half)].concat();
        same(&pair.bytes(&from), &bytes).within(format_args!("round {round}, source"))?;
        same(&pair.bytes(&to), &turned).within(format_args!("round {round}, target"))?;
        let fences = fences(&mut pair, begin);
        ensure_eq!(fences, [FmCeSe::FM_NONE, fence, FmCeSe::FM_NONE], "round {round}: fences");
    }
    Ok(())
}

/// Returns the fence modes of the near end's requests, beginning with the request at block `begin`.
fn fences(pair: &mut QpPairFixture<'_>, begin: u32) -> Vec<u8> {
    let queue = pair.near.queues();
    let (mut at, mut fences) = (begin, Vec::new());
    while at < queue.counters().producer {
        let [.., ds, _, _, _, flags] = *queue.block(at).0.first_chunk::<12>().unwrap_or(&[0; 12]);
        fences.push(FmCeSe::from_bits(flags).fm());
        at += u32::from(ds & 0x3f).div_ceil(4).max(1);
    }
    fences
}

/// An unsignalled configuration has no completion.
fn r018_no_completion_unless_asked(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let number = pair.mkey(SIGNATURE);
    let config = MkeyConfig { signature: SignatureChange::Set(WIRE), ..MkeyConfig::UNCHANGED };
    let prepared = pair.prepare(number, &config).map_err(text)?;
    let mkey = pair.mkeys.get_mut(number).ok_or("no such mkey")?;
    pair.near.request(1).configure_mkey(mkey, &prepared, Layout::Unchanged).map_err(text)?;
    pair.run_near()?;
    ensure_eq!(pair.poll_near()?, vec![], "completions");
    ensure!(pair.near.counters().outstanding > 0, "retired without a completion");
    pair.near.request(2).signaled().nop().map_err(text)?;
    ensure_eq!(pair.complete_near(1)?.len(), 1, "completions behind a signalled request");
    ensure_eq!(pair.near.counters().outstanding, 0, "requests left behind it");
    Ok(())
}

/// A configuration consists of up to three work requests, and one completion reports them all.
fn r019_one_completion_for_all_parts(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let number = pair.mkey(SIGNATURE);
    let own = domain(Signature::T10Dif(DIF));
    let other = domain(Signature::Crc32(Seed::Ones));
    for (block, psvs) in [(BlockSignature::both(own, other), 2), (BlockSignature::memory(own), 1), (WIRE, 1)]
    {
        let config = MkeyConfig { signature: SignatureChange::Set(block), ..MkeyConfig::UNCHANGED };
        pair.try_configure(number, &config, Layout::Unchanged).map_err(text)?;
        ensure_eq!(pair.near.counters().outstanding, 1 + psvs, "work requests");
        let done: Vec<_> = pair.complete_near(1)?.iter().map(|work| work.outcome).collect();
        ensure!(matches!(done[..], [Outcome::Sent { kind: RequestKind::MkeyConfigure, .. }]), "{done:?}");
        ensure_eq!(pair.near.counters().outstanding, 0, "work requests left");
    }
    Ok(())
}

/// After a configuration that resets the signature, data pass unchanged: no signature is checked, computed or
/// stripped. Layout, rights and key stay.
fn r024_reset_ends_the_signature(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let own = domain(Signature::T10Dif(DIF));
    for block in [WIRE, BlockSignature::memory(own), BlockSignature::both(own, own)] {
        let data = pattern(1040, 1);
        fixture.install(&data, Some(&block), None)?;
        fixture.change(&RESET, Layout::Unchanged)?;
        fixture.both_ways(&expected::Images { memory: data.clone(), wire: data })?;
    }
    Ok(())
}

/// On an mkey with crypto, a configuration that resets the signature keeps the cipher. The request then
/// contains an empty signature BSF.
fn r024_reset_ends_the_signature_beside_crypto(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, BOTH);
    let crypto = cipher_over_dif(fixture.pair.board);
    let data = pattern(1040, 1);
    fixture.install(&data, Some(&WIRE), Some(&crypto))?;
    fixture.change(&RESET, Layout::Unchanged)?;
    fixture.both_ways(&expected::images(&data, None, Some((&crypto, &KEY_128))))
}

/// A new layout keeps the signature: the device signs and checks the data of the new layout.
fn r025_the_signature_outlives_a_new_layout(board: &mut dyn Board) -> Verdict {
    let (mut fixture, images) = MkeyFixture::signed(board, &pattern(1024, 1), &WIRE)?;
    fixture.out(Tx::Send, 0, &images.wire)?;
    let other = expected::images(&pattern(2048, 2), Some(&WIRE), None);
    fixture.install_as(&other.memory, &MkeyConfig::UNCHANGED)?;
    fixture.both_ways(&other)?;
    let error = fixture.take_bad(Rx::Receive, &flipped(&other.wire, 3 * 520 + 4, 1))?;
    reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 3, 520)
}

/// A new signature replaces the old one completely, even if it has another kind or is in another domain.
fn r055_a_new_signature_is_complete(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(1024, 1);
    let crc32 = domain(Signature::Crc32(Seed::Ones));
    let crc64 = dif_domain(T10Dif { app_tag: 1, ref_remap: false, ..DIF }, BlockSize::B520);
    let first = dif_domain(DIF, BlockSize::B512);
    fixture.install(&data, Some(&BlockSignature::wire(first).with_check_mask(0)), None)?;
    for block in
        [BlockSignature::wire(crc32), BlockSignature::memory(crc32), BlockSignature::both(first, crc32)]
    {
        let images = expected::images(&data, Some(&block), None);
        let signature = SignatureChange::Set(block);
        fixture.install_as(&images.memory, &MkeyConfig { signature, ..MkeyConfig::UNCHANGED })?;
        fixture.both_ways(&images).within(format_args!("{block:?}"))?;
    }
    let data = pattern(1040, 2);
    let block = BlockSignature::wire(crc64);
    let images = fixture.install_images(&data, Some(&block), None)?;
    fixture.both_ways(&images)
}

/// An mkey is created, configured and used as in the example of the man page.
fn r059_creation_to_transfer(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(SIGNATURE);
    let data = pattern(512, 1);
    let region = pair.region(&data);
    let entries = [entry(&region, 0..512)];
    let (access, signature) = (Some(Access::REMOTE_READ), SignatureChange::Set(WIRE));
    pair.configure(mkey, &MkeyConfig { access, signature, ..MkeyConfig::UNCHANGED }, &entries)?;
    let wire = pair.tx(Tx::PeerRead, mkey, 0, 520)?.ok()?;
    same(&wire, &expected::images(&data, Some(&WIRE), None).wire)
}

/// A configuration and an RDMA WRITE, of nine blocks together, begin at each block of the ring in turn. So
/// the end of the ring is once between any two neighbouring blocks of the requests.
fn r175_every_start_slot_of_the_ring(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, BOTH);
    let crypto = cipher_over_dif(fixture.pair.board);
    let (memory, wire) = (domain(Signature::Crc64Xp10(Seed::Ones)), domain(Signature::T10Dif(DIF)));
    let signature = BlockSignature::both(memory, wire);
    let data = pattern(512, 1);
    let images = fixture.install_images(&data, Some(&signature), Some((&crypto, &KEY_128)))?;
    let cuts = [0, 100, 200, 300, 400, 520];
    let entries: Vec<KlmEntry> = cuts
        .windows(2)
        .filter_map(|pair| Some(*pair.first()?..*pair.last()?))
        .map(|range| entry(&fixture.memory, range))
        .collect();
    let config =
        MkeyConfig { signature: SignatureChange::Set(signature), crypto: Some(crypto), ..ALL_RIGHTS };
    let far = fixture.pair.region(&[0; 520]);
    let key = fixture.pair.key(fixture.mkey);
    let (remote, sge) = (far.remote(), Sge { address: 0, length: 520, lkey: key });
    let before = fixture.pair.near.counters().producer;
    for round in 0..crate::board::SEND_BLOCKS {
        fixture.pair.board.write(far.address, &[0; 520]);
        fixture.pair.try_configure(fixture.mkey, &config, &entries[..]).map_err(text)?;
        fixture.pair.near.request(2).signaled().rdma_write(remote, &[sge]).map_err(text)?;
        ensure_eq!(fixture.pair.complete_near(2)?.len(), 2, "round {round}: completions");
        same(&fixture.pair.bytes(&far), &images.wire).within(format_args!("round {round}"))?;
    }
    // Each round posts an odd number of blocks, so 256 rounds begin at 256 different blocks of the ring.
    let blocks =
        fixture.pair.near.counters().producer.wrapping_sub(before) as usize / crate::board::SEND_BLOCKS;
    ensure!(blocks % 2 == 1, "{blocks} blocks a round");
    Ok(())
}

/// Requests succeed when block numbers wrap at 2^16, also if they wrap inside a request.
fn r175_block_numbers_wrap_at_16_bits(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let target = pair.region(&[0; 800]);
    let remote = target.remote();
    let mut id = 0u64;
    while pair.near.counters().producer < 0x1_0000 + 100 {
        let data = pattern(800, id as u8);
        let first = id;
        // This loop posts seventeen requests of fourteen blocks each.
        for _ in 0..17 {
            id += 1;
            let request = pair.near.request(id).signaled();
            request.rdma_write(remote, Payload::Inline(&data)).map_err(text)?;
        }
        ensure_eq!(ids(&pair.complete_near(17)?), Vec::from_iter(first + 1..=id), "completions");
        same(&pair.bytes(&target), &data).within(format_args!("request {id}"))?;
    }
    Ok(())
}

/// A configuration with other tags than the one before applies at once in both domains. This shows that the
/// device has executed its SET_PSVs.
fn r176_set_psv_starts_the_signature(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(1024, 1);
    for (app_tag, ref_tag) in [(1, 10), (2, 20), (0xabcd, 0xffff_ffff)] {
        let first = dif_domain(T10Dif { app_tag, ref_tag, ..DIF }, BlockSize::B512);
        let second = dif_domain(T10Dif { app_tag: !app_tag, ref_tag: !ref_tag, ..DIF }, BlockSize::B512);
        for block in
            [BlockSignature::wire(first), BlockSignature::memory(first), BlockSignature::both(first, second)]
        {
            let images = fixture.install_images(&data, Some(&block), None)?;
            fixture.both_ways(&images).within(format_args!("tags {app_tag:#x}, {ref_tag:#x}"))?;
        }
    }
    Ok(())
}

/// After the first configuration of an mkey, the device already reports a wrong block in the first transfer.
fn r179_the_first_configuration_arms_the_mkey(board: &mut dyn Board) -> Verdict {
    let (mut fixture, images) = MkeyFixture::signed(board, &pattern(512, 1), &WIRE)?;
    let error = fixture.take_bad(Rx::Receive, &flipped(&images.wire, 516, 1))?;
    reports(&error, SignatureErrorKind::RefTag, DomainKind::Wire, 0, 520)
}

/// A signature error, its check and a configuration can follow one another any number of times. The device
/// reports each error.
fn r180_errors_are_reported_again_after_recovery(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let own = domain(Signature::Crc32c(Seed::Ones));
    let block = BlockSignature::both(own, own);
    let stream = expected::sign(&pattern(1024, 1), Some(&own));
    fixture.install(&stream, Some(&block), None)?;
    for round in 0..5u64 {
        let at = (round % 2) as usize;
        let bad = flipped(&stream, at * 516 + 3, 1);
        let (error, side) = if round % 3 == 0 {
            (fixture.take_bad(Rx::PeerWrite, &bad)?, DomainKind::Wire)
        } else {
            fixture.write(&bad);
            (fixture.out_bad(Tx::Send, bad.len())?, DomainKind::Memory)
        };
        reports(&error, SignatureErrorKind::Guard, side, at as u64, 516)
            .within(format_args!("round {round}"))?;
        fixture.set_signature(&block)?;
        fixture.store(Rx::Receive, &stream, &stream).within(format_args!("round {round}"))?;
    }
    Ok(())
}

/// After a signature error, any configuration makes the device report errors again, even if it keeps the
/// current signature.
fn r180_recovery_without_a_new_signature(board: &mut dyn Board) -> Verdict {
    let (mut fixture, images) = MkeyFixture::signed(board, &pattern(1024, 1), &WIRE)?;
    for round in 0..4usize {
        let error = fixture.take_bad(Rx::Receive, &flipped(&images.wire, round % 2 * 520 + 512, 1))?;
        reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, (round % 2) as u64, 520)?;
        if round % 2 == 0 {
            fixture.change(&MkeyConfig::UNCHANGED, Layout::Unchanged)?;
        } else {
            let entries = fixture.entries();
            fixture.change(&MkeyConfig::UNCHANGED, &entries)?;
        }
        fixture.both_ways(&images)?;
    }
    Ok(())
}

/// An mkey that can have a signature but has none moves data unchanged, without an error.
fn r181_no_spurious_errors_without_a_signature(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(SIGNATURE);
    let data = pattern(1040, 1);
    let region = pair.region(&data);
    let entries = [entry(&region, 0..1040)];
    pair.configure(mkey, &ALL_RIGHTS, &entries)?;
    out(&mut pair, mkey, 0, &data)?;
    for way in Rx::ALL {
        pair.rx(way, mkey, 0, &data)?.ok()?;
    }
    ensure_eq!(pair.check(mkey), Ok(None), "signature error");
    let plain = pair.mkey(PLAIN);
    let check = pair.check(plain);
    ensure_eq!(check, Err(CheckError::NotASignatureMkey), "an mkey that has none to ask for");
    Ok(())
}

/// By every method, a transfer with wrong data completes successfully and the data arrive. The signature
/// error is reported separately.
fn r182_transfer_completes_and_error_is_told_apart(board: &mut dyn Board) -> Verdict {
    let (mut fixture, images) = MkeyFixture::signed(board, &pattern(1024, 1), &WIRE)?;
    let bad = flipped(&images.wire, 700, 1);
    for way in Rx::ALL {
        fixture.set_signature(&WIRE)?;
        let error = fixture.take_bad(way, &bad)?;
        reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 1, 520)?;
        fixture.holds(&flipped(&images.memory, 692, 1)).within(format_args!("{way:?}"))?;
    }
    let memory = BlockSignature::memory(domain(Signature::T10Dif(DIF)));
    fixture.install(&bad, Some(&memory), None)?;
    for way in Tx::ALL {
        fixture.set_signature(&memory)?;
        let error = fixture.out_bad(way, 1024)?;
        reports(&error, SignatureErrorKind::Guard, DomainKind::Memory, 1, 520)
            .within(format_args!("{way:?}"))?;
    }
    Ok(())
}

/// Two requests that are published together transfer wrong data and invalidate the mkey. Completions are
/// polled only afterwards. The signature error still gives the block and the values.
fn r182_an_error_behind_an_invalidation_is_readable(board: &mut dyn Board) -> Verdict {
    let (mut fixture, images) = MkeyFixture::signed(board, &pattern(1024, 1), &WIRE)?;
    let far = fixture.pair.region(&flipped(&images.wire, 700, 1));
    let sge = Sge { address: 0, length: far.length as u32, lkey: fixture.pair.key(fixture.mkey) };
    let near = &mut fixture.pair.near;
    near.request(1).signaled().rdma_read(far.remote(), &[sge]).map_err(text)?;
    let mkey = fixture.pair.mkeys.get_mut(fixture.mkey).ok_or("no such mkey")?;
    near.request(2).fenced().signaled().invalidate_mkey(mkey).map_err(text)?;
    near.ring_doorbell();
    fixture.pair.run_device()?;
    let done: Vec<_> = fixture.pair.wait_near(2)?.iter().map(|work| (work.id, work.outcome)).collect();
    let invalidated = Outcome::Sent { kind: RequestKind::LocalInvalidate, bytes: 0 };
    ensure!(matches!(done[..], [(1, Outcome::Sent { .. }), (2, last)] if last == invalidated), "{done:?}");
    let error = fixture.error()?.ok_or("not reported")?;
    reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 1, 520)
}

/// If several blocks are wrong, in one transfer and in the next, the first one is reported. A second check
/// reports no error.
fn r183_the_first_error_is_kept(board: &mut dyn Board) -> Verdict {
    let (mut fixture, images) = MkeyFixture::signed(board, &pattern(4 * 512, 1), &WIRE)?;
    let two = flipped(&flipped(&images.wire, 520 + 512, 1), 2 * 520 + 519, 1);
    fixture.pair.rx(Rx::PeerWrite, fixture.mkey, 0, &two)?.ok()?;
    fixture.pair.rx(Rx::PeerWrite, fixture.mkey, 0, &flipped(&images.wire, 5, 1))?.ok()?;
    let error = fixture.error()?.ok_or("not reported")?;
    reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 1, 520)?;
    ensure_eq!(fixture.error()?, None, "asked again");
    // The device reports no further error until the next configuration. Checking the mkey does not change
    // that.
    fixture.pair.rx(Rx::PeerWrite, fixture.mkey, 0, &two)?.ok()?;
    ensure_eq!(fixture.error()?, None, "before the next configuration");
    let counts = fixture.pair.mkeys.get(fixture.mkey).and_then(|mkey| mkey.error_count());
    ensure_eq!(counts.map(|count| count.seen), Some(2), "errors counted, the first configuration as one");
    Ok(())
}

/// One of three mkeys receives wrong data. Only this mkey reports the error, whichever method moves the data.
fn r184_the_right_mkey_is_told(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let images = expected::images(&pattern(512, 1), Some(&WIRE), None);
    let region = pair.region(&images.memory);
    let entries = [entry(&region, 0..512)];
    let config = MkeyConfig { signature: SignatureChange::Set(WIRE), ..ALL_RIGHTS };
    let mkeys = [pair.mkey(SIGNATURE), pair.mkey(SIGNATURE), pair.mkey(SIGNATURE)];
    for mkey in mkeys {
        pair.configure(mkey, &config, &entries)?;
    }
    for (mkey, way) in mkeys.into_iter().zip(Rx::ALL) {
        pair.rx(way, mkey, 0, &flipped(&images.wire, 0, 1))?.ok()?;
        ensure_eq!(core::mem::take(&mut pair.signature_errors), vec![mkey], "mkeys that polls have named");
        for other in mkeys {
            let reported = matches!(pair.check(other), Ok(Some(_)));
            ensure_eq!(reported, other == mkey, "bad data in mkey {mkey}: mkey {other} is told");
        }
    }
    Ok(())
}

/// Runs the check `run` on an mkey with a signature, and on an mkey with a signature and AES-XTS.
///
/// Assumption: the tweak of a data unit depends on its offset in the mkey, as block numbers do
/// (`gap04_tweaks` measures it).
fn with_and_without_cipher(
    board: &mut dyn Board,
    run: fn(&mut MkeyFixture<'_>, Option<&Crypto>) -> Verdict,
) -> Verdict {
    for spec in [SIGNATURE, BOTH] {
        let mut fixture = MkeyFixture::new(board, spec);
        let cipher = spec.crypto.then(|| cipher_over_dif(fixture.pair.board));
        let done = run(&mut fixture, cipher.as_ref());
        fixture.right(cipher.is_none(), "halves of what is encrypted", done)?;
    }
    Ok(())
}

/// Two transfers of whole blocks move the same bytes as one: reference tags and tweaks depend on the offset
/// in the mkey.
fn r185_halves_equal_the_whole(board: &mut dyn Board) -> Verdict {
    with_and_without_cipher(board, |fixture, cipher| {
        let own = domain(Signature::T10Dif(DIF));
        let other = domain(Signature::T10Dif(T10Dif { app_tag: 1, ref_tag: 0, ..DIF }));
        for signature in [WIRE, BlockSignature::both(own, other)] {
            let cipher = cipher.map(|cipher| (cipher, &KEY_128[..]));
            let images = fixture.install_images(&pattern(4 * 512, 1), Some(&signature), cipher)?;
            for cut in [520, 2 * 520, 3 * 520] {
                let (first, second) =
                    (part(&images.wire, 0..cut), part(&images.wire, cut..images.wire.len()));
                for way in Tx::ALL {
                    // The second half is transferred first, because the result must not depend on earlier
                    // transfers.
                    fixture.out(way, cut as u64, second)?;
                    fixture.out(way, 0, first)?;
                }
                for way in Rx::ALL {
                    fixture.write(&vec![0; images.memory.len()]);
                    fixture.take(way, cut as u64, second)?;
                    fixture.take(way, 0, first)?;
                    fixture.holds(&images.memory).within(format_args!("{way:?}, cut at {cut}"))?;
                }
            }
        }
        Ok(())
    })
}

/// One request moves both parts of an mkey as two data segments, the second part first. Each part begins with
/// its own block number and tweak.
fn r185_halves_in_one_request(board: &mut dyn Board) -> Verdict {
    with_and_without_cipher(board, |fixture, cipher| {
        let cipher = cipher.map(|cipher| (cipher, &KEY_128[..]));
        let images = fixture.install_images(&pattern(4 * 512, 1), Some(&WIRE), cipher)?;
        let key = fixture.pair.key(fixture.mkey);
        let sges =
            [Sge { address: 1560, length: 520, lkey: key }, Sge { address: 0, length: 1560, lkey: key }];
        let target = fixture.pair.region(&[0; 2080]);
        fixture.pair.near.request(1).signaled().rdma_write(target.remote(), &sges).map_err(text)?;
        ensure_eq!(ids(&fixture.pair.complete_near(1)?), [1], "completions of the write");
        let turned = [part(&images.wire, 1560..2080), part(&images.wire, 0..1560)].concat();
        same(&fixture.pair.bytes(&target), &turned).within("written")?;
        fixture.write(&[0; 4 * 512]);
        fixture.pair.near.request(2).signaled().rdma_read(target.remote(), &sges).map_err(text)?;
        ensure_eq!(ids(&fixture.pair.complete_near(1)?), [2], "completions of the read");
        fixture.holds(&images.memory).within("read")?;
        fixture.no_error("halves in one request")
    })
}

/// If a block in the second of two transfers is wrong, the offset in the error counts from the mkey's start.
/// The offset counts bytes as they are on the wire, with signatures, although memory has none (DEVICE.md,
/// "Offset of a signature error").
fn r185_the_second_half_names_its_own_block(board: &mut dyn Board) -> Verdict {
    let (mut fixture, images) = MkeyFixture::signed(board, &pattern(4 * 512, 1), &WIRE)?;
    fixture.take(Rx::PeerWrite, 0, part(&images.wire, 0..1040))?;
    let second = flipped(part(&images.wire, 1040..2080), 520 + 9, 1);
    fixture.pair.rx(Rx::PeerWrite, fixture.mkey, 1040, &second)?.ok()?;
    let error = fixture.error()?.ok_or("not reported")?;
    reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 3, 520)
}

/// A transfer that ends inside a block is refused, or succeeds with the right bytes and without a signature
/// error.
///
/// Assumption: no source states which of the two happens. Real devices may do either.
fn r186_part_of_a_block(board: &mut dyn Board) -> Verdict {
    let (mut fixture, images) = MkeyFixture::signed(board, &pattern(1024, 1), &WIRE)?;
    for length in [100, 512, 519, 521, 1039] {
        let moved = fixture.pair.tx(Tx::Write, fixture.mkey, 0, length)?;
        let right = if moved.requester.is_some() {
            fixture.pair.reconnect();
            same(&moved.wire, &vec![0xee; length]).map_err(|error| format!("refused, but {error}"))
        } else {
            let data = length / 520 * 520 + (length % 520).min(512);
            same(part(&moved.wire, 0..data), part(&images.wire, 0..data))
        };
        let done = right.and(fixture.no_error(length));
        fixture.right(false, format_args!("{length} bytes of blocks of 520"), done)?;
    }
    Ok(())
}

/// Returns a fixture whose near send queue drains at signature errors. If `bad`, the mkey's memory contains a
/// wrong signature. Also returns memory of the far end as the target of an RDMA WRITE, and a data segment
/// over the whole mkey.
pub(super) fn draining<'b>(
    board: &'b mut dyn Board,
    bad: bool,
) -> Result<(MkeyFixture<'b>, Remote, Sge), String> {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    fixture.pair.reconnect_as(EndSpec { drain_on_signature_error: true, ..EndSpec::default() });
    let own = domain(Signature::T10Dif(DIF));
    let stream = expected::sign(&pattern(512, 1), Some(&own));
    fixture.install(
        &if bad { flipped(&stream, 0, 1) } else { stream },
        Some(&BlockSignature::memory(own)),
        None,
    )?;
    let far = fixture.pair.region(&[0; 512]);
    let sge = Sge { address: 0, length: 512, lkey: fixture.pair.key(fixture.mkey) };
    Ok((fixture, far.remote(), sge))
}

/// A send queue with draining enabled stops after the transfer with a signature error, before the next
/// request. When the board resumes the queue, it continues with this request.
///
/// Assumption: the transfer with the signature error itself completes successfully.
fn m19_a_draining_queue_stops_behind_an_error(board: &mut dyn Board) -> Verdict {
    let (mut fixture, remote, sge) = draining(board, true)?;
    fixture.pair.near.request(1).signaled().rdma_write(remote, &[sge]).map_err(text)?;
    let next = fixture.pair.near.counters().producer as u16;
    fixture.pair.near.request(2).fenced().signaled().nop().map_err(text)?;
    fixture.pair.near.request(3).signaled().nop().map_err(text)?;
    let completed = ids(&fixture.pair.complete_near(1)?);
    if !assumed(fixture.pair.board, "completions before the queue stops", completed, vec![1])? {
        return Ok(());
    }
    ensure_eq!(fixture.pair.board.event(&fixture.pair.near), Some(QpEvent::Drained), "event of the queue");
    ensure_eq!(fixture.pair.board.drained_at(&fixture.pair.near), Some(next), "where the queue stands");
    ensure!(fixture.error()?.is_some(), "no error with it");
    fixture.pair.board.resume(&fixture.pair.near);
    fixture.pair.run_device()?;
    ensure_eq!(ids(&fixture.pair.wait_near(2)?), [2, 3], "completions after it goes on");
    ensure_eq!(fixture.pair.board.drained_at(&fixture.pair.near), None, "the queue goes on");
    ensure_eq!(fixture.pair.board.event(&fixture.pair.near), None, "event of a queue that goes on");
    Ok(())
}

/// While a drained send queue is stopped, the program cancels the requests with one id. A cancelled message
/// completes, but never arrives. Requests with another id are sent. A request that was executed before cannot
/// be cancelled.
///
/// Assumption: the transfer with the signature error itself completes successfully.
fn m17_cancelled_requests_complete_and_do_nothing(board: &mut dyn Board) -> Verdict {
    let (mut fixture, remote, sge) = draining(board, true)?;
    let (note, inbox) = (fixture.pair.region(&[0x44; 8]), fixture.pair.region(&[0; 16]));
    for number in 0..2 {
        let buffer = Sge { address: inbox.address + number * 8, length: 8, lkey: inbox.key };
        fixture.pair.far.queues().post_receive(number, &[buffer]).map_err(text)?;
    }
    fixture.pair.far.queues().publish_receives();
    fixture.pair.near.request(7).signaled().rdma_write(remote, &[sge]).map_err(text)?;
    fixture.pair.near.request(7).fenced().signaled().send(&[note.sge()]).map_err(text)?;
    fixture.pair.near.request(8).signaled().send(&[note.sge()]).map_err(text)?;
    let completed = ids(&fixture.pair.complete_near(1)?);
    if !assumed(fixture.pair.board, "completions before the queue stops", completed, vec![7])? {
        return Ok(());
    }
    let stand = fixture.pair.board.drained_at(&fixture.pair.near).ok_or("the queue does not stand")?;
    let nowhere = stand.wrapping_sub(1);
    let refused = fixture.pair.near.queues().cancel(7, nowhere);
    ensure_eq!(refused, Err(PostError::NotOutstanding { counter: nowhere }), "cancel where nothing stands");
    ensure_eq!(fixture.pair.near.queues().cancel(9, stand), Ok(0), "requests with another name");
    ensure_eq!(fixture.pair.near.queues().cancel(7, stand), Ok(1), "cancelled requests");
    fixture.pair.board.resume(&fixture.pair.near);
    fixture.pair.run_device()?;
    ensure_eq!(ids(&fixture.pair.wait_near(2)?), [7, 8], "completions after it goes on");
    ensure_eq!(ids(&fixture.pair.wait_far(1)?), [0], "messages that arrived");
    // After a check and a new configuration, the same transfer with correct data does not stop the queue.
    ensure!(fixture.error()?.is_some(), "no error");
    fixture.write(&expected::sign(&pattern(512, 1), Some(&domain(Signature::T10Dif(DIF)))));
    fixture.change(&MkeyConfig::UNCHANGED, Layout::Unchanged)?;
    fixture.out(Tx::Write, 0, &pattern(512, 1))
}

/// A send queue with draining enabled continues after correct data, and after wrong data that the peer moves.
///
/// Assumption: only signature errors of the queue's own transfers stop it.
fn m19_a_draining_queue_without_errors_goes_on(board: &mut dyn Board) -> Verdict {
    let (mut fixture, remote, sge) = draining(board, false)?;
    for id in 1..4 {
        fixture.pair.near.request(id).signaled().rdma_write(remote, &[sge]).map_err(text)?;
    }
    ensure_eq!(ids(&fixture.pair.complete_near(3)?), [1, 2, 3], "completions");
    ensure_eq!(fixture.pair.board.drained_at(&fixture.pair.near), None, "where the queue stands");
    fixture.no_error("good data")?;
    let images = fixture.install_images(&pattern(512, 1), Some(&WIRE), None)?;
    fixture.take_bad(Rx::PeerWrite, &flipped(&images.wire, 1, 1))?;
    let stands = fixture.pair.board.drained_at(&fixture.pair.near);
    if !assumed(fixture.pair.board, "where the queue stands behind the peer's data", stands, None)? {
        return Ok(());
    }
    fixture.out(Tx::Send, 0, &expected::images(&flipped(&images.memory, 1, 1), Some(&WIRE), None).wire)?;
    ensure_eq!(fixture.pair.board.event(&fixture.pair.near), None, "event of a queue that never stood");
    Ok(())
}
