//! The commands that connect a queue pair to itself.

use mlx5_mkey::command::{
    AckTimeout, Command, Init2Rtr, LogAckInterval, LogMaxRdAtomic, LogMessage, Path, PathMtu, Psn, QpAccess,
    Retries, RnrTimer, Rst2Init, Rtr2Rts,
};
use mlx5_mkey::types::Qpn;

/// Returns the commands that connect a queue pair to itself. The path forces loopback, without an address.
#[must_use]
pub fn loopback(qp: Qpn, access: QpAccess) -> (Rst2Init, Init2Rtr, Rtr2Rts) {
    let (first_psn, log_max_rd_atomic) = (Psn::default(), LogMaxRdAtomic::new(4).unwrap());
    let initialise = Rst2Init { qp, port: 1, pkey_index: 0, access };
    let receive = Init2Rtr {
        qp,
        remote_qp: qp,
        path: Path::Loopback,
        port: 1,
        mtu: PathMtu::B1024,
        log_max_message: LogMessage::new(30).unwrap(),
        first_psn,
        log_max_rd_atomic,
        rnr_timer: RnrTimer::new(12).unwrap(),
    };
    let send = Rtr2Rts {
        qp,
        first_psn,
        log_max_rd_atomic,
        ack_timeout: AckTimeout::new(14).unwrap(),
        retries: Retries::MAX,
        rnr_retries: Retries::MAX,
        log_ack_interval: LogAckInterval::PACKETS_256,
    };
    (initialise, receive, send)
}

/// Returns a command's bytes.
#[must_use]
pub fn encoded<C: Command>(command: &C) -> Vec<u8> {
    let mut mailbox = vec![0; C::INPUT];
    command.encode(&mut mailbox).unwrap().to_vec()
}
