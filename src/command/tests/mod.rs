//! Tests of commands. They compare requests and replies byte for byte with expected bytes.
//!
//! Expected words come from a C program that fills mailboxes like rdma-core's `verbs.c` and `dr_devx.c`, with
//! rdma-core's own macros (`DEVX_SET` of `mlx5dv.h` over its `mlx5_ifc.h`). Other expected bytes are composed
//! of fields at bit positions, see [`super::bits`]. Fields that rdma-core's header lacks follow the headers
//! of the kernel and of DPDK.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

extern crate std;

mod capabilities;
mod keys;
mod mkey;
mod queues;
mod replies;
mod resources;
mod startup;

use super::bits::{Field, Word, assert_encodes, from_fields, from_words};
use super::*;
use crate::command::error::{CommandError, EqualHalves};
use crate::mkey::{Access, Keytag, Mkey, SignatureCapabilities, XtsEngine};
use crate::types::QueueError;
use crate::types::UmrFence;
use crate::types::{Cqn, DekId, Key, MkeyIndex, OutOfRange, PsvIndex, Qpn};
use crate::wire::prm::encryption_key::{CreateKeyRequest, EncryptionKey};
use crate::wire::prm::mkey::{CreateMkeyRequest, MkcFlags, MkcPd};
use crate::wire::prm::object::ObjectType;
use crate::wire::prm::qp::CreateQpRequest;
use crate::wire::prm::qp_context::{QpcScatter, QpcSizes};
use proptest::prelude::*;
use std::format;
use std::string::ToString;
use std::vec;

fn pd() -> Pdn {
    Pdn::new(0xab_cdef).unwrap()
}

fn qp() -> Qpn {
    Qpn::new(0x12_3456).unwrap()
}

fn words<C: Command>(command: &C, words: &[Word]) {
    assert_encodes(command, &from_words(C::INPUT, words));
}

fn fields<C: Command>(command: &C, fields: &[Field]) {
    assert_encodes(command, &from_fields(C::INPUT, fields));
}

fn mkey(features: MkeyFeatures) -> CreateMkey {
    CreateMkey { pd: pd(), max_entries: EntryCount::new(17).unwrap(), features, tag: 0 }
}
