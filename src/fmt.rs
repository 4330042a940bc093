//! The one place that knows whether there is a log: defmt when the feature is on, else nothing.

/// Gives wire structs, whose big-endian fields defmt does not know, a `defmt::Format` that prints their bytes.
macro_rules! defmt_as_bytes {
    ($($name:ident),+ $(,)?) => { $(
        #[cfg(feature = "defmt")]
        impl defmt::Format for $name {
            fn format(&self, f: defmt::Formatter<'_>) {
                defmt::write!(f, "{=str} {=[u8]:02x}", stringify!($name), zerocopy::IntoBytes::as_bytes(self));
            }
        }
    )+ };
}

pub(crate) use defmt_as_bytes;
