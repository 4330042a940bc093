//! Commands that create and destroy completion queues.

use super::pages::aligned;
use super::{Command, CqSize, Eqn, LogPageSize, PageList, UarPage, UmemSlice, number_commands};
use crate::command::error::CommandError;
use crate::types::Cqn;
use crate::wire::cqe::{Cqe, Cqe128};
use crate::wire::prm::command::{NumberReply, Opcode, RequestHeader};
use crate::wire::prm::cq::{Cqc, CqcFlags, CqcSize, CreateCqRequest};
use crate::wire::prm::pages::WithPages;

/// Size of a doorbell record in bytes.
const RECORD: u64 = 8;

/// The size of a completion queue's entries (PRM `cqc.cqe_sz`). This library never asks for compressed
/// entries, see [`CreateCq`].
///
/// ```
/// use mlx5_mkey::command::CqeSize;
/// use mlx5_mkey::wire::cqe::Cqe128;
/// assert_eq!(CqeSize::B128.bytes(), size_of::<Cqe128>());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum CqeSize {
    /// Entries of 64 bytes ([`Cqe`]).
    #[default]
    B64,
    /// Entries of 128 bytes ([`Cqe128`]). On hosts with cache lines of 128 bytes, each entry then has a cache
    /// line of its own.
    B128,
}

impl CqeSize {
    /// Returns the size of an entry in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::B64 => size_of::<Cqe>(),
            Self::B128 => size_of::<Cqe128>(),
        }
    }

    /// Returns the code of the size in the field `cqe_sz` of a completion queue's context.
    const fn code(self) -> u8 {
        match self {
            Self::B64 => CqcFlags::BYTES_64,
            Self::B128 => CqcFlags::BYTES_128,
        }
    }
}

/// Fills in the fields of a completion queue's context that `CreateCq` and `CreateCqOnPages` have in common.
/// Each command fills in by itself the fields that say where the entries are: in user memory (umem), or in
/// pages that the command lists.
fn context(cqc: &mut Cqc, flags: CqcFlags, size: CqSize, uar: UarPage, page_size: LogPageSize) {
    cqc.flags.set(flags.into_bits());
    cqc.size.set(CqcSize::new().with_uar_page(uar.get()).with_log_cq_size(size.log()).into_bits());
    cqc.log_page_size = page_size.over_4k();
}

/// The command that creates a completion queue in registered user memory (umem; CREATE_CQ).
///
/// The caller must fill all entries with [`Cqe::UNWRITTEN`] or [`Cqe128::UNWRITTEN`] before the command. The
/// reply is the queue's number.
///
/// The command does not enable compressed entries (`cqe_comp_en`). A compressed entry contains only the hash,
/// the checksum or the stride of a received packet (`mlx5dv_create_cq`, `cqe_comp_res_format`), and lacks the
/// fields that the completion of an mkey request needs. Even rdma-core's own polling cannot read compressed
/// entries. A queue of this library reports a compressed entry as
/// [`crate::error::CompletionError::UnsupportedFormat`].
///
/// ```
/// use mlx5_mkey::command::{Command, CqSize, CqeSize, CreateCq, LogPageSize, UarPage, UmemId, UmemSlice};
/// let command = CreateCq {
///     size: CqSize::new(256)?,
///     cqe_size: CqeSize::B64,
///     uar: UarPage::new(3)?,
///     event_queue: 0,
///     entries: UmemSlice { umem: UmemId(9), offset: 0 },
///     doorbell: UmemSlice { umem: UmemId(9), offset: 256 * 64 },
///     page_size: LogPageSize::P4K,
///     ignore_overrun: false,
/// };
/// let mut mailbox = [0; CreateCq::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?.len(), 272);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateCq {
    /// Number of entries of the completion queue.
    pub size: CqSize,
    /// Size of each entry.
    pub cqe_size: CqeSize,
    /// UAR page with the doorbell that arms the queue.
    pub uar: UarPage,
    /// Number of the event queue to which the armed completion queue reports completions.
    pub event_queue: u32,
    /// The place of the entries in user memory.
    pub entries: UmemSlice,
    /// The place of the doorbell record, 8 bytes.
    pub doorbell: UmemSlice,
    /// Page size of the user memory.
    pub page_size: LogPageSize,
    /// Whether the device, if the queue is full, overwrites entries that software has not taken. If false, a
    /// full queue fails.
    pub ignore_overrun: bool,
}

impl Command for CreateCq {
    const OPCODE: Opcode = Opcode::CREATE_CQ;
    type Input = CreateCqRequest;
    type Output = NumberReply;
    type Reply = Cqn;

    fn write(&self, input: &mut CreateCqRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        let flags = CqcFlags::new()
            .with_cqe_sz(self.cqe_size.code())
            .with_oi(self.ignore_overrun)
            .with_dbr_umem_valid(true);
        context(&mut input.cqc, flags, self.size, self.uar, self.page_size);
        input.cqc.dbr_umem_id.set(self.doorbell.umem.0);
        input.cqc.dbr_addr.set(self.doorbell.offset);
        input.cqc.c_eqn.set(self.event_queue);
        input.cq_umem_offset.set(self.entries.offset);
        input.cq_umem_id.set(self.entries.umem.0);
        input.cq_umem_valid.set(CreateCqRequest::UMEM_VALID);
    }

    fn read(&self, output: &NumberReply) -> Result<Cqn, CommandError> {
        Ok(Cqn::from_low_bits(output.number.get()))
    }
}

/// The command that creates a completion queue of 64-byte entries in pages of memory, which the command lists
/// by bus address (CREATE_CQ). It is meant for bare metal, where no kernel registers user memory.
///
/// The caller must fill all entries with [`crate::wire::cqe::Cqe::UNWRITTEN`] before the command. The reply
/// is the queue's number.
///
/// ```
/// use mlx5_mkey::command::{Command, CqSize, CreateCqOnPages, Eqn, LogPageSize, PageList, UarPage};
/// let command = CreateCqOnPages {
///     size: CqSize::new(128)?,
///     uar: UarPage::new(3)?,
///     event_queue: Eqn::new(1)?,
///     entries: PageList::new(LogPageSize::P4K, [0x8000_0000, 0x8000_1000])?,
///     doorbell: 0x8000_2000,
///     ignore_overrun: false,
/// };
/// let mut mailbox = [0; CreateCqOnPages::<2>::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?.len(), 288);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateCqOnPages<const PAGES: usize> {
    /// Number of entries of the completion queue.
    pub size: CqSize,
    /// UAR page with the doorbell that arms the queue.
    pub uar: UarPage,
    /// Number of the event queue to which the armed completion queue reports completions.
    pub event_queue: Eqn,
    /// The pages that hold the entries.
    pub entries: PageList<PAGES>,
    /// The bus address of the doorbell record (8 bytes), a multiple of 8.
    pub doorbell: u64,
    /// Whether the device, if the queue is full, overwrites entries that software has not taken. If false, a
    /// full queue fails.
    pub ignore_overrun: bool,
}

impl<const PAGES: usize> Command for CreateCqOnPages<PAGES> {
    const OPCODE: Opcode = Opcode::CREATE_CQ;
    type Input = WithPages<CreateCqRequest, PAGES>;
    type Output = NumberReply;
    type Reply = Cqn;

    fn verify(&self) -> Result<(), CommandError> {
        aligned("doorbell record", self.doorbell, RECORD)?;
        self.entries.hold(u64::from(self.size.get()) * size_of::<Cqe>() as u64)
    }

    fn write(&self, input: &mut Self::Input) {
        let WithPages { first, pages } = input;
        first.header = RequestHeader::new(Self::OPCODE);
        let flags = CqcFlags::new().with_cqe_sz(CqcFlags::BYTES_64).with_oi(self.ignore_overrun);
        context(&mut first.cqc, flags, self.size, self.uar, self.entries.size());
        first.cqc.c_eqn.set(self.event_queue.get());
        first.cqc.dbr_addr.set(self.doorbell);
        *pages = self.entries.to_wire();
    }

    fn read(&self, output: &NumberReply) -> Result<Cqn, CommandError> {
        Ok(Cqn::from_low_bits(output.number.get()))
    }
}

number_commands! {
    /// The command that destroys a completion queue (DESTROY_CQ).
    DestroyCq(Cqn) = DESTROY_CQ;
}
