//! What plans of faults of the stand-in stand on.

#[path = "../../emulator/verbs/src/ground/errno.rs"]
#[allow(dead_code, reason = "the stand-in behind it uses all of it")]
pub(crate) mod errno;
