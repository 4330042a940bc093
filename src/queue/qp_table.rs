//! A table of the queue pairs that complete to one completion queue.

use super::router::{CompletionRouter, CqeOrigin, QpQueues, record};
use crate::mkey::{Mkey, SignatureFault};
use crate::types::Qpn;
use crate::types::QueueError;
use heapless::index_map::FnvIndexMap;

/// Up to `QPS` queue pairs that complete to one completion queue. `QPS` is a power of two, 2 or more.
///
/// A completion finds its queue pair at once if the queue pair was created with its position in the table as
/// user index ([`QpTable::next_user_index`]). Otherwise the table searches the queue pair by its number. `Q`
/// implements [`QpQueues`]: a [`super::SendQueue`], a pair of send and receive queue, a `devx::QueuePair`, or
/// references to these types.
///
/// ```
/// use mlx5_mkey::error::CompletionError;
/// use mlx5_mkey::queue::{CompletionQueue, QpTable, SendQueue, UarDoorbell};
///
/// type Table<'r> = QpTable<SendQueue<'r, UarDoorbell, 256>, 64>;
///
/// fn drain(completions: &mut CompletionQueue<'_>, table: &mut Table<'_>) -> Result<usize, CompletionError> {
///     let mut count = 0;
///     while let Some(completion) = completions.poll(&mut table.router(&mut [])) {
///         completion?;
///         count += 1;
///     }
///     Ok(count)
/// }
/// ```
pub struct QpTable<Q, const QPS: usize> {
    queues: FnvIndexMap<Qpn, Q, QPS>,
}

impl<Q: QpQueues, const QPS: usize> QpTable<Q, QPS> {
    /// Makes a table without queue pairs.
    pub const fn new() -> Self {
        Self { queues: FnvIndexMap::new() }
    }

    /// Returns the position that [`QpTable::insert`] gives the next queue pair. Create the queue pair with
    /// this number as user index, so that its completions find it at once.
    pub fn next_user_index(&self) -> u32 {
        self.queues.len() as u32
    }

    /// Adds a queue pair.
    ///
    /// # Errors
    /// The queue pair, if the table is full ([`QueueError::TableFull`]) or already has a queue pair of this
    /// number ([`QueueError::QpnInUse`]).
    pub fn insert(&mut self, queues: Q) -> Result<(), (QueueError, Q)> {
        let qpn = queues.qpn();
        if self.queues.contains_key(&qpn) {
            return Err((QueueError::QpnInUse { qpn }, queues));
        }
        match self.queues.insert(qpn, queues) {
            Ok(_) => Ok(()),
            Err((_, queues)) => Err((QueueError::TableFull { capacity: QPS }, queues)),
        }
    }

    /// Removes a queue pair and returns it. Completions of the removed queue pair that arrive later are
    /// refused. The last queue pair of the table moves to the free position, and is found by its number from
    /// now on.
    pub fn remove(&mut self, qpn: Qpn) -> Option<Q> {
        self.queues.swap_remove(&qpn)
    }

    /// Returns a queue pair, for posting.
    pub fn get_mut(&mut self, qpn: Qpn) -> Option<&mut Q> {
        self.queues.get_mut(&qpn)
    }

    /// Returns all queue pairs.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Q> {
        self.queues.values_mut()
    }

    /// Returns a router for [`super::CompletionQueue::poll`], with these queue pairs, and with the mkeys
    /// whose signature errors arrive at the completion queue. The mkeys are searched only when a signature
    /// error arrives.
    #[inline]
    pub const fn router<'t>(&'t mut self, mkeys: &'t mut [Mkey]) -> QpTableRouter<'t, Q, QPS> {
        QpTableRouter { table: self, mkeys }
    }

    /// Finds a queue pair: at the position that the entry names, or by its number.
    #[inline]
    fn find(&mut self, CqeOrigin { qpn, user_index }: CqeOrigin) -> Option<&mut Q> {
        let is_there =
            self.queues.get_index(user_index as usize).is_some_and(|(_, found)| found.qpn() == qpn);
        if is_there {
            return self.queues.get_index_mut(user_index as usize).map(|(_, queues)| queues);
        }
        self.queues.get_mut(&qpn)
    }
}

impl<Q: QpQueues, const QPS: usize> Default for QpTable<Q, QPS> {
    fn default() -> Self {
        Self::new()
    }
}

/// Routes the completions of the queue pairs of a [`QpTable`].
pub struct QpTableRouter<'t, Q, const QPS: usize> {
    table: &'t mut QpTable<Q, QPS>,
    /// The mkeys whose signature errors arrive at the completion queue.
    pub mkeys: &'t mut [Mkey],
}

impl<Q: QpQueues, const QPS: usize> CompletionRouter for QpTableRouter<'_, Q, QPS> {
    type Queues = Q;

    #[inline]
    fn queues(&mut self, origin: CqeOrigin) -> Option<&mut Q> {
        self.table.find(origin)
    }

    fn signature_error(&mut self, fault: &SignatureFault) -> Option<usize> {
        record(self.mkeys, fault)
    }
}

crate::fmt::format_counters!([Q, const QPS: usize] QpTable [Q, QPS] { });
crate::fmt::format_counters!(['t, Q, const QPS: usize] QpTableRouter ['t, Q, QPS] { table });
