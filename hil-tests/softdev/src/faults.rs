//! Deliberately broken devices: a test suite that stays green with one of these set proves nothing about it.

/// Which parts of the device are broken. All are whole by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The T10-DIF reference tag is the same in every block (R114).
    pub ref_tag_not_advancing: bool,
    /// Every data unit uses the first unit's tweak (R156).
    pub tweak_not_advancing: bool,
    /// Row B: the wire signature covers plaintext, not ciphertext (R144).
    pub signature_over_plaintext: bool,
    /// The bytes of an interleaved layout follow each other without gaps (R47).
    pub stride_ignored: bool,
    /// Every key allows every access (R30, R31).
    pub access_flags_ignored: bool,
    /// LOCAL_INV leaves the key usable (R12).
    pub local_inv_ignored: bool,
    /// SEND with invalidation leaves the key usable.
    pub remote_invalidate_ignored: bool,
    /// 256-bit keys are used as AES-128 keys, by the first half of each (M34).
    pub dek256_as_128: bool,
    /// A wrapped key whose integrity check fails is loaded all the same, as zeros (M32).
    pub key_wrap_integrity_ignored: bool,
    /// The wire has no signatures, whatever the BSF says (R72).
    pub wire_signatures_ignored: bool,
    /// All bytes of a signature are checked (R77).
    pub check_mask_ignored: bool,
    /// No byte of a signature is copied (R87).
    pub copy_mask_ignored: bool,
    /// Escape tags do not switch checks off (R115, R116).
    pub escapes_ignored: bool,
    /// SET_PSV changes nothing (R176).
    pub psv_not_reset_by_set_psv: bool,
    /// The keytag is not compared (R160).
    pub keytag_ignored: bool,
    /// The length of a request counts memory bytes, not wire bytes (D3).
    pub length_counts_memory_bytes: bool,
    /// Of several signature errors the last one is reported, and again for each transfer (R183).
    pub error_not_kept_first: bool,
    /// Keys are gone when the login ends that they were loaded under (M29).
    pub keys_end_with_their_login: bool,
    /// A send queue that is drained says so to nobody who does not ask (M19).
    pub drained_not_told: bool,
    /// Seed 0 and seed all ones of CRCs are swapped (D17).
    pub crc_seed_inverted: bool,
}
