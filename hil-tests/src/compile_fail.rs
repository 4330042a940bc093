//! Mistakes that the types of the library do not let one write. Each stands beside a twin that differs in the mistake alone
//! and compiles, so that it fails for the right reason.
//!
//! # Two layouts in one configuration (R33), a setter twice (R9)
//! ```
//! # use mlx5_mkey::mkey::{Layout, MkeyConfig};
//! let config = MkeyConfig { layout: Some(Layout::list(&[])), ..MkeyConfig::KEEP };
//! ```
//! ```compile_fail,E0062
//! # use mlx5_mkey::mkey::{Layout, MkeyConfig};
//! let config = MkeyConfig { layout: Some(Layout::list(&[])), layout: Some(Layout::list(&[])), ..MkeyConfig::KEEP };
//! ```
//!
//! # A list entry in an interleaved layout (R36, R40)
//! ```
//! # use mlx5_mkey::{mkey::{InterleavedEntry, Layout}, types::Key};
//! let entry = InterleavedEntry::new(0x1000, 8, 0, Key::from_raw(0x100))?;
//! Layout::interleaved(2, &[entry])?;
//! # Ok::<(), mlx5_mkey::error::ConfigError>(())
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::{ListEntry, Layout}, types::Key};
//! let entry = ListEntry::new(0x1000, 8, Key::from_raw(0x100))?;
//! Layout::interleaved(2, &[entry])?;
//! # Ok::<(), mlx5_mkey::error::ConfigError>(())
//! ```
//!
//! # An access flag that an mkey has not (R29)
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
//! # Unknown flags and comp_mask (R23, R26, R71, R93, R98, R113, R161)
//! ```
//! # use mlx5_mkey::mkey::MkeyConfig;
//! let config = MkeyConfig { access: None, ..MkeyConfig::KEEP };
//! ```
//! ```compile_fail,E0560
//! # use mlx5_mkey::mkey::MkeyConfig;
//! let config = MkeyConfig { comp_mask: 1, ..MkeyConfig::KEEP };
//! ```
//!
//! # Resetting and setting a signature at once (R20)
//! ```
//! # use mlx5_mkey::mkey::{MkeyConfig, SignatureChange};
//! let config = MkeyConfig { signature: SignatureChange::Reset, ..MkeyConfig::KEEP };
//! ```
//! ```compile_fail,E0369
//! # use mlx5_mkey::mkey::{MkeyConfig, SignatureChange};
//! let config = MkeyConfig { signature: SignatureChange::Reset | SignatureChange::Keep, ..MkeyConfig::KEEP };
//! ```
//!
//! # A seed that is neither zeros nor ones (R104, R105, R110)
//! ```
//! # use mlx5_mkey::{mkey::Signature, types::Seed};
//! let signature = Signature::Crc32(Seed::Ones);
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::Signature, types::Seed};
//! let signature = Signature::Crc32(0x1234_5678);
//! ```
//!
//! # A signature of no domain (R70), of a size that is none (R96), of one type with parameters of another (R94, R95)
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
//! # use mlx5_mkey::mkey::BlockSignature;
//! let signature = BlockSignature { memory: None, wire: None, check_mask: 0xff, copy_mask: None };
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
//! # Both escape flags (D10)
//! ```
//! # use mlx5_mkey::mkey::Escape;
//! let escape = Escape::AppAndRefTag;
//! ```
//! ```compile_fail,E0369
//! # use mlx5_mkey::mkey::Escape;
//! let escape = Escape::AppAndRefTag | Escape::AppTag;
//! ```
//!
//! # A copy mask that nobody has checked (R90)
//! ```
//! # use mlx5_mkey::{mkey::{BlockSignature, Domain, MkeyConfig, Signature, SignatureChange}, types::{BlockSize, Seed}};
//! # let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
//! let signature = BlockSignature::both(domain, domain).with_copy_mask(0xf0)?;
//! let config = MkeyConfig { signature: SignatureChange::Set(&signature), ..MkeyConfig::KEEP };
//! # Ok::<(), mlx5_mkey::error::ConfigError>(())
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{mkey::{BlockSignature, Domain, MkeyConfig, Signature, SignatureChange}, types::{BlockSize, Seed}};
//! # let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
//! let signature = BlockSignature::both(domain, domain).with_copy_mask(0xf0);
//! let config = MkeyConfig { signature: SignatureChange::Set(&signature), ..MkeyConfig::KEEP };
//! # Ok::<(), mlx5_mkey::error::ConfigError>(())
//! ```
//!
//! # A tweak in somebody's byte order (D7)
//! ```
//! # use mlx5_mkey::types::Tweak;
//! let tweak = Tweak::from_le_bytes([0; 16]);
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::types::Tweak;
//! let tweak: Tweak = [0u8; 16];
//! ```
//!
//! # A number of one object for another
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
//! fn read<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>, remote: Remote, sge: Sge) -> Result<(), PostError> {
//!     queue.request(1).rdma_write(remote, Payload::Inline(&[1, 2]))?;
//!     queue.request(2).rdma_read(remote, &[sge])
//! }
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}, wqe::{Payload, Remote, Sge}};
//! fn read<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>, remote: Remote, sge: Sge) -> Result<(), PostError> {
//!     queue.request(1).rdma_write(remote, Payload::Inline(&[1, 2]))?;
//!     queue.request(2).rdma_read(remote, Payload::Inline(&[1, 2]))
//! }
//! ```
//!
//! # Two requests at once: one is open until it is posted (R7, R120, R164)
//! ```
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn two<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>) -> Result<(), PostError> {
//!     let first = queue.request(1);
//!     first.nop()?;
//!     let second = queue.request(2);
//!     second.nop()
//! }
//! ```
//! ```compile_fail,E0499
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn two<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>) -> Result<(), PostError> {
//!     let first = queue.request(1);
//!     let second = queue.request(2);
//!     first.nop()?;
//!     second.nop()
//! }
//! ```
//!
//! # The doorbell while a request is open (R7)
//! ```
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn ring<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>) -> Result<(), PostError> {
//!     let request = queue.request(1);
//!     request.nop()?;
//!     queue.ring_doorbell();
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0499
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn ring<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>) -> Result<(), PostError> {
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
//! fn once<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>) -> Result<(), PostError> {
//!     let request = queue.request(1);
//!     request.nop()
//! }
//! ```
//! ```compile_fail,E0382
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn once<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>) -> Result<(), PostError> {
//!     let request = queue.request(1);
//!     request.nop()?;
//!     request.nop()
//! }
//! ```
//!
//! # Posting from two places without a lock
//! ```
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SharedSendQueue}};
//! fn both<D: Doorbell>(queue: &SharedSendQueue<'_, D, 16>) -> Result<(), PostError> {
//!     let post = || queue.with(|queue| queue.request(1).nop());
//!     let other = || queue.with(|queue| queue.request(2).nop());
//!     post()?;
//!     other()
//! }
//! ```
//! ```compile_fail,E0524
//! # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}};
//! fn both<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>) -> Result<(), PostError> {
//!     let mut post = || queue.request(1).nop();
//!     let mut other = || queue.request(2).nop();
//!     post()?;
//!     other()
//! }
//! ```
//!
//! # A configuration without its mkey's shadow (R21)
//! ```
//! # use mlx5_mkey::{error::PostError, mkey::{Mkey, MkeyConfig}, queue::{Doorbell, SendQueue}};
//! fn configure<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>, mkey: &mut Mkey) -> Result<(), PostError> {
//!     queue.request(1).configure_mkey(mkey, &MkeyConfig::KEEP)
//! }
//! ```
//! ```compile_fail,E0308
//! # use mlx5_mkey::{error::PostError, mkey::{Mkey, MkeyConfig}, queue::{Doorbell, SendQueue}};
//! fn configure<D: Doorbell>(queue: &mut SendQueue<'_, D, 16>, mkey: &mut Mkey) -> Result<(), PostError> {
//!     queue.request(1).configure_mkey(mkey.key(), &MkeyConfig::KEEP)
//! }
//! ```
//!
//! # A ring that someone else still reaches
//! ```
//! # use mlx5_mkey::{queue::{Doorbell, DoorbellRecord, SendQueue, SendQueueConfig}, types::Qpn, wire::Wqebb};
//! # fn make<D: Doorbell>(doorbell: D, record: &DoorbellRecord) {
//! let mut ring = [Wqebb::ZERO; 16];
//! let queue = SendQueue::<_, 16>::new(SendQueueConfig::new(Qpn::from_low_bits(1)), &mut ring, record, doorbell);
//! drop(queue);
//! let first = ring[0];
//! # }
//! ```
//! ```compile_fail,E0503
//! # use mlx5_mkey::{queue::{Doorbell, DoorbellRecord, SendQueue, SendQueueConfig}, types::Qpn, wire::Wqebb};
//! # fn make<D: Doorbell>(doorbell: D, record: &DoorbellRecord) {
//! let mut ring = [Wqebb::ZERO; 16];
//! let queue = SendQueue::<_, 16>::new(SendQueueConfig::new(Qpn::from_low_bits(1)), &mut ring, record, doorbell);
//! let first = ring[0];
//! drop(queue);
//! # }
//! ```
