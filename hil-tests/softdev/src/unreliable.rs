//! Messages without answers: sent and forgotten by the requester, taken or dropped by the responder.

use crate::device::Device;
use crate::memory::Memory;
use crate::message::{Message, Request};
use crate::object::qp::Peer;
use crate::tap::Seen;

impl<M: Memory> Device<M> {
    /// Sends a request of a queue pair that waits for no answer.
    pub(crate) fn tell(&mut self, from: u32, request: Request) {
        let (to, queue) = match self.objects.qps.get(from).and_then(|qp| qp.peer) {
            Some(Peer::Local(to)) => (to, &mut self.local),
            Some(Peer::Remote(to)) => (to, &mut self.outbound),
            None => return,
        };
        let message = Message::Unanswered { from, to, request };
        self.tap.show(Seen::Sent(&message));
        queue.push_back(message);
    }

    /// Carries out a request that has no answer, or drops it: nobody is there, or has a receive, or the right.
    pub(crate) fn take_unanswered(&mut self, to: u32, request: Request) {
        let Some(qp) = self.objects.qps.get(to).filter(|qp| qp.state.responds()) else { return };
        let pushes = matches!(request, Request::Send { .. } | Request::Write { .. });
        if pushes && !qp.attributes.transport.is_reliable() {
            self.respond(to, request);
        }
    }
}
