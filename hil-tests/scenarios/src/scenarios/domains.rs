//! Requests that use an object without permission: an object of another protection domain, an object that is
//! bound to another queue pair, or a region without the right to write.

use super::changed::{self, BSF, FLAGS, SET_PSV};
use super::crypto::nothing_moves;
use super::fixture::{
    ALL_RIGHTS, CRYPTO, DIF, KEY_128, MkeyFixture, PLAIN, SIGNATURE, crypto, domain, entry, pattern,
    refuses_rx,
};
use super::keys::{refuses_all, refuses_invalidation};
use super::scenario::{Scenario, scenario};
use crate::assumption::assumed;
use crate::board::{Board, DekSpec, MkeySpec, ProtectionDomain};
use crate::qp_pair::{Region, Rx, Tx, Verdict, Within, syndromes, text};
use crate::{ensure, expected};
use alloc::vec::Vec;
use mlx5_mkey::mkey::{Access, BlockSignature, Direction, Layout, MkeyConfig, Signature, SignatureOrder};
use mlx5_mkey::types::BlockSize;
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::bsf::SignatureBsf;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wire::umr::UmrFlags;
use zerocopy::IntoBytes;

pub(super) const ALL: &[Scenario] = &[
    scenario!(r048_a_region_that_may_not_be_written, NOTHING, ["R48"]),
    scenario!(r048_a_region_of_another_domain, NOTHING, ["R48"]),
    scenario!(r048_a_key_of_another_domain, NOTHING, ["R48"]),
    scenario!(m40_a_dek_of_another_domain, CRYPTO_UNIT, ["R159", "M40"]),
    scenario!(r176_a_psv_of_another_domain, SIGNATURE, ["R176"]),
    scenario!(r012_the_peer_invalidates_no_key_of_another_domain, NOTHING, ["R12"]),
    scenario!(r012_a_key_that_another_queue_pair_holds, NOTHING, ["R12"]),
    scenario!(r032_a_check_for_a_free_key, NOTHING, ["R32"]),
];

const LENGTH: usize = 64;

/// Configures the fixture's mkey over this region, with all rights.
fn lay(fixture: &mut MkeyFixture<'_>, region: Region) -> Verdict {
    fixture.memory = region;
    let entries = [entry(&region, 0..region.length)];
    fixture.change(&ALL_RIGHTS, &entries)
}

/// An mkey has all rights, but the region that it maps can only be read: writes fail, reads succeed.
fn r048_a_region_that_may_not_be_written(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    let data = pattern(LENGTH, 1);
    let region = fixture.pair.region(&data);
    let key = fixture.pair.board.register(region.address, LENGTH, Access::REMOTE_READ);
    lay(&mut fixture, Region { key, ..region })?;
    fixture.out_each(0, &data)?;
    for way in Rx::ALL {
        refuses_rx(&mut fixture.pair, way, fixture.mkey, 0, &pattern(LENGTH, 2))?;
        fixture.holds(&data).within(format_args!("{way:?}"))?;
    }
    Ok(())
}

/// Transfers fail if the mkey belongs to the queue pair's protection domain, but the region that it maps
/// belongs to another.
fn r048_a_region_of_another_domain(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    fixture.pair.board.enter(ProtectionDomain::Second);
    let region = fixture.pair.region(&pattern(LENGTH, 1));
    fixture.pair.board.enter(ProtectionDomain::First);
    lay(&mut fixture, region)?;
    refuses_all(&mut fixture, LENGTH)
}

/// Queue pairs of another protection domain can neither use an mkey nor change it. Queue pairs of the mkey's
/// own domain can use it at the same time.
fn r048_a_key_of_another_domain(board: &mut dyn Board) -> Verdict {
    board.enter(ProtectionDomain::Second);
    let data = pattern(LENGTH, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    let images = expected::Images { memory: data.clone(), wire: data };
    fixture.both_ways(&images)?;
    fixture.pair.board.enter(ProtectionDomain::First);
    fixture.pair.reconnect();
    let config = MkeyConfig { access: Some(Access::NONE), ..MkeyConfig::UNCHANGED };
    fixture.pair.try_configure(fixture.mkey, &config, Layout::Unchanged).map_err(text)?;
    ensure!(changed::run(&mut fixture)?.is_err(), "a UMR has changed an mkey of another domain");
    // The region belongs to the queue pair's protection domain, so that only the mkey can cause the refusal.
    let region = fixture.pair.region(&pattern(LENGTH, 2));
    fixture.pair.board.enter(ProtectionDomain::Second);
    fixture.pair.reconnect();
    fixture.both_ways(&images)?;
    lay(&mut fixture, region)?;
    fixture.pair.board.enter(ProtectionDomain::First);
    fixture.pair.reconnect();
    refuses_all(&mut fixture, LENGTH)
}

/// Transfers fail if the DEK of an mkey's configuration belongs to another protection domain than the mkey.
fn m40_a_dek_of_another_domain(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    fixture.pair.board.enter(ProtectionDomain::Second);
    let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None });
    fixture.pair.board.enter(ProtectionDomain::First);
    let new = crypto(Direction::EncryptOnTx, SignatureOrder::AfterCryptoOnTx, BlockSize::B512, dek);
    fixture.install(&pattern(512, 1), None, Some(&new))?;
    nothing_moves(&mut fixture, "a DEK of another domain", 512)
}

/// Offset in the request of the BSF field that holds the number of the wire domain's PSV.
const WIRE_PSV: usize = BSF + core::mem::offset_of!(SignatureBsf, wire_bfs_psv) + 1;

/// If an mkey's signature names a PSV of another protection domain, transfers and SET_PSV fail.
fn r176_a_psv_of_another_domain(board: &mut dyn Board) -> Verdict {
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let data = pattern(512, 1);
    board.enter(ProtectionDomain::Second);
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    fixture.memory = fixture.pair.region(&data);
    let first = changed::post(&mut fixture, Some(&signature))?;
    let bsf: Wqebb = fixture.pair.near.queues().block(first.wrapping_add((BSF / 64) as u32));
    changed::run(&mut fixture)??;
    let strange = bsf.as_bytes().get(WIRE_PSV % 64..WIRE_PSV % 64 + 3).unwrap_or(&[]).to_vec();
    fixture.pair.board.enter(ProtectionDomain::First);
    let named = |at: usize| (at..).zip(strange.iter().copied()).collect::<Vec<_>>();

    let mut fixture = MkeyFixture::new(fixture.pair.board, SIGNATURE);
    fixture.memory = fixture.pair.region(&data);
    changed::configure(&mut fixture, Some(&signature), &[])??;
    fixture.out(Tx::Write, 0, &expected::images(&data, Some(&signature), None).wire)?;
    if changed::configure(&mut fixture, Some(&signature), &named(WIRE_PSV))?.is_ok() {
        nothing_moves(&mut fixture, "a PSV of another domain", 520)?;
    }
    let set = changed::configure(&mut fixture, Some(&signature), &named(SET_PSV + 17))?;
    ensure!(set.is_err(), "SET_PSV has set a PSV of another domain");
    Ok(())
}

/// A SEND with invalidation fails if the receiving queue pair belongs to another protection domain than the
/// named key.
fn r012_the_peer_invalidates_no_key_of_another_domain(board: &mut dyn Board) -> Verdict {
    board.enter(ProtectionDomain::Second);
    let data = pattern(LENGTH, 1);
    let mut fixture = MkeyFixture::plain(board, MkeySpec { remote_invalidate: true, ..PLAIN }, &data)?;
    fixture.pair.board.enter(ProtectionDomain::First);
    fixture.pair.reconnect();
    let key = fixture.pair.key(fixture.mkey);
    refuses_invalidation(&mut fixture, key)?;
    fixture.pair.board.enter(ProtectionDomain::Second);
    fixture.pair.reconnect();
    fixture.out(Tx::PeerRead, 0, &data)
}

/// An mkey that a UMR has bound to the far queue pair cannot be invalidated by the near one: the library's
/// LOCAL_INV asks the device for this check (CHECK_QPN).
///
/// Assumption: a UMR can bind an mkey to a queue pair (libmlx5 does this only with memory windows), and the
/// check fails with the syndrome below.
fn r012_a_key_that_another_queue_pair_holds(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    fixture.memory = fixture.pair.region(&pattern(LENGTH, 1));
    let bound = changed::bind_to_far(&mut fixture)?;
    if !assumed(fixture.pair.board, "binding an mkey to a queue pair", bound, Ok(()))? {
        return Ok(());
    }
    let mkey = fixture.pair.mkeys.get_mut(fixture.mkey).ok_or("no such mkey")?;
    fixture.pair.near.request(9).signaled().invalidate_mkey(mkey).map_err(text)?;
    let done = syndromes(&fixture.pair.complete_near(1)?);
    let [(_, syndrome)] = done[..] else { return Err(format!("completions {done:?}")) };
    let what = "invalidation of an mkey that another queue pair holds";
    assumed(fixture.pair.board, what, syndrome, Some(Syndrome::MW_BIND))?;
    Ok(())
}

/// A UMR with the flag CHECK_FREE configures a new mkey, but fails on an mkey that is already configured.
///
/// Assumption: new mkeys count as free, configured ones do not. The kernel and rdma-core agree that the bit
/// means "fail if not free" (DEVICE.md, "Where documents, code and hardware disagree").
fn r032_a_check_for_a_free_key(board: &mut dyn Board) -> Verdict {
    let checked = [(FLAGS, UmrFlags::new().with_inline(true).with_check_free(true).into_bits())];
    let mut fixture = MkeyFixture::new(board, PLAIN);
    let data = pattern(LENGTH, 1);
    fixture.memory = fixture.pair.region(&data);
    for (state, free) in [("fresh", true), ("configured", false)] {
        let done = changed::configure(&mut fixture, None, &checked)?.is_ok();
        let what = format_args!("whether a UMR with CHECK_FREE changes a {state} mkey");
        if !assumed(fixture.pair.board, what, done, free)? {
            return Ok(());
        }
        fixture.out(Tx::PeerRead, 0, &data).within(state)?;
    }
    Ok(())
}
