//! Tests of the pipeline as a pure function: for all transforms, received wire bytes give the transmitted
//! memory bytes again.

use mlx5_softdev::crypto::Xts;
use mlx5_softdev::pipeline::{Cipher, Domain, Order, Transform};
use mlx5_softdev::signature::{CrcKind, Dif, GuardKind, Rule};
use mlx5_softdev::{Faults, PartialBlocks};
use proptest::prelude::*;

fn rule() -> impl Strategy<Value = Rule> {
    let kind = prop::sample::select(vec![CrcKind::Crc32, CrcKind::Crc32c, CrcKind::Crc64Xp10]);
    let guard = prop::sample::select(vec![GuardKind::Crc, GuardKind::IpChecksum]);
    prop_oneof![
        (kind, any::<bool>()).prop_map(|(kind, seed_ones)| Rule::Crc { kind, seed_ones }),
        (guard, any::<bool>(), any::<u16>(), any::<u32>(), any::<bool>()).prop_map(
            |(guard, seed_ones, app_tag, ref_tag, increment)| Rule::T10Dif(Dif {
                guard,
                seed_ones,
                app_tag,
                app_mask: 0xffff,
                ref_tag,
                increment,
                app_escape: false,
                app_ref_escape: false,
            })
        ),
    ]
}

fn domain() -> impl Strategy<Value = Option<Domain>> {
    prop::option::of(rule().prop_map(|rule| Domain { block: 512, rule, psv: 1 }))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn out_and_in_again(
        memory in domain(), wire in domain(), check_mask in any::<u8>(), blocks in 1u64..6, first in 0u64..9,
        order in 0usize..5, seed in any::<u8>(), tweak in any::<u128>(),
    ) {
        let key = Xts::new(&[seed; 32]).unwrap();
        let orders = [Order::WireSignature, Order::MemorySignature, Order::RawWire, Order::RawMemory];
        let (copy_mask, cipher, transaction) = (0, None, None);
        let mut transform = Transform { memory, wire, check_mask, copy_mask, cipher, transaction };
        let bytes = |domain: Option<Domain>| 512 + domain.map_or(0, |domain| u64::from(domain.rule.bytes()));
        if let Some(order) = orders.get(order) {
            let (inner, outer) = (bytes(memory), bytes(wire));
            let unit = match order {
                Order::WireSignature => outer,
                Order::MemorySignature => inner,
                _ => 512,
            };
            let (order, unit) = (*order, unit as u32);
            let cipher = Cipher { key: &key, order, unit, tweak, step: 1, single_block: false };
            transform.cipher = Some(cipher);
        }
        let none = Faults::default();
        let (offset, length) = (first * bytes(wire), blocks * bytes(wire));
        let span = transform.span(offset, length, PartialBlocks::Refuse, &none).unwrap();
        prop_assert_eq!(span.memory_length, blocks * bytes(memory));
        // Transmitting any memory bytes gives valid wire bytes. Receiving these wire bytes gives valid memory
        // bytes.
        let any = vec![seed; span.memory_length as usize];
        let sent = transform.transmit(&span, any, &none).unwrap().bytes;
        prop_assert_eq!(sent.len() as u64, span.wire_length);
        let stored = transform.receive(&span, sent.clone(), &none).unwrap();
        prop_assert_eq!(stored.error, None);
        let again = transform.transmit(&span, stored.bytes.clone(), &none).unwrap();
        prop_assert_eq!(again.error, None);
        prop_assert_eq!(&again.bytes, &sent);
        // If the check mask selects all bytes, a flipped bit of the input is noticed in both domains.
        transform.check_mask = 0xff;
        if memory.is_some() && wire.is_none() {
            let mut bad = stored.bytes;
            bad[5] ^= 1;
            prop_assert!(transform.transmit(&span, bad, &none).unwrap().error.is_some());
        }
        if wire.is_some() {
            let mut bad = sent;
            bad[5] ^= 1;
            prop_assert!(transform.receive(&span, bad, &none).unwrap().error.is_some());
        }
    }

    #[test]
    fn spans_of_anything_do_not_overflow(
        memory in domain(), wire in domain(),
        offset in any::<u64>(), length in any::<u64>(), faulty in any::<bool>(),
    ) {
        let faults = Faults { length_counts_memory_bytes: faulty, ..Default::default() };
        let transform = Transform { memory, wire, ..Default::default() };
        let _ = transform.span(offset, length, PartialBlocks::Pass, &faults);
    }
}
