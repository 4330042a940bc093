//! Decodes a crypto BSF to the types of [`crate::mkey`].

use super::finding::{Finding, Problem, unknown_code};
use crate::mkey::{Crypto, Direction, Keytag, SignatureOrder, XtsEngine};
use crate::types::{BlockSize, DekId};
use crate::wire::bsf::{CryptoBsf, EncryptionOrder};
use core::mem::offset_of;

/// Returns the length of a data unit in bytes, or `None` for an unknown selector.
pub(super) const fn unit_bytes(selector: u8) -> Option<u32> {
    match BlockSize::from_selector(selector) {
        Some(size) => Some(size.bytes()),
        None => None,
    }
}

/// Returns the crypto properties in the BSF that begins at `offset`. The engine determines the byte order of
/// the tweak.
pub(super) fn crypto(offset: usize, bsf: &CryptoBsf, engine: XtsEngine) -> Result<Crypto, Finding> {
    let (direction, order) = match EncryptionOrder(bsf.enc_order) {
        EncryptionOrder::WIRE_SIGNATURE => (Direction::EncryptOnTx, SignatureOrder::BeforeCryptoOnTx),
        EncryptionOrder::MEMORY_SIGNATURE => (Direction::DecryptOnTx, SignatureOrder::AfterCryptoOnTx),
        EncryptionOrder::RAW_WIRE => (Direction::EncryptOnTx, SignatureOrder::AfterCryptoOnTx),
        EncryptionOrder::RAW_MEMORY => (Direction::DecryptOnTx, SignatureOrder::BeforeCryptoOnTx),
        EncryptionOrder(code) => {
            return Err(unknown_code(offset + offset_of!(CryptoBsf, enc_order), "enc_order", code));
        }
    };
    let standard = bsf.enc_standard;
    if standard != CryptoBsf::AES_XTS {
        return Err(unknown_code(offset + offset_of!(CryptoBsf, enc_standard), "enc_standard", standard));
    }
    let selector = bsf.data_unit_selector;
    let unit_at = offset + offset_of!(CryptoBsf, data_unit_selector);
    let data_unit =
        BlockSize::from_selector(selector).ok_or(unknown_code(unit_at, "crypto_block_size_ptr", selector))?;
    let number = bsf.dek.get();
    let dek = DekId::new(number).map_err(|_| Finding {
        offset: offset + offset_of!(CryptoBsf, dek),
        problem: Problem::DekTooLarge { dek: number },
    })?;
    let tweak = engine.tweak_from_bytes(bsf.xts_initial_tweak);
    Ok(Crypto { direction, order, data_unit, tweak, dek, keytag: Keytag(bsf.keytag) })
}
