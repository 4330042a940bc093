//! Prepared configurations: properties of mkeys that are checked and encoded once, and used by many requests.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::hand_out;
use super::error::{Error, Failure, attempt, given};
use super::group::Pool;
use super::memory::Dek;
use super::values::{MLX5MK_MEMORY, MLX5MK_WIRE, access_of, only};
use crate::mkey::{
    BlockSignature, Crypto, Digest, DigestPart, DigestSpan, Direction, Domain, Escape, Guard, Keytag,
    MkeyConfig, RelaxedOrdering, Signature, SignatureChange, SignatureOrder, T10Dif,
};
use crate::types::{BlockSize, DomainKind, PsvIndex, Seed, Tweak};
use crate::wqe::PreparedConfig;
use core::mem::MaybeUninit;
use std::boxed::Box;

/// Flag of the field `parts` of a configuration (mlx5mk_config): the configuration gives access rights.
pub const MLX5MK_SET_ACCESS: u32 = 1;
/// Flag of `parts`: the configuration gives signatures. If the kind of both domains is MLX5MK_NO_SIGNATURE,
/// the mkey's signatures are removed.
pub const MLX5MK_SET_SIGNATURE: u32 = 2;
/// Flag of `parts`: the configuration gives crypto properties.
pub const MLX5MK_SET_CRYPTO: u32 = 4;
/// Flag of `parts`: the field `check_mask` gives the bytes of a signature that are checked. Without this
/// flag, all bytes are checked.
pub const MLX5MK_SET_CHECK_MASK: u32 = 8;
/// Flag of `parts`: the field `copy_mask` gives the bytes of a signature that are copied from domain to
/// domain. Without this flag, the library chooses the bytes.
pub const MLX5MK_SET_COPY_MASK: u32 = 16;

/// Flag of `parts`: the configuration gives a digest instead of block signatures.
pub const MLX5MK_SET_DIGEST: u32 = 32;

/// Flag of `parts`: where data are encrypted together with their signatures, the length of a data unit may
/// differ from the length of a block with its signature. A transfer of such data must begin at their first
/// byte.
pub const MLX5MK_ANY_DATA_UNIT: u32 = 64;

/// Bit of `which` of mlx5mk_prepared_set_ordering: the order of writes through an mkey. Relaxed writes may
/// pass one another.
pub const MLX5MK_ORDER_WRITES: u32 = 1;
/// Bit of `which` of mlx5mk_prepared_set_ordering: the order of reads through an mkey. Relaxed reads may pass
/// writes.
pub const MLX5MK_ORDER_READS: u32 = 2;

/// Value of `part` of a digest: the digest covers the data of this mkey.
pub const MLX5MK_DIGEST_MKEY: u32 = 0;
/// Value of `part` of a digest: the digest covers data that pass through several mkeys. This mkey is the
/// first of them.
pub const MLX5MK_DIGEST_FIRST: u32 = 1;
/// Value of `part` of a digest: the digest covers data that pass through several mkeys. This mkey is between
/// the first and the last.
pub const MLX5MK_DIGEST_MIDDLE: u32 = 2;
/// Value of `part` of a digest: the digest covers data that pass through several mkeys. This mkey is the
/// last, and the digest follows its data.
pub const MLX5MK_DIGEST_LAST: u32 = 3;
/// Value of `part` of a digest: the digest covers data that pass through this mkey only, but the running CRC
/// is in the PSV `psv`, as for several mkeys.
pub const MLX5MK_DIGEST_WHOLE: u32 = 4;

/// The domain has no signature.
pub const MLX5MK_NO_SIGNATURE: u32 = 0;
/// The signature is a T10-DIF, of 8 bytes.
pub const MLX5MK_T10DIF: u32 = 1;
/// The signature is a CRC-32 as in Fibre Channel, of 4 bytes.
pub const MLX5MK_CRC32: u32 = 2;
/// The signature is a CRC-32C as in iSCSI, of 4 bytes.
pub const MLX5MK_CRC32C: u32 = 3;
/// The signature is a CRC-64 as in Microsoft XP10 and NVMe, of 8 bytes.
pub const MLX5MK_CRC64_XP10: u32 = 4;

/// A guard or CRC starts with all bits 0.
pub const MLX5MK_SEED_ZEROS: u32 = 0;
/// A guard or CRC starts with all bits 1.
pub const MLX5MK_SEED_ONES: u32 = 1;

/// The guard of a T10-DIF is a CRC-16.
pub const MLX5MK_GUARD_CRC: u32 = 0;
/// The guard of a T10-DIF is the Internet checksum.
pub const MLX5MK_GUARD_IP_CHECKSUM: u32 = 1;

/// Flag of a T10-DIF: the reference tag grows by one for each block.
pub const MLX5MK_REF_REMAP: u32 = 1;
/// Flag of a T10-DIF: blocks with the application tag FFFF pass unchecked.
pub const MLX5MK_ESCAPE_APP_TAG: u32 = 2;
/// Flag of a T10-DIF: blocks with the application tag FFFF and the reference tag FFFFFFFF pass unchecked.
pub const MLX5MK_ESCAPE_APP_AND_REF_TAG: u32 = 4;

/// Value of `direction`: memory holds plaintext, the wire ciphertext.
pub const MLX5MK_ENCRYPT_ON_TX: u32 = 0;
/// Value of `direction`: memory holds ciphertext, the wire plaintext.
pub const MLX5MK_DECRYPT_ON_TX: u32 = 1;

/// Value of `order`: when sending, signatures are made before encryption or decryption, so the cipher covers
/// them.
pub const MLX5MK_SIGNATURE_BEFORE_CRYPTO: u32 = 0;
/// Value of `order`: when sending, signatures are made after encryption or decryption.
pub const MLX5MK_SIGNATURE_AFTER_CRYPTO: u32 = 1;

/// The signature of one domain (struct mlx5dv_sig_block_domain).
#[repr(C)]
pub struct SignatureSpec {
    /// MLX5MK_T10DIF, MLX5MK_CRC32, MLX5MK_CRC32C, MLX5MK_CRC64_XP10 or MLX5MK_NO_SIGNATURE. With
    /// MLX5MK_NO_SIGNATURE, all other fields are ignored.
    pub kind: u32,
    /// Data bytes of a block, without the signature: 512, 520, 4048, 4096 or 4160.
    pub block_size: u32,
    /// Start value of the guard or CRC: MLX5MK_SEED_ZEROS or MLX5MK_SEED_ONES.
    pub seed: u32,
    /// The guard of a T10-DIF: MLX5MK_GUARD_CRC or MLX5MK_GUARD_IP_CHECKSUM.
    pub guard: u32,
    /// The reference tag of the first block, for T10-DIF.
    pub ref_tag: u32,
    /// The application tag, for T10-DIF.
    pub app_tag: u16,
    /// Flags, for T10-DIF: MLX5MK_REF_REMAP, and one of MLX5MK_ESCAPE_APP_TAG and
    /// MLX5MK_ESCAPE_APP_AND_REF_TAG.
    pub flags: u16,
}

/// A digest of iSCSI or NVMe/TCP: a CRC32C over all data, stored behind the data in 4 bytes, little endian
/// (SPDK: spdk_mlx5_umr_configure_sig). One domain, memory or wire, holds the digest. When data comes from
/// this domain, the device checks and strips the digest. When data goes to this domain, the device generates
/// the digest. The CRC is over the bytes as this domain holds them, which may be ciphertext.
///
/// If the digest is on the wire, either one request moves all data and the digest behind it, or one request
/// moves the data and the next request moves the digest.
#[repr(C)]
pub struct DigestSpec {
    /// The domain that holds the digest: MLX5MK_MEMORY or MLX5MK_WIRE.
    pub domain: u32,
    /// Start value of the CRC: MLX5MK_SEED_ZEROS, or MLX5MK_SEED_ONES as in iSCSI and NVMe/TCP.
    pub seed: u32,
    /// The position of this mkey among the mkeys through which the data pass: MLX5MK_DIGEST_MKEY or another
    /// MLX5MK_DIGEST constant.
    pub part: u32,
    /// For all parts except MLX5MK_DIGEST_MKEY: the PSV that holds the running CRC (mlx5mk_psvs_index). The
    /// caller ensures that no other transaction uses this PSV meanwhile.
    pub psv: u32,
}

/// Crypto properties (struct mlx5dv_crypto_attr): AES-XTS.
#[repr(C)]
pub struct CryptoSpec {
    /// The data encryption key. It must not be destroyed while mkeys use it.
    pub dek: *const Dek,
    /// The low half of the first data unit's tweak: a number of 128 bits, normally the LBA.
    pub tweak_low: u64,
    /// The high half of the tweak.
    pub tweak_high: u64,
    /// The tag of the key; zeros for a key without a tag.
    pub keytag: [u8; 8],
    /// MLX5MK_ENCRYPT_ON_TX or MLX5MK_DECRYPT_ON_TX.
    pub direction: u32,
    /// MLX5MK_SIGNATURE_BEFORE_CRYPTO or MLX5MK_SIGNATURE_AFTER_CRYPTO.
    pub order: u32,
    /// Bytes that are encrypted under one tweak: 512, 520, 4048, 4096, 4160 or 2^20. If the cipher covers a
    /// signature, these are the bytes of block and signature together.
    pub data_unit: u32,
}

/// The properties that a configuration sets for an mkey. Properties that the configuration does not set stay
/// as they are. The layout is not among these properties: the functions that post a configuration take the
/// layout.
#[repr(C)]
pub struct Config {
    /// The parts that the configuration gives: MLX5MK_SET_ACCESS and other MLX5MK_SET flags.
    pub parts: u32,
    /// Access rights, MLX5MK_LOCAL_WRITE and others. The owner of the mkey may always read.
    pub access: u32,
    /// The signature behind each block in memory.
    pub memory: SignatureSpec,
    /// The signature behind each block on the wire.
    pub wire: SignatureSpec,
    /// The bytes of a signature that are checked: a bit for each, bit 7 for the first byte. Used with
    /// MLX5MK_SET_CHECK_MASK.
    pub check_mask: u8,
    /// The bytes of a signature that are copied from domain to domain: a bit for each, bit 7 for the first
    /// byte. Used with MLX5MK_SET_COPY_MASK.
    pub copy_mask: u8,
    /// The crypto properties: AES-XTS with a key.
    pub crypto: CryptoSpec,
    /// The digest behind all data.
    pub digest: DigestSpec,
}

/// A configuration that was checked and encoded. It fits any mkey of the pool for which it was made, and of
/// pools with the same properties.
pub struct Prepared(pub(super) PreparedConfig);

/// Returns `zero` if `value` is 0, and `one` if it is 1. Refuses other values. `what` names the argument in
/// the error.
pub(super) const fn either<T: Copy>(what: &'static str, value: u32, zero: T, one: T) -> Result<T, Failure> {
    match value {
        0 => Ok(zero),
        1 => Ok(one),
        _ => Err(Failure::Value { what, value: value as u64 }),
    }
}

/// Converts MLX5MK_SEED_ZEROS or MLX5MK_SEED_ONES into the start value of a CRC.
pub(super) const fn seed(value: u32) -> Result<Seed, Failure> {
    either("seed", value, Seed::Zeros, Seed::Ones)
}

fn block_size(bytes: u32, what: &'static str) -> Result<BlockSize, Failure> {
    BlockSize::from_bytes(bytes).ok_or(Failure::Value { what, value: bytes.into() })
}

fn domain(spec: &SignatureSpec) -> Result<Option<Domain>, Failure> {
    if spec.kind == MLX5MK_NO_SIGNATURE {
        return Ok(None);
    }
    let seed = seed(spec.seed)?;
    let signature = match spec.kind {
        MLX5MK_T10DIF => Signature::T10Dif(t10dif(spec, seed)?),
        MLX5MK_CRC32 => Signature::Crc32(seed),
        MLX5MK_CRC32C => Signature::Crc32c(seed),
        MLX5MK_CRC64_XP10 => Signature::Crc64Xp10(seed),
        kind => return Err(Failure::Value { what: "kind of signature", value: kind.into() }),
    };
    Ok(Some(Domain { signature, block_size: block_size(spec.block_size, "block_size")? }))
}

fn t10dif(spec: &SignatureSpec, seed: Seed) -> Result<T10Dif, Failure> {
    let flags = u32::from(spec.flags);
    let escape = match flags & !MLX5MK_REF_REMAP {
        0 => Escape::Never,
        MLX5MK_ESCAPE_APP_TAG => Escape::AppTag,
        MLX5MK_ESCAPE_APP_AND_REF_TAG => Escape::AppAndRefTag,
        _ => return Err(Failure::Value { what: "flags of a T10-DIF", value: flags.into() }),
    };
    Ok(T10Dif {
        guard: either("guard", spec.guard, Guard::Crc, Guard::IpChecksum)?,
        seed,
        app_tag: spec.app_tag,
        ref_tag: spec.ref_tag,
        ref_remap: flags & MLX5MK_REF_REMAP != 0,
        escape,
    })
}

fn digest(spec: &DigestSpec) -> Result<Digest, Failure> {
    Ok(Digest {
        domain: either("domain", spec.domain, DomainKind::Memory, DomainKind::Wire)?,
        seed: seed(spec.seed)?,
        span: span(spec.part, spec.psv)?,
    })
}

fn span(part: u32, psv: u32) -> Result<DigestSpan, Failure> {
    let part = match part {
        MLX5MK_DIGEST_MKEY => return Ok(DigestSpan::Mkey),
        MLX5MK_DIGEST_FIRST => DigestPart::First,
        MLX5MK_DIGEST_MIDDLE => DigestPart::Middle,
        MLX5MK_DIGEST_LAST => DigestPart::Last,
        MLX5MK_DIGEST_WHOLE => DigestPart::Whole,
        part => return Err(Failure::Value { what: "part of a digest", value: part.into() }),
    };
    Ok(DigestSpan::Transaction { part, psv: PsvIndex::new(psv)? })
}

fn signature(config: &Config) -> Result<SignatureChange, Failure> {
    if config.parts & MLX5MK_SET_DIGEST != 0 {
        let others = MLX5MK_SET_SIGNATURE | MLX5MK_SET_CHECK_MASK | MLX5MK_SET_COPY_MASK;
        return match config.parts & others {
            0 => Ok(SignatureChange::Digest(digest(&config.digest)?)),
            _ => Err(Failure::Wanted("an mkey has a digest or signatures of blocks, not both")),
        };
    }
    let masks = config.parts & (MLX5MK_SET_CHECK_MASK | MLX5MK_SET_COPY_MASK);
    if config.parts & MLX5MK_SET_SIGNATURE == 0 {
        return match masks {
            0 => Ok(SignatureChange::Keep),
            _ => Err(Failure::Wanted("a mask of signatures goes with MLX5MK_SET_SIGNATURE")),
        };
    }
    let mut signature = match (domain(&config.memory)?, domain(&config.wire)?) {
        (None, None) => return Ok(SignatureChange::Reset),
        (Some(memory), None) => BlockSignature::memory(memory),
        (None, Some(wire)) => BlockSignature::wire(wire),
        (Some(memory), Some(wire)) => BlockSignature::both(memory, wire),
    };
    if masks & MLX5MK_SET_CHECK_MASK != 0 {
        signature = signature.with_check_mask(config.check_mask);
    }
    if masks & MLX5MK_SET_COPY_MASK != 0 {
        signature = signature.with_copy_mask(config.copy_mask)?;
    }
    Ok(SignatureChange::Set(signature))
}

fn crypto(spec: &CryptoSpec) -> Result<Crypto, Failure> {
    // SAFETY: the caller ensures that `spec.dek` is NULL or the handle of a key.
    let Dek(dek) = given(unsafe { spec.dek.as_ref() }, "dek")?;
    Ok(Crypto {
        direction: either("direction", spec.direction, Direction::EncryptOnTx, Direction::DecryptOnTx)?,
        order: either(
            "order",
            spec.order,
            SignatureOrder::BeforeCryptoOnTx,
            SignatureOrder::AfterCryptoOnTx,
        )?,
        data_unit: block_size(spec.data_unit, "data_unit")?,
        tweak: tweak(spec.tweak_low, spec.tweak_high),
        dek: dek.id(),
        keytag: Keytag(spec.keytag),
    })
}

const fn tweak(low: u64, high: u64) -> Tweak {
    Tweak::new((high as u128) << 64 | low as u128)
}

fn config_of(config: &Config) -> Result<MkeyConfig, Failure> {
    let known = MLX5MK_SET_ACCESS
        | MLX5MK_SET_SIGNATURE
        | MLX5MK_SET_CRYPTO
        | MLX5MK_SET_CHECK_MASK
        | MLX5MK_SET_COPY_MASK
        | MLX5MK_SET_DIGEST
        | MLX5MK_ANY_DATA_UNIT;
    only(config.parts, known, "parts")?;
    let has = |part| config.parts & part != 0;
    Ok(MkeyConfig {
        access: has(MLX5MK_SET_ACCESS).then(|| access_of(config.access)).transpose()?,
        signature: signature(config)?,
        crypto: has(MLX5MK_SET_CRYPTO).then(|| crypto(&config.crypto)).transpose()?,
    })
}

/// Checks and encodes a configuration for the mkeys of a pool, once for any number of requests. The
/// configuration may outlive the pool.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_CONFIG for properties that no mkey of the pool can hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_prepared_create(
    pool: Option<&Pool>,
    config: Option<&Config>,
    prepared: Option<&mut MaybeUninit<*mut Prepared>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pool, config) = (given(pool, "pool")?, given(config, "config")?);
        let place = given(prepared, "prepared")?;
        let wanted = config_of(config)?;
        let prepared = if config.parts & MLX5MK_ANY_DATA_UNIT != 0 {
            PreparedConfig::with_any_data_unit(pool.kind, &wanted)?
        } else {
            PreparedConfig::new(pool.kind, &wanted)?
        };
        hand_out(place, Prepared(prepared))
    })
}

/// Replaces the tweak of the first data unit, given as the low and the high half of a number of 128 bits.
///
/// Errors: MLX5MK_CONFIG where the configuration sets no crypto properties.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_prepared_set_tweak(
    prepared: Option<&mut Prepared>,
    low: u64,
    high: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        given(prepared, "prepared")?.0.set_tweak(tweak(low, high))?;
        Ok(0)
    })
}

/// Replaces the tags of a domain's T10-DIF (MLX5MK_MEMORY or MLX5MK_WIRE): the application tag, and the
/// reference tag of the first block.
///
/// Errors: MLX5MK_CONFIG where the configuration sets no T10-DIF in this domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_prepared_set_tags(
    prepared: Option<&mut Prepared>,
    domain: u32,
    app_tag: u16,
    ref_tag: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Prepared(prepared) = given(prepared, "prepared")?;
        let domain = match domain {
            MLX5MK_MEMORY => DomainKind::Memory,
            MLX5MK_WIRE => DomainKind::Wire,
            other => return Err(Failure::Value { what: "domain", value: other.into() }),
        };
        prepared.set_app_tag(domain, app_tag)?;
        prepared.set_ref_tag(domain, ref_tag)?;
        Ok(0)
    })
}

/// Replaces two fields of the configuration's digest: `part`, the position of the mkey among the mkeys
/// through which the data pass (MLX5MK_DIGEST_FIRST and others), and `psv`, the PSV of the transaction. Call
/// this function before the configuration is posted for the next mkey.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_CONFIG where the configuration sets no digest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_prepared_set_digest(
    prepared: Option<&mut Prepared>,
    part: u32,
    psv: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        given(prepared, "prepared")?.0.set_digest(span(part, psv)?)?;
        Ok(0)
    })
}

/// Replaces the data encryption key, and the 8 bytes of the key's tag (NULL means zeros, for a key without a
/// tag).
///
/// Errors: MLX5MK_CONFIG where the configuration sets no crypto properties.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_prepared_set_dek(
    prepared: Option<&mut Prepared>,
    dek: Option<&Dek>,
    keytag: *const u8,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Prepared(prepared), Dek(dek)) = (given(prepared, "prepared")?, given(dek, "dek")?);
        // SAFETY: the caller ensures that `keytag` is NULL or leads to 8 bytes.
        let keytag = unsafe { keytag.cast::<[u8; 8]>().as_ref() };
        prepared.set_dek(dek.id(), keytag.map_or_else(Keytag::default, |bytes| Keytag(*bytes)))?;
        Ok(0)
    })
}

/// Makes the configuration also change the PCIe ordering of the mkey's transfers: the orderings that `which`
/// selects (MLX5MK_ORDER_WRITES, MLX5MK_ORDER_READS or their sum) become relaxed if `relaxed` is 1, strict if
/// it is 0. The device must have the capability `relaxed_ordering_umr`.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_prepared_set_ordering(
    prepared: Option<&mut Prepared>,
    which: u32,
    relaxed: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Prepared(prepared) = given(prepared, "prepared")?;
        only(which, MLX5MK_ORDER_WRITES | MLX5MK_ORDER_READS, "which")?;
        let relaxed = either("relaxed", relaxed, false, true)?;
        let has = |order| which & order != 0;
        let ordering = RelaxedOrdering { write: has(MLX5MK_ORDER_WRITES), read: has(MLX5MK_ORDER_READS) };
        *prepared = prepared.with_relaxed_ordering(ordering, relaxed);
        Ok(0)
    })
}

/// Makes the configuration also set whether the peer may invalidate the mkey's key: `allowed` is 1 for yes, 0
/// for no.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_prepared_set_remote_invalidate(
    prepared: Option<&mut Prepared>,
    allowed: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Prepared(prepared) = given(prepared, "prepared")?;
        *prepared = prepared.with_remote_invalidate(either("allowed", allowed, false, true)?);
        Ok(0)
    })
}

/// Makes the configuration also set the address at which the mkey's space begins. Requests then name the
/// first byte by this address. The mkey keeps this start until another configuration sets one.
///
/// Errors: MLX5MK_CONFIG for mkeys with signatures or crypto.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_prepared_set_start(
    prepared: Option<&mut Prepared>,
    start: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Prepared(prepared) = given(prepared, "prepared")?;
        *prepared = prepared.with_start_address(start)?;
        Ok(0)
    })
}

/// Destroys the prepared configuration. Mkeys that were configured with it keep their properties. NULL is
/// ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_prepared_destroy(prepared: Option<Box<Prepared>>) {
    drop(prepared);
}
