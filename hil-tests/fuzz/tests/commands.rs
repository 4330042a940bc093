//! The fuzz target `replies` must call each command of the library. `cargo xtask test aarch64` finds a
//! command that is missing in the list of the freestanding program. The test compares the target with this
//! list.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;

#[test]
fn all_commands_are_fuzzed() {
    let source = include_str!("../../freestanding/src/commands.rs");
    let (_, list) = source.split_once("\ncommands! {").unwrap();
    let (list, _) = list.split_once('}').unwrap();
    // `CreateEq<4>` is `CreateEq`.
    let names = list.split(',').filter_map(|name| name.trim().split('<').next());
    let listed: BTreeSet<String> = names.filter(|name| !name.is_empty()).map(String::from).collect();
    assert_eq!(listed, hil_fuzz::commands(), "left: freestanding/src/commands.rs, right: src/replies.rs");
}
