//! An mkey of libmlx5 (the reference), and the library's mkey with the same key.

use super::case::{Config, Kind, Random, SignatureStep, Work};
use super::check::Unread;
use super::compare::{SET_PSV, word};
use crate::request::Flags;
use libmlx5::{Device, RefMkey};
use mlx5_mkey::inspect::Requests;
use mlx5_mkey::mkey::{Mkey, MkeyAttributes, SignatureAttributes, UmrForm, XtsEngine};
use mlx5_mkey::types::{Key, PsvIndex};
use std::io;
use std::rc::Rc;

/// The most chains of requests that use an mkey.
const LIFE: u32 = 8;
/// The most chains of requests that use an mkey after a signature error.
const LIFE_BEHIND_ERRORS: u32 = 24;

/// An mkey of both sides: the mkey of libmlx5 (`reference`) and the library's (`ours`).
pub(super) struct Pair {
    pub(super) kind: Kind,
    pub(super) max_entries: u16,
    pub(super) reference: RefMkey,
    /// The indexes of the PSVs of memory and wire domain. Each is known as soon as a request of libmlx5 has
    /// contained it.
    psvs: [Option<u32>; 2],
    /// The library's mkey. The test creates it after libmlx5's first chain of requests, which shows the
    /// indexes of the PSVs.
    pub(super) ours: Option<Mkey>,
    /// Number of chains of requests that have used this mkey.
    pub(super) life: u32,
    /// Whether the mkey has had a signature error (`erred`), and whether it was configured after the error
    /// (`rearmed`).
    pub(super) erred: bool,
    pub(super) rearmed: bool,
    /// The polled signature error, if there is one, that the test has not yet read from libmlx5 and the
    /// library.
    unread: Option<Unread>,
    /// The number of requests since the last poll, and whether any of them except the first has configured
    /// the mkey: a polled error may then be older than this configuration.
    unpolled: usize,
    reconfigured: bool,
    /// Whether libmlx5's mkey has a state that the library's does not have, for example after a refused
    /// chain. The test then no longer uses the mkey.
    pub(super) torn: bool,
}

impl Pair {
    pub(super) fn create(device: &Rc<Device>, random: &mut Random) -> io::Result<Self> {
        let kind = Kind { signature: random.percent(65), crypto: random.percent(55) };
        let max_entries = (1 + random.below(8) as u16) * 4;
        let reference = RefMkey::create(device, kind.signature, kind.crypto, max_entries)?;
        Ok(Self {
            kind,
            max_entries,
            reference,
            psvs: [None; 2],
            ours: None,
            life: 0,
            erred: false,
            rearmed: false,
            unread: None,
            unpolled: 0,
            reconfigured: false,
            torn: false,
        })
    }

    /// Sets the tag that the next configuration writes, on the mkeys of libmlx5 and of the library.
    pub(super) fn retag(&mut self, tag: u8) -> io::Result<()> {
        self.reference.set_tag(tag);
        match &mut self.ours {
            Some(mkey) => mkey.set_tag(tag).map_err(|error| io::Error::other(format!("{error:?}"))),
            None => Ok(()),
        }
    }

    /// Records that a chain of requests was posted. A configuration in it changes the signature by which a
    /// pending error is decoded.
    pub(super) fn note_posted(&mut self, chain: &[(Flags, Work)]) {
        for (_, work) in chain {
            let configures = matches!(work, Work::Configure(_));
            self.reconfigured |= configures && self.unpolled > 0;
            self.unread = self.unread.map(|unread| Unread { stale: unread.stale || configures, ..unread });
            self.unpolled += 1;
        }
    }

    /// Records a poll that has reported `errors` signature errors.
    pub(super) fn note_polled(&mut self, errors: usize) {
        if errors != 0 {
            self.erred = true;
            let (late, stale) = (self.reconfigured, errors > 1);
            self.unread = Some(match self.unread {
                Some(first) => Unread { stale: true, ..first },
                None => Unread { late, stale },
            });
        }
        (self.unpolled, self.reconfigured) = (0, false);
    }

    /// Takes the notes about the signature error that the test now reads from libmlx5 and the library.
    pub(super) fn take_unread(&mut self) -> Unread {
        let unread = self.unread.take().unwrap_or_default();
        Unread { stale: unread.stale || self.torn, ..unread }
    }

    /// Returns whether the test must not use the mkey again.
    pub(super) fn is_spent(&self) -> bool {
        let life = if self.erred { LIFE_BEHIND_ERRORS } else { LIFE };
        // While the index of a PSV is unknown, the library cannot post another chain of requests.
        let known = !self.kind.signature || self.psvs.iter().all(Option::is_some);
        self.torn || self.life >= life || !known
    }

    /// Reads the indexes of the PSVs from the SET_PSVs of a chain. A SET_PSV of the memory domain precedes
    /// the one of the wire domain.
    pub(super) fn learn(&mut self, chain: &[(Flags, Work)], requests: &[u8]) {
        let mut set = Requests::new(requests)
            .filter(|(_, request)| request.bytes()[3] == SET_PSV)
            .filter_map(|(_, request)| request.bytes().get(16..20).map(|bytes| word(bytes, 0)));
        for (_, work) in chain {
            let Work::Configure(Config { signature: SignatureStep::Set { memory, wire, .. }, .. }) = work
            else {
                continue;
            };
            for (at, there) in [memory.is_some(), wire.is_some()].into_iter().enumerate() {
                if there {
                    let number = set.next();
                    self.psvs[at] = self.psvs[at].or(number);
                }
            }
        }
    }

    /// Returns the known indexes of PSVs.
    pub(super) fn known_psvs(&self) -> Vec<u32> {
        self.psvs.iter().flatten().copied().collect()
    }

    /// Returns a copy of the library's mkey. If there is none yet, returns a new mkey with the indexes of
    /// PSVs that are known.
    pub(super) fn mkey(&self, single_block: bool) -> Mkey {
        if let Some(mkey) = &self.ours {
            return mkey.clone();
        }
        let psv = |at: usize| PsvIndex::from_low_bits(self.psvs[at].unwrap_or(0));
        let engine = if single_block { XtsEngine::SingleBlock } else { XtsEngine::MultiBlock };
        Mkey::new(MkeyAttributes {
            key: Key::from_raw(self.reference.key()),
            max_entries: self.max_entries.into(),
            signature: self.kind.signature.then(|| SignatureAttributes::new(psv(0), psv(1))),
            crypto: self.kind.crypto.then_some(engine),
            tag_update: true,
            form: UmrForm::Complete,
            entry_size: None,
        })
    }
}
