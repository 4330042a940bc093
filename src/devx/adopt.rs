//! Functions that take over queues which another library (libibverbs, librdmacm) has created and connected.

#![allow(unsafe_code)]

use super::cq::{AnyCq, Writer};
use super::queue_pair::{Books, QpMemory, QpObject};
use super::sys::{CqParts, CqSlots, QpParts};
use super::{
    AdoptError, Cq, CqReader, Device, DevxError, ProtectionDomain, QueuePair, QueuePairSpec, RingAddresses,
    carry, sys,
};
use crate::command::{Pdn, QpInfo, QpState, QueryQp};
use crate::queue::{
    CompletionQueue, DoorbellRecord, ReceiveQueue, ReceiveQueueConfig, SendQueue, SendQueueConfig,
    UarCqDoorbell, UarDoorbell,
};
use crate::types::{Cqn, Qpn};
use core::ffi::c_void;
use core::ptr::NonNull;
use std::sync::Arc;

/// Options of a queue pair that is taken over from another library. The queue pair keeps all its other
/// properties.
///
/// ```
/// use mlx5_mkey::devx::AdoptSpec;
/// // For `Device::adopt_qp`: the queue pair was created with `sq_sig_all`, and with `max_send_wr` of 64.
/// let spec = AdoptSpec { signal_all: true, max_requests: Some(64) };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct AdoptSpec {
    /// Whether every request is signalled. Set this field to true if the other library created the queue pair
    /// with `sq_sig_all`, which the device does not report.
    pub signal_all: bool,
    /// The largest number of outstanding send requests, as [`QueuePairSpec::max_requests`]. Set it to the
    /// queue pair's `max_send_wr`, for which the completion queue usually has enough entries. The default is
    /// the number of blocks in the ring, which is larger.
    pub max_requests: Option<u32>,
}

/// Returns the two counters of a doorbell record: the number of posted receive requests, and the number of
/// blocks posted to the send queue.
fn counters(record: &DoorbellRecord) -> [u32; 2] {
    record.bytes().map(u32::from_be_bytes)
}

fn address<T>(slots: &[T]) -> u64 {
    slots.as_ptr().expose_provenance() as u64
}

impl Device {
    /// Takes over an idle completion queue of another library (`struct ibv_cq`), beginning with the entry
    /// after the last one that the other library took. Dropping the returned values does not destroy the
    /// queue. Its events still arrive at the channel with which the other library has created it; see
    /// [`CqReader::arm`].
    ///
    /// # Errors
    /// [`DevxError::Adopt`], [`DevxError::Call`]. This function calls `mlx5dv_init_obj`. After that, even if
    /// this function fails, libmlx5 no longer removes the completions of destroyed queue pairs from this
    /// completion queue: the program has to remove them.
    ///
    /// # Safety
    /// The caller ensures:
    /// - `cq` is a `struct ibv_cq` of libmlx5, whose entries are not compressed.
    /// - The completion queue is not destroyed or resized while the returned values live.
    /// - From this call on, the other library never polls or arms the completion queue, since it does not
    ///   know which entries were taken here. All events for which the other library has armed the queue were
    ///   taken from the channel before.
    pub unsafe fn adopt_cq(&self, cq: NonNull<c_void>) -> Result<(Cq, CqReader), DevxError> {
        // SAFETY: the caller vouches for the conditions of `describe_cq`.
        let CqParts { cqn, record, ring, uar_page } = unsafe { self.context.describe_cq(cq)? };
        let words = record.bytes().map(u32::from_be_bytes);
        let (queue, entries) = match ring {
            CqSlots::B64(ring) => {
                let entries = ring.len();
                (AnyCq::B64(CompletionQueue::new(ring, record)?.starting_at(words)), entries)
            }
            CqSlots::B128(ring) => {
                let entries = ring.len();
                (AnyCq::B128(CompletionQueue::new(ring, record)?.starting_at(words)), entries)
            }
        };
        if !queue.is_empty() {
            return Err(AdoptError::CompletionsWaiting.into());
        }
        let object = sys::Object::of_other(&self.context, None);
        let cqn = Cqn::from_low_bits(cqn);
        // SAFETY: libmlx5 arms the queue by a register of this page, which is mapped as long as the context
        // is open. Both libraries ring the page's doorbells by single stores of 8 bytes, which are atomic on
        // 64-bit hosts.
        let doorbell = unsafe { UarCqDoorbell::new(uar_page, cqn) };
        Ok(Cq::new(cqn, entries as u32, object, queue, doorbell, &self.unclaimed))
    }

    /// Takes over an idle queue pair that another library has created and connected (`struct ibv_qp`): its
    /// rings, doorbell record and doorbell register. Posting continues after the last request of the other
    /// library. Dropping the value does not destroy the queue pair.
    ///
    /// `pd`, `send_cq` and `receive_cq` are the protection domain and the completion queues of the queue
    /// pair. Take them over first, with [`Device::adopt_pd`] and [`Device::adopt_cq`].
    ///
    /// By default libmlx5 creates queue pairs that receive short messages into completion entries. This
    /// function refuses such queue pairs. To avoid them, set `MLX5_SCATTER_TO_CQE=0` in the environment
    /// before the queue pair is created, or create it with `MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`. A queue
    /// pair of librdmacm has no outstanding receive requests if the program posts none before this call.
    ///
    /// ```no_run
    /// use core::ffi::c_void;
    /// use core::ptr::NonNull;
    /// use mlx5_mkey::devx::{AdoptSpec, CqReader, Device, DevxError, ProtectionDomain, QueuePair};
    ///
    /// /// Fields of librdmacm's `struct rdma_cm_id`, as a binding has them.
    /// struct CmId {
    ///     verbs: NonNull<c_void>,
    ///     pd: NonNull<c_void>,
    ///     qp: NonNull<c_void>,
    ///     send_cq: NonNull<c_void>,
    ///     recv_cq: NonNull<c_void>,
    /// }
    ///
    /// struct Connection {
    ///     queue: QueuePair,
    ///     completions: [CqReader; 2],
    ///     pd: ProtectionDomain,
    /// }
    ///
    /// /// Takes over a connection, after RDMA_CM_EVENT_ESTABLISHED.
    /// ///
    /// /// # Safety
    /// /// `id` is connected, of an mlx5 device, and is destroyed (`rdma_destroy_qp`, `rdma_destroy_id`)
    /// /// after the connection.
    /// unsafe fn take_over(id: &CmId) -> Result<Connection, DevxError> {
    ///     // SAFETY: the caller vouches for the objects, and nothing but the connection posts or polls.
    ///     unsafe {
    ///         // libmlx5 opens devices with DEVX by itself, where the kernel lets it.
    ///         let device = Device::adopt(id.verbs)?;
    ///         let pd = device.adopt_pd(id.pd)?;
    ///         let (send_cq, sends) = device.adopt_cq(id.send_cq)?;
    ///         let (receive_cq, receives) = device.adopt_cq(id.recv_cq)?;
    ///         let spec = AdoptSpec::default();
    ///         let queue = device.adopt_qp(id.qp, &pd, &send_cq, &receive_cq, spec)?;
    ///         Ok(Connection { queue, completions: [sends, receives], pd })
    ///     }
    /// }
    /// ```
    ///
    /// Queue pairs of libibverbs are tested. The example for librdmacm compiles, but was never run.
    ///
    /// # Errors
    /// [`DevxError::Adopt`] for a queue pair that the library cannot use or that still has outstanding
    /// requests, [`DevxError::Queue`] for a queue pair whose queues have impossible sizes,
    /// [`DevxError::CompletionQueueTooSmall`], [`DevxError::Command`], [`DevxError::Call`].
    ///
    /// # Safety
    /// The caller ensures:
    /// - `qp` is a `struct ibv_qp` of libmlx5, and is not destroyed while the value or a clone of its control
    ///   lives.
    /// - The queue pair is idle: all requests posted to it have completed, and their completions were taken
    ///   before its completion queues are taken over. The function checks only the counters of executed
    ///   requests that the device reports.
    /// - From this call on, the other library never posts to the queue pair, since it does not know of
    ///   requests that are posted here.
    /// - While requests are posted here, the other library posts to no other queue pair of the context that
    ///   shares the doorbell register. Unless `MLX5_SHUT_UP_BF=1` was set when the context was opened, the
    ///   other library writes whole requests to the register, and a doorbell of this library must not fall
    ///   between those writes. A program whose other library posts nothing is always safe.
    pub unsafe fn adopt_qp(
        &self,
        qp: NonNull<c_void>,
        pd: &ProtectionDomain,
        send_cq: &Cq,
        receive_cq: &Cq,
        spec: AdoptSpec,
    ) -> Result<QueuePair, DevxError> {
        // SAFETY: the caller vouches for the conditions of `describe_qp`.
        let parts = unsafe { self.context.describe_qp(qp)? };
        let QpParts { qpn, record, send, receive, entries_per_slot, register } = parts;
        let qpn = Qpn::from_low_bits(qpn);
        // SAFETY: the caller vouches that `qp` belongs to libmlx5 and outlives the returned value.
        // `describe_qp` has checked that `qp` belongs to this context.
        let object = unsafe { sys::Object::of_qp(&self.context, (), qp) };
        let info = carry(&QueryQp(qpn), |request, reply| object.query(request, reply))?.1;
        check(&info, pd.number()?, [send_cq.number(), receive_cq.number()])?;
        if receive.is_empty() {
            return Err(AdoptError::NoReceiveQueue.into());
        }
        let [receives, sends] = counters(record).map(|counter| counter as u16);
        check_idle(&info, sends, receives)?;
        if [send_cq, receive_cq].iter().any(|cq| cq.knows(Writer::Qp(qpn))) {
            return Err(AdoptError::CompletionsWaiting.into());
        }
        let (blocks, slots) = (send.len() as u32, receive.len() as u32 / entries_per_slot);
        let max_requests = spec.max_requests.unwrap_or(blocks).min(blocks);
        let addresses = RingAddresses {
            receive_ring: address(receive),
            send_ring: address(send),
            record: core::ptr::from_ref(record).expose_provenance() as u64,
        };
        let config = SendQueueConfig {
            signal_all: spec.signal_all,
            max_requests,
            first_block: sends.into(),
            umr_fence: self.report.general.umr_fence,
            ..SendQueueConfig::new(qpn)
        };
        // SAFETY: libmlx5 chose the register for this queue pair, and maps the register as long as the queue
        // pair exists. libmlx5 may ring the register for other queue pairs. Either libmlx5 writes only single
        // doorbells of 8 bytes, which the device takes in any order, or libmlx5 posts nothing while this
        // library posts: the caller of this function vouches for one of the two. `send` and `record` are the
        // ring and the doorbell record of the queue pair. The memory that requests name by keys is the duty
        // of the callers that registered it.
        let doorbell = unsafe { UarDoorbell::new(register) }.into();
        let books = Books::new(blocks as usize, slots as usize)?;
        let send = SendQueue::new(config, send, books.send, record, doorbell)?;
        let config = ReceiveQueueConfig { qpn, entries_per_slot };
        let receive = ReceiveQueue::new(config, receive, books.receive, record)?.starting_at(receives);
        let set_aside =
            [send_cq.set_aside(&self.context, max_requests)?, receive_cq.set_aside(&self.context, slots)?];
        set_aside.iter().for_each(|entries| entries.belongs_to(Writer::Qp(qpn)));
        let spec = QueuePairSpec {
            send_blocks: blocks,
            receive_slots: slots,
            entries_per_slot,
            max_requests: Some(max_requests),
            signal_all: spec.signal_all,
            drain_on_signature_error: info.drain_signature_errors,
            memcpy: false,
            user_index: info.user_index,
            port: info.port,
            access: info.access,
            blue_flame: false,
            timestamps: None,
        };
        let memory = Arc::new(QpMemory { _rings: None, _opaque: None, domain: pd.clone(), set_aside });
        // SAFETY: as for the first `sys::Object::of_qp` above.
        let object = unsafe { sys::Object::of_qp(&self.context, memory, qp) };
        let cqs = [send_cq.clone(), receive_cq.clone()];
        Ok(QueuePair::new(
            QpObject { qpn, spec, cqs, addresses, blue_flame: false, object },
            send,
            receive,
            books.memory,
        ))
    }
}

/// Refuses a queue pair that the library cannot use: one of another type or state, without a receive queue,
/// or with a property that the library does not support. `pd` and `cqs` (send, receive) must be its
/// protection domain and its completion queues.
fn check(info: &QpInfo, pd: Pdn, cqs: [Cqn; 2]) -> Result<(), AdoptError> {
    let QpInfo { service_type, .. } = *info;
    if service_type != 0 {
        return Err(AdoptError::NotReliable { service_type });
    }
    if info.state != QpState::RTS {
        return Err(AdoptError::NotReady(info.state));
    }
    if !info.has_receive_queue {
        return Err(AdoptError::NoReceiveQueue);
    }
    if info.scatters_to_cqe {
        return Err(AdoptError::ScatterToCqe);
    }
    if info.checks_requests {
        return Err(AdoptError::ChecksRequests);
    }
    if info.pd != pd {
        return Err(AdoptError::OtherDomain);
    }
    for (wanted, given) in [info.send_cq, info.receive_cq].into_iter().zip(cqs) {
        if given != wanted {
            return Err(AdoptError::OtherCompletionQueue { wanted });
        }
    }
    Ok(())
}

/// Refuses a queue pair with outstanding requests: the counters of its doorbell record, `sends` and
/// `receives`, must equal the counters that the device reports.
// Assumption: QUERY_QP reports current counters in the state RTS. libmlx5 relies only on the send counter,
// and only in the drained state (`mlx5dv_qp_cancel_posted_send_wrs`).
fn check_idle(info: &QpInfo, sends: u16, receives: u16) -> Result<(), AdoptError> {
    let (next, taken) = (info.next_send_block, info.receives_taken as u16);
    if next != sends {
        return Err(AdoptError::SendsOutstanding { announced: sends, next });
    }
    if taken != receives {
        return Err(AdoptError::ReceivesOutstanding { announced: receives, taken });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Psn, QpAccess, UserIndex};

    /// Returns the description of an idle queue pair that the library can use.
    fn good() -> QpInfo {
        let mut reply = [0; QueryQp::OUTPUT];
        reply[0x18] = 0x30;
        let info = QueryQp(Qpn::default()).decode(&reply).unwrap();
        assert_eq!((info.access, info.user_index), (QpAccess::default(), UserIndex::default()));
        assert_eq!(info.next_send_psn, Psn::default());
        info
    }

    const CQS: [Cqn; 2] = [Cqn::from_low_bits(0); 2];

    #[test]
    fn what_the_library_cannot_use_is_refused() {
        let pd = Pdn::default();
        assert_eq!(check(&good(), pd, CQS), Ok(()));
        let refused = |change: fn(&mut QpInfo)| {
            let mut info = good();
            change(&mut info);
            check(&info, pd, CQS).unwrap_err()
        };
        assert_eq!(refused(|info| info.service_type = 3), AdoptError::NotReliable { service_type: 3 });
        assert_eq!(refused(|info| info.state = QpState::RTR), AdoptError::NotReady(QpState::RTR));
        assert_eq!(refused(|info| info.has_receive_queue = false), AdoptError::NoReceiveQueue);
        assert_eq!(refused(|info| info.scatters_to_cqe = true), AdoptError::ScatterToCqe);
        assert_eq!(refused(|info| info.checks_requests = true), AdoptError::ChecksRequests);
        assert_eq!(refused(|info| info.pd = Pdn::MAX), AdoptError::OtherDomain);
        let wanted = Cqn::from_low_bits(5);
        let other = AdoptError::OtherCompletionQueue { wanted };
        assert_eq!(refused(|info| info.send_cq = Cqn::from_low_bits(5)), other);
        assert_eq!(refused(|info| info.receive_cq = Cqn::from_low_bits(5)), other);
    }

    #[test]
    fn counters_are_compared_modulo_their_width() {
        let info = QpInfo { next_send_block: 0xffff, receives_taken: 0x1_0002, ..good() };
        assert_eq!(check_idle(&info, 0xffff, 2), Ok(()));
        let sends = AdoptError::SendsOutstanding { announced: 0, next: 0xffff };
        assert_eq!(check_idle(&info, 0, 2), Err(sends));
        let receives = AdoptError::ReceivesOutstanding { announced: 3, taken: 2 };
        assert_eq!(check_idle(&info, 0xffff, 3), Err(receives));
    }
}
