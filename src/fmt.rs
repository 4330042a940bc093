//! Macros that implement `defmt::Format` for types of the library, and `Debug` for queues. The macros
//! themselves test the feature `defmt`, so their callers need no `cfg`.

/// Implements `defmt::Format` for wire structs by printing their bytes, because defmt does not know
/// big-endian fields.
macro_rules! defmt_as_bytes {
    ($($name:ident),+ $(,)?) => { $(
        #[cfg(feature = "defmt")]
        impl defmt::Format for $name {
            fn format(&self, f: defmt::Formatter<'_>) {
                let bytes = zerocopy::IntoBytes::as_bytes(self);
                defmt::write!(f, "{=str} {=[u8]:02x}", stringify!($name), bytes);
            }
        }
    )+ };
}

/// Implements `defmt::Format` for a type that holds a key or a credential, by printing only the type's name.
macro_rules! defmt_redacted {
    ($($name:ident),+ $(,)?) => { $(
        #[cfg(feature = "defmt")]
        impl defmt::Format for $name {
            fn format(&self, f: defmt::Formatter<'_>) {
                defmt::write!(f, "{=str} (secret)", stringify!($name));
            }
        }
    )+ };
}

/// Implements `defmt::Format` by printing the text of the type's `Display`.
macro_rules! defmt_as_text {
    ($($name:ident$(<$lifetime:lifetime>)?),+ $(,)?) => { $(
        #[cfg(feature = "defmt")]
        impl$(<$lifetime>)? defmt::Format for $name$(<$lifetime>)? {
            fn format(&self, f: defmt::Formatter<'_>) {
                defmt::Display2Format(self).format(f);
            }
        }
    )+ };
}

/// Implements `Debug` and `defmt::Format` for a queue by printing its counters, without the ring.
macro_rules! format_counters {
    ([$($generics:tt)*] $name:ident [$($arguments:tt)*] { $($field:ident),* }) => {
        impl<$($generics)*> core::fmt::Debug for $name<$($arguments)*> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }

        #[cfg(feature = "defmt")]
        impl<$($generics)*> defmt::Format for $name<$($arguments)*> {
            fn format(&self, f: defmt::Formatter<'_>) {
                defmt::write!(f, "{=str}", stringify!($name));
                $(defmt::write!(f, " {=str}={}", stringify!($field), self.$field);)*
            }
        }
    };
}

pub(crate) use {defmt_as_bytes, defmt_as_text, defmt_redacted, format_counters};
