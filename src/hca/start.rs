//! Starts a device from reset and stops it, and gives the device's firmware the pages of memory that the
//! firmware needs.

use super::queue::{CommandQueue, Held};
use super::registers::Registers;
use crate::command::error::CommandError;
use crate::command::{
    Command, DisableHca, EnableHca, FIRMWARE_PAGE, Function, GivePages, InitHca, Issi, PagePhase, QueryIssi,
    QueryPages, SetIssi, TakePages, TeardownHca,
};
use crate::hca::error::CommandQueueError;
use embedded_hal::delay::DelayNs;

/// How long the firmware may take to return pages, in milliseconds (Linux `MAX_RECLAIM_TIME_MSECS`).
const RECLAIM_MS: u32 = 5000;

/// The numbers of pages that one command gives to the firmware: `MANY` while the firmware wants at least
/// `MANY`, then `SOME` while it wants at least `SOME`, then one.
const MANY: usize = 64;
const SOME: usize = 8;

/// A source of pages for the firmware. Pages have 4096 bytes and are named by their bus addresses, which are
/// never 0.
///
/// A page that was taken belongs to the device alone until it is put back.
pub trait PageSource {
    /// Takes a page and returns its bus address, or returns `None` if no page is left.
    fn take(&mut self) -> Option<u64>;

    /// Puts a page back and returns true. If the source finds that the page is not taken from it at present,
    /// it returns false and changes nothing. A source that does not record its pages may always return true.
    /// The address comes from the device, so it may be any multiple of 4096, and the same address may come
    /// twice.
    fn put_back(&mut self, address: u64) -> bool;
}

impl<S: PageSource + ?Sized> PageSource for &mut S {
    fn take(&mut self) -> Option<u64> {
        (**self).take()
    }

    fn put_back(&mut self, address: u64) -> bool {
        (**self).put_back(address)
    }
}

/// A source of consecutive pages. A bitmap of the caller records which pages are taken. `put_back` refuses a
/// page that is put back a second time. A page that was put back can be taken again.
///
/// ```
/// use mlx5_mkey::hca::{PageRange, PageSource};
/// let mut bitmap = [0]; // a bit for each page
/// let mut pages = PageRange::new(0x8000_0000, 2, &mut bitmap)?;
/// assert_eq!([pages.take(), pages.take(), pages.take()], [Some(0x8000_0000), Some(0x8000_1000), None]);
/// assert_eq!(pages.taken(), 2);
/// assert!(!pages.put_back(0x9000_0000), "it is none of them");
/// assert!(pages.put_back(0x8000_1000) && !pages.put_back(0x8000_1000), "it is back already");
/// assert_eq!(pages.take(), Some(0x8000_1000));
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PageRange<'m> {
    first: u64,
    count: u32,
    /// A bit for each page, set if the page is taken. Bits after the last page are not used.
    bitmap: &'m mut [u64],
}

impl<'m> PageRange<'m> {
    /// Creates a source of `count` pages, beginning at the bus address `first`. `bitmap` has a bit for each
    /// page; its contents before the call do not matter.
    ///
    /// # Errors
    /// [`CommandError::Misaligned`] if the address is no multiple of 4096, [`CommandError::PageAtZero`] if it
    /// is 0, [`CommandError::BitmapTooShort`] if the bitmap has fewer than `count` bits.
    pub fn new(first: u64, count: u32, bitmap: &'m mut [u64]) -> Result<Self, CommandError> {
        if !first.is_multiple_of(FIRMWARE_PAGE) {
            return Err(CommandError::Misaligned { what: "page", address: first, alignment: FIRMWARE_PAGE });
        }
        if first == 0 {
            return Err(CommandError::PageAtZero);
        }
        let needed = count.div_ceil(u64::BITS);
        if bitmap.len() < needed as usize {
            return Err(CommandError::BitmapTooShort { words: bitmap.len(), needed });
        }
        bitmap.fill(0);
        Ok(Self { first, count, bitmap })
    }

    /// Returns how many pages are taken at present.
    pub fn taken(&self) -> u32 {
        self.bitmap.iter().fold(0, |sum, word| sum.wrapping_add(word.count_ones()))
    }
}

impl PageSource for PageRange<'_> {
    fn take(&mut self) -> Option<u64> {
        let mut words = self.bitmap.iter_mut().zip((0_u32..).step_by(64));
        let (word, before) = words.find(|(word, _)| **word != u64::MAX)?;
        let bit = word.trailing_ones();
        let number = before.checked_add(bit).filter(|number| *number < self.count)?;
        let address = self.first.checked_add(u64::from(number) * FIRMWARE_PAGE)?;
        *word |= 1_u64.wrapping_shl(bit);
        Some(address)
    }

    fn put_back(&mut self, address: u64) -> bool {
        let distance = address.wrapping_sub(self.first);
        if !distance.is_multiple_of(FIRMWARE_PAGE) {
            return false;
        }
        let number = distance / FIRMWARE_PAGE;
        let place = usize::try_from(number / 64).ok().and_then(|at| self.bitmap.get_mut(at));
        let bit = 1_u64.wrapping_shl(number as u32);
        // The bitmap may have more bits than there are pages. These bits are never set, so this line also
        // refuses an address behind the last page.
        let Some(word) = place.filter(|word| **word & bit != 0) else { return false };
        *word &= !bit;
        true
    }
}

impl<R: Registers> CommandQueue<'_, R> {
    /// Starts the device from reset, so that objects can be created. The call enables the PCI function of the
    /// queue, selects ISSI 1 (version 1 of the interface between driver and firmware), gives the firmware the
    /// pages that it wants, and sends INIT_HCA (the order of Linux's `mlx5_function_setup` and rdma-core's
    /// `mlx5_vfio_setup_function`).
    ///
    /// Both drivers also set host endianness (little endian), capabilities (SET_HCA_CAP) and RoCE. Mkeys work
    /// without these steps, so this function does not change these settings of the device.
    ///
    /// Assumption: the firmware wants no more pages while it runs (the library does not read the event
    /// PAGE_REQUEST).
    ///
    /// Assumption: an Ethernet port whose firmware has RoCE off works only after the command
    /// MODIFY_NIC_VPORT_CONTEXT, which this library does not have.
    ///
    /// # Errors
    /// The errors of [`CommandQueue::execute`]; [`CommandError::Unsupported`] for firmware that does not
    /// support ISSI 1; [`CommandQueueError::NoPages`] if the source has too few pages;
    /// [`CommandQueueError::PagesKept`] if the firmware wants pages for a third PCI function while it still
    /// has pages of two functions. [`CommandQueue::stop`] undoes the steps before the error.
    pub fn start(
        &mut self,
        pages: &mut impl PageSource,
        delay: &mut impl DelayNs,
    ) -> Result<(), CommandQueueError> {
        self.execute(&EnableHca(self.function), delay)?;
        if !self.execute(&QueryIssi, delay)?.knows(Issi::ONE) {
            return Err(CommandError::Unsupported { command: QueryIssi::OPCODE, what: "ISSI 1" }.into());
        }
        self.execute(&SetIssi(Issi::ONE), delay)?;
        self.satisfy(PagePhase::Boot, pages, delay)?;
        self.satisfy(PagePhase::Init, pages, delay)?;
        let started = self.execute(&InitHca, delay);
        // After these errors, the firmware may have carried out INIT_HCA, so the device counts as running. If
        // it does not run, the only effect is that the firmware refuses the TEARDOWN_HCA of `stop`.
        self.is_running = matches!(
            started,
            Ok(()) | Err(CommandQueueError::Reply { .. } | CommandQueueError::Delivery { .. })
        );
        started
    }

    /// Stops the device: destroys all objects, takes the firmware's pages back into the source, and disables
    /// the PCI function of the queue. The call also works after a start that failed.
    ///
    /// If the firmware refuses a step or sends a wrong reply, the later steps are still executed, so that the
    /// PCI function is disabled in the end. The call returns the first error. Pages that the firmware did not
    /// give back belong to the device until it is reset.
    ///
    /// # Errors
    /// The errors of [`CommandQueue::execute`]. After [`CommandQueueError::Delivery`],
    /// [`CommandQueueError::TimedOut`] and [`CommandQueueError::Lost`], later steps were not executed: the
    /// device may not have received the command, or may still carry it out, and its function must not be
    /// disabled meanwhile. If the queue is not lost, another call executes these steps.
    /// [`CommandQueueError::PagesKept`] if the firmware keeps pages, and [`CommandQueueError::ForeignPage`]
    /// if it gives back a page that it did not have, or a page twice.
    pub fn stop(
        &mut self,
        pages: &mut impl PageSource,
        delay: &mut impl DelayNs,
    ) -> Result<(), CommandQueueError> {
        let mut stopped = Ok(());
        if self.is_running {
            stopped = self.execute(&TeardownHca, delay);
            if is_undelivered(&stopped) {
                return stopped;
            }
            // If only the reply to TEARDOWN_HCA was wrong, the device was stopped all the same. Another call
            // of `stop` must not repeat the command, because a stopped device refuses it.
            self.is_running = !matches!(stopped, Ok(()) | Err(CommandQueueError::Reply { .. }));
        }
        for place in 0..self.held.len() {
            let reclaimed = self.reclaim_from(place, pages, delay);
            stopped = stopped.and(reclaimed);
            if is_undelivered(&reclaimed) {
                return stopped;
            }
        }
        let disabled = self.execute(&DisableHca(self.function), delay);
        // A disabled function no longer runs, even if it has refused TEARDOWN_HCA before.
        self.is_running &= disabled.is_err();
        stopped.and(disabled)
    }

    /// Gives the firmware the pages that it wants in a phase of the start.
    fn satisfy(
        &mut self,
        phase: PagePhase,
        pages: &mut impl PageSource,
        delay: &mut impl DelayNs,
    ) -> Result<(), CommandQueueError> {
        let wanted = self.execute(&QueryPages { phase, function: self.function }, delay)?;
        let mut left = u32::try_from(wanted.pages).unwrap_or(0);
        while left > 0 {
            let given = match left as usize {
                MANY.. => self.give::<MANY>(wanted.function, left, pages, delay)?,
                SOME.. => self.give::<SOME>(wanted.function, left, pages, delay)?,
                _ => self.give::<1>(wanted.function, left, pages, delay)?,
            };
            left = left.saturating_sub(given);
        }
        Ok(())
    }

    /// Takes `PAGES` pages from the source and gives them to the firmware, which still wants `wanted` pages.
    /// Returns `PAGES`. If the source has fewer than `PAGES` pages, the firmware gets none, and this call
    /// returns an error.
    fn give<const PAGES: usize>(
        &mut self,
        function: Function,
        wanted: u32,
        source: &mut impl PageSource,
        delay: &mut impl DelayNs,
    ) -> Result<u32, CommandQueueError> {
        let own = self.held.iter().position(|held| held.pages > 0 && held.function == function);
        let place = own.or_else(|| self.held.iter().position(|held| held.pages == 0));
        let place = place.ok_or(CommandQueueError::PagesKept { pages: self.held_pages() })?;
        let pages: [Option<u64>; PAGES] = core::array::from_fn(|_| source.take());
        let given = if pages.iter().all(Option::is_some) {
            let pages = pages.map(Option::unwrap_or_default);
            self.execute(&GivePages { function, pages }, delay)
        } else {
            Err(CommandQueueError::NoPages { wanted })
        };
        match given {
            // After these errors, the firmware may have got the pages. They count as given, so that the
            // source does not hand them out again.
            Ok(())
            | Err(
                CommandQueueError::TimedOut { .. }
                | CommandQueueError::Reply { .. }
                | CommandQueueError::Delivery { .. },
            ) => {
                if let Some(held) = self.held.get_mut(place) {
                    *held = Held { function, pages: held.pages.saturating_add(PAGES as u32) };
                }
            }
            Err(_) => pages.into_iter().flatten().for_each(|page| _ = source.put_back(page)),
        }
        given.map(|()| PAGES as u32)
    }

    /// Takes back from the firmware all pages that `held[place]` records, and puts them back into the source.
    fn reclaim_from(
        &mut self,
        place: usize,
        source: &mut impl PageSource,
        delay: &mut impl DelayNs,
    ) -> Result<(), CommandQueueError> {
        let mut waited = 0_u32;
        while let Some(&Held { function, pages: 1.. }) = self.held.get(place) {
            let taken = self.execute(&TakePages::<MANY> { function }, delay)?;
            let mut foreign = Ok(());
            for address in taken.addresses().iter().copied() {
                match self.held.get_mut(place) {
                    Some(held)
                        if held.pages > 0
                            && address.is_multiple_of(FIRMWARE_PAGE)
                            && source.put_back(address) =>
                    {
                        held.pages -= 1;
                    }
                    _ => foreign = Err(CommandQueueError::ForeignPage { address }),
                }
            }
            foreign?;
            if taken.addresses().is_empty() {
                if waited >= RECLAIM_MS {
                    return Err(CommandQueueError::PagesKept { pages: self.held_pages() });
                }
                delay.delay_ms(1);
                waited = waited.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Returns how many pages the firmware has, or may have.
    fn held_pages(&self) -> u32 {
        self.held.iter().fold(0, |sum, held| sum.saturating_add(held.pages))
    }
}

/// Returns whether a command failed in such a way that its effect is unknown: the device may not have
/// received the command, or may still carry it out.
const fn is_undelivered(done: &Result<(), CommandQueueError>) -> bool {
    matches!(
        done,
        Err(CommandQueueError::Delivery { .. }
            | CommandQueueError::TimedOut { .. }
            | CommandQueueError::Lost)
    )
}
