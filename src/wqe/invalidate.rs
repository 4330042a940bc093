//! The UMR request that takes a key out of service.

use super::control::{self, ControlFields};
use crate::types::Key;
use crate::wire::ctrl::{ControlSegment, Opcode};
use crate::wire::mkey_context::{FreeByte, MkeyContext, QpnMkey};
use crate::wire::umr::{MkeyMask, UmrControlSegment, UmrFlags, UmrHead};
use crate::wire::{Block, OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS};
use zerocopy::big_endian::{U32, U64};
use zerocopy::transmute;

/// Number of blocks of the request that takes a key out of service.
pub(crate) const BLOCKS: usize = UMR_HEAD_BLOCKS;

/// Writes the UMR that takes a key out of service (`IBV_WR_LOCAL_INV`).
pub(crate) fn write(blocks: &mut [Block], fields: ControlFields, key: Key) {
    let mask = MkeyMask::new().with_free(true).with_mkey(true).with_qpn(true);
    let flags = UmrFlags::new().with_inline(true).with_translation_offset(true).with_check_qpn(true);
    let umr = UmrControlSegment {
        flags: flags.into_bits(),
        mkey_mask: U64::new(mask.into_bits()),
        ..UmrControlSegment::default()
    };
    let new_context = MkeyContext {
        free: FreeByte::new().with_free(true).into_bits(),
        qpn_mkey: U32::new(QpnMkey::UNBOUND.into_bits()),
        ..MkeyContext::default()
    };
    let [head, context, ..] = blocks else { return };
    *head = transmute!(UmrHead { ctrl: ControlSegment::default(), umr });
    *context = transmute!(new_context);
    let [ctrl, ..] = head;
    let octowords = BLOCKS * OCTOWORDS_PER_BLOCK;
    control::write(ctrl, Opcode::UMR, octowords, fields, key.get());
}
