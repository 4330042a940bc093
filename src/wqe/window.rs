//! The UMR that binds a memory window of type 2 (source: rdma-core `set_bind_wr`).

use super::control::{self, ControlFields};
use crate::mkey::{Access, KlmEntry};
use crate::types::{Key, Qpn};
use crate::wire::ctrl::{ControlSegment, Opcode};
use crate::wire::mkey_context::{MkeyContext, QpnMkey};
use crate::wire::umr::{MkeyMask, UmrControlSegment, UmrFlags, UmrHead};
use crate::wire::{Block, OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS, ZEROS};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::transmute;

/// Number of blocks of a request that binds a window. Its only translation entry takes one block.
pub(crate) const BIND_BLOCKS: usize = UMR_HEAD_BLOCKS + 1;

/// Writes the UMR that binds the window `key` to a range of a region, under tag `tag`. Only the peer of queue
/// pair `qpn` can then use the window.
pub(crate) fn bind(
    blocks: &mut [Block],
    fields: ControlFields,
    key: Key,
    (tag, qpn): (u8, Qpn),
    range: &KlmEntry,
    access: Access,
    start: u64,
) {
    // The mask leaves out the right to local reads, which is set when the window is created.
    let mask = MkeyMask::new()
        .with_free(true)
        .with_mkey(true)
        .with_qpn(true)
        .with_len(true)
        .with_start_addr(true)
        .with_local_write(true)
        .with_remote_read(true)
        .with_remote_write(true)
        .with_atomic(true);
    let flags = UmrFlags::new().with_inline(true).with_translation_offset(true).with_check_free(true);
    let umr = UmrControlSegment {
        flags: flags.into_bits(),
        klm_octowords: U16::new(OCTOWORDS_PER_BLOCK as u16),
        mkey_mask: U64::new(mask.into_bits()),
        ..UmrControlSegment::default()
    };
    let new_context = MkeyContext {
        access: access.to_wire().into_bits(),
        qpn_mkey: U32::new(QpnMkey::new().with_qpn(qpn.get()).with_tag(tag).into_bits()),
        start_addr: U64::new(start),
        len: U64::new(range.length.into()),
        ..MkeyContext::default()
    };
    let [head, context, list, ..] = blocks else { return };
    *head = transmute!(UmrHead { ctrl: ControlSegment::default(), umr });
    *context = transmute!(new_context);
    *list = ZEROS;
    let [first, ..] = list;
    *first = transmute!(range.to_wire());
    let [ctrl, ..] = head;
    control::write(ctrl, Opcode::UMR, BIND_BLOCKS * OCTOWORDS_PER_BLOCK, fields, key.get());
}
