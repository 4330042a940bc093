//! The reader of dumps needs memory in proportion to the text: twice the text takes twice the allocations and
//! allocated bytes. A reader that copied all earlier rows for each row would need more.

#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;
use xtask_parsers::hex::read;

thread_local! {
    /// The number of allocations of this thread, and the sum of their bytes.
    static COUNT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

struct Counting;

// SAFETY: the system's allocator does the work. The counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| {
            let (calls, bytes) = count.get();
            count.set((calls + 1, bytes + layout.size() as u64));
        });
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads a text, and returns the number of allocations and their bytes.
fn cost(text: &str) -> (u64, u64) {
    let raw = text.as_bytes().to_vec();
    let before = COUNT.get();
    let _ = read(raw, None);
    let after = COUNT.get();
    (after.0 - before.0, after.1 - before.1)
}

/// Returns `rows` rows of 16 bytes, each formatted by `row` from its number.
fn text(rows: usize, row: fn(usize) -> String) -> String {
    (0..rows).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "{}", row(number));
        text
    })
}

#[test]
fn twice_the_text_takes_twice_the_work() {
    const ROWS: usize = 1 << 10;
    const BYTES: &str = "00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff";
    const WORDS: &str = "00112233 44556677 8899aabb ccddeeff";
    /// A function that makes a row from its number.
    type Form = fn(usize) -> String;
    let forms: [(&str, Form); 8] = [
        ("bytes", |_| BYTES.to_owned()),
        ("offsets", |number| format!("{:08x}: {BYTES}", number * 16)),
        ("words", |number| format!("{:08x}: {WORDS}", number * 16)),
        ("kernel", |number| format!("[  100.{number:06}] mlx5: {:08x}: {WORDS}", number * 16)),
        ("ranks", |number| format!("[1,{}]<stderr>:{WORDS}", number % 7)),
        ("many dumps", |number| format!("t {:08x}: {BYTES}", number % 4 * 16)),
        ("gaps", |number| format!("t {:08x}: {BYTES}", number * 48)),
        ("quotes", |_| format!("{{\"log\":\"{WORDS}\\n\"}}")),
    ];
    for (name, form) in forms {
        let [one, two] = [ROWS, 2 * ROWS].map(|rows| cost(&text(rows, form)));
        // Vectors double their capacity. The larger text may therefore allocate a little more than twice as
        // much.
        assert!(two.0 <= 2 * one.0 + 100 && two.1 <= one.1 * 5 / 2, "{name}: {one:?}, {two:?}");
    }
}
