//! The crypto capabilities of the device, and the form in which it accepts DEKs: plaintext or wrapped.

use super::{Command, GeneralCapabilities};
use crate::command::error::CommandError;
use crate::mkey::XtsEngine;
use crate::wire::prm::command::{Opcode, RequestHeader};
use crate::wire::prm::crypto_capabilities::{CryptoCapabilityBits, CryptoLimits, CryptoMode};
use crate::wire::prm::object::ObjectType;
use crate::wire::prm::query_hca_cap::{CRYPTO, CURRENT, QueryHcaCapReply, QueryHcaCapRequest};
use core::fmt;

/// Crypto capabilities (PRM `crypto_caps`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CryptoCapabilities {
    /// The device is commissioned for wrapped keys: it accepts logins.
    pub wrapped_operational: bool,
    /// The device will be commissioned for wrapped keys after the next reset.
    pub going_to_commissioning: bool,
    /// AES-XTS keys must be wrapped.
    pub xts_keys_wrapped: bool,
    /// Mask of the kinds of DEK that the device accepts only wrapped (PRM `wrapped_import_method`). Bit 2
    /// stands for AES-XTS keys.
    pub import_methods: u8,
    /// The device has the command [`super::SyncCrypto`], which is needed to give DEKs other values.
    pub synchronizes_deks: bool,
    /// Base-2 logarithm of the largest number of DEKs.
    pub log_max_deks: u8,
    /// Base-2 logarithm of the largest number of import keys (KEKs, which wrap DEKs and credentials).
    pub log_max_import_keks: u8,
    /// Base-2 logarithm of the largest number of credentials.
    pub log_max_credentials: u8,
    /// One bit per self-test that failed; 0 if all passed.
    pub failed_selftests: u16,
    /// Number of import keys that outlive a reset.
    pub permanent_import_keks: u8,
    /// Number of credentials that outlive a reset.
    pub permanent_credentials: u8,
}

impl CryptoCapabilities {
    /// Creates the value from the words of the device's reply.
    pub fn from_wire(bits: &CryptoCapabilityBits) -> Self {
        let mode = CryptoMode::from_bits(bits.mode.get());
        let limits = CryptoLimits::from_bits(bits.limits.get());
        Self {
            wrapped_operational: mode.wrapped_crypto_operational(),
            going_to_commissioning: mode.wrapped_crypto_going_to_commissioning(),
            xts_keys_wrapped: mode.wrapped_import_method() & CryptoMode::IMPORT_AES_XTS != 0,
            import_methods: mode.wrapped_import_method(),
            synchronizes_deks: mode.synchronize_dek(),
            log_max_deks: limits.log_max_num_deks(),
            log_max_import_keks: limits.log_max_num_import_keks(),
            log_max_credentials: limits.log_max_num_creds(),
            failed_selftests: bits.failed_selftests.get(),
            permanent_import_keks: bits.num_nv_import_keks,
            permanent_credentials: bits.num_nv_credentials,
        }
    }
}

/// The form in which the device accepts AES-XTS keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum KeyImport {
    /// The device accepts no keys. The text is the reason.
    Unavailable(&'static str),
    /// The device accepts keys in plaintext.
    Plaintext,
    /// The device accepts wrapped keys, after a login.
    Wrapped,
}

/// A summary of the device's crypto capabilities: its AES-XTS engine, and the form in which it accepts keys
/// or the reason why it accepts none.
///
/// `Display` prints the summary as a sentence, because a device that "has crypto" may still refuse every key.
///
/// ```
/// use mlx5_mkey::command::{Command, CryptoReport, QueryCryptoCapabilities, QueryGeneralCapabilities};
/// # let general_reply = [0; QueryGeneralCapabilities::OUTPUT];
/// let general = QueryGeneralCapabilities.decode(&general_reply)?;
/// let report = CryptoReport { general, crypto: None };
/// assert_eq!(report.to_string(), "no AES-XTS: the device does not encrypt");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CryptoReport {
    /// The general capabilities of the device.
    pub general: GeneralCapabilities,
    /// The crypto capabilities of the device; `None` if [`GeneralCapabilities::crypto`] is false.
    pub crypto: Option<CryptoCapabilities>,
}

impl CryptoReport {
    /// Returns the form in which the device accepts keys, by the rules of rdma-core's `mlx5dv_dek_create` and
    /// `mlx5dv_crypto_login`. In addition to these rules, the device needs an engine that this library
    /// accepts ([`GeneralCapabilities::xts_engine`]).
    pub const fn key_import(&self) -> KeyImport {
        if !self.general.crypto {
            return KeyImport::Unavailable("the device does not encrypt");
        }
        if self.general.xts_tweak_inc_64 {
            return KeyImport::Unavailable(
                "its tweaks grow by 2^64 (aes_xts_tweak_inc_64), which can be switched off",
            );
        }
        if self.general.xts_engine().is_none() {
            return KeyImport::Unavailable("the device has no AES-XTS engine");
        }
        if !self.general.can_create(ObjectType::DEK) {
            return KeyImport::Unavailable("keys cannot be loaded (no DEK objects)");
        }
        let Some(crypto) = self.crypto else {
            return KeyImport::Unavailable("the crypto capabilities were not asked for");
        };
        if !crypto.xts_keys_wrapped {
            return KeyImport::Plaintext;
        }
        if !crypto.wrapped_operational {
            return KeyImport::Unavailable("keys must be wrapped, but the device is not commissioned yet");
        }
        if !self.general.can_create(ObjectType::CRYPTO_LOGIN) {
            return KeyImport::Unavailable("keys must be wrapped, but there are no logins to open them");
        }
        KeyImport::Wrapped
    }
}

impl fmt::Display for CryptoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let import = self.key_import();
        match import {
            KeyImport::Unavailable(why) => write!(f, "no AES-XTS: {why}")?,
            KeyImport::Plaintext | KeyImport::Wrapped => {
                f.write_str(match self.general.xts_engine() {
                    Some(XtsEngine::MultiBlock | XtsEngine::MultiBlockLittleEndian) => {
                        "AES-XTS, any number of data units per mkey; "
                    }
                    Some(XtsEngine::SingleBlock) => "AES-XTS, one data unit per mkey; ",
                    _ => "AES-XTS; ",
                })?;
                f.write_str(if import == KeyImport::Plaintext {
                    "keys are loaded in plaintext"
                } else {
                    "the device is commissioned: keys must be wrapped and need a login"
                })?;
            }
        }
        let Some(crypto) = &self.crypto else { return Ok(()) };
        if import == KeyImport::Plaintext && crypto.wrapped_operational {
            f.write_str("; it is commissioned, but not for AES-XTS keys")?;
        }
        if crypto.going_to_commissioning {
            f.write_str("; it is being commissioned, reset it to finish")?;
        }
        if crypto.failed_selftests != 0 {
            write!(f, "; self-tests failed: {:#06x}", crypto.failed_selftests)?;
        }
        if !matches!(import, KeyImport::Unavailable(_)) {
            write!(f, "; up to 2^{} keys", crypto.log_max_deks)?;
        }
        Ok(())
    }
}

/// The command that asks for the current crypto capabilities (QUERY_HCA_CAP, crypto). It is meant for devices
/// with [`GeneralCapabilities::crypto`] only.
///
/// ```
/// use mlx5_mkey::command::{Command, QueryCryptoCapabilities};
/// let mut mailbox = [0; 16];
/// let request = QueryCryptoCapabilities.encode(&mut mailbox)?;
/// assert_eq!(request[..8], [0x01, 0x00, 0, 0, 0, 0, 0, 0x35]);
/// // … the device answers …
/// let reply = [0; QueryCryptoCapabilities::OUTPUT];
/// assert!(!QueryCryptoCapabilities.decode(&reply)?.xts_keys_wrapped);
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryCryptoCapabilities;

impl Command for QueryCryptoCapabilities {
    const OPCODE: Opcode = Opcode::QUERY_HCA_CAP;
    type Input = QueryHcaCapRequest;
    type Output = QueryHcaCapReply;
    type Reply = CryptoCapabilities;

    fn write(&self, input: &mut QueryHcaCapRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.header.op_mod.set(CRYPTO | CURRENT);
    }

    fn read(&self, output: &QueryHcaCapReply) -> Result<CryptoCapabilities, CommandError> {
        Ok(CryptoCapabilities::from_wire(zerocopy::transmute_ref!(&output.known)))
    }
}
