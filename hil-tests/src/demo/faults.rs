//! The ways in which the software device can be broken on purpose, by name.

use mlx5_softdev::Faults;

/// A way to break the device.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Name of the field of [`Faults`].
    field: &'static str,
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
    ($($field:ident,)+) => {
        /// All faults that the device has.
        pub const ALL: &[Fault] =
            &[$(Fault { field: stringify!($field), set: |faults| faults.$field = true },)+];

        // Does not compile while a fault is missing above.
        const _: Faults = Faults { $($field: false,)+ };
    };
}

all! {
    ref_tag_not_advancing,
    tweak_not_advancing,
    signature_over_plaintext,
    stride_ignored,
    access_flags_ignored,
    local_inv_ignored,
    remote_invalidate_ignored,
    dek256_as_128,
    key_wrap_integrity_ignored,
    wire_signatures_ignored,
    check_mask_ignored,
    copy_mask_ignored,
    escapes_ignored,
    psv_not_reset_by_set_psv,
    keytag_ignored,
    length_counts_memory_bytes,
    error_not_kept_first,
    crc_seed_inverted,
}

/// Returns the fault of that name.
pub fn find(name: &str) -> Option<&'static Fault> {
    ALL.iter().find(|fault| fault.name() == name)
}
