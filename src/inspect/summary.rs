//! Prints a request in words, on one line.

use super::crypto::unit_bytes;
use super::data_path::{DataPath, DataSegmentView, Memcpy};
use super::device_context::DeviceContext;
use super::request::{Body, WorkRequest};
use super::transaction::TransactionCrc;
use super::tweak::print_tweak;
use super::umr::{LayoutView, Umr, used_entries};
use crate::mkey::{Access, BlockSignature, Domain, Escape, Guard, Signature};
use crate::types::{DomainKind, Seed};
use crate::wire::bsf::{CryptoBsf, EncryptionOrder};
use crate::wire::ctrl::FmCeSe;
use crate::wire::data::DataSegment;
use crate::wire::datagram::{BaseAddress, RouteAddress};
use crate::wire::ethernet::EthernetSegment;
use core::fmt;

/// A request in words, on one line. [`WorkRequest::summary`] returns this type.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    request: WorkRequest<'a>,
    device: DeviceContext,
}

impl<'a> WorkRequest<'a> {
    /// Returns the request in words, on one line of any length.
    pub const fn summary(&self, device: DeviceContext) -> Summary<'a> {
        Summary { request: *self, device }
    }
}

crate::fmt::defmt_as_text!(Summary<'a>);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = &self.request;
        match request.body() {
            Body::Configure(umr) => {
                f.write_str("UMR configure ")?;
                mkey(&umr, f)?;
                f.write_str(":")?;
                configuration(&umr, &self.device, f)?;
            }
            Body::Invalidate(umr) => {
                f.write_str("UMR invalidate ")?;
                mkey(&umr, f)?;
            }
            Body::SetPsv(segment) => {
                let value = segment.transient_signature.get();
                write!(f, "SET_PSV {:#08x}: start value {value:#018x}", segment.psv_index.get())?;
            }
            Body::DataPath(transfer) => {
                data_path(&transfer, request.control().imm.get(), f)?;
                masked_operands(request, f)?;
            }
            Body::Memcpy(copy) => memcpy(&copy, f)?,
            Body::Nop => f.write_str("NOP")?,
            Body::Unwritten => return f.write_str("never written"),
            Body::Other => write!(f, "{}", request.opcode())?,
            Body::Unknown => write!(f, "{}, not decoded", request.opcode())?,
        }
        flags(request.control().flags(), f)
    }
}

fn flags(flags: FmCeSe, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match flags.fm() {
        FmCeSe::FM_NONE => {}
        FmCeSe::FM_SMALL => f.write_str(", small fence")?,
        FmCeSe::FM_STRONG => f.write_str(", strong ordering")?,
        FmCeSe::FM_FENCE_ALONE => f.write_str(", fence alone")?,
        FmCeSe::FM_FENCE => f.write_str(", fence")?,
        fm => write!(f, ", fence mode {fm}")?,
    }
    f.write_str(match flags.ce() {
        FmCeSe::CE_ALWAYS => ", signalled",
        FmCeSe::CE_EVENT => ", signalled with event",
        _ => "",
    })?;
    f.write_str(if flags.solicited() { ", solicited" } else { "" })
}

/// Prints index and tag of an mkey. If the request changes the tag, the new tag is printed.
fn mkey(umr: &Umr<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let key = umr.key();
    let tag = if umr.is_invalidate() { key.tag() } else { umr.tag().unwrap_or(key.tag()) };
    write!(f, "mkey {:#08x}/{tag:02x}", key.index().get())
}

fn configuration(umr: &Umr<'_>, device: &DeviceContext, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut comma = "";
    let mut separate = |f: &mut fmt::Formatter<'_>| {
        f.write_str(comma)?;
        comma = ",";
        f.write_str(" ")
    };
    if let Some(rights) = umr.access() {
        separate(f)?;
        access(rights, f)?;
    }
    if let Some(first) = umr.first_replaced()
        && (first != 0 || !umr.mask().len())
    {
        separate(f)?;
        write!(f, "from entry {first} on")?;
    }
    if let Some(pointer) = umr.pointer() {
        separate(f)?;
        let octowords = umr.control().klm_octowords.get();
        let (address, key) = (pointer.address.get(), pointer.mkey.get());
        let (list, interleaved) = umr.room_in_memory(device);
        let fits = |room| umr.length().unwrap_or_default() <= room;
        // If a flag of the UMR control segment is set, the UMR replaces entries or checks the mkey. An
        // interleaved layout cannot be written with these flags.
        let form = match (fits(list), fits(interleaved) && octowords > 1 && umr.control().flags == 0) {
            (true, true) => "an interleaved layout or a list",
            (false, true) => "an interleaved layout",
            _ => "entries",
        };
        write!(f, "{octowords} octowords of {form}")?;
        each(device, f)?;
        write!(f, " at {address:#x} key {key:#010x}, ")?;
        length(umr.length(), f)?;
    }
    if let Some(view) = umr.layout() {
        separate(f)?;
        layout(&view, umr.length(), device, f)?;
    }
    if let Some((offset, bsf)) = umr.signature_bsf() {
        separate(f)?;
        match (umr.signature(), umr.transaction()) {
            (Ok(Some(block)), Ok(None)) => signature(&block, f)?,
            (Ok(None), Ok(None)) => f.write_str("no signature")?,
            (Ok(None), Ok(Some(crc))) => transaction(&crc, f)?,
            _ => write!(f, "unreadable signature at {offset:#x}, check mask {:#04x}", bsf.check_byte_mask)?,
        }
    }
    if let Some((offset, bsf)) = umr.crypto_bsf() {
        separate(f)?;
        match (EncryptionOrder(bsf.enc_order).name(), unit_bytes(bsf.data_unit_selector)) {
            (Some(_), Some(unit)) if bsf.enc_standard == CryptoBsf::AES_XTS => crypto(bsf, unit, device, f)?,
            _ => write!(f, "unreadable crypto at {offset:#x}")?,
        }
    }
    if umr.bsf_enable() == Some(false) {
        separate(f)?;
        f.write_str("BSFs off")?;
    }
    if let Some(count) = umr.error_count() {
        separate(f)?;
        write!(f, "error count {}", u8::from(count))?;
    }
    if comma.is_empty() { f.write_str(" nothing changes") } else { Ok(()) }
}

fn access(rights: Access, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let remote =
        [(Access::REMOTE_READ, "read"), (Access::REMOTE_WRITE, "write"), (Access::REMOTE_ATOMIC, "atomic")];
    f.write_str("access")?;
    if rights == Access::NONE {
        return f.write_str(" local read only");
    }
    let mut separator = " remote ";
    if rights.contains(Access::LOCAL_WRITE) {
        f.write_str(" local write")?;
        separator = " and remote ";
    }
    for (right, name) in remote {
        if rights.contains(right) {
            write!(f, "{separator}{name}")?;
            separator = "+";
        }
    }
    Ok(())
}

fn length(length: Option<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match length {
        Some(length) => write!(f, "{length} bytes"),
        None => f.write_str("length kept"),
    }
}

/// Prints the length of each entry, if the mkey's entries have one known length.
fn each(device: &DeviceContext, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match device.entry_size {
        Some(size) => write!(f, " of {} bytes each", size.bytes()),
        None => Ok(()),
    }
}

fn layout(
    view: &LayoutView<'_>,
    bytes: Option<u64>,
    device: &DeviceContext,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let plural = |count: usize| if count == 1 { "entry" } else { "entries" };
    let count = view.count();
    match view {
        LayoutView::List(entries) => {
            let used = match device.entry_size {
                Some(_) => count,
                None => used_entries(entries, bytes),
            };
            write!(f, "list of {used} {}", plural(used))?;
            each(device, f)?;
            if let Some(unused @ 1..) = count.checked_sub(used) {
                write!(f, " and {unused} unused")?;
            }
        }
        LayoutView::Pages(_) => {
            write!(f, "{count} {}", if count == 1 { "page" } else { "pages" })?;
        }
        LayoutView::Interleaved { header, .. } => {
            write!(f, "{count} interleaved {} x {}", plural(count), header.repeat_count.get())?;
        }
    }
    f.write_str(", ")?;
    length(bytes, f)
}

fn signature(block: &BlockSignature, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("memory ")?;
    domain(block.memory_domain(), f)?;
    f.write_str(", wire ")?;
    domain(block.wire_domain(), f)?;
    write!(f, ", check {:#04x}", block.check_mask())?;
    match (block.effective_copy_mask(), block.copy_mask()) {
        (Some(mask), None) => write!(f, ", copy {mask:#04x} (automatic)"),
        (Some(mask), Some(_)) => write!(f, ", copy {mask:#04x}"),
        (None, _) => Ok(()),
    }
}

const fn seed(seed: Seed) -> &'static str {
    match seed {
        Seed::Zeros => "seed 0",
        Seed::Ones => "seed ones",
    }
}

fn domain(domain: Option<Domain>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(Domain { signature, block_size }) = domain else { return f.write_str("none") };
    let size = block_size.bytes();
    match signature {
        Signature::T10Dif(dif) => {
            let guard = match dif.guard {
                Guard::Crc => "crc",
                Guard::IpChecksum => "checksum",
            };
            let (app, reference) = (dif.app_tag, dif.ref_tag);
            write!(f, "T10-DIF {guard}/{size} {} app {app:#06x} ref {reference:#010x}", seed(dif.seed))?;
            f.write_str(if dif.ref_remap { " growing" } else { "" })?;
            f.write_str(match dif.escape {
                Escape::Never => "",
                Escape::AppTag => " app escape",
                Escape::AppAndRefTag => " app+ref escape",
            })
        }
        Signature::Crc32(start) => write!(f, "CRC32/{size} {}", seed(start)),
        Signature::Crc32c(start) => write!(f, "CRC32C/{size} {}", seed(start)),
        Signature::Crc64Xp10(start) => write!(f, "CRC64-XP10/{size} {}", seed(start)),
    }
}

fn transaction(crc: &TransactionCrc, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let place = match crc.domain {
        DomainKind::Wire => "on the wire",
        DomainKind::Memory => "in memory",
    };
    let part = match (crc.begins, crc.ends) {
        (true, true) => "begins and ends here",
        (true, false) => "begins here",
        (false, true) => "ends here",
        (false, false) => "continues here",
    };
    let (seed, psv) = (seed(crc.seed), crc.psv.get());
    write!(f, "CRC32C over a transaction {place}, {seed}, PSV {psv:#08x}, {part}")
}

fn crypto(bsf: &CryptoBsf, unit: u32, device: &DeviceContext, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let order = match EncryptionOrder(bsf.enc_order) {
        EncryptionOrder::WIRE_SIGNATURE => "wire encrypted, signature inside",
        EncryptionOrder::MEMORY_SIGNATURE => "memory encrypted, signature inside",
        EncryptionOrder::RAW_WIRE => "wire encrypted, signature outside",
        _ => "memory encrypted, signature outside",
    };
    write!(f, "AES-XTS {order}, unit {unit}, DEK {:#x}, tweak ", bsf.dek.get())?;
    print_tweak(bsf.xts_initial_tweak, device.engine, f)?;
    match u64::from_be_bytes(bsf.keytag) {
        0 => Ok(()),
        keytag => write!(f, ", keytag {keytag:#018x}"),
    }
}

fn data_path(transfer: &DataPath<'_>, imm: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use crate::wire::ctrl::Opcode;
    write!(f, "{}", transfer.opcode())?;
    match transfer.opcode() {
        Opcode::SEND_IMM | Opcode::RDMA_WRITE_IMM => write!(f, " imm {imm:#010x}")?,
        Opcode::SEND_INVAL => write!(f, " invalidating {imm:#010x}")?,
        _ => {}
    }
    f.write_str(": ")?;
    let segments = transfer.data_segments().count();
    let inline =
        transfer.data_segments().any(|(_, segment)| matches!(segment, DataSegmentView::Inline { .. }));
    write!(f, "{} bytes in {segments}", transfer.length())?;
    f.write_str(if inline { " inline" } else { "" })?;
    f.write_str(if segments == 1 { " data segment" } else { " data segments" })?;
    if let Some(remote) = transfer.remote() {
        write!(f, ", remote {:#x} key {:#010x}", remote.address.get(), remote.rkey.get())?;
    }
    if let Some((base, route)) = transfer.address() {
        address(base, route, f)?;
    }
    if let Some(segment) = transfer.ethernet() {
        ethernet(segment, f)?;
    }
    if let Some(atomic) = transfer.atomic() {
        write!(f, ", operand {:#x}", atomic.swap_add.get())?;
        if transfer.opcode() == Opcode::ATOMIC_CS {
            write!(f, ", compare {:#x}", atomic.compare.get())?;
        }
    }
    Ok(())
}

/// Prints the destination of a datagram.
fn address(base: &BaseAddress, route: Option<&RouteAddress>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // A datagram's address has the Q_Key in the upper half of this field; the lower half is reserved and 0. A
    // request of a dynamically connected queue has an access key of 64 bits here.
    match base.key.get() {
        key if key as u32 == 0 => {
            write!(f, ", to queue pair {:#x}, Q_Key {:#010x}", base.number(), key >> 32)?
        }
        key => write!(f, ", to target {:#x}, access key {key:#018x}", base.number())?,
    }
    let Some(route) = route else { return Ok(()) };
    if route.mac != [0; 6] {
        f.write_str(", MAC ")?;
        colons(&route.mac, 1, f)?;
    }
    f.write_str(", GID ")?;
    colons(&route.gid, 2, f)
}

/// Prints groups of bytes with colons between them, as the kernel prints a GID.
fn colons(bytes: &[u8], group: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (number, byte) in bytes.iter().enumerate() {
        let begins = number != 0 && number.is_multiple_of(group);
        write!(f, "{}{byte:02x}", if begins { ":" } else { "" })?;
    }
    Ok(())
}

/// Prints the services that a send of an Ethernet queue asks for.
fn ethernet(segment: &EthernetSegment, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let checksums = [(6, "L3"), (7, "L4"), (4, "inner L3"), (5, "inner L4")];
    let mut separator = ", checksums ";
    for (bit, name) in checksums {
        if segment.checksums & 1 << bit != 0 {
            write!(f, "{separator}{name}")?;
            separator = "+";
        }
    }
    if segment.mss.get() != 0 {
        write!(f, ", segments of {} bytes", segment.mss.get())?;
    }
    let word = segment.header_size.get();
    if word & EthernetSegment::VLAN != 0 {
        write!(f, ", inserts VLAN tag {:#06x}", u16::from_be_bytes(segment.header_start))?;
    }
    f.write_str(if word & EthernetSegment::TRAILER != 0 { ", inserts a trailer" } else { "" })?;
    match segment.header_bytes() {
        0 => Ok(()),
        bytes => write!(f, ", {bytes} bytes of header inline"),
    }
}

/// Prints the operands of an atomic with masks.
fn masked_operands(request: &WorkRequest<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use super::segment_kind::SegmentKind::{MaskedAdd32, MaskedAdd64, MaskedSwap32, MaskedSwap64};
    let masked = [MaskedAdd32, MaskedAdd64, MaskedSwap32, MaskedSwap64];
    for segment in request.segments().filter(|segment| masked.contains(&segment.kind)) {
        for field in segment.fields() {
            write!(f, ", {} {:#x}", field.name, field.value())?;
        }
    }
    Ok(())
}

fn memcpy(copy: &Memcpy<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let place = |segment: &DataSegment| (segment.address.get(), segment.lkey.get());
    let ((from, from_key), (to, to_key)) = (place(copy.source()), place(copy.target()));
    let bytes = copy.length();
    write!(f, "MMO memcpy: {bytes} bytes from {from:#x} key {from_key:#010x} to {to:#x} key {to_key:#010x}")
}
