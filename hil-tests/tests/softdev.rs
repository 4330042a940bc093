//! Every scenario on the software device, in each of its kinds: one test for each. `--nocapture` names them.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use hil_tests::board::{Board, SoftBoard};
use hil_tests::scenarios;
use libtest_mimic::{Arguments, Failed, Trial};
use mlx5_softdev::{CryptoMode, PartialBlocks, Personality, XtsEngine};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// The kinds of device that scenarios run on.
fn kinds() -> [(&'static str, Personality); 4] {
    let plain = Personality::default();
    [
        ("softdev", plain),
        ("softdev-single-block", Personality { xts: XtsEngine::SingleBlock, ..plain }),
        ("softdev-wrapped", Personality { crypto: CryptoMode::Wrapped, ..plain }),
        ("softdev-whole-blocks", Personality { partial_blocks: PartialBlocks::Refuse, ..plain }),
    ]
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let verbose = arguments.nocapture || arguments.format.is_some();
    arguments.quiet |= !verbose;
    let mut trials = Vec::new();
    let (mut skipped, mut run) = (BTreeMap::<_, Vec<_>>::new(), BTreeSet::new());
    let mut total = 0;
    for (kind, personality) in kinds() {
        let capabilities = SoftBoard::new(personality).capabilities();
        for scenario in scenarios::all() {
            total += 1;
            let name = format!("{kind}::{}", scenario.name);
            match scenario.needs.missing(&capabilities) {
                Some(what) => {
                    let trial = Trial::test(name.clone(), || Ok(())).with_ignored_flag(true);
                    if !arguments.is_filtered_out(&trial) {
                        skipped.entry(format!("{kind} lacks {what}")).or_default().push(name);
                    }
                    trials.push(trial);
                }
                None => {
                    run.insert(scenario.name);
                    trials.push(Trial::test(name, move || {
                        let mut board = SoftBoard::new(personality);
                        (scenario.run)(&mut board).map_err(Failed::from)
                    }));
                }
            }
        }
    }
    let names: Vec<_> = scenarios::all().map(|scenario| scenario.name).collect();
    trials.push(Trial::test("every_scenario_runs_somewhere_and_is_named_once", move || {
        let all: BTreeSet<_> = names.iter().copied().collect();
        if all.len() != names.len() {
            return Err("two scenarios have one name".into());
        }
        let missing: Vec<_> = all.difference(&run).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("no device runs {missing:?}").into()) }
    }));
    assert_eq!(trials.len(), total + 1, "none may be dropped");
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list && arguments.format.is_none() {
        for (reason, names) in skipped {
            println!("SKIPPED {:>3}: {reason}", names.len());
            names.iter().filter(|_| verbose).for_each(|name| println!("             {name}"));
        }
    }
    conclusion.exit_code()
}
