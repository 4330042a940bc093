//! Entries of lists whose entries all have the same length (KSM).

use super::KlmEntry;
use crate::types::Key;
use crate::wire::klm::Klm;

/// One entry of a list whose entries all have the same length (PRM `klm`, kernel `struct mlx5_ksm`). The mkey
/// holds this length.
///
/// ```
/// use mlx5_mkey::{mkey::KsmEntry, types::Key};
/// let entry = KsmEntry { address: 0x7f00_0020_0000, key: Key::from_raw(0x1234_00) };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(C)]
pub struct KsmEntry {
    /// Address of the first byte, as in [`KlmEntry::address`].
    pub address: u64,
    /// Key of the memory: the local key (`lkey`) of a memory region, or the key of an mkey.
    pub key: Key,
}

impl KsmEntry {
    /// Returns the entry in wire form. Its length field is 0, as in the kernel, because the device ignores
    /// it.
    pub(crate) fn to_wire(self) -> Klm {
        KlmEntry { address: self.address, length: 0, key: self.key }.to_wire()
    }
}
