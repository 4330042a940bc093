//! The smallest program with the library: it configures an mkey over scattered memory, writes all of it to
//! the peer, and takes the completion.
//!
//! `cargo xtask test aarch64` builds it for a Cortex-A72 without an operating system and measures the size of
//! its code. The program is never run: `hil-tests/examples/firmware-template` is a service to copy.

#![cfg_attr(target_os = "none", no_std, no_main)]
// The measurement finds the functions by their symbol names, hence `no_mangle`. No other code defines these
// symbols.
#![allow(unsafe_code)]

use mlx5_mkey::error::{CompletionError, PostError};
use mlx5_mkey::mkey::{KlmEntry, Mkey};
use mlx5_mkey::queue::{Completion, CompletionQueue, QpRouter, SendQueue, UarDoorbell};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The errors of the service.
pub enum Fault {
    /// A request was refused.
    Post(PostError),
    /// A completion is malformed.
    Completion(CompletionError),
}

/// Writes scattered memory to the peer. The values come in as arguments, so that the compiler cannot compute
/// with them in advance, as in a real service.
#[unsafe(no_mangle)]
pub fn minimal_write(
    queue: &mut SendQueue<'_, UarDoorbell>,
    mkey: &mut Mkey,
    prepared: &PreparedConfig,
    entries: &[KlmEntry],
    remote: Remote,
) -> Result<(), Fault> {
    let mut batch = queue.batch();
    batch.request(1).configure_mkey(mkey, prepared, entries).map_err(Fault::Post)?;
    let all = Sge { address: 0, length: mkey.length() as u32, lkey: mkey.key() };
    batch.request(2).signaled().rdma_write(remote, &[all]).map_err(Fault::Post)
}

/// Takes a completion, if there is one.
#[unsafe(no_mangle)]
pub fn minimal_poll(
    completions: &mut CompletionQueue<'_>,
    queue: &mut SendQueue<'_, UarDoorbell>,
    mkeys: &mut [Mkey],
) -> Result<Option<Completion>, Fault> {
    let mut router = QpRouter { queues: queue, mkeys };
    completions.poll(&mut router).transpose().map_err(Fault::Completion)
}

/// The entry point on a machine without an operating system. It passes both functions to `service`, so that
/// the linker keeps them.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn _start(service: extern "C" fn(write: *const (), poll: *const ()) -> !) -> ! {
    service(minimal_write as *const (), minimal_poll as *const ())
}
