//! SET_PSV requests: give a protection signature its start value.

use super::Sink;
use crate::mkey::{Domain, Signature};
use crate::types::{PsvIndex, Seed};
use crate::wire::ctrl::ControlSegment;
use crate::wire::psv::SetPsvSegment;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::transmute;

/// Blocks of a SET_PSV request.
pub(crate) const BLOCKS: u32 = 1;

/// Control segment and payload, in octowords.
pub(crate) const OCTOWORDS: usize = 2;

/// Hands on the request that starts the signature of a domain.
#[inline(always)]
pub(crate) fn set_psv(psv: PsvIndex, domain: &Domain, control: ControlSegment, sink: &mut impl Sink) {
    sink.put(transmute!(control));
    sink.put(transmute!(SetPsvSegment {
        psv_index: U32::new(psv.get()),
        syndrome: U16::ZERO,
        reserved: U16::ZERO,
        transient_signature: U64::new(transient_signature(&domain.signature)),
    }));
}

/// Returns the start value of a signature as a PSV holds it (DEVICE.md 4.2).
fn transient_signature(signature: &Signature) -> u64 {
    match signature {
        Signature::T10Dif(dif) => {
            let guard = match dif.seed {
                Seed::Zeros => 0,
                Seed::Ones => 0xffff,
            };
            guard << 48 | u64::from(dif.app_tag) << 32 | u64::from(dif.ref_tag)
        }
        Signature::Crc32(seed) | Signature::Crc32c(seed) => match seed {
            Seed::Zeros => 0,
            Seed::Ones => 0xffff_ffff_0000_0000,
        },
        Signature::Crc64Xp10(seed) => match seed {
            Seed::Zeros => 0,
            Seed::Ones => u64::MAX,
        },
    }
}
