//! Commands that change properties of a queue pair in the states INIT and RTS, and commands that make a
//! stopped send queue execute requests again.

use super::access::QpAccess;
use crate::command::error::CommandError;
use crate::command::{AtomicCapabilities, Command, GeneralCapabilities, RnrTimer};
use crate::types::Qpn;
use crate::wire::prm::command::{NumberReply, Opcode, RequestHeader};
use crate::wire::prm::qp::{AdjustQpRequest, ModifyQpRequest, QpOptional, QpcExtension};
use crate::wire::prm::qp_context::{Qpc, QpcPd, QpcReceive};

/// The properties that can change while a queue pair is ready to send. `None` leaves a property as it is.
///
/// ```
/// use mlx5_mkey::command::{QpAccess, QpChange, Rts2Rts};
/// use mlx5_mkey::types::Qpn;
/// // From now on the peer may only send: RDMA READ and WRITE are refused.
/// let change = QpChange { access: Some(QpAccess::default()), ..QpChange::default() };
/// let command = Rts2Rts { qp: Qpn::new(0x11)?, change };
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QpChange {
    /// The operations that the peer may use.
    pub access: Option<QpAccess>,
    /// How long the peer waits before a retry when this side has no receive request.
    pub rnr_timer: Option<RnrTimer>,
}

impl QpChange {
    fn write(&self, qpc: &mut Qpc) -> QpOptional {
        let mut mask = QpOptional::new();
        if let Some(access) = self.access {
            qpc.rights.set(access.to_wire().into_bits());
            mask = mask.with_remote_read(true).with_remote_write(true).with_atomic(true);
        }
        if let Some(timer) = self.rnr_timer {
            qpc.receive.set(QpcReceive::new().with_min_rnr_nak(timer.get()).into_bits());
            mask.set_rnr_timeout(true);
        }
        mask
    }
}

macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident, $input:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::command::{Command, QpChange, RnrTimer, ", stringify!($name), "};")]
        /// use mlx5_mkey::types::Qpn;
        /// let change = QpChange { rnr_timer: Some(RnrTimer::US_640), ..QpChange::default() };
        #[doc = concat!("let command = ", stringify!($name), " { qp: Qpn::new(0x11)?, change };")]
        #[doc = concat!("let mut mailbox = [0; ", stringify!($name), "::INPUT];")]
        /// assert_eq!(command.encode(&mut mailbox)?[8..12], [0, 0, 0, 0x11]);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name {
            /// Number of the queue pair.
            pub qp: Qpn,
            /// The properties that change with the command.
            pub change: QpChange,
        }

        impl Command for $name {
            const OPCODE: Opcode = Opcode::$opcode;
            type Input = $input;
            type Output = NumberReply;
            type Reply = ();

            fn write(&self, input: &mut $input) {
                input.header = RequestHeader::new(Self::OPCODE);
                input.qpn.set(self.qp.get());
                input.opt_param_mask.set(self.change.write(&mut input.qpc).into_bits());
            }

            fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
                Ok(())
            }
        }
    )+ };
}

changes! {
    /// The command that changes a queue pair that is ready to send (RTS2RTS_QP).
    Rts2Rts = RTS2RTS_QP, AdjustQpRequest;
    /// The command that makes a queue pair send again after its send queue was drained because of a signature
    /// error (SQD_RTS_QP).
    Sqd2Rts = SQD_RTS_QP, ModifyQpRequest;
    /// The command that makes a queue pair send again after its send queue failed but not its receive queue
    /// (SQERR2RTS_QP). A queue pair of a reliable connection does not get into this state: it fails as a
    /// whole.
    SqErr2Rts = SQERR2RTS_QP, ModifyQpRequest;
}

/// The command that changes a queue pair that is initialised (INIT2INIT_QP). It can enable draining on
/// signature errors, and copies in memory. rdma-core and the kernel also enable both in this state
/// (`mlx5_modify_qp_drain_sigerr`, `qp_enable_mmo`).
///
/// ```
/// use mlx5_mkey::command::{Command, Init2Init};
/// use mlx5_mkey::types::Qpn;
/// let qp = Qpn::new(0x11)?;
/// let command = Init2Init { drain_signature_errors: Some(true), ..Init2Init::new(qp) };
/// let mut mailbox = [0; Init2Init::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?[..2], [0x05, 0x0e]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Init2Init {
    /// Number of the queue pair.
    pub qp: Qpn,
    /// Whether a signature error stops the send queue; `None` leaves the setting unchanged. The device must
    /// have [`crate::command::GeneralCapabilities::drain_signature_errors`].
    pub drain_signature_errors: Option<bool>,
    /// Whether requests may copy memory ([`crate::queue::SendRequest::memcpy`]); `None` leaves the setting
    /// unchanged. The device must have [`crate::command::GeneralCapabilities::memcpy_per_qp`].
    pub memcpy: Option<bool>,
    /// The operations that the peer may use; `None` leaves them unchanged.
    pub access: Option<QpAccess>,
}

impl Init2Init {
    /// Creates a command that changes nothing.
    pub const fn new(qp: Qpn) -> Self {
        Self { qp, drain_signature_errors: None, memcpy: None, access: None }
    }

    /// Checks that the device supports the changes. `atomics` are the device's capabilities of atomics, as in
    /// [`QpAccess::check`].
    ///
    /// # Errors
    /// [`CommandError::Unsupported`].
    pub const fn check(
        &self,
        device: &GeneralCapabilities,
        atomics: Option<&AtomicCapabilities>,
    ) -> Result<(), CommandError> {
        if let Some(access) = self.access
            && let Err(error) = access.check(device, atomics)
        {
            return Err(error);
        }
        let what = if matches!(self.drain_signature_errors, Some(true)) && !device.drain_signature_errors {
            "draining on signature errors"
        } else if matches!(self.memcpy, Some(true)) && !device.memcpy_per_qp {
            "copies in memory by queue pairs"
        } else {
            return Ok(());
        };
        Err(CommandError::Unsupported { command: Self::OPCODE, what })
    }
}

impl Command for Init2Init {
    const OPCODE: Opcode = Opcode::INIT2INIT_QP;
    type Input = AdjustQpRequest;
    type Output = NumberReply;
    type Reply = ();

    fn write(&self, input: &mut AdjustQpRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.qpn.set(self.qp.get());
        let mut mask = QpChange { access: self.access, rnr_timer: None }.write(&mut input.qpc);
        if let Some(drain) = self.drain_signature_errors {
            input.qpc.pd.set(QpcPd::new().with_drain_sigerr(drain).into_bits());
            mask.set_drain_sigerr(true);
        }
        if let Some(allowed) = self.memcpy {
            input.qpn.set(self.qp.get() | AdjustQpRequest::EXTENDED);
            input.extension.set(QpcExtension::new().with_mmo(allowed).into_bits());
            input.opt_param_mask_95_32.set(AdjustQpRequest::SELECT_MMO);
        }
        input.opt_param_mask.set(mask.into_bits());
    }

    fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
        Ok(())
    }
}
