//! The pages of the device's file: the page that a program maps at each offset, and the mappings that Linux
//! refuses (`mlx5_ib_mmap`).

use crate::ground::errno::Errno;
use crate::state::State;
use crate::state::doorbell_page::DoorbellPage;
use crate::state::object::Object;
use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, PoisonError, Weak};

/// The bytes of a page.
const PAGE: u64 = 4096;

/// Commands in an offset of the device's file (`enum mlx5_ib_mmap_cmd`). A command selects the kind of the
/// mapped page.
const REGULAR: u64 = 0;
const CONTIGUOUS: u64 = 1;
const WRITE_COMBINING: u64 = 2;
const NOT_CACHED: u64 = 3;
const CORE_CLOCK: u64 = 5;
const ALLOCATED_WRITE_COMBINING: u64 = 6;
const CLOCK_INFO: u64 = 7;

/// The number of pages that a program may add to the pages of its context (`num_dyn_bfregs`).
const MORE_PAGES: u64 = 512;

/// The offset of the device's file at which a program maps a doorbell page that UAR_ALLOC made. Linux gives
/// each page its own offset. The stand-in gives all pages this offset: here alone, each mapping of the
/// stand-in's file is new memory, also for UCX, which maps without the C library's function. The device sees
/// no doorbell in such memory. For other programs, the page is the one that the same thread has just made.
pub(crate) const DOORBELLS: u64 = 0;

thread_local! {
    /// The context, and the page that this thread made last by UAR_ALLOC and has not mapped yet.
    static NEW_PAGE: RefCell<Option<(u32, Weak<DoorbellPage>)>> = const { RefCell::new(None) };
}

/// Makes a page of the context `context` the next page that this thread maps at [`DOORBELLS`].
pub(crate) fn offer(context: u32, page: &Arc<DoorbellPage>) {
    let _ = NEW_PAGE.try_with(|new| new.replace(Some((context, Arc::downgrade(page)))));
}

/// The arguments of a mapping of the device's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRequest {
    pub(crate) offset: i64,
    pub(crate) length: u64,
    pub(crate) writes: bool,
    pub(crate) executes: bool,
    pub(crate) is_shared: bool,
}

impl State {
    /// Returns the file and the position in this file that a program maps instead of a page of the device's
    /// file. Returns `None` for a channel.
    ///
    /// # Errors
    /// The errno with which Linux refuses the mapping.
    pub(crate) fn page(&self, descriptor: RawFd, asked: &PageRequest) -> Result<Option<(RawFd, i64)>, Errno> {
        // A channel is a socket, which the kernel itself refuses to map.
        let Some(of) = self.context_of(descriptor) else { return Ok(None) };
        let write_combining = self.write_combining;
        let context = self.contexts.get(&of).filter(|context| context.opened).ok_or(Errno::INVAL)?;
        let has_pages = context.objects().any(|object| matches!(object, Object::Uar(_)));
        let number = u64::try_from(asked.offset).map_err(|_| Errno::INVAL)? / PAGE;
        let (command, argument) = (number >> 8 & 0xff, number & 0xff);
        let is_whole = asked.length.checked_next_multiple_of(PAGE) == Some(PAGE);
        let is_good = is_whole && asked.is_shared;
        let (is_there, may) = match command {
            CONTIGUOUS => return Err(Errno(libc::ENOSYS)),
            WRITE_COMBINING | ALLOCATED_WRITE_COMBINING if !write_combining => return Err(Errno::PERM),
            REGULAR if has_pages && argument == DOORBELLS => (true, true),
            REGULAR | WRITE_COMBINING | NOT_CACHED => {
                (context.static_pages.is_some_and(|pages| argument < pages.into()), true)
            }
            ALLOCATED_WRITE_COMBINING => {
                let index = number >> 16 << 8 | argument;
                (context.static_pages.is_some() && index < MORE_PAGES, true)
            }
            CORE_CLOCK => (is_whole, !asked.writes),
            CLOCK_INFO if is_good && argument != 0 => return Err(Errno::OPNOTSUPP),
            CLOCK_INFO => (is_good, !asked.writes && !asked.executes),
            _ => (false, true),
        };
        match (is_there, may, is_good) {
            (true, true, true) => {}
            (true, false, _) => return Err(Errno::PERM),
            _ => return Err(Errno::INVAL),
        }
        if command == REGULAR
            && argument == DOORBELLS
            && let Some((context, page)) = NEW_PAGE.try_with(RefCell::take).ok().flatten()
            && let Some(page) = page.upgrade().filter(|_| context == of)
        {
            return Ok(Some((page.descriptor(), 0)));
        }
        let clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let page = clock.page(number * PAGE).map(|(file, from)| (file.as_raw_fd(), from as i64));
        // At its first page, the device's file gives each mapping new memory.
        Ok(Some(page.unwrap_or((descriptor, 0))))
    }
}
