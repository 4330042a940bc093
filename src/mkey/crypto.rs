//! AES-XTS, by which the device encrypts or decrypts the bytes that pass through an mkey.

use crate::types::{BlockSize, DekId, Tweak};
use crate::wire::bsf::EncryptionOrder;

/// The direction in which data is encrypted (`mlx5dv_crypto_attr.encrypt_on_tx`).
///
/// ```
/// use mlx5_mkey::mkey::Direction;
/// /// Returns the direction for a volume of plain or encrypted blocks, if the peer wants the opposite form.
/// fn direction(is_encrypted: bool) -> Direction {
///     if is_encrypted { Direction::DecryptOnTx } else { Direction::EncryptOnTx }
/// }
/// assert_eq!(direction(true), Direction::DecryptOnTx);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Direction {
    /// Memory holds plaintext, the wire ciphertext: the device encrypts when sending, decrypts when
    /// receiving.
    EncryptOnTx = EncryptionOrder::WIRE_SIGNATURE.0,
    /// Memory holds ciphertext, the wire plaintext: the device decrypts when sending, encrypts when
    /// receiving.
    DecryptOnTx = EncryptionOrder::RAW_MEMORY.0,
}

/// The order of signatures and cipher (`enum mlx5dv_signature_crypto_order`).
///
/// Without a signature, both orders have the same effect.
///
/// ```
/// use mlx5_mkey::mkey::{Crypto, Direction, SignatureOrder};
/// /// For a peer that checks integrity fields and has no key: on the wire, the fields cover the ciphertext.
/// fn without_key(crypto: Crypto) -> Crypto {
///     Crypto { direction: Direction::EncryptOnTx, order: SignatureOrder::AfterCryptoOnTx, ..crypto }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum SignatureOrder {
    /// When sending, the cipher comes first, then the signatures (rows B, G, H, I of the man page
    /// `mlx5dv_wr_set_mkey_crypto`).
    AfterCryptoOnTx = EncryptionOrder::RAW_WIRE.0,
    /// When sending, the signatures come first, then the cipher (rows C, D, E, J of the man page
    /// `mlx5dv_wr_set_mkey_crypto`).
    BeforeCryptoOnTx = 0,
}

/// The byte order in which the device's AES-XTS engine takes a tweak, and the number of data units that it
/// encrypts (`crypto_caps.crypto_engines`).
///
/// ```
/// use mlx5_mkey::mkey::{Mkey, MkeyAttributes, XtsEngine};
/// use mlx5_mkey::types::Key;
/// // An mkey on a BlueField-2. `GeneralCapabilities::xts_engine` returns the engine of a device.
/// let plain = MkeyAttributes::plain(Key::from_raw(0x1234_00), 4);
/// let mkey = Mkey::new(MkeyAttributes { crypto: Some(XtsEngine::SingleBlock), ..plain });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum XtsEngine {
    /// Any number of data units per mkey; the tweak is big endian in the BSF (`AES_XTS_MULTI_BLOCK`,
    /// ConnectX-7, BlueField-3).
    MultiBlock,
    /// Any number of data units per mkey; the tweak is little endian (PRM `aes_xts_multi_block_le_tweak`).
    /// SPDK supports this engine, the reference provider does not.
    MultiBlockLittleEndian,
    /// One data unit per mkey; the tweak is little endian (`AES_XTS_SINGLE_BLOCK` alone, ConnectX-6 Dx,
    /// BlueField-2).
    SingleBlock,
    /// An engine that the device does not describe further; the tweak is little endian.
    Unspecified,
}

impl XtsEngine {
    /// Returns the tweak in the byte order of the engine.
    pub const fn tweak_bytes(self, tweak: Tweak) -> [u8; 16] {
        match self {
            Self::MultiBlock => tweak.get().to_be_bytes(),
            Self::MultiBlockLittleEndian | Self::SingleBlock | Self::Unspecified => tweak.get().to_le_bytes(),
        }
    }

    /// Returns the tweak whose bytes in the engine's byte order are given.
    pub const fn tweak_from_bytes(self, bytes: [u8; 16]) -> Tweak {
        match self {
            Self::MultiBlock => Tweak::new(u128::from_be_bytes(bytes)),
            Self::MultiBlockLittleEndian | Self::SingleBlock | Self::Unspecified => {
                Tweak::new(u128::from_le_bytes(bytes))
            }
        }
    }
}

/// The tag of a DEK in plaintext. The device compares it with the tag of an mkey to check that the mkey uses
/// the right DEK (`mlx5dv_crypto_attr.keytag`).
///
/// ```
/// use mlx5_mkey::command::{DekKey, Secret, XtsKey};
/// use mlx5_mkey::mkey::{Crypto, Keytag};
/// let keytag = Keytag(*b"volume 7");
/// // The key is created with the keytag, and each mkey that uses the key gives the keytag too.
/// let secret = Secret::new(core::array::from_fn(|index| index as u8));
/// let key = DekKey::Plain256 { key: XtsKey::new(secret.expose())?, keytag: Some(keytag) };
/// let with_tag = |crypto: Crypto| Crypto { keytag, ..crypto };
/// # Ok::<(), mlx5_mkey::error::EqualHalves>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Keytag(pub [u8; 8]);

/// Crypto properties of an mkey (`struct mlx5dv_crypto_attr`). The only cipher is AES-XTS.
///
/// ```
/// use mlx5_mkey::mkey::{Crypto, Direction, Keytag, SignatureOrder};
/// use mlx5_mkey::types::{BlockSize, DekId, Tweak};
/// let crypto = Crypto {
///     direction: Direction::EncryptOnTx,
///     order: SignatureOrder::BeforeCryptoOnTx,
///     data_unit: BlockSize::B512,
///     tweak: Tweak::from_lba(0x1000),
///     dek: DekId::new(7)?,
///     keytag: Keytag::default(),
/// };
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Crypto {
    /// The direction in which data is encrypted.
    pub direction: Direction,
    /// The order of signatures and cipher.
    pub order: SignatureOrder,
    /// The number of bytes that the device encrypts under one tweak. If the cipher covers a signature, a data
    /// unit is a block with its signature.
    pub data_unit: BlockSize,
    /// Tweak of the first data unit.
    pub tweak: Tweak,
    /// The data encryption key.
    pub dek: DekId,
    /// The keytag, which must equal the tag of the DEK, or be all zero if the DEK has none.
    pub keytag: Keytag,
}

impl Crypto {
    /// Returns the device's code for direction and order.
    pub const fn encryption_order(&self) -> EncryptionOrder {
        // The values of `Direction` and `SignatureOrder` are chosen so that their XOR is the code. The test
        // `direction_and_order_make_the_code` lists all four codes.
        EncryptionOrder(self.direction as u8 ^ self.order as u8)
    }

    /// Returns whether the signature of the domain with ciphertext is outside the cipher. In this case, the
    /// mkey can have no signature in the other domain.
    pub const fn signature_is_outside(&self) -> bool {
        matches!(self.encryption_order(), EncryptionOrder::RAW_WIRE | EncryptionOrder::RAW_MEMORY)
    }
}

/// Returns whether one request may move `job_size` bytes through an mkey with this data unit, by the rule of
/// the man page `mlx5dv_wr_set_mkey_crypto`. The rule allows whole data units, and multiples of 16 bytes
/// whose last, partial unit lacks at least 16 bytes.
///
/// ```
/// use mlx5_mkey::{mkey::job_size_allowed, types::BlockSize};
/// assert!(job_size_allowed(512, BlockSize::B512) && job_size_allowed(128, BlockSize::B512));
/// assert!(!job_size_allowed(47, BlockSize::B512));
/// assert!(job_size_allowed(496, BlockSize::B520) && !job_size_allowed(512, BlockSize::B520));
/// ```
pub const fn job_size_allowed(job_size: u64, data_unit: BlockSize) -> bool {
    let unit = data_unit.bytes() as u64;
    job_size.is_multiple_of(unit) || (job_size.is_multiple_of(16) && job_size % unit <= unit - 16)
}

/// Returns whether one request may move `job_size` bytes through an mkey with this data unit, so that AES-XTS
/// can also encrypt each unit.
///
/// The rule of the man page allows some sizes that leave a unit of less than one cipher block (16 bytes), for
/// example 528 bytes in units of 520. IEEE 1619 cannot encrypt a unit of this size.
///
/// ```
/// use mlx5_mkey::{mkey::{job_size_allowed, job_size_can_be_encrypted}, types::BlockSize};
/// assert!(job_size_allowed(528, BlockSize::B520) && !job_size_can_be_encrypted(528, BlockSize::B520));
/// ```
pub const fn job_size_can_be_encrypted(job_size: u64, data_unit: BlockSize) -> bool {
    units_can_be_encrypted(job_size, data_unit.bytes() as u64)
}

/// Returns the same as [`job_size_can_be_encrypted`], for units of any number of bytes.
pub(crate) const fn units_can_be_encrypted(job_size: u64, unit: u64) -> bool {
    match job_size.checked_rem(unit) {
        Some(0) => true,
        Some(rest) => job_size.is_multiple_of(16) && rest >= 16 && unit - rest >= 16,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r168_the_last_unit_lacks_nothing_or_sixteen_bytes() {
        for (unit, rest) in [(BlockSize::B512, 496), (BlockSize::B520, 504), (BlockSize::B4096, 4080)] {
            let unit_bytes = u64::from(unit.bytes());
            // Two whole units come before the rest, because one unit of 520 bytes is no multiple of 16.
            for size in (rest - 64..unit_bytes).map(|rest| 2 * unit_bytes + rest) {
                let good = size % 16 == 0 && size - 2 * unit_bytes <= rest;
                assert_eq!(job_size_allowed(size, unit), good, "{size} in {unit:?}");
            }
        }
        assert!(job_size_allowed(496, BlockSize::B512) && job_size_allowed(128, BlockSize::B512));
    }

    #[test]
    fn d8_only_units_of_520_have_sizes_that_cannot_be_encrypted() {
        for unit in BlockSize::UNITS {
            for job in 0..3 * u64::from(unit.bytes()) {
                let hole = job_size_allowed(job, unit) && !job_size_can_be_encrypted(job, unit);
                assert_eq!(hole, unit == BlockSize::B520 && job % 1040 == 528, "{job} in units of {unit:?}");
            }
        }
        // 512 bytes are a unit of 520 bytes that lacks 8 bytes. A partial unit must lack at least 16.
        assert!(!job_size_can_be_encrypted(512, BlockSize::B520));
    }

    #[test]
    fn direction_and_order_make_the_code() {
        use {Direction::*, SignatureOrder::*};
        let code = |direction, order| {
            let (data_unit, tweak, dek, keytag) =
                (BlockSize::B512, Tweak::default(), DekId::default(), Keytag::default());
            Crypto { direction, order, data_unit, tweak, dek, keytag }.encryption_order()
        };
        assert_eq!(code(EncryptOnTx, AfterCryptoOnTx), EncryptionOrder::RAW_WIRE);
        assert_eq!(code(EncryptOnTx, BeforeCryptoOnTx), EncryptionOrder::WIRE_SIGNATURE);
        assert_eq!(code(DecryptOnTx, AfterCryptoOnTx), EncryptionOrder::MEMORY_SIGNATURE);
        assert_eq!(code(DecryptOnTx, BeforeCryptoOnTx), EncryptionOrder::RAW_MEMORY);
    }

    #[test]
    fn d7_tweaks_follow_the_engine() {
        use XtsEngine::{MultiBlock, MultiBlockLittleEndian, SingleBlock, Unspecified};
        let tweak = Tweak::from_lba(0x0102);
        assert_eq!(SingleBlock.tweak_bytes(tweak)[..2], [2, 1]);
        assert_eq!(MultiBlock.tweak_bytes(tweak)[14..], [1, 2]);
        assert_eq!(MultiBlockLittleEndian.tweak_bytes(tweak)[..2], [2, 1]);
        for engine in [MultiBlock, MultiBlockLittleEndian, SingleBlock, Unspecified] {
            assert_eq!(engine.tweak_from_bytes(engine.tweak_bytes(tweak)), tweak);
        }
    }
}
