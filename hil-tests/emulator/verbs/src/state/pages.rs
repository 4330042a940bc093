//! The pages of the device's file: the page that a program maps at each offset, and the mappings that Linux
//! refuses (`mlx5_ib_mmap`).

use crate::ground::errno::Errno;
use crate::state::State;
use crate::state::object::Object;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::PoisonError;

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

/// The first number of a page that UAR_ALLOC has made (`MLX5_IB_MMAP_OFFSET_START`).
const ALLOCATED: u64 = 9 << 16;

/// Returns the offset of the device's file at which a program maps the doorbell page with this handle. A
/// program that maps without the C library's function, as UCX does, gets new memory instead of the page: the
/// device then sees none of its doorbells, and needs the doorbell records.
pub(crate) fn offset(handle: u32) -> u64 {
    (ALLOCATED + u64::from(handle)) * PAGE
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
        let Some(context) = self.context_of(descriptor) else { return Ok(None) };
        let write_combining = self.write_combining;
        let context = self.contexts.get(&context).filter(|context| context.opened).ok_or(Errno::INVAL)?;
        let number = u64::try_from(asked.offset).map_err(|_| Errno::INVAL)? / PAGE;
        let (command, argument) = (number >> 8 & 0xff, number & 0xff);
        let is_whole = asked.length.checked_next_multiple_of(PAGE) == Some(PAGE);
        let is_good = is_whole && asked.is_shared;
        if let Some(Ok(handle)) = number.checked_sub(ALLOCATED).map(u32::try_from) {
            let Some(Object::Uar(page)) = context.get(handle) else { return Err(Errno::INVAL) };
            return if is_good { Ok(Some((page.descriptor(), 0))) } else { Err(Errno::INVAL) };
        }
        let (is_there, may) = match command {
            CONTIGUOUS => return Err(Errno(libc::ENOSYS)),
            WRITE_COMBINING | ALLOCATED_WRITE_COMBINING if !write_combining => return Err(Errno::PERM),
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
        let clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let page = clock.page(number * PAGE).map(|(file, from)| (file.as_raw_fd(), from as i64));
        // At its first page, the device's file gives each mapping new memory.
        Ok(Some(page.unwrap_or((descriptor, 0))))
    }
}
