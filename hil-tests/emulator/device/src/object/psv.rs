//! Protection signature values: what a signature domain starts from, and whether it still reports (PRM
//! `psv`).

/// The life of a PSV (DEVICE.md, "SET_PSV").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsvState {
    /// Checks are reported.
    Init,
    /// A mismatch was reported; silent until SET_PSV.
    Error,
}

#[derive(Clone, Debug)]
pub(crate) struct Psv {
    pub(crate) pd: u32,
    pub(crate) state: PsvState,
    /// What SET_PSV wrote: T10-DIF `guard << 48 | app << 32 | ref`, or a CRC seed.
    pub(crate) transient: u64,
    /// The CRC of a transaction that has begun.
    pub(crate) running: Option<u32>,
}

impl Psv {
    pub(crate) const fn new(pd: u32) -> Self {
        Self { pd, state: PsvState::Init, transient: 0, running: None }
    }
}

/// What a PSV holds, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsvView {
    /// Its life state.
    pub state: PsvState,
    /// The transient signature that SET_PSV wrote.
    pub transient: u64,
}
