//! Digests: one CRC32C over all data of a transaction, which may pass through several mkeys.

use crate::types::{DomainKind, PsvIndex, Seed};

/// The part of a transaction's data that passes through an mkey.
///
/// ```
/// use mlx5_mkey::mkey::DigestPart;
/// /// Returns the part of each mkey of a transaction. Mkeys are in the order of their data.
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
    /// All data: the CRC begins and ends with this mkey.
    Whole,
    /// The CRC begins with this mkey, and the next mkey continues it.
    First,
    /// The mkey continues the CRC, and the next mkey continues it further.
    Middle,
    /// The mkey continues the CRC and ends it: the digest stands behind the data of this mkey.
    Last,
}

impl DigestPart {
    /// Returns whether the CRC begins with this mkey.
    pub const fn begins(self) -> bool {
        matches!(self, Self::Whole | Self::First)
    }

    /// Returns whether the CRC ends with this mkey. The digest then stands behind the mkey's data.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Whole | Self::Last)
    }
}

/// The data that a digest covers, and the PSV that holds the running CRC.
///
/// ```
/// use mlx5_mkey::mkey::{DigestPart, DigestSpan};
/// use mlx5_mkey::types::PsvIndex;
/// /// Two mkeys, one after the other, under a PSV that no other transaction uses meanwhile.
/// fn two_mkeys(psv: PsvIndex) -> [DigestSpan; 2] {
///     [DigestPart::First, DigestPart::Last].map(|part| DigestSpan::Transaction { part, psv })
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DigestSpan {
    /// The data of this mkey, under the mkey's own PSV for the digest's domain. After an error, the next
    /// configuration restores the PSV.
    Mkey,
    /// The data of a transaction, which passes through several mkeys. The requests on these mkeys are
    /// executed in the order of the data, and each of them continues the CRC in one PSV.
    ///
    /// The PSV belongs to this transaction from the first configuration on. It is free again once the data
    /// has passed and the signature error, if there is one, was taken. After an error,
    /// [`SendRequest::set_psv`](crate::queue::SendRequest::set_psv) restores the PSV.
    Transaction {
        /// The part of the data that passes through this mkey.
        part: DigestPart,
        /// The PSV that holds the CRC between two mkeys.
        psv: PsvIndex,
    },
}

impl DigestSpan {
    /// Returns the part of the data that passes through this mkey.
    pub const fn part(self) -> DigestPart {
        match self {
            Self::Mkey => DigestPart::Whole,
            Self::Transaction { part, .. } => part,
        }
    }
}

/// A CRC32C over the data of a transaction. It stands behind the data, 4 bytes in little endian: a digest of
/// iSCSI or NVMe/TCP (a transaction signature, as SPDK's `lib/mlx5` posts it).
///
/// When data comes from the digest's domain, the device checks the digest and strips it. When data goes to
/// this domain, the device adds the digest. The digest covers the bytes as they are in its domain:
/// ciphertext, if the domain holds ciphertext.
///
/// Through an mkey with a digest on the wire, one request moves all data and the digest. Alternatively, one
/// request moves all data, and a second one moves the digest, whose offset is the length of the data. Whether
/// devices accept other requests is unknown.
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
    /// The domain in which the digest stands behind the data, and whose bytes it covers.
    pub domain: DomainKind,
    /// The start value of the CRC: all ones in iSCSI and NVMe/TCP.
    pub seed: Seed,
    /// The data that the digest covers.
    pub span: DigestSpan,
}

impl Digest {
    /// Size of a digest in bytes.
    pub const BYTES: u32 = 4;

    /// Returns a digest on the wire, behind the data of one mkey, with all ones as start value. The device
    /// adds the digest to data for the peer, and checks and strips the digest of data from the peer.
    pub const fn wire() -> Self {
        Self { domain: DomainKind::Wire, seed: Seed::Ones, span: DigestSpan::Mkey }
    }

    /// Returns a digest in memory, behind the data of one mkey, with all ones as start value. The digest is
    /// in the last 4 bytes that the layout maps, and covers all bytes before. The device writes the digest
    /// when data arrives, and checks and strips the digest when data leaves.
    pub const fn memory() -> Self {
        Self { domain: DomainKind::Memory, ..Self::wire() }
    }

    /// Returns how many bytes the digest takes in a domain of this mkey: 0 if the digest is in the other
    /// domain, or behind the data of another mkey.
    const fn bytes_in(&self, domain: DomainKind) -> u64 {
        if self.domain as u8 == domain as u8 && self.span.part().ends() { Self::BYTES as u64 } else { 0 }
    }

    /// Returns how many data bytes are among the `memory_bytes` bytes that an mkey maps, or `None` if the
    /// mapped bytes are too few for the digest.
    pub const fn data_bytes(&self, memory_bytes: u64) -> Option<u64> {
        memory_bytes.checked_sub(self.bytes_in(DomainKind::Memory))
    }

    /// Returns how many bytes on the wire correspond to the `memory_bytes` bytes that an mkey maps, or `None`
    /// if the mapped bytes are too few for the digest.
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
