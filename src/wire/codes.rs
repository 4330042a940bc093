//! Types for codes that come from a ring or a reply, which may contain any value. Each type can hold all
//! values; values with a name are constants.

/// Defines one type of codes, with their names. `Display` prints the name or, without a name, the number.
/// `Debug` prints the constant or, without one, type and number.
macro_rules! codes {
    (
        $(#[$type_doc:meta])* $type:ident($int:ident), $unknown:literal;
        $($(#[$doc:meta])* $name:ident = $code:expr, $text:literal;)+
    ) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $type(pub $int);

        impl $type {
            $($(#[$doc])* pub const $name: Self = Self($code);)+

            /// Returns the name of the code, `None` for an unknown code.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)+
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, $unknown, self.0),
                }
            }
        }

        $crate::wire::codes::debug_by_name! { $type: $($name)+ }
    };
}

/// Implements `Debug` for a type of codes. It prints the constant or, without one, type and number.
macro_rules! debug_by_name {
    ($type:ident: $($name:ident)+) => {
        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)+
                    Self(other) => write!(f, concat!(stringify!($type), "({:#x})"), other),
                }
            }
        }
    };
}

pub(crate) use {codes, debug_by_name};
