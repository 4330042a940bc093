use super::*;
use crate::types::Key;
use std::vec;

const CONFIG: ReceiveQueueConfig = ReceiveQueueConfig { qpn: Qpn::from_low_bits(1), entries_per_slot: 2 };

#[test]
fn slots_are_filled_ended_and_given_back() {
    let (mut ring, record) = (vec![DataSegment::default(); 8], DoorbellRecord::new());
    let sge = |address| Sge { address, length: 16, lkey: Key::from_raw(0x500) };
    let mut queue = ReceiveQueue::new(CONFIG, &mut ring, std::vec![0; 4].leak(), &record).unwrap();
    queue.post(7, &[sge(1)]).unwrap();
    queue.post(8, &[sge(2), sge(3)]).unwrap();
    assert_eq!(queue.post(9, &[sge(1); 3]), Err(PostError::TooManySges { sges: 3, max: 2 }));
    assert_eq!(queue.retire_at(0), None, "not published");
    queue.publish();
    assert_eq!(record.bytes()[0], [0, 0, 0, 2]);
    queue.post(9, &[]).unwrap();
    queue.post(10, &[]).unwrap();
    let full = queue.post(11, &[]).unwrap_err();
    assert_eq!(full, PostError::ReceiveRingFull { slots: 4 });
    assert_eq!(std::format!("{full}"), "receive ring full: none of 4 slots is free");
    assert_eq!(queue.retire_at(1), Some(8), "and 7 with it");
    assert_eq!(queue.retire_at(1), None);
    assert_eq!(queue.retire_at(2), None, "not published");
    assert_eq!(queue.free_slots(), 2);
    assert_eq!(ring[..4], [sge(1).to_wire(), DataSegment::END_OF_LIST, sge(2).to_wire(), sge(3).to_wire()]);
    assert_eq!(ring[4], DataSegment::END_OF_LIST);
}

#[test]
fn a_refused_request_takes_no_slot() {
    let (mut ring, record) = (vec![DataSegment::default(); 4], DoorbellRecord::new());
    let mut queue = ReceiveQueue::new(CONFIG, &mut ring, std::vec![0; 4].leak(), &record).unwrap();
    let sge = |length| Sge { address: 1, length, lkey: Key::from_raw(0x500) };
    queue.post(1, &[sge(1)]).unwrap();
    let too_long = PostError::SgeTooLong { index: 1, mebibytes: 2048 };
    for (length, error) in [(0, PostError::SgeEmpty { index: 1 }), (1 << 31, too_long)] {
        assert_eq!(queue.post(2, &[sge(1), sge(length)]), Err(error));
        assert_eq!(queue.free_slots(), 1);
    }
    queue.publish();
    assert_eq!(record.bytes()[0], [0, 0, 0, 1]);
    queue.post(3, &[sge(Sge::MAX_BYTES); 2]).unwrap();
    queue.publish();
    assert_eq!((queue.retire_at(1), queue.retire_at(2)), (Some(3), None));
    assert_eq!(ring[..2], [sge(1).to_wire(), DataSegment::END_OF_LIST], "the first is as it was");
}

#[test]
fn a_wrong_size_is_named() {
    let record = DoorbellRecord::new();
    for (entries_per_slot, entries, names, text) in [
        (2, 6, 4, "3 slots of a receive queue: a power of two up to 32768 is wanted"),
        (3, 8, 4, "3 entries of a receive slot: a power of two up to 8 is wanted"),
        (2, 8, 3, "3 names of receive requests, 4 are needed"),
    ] {
        let config = ReceiveQueueConfig { entries_per_slot, ..CONFIG };
        let (mut ring, mut ids) = (vec![DataSegment::default(); entries], vec![0; names]);
        let error = ReceiveQueue::new(config, &mut ring, &mut ids, &record).err().unwrap();
        assert_eq!(std::format!("{error}"), text);
    }
}

#[test]
fn positions_wrap() {
    let (mut ring, record) = (vec![DataSegment::default(); 4], DoorbellRecord::new());
    let mut queue =
        ReceiveQueue::new(CONFIG, &mut ring, std::vec![0; 4].leak(), &record).unwrap().starting_at(0xffff);
    assert_eq!((queue.free_slots(), queue.retire_at(0xffff), queue.retire_at(0xfffe)), (2, None, None));
    let sge = Sge { address: 9, length: 16, lkey: Key::from_raw(0x500) };
    queue.post(1, &[sge; 2]).unwrap();
    queue.post(2, &[sge; 2]).unwrap();
    assert_eq!(queue.post(3, &[sge; 2]), Err(PostError::ReceiveRingFull { slots: 2 }));
    queue.publish();
    assert_eq!(record.bytes()[0], [0, 0, 0, 1]);
    assert_eq!((queue.retire_at(0xffff), queue.retire_at(0)), (Some(1), Some(2)));
    assert_eq!(ring, [sge.to_wire(); 4]);
}

#[test]
fn what_was_outstanding_is_handed_back_and_the_queue_begins_anew() {
    let (mut ring, record) = (vec![DataSegment::default(); 4], DoorbellRecord::new());
    let mut queue = ReceiveQueue::new(CONFIG, &mut ring, std::vec![0; 4].leak(), &record).unwrap();
    for id in 1..=3 {
        queue.post(id, &[]).unwrap();
        queue.publish();
        if id == 1 {
            assert_eq!(queue.retire_at(0), Some(1));
        }
    }
    let mut seen = vec![];
    queue.restart(|id| seen.push(id));
    assert_eq!((seen, queue.free_slots()), (vec![2, 3], 2));
    assert_eq!((record.bytes()[0], queue.retire_at(1)), ([0; 4], None));
    queue.post(4, &[]).unwrap();
    queue.publish();
    assert_eq!(record.bytes()[0], [0, 0, 0, 1]);
    assert_eq!((queue.retire_at(2), queue.retire_at(0)), (None, Some(4)));
}

#[test]
fn sizes_are_checked() {
    let record = DoorbellRecord::new();
    for (entries, entries_per_slot) in [(8, 3), (8, 0), (8, 16), (6, 2), (16, 2)] {
        let mut ring = vec![DataSegment::default(); entries];
        let config = ReceiveQueueConfig { entries_per_slot, ..CONFIG };
        assert!(
            ReceiveQueue::new(config, &mut ring, std::vec![0; 4].leak(), &record).is_err(),
            "{entries} {entries_per_slot}"
        );
    }
}
