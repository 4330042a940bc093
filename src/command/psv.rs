//! Commands that create and destroy protection signature values (PSVs), in which the device stores the
//! running value of a signature.

use super::{Command, Pdn, number_commands};
use crate::command::error::CommandError;
use crate::types::PsvIndex;
use crate::wire::prm::command::{Opcode, RequestHeader};
use crate::wire::prm::psv::{CreatePsvReply, CreatePsvRequest, PsvCount};

/// The command that creates `N` PSVs, 1 to 4 (CREATE_PSV). An mkey with block signature needs two, one for
/// the memory domain and one for the wire domain.
///
/// The reply holds the indices of the PSVs. With another `N` the program does not compile.
///
/// ```
/// use mlx5_mkey::command::{Command, CreatePsv, Pdn};
/// let mut mailbox = [0; 16];
/// let request = CreatePsv::<2>::new(Pdn::new(0x00ab_cdef)?).encode(&mut mailbox)?;
/// assert_eq!(request[8..12], [0x20, 0xab, 0xcd, 0xef]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreatePsv<const N: usize> {
    pd: Pdn,
}

impl<const N: usize> CreatePsv<N> {
    /// Creates the command for `N` PSVs in a protection domain.
    pub const fn new(pd: Pdn) -> Self {
        const { assert!(N >= 1 && N <= 4, "a command creates 1 to 4 PSVs") };
        Self { pd }
    }
}

impl<const N: usize> Command for CreatePsv<N> {
    const OPCODE: Opcode = Opcode::CREATE_PSV;
    type Input = CreatePsvRequest;
    type Output = CreatePsvReply;
    type Reply = [PsvIndex; N];

    fn write(&self, input: &mut CreatePsvRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.count.set(PsvCount::new().with_num_psv(N as u8).with_pd(self.pd.get()).into_bits());
    }

    fn read(&self, output: &CreatePsvReply) -> Result<[PsvIndex; N], CommandError> {
        let mut indices = [PsvIndex::default(); N];
        for (index, word) in indices.iter_mut().zip(&output.psv) {
            *index = PsvIndex::from_low_bits(word.get());
        }
        Ok(indices)
    }
}

number_commands! {
    /// The command that destroys a PSV (DESTROY_PSV).
    DestroyPsv(PsvIndex) = DESTROY_PSV;
}
