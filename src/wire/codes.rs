//! Open sets of codes: a ring or a reply may hold any value, and those that have a name are constants.

/// Makes the type of one set: its codes, their names, and a `Display` that prints the name, else the number.
macro_rules! codes {
    (
        $(#[$type_doc:meta])* $type:ident($int:ident), $unknown:literal;
        $($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)+
    ) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $type(pub $int);

        impl $type {
            $($(#[$doc])* pub const $name: Self = Self($code);)+

            /// Returns the name, `None` for a code that is not known here.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($text),)+
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
    };
}

pub(crate) use codes;
