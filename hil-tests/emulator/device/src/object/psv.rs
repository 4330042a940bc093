//! Protection signature values: the start value of a signature domain, and whether the domain still reports
//! errors (PRM `psv`).

/// Whether a PSV still reports signature errors (DEVICE.md, "SET_PSV").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsvState {
    /// Signature errors are reported.
    Init,
    /// A signature error was reported. Further errors are silent until SET_PSV.
    Error,
}

#[derive(Clone, Debug)]
pub(crate) struct Psv {
    pub(crate) pd: u32,
    pub(crate) state: PsvState,
    /// The value that SET_PSV has written: T10-DIF `guard << 48 | app << 32 | ref`, or a CRC seed.
    pub(crate) transient: u64,
    /// The CRC of the current transaction, if one has begun.
    pub(crate) running: Option<u32>,
}

impl Psv {
    pub(crate) const fn new(pd: u32) -> Self {
        Self { pd, state: PsvState::Init, transient: 0, running: None }
    }
}

/// The state of a PSV, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsvView {
    /// Whether signature errors are still reported.
    pub state: PsvState,
    /// The transient signature that SET_PSV wrote.
    pub transient: u64,
}
