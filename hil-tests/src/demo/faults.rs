//! The ways in which the software device can be broken on purpose, by name.

use mlx5_softdev::Faults;

/// A way to break the device.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Name of the field of [`Faults`].
    field: &'static str,
    /// The demo shows what it breaks, and so has to fail.
    pub shown: bool,
    set: fn(&mut Faults),
}

impl Fault {
    /// Returns the name as a user writes it.
    pub fn name(&self) -> String {
        self.field.replace('_', "-")
    }

    /// Returns a device's faults with this one alone.
    pub fn alone(&self) -> Faults {
        let mut faults = Faults::default();
        (self.set)(&mut faults);
        faults
    }
}

macro_rules! all {
    ($($field:ident $shown:literal,)+) => {
        /// All faults that the device has.
        pub const ALL: &[Fault] =
            &[$(Fault { field: stringify!($field), shown: $shown, set: |faults| faults.$field = true },)+];

        // Does not compile while a fault is missing above.
        const _: Faults = Faults { $($field: false,)+ };
    };
}

// Whether the demo shows what the fault breaks stands beside it.
all! {
    ref_tag_not_advancing true,
    tweak_not_advancing true,
    signature_over_plaintext true,
    stride_ignored true,
    access_flags_ignored true,
    local_inv_ignored true,
    // SEND with invalidation is not in the three pages.
    remote_invalidate_ignored false,
    dek256_as_128 true,
    // Nor are wrapped keys: the demo loads its own in plaintext.
    key_wrap_integrity_ignored false,
    wire_signatures_ignored true,
    check_mask_ignored true,
    copy_mask_ignored true,
    escapes_ignored true,
    psv_not_reset_by_set_psv true,
    keytag_ignored true,
    length_counts_memory_bytes true,
    error_not_kept_first true,
    crc_seed_inverted true,
}

/// Returns the fault of that name.
pub fn find(name: &str) -> Option<&'static Fault> {
    ALL.iter().find(|fault| fault.name() == name)
}
