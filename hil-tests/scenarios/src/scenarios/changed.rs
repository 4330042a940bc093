//! Posts requests that the library itself never writes. The library writes an ordinary request, and functions
//! of this module change its bytes in the send ring before the doorbell rings.

use super::fixture::MkeyFixture;
use super::measured::measurement::side;
use crate::board::SEND_BLOCKS;
use crate::qp_pair::{Verdict, text};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::mkey::{Access, BlockSignature, MkeyConfig, SignatureChange};
use mlx5_mkey::queue::Outcome;
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::mkey_context::MkeyContext;
use mlx5_mkey::wire::umr::MkeyMask;
use zerocopy::IntoBytes;

/// Offset of the flags byte of the UMR control segment, which follows the control segment of 16 bytes.
pub(super) const FLAGS: usize = 16;
/// Offsets of the mkey mask in the UMR control segment, and of the mkey context segment.
const MASK: usize = FLAGS + 8;
const CONTEXT: usize = 64;
/// Offset of the signature BSF in a UMR with three entries: the control segment, the UMR control segment and
/// the mkey context fill two blocks of 64 bytes, the entries a third. The SET_PSV follows the BSF in a block
/// of its own.
pub(super) const BSF: usize = 3 * 64;
pub(super) const SET_PSV: usize = 4 * 64;

/// Configures the fixture's mkey over its memory. Before the device executes the request, replaces the bytes
/// at the offsets in `changes`. Returns the result of the changed request.
///
/// # Errors
/// If the request cannot be changed.
pub(super) fn configure(
    fixture: &mut MkeyFixture<'_>,
    signature: Option<&BlockSignature>,
    changes: &[(usize, u8)],
) -> Result<Result<(), String>, String> {
    configure_as(fixture, &with_signature(signature), changes)
}

/// Configures the fixture's mkey over its memory as [`configure`] does, with any configuration.
///
/// # Errors
/// If the request cannot be changed.
pub(super) fn configure_as(
    fixture: &mut MkeyFixture<'_>,
    config: &MkeyConfig,
    changes: &[(usize, u8)],
) -> Result<Result<(), String>, String> {
    let first = post_as(fixture, config)?;
    change(fixture, first, changes)?;
    run(fixture)
}

/// Returns the configuration with all rights and this signature, if any.
fn with_signature(signature: Option<&BlockSignature>) -> MkeyConfig {
    MkeyConfig {
        access: Some(Access::ALL),
        signature: signature.copied().map_or(SignatureChange::Keep, SignatureChange::Set),
        crypto: None,
    }
}

/// Posts a configuration of the fixture's mkey over its memory without ringing the doorbell. Returns the
/// number of the request's first block.
///
/// # Errors
/// If the library refuses the configuration.
pub(super) fn post(fixture: &mut MkeyFixture<'_>, signature: Option<&BlockSignature>) -> Result<u32, String> {
    post_as(fixture, &with_signature(signature))
}

fn post_as(fixture: &mut MkeyFixture<'_>, config: &MkeyConfig) -> Result<u32, String> {
    let entries = fixture.entries();
    fixture.pair.near.hold_back();
    let first = fixture.pair.near.counters().producer;
    fixture.pair.try_configure(fixture.mkey, config, &entries).map_err(text)?;
    Ok(first)
}

/// Changes bytes, given by their offset, of the request that begins at block `first`.
///
/// # Errors
/// If the board does not expose its rings.
pub(super) fn change(fixture: &mut MkeyFixture<'_>, first: u32, changes: &[(usize, u8)]) -> Verdict {
    let ring = fixture.pair.board.send_ring(&fixture.pair.near).ok_or("the board does not show its rings")?;
    for &(at, byte) in changes {
        let block = first.wrapping_add((at / 64) as u32);
        let address = ring + u64::from(block) % SEND_BLOCKS as u64 * 64;
        let found: Wqebb = fixture.pair.near.queues().block(block);
        if fixture.pair.board.read(address, 64) != found.as_bytes() {
            return Err("the ring is not where the board says".into());
        }
        fixture.pair.board.write(address + (at % 64) as u64, &[byte]);
    }
    Ok(())
}

/// Rings the doorbell for one posted request and returns its result. Reconnects the pair if the request
/// fails.
///
/// # Errors
/// If the device does not finish.
pub(super) fn run(fixture: &mut MkeyFixture<'_>) -> Result<Result<(), String>, String> {
    fixture.pair.run_near()?;
    let completions = fixture.pair.wait_near(1);
    let done = match completions.as_deref() {
        Ok([one]) => match one.outcome {
            Outcome::Failed(failure) => Err(format!("refused when configured: {}", side(Some(failure)))),
            _ => Ok(()),
        },
        other => Err(format!("no completion when configured ({other:?})")),
    };
    if done.is_err() {
        fixture.pair.reconnect();
    }
    Ok(done)
}

/// Configures the fixture's mkey as [`configure`] does, and binds the mkey to the queue pair of the far end.
/// Returns the result of the request.
///
/// # Errors
/// If the request cannot be changed.
pub(super) fn bind_to_far(fixture: &mut MkeyFixture<'_>) -> Result<Result<(), String>, String> {
    let mask = MkeyMask::new().with_mkey(true).with_qpn(true).into_bits().to_be_bytes();
    let holder = fixture.pair.far.qpn().get().to_be_bytes();
    let word = CONTEXT + core::mem::offset_of!(MkeyContext, qpn_mkey);
    // Only the bytes of the mask that are not 0 have to be changed in the request. Both bits are in the same
    // byte.
    let byte = mask.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, byte)| (MASK + at, *byte));
    let changes: Vec<_> = byte.chain((word..).zip(holder.into_iter().skip(1))).collect();
    configure(fixture, None, &changes)
}
