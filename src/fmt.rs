//! The one place that knows whether there is a log: defmt when the feature is on, else nothing.

/// Gives wire structs, whose big-endian fields defmt does not know, a `defmt::Format` that prints their
/// bytes.
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

/// Gives a type that holds a key or a credential a `defmt::Format` that prints its name and nothing more.
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

/// Gives a type that exists to be printed a `defmt::Format` that prints it.
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

/// Gives a queue, whose ring nobody wants printed, a `Debug` and a `defmt::Format` of its counters.
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
