//! Queues of the crate sideway, which the shim takes over: an mkey over scattered memory is configured and
//! written to the peer by this library, and the program compares the bytes.
//!
//! `cargo xtask peer --built` builds the program.

#![allow(unsafe_code)]

use mlx5_mkey::devx::{AdoptSpec, Device, MkeySpec};
use mlx5_mkey::mkey::{Access, KlmEntry, MkeyConfig};
use mlx5_mkey::queue::{Completion, QpRouter};
use mlx5_mkey::types::Key;
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid, GidType};
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SendOperationFlags,
    SetScatterGatherEntry, WorkRequestFlags,
};
use std::error::Error;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The length of the memory that is written, and of its parts.
const LENGTH: usize = 4096;
const PART: usize = 1024;

fn main() -> Outcome<()> {
    for extended in [false, true] {
        let context = DeviceList::new()?.iter().next().ok_or("no device")?.open()?;
        compare(&context, extended)?;
    }
    println!("all data compared");
    Ok(())
}

/// Connects a queue pair of sideway to itself, in the form of libibverbs or in the extended form, and writes
/// memory to other memory: first with sideway, then with this library.
fn compare(context: &Arc<DeviceContext>, extended: bool) -> Outcome<()> {
    let pd = context.alloc_pd()?;
    let source: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
    let mut target = vec![0_u8; LENGTH];
    let [source_start, target_start] = [source.as_ptr(), target.as_mut_ptr().cast_const()];
    let address = |start: *const u8| start.expose_provenance() as u64;
    let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
    // SAFETY: both buffers live longer than their regions, because they are declared first. The target is
    // reached by its pointer only.
    let [from, to] = [source_start, target_start]
        .map(|start| unsafe { pd.reg_mr(start.expose_provenance(), LENGTH, access) });
    let (from, to) = (from?, to?);
    let mut builder = context.create_cq_builder();
    builder.setup_cqe(64);
    let cq = || -> Outcome<GenericCompletionQueue> {
        Ok(if extended { builder.build_ex()?.into() } else { builder.build()?.into() })
    };
    let [sends, receives] = [cq()?, cq()?];
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(sends.clone()).setup_recv_cq(receives.clone());
    builder.setup_max_send_wr(16).setup_max_recv_wr(16).setup_send_ops_flags(SendOperationFlags::Write);
    let mut queue: GenericQueuePair =
        if extended { builder.build_ex()?.into() } else { builder.build()?.into() };
    connect(context, &mut queue)?;

    let mut guard = queue.start_post_send();
    let write =
        guard.construct_wr(1, WorkRequestFlags::Signaled).setup_write(to.rkey(), address(target_start));
    // SAFETY: the memory lives until the request has completed.
    unsafe { write.setup_sge(from.lkey(), address(source_start), PART as u32) };
    guard.post()?;
    loop {
        if let Ok(mut completions) = sends.start_poll() {
            let done = completions.next().ok_or("an empty poll")?;
            break if done.status() != WorkCompletionStatus::Success as u32 {
                return Err(format!("sideway's request ended with status {}", done.status()).into());
            };
        }
    }
    let written = |expected: &[u8]| {
        // SAFETY: the region is registered and lives, and no request is outstanding.
        let found: Vec<u8> = (0..LENGTH).map(|at| unsafe { target_start.add(at).read_volatile() }).collect();
        if found == expected { Ok(()) } else { Err("the data differ") }
    };
    written(&[&source[..PART], &[0; LENGTH - PART]].concat())?;

    // SAFETY: the queue pair lives longer than the values of this library, with its context, domain and
    // completion queues. Its only request has completed, and its completion was taken. From here on, sideway
    // neither posts nor polls.
    let (mut adopted, mut completions, pd, _others) = unsafe {
        let qp = queue.qp();
        let raw = qp.as_ref();
        let there = |object: *mut c_void| NonNull::new(object).ok_or("no object");
        let device = Device::adopt(there(raw.context.cast())?)?;
        let pd = device.adopt_pd(there(raw.pd.cast())?)?;
        let (send_cq, completions) = device.adopt_cq(there(raw.send_cq.cast())?)?;
        let (receive_cq, receives) = device.adopt_cq(there(raw.recv_cq.cast())?)?;
        let spec = AdoptSpec { signal_all: false, max_requests: Some(16) };
        let adopted = device.adopt_qp(qp.cast(), &pd, &send_cq, &receive_cq, spec)?;
        (adopted, completions, pd, (device, send_cq, receive_cq, receives))
    };

    // The parts of the source in reverse order.
    let part = |number: usize| KlmEntry {
        address: address(source_start) + (number * PART) as u64,
        length: PART as u32,
        key: Key::from_raw(from.lkey()),
    };
    let parts: Vec<KlmEntry> = (0..LENGTH / PART).rev().map(part).collect();
    let mut object = pd.create_mkey(MkeySpec { max_entries: 4, ..MkeySpec::default() })?;
    let config = MkeyConfig { access: Some(Access::LOCAL_WRITE), ..MkeyConfig::UNCHANGED };
    let prepared = PreparedConfig::new(object.mkey.kind(), &config)?;
    adopted.request(2).configure_mkey(&mut object.mkey, &prepared, parts.as_slice())?;
    let whole = Sge { address: 0, length: LENGTH as u32, lkey: object.mkey.key() };
    let remote = Remote { address: address(target_start), rkey: Key::from_raw(to.rkey()) };
    adopted.request(3).signaled().rdma_write(remote, &[whole])?;
    adopted.ring_doorbell();
    let mut router = QpRouter { queues: &mut adopted, mkeys: &mut [] };
    loop {
        match completions.poll(&mut router) {
            None => std::thread::yield_now(),
            Some(Ok(Completion::Work(work))) if work.id == 3 => break println!("{:?}", work.outcome),
            Some(other) => return Err(format!("not the completion of the write: {other:?}").into()),
        }
    }
    let parts: Vec<&[u8]> = source.chunks(PART).rev().collect();
    written(&parts.concat())?;
    Ok(())
}

/// Connects a queue pair to itself.
fn connect(context: &DeviceContext, queue: &mut GenericQueuePair) -> Outcome<()> {
    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(1);
    init.setup_access_flags(AccessFlags::LocalWrite | AccessFlags::RemoteWrite);
    queue.modify(&init)?;
    let table = context.query_gid_table()?;
    let gid = table.iter().find(|gid| gid.port_num() == 1 && gid.gid_type() == GidType::RoceV2);
    let gid = gid.ok_or("no GID")?;
    let own: Gid = gid.gid();
    let mut peer = AddressHandleAttribute::new();
    peer.setup_port(1).setup_grh_src_gid_index(gid.gid_index().try_into()?);
    peer.setup_grh_dest_gid(&own).setup_grh_hop_limit(64);
    let mut receive = QueuePairAttribute::new();
    receive.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(Mtu::Mtu1024);
    receive.setup_dest_qp_num(queue.qp_number()).setup_rq_psn(1).setup_max_dest_read_atomic(1);
    receive.setup_min_rnr_timer(0).setup_address_vector(&peer);
    queue.modify(&receive)?;
    let mut send = QueuePairAttribute::new();
    send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(1).setup_timeout(12);
    send.setup_retry_cnt(7).setup_rnr_retry(7).setup_max_read_atomic(1);
    queue.modify(&send)?;
    Ok(())
}
