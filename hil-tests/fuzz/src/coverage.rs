//! Which places of the program the inputs of a folder reach: the counters that `-Cpasses=sancov-module` has put there.

use hil_fuzz::Functions;
use std::ffi::OsStr;
use std::io::Write as _;

// One counter for each edge, and beside it where it is. The linker makes the symbols around both sections.
unsafe extern "C" {
    #[link_name = "__start___sancov_cntrs"]
    static mut FIRST_COUNTER: u8;
    #[link_name = "__stop___sancov_cntrs"]
    static mut LAST_COUNTER: u8;
    #[link_name = "__start___sancov_pcs"]
    static FIRST_PLACE: [usize; 2];
    /// Where the program is loaded.
    #[link_name = "__executable_start"]
    static IMAGE: u8;
}

/// Runs a target with each file of a folder, and prints a line for each edge: where it is, and 1 if it was taken.
pub(crate) fn print(target: &Functions, folder: &OsStr) {
    // SAFETY: the linker puts the symbols around one section.
    let count = unsafe { (&raw const LAST_COUNTER).offset_from(&raw const FIRST_COUNTER) } as usize;
    // SAFETY: the section has as many bytes. They are counted up by this thread, and by others while they run: what is lost then is
    // a count, not whether there is one.
    let counters = unsafe { std::slice::from_raw_parts_mut(&raw mut FIRST_COUNTER, count) };
    // SAFETY: beside each counter there is a place.
    let places = unsafe { std::slice::from_raw_parts(&raw const FIRST_PLACE, count) };
    let image = (&raw const IMAGE).addr();
    let mut taken = vec![false; count];
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        counters.fill(0);
        (target.run)(&std::fs::read(file).expect("a file of the folder"));
        taken.iter_mut().zip(counters.iter()).for_each(|(taken, counter)| *taken |= *counter != 0);
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for ([place, _], taken) in places.iter().zip(taken) {
        // What the linker has left out has no place.
        if let Some(place) = place.checked_sub(image) {
            writeln!(out, "{place:#x} {}", u8::from(taken)).expect("standard output takes it");
        }
    }
}
