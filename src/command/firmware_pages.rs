//! Commands that manage the memory of the firmware, for programs that use a device without a driver. The
//! firmware needs pages of the host's memory. The commands ask how many pages the firmware wants, give it
//! pages, and take pages back.

use super::Command;
use super::pages::aligned;
use super::startup::Function;
use crate::command::error::CommandError;
use crate::wire::prm::command::Opcode;
use crate::wire::prm::function::{FunctionId, FunctionRequest, ManagePagesReply, QueryPagesReply};
use crate::wire::prm::pages::WithPages;
use zerocopy::big_endian::U64;

/// The phase of the start for which pages are wanted (PRM `op_mod` of QUERY_PAGES).
///
/// ```
/// use mlx5_mkey::command::{Function, PagePhase, QueryPages};
/// let command = QueryPages { phase: PagePhase::Boot, function: Function::OWN };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum PagePhase {
    /// The pages that the firmware needs right after ENABLE_HCA and SET_ISSI.
    Boot,
    /// The pages that the firmware needs before INIT_HCA.
    Init,
}

/// The command that asks how many pages of 4096 bytes the firmware wants (QUERY_PAGES).
///
/// ```
/// use mlx5_mkey::command::{Command, Function, PagePhase, PageRequest, QueryPages};
/// let command = QueryPages { phase: PagePhase::Init, function: Function::OWN };
/// let reply = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4];
/// assert_eq!(command.decode(&reply)?, PageRequest { function: Function::OWN, pages: 260 });
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryPages {
    /// The phase of the start for which the pages are wanted.
    pub phase: PagePhase,
    /// The PCI function that the pages are for.
    pub function: Function,
}

/// The reply to QUERY_PAGES: how many pages the firmware wants.
///
/// ```
/// use mlx5_mkey::command::{Function, PageRequest};
/// /// Returns how many bytes of memory the firmware wants.
/// fn bytes(wanted: PageRequest) -> u64 {
///     u64::from(wanted.pages.max(0).unsigned_abs()) * 4096
/// }
/// assert_eq!(bytes(PageRequest { function: Function::OWN, pages: 2 }), 8192);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PageRequest {
    /// The PCI function that the pages are for.
    pub function: Function,
    /// The number of pages that the firmware wants. A negative number means that software has to take pages
    /// back.
    pub pages: i32,
}

impl Command for QueryPages {
    const OPCODE: Opcode = Opcode::QUERY_PAGES;
    type Input = FunctionRequest;
    type Output = QueryPagesReply;
    type Reply = PageRequest;

    fn write(&self, input: &mut FunctionRequest) {
        let op_mod = match self.phase {
            PagePhase::Boot => FunctionRequest::BOOT_PAGES,
            PagePhase::Init => FunctionRequest::INIT_PAGES,
        };
        *input = self.function.request(Self::OPCODE, op_mod);
    }

    fn read(&self, output: &QueryPagesReply) -> Result<PageRequest, CommandError> {
        let id = FunctionId::from_bits(output.function.get());
        // As in the kernel, the number of the PCI function is taken from the reply, but `embedded_cpu` from
        // the request.
        let function = Function { number: id.function_id(), embedded_cpu: self.function.embedded_cpu };
        Ok(PageRequest { function, pages: output.num_pages.get().cast_signed() })
    }
}

/// Size in bytes of a page that the firmware gets (`MLX5_ADAPTER_PAGE_SIZE`).
pub const FIRMWARE_PAGE: u64 = 4096;

/// The command that gives pages of 4096 bytes to the firmware, by their bus addresses (MANAGE_PAGES). The
/// pages belong to the device until it gives them back ([`TakePages`]). No page may begin at address 0 (Linux
/// `alloc_system_page`).
///
/// ```
/// use mlx5_mkey::command::{Command, Function, GivePages};
/// let command = GivePages { function: Function::OWN, pages: [0x8000_0000, 0x8000_1000] };
/// let mut mailbox = [0; GivePages::<2>::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?.len(), 32);
/// assert!(GivePages { function: Function::OWN, pages: [0x8000_0800] }.encode(&mut mailbox).is_err());
/// assert!(GivePages { function: Function::OWN, pages: [0] }.encode(&mut mailbox).is_err());
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct GivePages<const PAGES: usize> {
    /// The PCI function that gets the pages.
    pub function: Function,
    /// The bus addresses of the pages.
    pub pages: [u64; PAGES],
}

impl<const PAGES: usize> Command for GivePages<PAGES> {
    const OPCODE: Opcode = Opcode::MANAGE_PAGES;
    type Input = WithPages<FunctionRequest, PAGES>;
    type Output = ManagePagesReply;
    type Reply = ();

    fn verify(&self) -> Result<(), CommandError> {
        let mut pages = self.pages.iter();
        pages.try_for_each(|page| match *page {
            0 => Err(CommandError::PageAtZero),
            address => aligned("page", address, FIRMWARE_PAGE),
        })
    }

    fn write(&self, input: &mut Self::Input) {
        input.first = self.function.request(Self::OPCODE, FunctionRequest::GIVE);
        input.first.num_entries.set(PAGES as u32);
        input.pages = self.pages.map(U64::new);
    }

    fn read(&self, _: &ManagePagesReply) -> Result<(), CommandError> {
        Ok(())
    }
}

/// The command that takes up to `PAGES` pages back from the firmware (MANAGE_PAGES).
///
/// ```
/// use mlx5_mkey::command::{Command, Function, TakePages};
/// let command = TakePages::<2> { function: Function::OWN };
/// let mut reply = [0; TakePages::<2>::OUTPUT];
/// reply[0xb] = 1;
/// reply[0x14] = 0x80;
/// assert_eq!(command.decode(&reply)?.addresses(), [0x8000_0000]);
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TakePages<const PAGES: usize> {
    /// The PCI function that gives the pages back.
    pub function: Function,
}

/// The reply to [`TakePages`]: the pages that the firmware gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TakenPages<const PAGES: usize> {
    count: usize,
    addresses: [u64; PAGES],
}

impl<const PAGES: usize> TakenPages<PAGES> {
    /// Returns the bus addresses of the pages.
    pub fn addresses(&self) -> &[u64] {
        self.addresses.get(..self.count).unwrap_or_default()
    }
}

impl<const PAGES: usize> Command for TakePages<PAGES> {
    const OPCODE: Opcode = Opcode::MANAGE_PAGES;
    type Input = FunctionRequest;
    type Output = WithPages<ManagePagesReply, PAGES>;
    type Reply = TakenPages<PAGES>;

    fn write(&self, input: &mut FunctionRequest) {
        *input = self.function.request(Self::OPCODE, FunctionRequest::TAKE);
        input.num_entries.set(PAGES as u32);
    }

    fn read(&self, output: &Self::Output) -> Result<TakenPages<PAGES>, CommandError> {
        let count = output.first.num_entries.get();
        if count as usize > PAGES {
            return Err(CommandError::TooManyPages { pages: count, asked: PAGES as u32 });
        }
        Ok(TakenPages { count: count as usize, addresses: output.pages.map(U64::get) })
    }
}
