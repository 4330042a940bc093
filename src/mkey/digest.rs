//! Digests: one CRC32C over all data of a transaction, which may pass several mkeys.

use crate::types::{DomainKind, PsvIndex, Seed};

/// Which part of a transaction's data passes an mkey.
///
/// ```
/// use mlx5_mkey::mkey::DigestPart;
/// /// Of the mkeys of a transaction, in the order in which their data passes.
/// fn part(index: usize, mkeys: usize) -> DigestPart {
///     match (index == 0, index + 1 == mkeys) {
///         (true, true) => DigestPart::Whole,
///         (true, false) => DigestPart::First,
///         (false, false) => DigestPart::Middle,
///         (false, true) => DigestPart::Last,
///     }
/// }
/// assert_eq!(part(0, 3), DigestPart::First);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DigestPart {
    /// All of it: the CRC begins and ends here.
    Whole,
    /// The CRC begins here, and the next mkey goes on.
    First,
    /// The CRC goes on.
    Middle,
    /// The CRC goes on and ends here: it is behind the data.
    Last,
}

impl DigestPart {
    /// Returns whether the CRC begins with this mkey.
    pub const fn begins(self) -> bool {
        matches!(self, Self::Whole | Self::First)
    }

    /// Returns whether the CRC ends with this mkey, and is behind its data.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Whole | Self::Last)
    }
}

/// What a digest is over, and which PSV holds it meanwhile.
///
/// ```
/// use mlx5_mkey::mkey::{DigestPart, DigestSpan};
/// use mlx5_mkey::types::PsvIndex;
/// /// Two mkeys, one after the other, under a PSV that no other transaction has meanwhile.
/// fn two_mkeys(psv: PsvIndex) -> [DigestSpan; 2] {
///     [DigestPart::First, DigestPart::Last].map(|part| DigestSpan::Transaction { part, psv })
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DigestSpan {
    /// The data of this mkey, under its own PSV of the digest's domain. Behind an error the next
    /// configuration restores the PSV.
    Mkey,
    /// Data that passes several mkeys, whose requests are executed in the order of the data: each adds to one
    /// PSV.
    ///
    /// The PSV is this transaction's from the first configuration until the data has passed and its signature
    /// error, if there is one, was taken. Behind an error
    /// [`SendRequest::set_psv`](crate::queue::SendRequest::set_psv) restores it.
    Transaction {
        /// Which part of the data passes this mkey.
        part: DigestPart,
        /// Holds the CRC between two mkeys.
        psv: PsvIndex,
    },
}

impl DigestSpan {
    /// Returns which part of the data passes this mkey.
    pub const fn part(self) -> DigestPart {
        match self {
            Self::Mkey => DigestPart::Whole,
            Self::Transaction { part, .. } => part,
        }
    }
}

/// A CRC32C over the data of a transaction and behind it, 4 bytes in little endian: a digest of iSCSI or
/// NVMe/TCP (a transaction signature, as SPDK's `lib/mlx5` posts it).
///
/// Where data comes from the digest's domain, the device checks the digest and strips it; where data goes
/// there, it makes the digest. It is over the bytes of its domain: ciphertext, where the domain holds any.
///
/// Through an mkey whose digest is on the wire, a request moves all data with the digest behind it, or the
/// data alone, and then the digest alone, whose offset is the length of the data. What else devices take is
/// not known.
///
/// ```
/// use mlx5_mkey::mkey::{
///     Access, Digest, MkeyConfig, MkeyKind, SignatureCapabilities, SignatureChange, UmrForm,
/// };
/// use mlx5_mkey::wqe::PreparedConfig;
/// // The data digest of an NVMe/TCP PDU: the peer reads 4096 bytes of memory, and 4 bytes more.
/// let digest = Digest::wire();
/// assert_eq!(digest.wire_bytes(4096), Some(4100));
/// let signature = SignatureChange::Digest(digest);
/// let config = MkeyConfig { access: Some(Access::REMOTE_READ), signature, ..MkeyConfig::UNCHANGED };
/// let (signature, form) = (Some(SignatureCapabilities::ALL), UmrForm::Complete);
/// let kind = MkeyKind { max_entries: 4, signature, crypto: None, form, entry_size: None };
/// let prepared = PreparedConfig::new(kind, &config)?;
/// # Ok::<(), mlx5_mkey::error::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Digest {
    /// Where it is behind the data, and whose bytes it is over.
    pub domain: DomainKind,
    /// What the CRC begins with: all ones in iSCSI and NVMe/TCP.
    pub seed: Seed,
    /// What it is over.
    pub span: DigestSpan,
}

impl Digest {
    /// Bytes of a digest.
    pub const BYTES: u32 = 4;

    /// A digest on the wire, behind the data of one mkey, from all ones: made for the peer, or checked and
    /// stripped.
    pub const fn wire() -> Self {
        Self { domain: DomainKind::Wire, seed: Seed::Ones, span: DigestSpan::Mkey }
    }

    /// A digest in memory, the last 4 bytes that the mkey's layout maps, over all before, from all ones: made
    /// in place as data arrives, or checked and stripped.
    pub const fn memory() -> Self {
        Self { domain: DomainKind::Memory, ..Self::wire() }
    }

    /// Returns the bytes of the digest in a domain: none where it is in the other, or is another mkey's.
    const fn bytes_in(&self, domain: DomainKind) -> u64 {
        if self.domain as u8 == domain as u8 && self.span.part().ends() { Self::BYTES as u64 } else { 0 }
    }

    /// Returns the bytes of data behind an mkey that maps `memory_bytes`, `None` where there is no room for
    /// the digest.
    pub const fn data_bytes(&self, memory_bytes: u64) -> Option<u64> {
        memory_bytes.checked_sub(self.bytes_in(DomainKind::Memory))
    }

    /// Returns how many bytes are on the wire of an mkey that maps `memory_bytes`, `None` where there is no
    /// room for the digest.
    pub const fn wire_bytes(&self, memory_bytes: u64) -> Option<u64> {
        match self.data_bytes(memory_bytes) {
            Some(data) => data.checked_add(self.bytes_in(DomainKind::Wire)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DigestPart::{First, Last, Middle, Whole};

    #[test]
    fn a_crc_begins_and_ends_once() {
        let parts = [Whole, First, Middle, Last].map(|part| (part.begins(), part.ends()));
        assert_eq!(parts, [(true, true), (true, false), (false, false), (false, true)]);
    }
}
