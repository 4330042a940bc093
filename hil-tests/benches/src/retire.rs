//! Retires posted requests after a run, by completion entries as a device would write them. This code is not
//! counted.

use mlx5_mkey::mkey::Mkey;
use mlx5_mkey::queue::{
    CompletedReceive, CompletedSend, CompletionQueue, CqDoorbellRecord, QpQueues, QpRouter, Retired,
};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, OpOwn};
use zerocopy::big_endian::{U16, U32};

/// Retires a request of a queue pair by a completion entry. Returns whether the request was outstanding.
pub(crate) fn retire(queues: &mut impl QpQueues, opcode: CqeOpcode, counter: u16) -> bool {
    let mut entries = [Cqe {
        sop_qpn: U32::new(queues.qpn().get()),
        wqe_counter: U16::new(counter),
        op_own: OpOwn::new().with_opcode(opcode.0).into_bits(),
        ..Cqe::UNWRITTEN
    }];
    let record = CqDoorbellRecord::new();
    let Ok(mut completions) = CompletionQueue::new(&mut entries, &record) else { return false };
    let mut none: [Mkey; 0] = [];
    let mut router = QpRouter { queues: Told { queues, has_retired: false }, mkeys: &mut none };
    let _ = completions.poll(&mut router);
    router.queues.has_retired
}

/// A queue pair, and whether the last entry has retired a request. The flag is needed because polling reports
/// no completion for a successful part of a configuration.
struct Told<'q, Q> {
    queues: &'q mut Q,
    has_retired: bool,
}

impl<Q: QpQueues> QpQueues for Told<'_, Q> {
    fn qpn(&self) -> Qpn {
        self.queues.qpn()
    }

    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        let retired = self.queues.retire_send(done);
        self.has_retired |= retired.is_some();
        retired
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        let retired = self.queues.retire_receive(done);
        self.has_retired |= retired.is_some();
        retired
    }
}
