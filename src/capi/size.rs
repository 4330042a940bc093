//! Functions that compute how many blocks and completion entries requests need. With these numbers a program
//! chooses the sizes of its queues.

#![allow(unsafe_code)] // `no_mangle` is unsafe.

use super::pool::{MLX5MK_POOL_CRYPTO, MLX5MK_POOL_MINIMAL, PoolSpec};
use super::post::{
    MLX5MK_OP_BIND, MLX5MK_OP_COMPARE_SWAP, MLX5MK_OP_FETCH_ADD, MLX5MK_OP_INVALIDATE,
    MLX5MK_OP_MASKED_COMPARE_SWAP, MLX5MK_OP_MASKED_FETCH_ADD, MLX5MK_OP_MEMCPY, MLX5MK_OP_NOP,
    MLX5MK_OP_RDMA_READ, MLX5MK_OP_RDMA_WRITE, MLX5MK_OP_RDMA_WRITE_IMM, MLX5MK_OP_SEND, MLX5MK_OP_SEND_IMM,
    MLX5MK_OP_SEND_INVALIDATE, Request,
};
use crate::devx::CqSpec;
use crate::mkey::{MkeyKind, SignatureCapabilities, UmrForm, XtsEngine};
use crate::wqe::{MaskedAtomic, RequestSize};

/// The size of a request. A program adds up the sizes of the requests that may be outstanding at a time.
#[repr(C)]
pub struct Size {
    /// Number of blocks of 64 bytes, for the field `send_blocks` of a queue pair, which is rounded up to a
    /// power of two.
    pub blocks: u32,
    /// Number of work requests, for the field `max_requests` of a queue pair. The queue pair sets aside an
    /// entry of the completion queue for each work request.
    pub requests: u32,
}

impl From<RequestSize> for Size {
    fn from(RequestSize { blocks, requests }: RequestSize) -> Self {
        Self { blocks, requests }
    }
}

/// Value of `domains` of mlx5mk_configure_size: the pool of the mkey was created without a completion queue,
/// so its mkeys have no signatures.
pub const MLX5MK_NO_SIGNATURES: u32 = u32::MAX;

/// Returns the largest size of a configuration (mlx5mk_post_configure) of an mkey of a pool: `entries` is the
/// largest number of entries of its layout, plus one for an interleaved layout, or 0 if the mkey keeps its
/// layout. `domains` is the largest number of domains with a signature, 0 to 2; for a digest 1;
/// MLX5MK_NO_SIGNATURES for a pool without signatures. If `pool` is NULL, all numbers of the size are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_configure_size(pool: Option<&PoolSpec>, entries: u32, domains: u32) -> Size {
    let Some(spec) = pool else { return RequestSize::NONE.into() };
    let is_minimal = spec.flags & MLX5MK_POOL_MINIMAL != 0;
    let (signature, domains) = match domains {
        MLX5MK_NO_SIGNATURES => (None, 0),
        _ => (Some(SignatureCapabilities::ALL), domains.min(2)),
    };
    let kind = MkeyKind {
        max_entries: spec.max_entries,
        signature,
        crypto: (spec.flags & MLX5MK_POOL_CRYPTO != 0).then_some(XtsEngine::MultiBlock),
        form: if is_minimal { UmrForm::Minimal } else { UmrForm::Complete },
        entry_size: None,
    };
    RequestSize::configure_mkey(&kind, entries as usize, domains).into()
}

/// The masked atomic that needs the most bytes in a request.
const LONGEST_ATOMIC: MaskedAtomic =
    MaskedAtomic::CompareSwap64 { compare: 0, compare_mask: 0, swap: 0, swap_mask: 0 };

/// Returns the size of a request that moves data (mlx5mk_post), of an invalidation (MLX5MK_OP_INVALIDATE), or
/// of the binding of a memory window (MLX5MK_OP_BIND). Only `operation`, `sge_count`, `inline_data` and
/// `inline_bytes` of the request matter, and the function does not follow pointers. If `request` is NULL or
/// has another operation, all numbers of the size are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_request_size(request: Option<&Request>) -> Size {
    let Some(request) = request else { return RequestSize::NONE.into() };
    let (sges, inline) = (request.sge_count as usize, request.inline_bytes as usize);
    let is_inline = !request.inline_data.is_null();
    match request.operation {
        MLX5MK_OP_NOP => RequestSize::nop(),
        MLX5MK_OP_COMPARE_SWAP | MLX5MK_OP_FETCH_ADD | MLX5MK_OP_MASKED_FETCH_ADD => RequestSize::atomic(),
        MLX5MK_OP_MASKED_COMPARE_SWAP => RequestSize::masked_atomic(&LONGEST_ATOMIC),
        MLX5MK_OP_MEMCPY => RequestSize::memcpy(),
        MLX5MK_OP_INVALIDATE => RequestSize::invalidate(),
        MLX5MK_OP_BIND => RequestSize::bind_window(),
        MLX5MK_OP_RDMA_READ => RequestSize::rdma(sges),
        MLX5MK_OP_RDMA_WRITE | MLX5MK_OP_RDMA_WRITE_IMM if is_inline => RequestSize::rdma_inline(inline),
        MLX5MK_OP_RDMA_WRITE | MLX5MK_OP_RDMA_WRITE_IMM => RequestSize::rdma(sges),
        MLX5MK_OP_SEND | MLX5MK_OP_SEND_IMM | MLX5MK_OP_SEND_INVALIDATE if is_inline => {
            RequestSize::send_inline(inline)
        }
        MLX5MK_OP_SEND | MLX5MK_OP_SEND_IMM | MLX5MK_OP_SEND_INVALIDATE => RequestSize::send(sges),
        _ => RequestSize::NONE,
    }
    .into()
}

/// Returns the number of entries of a completion queue for `queue_pairs` queue pairs, each with up to `sends`
/// outstanding send work requests and `receives` receive requests, and for `mkeys` mkeys with signatures. The
/// result is a power of two.
#[unsafe(no_mangle)]
pub extern "C" fn mlx5mk_cq_entries(queue_pairs: u32, sends: u32, receives: u32, mkeys: u32) -> u32 {
    CqSpec::entries_for(queue_pairs, sends, receives, mkeys)
}
