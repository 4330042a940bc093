use super::*;
use crate::mkey::{SignatureAttributes, SignatureFault};
use crate::queue::{Doorbell, DoorbellRecord, LastRequest, SendQueue, SendQueueConfig};
use crate::types::{PsvIndex, Qpn};
use crate::wire::Wqebb;

struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: &LastRequest<'_>) {}
}

#[test]
fn an_mkey_is_in_use_or_not() {
    let attributes = |index: u32| MkeyAttributes {
        tag_update: index == 1,
        ..MkeyAttributes::plain(Key::from_raw(index << 8), 4)
    };
    let mut pool = MkeyPool::<2>::new((1..4).map(|index| Mkey::new(attributes(index))));
    assert_eq!((pool.available(), pool.mkeys().len()), (2, 2), "the third is left out");
    let (mut ring, record) = ([Wqebb::ZERO; 2], DoorbellRecord::new());
    let config = SendQueueConfig::new(Qpn::default());
    let mut queue = SendQueue::<_, 2>::new(config, &mut ring, &record, Silent).unwrap();
    let (fixed, mkey) = pool.take().unwrap();
    assert_eq!((fixed.position(), mkey.key().get()), (1, 0x200), "the device cannot change tags");
    let (tagged, mkey) = pool.take().unwrap();
    assert_eq!((tagged.position(), mkey.key().get()), (0, 0x101));
    assert!(pool.take().is_none());
    pool.put(tagged, queue.request(1)).unwrap();
    assert_eq!(queue.outstanding(), 1);
    let (error, fixed) = pool.put(fixed, queue.request(2)).unwrap_err();
    assert_eq!((error, pool.available()), (PostError::SendRingFull { needed: 2, free: 0 }, 1));
    pool.put_unused(fixed);
    let _other = pool.take().unwrap().0;
    let (tagged, _) = pool.take().unwrap();
    assert_eq!(pool.get_mut(&tagged).map(|mkey| mkey.key().get()), Some(0x102), "another key");
    let mut stranger = MkeyPool::<2>::new([Mkey::new(attributes(7))]);
    assert!(stranger.get_mut(&tagged).is_none());
    let (error, tagged) = stranger.put(tagged, queue.request(3)).unwrap_err();
    assert_eq!((error, queue.outstanding()), (PostError::OtherPool, 1), "nothing is posted");
    stranger.put_unused(tagged);
    assert_eq!(stranger.available(), 1, "one of another pool changes nothing");
}

fn plain(index: u32) -> Mkey {
    Mkey::new(MkeyAttributes::plain(Key::from_raw(index << 8), 4))
}

fn indices<const N: usize>(pool: &mut MkeyPool<N>) -> [u32; N] {
    core::array::from_fn(|position| pool.mkeys()[position].key().index().get())
}

#[test]
fn mkeys_come_and_go_around_those_in_use() {
    let mut pool = MkeyPool::<3>::new([]);
    assert!(pool.take().is_none() && pool.remove_unused().is_none() && pool.mkeys().is_empty());
    for index in 1..4 {
        assert_eq!(pool.insert(plain(index)), Ok(index as usize - 1));
    }
    assert_eq!(pool.insert(plain(4)), Err(plain(4)), "it is full");
    let last = pool.take().unwrap().0;
    assert_eq!(pool.remove_unused(), Some((1, plain(2))));
    assert_eq!(pool.remove_unused(), Some((0, plain(1))));
    assert_eq!(pool.remove_unused(), None, "the last one is in use");
    assert_eq!((pool.available(), indices(&mut pool), last.position()), (0, [0, 0, 3], 2));
    assert_eq!(pool.insert(plain(5)), Ok(0));
    assert_eq!(pool.insert(plain(6)), Ok(1));
    assert_eq!(pool.insert(plain(7)), Err(plain(7)));
    assert_eq!((pool.available(), indices(&mut pool)), (2, [5, 6, 3]));
    assert_eq!(pool.get_mut(&last), Some(&mut plain(3)));
    pool.put_unused(last);
    let taken: [u32; 3] = core::array::from_fn(|_| pool.take().unwrap().1.key().index().get());
    assert_eq!(taken, [3, 6, 5], "each once");
}

#[test]
fn an_error_of_an_earlier_use_is_not_told() {
    let psvs = SignatureAttributes::new(PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2));
    let attributes =
        MkeyAttributes { signature: Some(psvs), ..MkeyAttributes::plain(Key::from_raw(0x700), 4) };
    let mut pool = MkeyPool::<1>::new([Mkey::new(attributes)]);
    let (handle, mkey) = pool.take().unwrap();
    let fault = SignatureFault {
        mkey: mkey.key().index(),
        syndrome: 0,
        sig_type: 0,
        domain: 0,
        expected: 0,
        actual: 0,
        offset: 0,
    };
    assert!(mkey.record(&fault));
    pool.put_unused(handle);
    let (_handle, mkey) = pool.take().unwrap();
    assert_eq!(mkey.check(), Ok(None));
    assert!(mkey.error_count().is_some_and(|count| count.pending && count.seen == 2), "the device is told");
}
