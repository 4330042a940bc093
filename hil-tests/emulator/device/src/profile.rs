//! What kind of device this one is: the properties in which real devices differ.

/// How the AES-XTS engine takes tweaks and units (DEVICE.md, "Engines").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XtsEngine {
    /// Many data units in a transfer; the BSF holds the tweak in big endian (capability `aes_xts_multi_block_be_tweak`).
    #[default]
    MultiBlock,
    /// Many data units in a transfer; the BSF holds the tweak in little endian (capability `aes_xts_multi_block_le_tweak`).
    MultiBlockLittleEndian,
    /// One data unit in a transfer; the BSF holds the tweak in little endian (capability `aes_xts_single_block_le_tweak`).
    SingleBlock,
}

/// The fence that the request behind a UMR needs which uses its mkey (PRM `umr_fence`). This device executes in order, so it only
/// says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UmrFence {
    /// A strong one (0).
    #[default]
    Strong,
    /// A small one (1).
    Small,
    /// None (2).
    None,
}

/// How data encryption keys are imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CryptoMode {
    /// No crypto at all: neither DEKs nor crypto mkeys.
    None,
    /// Keys in plaintext.
    #[default]
    Plaintext,
    /// Keys wrapped with an import KEK (RFC 3394), under a login.
    Wrapped,
}

/// What happens to a transfer that ends inside a protected block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartialBlocks {
    /// Its bytes pass; a signature that is not wholly there is not checked.
    ///
    /// Assumption: not published. The reference provider's own tests move 512 wire bytes of a 520-byte block.
    #[default]
    Pass,
    /// The request fails.
    Refuse,
}

/// The properties of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceProfile {
    /// The AES-XTS engine.
    pub xts: XtsEngine,
    /// A tweak grows by 2^64 for each data unit (capability `aes_xts_tweak_inc_64`), unless its upper half is all ones: then by
    /// one, and that half counts as 0.
    ///
    /// Assumption: the second part. Software that counts blocks in the lower half writes all ones there
    /// (DEVICE.md, "Tweaks that grow by 2^64").
    pub tweak_inc_64: bool,
    /// How keys are imported.
    pub crypto: CryptoMode,
    /// Transfers that end inside a protected block.
    pub partial_blocks: PartialBlocks,
    /// Keys behind an indirect key need the rights of the peer too (PRM `imaicl` is 0).
    pub inner_remote_rights: bool,
    /// The fence that a UMR needs behind it.
    pub umr_fence: UmrFence,
    /// Mkeys may relax the order of writes and reads, from their creation or by a UMR (capabilities `relaxed_ordering_…`). This device
    /// keeps it all the same.
    pub relaxed_ordering: bool,
    /// A UMR may write entries from number 65,536 on (capability `umr_extended_translation_offset`).
    pub extended_offsets: bool,
    /// Queue pairs can be made to drain on signature errors (`drain_sigerr`).
    pub drain_sigerr: bool,
    /// The longest copy of memory without a peer, as a logarithm of bytes (`log_dma_mmo_max_size`); `None` for a device that does not
    /// copy (`dma_mmo_qp`).
    pub log_max_copy: Option<u8>,
    /// The address of its port: whence datagrams come, and where they have to go (GID).
    pub port_gid: [u8; 16],
    /// The longest message in bytes; at most 2^31 (InfiniBand).
    pub max_message_bytes: u32,
    /// The most ranges of memory that one data segment may fall into, so that a request ends in bounded time.
    pub max_ranges: u32,
}

impl Default for DeviceProfile {
    fn default() -> Self {
        Self {
            xts: XtsEngine::default(),
            tweak_inc_64: false,
            crypto: CryptoMode::default(),
            partial_blocks: PartialBlocks::default(),
            inner_remote_rights: false,
            umr_fence: UmrFence::default(),
            relaxed_ordering: true,
            extended_offsets: true,
            drain_sigerr: true,
            log_max_copy: Some(21),
            port_gid: [0; 16],
            max_message_bytes: 1 << 31,
            max_ranges: 1 << 20,
        }
    }
}
