//! The handler of SIGSEGV and SIGBUS, by which the device survives bad addresses of the program. The program
//! sees and sets its own actions for both signals as if there were no handler of this library: the handler
//! carries out the program's action for every signal that the device's copies have not caused.
//!
//! The program's handlers of other signals must not run while its thread does the device's work. The
//! replacements record whether there are such handlers, and whether a thread changes its waiting signals.
//! The replacements see neither system calls that go past the C library after the device was opened, nor
//! `sigset`, `siglongjmp` and `swapcontext`.
#![allow(unsafe_code)]

use super::next::{Next, fail, next};
use crate::ground::errno::Errno;
use crate::ground::{direct, sys, window};
use libc::{c_int, c_void, sighandler_t, siginfo_t};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// A program's action for a signal, as the kernel keeps it. A thread that changes the action while another
/// thread takes the signal may have its new and old values mixed for that one signal.
struct Action {
    handler: AtomicUsize,
    flags: AtomicI32,
    /// The signals that wait while the handler runs.
    mask: AtomicU64,
}

static SEGV: Action = Action::none();
static BUS: Action = Action::none();

impl Action {
    const fn none() -> Self {
        let (handler, flags) = (AtomicUsize::new(libc::SIG_DFL), AtomicI32::new(0));
        Self { handler, flags, mask: AtomicU64::new(0) }
    }

    /// Returns the program's action for a signal that this library handles.
    fn of(signal: c_int) -> Option<&'static Self> {
        match signal {
            libc::SIGSEGV => Some(&SEGV),
            libc::SIGBUS => Some(&BUS),
            _ => None,
        }
    }

    fn get(&self) -> libc::sigaction {
        // SAFETY: a structure of numbers, for which zeros are valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = self.handler.load(Ordering::Acquire);
        action.sa_flags = self.flags.load(Ordering::Acquire);
        // SAFETY: a set of signals begins with the kernel's set, which has 8 bytes.
        unsafe { (&raw mut action.sa_mask).cast::<u64>().write(self.mask.load(Ordering::Acquire)) };
        action
    }

    fn set(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags, Ordering::Release);
        // SAFETY: a set of signals begins with the kernel's set, which has 8 bytes.
        self.mask.store(unsafe { (&raw const action.sa_mask).cast::<u64>().read() }, Ordering::Release);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }
}

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// The C library's `sigaction`. Looked up before it is needed, since a handler must not search.
static NEXT: Next = Next::new(c"sigaction");

fn original() -> Option<Sigaction> {
    let found = NEXT.find();
    // SAFETY: the C library's function of this name takes these arguments.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Sigaction>(found) })
}

/// Records that the program has a handler, if the action for this signal is one that this library does not
/// carry out.
fn note(signal: c_int, action: &libc::sigaction) {
    if Action::of(signal).is_none() && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
        sys::note_handler();
    }
}

/// Records whether the program has handlers, installs the handler, and keeps the program's actions. Does
/// nothing if the handler is already there. Installs none under valgrind, which reports bad addresses itself.
pub(super) fn catch() {
    let Some(original) = original().filter(|_| !direct::is_enabled()) else { return };
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: a structure of numbers, for which zeros are valid. It lives until the call is over.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            original(signal, std::ptr::null(), &raw mut action);
            action
        };
        note(signal, &action);
    }
    if window::is_under_valgrind() {
        return;
    }
    for (signal, program) in [(libc::SIGSEGV, &SEGV), (libc::SIGBUS, &BUS)] {
        // SAFETY: structures of numbers, for which zeros are valid.
        let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        ours.sa_sigaction = on_signal as *const () as sighandler_t;
        // The program's handler may need the alternate stack, because the thread's stack has overflowed.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
        // SAFETY: both structures live until the calls are over. The handler takes three arguments.
        unsafe {
            original(signal, std::ptr::null(), &raw mut before);
            program.set(&before);
            original(signal, &raw const ours, std::ptr::null_mut());
        }
    }
    direct::enable();
}

/// Ends the interrupted copy of the device, or carries out the program's action.
extern "C" fn on_signal(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this function as the handler of the signal, with valid pointers. A positive
    // code means that the kernel has sent the signal, because of an access.
    let (is_fault, is_over) = unsafe {
        let is_fault = (*information).si_code > 0;
        (is_fault, is_fault && direct::recover(context))
    };
    if is_over {
        return;
    }
    let Some(program) = Action::of(signal) else { return };
    let action = program.get();
    match action.sa_sigaction {
        // The kernel ends a program that ignores the signal of an access.
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: a structure of zeros is the default action. After the return, the thread repeats the
            // access, or takes the signal that is sent here, and the kernel ends the program.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                if let Some(original) = original() {
                    original(signal, &raw const default, std::ptr::null_mut());
                }
                if !is_fault {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            if action.sa_flags & libc::SA_RESETHAND != 0 {
                program.handler.store(libc::SIG_DFL, Ordering::Release);
            }
            // SAFETY: the program has set this handler, for a call with these arguments. The kernel restores
            // the set of blocked signals when `on_signal` returns.
            unsafe {
                let own = if action.sa_flags & libc::SA_NODEFER == 0 { sys::bit(signal) } else { 0 };
                let _ =
                    sys::change_waiting(libc::SIG_BLOCK, Some(program.mask.load(Ordering::Acquire) | own));
                if action.sa_flags & libc::SA_SIGINFO == 0 {
                    std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
                } else {
                    type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
                    std::mem::transmute::<usize, Handler>(handler)(signal, information, context);
                }
            }
        }
    }
}

/// Sets and returns the action for a signal.
///
/// # Safety
/// The caller keeps the contract of the C library's function.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(program) = Action::of(signal).filter(|_| direct::is_enabled()) else {
        // SAFETY: by contract, the pointer is null or leads to a structure.
        if let Some(new) = unsafe { new.as_ref() } {
            note(signal, new);
        }
        let Some(original) = original() else { return fail(Errno(libc::ENOSYS)) };
        // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
        return unsafe { original(signal, new, old) };
    };
    let before = program.get();
    // SAFETY: by contract, both pointers are null or lead to a structure. Both may lead to the same one.
    unsafe {
        if let Some(new) = new.as_ref() {
            program.set(new);
        }
        if let Some(old) = old.as_mut() {
            *old = before;
        }
    }
    0
}

/// Sets the handler for a signal with these flags, and returns the handler from before.
///
/// # Safety
/// The handler can be called with the number of a signal.
unsafe fn set(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    // SAFETY: structures of numbers, for which zeros are valid.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    (new.sa_sigaction, new.sa_flags) = (handler, flags);
    // SAFETY: both structures live until the call is over, and the program has set the handler.
    match unsafe { sigaction(signal, &raw const new, &raw mut old) } {
        0 => old.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}

/// Changes the signals that wait in this thread, for a replaced function.
///
/// # Safety
/// Both pointers are null or lead to a set of signals, as the C library's functions ask for.
unsafe fn change(how: c_int, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> Result<(), Errno> {
    sys::forget_waiting();
    // SAFETY: by contract. A set of signals begins with the kernel's set, which has 8 bytes.
    let before = sys::change_waiting(how, unsafe { new.cast::<u64>().as_ref() }.copied())?;
    // SAFETY: see above.
    if let Some(old) = unsafe { old.cast::<u64>().as_mut() } {
        *old = before;
    }
    Ok(())
}

/// Changes the signals that wait in this thread.
///
/// # Safety
/// The caller keeps the contract of the C library's function.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { change(how, new, old) }.map_or_else(|Errno(errno)| errno, |()| 0)
}

/// Changes the signals that wait in this thread.
///
/// # Safety
/// The caller keeps the contract of the C library's function.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigprocmask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { change(how, new, old) }.map_or_else(fail, |()| 0)
}

/// Replaces functions of one number that change the signals that wait in this thread.
macro_rules! older_masks {
    ($($name:ident)*) => {$(
        /// Changes the signals that wait in this thread (an older form of `sigprocmask`).
        // SAFETY: the function deliberately has the name of the C library's function that it replaces.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(signals: c_int) -> c_int {
            let next = next!($name(c_int) -> c_int);
            sys::forget_waiting();
            // SAFETY: any number is allowed.
            unsafe { next(signals) }
        }
    )*};
}
older_masks!(sighold sigblock sigsetmask);

/// Replaces functions that are forms of `signal`.
macro_rules! signals {
    ($($name:ident: $flags:expr;)*) => {$(
        /// Sets the handler for a signal, and returns the handler from before (a form of `signal`).
        // SAFETY: the function deliberately has the name of the C library's function that it replaces.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
            unsafe { set(signal, handler, $flags) }
        }
    )*};
}
signals! {
    signal: libc::SA_RESTART;
    bsd_signal: libc::SA_RESTART;
    ssignal: libc::SA_RESTART;
    sysv_signal: libc::SA_RESETHAND | libc::SA_NODEFER;
    __sysv_signal: libc::SA_RESETHAND | libc::SA_NODEFER;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_length_succeed_or_end_at_a_bad_address() {
        const PAGE: usize = 1 << 16;
        catch();
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping touches nothing that exists. Its second half can then not be accessed.
        let end = unsafe {
            let place = sys::map(std::ptr::null_mut(), 2 * PAGE, rights, kind, -1, 0);
            assert_eq!(libc::mprotect(place.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            (place.expose_provenance() + PAGE) as u64
        };
        let bytes: Vec<u8> = (0..200).collect();
        sys::undisturbed(|| {
            for length in 1..bytes.len() {
                let (sent, mut got) = (bytes.get(..length).unwrap_or_default(), vec![0; length]);
                let last = end - length as u64;
                assert!(direct::store(last, sent) && direct::load(&mut got, last), "{length}");
                assert_eq!(got, sent);
                for address in (last + 1..=end).chain([8, 1 << 63, u64::MAX - 3]) {
                    assert!(!direct::store(address, sent), "{length} {address:#x}");
                    assert!(!direct::load(&mut got, address), "{length} {address:#x}");
                    let mut appended = vec![1];
                    assert!(!direct::append(&mut appended, address, length), "{length} {address:#x}");
                    assert_eq!(appended, [1]);
                }
            }
        });
        assert!(!direct::survives());
    }
}
