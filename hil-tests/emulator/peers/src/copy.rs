//! Copies bytes from and to memory that others may change or unmap meanwhile: memory of the program, or
//! memory that another process shares. The compiler knows nothing of such changes, so the instructions of a
//! copy are written by hand.
#![allow(unsafe_code)]

use std::ops::Range;

// `mlx5_copy` copies `count` bytes, and returns 0. If an address is bad, the handler of the signal lets the
// thread go on at `mlx5_copied`. The third argument's register then holds a number above 0, because each step
// of the loop subtracts its bytes after their copy. 8 bytes, and 4, are copied by one load and one store,
// because the host writes doorbell records of these sizes by one store. `rep movsb` would be shorter, but is
// slow on some processors if the low bits of both addresses are nearly equal, as those of a program's page
// and of an allocation are. `prefetchw` asks early for the lines of a ring, which the core of the other
// process has read last.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl mlx5_copy",
    ".hidden mlx5_copy",
    ".globl mlx5_copied",
    ".hidden mlx5_copied",
    "mlx5_copy:",
    "1: cmp rdx, 64",
    "jb 2f",
    "prefetchw [rdi + 512]",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "jmp 1b",
    "2: cmp rdx, 8",
    "jb 3f",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rdx, 8",
    "jmp 2b",
    "3: cmp rdx, 4",
    "jb 4f",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "sub rdx, 4",
    "4: test rdx, rdx",
    "jz mlx5_copied",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jmp 4b",
    "mlx5_copied:",
    "mov rax, rdx",
    "ret",
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl mlx5_copy",
    ".hidden mlx5_copy",
    ".globl mlx5_copied",
    ".hidden mlx5_copied",
    "mlx5_copy:",
    "cmp x2, #8",
    "b.eq 4f",
    "cmp x2, #4",
    "b.eq 3f",
    "1: subs x5, x2, #16",
    "b.lo 2f",
    "ldp x3, x4, [x1], #16",
    "stp x3, x4, [x0], #16",
    "mov x2, x5",
    "b 1b",
    "2: cbz x2, mlx5_copied",
    "ldrb w3, [x1], #1",
    "strb w3, [x0], #1",
    "sub x2, x2, #1",
    "b 2b",
    "3: ldr w3, [x1]",
    "str w3, [x0]",
    "mov x2, #0",
    "b mlx5_copied",
    "4: ldr x3, [x1]",
    "str x3, [x0]",
    "mov x2, #0",
    "mlx5_copied:",
    "mov x0, x2",
    "ret",
);

unsafe extern "C" {
    fn mlx5_copy(to: *mut u8, from: *const u8, count: usize) -> usize;
    fn mlx5_copied();
}

/// Copies `count` bytes. Returns 0, or another number if a handler of SIGSEGV or SIGBUS has ended the copy
/// ([`instructions`]). The copy is then incomplete.
///
/// # Safety
/// Meanwhile, no Rust code of this process reads or writes the bytes at `to`, and none writes the bytes at
/// `from`. The addresses are mapped, or such a handler is in place.
pub unsafe fn copy(to: *mut u8, from: *const u8, count: usize) -> usize {
    // SAFETY: by contract, the copy changes no memory that other Rust code uses, and survives bad addresses.
    unsafe { mlx5_copy(to, from, count) }
}

/// Returns the addresses of the instructions of [`copy`]. A handler of SIGSEGV or SIGBUS ends a copy by
/// letting the thread go on at the end of this range.
pub fn instructions() -> Range<u64> {
    let [first, end] = [mlx5_copy as *const (), mlx5_copied as *const ()].map(|place| place.addr() as u64);
    first..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lengths_are_copied_at_all_offsets_and_nothing_else() {
        let from: Vec<u8> = (1..=255).collect();
        for count in 0..200 {
            for offset in 0..9 {
                let mut to = [0; 220];
                let (source, place) = (from[offset..].as_ptr(), to[3..].as_mut_ptr());
                // SAFETY: both arrays have `count` bytes there, and only this function uses them.
                assert_eq!(unsafe { copy(place, source, count) }, 0);
                assert_eq!(to[3..3 + count], from[offset..offset + count]);
                assert!(to[..3].iter().chain(&to[3 + count..]).all(|byte| *byte == 0), "{count} {offset}");
            }
        }
    }
}
