//! Reads commands on mkeys, PSVs and data encryption keys, and builds their replies.

use super::reply::{HEADER, Refused, with};
use super::request::Request;
use crate::keys::DekError;
use crate::object::dek::DekAttributes;
use crate::object::mkey::{MkeyAttributes, MkeySpace};
use crate::profile::{CryptoMode, DeviceProfile};
use alloc::vec::Vec;
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wire::mkey_context::MkeyContext;
use zerocopy::FromBytes;

/// Offset of the context of an mkey in a command.
const MKC: usize = 0x10;
/// Offset of the byte that says where the pages are, and the byte's bit for user memory (PRM
/// `mkey_umem_valid`).
const SOURCE: usize = 0xc;
const IN_UMEM: u8 = 0x40;
/// Offset of the list of entries or pages in CREATE_MKEY.
const ENTRIES: usize = 0x110;

/// The layout of the memory that a new mkey maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySpace {
    /// All addresses of the device's bus.
    Bus,
    /// A region on pages (access mode MTT).
    Pages {
        /// The first address.
        start: u64,
        /// The number of bytes.
        length: u64,
        /// Logarithm of the bytes of a page.
        log_page: u8,
        /// Whether UMRs may change the mkey (PRM `umr_en`).
        umr: bool,
        /// The page entries: addresses, with rights in the lowest two bits. The command lists them, except
        /// for an mkey in the state free. Without `pg_access`, each entry gets all rights.
        entries: Vec<u64>,
    },
    /// A region of registered user memory (access mode MTT with `mkey_umem_valid`).
    Umem {
        /// The first address.
        start: u64,
        /// The number of bytes.
        length: u64,
        /// The number of the user memory.
        number: u32,
        /// The offset of the region's first byte in the user memory.
        offset: u64,
    },
    /// The mkey has no entries until a UMR writes them (access modes KLM and KSM).
    Umr,
    /// The entries that the command lists (access modes KLM and KSM without `umr_en`).
    Entries(MkeySpace),
}

/// The fields of CREATE_MKEY, which creates an mkey (PRM `mkc`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MkeyCommand {
    /// The attributes of the mkey.
    pub attributes: MkeyAttributes,
    /// The layout of the memory that the mkey maps.
    pub space: KeySpace,
}

impl MkeyCommand {
    /// Reads the command.
    ///
    /// # Errors
    /// [`Refused`] for an unknown access mode, for pages of less than 4 KiB, for a region whose addresses do
    /// not fit 64 bits, and for a region in the state free that no UMR may change. Assumption: the device
    /// refuses a region of this last kind.
    pub fn read(request: &Request) -> Result<Self, Refused> {
        let context = MkeyContext::read_from_bytes(request.bytes(MKC, size_of::<MkeyContext>())?);
        let context = context.map_err(|_| Refused::INPUT_LENGTH)?;
        let (is_whole_space, umr) = (context.flags_pd_word().length64(), context.access & 0x80 != 0);
        let mut attributes = MkeyAttributes::of_context(&context);
        let (start, length) = (context.start_addr.get(), context.len.get());
        let space = match (context.free & 0x1c, context.access & 3) {
            (0, 0) if is_whole_space => KeySpace::Bus,
            (0, 1) => {
                attributes = MkeyAttributes { signature: false, crypto: false, ..attributes };
                if request.u8(SOURCE)? & IN_UMEM != 0 && !attributes.free {
                    let (number, offset) = (request.u32(0x64)?, request.u64(0x68)?);
                    start.checked_add(length).ok_or(Refused::PARAMETER)?;
                    return Ok(Self { attributes, space: KeySpace::Umem { start, length, number, offset } });
                }
                pages(request, (start, length), attributes.free, umr)?
            }
            (0, 2 | 3) if umr => KeySpace::Umr,
            (0, 2 | 3) if !is_whole_space => {
                let count = request.u32(0x60)? as usize;
                let bytes = count.checked_mul(16).ok_or(Refused::INPUT_LENGTH)?;
                let (entries, _) = request.bytes(ENTRIES, bytes)?.as_chunks::<16>();
                let entry = |bytes| Klm::read_from_bytes(bytes).map_err(|_| Refused::INPUT_LENGTH);
                let entries = entries.iter().map(|bytes| entry(bytes)).collect::<Result<_, _>>()?;
                KeySpace::Entries(MkeySpace { start, length, entries })
            }
            _ => return Err(Refused::PARAMETER),
        };
        Ok(Self { attributes, space })
    }
}

fn pages(
    request: &Request,
    (start, length): (u64, u64),
    is_free: bool,
    umr: bool,
) -> Result<KeySpace, Refused> {
    const RIGHTS: u64 = 3;
    let log_page = request.u8(MKC + 0x3b)? & 0x1f;
    if log_page < 12 || is_free && !umr {
        return Err(Refused::PARAMETER);
    }
    let page = 1_u64 << log_page;
    let end = (start & (page - 1)).checked_add(length).ok_or(Refused::PARAMETER)?;
    start.checked_add(length).ok_or(Refused::PARAMETER)?;
    let mut entries = Vec::new();
    if !is_free {
        let count = usize::try_from(end.div_ceil(page)).map_err(|_| Refused::INPUT_LENGTH)?;
        let listed = request.bytes(ENTRIES, count.checked_mul(8).ok_or(Refused::INPUT_LENGTH)?)?;
        let rights = if request.u8(SOURCE)? & 0x80 != 0 { 0 } else { RIGHTS };
        let (words, _) = listed.as_chunks();
        entries.extend(words.iter().map(|word| u64::from_be_bytes(*word) | rights));
    }
    Ok(KeySpace::Pages { start, length, log_page, umr, entries })
}

/// The fields of CREATE_PSV, which creates PSVs (protection signature values).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsvCommand {
    /// The protection domain.
    pub pd: u32,
    /// The number of PSVs to create.
    pub count: u32,
}

impl PsvCommand {
    /// Reads the command.
    ///
    /// # Errors
    /// [`Refused::INPUT_LENGTH`] if the request is too short.
    pub fn read(request: &Request) -> Result<Self, Refused> {
        Ok(Self { pd: request.u24(9)?, count: u32::from(request.u8(8)? >> 4) })
    }
}

/// Returns the reply to CREATE_PSV with the numbers of the new PSVs.
pub fn psv_reply(numbers: &[u32]) -> Vec<u8> {
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    with(0x20, 0x10, &numbers)
}

/// The number of bytes of a general object in a reply.
const OBJECT: usize = 256;

/// Reads the attributes of the DEK in CREATE_GENERAL_OBJECT or MODIFY_GENERAL_OBJECT. `login` is the number
/// of a valid login of the user, which a device with wrapped keys needs.
///
/// # Errors
/// [`Refused`] for each error of [`DekAttributes::read`].
pub fn dek(request: &Request, crypto: CryptoMode, login: Option<u32>) -> Result<DekAttributes<'_>, Refused> {
    let object = request.bytes(HEADER, request.0.len().saturating_sub(HEADER))?;
    DekAttributes::read(object, crypto, login).map_err(|error| match error {
        DekError::Length => Refused::INPUT_LENGTH,
        DekError::Refused(error) => error.into(),
    })
}

/// Returns the opaque bytes that a user stores with a new DEK.
///
/// # Errors
/// [`Refused::INPUT_LENGTH`] if the request is too short.
pub fn opaque(request: &Request) -> Result<[u8; 8], Refused> {
    request.u64(HEADER + 0x30).map(u64::to_be_bytes)
}

/// Checks that MODIFY_GENERAL_OBJECT selects the key value of a DEK, the only field that can change.
///
/// # Errors
/// [`Refused`] if the command selects another field.
pub fn modifies_key(request: &Request) -> Result<(), Refused> {
    const KEY: u64 = 1;
    if request.u64(HEADER)? == KEY { Ok(()) } else { Err(Refused::PARAMETER) }
}

/// Returns the reply to a query of a DEK: state 0 (ready) and the opaque bytes. The key itself is left out.
pub fn dek_reply(opaque: &[u8; 8]) -> Vec<u8> {
    with(HEADER + OBJECT, HEADER + 0x30, opaque)
}

/// Checks that SYNC_CRYPTO selects all DEKs (`crypto_type` 1), and that the device has any.
///
/// # Errors
/// [`Refused`] for other selections, and for a device without crypto.
pub fn syncs_crypto(request: &Request, profile: &DeviceProfile) -> Result<(), Refused> {
    let is_all = request.u16(0xe)? == 1;
    if is_all && profile.crypto != CryptoMode::None { Ok(()) } else { Err(Refused::PARAMETER) }
}
