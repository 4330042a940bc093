//! Requests that queues and mkeys refuse because the device or the queue has fewer capabilities than any
//! board of the scenarios: small queues, missing features.

use hil_tests::doorbell::Silent;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{
    BlockSignature, Domain, InterleavedEntry, KlmEntry, Layout, Mkey, MkeyAttributes, MkeyConfig, Signature,
    SignatureAttributes, SignatureCapabilities, SignatureChange,
};
use mlx5_mkey::queue::{DoorbellRecord, SendQueue, SendQueueConfig, SendSlot};
use mlx5_mkey::types::{BlockSize, Key, PsvIndex, Qpn, Seed};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::PreparedConfig;

/// Returns an mkey with a signature, for a device with these capabilities.
fn mkey(capabilities: SignatureCapabilities) -> Mkey {
    let psvs = (PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2));
    let signature = SignatureAttributes { capabilities, ..SignatureAttributes::new(psvs.0, psvs.1) };
    let plain = MkeyAttributes::plain(Key::from_raw(0x5600), 32);
    Mkey::new(MkeyAttributes { signature: Some(signature), ..plain })
}

/// Posts a configuration to a queue of 16 blocks. Checks that a refusal leaves the queue empty and the mkey
/// unchanged.
fn post(
    limits: SendQueueConfig,
    mkey: &mut Mkey,
    config: &MkeyConfig,
    layout: Layout<'_>,
) -> Result<(), PostError> {
    let prepared = PreparedConfig::new(mkey.kind(), config)?;
    let (mut ring, mut slots) = ([Wqebb::ZERO; 16], SendSlot::array::<16>());
    let record = DoorbellRecord::new();
    let mut queue = SendQueue::new(limits, &mut ring, &mut slots, &record, Silent).expect("a ring");
    let before = mkey.clone();
    let result = queue.request(1).configure_mkey(mkey, &prepared, layout);
    if result.is_err() {
        assert_eq!((queue.producer(), queue.outstanding()), (0, 0));
        assert_eq!(before, *mkey);
        assert!(ring.iter().all(|block| block.0 == [0; 64]));
    }
    result
}

fn large() -> SendQueueConfig {
    SendQueueConfig::new(Qpn::from_low_bits(7))
}

fn wire(signature: Signature, block_size: BlockSize) -> BlockSignature {
    BlockSignature::wire(Domain { signature, block_size })
}

fn set(block: BlockSignature) -> MkeyConfig {
    MkeyConfig { signature: SignatureChange::Set(block), ..MkeyConfig::UNCHANGED }
}

#[test]
fn r097_blocks_of_4048_bytes_need_a_capability() {
    let less = SignatureCapabilities { block_4048: false, ..SignatureCapabilities::ALL };
    for size in BlockSize::ALL {
        let config = set(wire(Signature::Crc32(Seed::Ones), size));
        let refused = Err(PostError::Config(ConfigError::BlockSizeUnsupported(size)));
        let expected = if size == BlockSize::B4048 { refused } else { Ok(()) };
        assert_eq!(post(large(), &mut mkey(less), &config, Layout::Unchanged), expected, "{size:?}");
        let mut able = mkey(SignatureCapabilities::ALL);
        assert_eq!(post(large(), &mut able, &config, Layout::Unchanged), Ok(()), "{size:?}");
    }
}

#[test]
fn r102_crc32c_and_crc64_need_capabilities() {
    let all = SignatureCapabilities::ALL;
    let less =
        [SignatureCapabilities { crc32c: false, ..all }, SignatureCapabilities { crc64_xp10: false, ..all }];
    let kinds =
        [Signature::Crc32c(Seed::Ones), Signature::Crc64Xp10(Seed::Ones), Signature::Crc32(Seed::Ones)];
    for (lacking, less) in less.into_iter().enumerate() {
        for (number, kind) in kinds.into_iter().enumerate() {
            let refused = Err(PostError::Config(ConfigError::SignatureUnsupported));
            let expected = if number == lacking { refused } else { Ok(()) };
            let config = set(wire(kind, BlockSize::B512));
            assert_eq!(post(large(), &mut mkey(less), &config, Layout::Unchanged), expected, "{kind:?}");
        }
    }
}

#[test]
fn r037_a_default_request_holds_four_entries_or_three_streams() {
    let limits = SendQueueConfig { max_inline_data: 60, ..large() };
    let key = Key::from_raw(0x100);
    let list = [KlmEntry { address: 0x1000, length: 8, key }; 5];
    let streams = [InterleavedEntry { address: 0x1000, bytes: 8, skip: 0, key }; 4];
    let post = |layout| {
        let mut plain = Mkey::new(MkeyAttributes::plain(Key::from_raw(0x5600), 32));
        post(limits, &mut plain, &MkeyConfig::UNCHANGED, layout)
    };
    assert_eq!(post(Layout::List(&list[..4])), Ok(()));
    let refused = ConfigError::TooManyEntries { max: 4 };
    assert_eq!(post(Layout::List(&list)), Err(refused.into()));
    assert_eq!(post(Layout::Interleaved { repeat: 2, entries: &streams[..3] }), Ok(()), "three entries fit");
    let refused = ConfigError::TooManyEntries { max: 3 };
    assert_eq!(
        post(Layout::Interleaved { repeat: 2, entries: &streams }),
        Err(refused.into()),
        "four do not"
    );
}

#[test]
fn r178_three_work_requests_need_three_places() {
    let domain = |signature| Domain { signature, block_size: BlockSize::B512 };
    let both =
        BlockSignature::both(domain(Signature::Crc32(Seed::Ones)), domain(Signature::Crc32c(Seed::Ones)));
    let config = set(both);
    let mut mkey = mkey(SignatureCapabilities::ALL);
    let limits = SendQueueConfig { max_requests: 2, ..large() };
    let refused = PostError::TooManyRequests { needed: 3, free: 2 };
    assert_eq!(post(limits, &mut mkey, &config, Layout::Unchanged), Err(refused));
    let limits = SendQueueConfig { max_requests: 3, ..large() };
    assert_eq!(post(limits, &mut mkey, &config, Layout::Unchanged), Ok(()));
}
