//! Plans of faults: the text that the stand-in reads.

use mlx5_faults::{CallId, Place, Plan};

/// The number of times that each place asks the plan for a fault. A trace keeps all faults of so few
/// questions.
const TIMES: usize = 32;

/// Asserts that the trace of a plan, read as a plan, causes the same faults.
pub(crate) fn come_again(text: &str) {
    let ask = |plan: &mut Plan| {
        Place::ALL.map(|place| {
            let id = if place == Place::Call { CallId::OPEN } else { CallId::NONE };
            [(); TIMES].map(|()| plan.at(place, id))
        })
    };
    let Ok(mut plan) = Plan::parse(text) else { return };
    let came = ask(&mut plan);
    let trace = plan.trace();
    let mut again = Plan::parse(&trace).expect("a trace is a plan");
    assert_eq!(ask(&mut again), came, "{text:?}: {trace}");
}
