//! Plans of faults, as the stand-in reads them.

use mlx5_faults::{CallId, Place, Plan};

/// Times that each place is reached: a trace keeps all faults of so few.
const TIMES: usize = 32;

/// What has come by a plan comes again by its trace.
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
