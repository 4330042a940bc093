//! The memory of a command queue, and the signatures of its entries and mailbox blocks.

use crate::wire::prm::command_queue::{BLOCK_BYTES, CommandBlock, CommandEntry};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of entries of 64 bytes that the page of a command queue holds.
pub(super) const ENTRIES: usize = 64;

/// The offset of the mailbox blocks in bytes. The blocks follow the page of entries.
pub(super) const BLOCKS_AT: u64 = 4096;

/// The memory in which software writes commands for the device, and the device writes replies: a page of
/// entries, and mailbox blocks for requests and replies that do not fit into an entry.
///
/// `BLOCKS`, the number of mailbox blocks, is a power of two. The first 16 bytes of a request and of a reply
/// are in the entry; each further 512 bytes of the request, and of the reply, need a block. Some commands
/// contain a list of page addresses, of 8 bytes each. 16 blocks are enough for every command of this library
/// whose list has at most 900 pages.
///
/// ```
/// use mlx5_mkey::hca::CommandMemory;
/// assert_eq!((size_of::<CommandMemory<16>>(), align_of::<CommandMemory<16>>()), (20 << 10, 4096));
/// // Any bytes are valid, so the memory may be anywhere that the device reaches.
/// let memory = Box::new(CommandMemory::<16>::ZERO);
/// ```
#[derive(Clone, Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub struct CommandMemory<const BLOCKS: usize> {
    pub(super) entries: [CommandEntry; ENTRIES],
    pub(super) blocks: [CommandBlock; BLOCKS],
}

impl<const BLOCKS: usize> CommandMemory<BLOCKS> {
    /// Memory of a command queue in which all bytes are 0.
    pub const ZERO: Self =
        Self { entries: [CommandEntry::ZERO; ENTRIES], blocks: [CommandBlock::ZERO; BLOCKS] };
}

#[cfg(feature = "defmt")]
impl<const BLOCKS: usize> defmt::Format for CommandMemory<BLOCKS> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "CommandMemory of {=usize} blocks", BLOCKS);
    }
}

/// Returns the XOR of all `bytes`.
fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Writes the signature of an entry. The caller sets all other fields of the entry before this call.
pub(super) fn sign_entry(entry: &mut CommandEntry) {
    entry.signature = 0;
    entry.signature = !xor(entry.as_bytes());
}

/// Returns whether the signature in an entry fits the entry's bytes. If it fits, the XOR of all 64 bytes,
/// including the signature, is 0xff.
pub(super) fn is_signed(entry: &CommandEntry) -> bool {
    xor(entry.as_bytes()) == 0xff
}

/// Returns the two ranges of a mailbox block over which its signatures are computed. `signature` covers the
/// first 576 bytes: data and fields. `control_signature` covers the fields between the data and `signature`.
fn signed(block: &CommandBlock) -> Option<(&[u8], &[u8])> {
    let whole = block.as_bytes().get(..BLOCK_BYTES + 64)?;
    Some((whole, whole.get(BLOCK_BYTES..BLOCK_BYTES + 63)?))
}

/// Writes both signatures of a mailbox block. The caller sets all other fields of the block before this call.
pub(super) fn sign_block(block: &mut CommandBlock) {
    (block.control_signature, block.signature) = (0, 0);
    block.control_signature = !signed(block).map_or(0, |(_, control)| xor(control));
    block.signature = !signed(block).map_or(0, |(whole, _)| xor(whole));
}

/// Returns whether both signatures in a mailbox block fit the block's bytes.
pub(super) fn is_block_signed(block: &CommandBlock) -> bool {
    signed(block).is_some_and(|(whole, control)| xor(whole) == 0xff && xor(control) == 0xff)
}
