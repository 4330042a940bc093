//! Commands that create and destroy event queues.

use super::{Command, EqSize, Eqn, PageList, UarPage, number_commands};
use crate::command::error::CommandError;
use crate::wire::prm::command::{NumberReply, Opcode, RequestHeader};
use crate::wire::prm::eq::{CreateEqRequest, EqcSize};
use crate::wire::prm::event::EventEntry;
use crate::wire::prm::pages::WithPages;

/// The command that creates an event queue in pages of memory, which the command lists by bus address
/// (CREATE_EQ). The device reports a completion in an armed completion queue to the event queue with which
/// the completion queue was created.
///
/// The caller must fill all entries with [`EventEntry::UNWRITTEN`] before the command. The reply is the
/// queue's number.
///
/// ```
/// use mlx5_mkey::command::{Command, CreateEq, EqSize, LogPageSize, PageList, UarPage};
/// let command = CreateEq {
///     size: EqSize::new(64)?,
///     uar: UarPage::new(3)?,
///     events: 0,
///     interrupt: 0,
///     entries: PageList::new(LogPageSize::P4K, [0x8000_0000])?,
/// };
/// let mut mailbox = [0; CreateEq::<1>::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?.len(), 280);
/// // 128 entries have two pages.
/// assert!(CreateEq { size: EqSize::new(128)?, ..command }.encode(&mut mailbox).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateEq<const PAGES: usize> {
    /// Number of entries of the event queue.
    pub size: EqSize,
    /// UAR page with the doorbell by which software gives entries back to the device.
    pub uar: UarPage,
    /// Mask of the events to report: bit n stands for type n. Completion events need no bit.
    pub events: u64,
    /// The interrupt vector that an armed event queue raises.
    pub interrupt: u8,
    /// The pages that hold the entries.
    pub entries: PageList<PAGES>,
}

impl<const PAGES: usize> Command for CreateEq<PAGES> {
    const OPCODE: Opcode = Opcode::CREATE_EQ;
    type Input = WithPages<CreateEqRequest, PAGES>;
    type Output = NumberReply;
    type Reply = Eqn;

    fn verify(&self) -> Result<(), CommandError> {
        self.entries.hold(u64::from(self.size.get()) * size_of::<EventEntry>() as u64)
    }

    fn write(&self, input: &mut Self::Input) {
        let WithPages { first, pages } = input;
        first.header = RequestHeader::new(Self::OPCODE);
        let size = EqcSize::new().with_uar_page(self.uar.get()).with_log_eq_size(self.size.log());
        first.eqc.size.set(size.into_bits());
        first.eqc.intr.set(self.interrupt.into());
        first.eqc.log_page_size = self.entries.size().over_4k();
        let [types, ..] = &mut first.event_bitmask;
        types.set(self.events);
        *pages = self.entries.to_wire();
    }

    fn read(&self, output: &NumberReply) -> Result<Eqn, CommandError> {
        Ok(Eqn::new(output.number.get() & Eqn::MAX.get()).unwrap_or_default())
    }
}

number_commands! {
    /// The command that destroys an event queue (DESTROY_EQ).
    DestroyEq(Eqn) = DESTROY_EQ;
}
