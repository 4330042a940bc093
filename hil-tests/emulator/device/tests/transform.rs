//! Tests of the pipeline as a pure function.

use mlx5_softdev::pipeline::{Domain, Transform};
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
    fn spans_of_anything_do_not_overflow(
        memory in domain(), wire in domain(),
        offset in any::<u64>(), length in any::<u64>(), faulty in any::<bool>(),
    ) {
        let faults = Faults { length_counts_memory_bytes: faulty, ..Default::default() };
        let transform = Transform { memory, wire, ..Default::default() };
        let _ = transform.span(offset, length, PartialBlocks::Pass, &faults);
    }
}
