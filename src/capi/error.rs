//! Error codes and messages for C, and the conversion of Rust results into them.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::text::text;
use crate::devx::{AdoptError, DevxError, on_drop_error};
use crate::mkey::SignatureError;
use crate::mkey::error::{CheckError, ConfigError, PoolError};
use crate::queue::error::CompletionError;
use crate::types::OutOfRange;
use crate::wqe::error::PostError;
use core::error::Error as _;
use core::ffi::{CStr, c_char};
use core::fmt;
use core::mem::MaybeUninit;
use std::io;
use std::sync::{PoisonError, RwLock};

/// Success.
pub const MLX5MK_OK: i32 = 0;
/// An argument is NULL or has an invalid value: a fault of the program.
pub const MLX5MK_ARGUMENT: i32 = -1;
/// A library of rdma-core is missing or too old.
pub const MLX5MK_LIBRARY: i32 = -2;
/// The device does not exist, or cannot be opened.
pub const MLX5MK_DEVICE: i32 = -3;
/// The operating system refused. The field `system` of the error has the errno, or 0 if the system gave none.
pub const MLX5MK_SYSTEM: i32 = -4;
/// The device refused a command, or lacks a capability that the call needs.
pub const MLX5MK_COMMAND: i32 = -5;
/// The mkey or the queue cannot hold the configuration.
pub const MLX5MK_CONFIG: i32 = -6;
/// A queue or a pool has nothing free: take completions, or put mkeys back, then try again.
pub const MLX5MK_FULL: i32 = -7;
/// The request can never be posted: a data segment is empty or too long, or there are too many segments or
/// too many inline bytes.
pub const MLX5MK_REQUEST: i32 = -8;
/// An object of libibverbs cannot be taken over.
pub const MLX5MK_ADOPT: i32 = -9;
/// Other objects use this object: destroy them first.
pub const MLX5MK_IN_USE: i32 = -10;
/// The completion queue has too few free entries for all possible completions.
pub const MLX5MK_CQ_TOO_SMALL: i32 = -11;
/// A completion entry is malformed.
pub const MLX5MK_COMPLETION: i32 = -12;
/// Data that passed through the mkey had a wrong signature.
pub const MLX5MK_SIGNATURE: i32 = -13;
/// The key of an mkey or a memory window is in service, or may be: a peer could still use it. So the mkey or
/// the window cannot be put back.
pub const MLX5MK_IN_SERVICE: i32 = -14;

/// The description of an error. The caller provides the memory, and a function that fails writes it.
#[repr(C)]
pub struct Error {
    /// One of the negative codes. The function that failed returns the same code.
    pub code: i32,
    /// The system's errno for MLX5MK_SYSTEM and MLX5MK_DEVICE; otherwise 0.
    pub system: i32,
    /// The reason in words, with the values and limits concerned, and advice. The text ends with a NUL, and
    /// is cut off if it is longer than the field.
    pub message: [c_char; 504],
}

/// Returns a short description of a code: a string that is never freed. Any number is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn mlx5mk_code_words(code: i32) -> *const c_char {
    words(code).as_ptr()
}

const fn words(code: i32) -> &'static CStr {
    match code {
        0.. => c"all is well",
        MLX5MK_ARGUMENT => c"an argument is NULL or makes no sense",
        MLX5MK_LIBRARY => c"a library of rdma-core is missing or too old",
        MLX5MK_DEVICE => c"there is no such device, or it cannot be opened",
        MLX5MK_SYSTEM => c"the system refused",
        MLX5MK_COMMAND => c"the device refused a command, or cannot do what was asked for",
        MLX5MK_CONFIG => c"the mkey or the queue cannot hold the configuration",
        MLX5MK_FULL => c"nothing is free: take completions, or put mkeys back, then try again",
        MLX5MK_REQUEST => c"the request can never be posted",
        MLX5MK_ADOPT => c"an object of libibverbs cannot be taken over",
        MLX5MK_IN_USE => c"other objects use it: destroy them first",
        MLX5MK_CQ_TOO_SMALL => c"the completion queue has too few entries for all that may complete",
        MLX5MK_COMPLETION => c"a completion entry makes no sense",
        MLX5MK_SIGNATURE => c"data that passed through the mkey had a wrong signature",
        MLX5MK_IN_SERVICE => c"the key is in service, or may be",
        _ => c"no code of this library",
    }
}

/// The reason why a function failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The argument of this name is NULL.
    Null(&'static str),
    /// An argument has this value, which is not allowed.
    Value {
        what: &'static str,
        value: u64,
    },
    /// A rule that an argument breaks, in words.
    Wanted(&'static str),
    Devx(DevxError),
    Post(PostError),
    Check(CheckError),
    Completion(CompletionError),
    Signature(SignatureError),
    /// A queue or a pool has nothing free. The text says which resource is used up.
    Full(&'static str),
    InUse {
        queue_pairs: usize,
        pools: usize,
    },
}

macro_rules! from {
    ($($error:ty => $make:expr;)+) => { $(
        impl From<$error> for Failure {
            #[inline]
            fn from(error: $error) -> Self {
                $make(error)
            }
        }
    )+ };
}

from! {
    DevxError => Self::Devx;
    PoolError => |error| Self::Post(PostError::Pool(error));
    PostError => Self::Post;
    CheckError => Self::Check;
    CompletionError => Self::Completion;
    SignatureError => Self::Signature;
    ConfigError => |error| Self::Post(PostError::Config(error));
    OutOfRange => |error| Self::Devx(DevxError::OutOfRange(error));
    AdoptError => |error| Self::Devx(DevxError::Adopt(error));
}

impl Failure {
    const fn code(&self) -> i32 {
        match self {
            Self::Null(_) | Self::Value { .. } | Self::Wanted(_) => MLX5MK_ARGUMENT,
            Self::Devx(error) => code(error),
            Self::Post(error) => match error {
                PostError::Config(_) => MLX5MK_CONFIG,
                PostError::SendRingFull { .. }
                | PostError::ReceiveRingFull { .. }
                | PostError::TooManyRequests { .. } => MLX5MK_FULL,
                PostError::Pool(PoolError::KeyInService) => MLX5MK_IN_SERVICE,
                PostError::Pool(_) => MLX5MK_ARGUMENT,
                _ => MLX5MK_REQUEST,
            },
            Self::Check(_) | Self::Signature(_) => MLX5MK_SIGNATURE,
            Self::Completion(_) => MLX5MK_COMPLETION,
            Self::Full(_) => MLX5MK_FULL,
            Self::InUse { .. } => MLX5MK_IN_USE,
        }
    }

    fn system(&self) -> i32 {
        if let Self::Devx(error) = self { system(error) } else { 0 }
    }
}

/// Returns the C code of an error of the Rust module `devx`.
const fn code(error: &DevxError) -> i32 {
    match error {
        DevxError::Library(_) => MLX5MK_LIBRARY,
        DevxError::NoDevice { .. } | DevxError::Open { .. } => MLX5MK_DEVICE,
        DevxError::Command(_) | DevxError::KernelRefuses { .. } => MLX5MK_COMMAND,
        DevxError::Config(_) => MLX5MK_CONFIG,
        DevxError::Adopt(_) | DevxError::OtherCompletionQueue { .. } => MLX5MK_ADOPT,
        DevxError::CompletionQueueTooSmall { .. } | DevxError::ErrorsOverwritten { .. } => {
            MLX5MK_CQ_TOO_SMALL
        }
        DevxError::Completion(_) => MLX5MK_COMPLETION,
        DevxError::Queue(_)
        | DevxError::OutOfRange(_)
        | DevxError::EqualHalves(_)
        | DevxError::Piece(_)
        | DevxError::TooLong { .. }
        | DevxError::Address(_) => MLX5MK_ARGUMENT,
        _ => MLX5MK_SYSTEM,
    }
}

/// Returns the errno of an error of the Rust module `devx`, or 0.
fn system(error: &DevxError) -> i32 {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.and_then(io::Error::raw_os_error).unwrap_or_default()
}

/// Fills in the C structure of an error at `place`.
fn write(place: &mut MaybeUninit<Error>, code: i32, system: i32, words: &dyn fmt::Display) {
    let error = place.write(Error { code, system, message: [0; 504] });
    let size = error.message.len();
    // SAFETY: the message has the size that is given.
    unsafe { text(error.message.as_mut_ptr(), size, words) };
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null(name) => write!(f, "{name} is NULL"),
            Self::Value { what, value } => write!(f, "{what} {value:#x} is none that is known"),
            Self::Wanted(what) | Self::Full(what) => f.write_str(what),
            Self::Devx(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
            Self::Check(error) => error.fmt(f),
            Self::Completion(error) => error.fmt(f),
            Self::Signature(error) => error.fmt(f),
            Self::InUse { queue_pairs, pools } => {
                write!(f, "{queue_pairs} queue pairs and {pools} pools use it: destroy them first")
            }
        }
    }
}

/// The program's function that receives errors of destroy functions. mlx5mk_on_drop_error sets it.
static DROP_HOOK: RwLock<Option<unsafe extern "C" fn(*const Error)>> = RwLock::new(None);

/// Sets the function that receives errors of destroy functions that cannot return them: the kernel could not
/// destroy an object, or end a registration. The function may be called by any thread that destroys a handle;
/// `error` is valid during the call. With NULL, the default, these errors are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_on_drop_error(hook: Option<unsafe extern "C" fn(error: *const Error)>) {
    *DROP_HOOK.write().unwrap_or_else(PoisonError::into_inner) = hook;
    on_drop_error(|error| {
        let hook = *DROP_HOOK.read().unwrap_or_else(PoisonError::into_inner);
        let Some(hook) = hook else { return };
        let mut told = MaybeUninit::uninit();
        write(&mut told, code(error), system(error), error);
        // SAFETY: the program vouches for the function; `write` has initialised the value.
        unsafe { hook(told.as_ptr()) };
    });
}

/// Runs `action`, the body of a C function, and returns its result. If `action` fails, writes the failure to
/// `error` and returns the negative code of the failure.
#[inline]
pub(super) fn attempt(
    error: Option<&mut MaybeUninit<Error>>,
    action: impl FnOnce() -> Result<i32, Failure>,
) -> i32 {
    match action() {
        Ok(count) => count,
        Err(failure) => report(&failure, error),
    }
}

/// Writes a failure to the caller's `error`, and returns its code.
#[cold]
pub(super) fn report(failure: &Failure, error: Option<&mut MaybeUninit<Error>>) -> i32 {
    let code = failure.code();
    if let Some(error) = error {
        write(error, code, failure.system(), failure);
    }
    code
}

/// Returns a required argument, or the error that it is NULL.
#[inline]
pub(super) fn given<T>(argument: Option<T>, name: &'static str) -> Result<T, Failure> {
    argument.ok_or(Failure::Null(name))
}
