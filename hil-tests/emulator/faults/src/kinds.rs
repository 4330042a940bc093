//! Kinds of things that have names in a plan of faults.

/// Declares kinds with their names, and with their numbers if they have any.
macro_rules! kinds {
    (
        $(#[$outer:meta])+ $type:ident;
        $(#[$name_doc:meta])+ name;
        $($(#[$doc:meta])+ $name:ident $word:literal $(= $number:literal)?,)+
    ) => {
        $(#[$outer])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$doc])+ $name $(= $number)?,)+
        }

        impl $type {
            /// All kinds, in order.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$name),+];

            $(#[$name_doc])+
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// Returns the kind with this name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|kind| kind.name() == name)
            }
        }
    };
}
pub(crate) use kinds;
