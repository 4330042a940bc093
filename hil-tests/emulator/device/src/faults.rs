//! Deliberate faults of the device. A test that still passes while a fault is on does not test the behaviour
//! that the fault breaks.

use alloc::string::String;

/// Declares the struct `Faults` from its fields, and the function that finds a fault by its name.
macro_rules! faults {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// The faults of a device. By default there are none.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Faults {
            $($(#[$doc])+ pub $name: bool,)+
        }

        impl Faults {
            /// Returns the faults with only the named fault on. A name is the name of a field, with `_` or
            /// `-` between its words. Returns `None` for an unknown name.
            pub fn named(name: &str) -> Option<Self> {
                let name: String = name.replace('-', "_");
                match name.as_str() {
                    $(stringify!($name) => Some(Self { $name: true, ..Self::default() }),)+
                    _ => None,
                }
            }
        }
    };
}

faults! {
    /// The T10-DIF reference tag is the same in every block.
    ref_tag_not_advancing,
    /// Every data unit uses the first unit's tweak.
    tweak_not_advancing,
    /// With encryption order "raw wire", the wire signature covers plaintext instead of ciphertext.
    signature_over_plaintext,
    /// An interleaved layout ignores its strides: the bytes of each stream follow each other without gaps.
    stride_ignored,
    /// Every key allows every access.
    access_flags_ignored,
    /// LOCAL_INV leaves the key usable.
    local_inv_ignored,
    /// SEND with invalidation leaves the invalidated key usable.
    remote_invalidate_ignored,
    /// 256-bit keys are used as AES-128 keys, by the first half of each.
    dek256_as_128,
    /// A wrapped key whose integrity check fails is loaded all the same, as zeros.
    key_wrap_integrity_ignored,
    /// The wire bytes contain no signatures, even if the BSF describes wire signatures.
    wire_signatures_ignored,
    /// All bytes of a signature are checked.
    check_mask_ignored,
    /// No byte of a signature is copied.
    copy_mask_ignored,
    /// Escape tags do not switch checks off.
    escapes_ignored,
    /// SET_PSV changes nothing.
    psv_not_reset_by_set_psv,
    /// The keytag in the crypto BSF is not compared with the keytag of the DEK.
    keytag_ignored,
    /// The length of a request counts memory bytes, not wire bytes.
    length_counts_memory_bytes,
    /// The device reports the last of several signature errors instead of the first, and reports again for
    /// each transfer with an error.
    error_not_kept_first,
    /// The end of a login destroys the keys that were loaded under this login.
    keys_end_with_their_login,
    /// No event reports that a send queue is drained.
    drained_not_told,
    /// The start values 0 and all ones of CRCs are swapped.
    crc_seed_inverted,
    /// The completion of a receive request counts memory bytes, not wire bytes.
    receives_count_memory_bytes,
    /// The rights of a queue pair (PRM `rre`, `rwe`, `rae`) are not checked. The rights of the keys are
    /// checked.
    qp_rights_ignored,
    /// A region that an mkey maps allows every access, also one that it was not registered for.
    region_rights_ignored,
    /// A key can be used through queue pairs of every protection domain.
    key_domain_ignored,
    /// A region that an mkey maps may be of another protection domain.
    region_domain_ignored,
    /// A UMR changes mkeys of every protection domain.
    umr_domain_ignored,
    /// A DEK may be of another protection domain.
    dek_domain_ignored,
    /// A PSV may be of another protection domain.
    psv_domain_ignored,
    /// SEND with invalidation does not compare the key's tag.
    invalidate_tag_ignored,
    /// SEND with invalidation invalidates keys of every protection domain.
    invalidate_domain_ignored,
    /// The receiver's completion does not show that the sender has asked for an event.
    solicited_lost,
    /// An atomic may be at any address.
    atomic_alignment_ignored,
    /// A masked atomic compares, replaces and adds whole values.
    atomic_masks_ignored,
    /// CHECK_FREE of a UMR refuses nothing.
    check_free_ignored,
    /// CHECK_QPN of a UMR refuses nothing.
    check_qpn_ignored,
    /// A bad entry of a layout is found only after data has been written through the earlier entries.
    bad_entries_found_late,
    /// A SEND whose invalidation is refused fails with the same syndrome as for other errors of the receiver.
    invalidation_refused_otherwise,
    /// Combinations of cipher and signature that the man page's table does not list are refused (DEVICE.md,
    /// "Crypto BSF and encryption order").
    leftover_rows_refused,
    /// A transfer whose length AES-XTS cannot process succeeds: its bytes are copied without encryption or
    /// decryption.
    job_size_ignored,
    /// On a queue pair with `drain_sigerr`, a request with a signature error gets no completion.
    failing_request_silent,
    /// On a queue pair with `drain_sigerr`, the send queue also stops for a signature error in data that the
    /// peer writes.
    drained_by_the_peers_data,
    /// A transfer is refused if counting its data units changes the upper half of the tweak.
    tweak_carry_refused,
    /// Each transfer begins with the tweak of the mkey's first data unit, at any offset.
    tweak_of_each_transfer,
    /// Bit 7 of a check or copy mask selects the most significant byte of a CRC, which in little endian is
    /// the last byte in memory.
    masks_number_the_value,
    /// Combinations of cipher and signature that the man page's table does not list give other bytes, and
    /// signature errors.
    leftover_rows_otherwise,
    /// The old value of an atomic is returned in big endian.
    atomic_replies_big_endian,
    /// A request that the rights of the peer's queue pair forbid reports an access error instead of an
    /// invalid request.
    denied_as_access,
    /// A UMR that would bind an mkey to a queue pair is refused.
    binding_refused,
    /// A new value of a used DEK is in force at once, before SYNC_CRYPTO.
    dek_value_at_once,
    /// A DEK refuses a new value of another size.
    dek_size_fixed,
}

impl Faults {
    /// Returns the checks that the faults switch off for the key that a request names.
    pub(crate) const fn of_key(&self) -> Unchecked {
        Unchecked { domain: self.key_domain_ignored, right: self.access_flags_ignored }
    }

    /// Returns the checks that the faults switch off for a key that an entry of another mkey names.
    pub(crate) const fn of_region(&self) -> Unchecked {
        Unchecked {
            domain: self.region_domain_ignored,
            right: self.access_flags_ignored || self.region_rights_ignored,
        }
    }
}

/// The checks of a key that the device leaves out because of its faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unchecked {
    pub(crate) domain: bool,
    pub(crate) right: bool,
}
