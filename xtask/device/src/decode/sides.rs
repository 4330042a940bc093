//! Draws both sides of an mkey (memory and wire) or of a transfer (this program and its peer): their bytes,
//! as far as requests and copies of memory show them.

use super::memory::{MOST, Memory, dump};
use super::mkeys::Known;
use super::tape::{Cell, Tape};
use mlx5_mkey::inspect::{Body, DataPath, DataSegmentView, WorkRequest};
use mlx5_mkey::types::{DomainKind, Key};
use mlx5_mkey::wire::ctrl::Opcode;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The state of mkeys after the requests that were drawn so far, and the copies of memory.
#[derive(Debug)]
pub(super) struct Sides<'m> {
    memory: &'m Memory,
    /// The state of each known mkey, by its index.
    mkeys: BTreeMap<u32, Known>,
}

/// One end of a transfer: this program or its peer.
#[derive(Default)]
struct End {
    tape: Tape,
    /// The first bytes of the data in this end's memory. `None` if a copy of some of them was not given.
    held: Option<Vec<u8>>,
    bytes: u64,
    parts: usize,
    /// Whether an mkey transforms at least one part: the part's wire bytes differ from its memory bytes.
    transformed: bool,
}

impl End {
    /// Returns an end to which no part was added yet.
    fn empty() -> Self {
        Self { held: Some(Vec::new()), ..Self::default() }
    }

    /// Adds a part of `bytes` bytes. `held` contains the first of them, if known.
    fn hold(&mut self, bytes: u64, held: Option<Vec<u8>>) {
        self.bytes += bytes;
        self.parts += 1;
        let full = self.held.as_ref().is_some_and(|held| held.len() >= MOST);
        if !full {
            self.held = self.held.take().zip(held).map(|(held, more)| [held, more].concat());
        }
    }

    /// Draws the end under a name. If the end is a single range that no mkey transforms, its memory contains
    /// the wire bytes and is drawn like the wire.
    fn draw(&self, page: &mut String, name: &str, wire: &Tape) -> fmt::Result {
        let same = self.parts == 1 && !self.transformed;
        let cells = if same { wire.cells.clone() } else { self.tape.cells.clone() };
        Tape { cells, notes: self.tape.notes.clone() }.draw(page, name)?;
        match &self.held {
            Some(held) if !held.is_empty() => dump(page, held, self.bytes),
            _ => Ok(()),
        }
    }
}

impl<'m> Sides<'m> {
    pub(super) const fn new(memory: &'m Memory) -> Self {
        Self { memory, mkeys: BTreeMap::new() }
    }

    /// Draws the sides of the mkey that a request configures, or of the data that a request moves.
    pub(super) fn draw(
        &mut self,
        page: &mut String,
        number: usize,
        request: &WorkRequest<'_>,
    ) -> fmt::Result {
        match request.body() {
            Body::Configure(umr) => {
                let known = self.mkeys.entry(umr.key().index().get()).or_default();
                known.change(&umr, number);
                configuration(page, known, self.memory)
            }
            Body::Invalidate(umr) => {
                self.mkeys.remove(&umr.key().index().get());
                Ok(())
            }
            Body::DataPath(transfer) if has_two_sides(&transfer) => self.transfer(page, &transfer),
            _ => Ok(()),
        }
    }

    fn known(&self, key: u32) -> Option<&Known> {
        let key = Key::from_raw(key);
        self.mkeys.get(&key.index().get()).filter(|known| known.tag == key.tag())
    }

    fn transfer(&self, page: &mut String, transfer: &DataPath<'_>) -> fmt::Result {
        let bytes = transfer.length();
        // The mkey that transforms the data of the transfer, and the offset in this mkey at which the
        // transfer begins. If several mkeys transform data, the first one counts.
        let mut maker = None;
        let mut made_by = |key, offset| {
            let known = self.known(key).filter(|known| known.transforms());
            maker = maker.or(known.map(|known| (known, offset)));
        };
        let mut here = End::empty();
        for (_, segment) in transfer.data_segments() {
            match segment {
                DataSegmentView::Inline { bytes, .. } => {
                    here.tape.cells.push(Cell::data(bytes.len() as u64, "in the request", false));
                    here.tape.notes.push(format!("{} bytes in the request", bytes.len()));
                    here.hold(bytes.len() as u64, Some(bytes.to_vec()));
                }
                DataSegmentView::Memory(segment) => {
                    let (key, address) = (segment.lkey.get(), segment.address.get());
                    made_by(key, address);
                    self.end(&mut here, key, address, u64::from(segment.byte_count.get()), true);
                }
            }
        }
        let mut peer = End::empty();
        match transfer.remote() {
            Some(place) => {
                let (key, address) = (place.rkey.get(), place.address.get());
                made_by(key, address);
                self.end(&mut peer, key, address, bytes, false);
            }
            None => {
                peer.tape.notes.push("where the peer's receive says".into());
                peer.hold(bytes, None);
            }
        }
        let wire =
            maker.map_or_else(|| Tape::of_data(bytes, false), |(known, at)| known.wire_tape(at, bytes));
        let wire = wire.headed(format!("{bytes} bytes"));
        let brings_in = transfer.atomic_bytes().is_some() || transfer.opcode() == Opcode::RDMA_READ;
        let arrow = if brings_in { "↑" } else { "↓" };
        page.push_str("<section class=\"sides\">\n<h4>Both sides</h4>\n");
        here.draw(page, "here", &wire)?;
        writeln!(page, "<p class=\"arrow\">{arrow}</p>")?;
        wire.draw(page, "wire")?;
        writeln!(page, "<p class=\"arrow\">{arrow}</p>")?;
        peer.draw(page, "peer", &wire)?;
        page.push_str("</section>\n");
        Ok(())
    }

    /// Adds a part to one end: `bytes` wire bytes from `address` on, through `key`, with the bytes of their
    /// memory if known. `own` says whether the key belongs to this program or to its peer.
    fn end(&self, end: &mut End, key: u32, address: u64, bytes: u64, own: bool) {
        let Some(known) = self.known(key) else {
            let text = format!("{bytes} bytes at {address:#x}, key {key:#010x}");
            end.tape.cells.push(Cell::data(bytes, &text, false));
            end.tape.notes.push(text);
            let held = self.memory.bytes(address, bytes.min(MOST as u64)).filter(|_| own);
            return end.hold(bytes, held.map(<[u8]>::to_vec));
        };
        let index = Key::from_raw(key).index().get();
        let link = format!("<a href=\"#r{}\">mkey {index:#08x}</a>", known.request);
        let Some(place) = known.place(address, bytes) else {
            end.tape.notes.push(format!("a part of what is behind {link}, from {address:#x} on"));
            return end.hold(bytes, None);
        };
        end.transformed |= known.transforms();
        let part = known.tape(DomainKind::Memory, place.1);
        end.tape.cells.extend(part.cells);
        // A key of the peer may have the same number as an mkey of this program.
        let perhaps = if own { "" } else { ", if this device is the peer" };
        end.tape.notes.push(format!("{} bytes through {link} from {address:#x} on{perhaps}", place.1));
        end.tape.notes.extend(part.notes);
        end.hold(place.1, known.held(self.memory, place));
    }
}

/// Returns whether a request moves data between this program and one peer.
const fn has_two_sides(transfer: &DataPath<'_>) -> bool {
    let sends = matches!(transfer.opcode(), Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL);
    transfer.remote().is_some() || sends
}

/// Draws an mkey: the ranges of memory that it maps, their bytes, and their form on the wire.
fn configuration(page: &mut String, known: &Known, memory: &Memory) -> fmt::Result {
    let Some(length) = known.length.filter(|_| known.transforms() || !known.ranges.is_empty()) else {
        return Ok(());
    };
    page.push_str("<section class=\"sides\">\n<h4>Both sides of the mkey</h4>\n");
    let mut ranges = Tape::default();
    for range in &known.ranges {
        let text = format!("{} bytes at {:#x}, key {:#010x}", range.bytes, range.address, range.key);
        ranges.cells.push(Cell::range(range.bytes, &text));
        ranges.notes.push(text);
    }
    if !ranges.cells.is_empty() {
        ranges.draw(page, "ranges")?;
    }
    known.tape(DomainKind::Memory, length).headed(format!("{length} bytes")).draw(page, "memory")?;
    known.held(memory, (0, length)).map_or(Ok(()), |held| dump(page, &held, length))?;
    match known.wire_bytes() {
        Some(bytes) if known.transforms() => {
            known.tape(DomainKind::Wire, bytes).headed(format!("{bytes} bytes")).draw(page, "wire")?;
        }
        Some(_) => page.push_str("<p class=\"arrow\">the same on the wire</p>\n"),
        None => page.push_str("<p class=\"arrow\">no whole blocks on the wire</p>\n"),
    }
    page.push_str("</section>\n");
    Ok(())
}
