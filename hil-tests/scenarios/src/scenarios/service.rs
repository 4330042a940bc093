//! The storage example, a target and an initiator in two processes, on boards that run its programs.

use super::scenario::{Scenario, scenario};
use crate::board::Board;
use crate::qp_pair::Verdict;

pub(super) const ALL: &[Scenario] = &[scenario!(r017_a_service_of_two_processes, PROGRAMS, ["R17"])];

/// The programs of the storage example run: the initiator reads and writes the target's volume through mkeys
/// with signatures and encryption. No byte is lost, and each block that the target has corrupted is reported.
fn r017_a_service_of_two_processes(board: &mut dyn Board) -> Verdict {
    board.serve(200, 5)
}
