//! Creates and connects queue pairs.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::Pd;
use super::error::{Error, Failure, attempt, given};
use super::group::{Cq, Member, Qp};
use super::values::{only, room};
use crate::command::{
    FlowLabel, LogAckInterval, PathMtu, PeerAtomics, Psn, QpAccess, QpState, Retries, RnrTimer,
    TimestampFormat,
};
use crate::devx::{AdoptSpec, ConnectOptions, DevxError, QpAddress, QueuePair, QueuePairSpec};
use crate::types::Qpn;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::boxed::Box;

/// Flag of a queue pair: every send request has a completion.
pub const MLX5MK_QP_SIGNAL_ALL: u32 = 1;
/// Flag of a queue pair: a signature error stops the send queue before the next request.
pub const MLX5MK_QP_DRAIN_ON_SIGNATURE_ERROR: u32 = 2;

/// Flag of a queue pair: requests may copy local memory (MLX5MK_OP_MEMCPY). Not every device supports this.
pub const MLX5MK_QP_MEMCPY: u32 = 4;
/// Flag of a queue pair: the library asks for a BlueFlame register, a doorbell that takes a whole request. If
/// a doorbell publishes a single request that fits, the library writes the request to the register, so the
/// device need not read it from memory. mlx5mk_qp_has_blue_flame tells whether the queue pair got the
/// register.
pub const MLX5MK_QP_BLUE_FLAME: u32 = 8;
/// Flag of a queue pair: the peer may use masked atomics (MLX5MK_OP_MASKED_COMPARE_SWAP,
/// MLX5MK_OP_MASKED_FETCH_ADD). Not every device supports this.
pub const MLX5MK_QP_MASKED_ATOMICS: u32 = 16;

/// Format of time stamps: ticks of the device's free-running clock.
pub const MLX5MK_TIMESTAMPS_FREE_RUNNING: u32 = 1;
/// Format of time stamps: the one that the device prefers.
pub const MLX5MK_TIMESTAMPS_DEVICE_DEFAULT: u32 = 2;
/// Format of time stamps: seconds and nanoseconds of the device's real-time clock.
pub const MLX5MK_TIMESTAMPS_REAL_TIME: u32 = 3;

/// The properties of a queue pair. A field that is 0 stands for its default.
#[repr(C)]
pub struct QpSpec {
    /// Size of the send ring in blocks of 64 bytes, rounded up to a power of two, at most 32768. Default 256.
    /// An RDMA WRITE of one segment takes one block. A configuration of an mkey with four entries takes two
    /// blocks, and one more block each for a signature, for crypto, and for each domain that has a signature.
    pub send_blocks: u32,
    /// The number of receive requests that the receive queue holds, rounded up to a power of two, at most
    /// 32768. Default 16.
    pub receive_slots: u32,
    /// The largest number of buffers of a receive request, a power of two. Default 4.
    pub receive_sges: u32,
    /// The largest number of send work requests that may be outstanding. A configuration of an mkey may
    /// consist of several work requests. The queue pair sets aside an entry of the completion queue for each
    /// work request. Default: the number of blocks of the send ring.
    pub max_requests: u32,
    /// A sum of the flags MLX5MK_QP_SIGNAL_ALL, MLX5MK_QP_DRAIN_ON_SIGNATURE_ERROR, MLX5MK_QP_MEMCPY,
    /// MLX5MK_QP_BLUE_FLAME and MLX5MK_QP_MASKED_ATOMICS, or 0.
    pub flags: u32,
    /// Number of the device's port. Default 1.
    pub port: u32,
    /// Format of the time stamps in completion entries, MLX5MK_TIMESTAMPS_FREE_RUNNING or another
    /// MLX5MK_TIMESTAMPS constant. Default: ticks of the free-running clock, or the device's preferred format
    /// if it has no such clock.
    pub timestamps: u32,
}

/// The options of a connection. A field that is 0 stands for its default. The defaults are those of
/// rdma-core's tools. Both sides use the same options.
#[repr(C)]
pub struct ConnectSpec {
    /// Entry of the own GID table, which also decides the version of RoCE (`ibv_devinfo -v` lists the table).
    /// Default 0.
    pub gid_index: u8,
    /// Traffic class of RoCE; its upper 6 bits are the DSCP. Default 0.
    pub traffic_class: u8,
    /// InfiniBand service level or Ethernet priority, 0 to 7. Default 0.
    pub service_level: u8,
    /// The time for which the device waits for an acknowledgement: n from 1 to 31 stands for 4.096 us * 2^n.
    /// Default 14: 67 ms.
    pub ack_timeout: u8,
    /// Number of the first packet that this side sends, below 2^24. Use a random number, so that late packets
    /// of an earlier connection are not taken for packets of this one. Default 0.
    pub first_psn: u32,
    /// The number of packets after which a request asks for an acknowledgement, a power of two up to 256.
    /// Default 256. With a smaller number a lost packet is found sooner, at a higher cost for the wire and
    /// both devices.
    pub ack_packets: u32,
    /// Largest packet: 256, 512, 1024, 2048 or 4096 bytes. The default is the smaller active MTU of the two
    /// ports.
    pub mtu: u32,
    /// Retries after an acknowledgement timed out: 1 to 7, or MLX5MK_NO_RETRIES. Default 7.
    pub retries: u8,
    /// Retries when the peer has no receive request: 1 to 6, MLX5MK_NO_RETRIES, or 7, which is no limit and
    /// the default.
    pub rnr_retries: u8,
    /// The time for which the peer waits before a retry when this side has no receive request: the code of
    /// `ibv_modify_qp` (`min_rnr_timer`), 1 to 31. Default 12: 0.64 ms.
    pub rnr_timer: u8,
    /// Hop limit of RoCE. Default 255.
    pub hop_limit: u8,
    /// Flow label of RoCE, below 2^20. Default 0.
    pub flow_label: u32,
}

/// A value of `retries` and `rnr_retries`: no retries.
pub const MLX5MK_NO_RETRIES: u8 = 255;

/// The address of a queue pair, which its peer needs to connect. The two sides exchange the bytes unchanged,
/// by any means.
#[repr(C)]
pub struct Address {
    /// The bytes of the Rust library's QpAddress: programs in C and in Rust can connect to each other.
    pub bytes: [u8; 28],
}

const _: () = assert!(size_of::<Address>() == QpAddress::BYTES);

/// The largest size of a queue: blocks of a send queue, or receive requests of a receive queue.
const MAX_SIZE: u32 = 1 << 15;

/// Returns the size of a queue, rounded up to a power of two.
const fn size(what: &'static str, value: u32) -> Result<u32, Failure> {
    if value > MAX_SIZE {
        return Err(Failure::Value { what, value: value as u64 });
    }
    Ok(value.next_power_of_two())
}

const DEFAULT: QpSpec = QpSpec {
    send_blocks: 0,
    receive_slots: 0,
    receive_sges: 0,
    max_requests: 0,
    flags: 0,
    port: 0,
    timestamps: 0,
};

/// Returns `value`, or `default` if `value` is 0.
const fn or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

/// Converts a MLX5MK_TIMESTAMPS constant into a format of time stamps. Returns `None` for 0: the library then
/// chooses the format.
const fn timestamps(format: u32) -> Result<Option<TimestampFormat>, Failure> {
    Ok(Some(match format {
        0 => return Ok(None),
        MLX5MK_TIMESTAMPS_FREE_RUNNING => TimestampFormat::FreeRunning,
        MLX5MK_TIMESTAMPS_DEVICE_DEFAULT => TimestampFormat::DeviceDefault,
        MLX5MK_TIMESTAMPS_REAL_TIME => TimestampFormat::RealTime,
        other => return Err(Failure::Value { what: "timestamps", value: other as u64 }),
    }))
}

/// Registers the queue pair with its completion queues, so that completions find it, and writes its handle to
/// `place`.
fn join(queues: QueuePair, cqs: [NonNull<Cq>; 2], place: &mut MaybeUninit<*mut Qp>) -> Result<i32, Failure> {
    let qpn = queues.qpn();
    let qp = NonNull::from(Box::leak(Box::new(Qp { queues, cqs })));
    for (number, mut cq) in of(cqs).enumerate() {
        // SAFETY: the caller ensures that the completion queue exists. No other reference to the queue exists
        // now, because all calls of the group are made one after the other.
        let joined = unsafe { cq.as_mut() }.members.join(Member { qpn, qp });
        if let Err(error) = joined {
            of(cqs).take(number).for_each(|cq| leave(cq, qpn));
            // SAFETY: the queue pair was leaked above, and nobody else has its address.
            drop(unsafe { Box::from_raw(qp.as_ptr()) });
            return Err(DevxError::Queue(error).into());
        }
    }
    place.write(qp.as_ptr());
    Ok(0)
}

/// Returns the completion queues of a queue pair, each once.
fn of([send, receive]: [NonNull<Cq>; 2]) -> impl Iterator<Item = NonNull<Cq>> {
    [Some(send), (receive != send).then_some(receive)].into_iter().flatten()
}

fn leave(mut cq: NonNull<Cq>, qpn: Qpn) {
    // SAFETY: the completion queue cannot be destroyed while queue pairs complete to it, and no other call
    // uses it.
    unsafe { cq.as_mut() }.members.queue_pairs.remove(qpn);
}

/// Creates a queue pair in the state INIT. Its completions arrive at `send_cq` and `receive_cq`, which may be
/// the same. NULL as `spec` stands for the defaults. Next, connect the queue pair; receive requests may be
/// posted before that.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_CQ_TOO_SMALL, MLX5MK_SYSTEM, MLX5MK_COMMAND (also where the device does
/// not support a flag or the time stamps of `spec`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_create(
    pd: Option<&Pd>,
    send_cq: Option<NonNull<Cq>>,
    receive_cq: Option<NonNull<Cq>>,
    spec: Option<&QpSpec>,
    qp: Option<&mut MaybeUninit<*mut Qp>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, place) = (given(pd, "pd")?, given(qp, "qp")?);
        let handles = [given(send_cq, "send_cq")?, given(receive_cq, "receive_cq")?];
        let spec = spec.unwrap_or(&DEFAULT);
        let known = MLX5MK_QP_SIGNAL_ALL
            | MLX5MK_QP_DRAIN_ON_SIGNATURE_ERROR
            | MLX5MK_QP_MEMCPY
            | MLX5MK_QP_BLUE_FLAME
            | MLX5MK_QP_MASKED_ATOMICS;
        only(spec.flags, known, "flags")?;
        // SAFETY: the caller ensures that both handles are those of completion queues.
        let [send_cq, receive_cq] = handles.map(|cq| unsafe { cq.as_ref() });
        let each = send_cq.members.spec()?;
        let atomics = match spec.flags & MLX5MK_QP_MASKED_ATOMICS {
            0 if !pd.device.capabilities().atomic => PeerAtomics::None,
            0 => PeerAtomics::Plain,
            _ => PeerAtomics::Masked,
        };
        let wanted = QueuePairSpec {
            send_blocks: size("send_blocks", or(spec.send_blocks, 256))?,
            receive_slots: size("receive_slots", or(spec.receive_slots, 16))?,
            entries_per_slot: or(spec.receive_sges, each.entries_per_slot),
            max_requests: (spec.max_requests != 0).then_some(spec.max_requests),
            signal_all: spec.flags & MLX5MK_QP_SIGNAL_ALL != 0,
            drain_on_signature_error: spec.flags & MLX5MK_QP_DRAIN_ON_SIGNATURE_ERROR != 0,
            memcpy: spec.flags & MLX5MK_QP_MEMCPY != 0,
            blue_flame: spec.flags & MLX5MK_QP_BLUE_FLAME != 0,
            timestamps: timestamps(spec.timestamps)?,
            access: QpAccess { atomics, ..each.access },
            port: u8::try_from(or(spec.port, each.port.into()))
                .map_err(|_| Failure::Value { what: "port", value: spec.port.into() })?,
            ..each
        };
        let queues = pd.device.create_qp(&pd.pd, &send_cq.cq, &receive_cq.cq, wanted)?;
        join(queues, handles, place)
    })
}

/// Takes over an idle queue pair that the program has created and connected, for example through librdmacm:
/// `ibv_qp` is a `struct ibv_qp` of libmlx5. `pd`, `send_cq` and `receive_cq` are the handles of its
/// protection domain and its completion queues, which the program has adopted before.
///
/// The function reads only two fields of `spec`: `max_requests`, to which the caller sets the `max_send_wr`
/// of the queue pair, and `flags`, which is MLX5MK_QP_SIGNAL_ALL if the queue pair was created with
/// `sq_sig_all`, otherwise 0. NULL stands for the defaults.
///
/// The caller ensures:
///
/// - All requests posted to the queue pair have completed, and their completions were taken before its
///   completion queues were adopted.
/// - The program does not destroy the queue pair as long as the handle exists.
/// - From this call on, the program never posts to the queue pair through libibverbs, even after the handle
///   is destroyed.
/// - While this library posts to the queue pair, libmlx5 posts to no other queue pair of the context with the
///   same doorbell register. The reason: libmlx5 writes whole requests to the register, and a doorbell of
///   this library must not come between those writes. With MLX5_SHUT_UP_BF=1, set before the context was
///   opened, libmlx5 writes only doorbells, and may post.
///
/// By default libmlx5 creates queue pairs that receive short messages into completion entries, and this
/// function refuses them. To avoid that, set MLX5_SCATTER_TO_CQE=0 in the environment before the queue pair
/// is created, or create it with MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE.
///
/// Errors: MLX5MK_ADOPT for a queue pair that the library cannot use or that still has outstanding requests,
/// MLX5MK_ARGUMENT, MLX5MK_CQ_TOO_SMALL, MLX5MK_SYSTEM, MLX5MK_COMMAND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_adopt(
    pd: Option<&Pd>,
    send_cq: Option<NonNull<Cq>>,
    receive_cq: Option<NonNull<Cq>>,
    ibv_qp: *mut c_void,
    spec: Option<&QpSpec>,
    qp: Option<&mut MaybeUninit<*mut Qp>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, place) = (given(pd, "pd")?, given(qp, "qp")?);
        let handles = [given(send_cq, "send_cq")?, given(receive_cq, "receive_cq")?];
        let ibv_qp = given(NonNull::new(ibv_qp), "ibv_qp")?;
        let spec = spec.unwrap_or(&DEFAULT);
        only(spec.flags, MLX5MK_QP_SIGNAL_ALL, "flags")?;
        // SAFETY: the caller ensures that both handles are those of completion queues.
        let [send_cq, receive_cq] = handles.map(|cq| unsafe { cq.as_ref() });
        let wanted = AdoptSpec {
            signal_all: spec.flags & MLX5MK_QP_SIGNAL_ALL != 0,
            max_requests: (spec.max_requests != 0).then_some(spec.max_requests),
        };
        // SAFETY: the caller ensures the conditions that the docstring states.
        let queues = unsafe { pd.device.adopt_qp(ibv_qp, &pd.pd, &send_cq.cq, &receive_cq.cq, wanted)? };
        join(queues, handles, place)
    })
}

/// Returns the number of the queue pair, below 2^24; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_number(qp: Option<&Qp>) -> u32 {
    qp.map_or(0, |qp| qp.queues.qpn().get())
}

/// Returns 1 if the queue pair has a BlueFlame register, otherwise 0, also for NULL. MLX5MK_QP_BLUE_FLAME
/// asks for such a register; devices and kernels without one give a plain doorbell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_has_blue_flame(qp: Option<&Qp>) -> u32 {
    qp.map_or(0, |qp| qp.queues.control().has_blue_flame().into())
}

/// Connects the queue pair to a queue pair of the same device, or to itself. `peer` is the number of that
/// queue pair. The packets do not leave the device.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_COMMAND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_connect_local(
    qp: Option<&Qp>,
    peer: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        given(qp, "qp")?.queues.control().connect_local(Qpn::new(peer)?)?;
        Ok(0)
    })
}

fn options(spec: Option<&ConnectSpec>) -> Result<ConnectOptions, Failure> {
    let mut options = ConnectOptions::default();
    if let Some(spec) = spec {
        options.source_gid_index = spec.gid_index;
        options.traffic_class = spec.traffic_class;
        options.service_level = crate::command::Priority::new(spec.service_level)?;
        options.first_psn = Psn::new(spec.first_psn)?;
        if spec.ack_timeout != 0 {
            options.ack_timeout = crate::command::AckTimeout::new(spec.ack_timeout)?;
        }
        if spec.ack_packets != 0 {
            if !spec.ack_packets.is_power_of_two() {
                return Err(Failure::Value { what: "ack_packets", value: spec.ack_packets.into() });
            }
            options.log_ack_interval = LogAckInterval::new(spec.ack_packets.ilog2() as u8)?;
        }
        options.mtu = match spec.mtu {
            0 => None,
            256 => Some(PathMtu::B256),
            512 => Some(PathMtu::B512),
            1024 => Some(PathMtu::B1024),
            2048 => Some(PathMtu::B2048),
            4096 => Some(PathMtu::B4096),
            other => return Err(Failure::Value { what: "mtu", value: other.into() }),
        };
        for (place, value) in
            [(&mut options.retries, spec.retries), (&mut options.rnr_retries, spec.rnr_retries)]
        {
            match value {
                0 => {}
                MLX5MK_NO_RETRIES => *place = Retries::new(0)?,
                value => *place = Retries::new(value)?,
            }
        }
        if spec.rnr_timer != 0 {
            options.rnr_timer = RnrTimer::new(spec.rnr_timer)?;
        }
        if spec.hop_limit != 0 {
            options.hop_limit = spec.hop_limit;
        }
        options.flow_label = FlowLabel::new(spec.flow_label)?;
    }
    Ok(options)
}

/// Writes the address that the peer needs to connect. NULL as `spec` stands for the defaults.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM where the port or the entry of its GID table does not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_address(
    qp: Option<&Qp>,
    spec: Option<&ConnectSpec>,
    address: Option<&mut MaybeUninit<Address>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, address) = (given(qp, "qp")?, given(address, "address")?);
        let own = qp.queues.control().address(&options(spec)?)?;
        address.write(Address { bytes: own.to_bytes() });
        Ok(0)
    })
}

/// Connects to a peer by the peer's address. Pass the same `spec` as to mlx5mk_qp_address. Post send requests
/// only after the peer has connected as well. The two programs have to tell each other that they have
/// connected, for example over TCP.
///
/// Errors: MLX5MK_ARGUMENT for bytes that are no address, MLX5MK_SYSTEM where the kernel finds no route to
/// the peer's GID, MLX5MK_COMMAND where the device refuses. After MLX5MK_COMMAND, call mlx5mk_qp_reset: it
/// takes the queue pair back to INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_connect(
    qp: Option<&Qp>,
    peer: Option<&Address>,
    spec: Option<&ConnectSpec>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, peer) = (given(qp, "qp")?, given(peer, "peer")?);
        let peer = QpAddress::from_bytes(&peer.bytes).map_err(DevxError::from)?;
        qp.queues.control().connect(&peer, &options(spec)?)?;
        Ok(0)
    })
}

/// State of a queue pair: RESET.
pub const MLX5MK_QP_RESET: u32 = 0;
/// State of a queue pair: INIT. It can be connected.
pub const MLX5MK_QP_INIT: u32 = 1;
/// State of a queue pair: RTR, ready to receive.
pub const MLX5MK_QP_RTR: u32 = 2;
/// State of a queue pair: RTS, ready to receive and to send.
pub const MLX5MK_QP_RTS: u32 = 3;
/// State of a queue pair: its send queue has failed.
pub const MLX5MK_QP_SQ_ERROR: u32 = 4;
/// State of a queue pair: its send queue has stopped before a request. Requests can be cancelled
/// (mlx5mk_qp_cancel), and mlx5mk_qp_resume continues the queue.
pub const MLX5MK_QP_SQ_DRAINED: u32 = 5;
/// State of a queue pair: it has failed.
pub const MLX5MK_QP_ERROR: u32 = 6;
/// State of a queue pair: the device reports a state that this library does not know.
pub const MLX5MK_QP_UNKNOWN: u32 = 7;

/// The device's description of a queue pair.
#[repr(C)]
pub struct QpInfo {
    /// State of the queue pair: MLX5MK_QP_RTS or another.
    pub state: u32,
    /// Number of the send queue's block that the device executes next, modulo 2^16.
    pub next_send_block: u32,
    /// Number of the block behind the last send request that was published with a doorbell, modulo 2^16.
    pub announced_send_block: u32,
    /// Number of receive requests that messages have consumed so far.
    pub receives_taken: u32,
    /// Number of the peer's queue pair.
    pub remote_qpn: u32,
    /// Number of the next packet to send.
    pub next_send_psn: u32,
    /// Number of the next packet to receive.
    pub next_receive_psn: u32,
}

/// Converts the device's description of a queue pair into the structure for C.
pub(super) const fn qp_info(info: &crate::command::QpInfo) -> QpInfo {
    QpInfo {
        state: match info.state {
            QpState::RESET => MLX5MK_QP_RESET,
            QpState::INIT => MLX5MK_QP_INIT,
            QpState::RTR => MLX5MK_QP_RTR,
            QpState::RTS => MLX5MK_QP_RTS,
            QpState::SQ_ERROR => MLX5MK_QP_SQ_ERROR,
            QpState::SQ_DRAINED => MLX5MK_QP_SQ_DRAINED,
            QpState::ERROR => MLX5MK_QP_ERROR,
            _ => MLX5MK_QP_UNKNOWN,
        },
        next_send_block: info.next_send_block as u32,
        announced_send_block: info.announced_send_block as u32,
        receives_taken: info.receives_taken,
        remote_qpn: info.remote_qp.get(),
        next_send_psn: info.next_send_psn.get(),
        next_receive_psn: info.next_receive_psn.get(),
    }
}

/// Asks the device for the state and the counters of a queue pair.
///
/// Errors: MLX5MK_COMMAND, MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_query(
    qp: Option<&Qp>,
    info: Option<&mut MaybeUninit<QpInfo>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, info) = (given(qp, "qp")?, given(info, "info")?);
        info.write(qp_info(&qp.queues.control().query()?));
        Ok(0)
    })
}

/// Turns every send request named `id` that was not executed into a NOP, and returns the number of these
/// requests (`mlx5dv_qp_cancel_posted_send_wrs`). The send queue must be drained (MLX5MK_QP_SQ_DRAINED).
/// After the call, continue the queue with mlx5mk_qp_resume. The NOP has a completion if the request would
/// have had one. A configuration counts as several requests if it consists of several work requests. If a
/// configuration was cancelled, call mlx5mk_mkey_forget for its mkey. If an invalidation was cancelled, pools
/// accept no completion for the invalidations posted before this call: post them again.
///
/// Errors: MLX5MK_ARGUMENT for a queue that is not drained, MLX5MK_COMMAND, MLX5MK_REQUEST where the device
/// reports a next block (`next_send_block`) at which no request begins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_cancel(
    qp: Option<&mut Qp>,
    id: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let qp = given(qp, "qp")?;
        let info = qp.queues.control().query()?;
        if info.state != QpState::SQ_DRAINED {
            return Err(Failure::Wanted("requests are cancelled while the send queue is drained"));
        }
        Ok(qp.queues.cancel(id, info.next_send_block)? as i32)
    })
}

/// Resumes a drained send queue. Linux allows this only for queue pairs that libibverbs created
/// (mlx5mk_qp_adopt). On Linux, mlx5mk_qp_create therefore refuses MLX5MK_QP_DRAIN_ON_SIGNATURE_ERROR.
/// Cancelled requests count as executed.
///
/// Errors: MLX5MK_COMMAND, MLX5MK_SYSTEM, also for a queue that is not drained. After an error the queue is
/// as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_resume(qp: Option<&Qp>, error: Option<&mut MaybeUninit<Error>>) -> i32 {
    attempt(error, || {
        given(qp, "qp")?.queues.control().resume()?;
        Ok(0)
    })
}

/// Puts the queue pair into the error state: the device flushes all outstanding requests, which complete as
/// MLX5MK_FAILED.
///
/// Errors: MLX5MK_COMMAND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_fail(qp: Option<&Qp>, error: Option<&mut MaybeUninit<Error>>) -> i32 {
    attempt(error, || {
        given(qp, "qp")?.queues.control().fail()?;
        Ok(0)
    })
}

/// An array of the caller for names of requests (`id`), and the number of requests.
#[repr(C)]
pub struct Names {
    /// Memory for `room` names. May be NULL if `room` is 0.
    pub ids: *mut u64,
    /// The size of `ids`, in names.
    pub room: u32,
    /// Written by mlx5mk_qp_reset: the number of outstanding requests. If it exceeds `room`, only `room`
    /// names are written.
    pub count: u32,
}

/// The outstanding requests of a queue pair.
#[repr(C)]
pub struct Outstanding {
    /// The names of the send requests, each once and oldest first.
    pub sends: Names,
    /// The names of the receive requests.
    pub receives: Names,
}

/// Takes a queue pair from any state back to INIT, with empty queues, so that it can be connected anew. Use
/// this after a request has failed, for example.
///
/// Writes the names of the outstanding requests to `outstanding`; NULL drops them. The device may have
/// executed some of these requests. There are at most `send_blocks` send requests and `receive_slots` receive
/// requests. If one of them is a configuration, the state of its mkey is unknown: call mlx5mk_mkey_forget.
/// Signature errors stay in the completion queue: poll it, and check each mkey, before you configure mkeys
/// anew.
///
/// Errors: MLX5MK_ARGUMENT: nothing has changed. MLX5MK_COMMAND, MLX5MK_SYSTEM: call the function again; the
/// names of the outstanding requests are not lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_reset(
    qp: Option<&mut Qp>,
    outstanding: Option<&mut Outstanding>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Qp { queues, cqs } = given(qp, "qp")?;
        let lacks = |names: &Names| names.room > 0 && names.ids.is_null();
        if outstanding.as_ref().is_some_and(|told| lacks(&told.sends) || lacks(&told.receives)) {
            return Err(Failure::Null("ids"));
        }
        let [mut send_cq, mut receive_cq] = *cqs;
        // SAFETY: the completion queues exist as long as queue pairs complete to them. Two different queues
        // are used, or one queue once. All calls of the group are made one after the other.
        let found = unsafe {
            if send_cq == receive_cq {
                queues.reset(&mut [&mut send_cq.as_mut().reader])?
            } else {
                queues.reset(&mut [&mut send_cq.as_mut().reader, &mut receive_cq.as_mut().reader])?
            }
        };
        let Some(told) = outstanding else { return Ok(0) };
        for (names, ids) in [(&mut told.sends, found.sends), (&mut told.receives, found.receives)] {
            names.count = ids.len() as u32;
            // SAFETY: the caller ensures that `names.ids` leads to memory for `names.room` values.
            let places = unsafe { room(names.ids.cast::<MaybeUninit<u64>>(), names.room as usize, "ids") };
            for (place, id) in places.unwrap_or_default().iter_mut().zip(ids) {
                place.write(id);
            }
        }
        Ok(0)
    })
}

/// Destroys the queue pair, or gives it back if it was adopted. Its outstanding requests will have no
/// completions. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_destroy(qp: Option<Box<Qp>>) {
    let Some(qp) = qp else { return };
    let qpn = qp.queues.qpn();
    of(qp.cqs).for_each(|cq| leave(cq, qpn));
    drop(qp);
}
