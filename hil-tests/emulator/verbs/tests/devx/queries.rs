//! A test of asynchronous queries, whose answers are taken later.

use super::verbs::readable;
use super::{Bench, Counts, Inside, MOMENT, TIMEOUT, errno, preloaded};
use mlx5_mkey::command::{DekKey, DekState, QpState, QueryDek, QueryQp, XtsKey};
use mlx5_mkey::devx::QueuePairSpec;
use mlx5_mkey::types::Qpn;
use std::time::Duration;

#[test]
fn answers_are_taken_when_they_have_come() {
    let Inside = preloaded() else { return };
    let bench = Bench::new(QueuePairSpec::default()).unwrap();
    let key: [u8; 32] = std::array::from_fn(|index| index as u8);
    let key = DekKey::Plain128 { key: XtsKey::new(&key).unwrap(), keytag: None };
    let dek = bench.pd.create_dek(key, *b"volume 7").unwrap();
    let queries = bench.device.queries().unwrap();
    assert_eq!(queries.next(MOMENT).unwrap(), None);
    let (control, query) = (bench.queue.control(), QueryQp(bench.queue.qpn()));
    dek.query_later(&queries, u64::MAX).unwrap();
    for id in 0..20 {
        control.query_later(&queries, &query, id).unwrap();
    }
    let refused = control.query_later(&queries, &QueryQp(Qpn::from_low_bits(0xfff)), 99);
    assert_eq!(errno(refused), Some(libc::EINVAL));
    // This answer, of a DEK, is shorter than the longest requested answer, which is of a queue pair.
    let first = queries.next(TIMEOUT).unwrap().unwrap();
    let info = first.decode(&QueryDek(dek.object())).unwrap();
    assert_eq!((first.id, info.state, info.opaque), (u64::MAX, DekState::READY, *b"volume 7"));
    for id in 0..20 {
        assert!(readable(&queries, Duration::ZERO), "{id}");
        let answer = queries.next(TIMEOUT).unwrap().unwrap();
        assert_eq!((answer.id, answer.decode(&query).unwrap().state), (id, QpState::RTS));
    }
    assert!(!readable(&queries, Duration::ZERO));

    // If a program takes no answers, further queries are refused at some point. No answer is lost.
    let mut asked = 0;
    let full = loop {
        match control.query_later(&queries, &query, asked) {
            Ok(()) => asked += 1,
            refused => break refused,
        }
        assert!(asked < 10_000);
    };
    assert_eq!(errno(full), Some(libc::EAGAIN));
    for id in 0..asked {
        assert_eq!(queries.next(TIMEOUT).unwrap().unwrap().id, id);
    }
    control.query_later(&queries, &query, 7).unwrap();
    drop((bench, dek));
    assert_eq!(queries.next(TIMEOUT).unwrap().unwrap().id, 7, "the channel keeps the device open");
    drop(queries);
    assert_eq!(Counts { refused: 0, ..Counts::now() }, Counts::NONE);
}
