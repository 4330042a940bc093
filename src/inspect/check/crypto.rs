//! Rules for the crypto BSF of a UMR.

use super::super::crypto::unit_bytes;
use super::super::device_context::DeviceContext;
use super::super::finding::Problem;
use super::super::tweak::tweaks;
use super::protected::{Protected, raw_size};
use super::report::Report;
use super::umr::LEN_AT;
use crate::mkey::{BlockSignature, Keytag, XtsEngine, units_can_be_encrypted};
use crate::types::{DekId, DomainKind};
use crate::wire::bsf::{CryptoBsf, EncryptionOrder};
use core::mem::offset_of;

/// Checks the crypto BSF that begins at `offset`.
pub(super) fn check(
    offset: usize,
    bsf: &CryptoBsf,
    protected: &Protected,
    device: &DeviceContext,
    report: &mut Report<'_>,
) {
    raw_size(offset + offset_of!(CryptoBsf, raw_data_size), bsf.raw_data_size.get(), protected, report);
    let dek = bsf.dek.get();
    report.when(DekId::new(dek).is_err(), offset + offset_of!(CryptoBsf, dek), Problem::DekTooLarge { dek });
    let tagged = Keytag(bsf.keytag) != Keytag::default();
    report.when(tagged, offset + offset_of!(CryptoBsf, keytag), Problem::KeytagGiven);
    order(offset, bsf, protected, report);
    unit(offset, bsf, protected, device, report);
}

/// Checks that a row of the table in the man page `mlx5dv_wr_set_mkey_crypto` has this order of cipher and
/// signatures, and signatures in the same domains. Also checks the order for a digest.
fn order(offset: usize, bsf: &CryptoBsf, protected: &Protected, report: &mut Report<'_>) {
    let memory = protected.blocks.as_ref().and_then(BlockSignature::memory_domain);
    let wire = protected.blocks.as_ref().and_then(BlockSignature::wire_domain);
    let order = EncryptionOrder(bsf.enc_order);
    let at = offset + offset_of!(CryptoBsf, enc_order);
    // The signature of one domain, if the request has it. No row of the table with this order has a
    // signature in that domain.
    let hole = match order {
        EncryptionOrder::RAW_WIRE => memory,
        EncryptionOrder::RAW_MEMORY => wire,
        _ => None,
    };
    if hole.is_some() && memory.is_some() && wire.is_some() {
        report.at(at, Problem::BothOutsideCipher);
    } else {
        report.when(hole.is_some(), at, Problem::RowHole);
    }
    if let Some(transaction) = &protected.transaction {
        let known = match transaction.domain {
            DomainKind::Wire => EncryptionOrder::RAW_WIRE,
            DomainKind::Memory => EncryptionOrder::RAW_MEMORY,
        };
        report.when(order != known, at, Problem::TransactionOrder);
    }
}

/// Checks that data unit and tweak fit the bytes that pass through the cipher, and that the bytes are one
/// data unit if the engine can encrypt only one.
fn unit(
    offset: usize,
    bsf: &CryptoBsf,
    protected: &Protected,
    device: &DeviceContext,
    report: &mut Report<'_>,
) {
    let unit_at = offset + offset_of!(CryptoBsf, data_unit_selector);
    let Some(unit) = unit_bytes(bsf.data_unit_selector) else { return };
    let blocks = protected.blocks.as_ref();
    let (inside, encrypted) = match EncryptionOrder(bsf.enc_order) {
        EncryptionOrder::WIRE_SIGNATURE => {
            let bytes = |length| blocks.map_or(Some(length), |blocks| blocks.wire_bytes(length));
            (blocks.and_then(BlockSignature::wire_domain), protected.length.and_then(bytes))
        }
        EncryptionOrder::MEMORY_SIGNATURE => {
            (blocks.and_then(BlockSignature::memory_domain), protected.length)
        }
        EncryptionOrder::RAW_WIRE | EncryptionOrder::RAW_MEMORY => (None, protected.data),
        _ => return,
    };
    if let Some(domain) = inside {
        let wanted = domain.stride();
        report.when(unit != wanted, unit_at, Problem::UnitNotBlock { unit, wanted });
    }
    if let Some(length) = protected.length {
        let over = device.engine == Some(XtsEngine::SingleBlock) && length > u64::from(unit);
        report.when(over, LEN_AT, Problem::SingleUnitEngine { length, unit });
    }
    let Some(length) = encrypted else { return };
    let odd = !units_can_be_encrypted(length, u64::from(unit));
    report.when(odd, LEN_AT, Problem::JobSize { length, unit });
    tweak(offset, bsf, length.div_ceil(u64::from(unit)), device, report);
}

/// Checks that the upper half of the tweak is the same in all `units` data units.
fn tweak(offset: usize, bsf: &CryptoBsf, units: u64, device: &DeviceContext, report: &mut Report<'_>) {
    let tweak_at = offset + offset_of!(CryptoBsf, xts_initial_tweak);
    // The tweak of the last unit is the tweak of the first unit plus the number of units before the last.
    let steps = u128::from(units.saturating_sub(1));
    for (order, tweak) in tweaks(bsf.xts_initial_tweak, device.engine).into_iter().flatten() {
        let first = tweak.get();
        let carries = first.wrapping_add(steps) >> 64 != first >> 64;
        report.when(carries, tweak_at, Problem::TweakCarry { order });
    }
}
