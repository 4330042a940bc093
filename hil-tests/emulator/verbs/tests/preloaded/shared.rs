//! Tests of shared receive queues that verbs or commands of the device make.

use crate::event_channel;
use crate::verbs::{Attribute, Context, Pages, call, command, message, words};
use mlx5_mkey::wire::prm::cq::{CqcFlags, CqcSize, CreateCqRequest};
use mlx5_mkey::wire::prm::qp::CreateQpRequest;
use mlx5_mkey::wire::prm::qp_context::{QpcDoorbell, QpcPd, QpcReceiveQueue, QpcSizes, QpcUar};
use mlx5_testing::preload::{Side::Inside, preloaded};
use zerocopy::{FromZeros, IntoBytes};

const DEVX_OBJECT: u16 = 0x1001;
/// The kernel's number of the event that a limit is reached (`IB_EVENT_SRQ_LIMIT_REACHED`), and the device's
/// own number of this event.
const LIMIT_REACHED: u32 = 15;
const LIMIT: u8 = 0x14;

#[test]
fn a_limit_of_a_verbs_queue_is_an_event() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let (pd, memory) = (context.pd(), Pages::new(8192));
    let events = call(context.0, 0x10, 0, &mut [Attribute::New(0)]).unwrap() as i32;
    let driver = [memory.0.to_ne_bytes(), (memory.0 + 4096).to_ne_bytes(), [0; 8], [0; 8]].concat();
    let (mut receives, mut segments, mut number) = ([0; 4], [0; 4], [0; 8]);
    let mut create = |size: u32, kind: u64| {
        let mut attributes = [
            Attribute::New(0),
            Attribute::Handle(1, pd),
            Attribute::Number(4, 99),
            Attribute::In(5, &size.to_ne_bytes()),
            Attribute::In(6, &2_u32.to_ne_bytes()),
            Attribute::In(7, &[0; 4]),
            Attribute::Number(9, kind),
            Attribute::Out(11, &mut receives),
            Attribute::Out(12, &mut segments),
            Attribute::In(0x1000, &driver),
            Attribute::Out(0x1001, &mut number),
        ];
        call(context.0, 5, 0, &mut attributes)
    };
    assert_eq!(create(10, 1), Err(libc::EOPNOTSUPP), "XRC");
    assert_eq!(create(1 << 15, 0), Err(libc::EINVAL));
    let srq = create(10, 0).unwrap();
    // The ring has 16 slots of 64 bytes, of which one stays free. The first 16 bytes of each slot link
    // the slots to a list, so a slot has room for 3 segments of 16 bytes.
    assert_eq!((u32::from_ne_bytes(receives), u32::from_ne_bytes(segments)), (15, 3));
    let query = || {
        let mut answer = [0; 16];
        command(context.0, 34, &words(&[0, 0, srq, 0]), &mut answer, &mut []).unwrap();
        answer.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect::<Vec<_>>()
    };
    let modify = |mask, limit| command(context.0, 33, &words(&[srq, mask, 0, limit]), &mut [], &mut []);
    memory.write(4096, &4_u32.to_be_bytes());
    assert_eq!(modify(2, 4), Ok(()));
    assert_eq!(query(), [15, 3, 4, 0]);
    assert_eq!((modify(1, 0), modify(2, 16)), (Err(libc::EINVAL), Err(libc::EINVAL)));
    assert_eq!(modify(2, 5), Ok(()));
    assert_eq!(message(events), [99_u64.to_ne_bytes(), u64::from(LIMIT_REACHED).to_ne_bytes()].concat());
    assert_eq!(query(), [15, 3, 0, 0]);
    let mut reported = [0; 4];
    call(context.0, 5, 1, &mut [Attribute::Handle(0, srq), Attribute::Out(1, &mut reported)]).unwrap();
    assert_eq!(u32::from_ne_bytes(reported), 1);
}

/// Sends a command of the device that makes an object. Returns the object's handle and number.
pub(crate) fn create(context: &Context, input: &[u8]) -> Result<(u32, u32), i32> {
    let mut output = [0; 16];
    let mut attributes =
        [Attribute::New(0x1000), Attribute::In(0x1001, input), Attribute::Out(0x1002, &mut output)];
    let handle = call(context.0, DEVX_OBJECT, 0x1000, &mut attributes)?;
    Ok((handle, u32::from_be_bytes(output[8..12].try_into().unwrap())))
}

/// Returns the command CREATE_RMP for 8 slots of 64 bytes at the beginning of a umem, with the doorbell
/// record at offset 1024. The command lacks the bits for umems, which the kernel sets.
fn pool(umem: u32, pd: u32) -> Vec<u8> {
    let mut input = vec![0; 0x110];
    input[..2].copy_from_slice(&[0x09, 0x0c]);
    input[0x58..0x5c].copy_from_slice(&pd.to_be_bytes());
    input[0x60..0x68].copy_from_slice(&1024_u64.to_be_bytes());
    (input[0x71], input[0x73]) = (6, 3);
    input[0x78..0x7c].copy_from_slice(&umem.to_be_bytes());
    input[0x7c..0x80].copy_from_slice(&umem.to_be_bytes());
    input
}

#[test]
fn a_pool_of_commands_is_of_use_to_queue_pairs() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let (pd, memory) = (context.pd(), Pages::new(8192));
    let (umem_handle, umem) = context.umem(memory.0, 8192, 1).unwrap();
    // The protection domain is the first, with number 1.
    let good = pool(umem, 1);
    for (place, value) in [(0x50, 0x20), (0x50, 0x08), (0x73, 17), (0x71, 11), (0x7f, 0x77)] {
        let mut bad = good.clone();
        bad[place] = value;
        assert_eq!(create(&context, &bad), Err(libc::EREMOTEIO), "{place:#x} {value:#x}");
    }
    let mut cyclic = good.clone();
    cyclic[0x50] = 0x10;
    assert!(create(&context, &cyclic).is_ok());
    let (srq, srqn) = create(&context, &good).unwrap();
    assert_eq!(context.destroy(0x1002, 0x1001, umem_handle), Err(libc::EBUSY), "the pool is in it");
    // Reaching the limit raises an event of the device.
    let channel = event_channel(&context);
    let cookie = 55_u64.to_ne_bytes();
    context.subscribe(channel, Some(srq), &[LIMIT, 0], &[(0x1004, &cookie)]).unwrap();
    let mut limit = good.clone();
    limit[1] = 0x0d;
    limit[8..12].copy_from_slice(&srqn.to_be_bytes());
    (limit[0x17], limit[0x57]) = (1, 3);
    assert_eq!(context.command(srq, &limit), Ok(()));
    let event = message(channel);
    assert_eq!((&event[..8], event[8 + 1]), (&cookie[..], LIMIT));
    // The pool cannot be destroyed while a queue pair uses it.
    let (_, qpn) = queue_pair(&context, umem, srqn);
    assert!(qpn.is_ok());
    assert_eq!(queue_pair(&context, umem, srqn + 1).1, Err(libc::EREMOTEIO));
    assert_eq!(context.destroy(DEVX_OBJECT, 0x1001, srq), Err(libc::EBUSY));
    let _ = pd;
}

/// Makes a completion queue, and a queue pair that takes its receives from the shared receive queue `srqn`.
/// Returns the number of the completion queue, and the number of the queue pair or the errno.
fn queue_pair(context: &Context, umem: u32, srqn: u32) -> (u32, Result<u32, i32>) {
    let (_, _, page) = context.doorbell_page(0).unwrap();
    let mut cq = CreateCqRequest::new_zeroed();
    cq.header.opcode.set(0x400);
    cq.cqc.flags.set(CqcFlags::new().with_dbr_umem_valid(true).into_bits());
    cq.cqc.size.set(CqcSize::new().with_uar_page(page).with_log_cq_size(3).into_bits());
    cq.cqc.c_eqn.set(1);
    cq.cqc.dbr_umem_id.set(umem);
    cq.cqc.dbr_addr.set(1032);
    cq.cq_umem_id.set(umem);
    cq.cq_umem_offset.set(2048);
    let (_, cqn) = create(context, cq.as_bytes()).unwrap();
    let mut qp = CreateQpRequest::new_zeroed();
    qp.header.opcode.set(0x500);
    qp.qpc.pd.set(QpcPd::new().with_pd(1).into_bits());
    qp.qpc.sizes.set(QpcSizes::new().with_log_sq_size(3).into_bits());
    qp.qpc.uar.set(QpcUar::new().with_uar_page(page).into_bits());
    (qp.qpc.cqn_snd, qp.qpc.cqn_rcv) = (cqn.into(), cqn.into());
    qp.qpc.dbr_addr.set(1040);
    qp.qpc.dbr_umem_id.set(umem);
    qp.qpc.doorbell.set(QpcDoorbell::new().with_dbr_umem_valid(true).into_bits());
    let shared = QpcReceiveQueue::new().with_rq_type(QpcReceiveQueue::SHARED).with_srqn_rmpn_xrqn(srqn);
    qp.qpc.receive_queue.set(shared.into_bits());
    qp.wq_umem_id.set(umem);
    qp.wq_umem_offset.set(4096);
    qp.wq_umem_valid.set(CreateQpRequest::UMEM_VALID);
    (cqn, create(context, qp.as_bytes()).map(|(_, qpn)| qpn))
}
