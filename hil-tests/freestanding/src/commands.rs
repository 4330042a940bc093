//! Entries (exported functions, see the crate's documentation) that use each command of the library: they
//! encode it into a mailbox and decode its reply.

use crate::Silent;
use core::fmt::{self, Write};
use mlx5_mkey::command::*;
use mlx5_mkey::types::PsvIndex;

/// Defines an enum of all commands, and a function that encodes and decodes each of them.
macro_rules! commands {
    ($($name:ident $(<$parameter:tt>)?,)+) => {
        /// Any command.
        pub enum AnyCommand<'a> {
            $(#[doc = stringify!($name)] $name(&'a $name $(<$parameter>)?),)+
        }

        #[unsafe(no_mangle)]
        pub fn entry_command(command: &AnyCommand<'_>, mailbox: &mut [u8], reply: &[u8]) -> Option<usize> {
            match command {
                $(AnyCommand::$name(command) => run(*command, mailbox, reply),)+
            }
        }
    };
}

commands! {
    AllocPd, AllocUar, CreateCq, CreateCqOnPages<4>, CreateDek<'a>, CreateEq<4>, CreateListMkey<'a>,
    CreateLogin<'a>, CreateMemoryRegion, CreateMkey, CreatePhysicalRegion, CreatePsv<2>, CreateQp,
    CreateQpOnPages<4>, DeallocPd, DeallocUar, DestroyCq, DestroyDek, DestroyEq, DestroyLogin, DestroyMkey,
    DestroyPsv, DestroyQp, DisableHca, EnableHca, GivePages<4>, Init2Init, Init2Rtr, ModifyDek<'a>, InitHca,
    QpToError, QpToReset, QueryAtomicCapabilities, QueryCryptoCapabilities, QueryDek,
    QueryGeneralCapabilities, QueryIssi, QueryLogin, QueryPages, QueryQp, QueryRoceCapabilities, Rst2Init,
    Rtr2Rts, Rts2Rts, SetIssi, Sqd2Rts, SqErr2Rts, SyncCrypto, TakePages<4>, TeardownHca,
}

fn run(command: &impl Command, mailbox: &mut [u8], reply: &[u8]) -> Option<usize> {
    let length = command.encode(mailbox).ok()?.len();
    command.decode(reply).ok()?;
    Some(length)
}

/// Makes a list of pages from addresses, and a list of contiguous pages from the first address. Compares
/// their lengths.
#[unsafe(no_mangle)]
pub fn entry_pages(size: LogPageSize, addresses: [u64; 4]) -> Option<PageList<4>> {
    let list = PageList::new(size, addresses).ok()?;
    let first = list.addresses().first()?;
    let contiguous = PageList::<4>::contiguous(list.size(), *first).ok()?;
    (contiguous.bytes() == list.bytes()).then_some(contiguous)
}

#[unsafe(no_mangle)]
pub fn entry_taken_pages(command: &TakePages<4>, reply: &[u8]) -> Option<u64> {
    command.decode(reply).ok()?.addresses().last().copied()
}

#[unsafe(no_mangle)]
pub fn entry_send_ring(command: &CreateQpOnPages<4>) -> u64 {
    command.send_ring_offset()
}

#[unsafe(no_mangle)]
pub fn entry_create_psv(pd: Pdn, other: &CreatePsv<4>) -> Option<CreatePsv<4>> {
    let command = CreatePsv::new(pd);
    if command == *other { None } else { Some(command) }
}

#[unsafe(no_mangle)]
pub fn entry_psvs(command: &CreatePsv<4>, reply: &[u8]) -> Option<[PsvIndex; 4]> {
    command.decode(reply).ok()
}

#[unsafe(no_mangle)]
pub fn entry_secret(key: &mut [u8; 40], other: [u8; 40]) -> Secret<40> {
    let mut secret = Secret::take(key);
    let mut second = Secret::new(other);
    for (byte, other) in secret.expose_mut().iter_mut().zip(second.expose()) {
        *byte ^= other;
    }
    second.wipe();
    secret
}

#[unsafe(no_mangle)]
pub fn entry_xts_key(short: &[u8; 32], long: &[u8; 64]) -> bool {
    let keys = (XtsKey::new(short), XtsKey::new(long));
    let equal = (XtsKey::allowing_equal_halves(short), XtsKey::allowing_equal_halves(long));
    keys == (Ok(equal.0), Ok(equal.1))
}

/// Prints secrets. The output must hide their bytes.
#[unsafe(no_mangle)]
pub fn entry_print_secrets(out: &mut Silent, secret: &Secret<40>, key: XtsKey<'_, 64>) -> fmt::Result {
    write!(out, "{secret:?} {key:?}")
}
