//! A device without a driver is started and stopped: its function is enabled, its firmware given memory.
//!
//! The order is that of Linux (`mlx5_function_setup`) and of rdma-core's VFIO driver: [`EnableHca`], [`QueryIssi`], [`SetIssi`], boot
//! pages, init pages, [`InitHca`]. [`crate::hca::CommandQueue::start`] does all that.

use super::pages::aligned;
use super::{Command, number_commands};
use crate::error::CommandError;
use crate::types::OutOfRange;
use crate::wire::prm::command::{NumberReply, NumberRequest, Opcode, RequestHeader};
use crate::wire::prm::function::{
    FunctionId, FunctionRequest, ManagePagesReply, QueryIssiReply, QueryPagesReply,
};
use crate::wire::prm::pages::WithPages;
use zerocopy::big_endian::U64;

/// A function of the device (PRM `function_id`, `embedded_cpu_function`).
///
/// ```
/// use mlx5_mkey::command::Function;
/// assert_eq!(Function::OWN, Function { number: 0, embedded_cpu: false });
/// // On BlueField's Arm side; the initialization segment tells.
/// let arm = Function { embedded_cpu: true, ..Function::OWN };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Function {
    /// Its number.
    pub number: u16,
    /// It belongs to the cores on the device itself.
    pub embedded_cpu: bool,
}

impl Function {
    /// The function whose command queue carries the command, of a host.
    pub const OWN: Self = Self { number: 0, embedded_cpu: false };

    fn request(self, opcode: Opcode, op_mod: u16) -> FunctionRequest {
        let id =
            FunctionId::new().with_function_id(self.number).with_embedded_cpu_function(self.embedded_cpu);
        let mut request = FunctionRequest { header: RequestHeader::new(opcode), ..Default::default() };
        request.header.op_mod.set(op_mod);
        request.function.set(id.into_bits());
        request
    }
}

macro_rules! function_commands {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::command::{Command, Function, ", stringify!($name), "};")]
        #[doc = concat!("let mut mailbox = [0; ", stringify!($name), "::INPUT];")]
        #[doc = concat!("let request = ", stringify!($name), "(Function { number: 7, embedded_cpu: true }).encode(&mut mailbox)?;")]
        /// assert_eq!(request[8..12], [0x80, 0, 0, 7]);
        /// # Ok::<(), mlx5_mkey::error::CommandError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(pub Function);

        impl Command for $name {
            const OPCODE: Opcode = Opcode::$opcode;
            type Input = FunctionRequest;
            type Output = NumberReply;
            type Reply = ();

            fn write(&self, input: &mut FunctionRequest) {
                *input = self.0.request(Self::OPCODE, 0);
            }

            fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
                Ok(())
            }
        }
    )+ };
}

function_commands! {
    /// Enables a function: the first command of all (ENABLE_HCA).
    EnableHca = ENABLE_HCA;
    /// Disables a function: the last (DISABLE_HCA).
    DisableHca = DISABLE_HCA;
}

macro_rules! plain_commands {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::command::{Command, ", stringify!($name), "};")]
        #[doc = concat!("let mut mailbox = [0; ", stringify!($name), "::INPUT];")]
        #[doc = concat!("assert_eq!(", stringify!($name), ".encode(&mut mailbox)?.len(), 16);")]
        /// # Ok::<(), mlx5_mkey::error::CommandError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name;

        impl Command for $name {
            const OPCODE: Opcode = Opcode::$opcode;
            type Input = NumberRequest;
            type Output = NumberReply;
            type Reply = ();

            fn write(&self, input: &mut NumberRequest) {
                input.header = RequestHeader::new(Self::OPCODE);
            }

            fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
                Ok(())
            }
        }
    )+ };
}

plain_commands! {
    /// Starts the device: objects can be made from here on (INIT_HCA).
    InitHca = INIT_HCA;
    /// Stops the device gracefully: every object is gone (TEARDOWN_HCA, profile 0).
    TeardownHca = TEARDOWN_HCA;
}

/// A version of the interface between driver and firmware (PRM `issi`).
///
/// ```
/// use mlx5_mkey::command::Issi;
/// assert_eq!(Issi::new(1)?, Issi::ONE);
/// assert!(Issi::new(32).is_err());
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Issi(u8);

impl Issi {
    /// Version 1: what Linux and rdma-core choose, and what this library's commands are written for.
    pub const ONE: Self = Self(1);

    /// Takes a version up to 31.
    ///
    /// # Errors
    /// [`OutOfRange`] where it is larger.
    pub const fn new(version: u8) -> Result<Self, OutOfRange> {
        if version > 31 {
            return Err(OutOfRange { what: "ISSI", value: version as u64, min: 0, max: 31 });
        }
        Ok(Self(version))
    }

    /// Returns the version.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }
}

number_commands! {
    /// Chooses the version of the interface (SET_ISSI).
    SetIssi(Issi) = SET_ISSI;
}

/// Asks which versions of the interface the firmware knows (QUERY_ISSI).
///
/// ```
/// use mlx5_mkey::command::{Command, Issi, QueryIssi};
/// let mut reply = [0; QueryIssi::OUTPUT];
/// reply[0x6f] = 0b11;
/// assert!(QueryIssi.decode(&reply)?.knows(Issi::ONE));
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryIssi;

/// What QUERY_ISSI says.
///
/// ```
/// use mlx5_mkey::command::{Issi, IssiInfo};
/// assert!(IssiInfo { current: 0, supported: 0b11 }.knows(Issi::ONE));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct IssiInfo {
    /// The version in force.
    pub current: u16,
    /// Those that the firmware knows: bit n stands for version n.
    pub supported: u32,
}

impl IssiInfo {
    /// Returns whether the firmware knows a version.
    pub const fn knows(&self, version: Issi) -> bool {
        self.supported >> version.get() & 1 != 0
    }
}

impl Command for QueryIssi {
    const OPCODE: Opcode = Opcode::QUERY_ISSI;
    type Input = NumberRequest;
    type Output = QueryIssiReply;
    type Reply = IssiInfo;

    fn write(&self, input: &mut NumberRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
    }

    fn read(&self, output: &QueryIssiReply) -> Result<IssiInfo, CommandError> {
        Ok(IssiInfo { current: output.current_issi.get(), supported: output.supported_issi_dw0.get() })
    }
}

/// When pages are wanted (PRM `op_mod` of QUERY_PAGES).
///
/// ```
/// use mlx5_mkey::command::{Function, PagePhase, QueryPages};
/// let command = QueryPages { phase: PagePhase::Boot, function: Function::OWN };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum PagePhase {
    /// Right behind ENABLE_HCA and SET_ISSI.
    Boot,
    /// Before INIT_HCA.
    Init,
}

/// Asks how many pages of 4096 bytes the firmware wants (QUERY_PAGES).
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
    /// For which phase.
    pub phase: PagePhase,
    /// Of which function.
    pub function: Function,
}

/// What QUERY_PAGES says.
///
/// ```
/// use mlx5_mkey::command::{Function, PageRequest};
/// /// Bytes to have ready.
/// fn bytes(wanted: PageRequest) -> u64 {
///     u64::from(wanted.pages.max(0).unsigned_abs()) * 4096
/// }
/// assert_eq!(bytes(PageRequest { function: Function::OWN, pages: 2 }), 8192);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PageRequest {
    /// The function that they are for.
    pub function: Function,
    /// Pages that are wanted; fewer than 0 are to be taken back.
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
        // The kernel takes the number from here, and whose function it is from itself.
        let function = Function { number: id.function_id(), embedded_cpu: self.function.embedded_cpu };
        Ok(PageRequest { function, pages: output.num_pages.get().cast_signed() })
    }
}

/// Bytes of a page that firmware is given (`MLX5_ADAPTER_PAGE_SIZE`).
pub const FIRMWARE_PAGE: u64 = 4096;

/// Gives pages of 4096 bytes to the firmware, by their addresses on the bus (MANAGE_PAGES). They are the device's until it gives them
/// back ([`TakePages`]); none may begin at 0 (Linux `alloc_system_page`).
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
    /// Who gets them.
    pub function: Function,
    /// Their addresses.
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

/// Takes up to `PAGES` pages back from the firmware (MANAGE_PAGES).
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
    /// From whom.
    pub function: Function,
}

/// Pages that the firmware gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TakenPages<const PAGES: usize> {
    count: usize,
    addresses: [u64; PAGES],
}

impl<const PAGES: usize> TakenPages<PAGES> {
    /// Returns their addresses.
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
