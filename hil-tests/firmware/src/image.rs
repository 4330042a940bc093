//! The main program of the image, and its exit statuses.

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

/// Exit statuses other than 0 (no scenario failed) and 1 (a scenario failed).
mod status {
    /// An option on the command line is unknown or malformed.
    pub(super) const MISUSE: i32 = 2;
    /// Caches, memory attributes or heaps are set up wrongly.
    pub(super) const SETUP: i32 = 3;
    /// The program has panicked. 101 is also the status of a Rust program that panics under an operating
    /// system.
    pub(super) const PANIC: i32 = 101;
    /// An unexpected exception has occurred.
    pub(super) const EXCEPTION: i32 = 102;
    /// A second error occurred while an error was being reported.
    pub(super) const TWICE: i32 = 103;
}

/// The most bytes of a command line.
const COMMAND_LINE: usize = 1024;

/// Runs the program: the first Rust function, which the boot code calls. Stack and zeroed variables exist;
/// the data cache is still off.
pub(crate) extern "C" fn start() -> ! {
    if mmu::enable().is_err() {
        // Nothing can be logged yet: defmt uses addresses in sections of the image that may be unmapped.
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
        defmt::error!("caches are off, or rings or the stack's guard have the wrong attributes");
        return status::SETUP;
    }
    obey()
}

/// Counts the instructions of the benchmarks. Returns the exit status.
fn count() -> i32 {
    match bench::run() {
        Ok(()) => 0,
        Err(fault) => {
            defmt::error!("{=str}", fault);
            status::SETUP
        }
    }
}

/// Does the work that the command line asks for. Returns the exit status.
fn obey() -> i32 {
    let Ok(words) = semihosting::experimental::env::args::<COMMAND_LINE>() else {
        defmt::error!("no command line, or one of more than {=usize} bytes", COMMAND_LINE);
        return status::MISUSE;
    };
    let words = (&words).skip(1).map(Result::unwrap_or_default);
    match Options::parse(words) {
        Err(word) => {
            defmt::error!("the command line has an unknown option: `{=str}`", word);
            status::MISUSE
        }
        Ok(Options { instead: Some(Instead::Provoke(how)), .. }) => {
            provoke::provoke(how);
            defmt::error!("the provoked fault had no effect");
            status::SETUP
        }
        Ok(Options { instead: Some(Instead::Count), .. }) => count(),
        Ok(Options { filter, after, ways, instead: None }) => {
            i32::from(!scenarios(Selection { filter, after, ways, ..Selection::default() }))
        }
    }
}

/// Runs the selected scenarios. Returns whether all passed.
fn scenarios(selection: Selection<'_>) -> bool {
    let open = || -> Result<Box<dyn Board>, Infallible> {
        Ok(Box::new(SoftBoard::with_memory(DeviceProfile::default(), memory::shared())))
    };
    let tell = |event: hil_scenarios::protocol::Event<'_>| {
        defmt::println!("{=str}", event.to_string());
    };
    cases::run(selection, open, tell).unwrap_or(false)
}

/// Calls `report`, and ends the program with `status`. If a fault occurs during the report, the program ends
/// with plain text instead of a defmt frame. If a fault occurs even then, the core stops.
fn end(status: i32, report: impl FnOnce()) -> ! {
    static TRIES: AtomicU8 = AtomicU8::new(0);
    let tries = TRIES.load(Ordering::Relaxed);
    // A plain load and store suffice on one core, and an atomic addition would need the caches to be on.
    TRIES.store(tries.saturating_add(1), Ordering::Relaxed);
    match tries {
        0 => {
            report();
            process::exit(status)
        }
        1 => {
            // Standard output may end in an incomplete frame, so this text goes to standard error.
            semihosting::eprintln!("a fault occurred while another fault was being reported");
            process::exit(status::TWICE)
        }
        _ => loop {
            asm::wfe();
        },
    }
}

/// Reports an exception and ends the program. The exception vectors call this function.
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
