//! Measurements on hardware with requests that the library never writes, and of the time that a configuration
//! takes.

use super::super::changed::{BSF, FLAGS, configure};
use super::super::fixture::{DIF, MkeyFixture, PLAIN, SIGNATURE, dif_domain, domain, pattern};
use super::measurement::{Measurement, Tell, compared, measurement, send};
use crate::board::Board;
use crate::qp_pair::{Tx, Verdict, text};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::mkey::{BlockSignature, MkeyConfig, Signature, SignatureChange};
use mlx5_mkey::types::{BlockSize, Seed};
use mlx5_mkey::wire::umr::UmrFlags;

pub(super) const ALL: &[Measurement] = &[
    measurement!(gap09_raw_data_size, SIGNATURE),
    measurement!(gap10_selector_5, SIGNATURE),
    measurement!(gap11_checks_of_a_umr, NOTHING),
    measurement!(gap13_time_of_a_second_configuration, SIGNATURE),
];

/// Offsets, in the request, of two fields of the BSF: the block size selector of the memory domain, and the
/// raw data size.
const MEMORY_SELECTOR: usize = BSF + 3;
const RAW_SIZE: usize = BSF + 4;

/// Reports the results of transfers of two blocks with various values in the BSF's field for the raw data
/// size. All known software writes all ones to it.
fn gap09_raw_data_size(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let own = dif_domain(DIF, BlockSize::B512);
    let data = pattern(1024, 1);
    let wire = crate::expected::sign(&data, Some(&own));
    for size in [0_u32, 512, 1024, 1040, 2048, u32::MAX] {
        let mut fixture = MkeyFixture::new(board, SIGNATURE);
        fixture.memory = fixture.pair.region(&data);
        let changes: Vec<(usize, u8)> = (RAW_SIZE..).zip(size.to_be_bytes()).collect();
        let done = configure(&mut fixture, Some(&BlockSignature::wire(own)), &changes)?;
        let found = done.and_then(|()| send(&mut fixture, Tx::Write, 0, 1040));
        tell(&format!("two blocks with a raw data size of {size:#x}"), &compared(found, &wire));
    }
    Ok(())
}

/// Reports which block size the value 5 of the BSF's block size selector means. From outgoing data the device
/// strips the signature behind each block in memory, so the offset of the first missing byte is the block
/// size.
fn gap10_selector_5(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let kind = domain(Signature::Crc32c(Seed::Ones));
    for selector in [1, 5] {
        let mut fixture = MkeyFixture::new(board, SIGNATURE);
        let memory = pattern(24 << 10, 1);
        fixture.memory = fixture.pair.region(&memory);
        let changes = [(MEMORY_SELECTOR, selector)];
        let done = configure(&mut fixture, Some(&BlockSignature::memory(kind)), &changes)?;
        let told = match done.and_then(|()| send(&mut fixture, Tx::Write, 0, 16 << 10)) {
            Err(what) => what,
            Ok(wire) => match wire.iter().zip(&memory).position(|(wire, memory)| wire != memory) {
                None => "nothing is stripped of 16384 bytes".into(),
                Some(at) => format!("blocks of {at} bytes"),
            },
        };
        tell(&format!("block size selector {selector}"), &told);
        // The memory contains no correct signatures. This call takes the resulting signature error.
        fixture.error()?;
    }
    Ok(())
}

/// Reports the results of a UMR on a new mkey and on a configured one: without check flags, with CHECK_FREE,
/// with CHECK_QPN, and with both.
fn gap11_checks_of_a_umr(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let inline = UmrFlags::new().with_inline(true);
    for (name, flags) in [
        ("none", inline),
        ("CHECK_FREE", inline.with_check_free(true)),
        ("CHECK_QPN", inline.with_check_qpn(true)),
        ("both", inline.with_check_free(true).with_check_qpn(true)),
    ] {
        for configured in [false, true] {
            let mut fixture = MkeyFixture::new(board, PLAIN);
            fixture.memory = fixture.pair.region(&pattern(64, 1));
            if configured {
                configure(&mut fixture, None, &[])??;
            }
            let told =
                configure(&mut fixture, None, &[(FLAGS, flags.into_bits())])?.err().unwrap_or("done".into());
            let state = if configured { "configured" } else { "fresh" };
            tell(&format!("UMR with {name} on a {state} mkey"), &told);
        }
    }
    Ok(())
}

/// Reports the time from posting a configuration to its completion, with and without SET_PSV: the median and
/// the minimum of 201 runs.
fn gap13_time_of_a_second_configuration(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    const TIMES: usize = 201;
    let block = BlockSignature::wire(dif_domain(DIF, BlockSize::B512));
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    fixture.install(&pattern(1024, 1), Some(&block), None)?;
    let entries = fixture.entries();
    for (what, signature) in [
        ("a new layout, the signature stays", SignatureChange::Keep),
        ("both anew, with SET_PSV", SignatureChange::Set(block)),
    ] {
        let config = MkeyConfig { signature, ..MkeyConfig::UNCHANGED };
        let prepared = fixture.pair.prepare(fixture.mkey, &config).map_err(text)?;
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let Some(begin) = fixture.pair.board.nanoseconds() else {
                tell(what, "the board has no clock");
                return Ok(());
            };
            let posted = fixture.pair.post_prepared(fixture.mkey, &prepared, &entries);
            posted.map_err(text)?;
            fixture.pair.near.ring_doorbell();
            times.push(completed(&mut fixture, begin)?);
        }
        times.sort_unstable();
        let at = |index: usize| times.get(index).copied().unwrap_or(0);
        let value: String = format!("{} ns (half of them), least {} ns", at(TIMES / 2), at(0));
        tell(what, &value);
    }
    Ok(())
}

/// Polls for the completion without a pause. Returns the nanoseconds from `begin` to the completion.
fn completed(fixture: &mut MkeyFixture<'_>, begin: u64) -> Result<u64, String> {
    const TIMEOUT: u64 = 1_000_000_000;
    loop {
        let done = !fixture.pair.poll_near()?.is_empty();
        let passed = fixture.pair.board.nanoseconds().unwrap_or(begin).saturating_sub(begin);
        if done {
            return Ok(passed);
        }
        if passed > TIMEOUT {
            return Err("no completion within a second".into());
        }
    }
}
