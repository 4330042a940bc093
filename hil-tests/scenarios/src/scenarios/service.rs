//! The storage example as a whole service, on boards that run its programs.

use super::scenario::{Scenario, scenario};
use crate::board::Board;
use crate::qp_pair::Verdict;

pub(super) const ALL: &[Scenario] = &[scenario!(r017_a_service_of_two_processes, PROGRAMS, ["R17"])];

/// A storage target and its initiator move data through mkeys with signatures and encryption: no byte is
/// lost, and each corrupted block is reported.
fn r017_a_service_of_two_processes(board: &mut dyn Board) -> Verdict {
    board.serve(200, 5)
}
