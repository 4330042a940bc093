//! Mistakes that the library's types make impossible. Each example of a mistake follows a twin that compiles
//! and differs in the mistake only, so that the compiler's error must come from the mistake.
//!
//! # A setter twice
//! ```
//! # use mlx5_mkey::mkey::{Access, MkeyConfig};
//! let config = MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED };
//! ```
//! ```compile_fail,E0062
//! # use mlx5_mkey::mkey::{Access, MkeyConfig};
//! let config = MkeyConfig { access: Some(Access::ALL), access: None, ..MkeyConfig::UNCHANGED };
//! ```
//!
//! # Two layouts in one configuration
//! ```
//! # use mlx5_mkey::{error::PostError, mkey::{KlmEntry, Mkey}, queue::SendRequest, wqe::PreparedConfig};
//! fn configure(
//!     request: SendRequest<'_, '_>, mkey: &mut Mkey, prepared: &PreparedConfig, list: &[KlmEntry],
//! ) -> Result<(), PostError> {
//!     request.configure_mkey(mkey, prepared, list)
//! }
//! ```
//! ```compile_fail,E0061
//! # use mlx5_mkey::{error::PostError, mkey::{KlmEntry, Mkey}, queue::SendRequest, wqe::PreparedConfig};
//! fn configure(
//!     request: SendRequest<'_, '_>, mkey: &mut Mkey, prepared: &PreparedConfig, list: &[KlmEntry],
//! ) -> Result<(), PostError> {
//!     request.configure_mkey(mkey, prepared, list, list)
//! }
//! ```
//!
//! # A list entry in an interleaved layout
//! ```
//! # use mlx5_mkey::{mkey::{InterleavedEntry, Layout}, types::Key};
//! let entry = InterleavedEntry { address: 0x1000, bytes: 8, skip: 0, key: Key::from_raw(0x100) };
//! let layout = Layout::Interleaved { repeat: 2, entries: &[entry] };
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::{KlmEntry, Layout}, types::Key};
//! let entry = KlmEntry { address: 0x1000, length: 8, key: Key::from_raw(0x100) };
//! let layout = Layout::Interleaved { repeat: 2, entries: &[entry] };
//! ```
//!
//! # An access flag that an mkey does not have
//! ```
//! # use mlx5_mkey::mkey::Access;
//! let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
//! ```
//! ```compile_fail,E0599
//! # use mlx5_mkey::mkey::Access;
//! let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::mkey::Access;
//! let access: Access = 1 << 5;
//! ```
//!
//! # Unknown flags and comp_mask
//! ```
//! # use mlx5_mkey::mkey::MkeyConfig;
//! let config = MkeyConfig { access: None, ..MkeyConfig::UNCHANGED };
//! ```
//! ```compile_fail,E0560
//! # use mlx5_mkey::mkey::MkeyConfig;
//! let config = MkeyConfig { comp_mask: 1, ..MkeyConfig::UNCHANGED };
//! ```
//!
//! # Resetting and setting a signature at once
//! ```
//! # use mlx5_mkey::mkey::{MkeyConfig, SignatureChange};
//! let config = MkeyConfig { signature: SignatureChange::Reset, ..MkeyConfig::UNCHANGED };
//! ```
//! ```compile_fail,E0369
//! # use mlx5_mkey::mkey::{MkeyConfig, SignatureChange};
//! let config = MkeyConfig {
//!     signature: SignatureChange::Reset | SignatureChange::Keep, ..MkeyConfig::UNCHANGED
//! };
//! ```
//!
//! # A seed that is neither zeros nor ones
//! ```
//! # use mlx5_mkey::{mkey::Signature, types::Seed};
//! let signature = Signature::Crc32(Seed::Ones);
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::Signature, types::Seed};
//! let signature = Signature::Crc32(0x1234_5678);
//! ```
//!
//! # A signature without a domain, of an invalid size, of one type with parameters of another
//! ```
//! # use mlx5_mkey::{mkey::{BlockSignature, Domain, Signature}, types::{BlockSize, Seed}};
//! let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
//! let signature = BlockSignature::wire(domain);
//! ```
//! ```compile_fail,E0061
//! # use mlx5_mkey::mkey::BlockSignature;
//! let signature = BlockSignature::wire();
//! ```
//! ```compile_fail,E0451
//! # use mlx5_mkey::{mkey::BlockSignature, types::BlockSize::B512};
//! let (memory, wire, check_mask, copy_mask) = (None, None, 0xff, None);
//! let signature = BlockSignature {
//!     memory, wire, memory_block: B512, wire_block: B512, check_mask, copy_mask,
//! };
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::{Domain, Signature}, types::{BlockSize, Seed}};
//! let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: 1024 };
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::{Domain, Signature}, types::{BlockSize, Seed}};
//! let domain = Domain { signature: Signature::T10Dif(Seed::Ones), block_size: BlockSize::B512 };
//! ```
//!
//! # A key in plaintext whose halves were not compared
//! ```
//! # use mlx5_mkey::command::{DekKey, XtsKey};
//! let key = DekKey::Plain128 { key: XtsKey::allowing_equal_halves(&[0; 32]), keytag: None };
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::command::{DekKey, XtsKey};
//! let key = DekKey::Plain128 { key: &[0; 32], keytag: None };
//! ```
//! ```compile_fail,E0423
//! # use mlx5_mkey::command::{DekKey, XtsKey};
//! let key = DekKey::Plain128 { key: XtsKey(&[0; 32]), keytag: None };
//! ```
//!
//! # Both escape flags
//! ```
//! # use mlx5_mkey::mkey::Escape;
//! let escape = Escape::AppAndRefTag;
//! ```
//! ```compile_fail,E0369
//! # use mlx5_mkey::mkey::Escape;
//! let escape = Escape::AppAndRefTag | Escape::AppTag;
//! ```
//!
//! # An unchecked copy mask
//! ```
//! # use mlx5_mkey::mkey::{BlockSignature, Domain, MkeyConfig, Signature, SignatureChange};
//! # use mlx5_mkey::types::{BlockSize, Seed};
//! # let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
//! let signature = BlockSignature::both(domain, domain).with_copy_mask(0xf0)?;
//! let config = MkeyConfig { signature: SignatureChange::Set(signature), ..MkeyConfig::UNCHANGED };
//! # Ok::<(), mlx5_mkey::error::ConfigError>(())
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::mkey::{BlockSignature, Domain, MkeyConfig, Signature, SignatureChange};
//! # use mlx5_mkey::types::{BlockSize, Seed};
//! # let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
//! let signature = BlockSignature::both(domain, domain).with_copy_mask(0xf0);
//! let config = MkeyConfig { signature: SignatureChange::Set(signature), ..MkeyConfig::UNCHANGED };
//! # Ok::<(), mlx5_mkey::error::ConfigError>(())
//! ```
//!
//! # A tweak without a byte order
//! ```
//! # use mlx5_mkey::types::Tweak;
//! let tweak = Tweak::from_le_bytes([0; 16]);
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::types::Tweak;
//! let tweak: Tweak = [0u8; 16];
//! ```
//!
//! # A number of one object in place of another
//! ```
//! # use mlx5_mkey::{mkey::SignatureAttributes, types::PsvIndex};
//! let attributes = SignatureAttributes::new(PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2));
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::SignatureAttributes, types::{DekId, PsvIndex}};
//! let attributes = SignatureAttributes::new(PsvIndex::from_low_bits(1), DekId::from_low_bits(2));
//! ```
//!
//! # An RDMA READ into the request itself
//! ```
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}, wqe::{Payload, Remote, Sge}};
//! fn read<D: Doorbell>(
//!     queue: &mut SendQueue<'_, D>, remote: Remote, sge: Sge,
//! ) -> Result<(), PostError> {
//!     queue.request(1).rdma_write(remote, Payload::Inline(&[1, 2]))?;
//!     queue.request(2).rdma_read(remote, &[sge])
//! }
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}, wqe::{Payload, Remote, Sge}};
//! fn read<D: Doorbell>(
//!     queue: &mut SendQueue<'_, D>, remote: Remote, sge: Sge,
//! ) -> Result<(), PostError> {
//!     queue.request(1).rdma_write(remote, Payload::Inline(&[1, 2]))?;
//!     queue.request(2).rdma_read(remote, Payload::Inline(&[1, 2]))
//! }
//! ```
//!
//! # Two open requests: a request is open until it is posted
//! ```
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn two<D: Doorbell>(queue: &mut SendQueue<'_, D>) -> Result<(), PostError> {
//!     let first = queue.request(1);
//!     first.nop()?;
//!     let second = queue.request(2);
//!     second.nop()
//! }
//! ```
//! ```compile_fail,E0499
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn two<D: Doorbell>(queue: &mut SendQueue<'_, D>) -> Result<(), PostError> {
//!     let first = queue.request(1);
//!     let second = queue.request(2);
//!     first.nop()?;
//!     second.nop()
//! }
//! ```
//!
//! # The doorbell while a request is open
//! ```
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn ring<D: Doorbell>(queue: &mut SendQueue<'_, D>) -> Result<(), PostError> {
//!     let request = queue.request(1);
//!     request.nop()?;
//!     queue.ring_doorbell();
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0499
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn ring<D: Doorbell>(queue: &mut SendQueue<'_, D>) -> Result<(), PostError> {
//!     let request = queue.request(1);
//!     queue.ring_doorbell();
//!     request.nop()?;
//!     Ok(())
//! }
//! ```
//!
//! # A request used twice
//! ```
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn once<D: Doorbell>(queue: &mut SendQueue<'_, D>) -> Result<(), PostError> {
//!     let request = queue.request(1);
//!     request.nop()
//! }
//! ```
//! ```compile_fail,E0382
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn once<D: Doorbell>(queue: &mut SendQueue<'_, D>) -> Result<(), PostError> {
//!     let request = queue.request(1);
//!     request.nop()?;
//!     request.nop()
//! }
//! ```
//!
//! # Posting from two places without a lock
//! ```
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SharedSendQueue}};
//! fn both<D: Doorbell>(queue: &SharedSendQueue<'_, D>) -> Result<(), PostError> {
//!     let post = || queue.with(|queue| queue.request(1).nop());
//!     let other = || queue.with(|queue| queue.request(2).nop());
//!     post()?;
//!     other()
//! }
//! ```
//! ```compile_fail,E0524
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn both<D: Doorbell>(queue: &mut SendQueue<'_, D>) -> Result<(), PostError> {
//!     let mut post = || queue.request(1).nop();
//!     let mut other = || queue.request(2).nop();
//!     post()?;
//!     other()
//! }
//! ```
//!
//! # A configuration without the state of its mkey, and an unchecked one
//! ```
//! # use mlx5_mkey::{mkey::{Layout, Mkey, MkeyConfig}, queue::SendRequest};
//! # use mlx5_mkey::{error::PostError, wqe::PreparedConfig};
//! fn configure(
//!     request: SendRequest<'_, '_>, mkey: &mut Mkey, prepared: &PreparedConfig,
//! ) -> Result<(), PostError> {
//!     request.configure_mkey(mkey, prepared, Layout::Unchanged)
//! }
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::{Layout, Mkey, MkeyConfig}, queue::SendRequest};
//! # use mlx5_mkey::{error::PostError, wqe::PreparedConfig};
//! fn configure(
//!     request: SendRequest<'_, '_>, mkey: &mut Mkey, prepared: &PreparedConfig,
//! ) -> Result<(), PostError> {
//!     request.configure_mkey(mkey.key(), prepared, Layout::Unchanged)
//! }
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::{Layout, Mkey, MkeyConfig}, queue::SendRequest};
//! # use mlx5_mkey::{error::PostError, wqe::PreparedConfig};
//! fn configure(
//!     request: SendRequest<'_, '_>, mkey: &mut Mkey, prepared: &PreparedConfig,
//! ) -> Result<(), PostError> {
//!     request.configure_mkey(mkey, &MkeyConfig::UNCHANGED, Layout::Unchanged)
//! }
//! ```
//!
//! # A queue whose number of blocks is no power of two
//! ```
//! # use mlx5_mkey::queue::SendSlot;
//! let slots = SendSlot::array::<64>();
//! ```
//! ```compile_fail,E0080
//! # use mlx5_mkey::queue::SendSlot;
//! let slots = SendSlot::array::<63>();
//! ```
//!
//! # A ring that is still accessible elsewhere
//! ```
//! # use mlx5_mkey::{queue::{Doorbell, DoorbellRecord, SendQueue, SendQueueConfig, SendSlot}, types::Qpn,
//! #     wire::Wqebb};
//! # fn make<D: Doorbell>(doorbell: D, record: &DoorbellRecord) {
//! let (mut ring, mut slots) = ([Wqebb::ZERO; 16], SendSlot::array::<16>());
//! let config = SendQueueConfig::new(Qpn::from_low_bits(1));
//! let queue = SendQueue::new(config, &mut ring, &mut slots, record, doorbell);
//! drop(queue);
//! let first = ring[0];
//! # }
//! ```
//! ```compile_fail,E0503
//! # use mlx5_mkey::{queue::{Doorbell, DoorbellRecord, SendQueue, SendQueueConfig, SendSlot}, types::Qpn,
//! #     wire::Wqebb};
//! # fn make<D: Doorbell>(doorbell: D, record: &DoorbellRecord) {
//! let (mut ring, mut slots) = ([Wqebb::ZERO; 16], SendSlot::array::<16>());
//! let config = SendQueueConfig::new(Qpn::from_low_bits(1));
//! let queue = SendQueue::new(config, &mut ring, &mut slots, record, doorbell);
//! let first = ring[0];
//! drop(queue);
//! # }
//! ```
//!
//! # Freeing blocks that the device has not read
//! ```
//! # use mlx5_mkey::queue::{CompletedSend, CompletedReceive, QpQueues, Retired};
//! fn retire(queues: &mut impl QpQueues, done: CompletedSend<'_>) -> Option<Retired> {
//!     queues.retire_send(done)
//! }
//! ```
//! Freed by a block number in place of a completion:
//! ```compile_fail,E0308
//! # use mlx5_mkey::queue::{CompletedSend, CompletedReceive, QpQueues, Retired};
//! fn retire(queues: &mut impl QpQueues, done: u16) -> Option<Retired> {
//!     queues.retire_send(done)
//! }
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::queue::{DoorbellRecord, Doorbell, SendQueue, Retired};
//! fn retire<D: Doorbell>(queue: &mut SendQueue<'_, D>, done: u16) -> Option<Retired> {
//!     queue.retire(done)
//! }
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::queue::ReceiveQueue;
//! fn retire(queue: &mut ReceiveQueue<'_>, done: u16) -> Option<u64> {
//!     queue.retire(done)
//! }
//! ```
//! Freed twice, by the same completion:
//! ```compile_fail,E0382
//! # use mlx5_mkey::queue::{CompletedSend, CompletedReceive, QpQueues, Retired};
//! fn retire(queues: &mut impl QpQueues, done: CompletedSend<'_>) -> Option<Retired> {
//!     queues.retire_send(done);
//!     queues.retire_send(done)
//! }
//! ```
//! Blocks of the send queue, freed by a completion of the receive queue:
//! ```compile_fail,E0308
//! # use mlx5_mkey::queue::{CompletedSend, CompletedReceive, QpQueues, Retired};
//! fn retire(queues: &mut impl QpQueues, done: CompletedReceive<'_>) -> Option<Retired> {
//!     queues.retire_send(done)
//! }
//! ```
//! Freed later, by a completion that was kept:
//! ```
//! # use mlx5_mkey::{queue::{CompletedSend, CompletedReceive, QpQueues, Retired}, types::Qpn};
//! struct Counted<Q>(Q, u64);
//! impl<Q: QpQueues> QpQueues for Counted<Q> {
//!     fn qpn(&self) -> Qpn { self.0.qpn() }
//!     fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
//!         self.1 += 1;
//!         self.0.retire_send(done)
//!     }
//!     fn retire_receive(&mut self, _: CompletedReceive<'_>) -> Option<u64> { None }
//! }
//! ```
//! ```compile_fail
//! # use mlx5_mkey::{queue::{CompletedSend, CompletedReceive, QpQueues, Retired}, types::Qpn};
//! struct Kept<'k, Q>(Q, Option<CompletedSend<'k>>);
//! impl<Q: QpQueues> QpQueues for Kept<'_, Q> {
//!     fn qpn(&self) -> Qpn { self.0.qpn() }
//!     fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
//!         self.1 = Some(done);
//!         None
//!     }
//!     fn retire_receive(&mut self, _: CompletedReceive<'_>) -> Option<u64> { None }
//! }
//! ```
//! Freed by a completion that the user has made:
//! ```compile_fail,E0451
//! # use mlx5_mkey::{queue::{CompletedSend, CompletedReceive, QpQueues, Retired}, types::Qpn};
//! fn retire(
//!     queues: &mut impl QpQueues, CompletedSend { qpn, queue, entry, .. }: CompletedSend<'_>,
//! ) -> Option<Retired> {
//!     queues.retire_send(CompletedSend { qpn, counter: 0, queue, entry })
//! }
//! ```
