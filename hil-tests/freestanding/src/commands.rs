//! Each command, to a mailbox and back.

use crate::Silent;
use core::fmt::{self, Write};
use mlx5_mkey::command::*;
use mlx5_mkey::types::PsvIndex;

/// Writes commands as one type, so that none is left out.
macro_rules! commands {
    ($($name:ident $(<$parameter:tt>)?,)+) => {
        /// Any command.
        pub enum AnyCommand<'a> {
            $(#[doc = stringify!($name)] $name(&'a $name $(<$parameter>)?),)+
        }

        /// Encodes a command and decodes its reply.
        #[unsafe(no_mangle)]
        pub fn entry_command(command: &AnyCommand<'_>, mailbox: &mut [u8], reply: &[u8]) -> Option<usize> {
            match command {
                $(AnyCommand::$name(command) => run(*command, mailbox, reply),)+
            }
        }
    };
}

commands! {
    AllocPd, AllocUar, CreateCq, CreateDek<'a>, CreateLogin<'a>, CreateMemoryRegion, CreateMkey, CreatePsv<2>, CreateQp,
    DeallocPd, DeallocUar, DestroyCq, DestroyDek, DestroyLogin, DestroyMkey, DestroyPsv, DestroyQp, Init2Init, Init2Rtr,
    QpToError, QpToReset, QueryCryptoCapabilities, QueryDek, QueryGeneralCapabilities, QueryLogin, QueryQp, Rst2Init,
    Rtr2Rts, Rts2Rts, Sqd2Rts, SqErr2Rts,
}

fn run(command: &impl Command, mailbox: &mut [u8], reply: &[u8]) -> Option<usize> {
    let length = command.encode(mailbox).ok()?.len();
    command.decode(reply).ok()?;
    Some(length)
}

/// Makes PSVs.
#[unsafe(no_mangle)]
pub fn entry_create_psv(pd: Pdn, other: &CreatePsv<4>) -> Option<CreatePsv<4>> {
    let command = CreatePsv::new(pd);
    if command == *other { None } else { Some(command) }
}

/// What a reply says of PSVs.
#[unsafe(no_mangle)]
pub fn entry_psvs(command: &CreatePsv<4>, reply: &[u8]) -> Option<[PsvIndex; 4]> {
    command.decode(reply).ok()
}

/// Holds a secret.
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

/// Takes a key of either size.
#[unsafe(no_mangle)]
pub fn entry_xts_key(short: &[u8; 32], long: &[u8; 64]) -> bool {
    let keys = (XtsKey::new(short), XtsKey::new(long));
    let equal = (XtsKey::allowing_equal_halves(short), XtsKey::allowing_equal_halves(long));
    keys == (Ok(equal.0), Ok(equal.1))
}

/// Shows that there is something secret, and not what.
#[unsafe(no_mangle)]
pub fn entry_print_secrets(out: &mut Silent, secret: &Secret<40>, key: XtsKey<'_, 64>) -> fmt::Result {
    write!(out, "{secret:?} {key:?}")
}
