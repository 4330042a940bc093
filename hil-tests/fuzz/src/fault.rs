//! Plans of faults: the text that the stand-in reads.

use mlx5_faults::Place;
use mlx5_plan::{CallId, Plan, Visit};

/// The number of times that each place asks the plan for a fault. A trace keeps all faults of so few
/// questions.
const TIMES: usize = 24;

/// Asserts that the trace of a plan, read as a plan, causes the same faults.
pub(crate) fn come_again(text: &str) {
    let ask = |plan: &mut Plan| {
        Place::ALL.map(|place| {
            let visit = match place {
                Place::Call => Visit::by(place, CallId::OPEN),
                place => Visit::to(place),
            };
            [(); TIMES].map(|()| plan.at(visit))
        })
    };
    let Ok(mut plan) = Plan::parse(text) else { return };
    let came = ask(&mut plan);
    let trace = plan.trace();
    let mut again = Plan::parse(&trace).expect("a trace is a plan");
    assert_eq!(ask(&mut again), came, "{text:?}: {trace}");
}
