//! Deliberate faults of the device. A test suite that passes with a fault set does not test the behaviour
//! that the fault breaks.

/// The faults of a device. By default there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The T10-DIF reference tag is the same in every block.
    pub ref_tag_not_advancing: bool,
    /// Every data unit uses the first unit's tweak.
    pub tweak_not_advancing: bool,
    /// With encryption order "raw wire", the wire signature covers plaintext instead of ciphertext.
    pub signature_over_plaintext: bool,
    /// The bytes of an interleaved layout follow each other without gaps.
    pub stride_ignored: bool,
    /// Every key allows every access.
    pub access_flags_ignored: bool,
    /// LOCAL_INV leaves the key usable.
    pub local_inv_ignored: bool,
    /// SEND with invalidation leaves the invalidated key usable.
    pub remote_invalidate_ignored: bool,
    /// 256-bit keys are used as AES-128 keys, by the first half of each.
    pub dek256_as_128: bool,
    /// A wrapped key whose integrity check fails is loaded all the same, as zeros.
    pub key_wrap_integrity_ignored: bool,
    /// The wire bytes contain no signatures, even if the BSF describes wire signatures.
    pub wire_signatures_ignored: bool,
    /// All bytes of a signature are checked.
    pub check_mask_ignored: bool,
    /// No byte of a signature is copied.
    pub copy_mask_ignored: bool,
    /// Escape tags do not switch checks off.
    pub escapes_ignored: bool,
    /// SET_PSV changes nothing.
    pub psv_not_reset_by_set_psv: bool,
    /// The keytag is not compared.
    pub keytag_ignored: bool,
    /// The length of a request counts memory bytes, not wire bytes.
    pub length_counts_memory_bytes: bool,
    /// Of several signature errors the last one is reported instead of the first, and each transfer reports
    /// again.
    pub error_not_kept_first: bool,
    /// The end of a login destroys the keys that were loaded under this login.
    pub keys_end_with_their_login: bool,
    /// No event reports that a send queue is drained.
    pub drained_not_told: bool,
    /// Seed 0 and seed all ones of CRCs are swapped.
    pub crc_seed_inverted: bool,
    /// The completion of a receive counts memory bytes, not wire bytes.
    pub receives_count_memory_bytes: bool,
    /// The rights of a queue pair are not checked, only those of the keys (PRM `rre`, `rwe`, `rae`).
    pub qp_rights_ignored: bool,
    /// A region under an mkey allows every access, also one that it was not registered for.
    pub region_rights_ignored: bool,
    /// A key can be used through queue pairs of every protection domain.
    pub key_domain_ignored: bool,
    /// A region under an mkey may be of another protection domain.
    pub region_domain_ignored: bool,
    /// A UMR changes mkeys of every protection domain.
    pub umr_domain_ignored: bool,
    /// A DEK may be of another protection domain.
    pub dek_domain_ignored: bool,
    /// A PSV may be of another protection domain.
    pub psv_domain_ignored: bool,
    /// SEND with invalidation does not compare the key's tag.
    pub invalidate_tag_ignored: bool,
    /// SEND with invalidation invalidates keys of every protection domain.
    pub invalidate_domain_ignored: bool,
    /// The receiver's completion does not show that the sender has asked for an event.
    pub solicited_lost: bool,
    /// An atomic may be at any address.
    pub atomic_alignment_ignored: bool,
    /// CHECK_FREE of a UMR refuses nothing.
    pub check_free_ignored: bool,
    /// CHECK_QPN of a UMR refuses nothing.
    pub check_qpn_ignored: bool,
    /// A bad entry of a layout is found only after data has been written to the entries before it.
    pub bad_entries_found_late: bool,
    /// A SEND whose invalidation is refused fails with the syndrome of the receiver's other errors.
    pub invalidation_refused_otherwise: bool,
    /// Combinations of cipher and signature that the man page's table does not list are refused (DEVICE.md,
    /// "Crypto BSF and encryption order").
    pub leftover_rows_refused: bool,
    /// A transfer whose length AES-XTS cannot process succeeds: its bytes are copied without encryption or
    /// decryption.
    pub job_size_ignored: bool,
    /// On a queue pair with `drain_sigerr`, a request with a signature error gets no completion.
    pub failing_request_silent: bool,
    /// On a queue pair with `drain_sigerr`, a signature error in data that the peer writes stops the send
    /// queue, too.
    pub drained_by_the_peers_data: bool,
    /// A transfer whose tweaks would carry into the upper half is refused.
    pub tweak_carry_refused: bool,
    /// Each transfer begins with the tweak of the mkey's first data unit, at any offset.
    pub tweak_of_each_transfer: bool,
    /// Bit 7 of a check or copy mask selects the most significant byte of a CRC, which in little endian is
    /// the last one in memory.
    pub masks_number_the_value: bool,
    /// Combinations of cipher and signature that the man page's table does not list give other bytes, and
    /// signature errors.
    pub leftover_rows_otherwise: bool,
    /// The old value of an atomic comes back in big endian.
    pub atomic_replies_big_endian: bool,
    /// A request that the rights of the peer's queue pair forbid reports an access error instead of an
    /// invalid request.
    pub denied_as_access: bool,
    /// A UMR that would bind an mkey to a queue pair is refused.
    pub binding_refused: bool,
    /// A new value of a used DEK is in force at once, before SYNC_CRYPTO.
    pub dek_value_at_once: bool,
    /// A DEK refuses a new value of another size.
    pub dek_size_fixed: bool,
}

impl Faults {
    /// Returns the checks that the faults switch off for a key that a request names.
    pub(crate) const fn of_key(&self) -> Unchecked {
        Unchecked { domain: self.key_domain_ignored, right: self.access_flags_ignored }
    }

    /// Returns the checks that the faults switch off for a key under another key.
    pub(crate) const fn of_region(&self) -> Unchecked {
        Unchecked {
            domain: self.region_domain_ignored,
            right: self.access_flags_ignored || self.region_rights_ignored,
        }
    }
}

/// The checks of a key that a broken device leaves out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unchecked {
    pub(crate) domain: bool,
    pub(crate) right: bool,
}
