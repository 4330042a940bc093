//! Reads commands into values. Each function of this module reads one kind of command, checks its fields, and
//! changes nothing. The command queue of the PCI function and the stand-in for Linux's uverbs interface both
//! read commands by these functions. The two differ in how they find the memory and the objects that a
//! command names.
//!
//! The functions read fields at the offsets of the PRM (`mlx5_ifc.h` and `device.h` of Linux; DEVICE.md, "The
//! command interface of a bare device"). They share no code with the library's encoders of commands.

mod keys;
mod queue_pairs;
mod queues;
pub mod reply;
mod request;

pub use keys::{
    KeySpace, MkeyCommand, PsvCommand, dek, dek_reply, modifies_key, opaque, psv_reply, syncs_crypto,
};
pub use queue_pairs::{QpCommand, QpStep, context_reply, steps};
pub use queues::{CqCommand, RmpCommand, limit_of_rmp};
pub use reply::Refused;
pub use request::Request;

/// The place of a ring, as a command names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The ring is on pages whose addresses the command lists.
    Pages {
        /// Logarithm of the bytes of a page, minus 12.
        log_page: u8,
        /// The offset of the ring in the first page, in 64ths of a page.
        offset: u16,
    },
    /// The ring is in a umem: memory that a user has registered (PRM `umem`).
    Umem {
        /// The number of the umem.
        number: u32,
        /// The offset of the ring in the umem, in bytes.
        offset: u64,
    },
}

impl Place {
    /// Returns the number of the umem, if the place is in a umem.
    pub const fn umem(self) -> Option<u32> {
        match self {
            Self::Pages { .. } => None,
            Self::Umem { number, .. } => Some(number),
        }
    }
}

/// The place of a doorbell record, as a command names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the umem that contains the record. `None` if the record is not in a umem.
    pub umem: Option<u32>,
    /// The offset of the record in the umem. Without a umem, the record's address in memory.
    pub offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_place_in_a_umem_has_one() {
        assert_eq!(Place::Umem { number: 7, offset: 0 }.umem(), Some(7));
        assert_eq!(Place::Pages { log_page: 0, offset: 0 }.umem(), None);
    }
}
