//! What the image does, and how it ends.

use crate::exception::Exception;
use crate::{bench, memory, mmu, provoke};
use aarch64_cpu::asm;
use aarch64_cpu::registers::{CurrentEL, MIDR_EL1, Readable as _};
use alloc::boxed::Box;
use alloc::string::ToString;
use core::convert::Infallible;
use core::sync::atomic::{AtomicU8, Ordering};
use defmt_semihosting as _;
use hil_scenarios::board::{Board, SoftBoard};
use hil_scenarios::cases::{self, Selection};
use hil_scenarios::options::{Instead, Options};
use mlx5_softdev::DeviceProfile;
use semihosting::process;

/// Exit statuses beside 0 and 1.
mod status {
    /// The words on the command line make no sense.
    pub(super) const MISUSE: i32 = 2;
    /// The image or the machine is not as it should be.
    pub(super) const SETUP: i32 = 3;
    /// A panic, as of a Rust program with a system.
    pub(super) const PANIC: i32 = 101;
    /// An exception.
    pub(super) const EXCEPTION: i32 = 102;
    /// Something went wrong while something that went wrong was being reported.
    pub(super) const TWICE: i32 = 103;
}

/// Bytes of the command line that are read.
const COMMAND_LINE: usize = 1024;

/// The first Rust that runs, on a stack and with variables zeroed; the data cache is still off.
pub(crate) extern "C" fn start() -> ! {
    if mmu::enable().is_err() {
        // Nothing can be logged: frames are told apart by addresses of sections that may not be there.
        process::exit(status::SETUP);
    }
    memory::open();
    process::exit(main());
}

fn main() -> i32 {
    let (control, on) = mmu::control();
    defmt::info!(
        "core {=u64:#x} at EL{=u64}, SCTLR_EL1 {=u64:#x}: translation and caches are {=str}",
        MIDR_EL1.get(),
        CurrentEL.read(CurrentEL::EL),
        control,
        if on { "on" } else { "off" }
    );
    let rings = mmu::attributes(memory::dma().start);
    let guard = mmu::attributes(memory::guard().start);
    defmt::info!("rings at {=u64:#x}, memory attributes {=?:#x}", memory::dma().start, rings);
    if !on || rings != Some(memory::dma_attributes()) || guard.is_some() {
        defmt::error!("caches, rings or the guard of the stack are not as they should be");
        return status::SETUP;
    }
    obey()
}

/// Counts the work of the benchmarks.
fn count() -> i32 {
    match bench::run() {
        Ok(()) => 0,
        Err(fault) => {
            defmt::error!("{=str}", fault);
            status::SETUP
        }
    }
}

/// Does what the command line says.
fn obey() -> i32 {
    let Ok(words) = semihosting::experimental::env::args::<COMMAND_LINE>() else {
        defmt::error!("no command line, or one of more than {=usize} bytes", COMMAND_LINE);
        return status::MISUSE;
    };
    let words = (&words).skip(1).map(Result::unwrap_or_default);
    match Options::parse(words) {
        Err(word) => {
            defmt::error!("the command line makes no sense at `{=str}`", word);
            status::MISUSE
        }
        Ok(Options { instead: Some(Instead::Provoke(how)), .. }) => {
            provoke::provoke(how);
            defmt::error!("nothing came of what was provoked");
            status::SETUP
        }
        Ok(Options { instead: Some(Instead::Count), .. }) => count(),
        Ok(Options { filter, after, ways, instead: None }) => {
            i32::from(!scenarios(Selection { filter, after, ways }))
        }
    }
}

/// Runs scenarios and returns whether none failed.
fn scenarios(selection: Selection<'_>) -> bool {
    let open = || -> Result<Box<dyn Board>, Infallible> {
        Ok(Box::new(SoftBoard::with_memory(DeviceProfile::default(), memory::shared())))
    };
    let tell = |event: hil_scenarios::protocol::Event<'_>| {
        defmt::println!("{=str}", event.to_string());
    };
    cases::run(selection, open, tell).unwrap_or(false)
}

/// Ends the program with the status. If that goes wrong too it ends at once and in plain text, and if nobody hears even
/// that, it stands still.
fn end(status: i32, report: impl FnOnce()) -> ! {
    static TRIES: AtomicU8 = AtomicU8::new(0);
    let tries = TRIES.load(Ordering::Relaxed);
    // One core, so nobody counts beside; and an atomic addition would need the caches to be on.
    TRIES.store(tries.saturating_add(1), Ordering::Relaxed);
    match tries {
        0 => {
            report();
            process::exit(status)
        }
        1 => {
            // Standard output may hold a part of a frame.
            semihosting::eprintln!("went wrong while it was reporting what went wrong");
            process::exit(status::TWICE)
        }
        _ => loop {
            asm::wfe();
        },
    }
}

/// Called by the exception vectors.
pub(crate) extern "C" fn exception(exception: &Exception) -> ! {
    end(status::EXCEPTION, || {
        defmt::error!(
            "{=str}: vector {=u64}, ESR_EL1 {=u64:#x}, ELR_EL1 {=u64:#x}, FAR_EL1 {=u64:#x}",
            exception.meaning(memory::guard()),
            exception.vector,
            exception.syndrome,
            exception.program,
            exception.address
        );
    })
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    end(status::PANIC, || defmt::error!("{}", defmt::Display2Format(info)))
}
