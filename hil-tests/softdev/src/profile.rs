//! What kind of device this one is: the properties in which real devices differ.

/// How the AES-XTS engine takes tweaks and units (D6, D7; capabilities `aes_xts_multi_block_be_tweak` and
/// `aes_xts_single_block_le_tweak`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XtsEngine {
    /// Many data units in a transfer; the BSF holds the tweak in big endian.
    #[default]
    MultiBlock,
    /// One data unit in a transfer; the BSF holds the tweak in little endian.
    SingleBlock,
}

/// How data encryption keys are imported (M32, M35).
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

/// What happens to a transfer that ends inside a protected block (R186).
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
    /// How keys are imported.
    pub crypto: CryptoMode,
    /// Transfers that end inside a protected block.
    pub partial_blocks: PartialBlocks,
    /// Queue pairs can be made to drain on signature errors (`drain_sigerr`, M42).
    pub drain_sigerr: bool,
    /// The longest message in bytes; at most 2^31 (InfiniBand).
    pub max_message_bytes: u32,
    /// The most ranges of memory that one data segment may fall into, so that a request ends in bounded time.
    pub max_ranges: u32,
}

impl Default for DeviceProfile {
    fn default() -> Self {
        Self {
            xts: XtsEngine::default(),
            crypto: CryptoMode::default(),
            partial_blocks: PartialBlocks::default(),
            drain_sigerr: true,
            max_message_bytes: 1 << 31,
            max_ranges: 1 << 20,
        }
    }
}
