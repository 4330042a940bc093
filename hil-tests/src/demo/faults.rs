//! The faults that the software device can have on purpose. The table says for each whether the demo notices
//! it.

use mlx5_softdev::Faults;

/// A fault of the software device.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Name of the field of [`Faults`] that switches the fault on.
    field: &'static str,
    /// The behaviour of the broken device.
    pub what: &'static str,
    /// Whether the demo notices this fault and must fail.
    pub shown: bool,
}

impl Fault {
    /// Returns the name of the fault on the command line, with `-` instead of `_`.
    pub fn name(&self) -> String {
        self.field.replace('_', "-")
    }

    /// Returns the software device's switches with only this fault on.
    pub fn alone(&self) -> Faults {
        Faults::named(self.field).unwrap_or_default()
    }
}

macro_rules! all {
    ($($field:ident $shown:literal $what:literal,)+) => {
        /// All faults of the device.
        pub const ALL: &[Fault] =
            &[$(Fault { field: stringify!($field), what: $what, shown: $shown },)+];

        // This line fails to compile if the list lacks a fault.
        const _: Faults = Faults { $($field: false,)+ };
    };
}

// The second column says whether the demo notices the fault.
all! {
    ref_tag_not_advancing true "the T10-DIF reference tag is the same in every block",
    tweak_not_advancing true "every data unit uses the first one's tweak",
    signature_over_plaintext true "row B: the wire signature covers plaintext",
    stride_ignored true "the bytes of an interleaved layout follow each other without gaps",
    access_flags_ignored true "every key allows every access",
    local_inv_ignored true "LOCAL_INV leaves the key usable",
    // The demo's three man pages do not mention SEND with invalidation.
    remote_invalidate_ignored false "SEND with invalidation leaves the key usable",
    dek256_as_128 true "256-bit keys are used as AES-128 keys",
    // The demo's man pages do not mention wrapped keys, and the demo uses keys in plaintext.
    key_wrap_integrity_ignored false "a damaged wrapped key is loaded as zeros",
    // The demo's man pages do not mention crypto logins and drained queues.
    keys_end_with_their_login false "keys are gone when their login ends",
    drained_not_told false "no event tells of a drained queue",
    wire_signatures_ignored true "the wire has no signatures",
    check_mask_ignored true "all bytes of a signature are checked",
    copy_mask_ignored true "no byte of a signature is copied",
    escapes_ignored true "escape tags do not switch checks off",
    psv_not_reset_by_set_psv true "SET_PSV changes nothing",
    keytag_ignored true "the keytag is not compared",
    length_counts_memory_bytes true "lengths count memory bytes, not wire bytes",
    error_not_kept_first true "of several signature errors the last one is reported",
    crc_seed_inverted true "CRC seeds 0 and all ones are swapped",
    // Each fault below breaks a rule that the demo's man pages state indirectly or not at all.
    receives_count_memory_bytes false "a receive's completion counts memory bytes",
    qp_rights_ignored false "a queue pair lets its peer do all that the keys allow",
    region_rights_ignored false "a region under an mkey allows every access",
    key_domain_ignored false "keys work in every protection domain",
    region_domain_ignored false "a region under an mkey may be of another protection domain",
    umr_domain_ignored false "a UMR changes mkeys of every protection domain",
    dek_domain_ignored false "a DEK may be of another protection domain",
    psv_domain_ignored false "a PSV may be of another protection domain",
    invalidate_tag_ignored false "SEND with invalidation does not compare the tag",
    invalidate_domain_ignored false "SEND with invalidation reaches every protection domain",
    solicited_lost false "no receiver learns that its peer wants an event",
    atomic_alignment_ignored false "atomics may be at any address",
    atomic_masks_ignored false "masked atomics ignore their masks",
    check_free_ignored false "CHECK_FREE refuses nothing",
    check_qpn_ignored false "CHECK_QPN refuses nothing",
    // Each fault below breaks a rule that the scenarios assume, but that no document and no driver states.
    // One rule is stated in part: the man page `mlx5dv_wr_set_mkey_crypto` says which lengths are valid
    // (`job_size_ignored`), but not that a device refuses others.
    bad_entries_found_late false "what comes before a bad entry of a layout is written",
    invalidation_refused_otherwise false "a refused invalidation has other syndromes",
    leftover_rows_refused false "pairs of cipher and signature in no table are refused",
    leftover_rows_otherwise false "pairs of cipher and signature in no table give other bytes",
    job_size_ignored true "AES-XTS takes every length",
    failing_request_silent false "a request that stops a draining queue completes silently",
    drained_by_the_peers_data false "wrong data of the peer stops a draining queue",
    tweak_carry_refused false "tweaks that carry into the upper half are refused",
    tweak_of_each_transfer false "each transfer begins with the first tweak",
    masks_number_the_value false "bit 7 of a mask is the highest byte of a CRC",
    atomic_replies_big_endian false "the old value of an atomic is in big endian",
    denied_as_access false "what a queue pair denies is an access without the right",
    binding_refused true "no UMR binds an mkey to a queue pair",
    dek_value_at_once false "another value of a DEK that was used is in force at once",
    dek_size_fixed false "a DEK gets no value of another size",
}

/// Returns the fault with this name.
pub fn find(name: &str) -> Option<&'static Fault> {
    ALL.iter().find(|fault| fault.name() == name)
}
