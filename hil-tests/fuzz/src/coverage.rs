//! Prints which edges of the program the inputs of a folder reach, from the counters that
//! `-Cpasses=sancov-module` inserts.

use std::ffi::OsStr;
use std::io::Write as _;

// Each edge has a counter in one section and an address in another. The linker defines the symbols around
// both sections.
unsafe extern "C" {
    #[link_name = "__start___sancov_cntrs"]
    static mut FIRST_COUNTER: u8;
    #[link_name = "__stop___sancov_cntrs"]
    static mut LAST_COUNTER: u8;
    #[link_name = "__start___sancov_pcs"]
    static FIRST_PLACE: [usize; 2];
    /// The address at which the program is loaded.
    #[link_name = "__executable_start"]
    static IMAGE: u8;
}

/// Runs a target with each file of a folder, and prints a line for each edge: its address, and 1 if an input
/// reached it.
pub(crate) fn print(target: fn(&[u8]), folder: &OsStr) {
    // SAFETY: both symbols belong to the section of counters: its start and its end.
    let count = unsafe { (&raw const LAST_COUNTER).offset_from(&raw const FIRST_COUNTER) } as usize;
    // SAFETY: the section has `count` bytes. The instrumented code of all threads increments them. A race may
    // lose an increment, and the counter still differs from 0.
    let counters = unsafe { std::slice::from_raw_parts_mut(&raw mut FIRST_COUNTER, count) };
    // SAFETY: the section of addresses has one entry for each counter.
    let places = unsafe { std::slice::from_raw_parts(&raw const FIRST_PLACE, count) };
    let image = (&raw const IMAGE).addr();
    let mut taken = vec![false; count];
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        counters.fill(0);
        target(&std::fs::read(file).expect("a file of the folder"));
        taken.iter_mut().zip(counters.iter()).for_each(|(taken, counter)| *taken |= *counter != 0);
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for ([place, _], taken) in places.iter().zip(taken) {
        // The linker sets the address of removed code to 0.
        if let Some(place) = place.checked_sub(image) {
            writeln!(out, "{place:#x} {}", u8::from(taken)).expect("standard output takes it");
        }
    }
}
