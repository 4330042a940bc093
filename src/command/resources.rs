//! Commands that allocate and free protection domains and UAR pages.

use super::{Command, Pdn, UarPage, number_commands};
use crate::command::error::CommandError;
use crate::wire::prm::command::{NumberReply, NumberRequest, Opcode, RequestHeader};

macro_rules! allocations {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident -> $number:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::command::{", stringify!($name), ", Command};")]
        #[doc = concat!("let mut mailbox = [0; ", stringify!($name), "::INPUT];")]
        #[doc = concat!("let request = ", stringify!($name), ".encode(&mut mailbox)?;")]
        /// // … the device answers …
        /// let reply = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0];
        #[doc = concat!("assert_eq!(", stringify!($name), ".decode(&reply)?.get(), 7);")]
        /// # Ok::<(), mlx5_mkey::error::CommandError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name;

        impl Command for $name {
            const OPCODE: Opcode = Opcode::$opcode;
            type Input = NumberRequest;
            type Output = NumberReply;
            type Reply = $number;

            fn write(&self, input: &mut NumberRequest) {
                input.header = RequestHeader::new(Self::OPCODE);
            }

            fn read(&self, output: &NumberReply) -> Result<$number, CommandError> {
                Ok($number::new(output.number.get() & $number::MAX.get()).unwrap_or_default())
            }
        }
    )+ };
}

allocations! {
    /// The command that allocates a protection domain (ALLOC_PD).
    AllocPd = ALLOC_PD -> Pdn;
    /// The command that allocates a UAR page (ALLOC_UAR). The command is meant for bare metal; users of DEVX
    /// get UAR pages from the kernel.
    AllocUar = ALLOC_UAR -> UarPage;
}

number_commands! {
    /// The command that frees a protection domain (DEALLOC_PD).
    DeallocPd(Pdn) = DEALLOC_PD;
    /// The command that frees a UAR page (DEALLOC_UAR).
    DeallocUar(UarPage) = DEALLOC_UAR;
}
