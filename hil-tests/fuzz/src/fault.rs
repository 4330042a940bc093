//! Checks for plans of faults: the texts that tell the stand-in for the kernel when to inject which fault.

use mlx5_faults::Place;
use mlx5_plan::{CallId, Plan, Visit};

/// The number of times that the check visits each place where a plan can cause a fault. A trace keeps at most
/// 256 faults. This number of visits causes fewer, so the trace contains all faults.
const TIMES: usize = 24;

/// Asserts that the trace of a plan, parsed as a plan, causes the same faults again.
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
