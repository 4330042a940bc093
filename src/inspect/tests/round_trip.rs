//! Tests that decoding returns the encoded values, and that damaged bytes cause no panic.

use super::cqe::CompletionEntry;
use super::std::string::ToString;
use super::std::vec::Vec;
use super::strategies::*;
use super::*;
use crate::mkey::*;
use crate::types::*;
use crate::wqe::{Payload, Remote, Sge};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

/// Returns the signature, without its copy mask if the mask equals the automatic one: decoding cannot tell
/// the two forms apart.
fn normalised(block: BlockSignature) -> BlockSignature {
    let bare = match (block.memory_domain(), block.wire_domain()) {
        (Some(memory), Some(wire)) => BlockSignature::both(memory, wire),
        _ => return block,
    };
    let bare = bare.with_check_mask(block.check_mask());
    if bare.effective_copy_mask() == block.copy_mask() { bare } else { block }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn configurations_come_back(
        signature_mkey: bool,
        engine in of(engines()),
        access in of(accesses()),
        entries in entries(),
        change in changes(),
        crypto in of(cryptos()),
    ) {
        let config = MkeyConfig { access, signature: change, crypto };
        let posted = configured(attributes(signature_mkey, engine), &config, entries.layout());
        // A refused configuration has no bytes to decode.
        let Ok(bytes) = posted else { return Ok(()) };
        let capabilities = Some(SignatureCapabilities::ALL);
        let device = DeviceContext { engine, capabilities, ..DeviceContext::UNKNOWN };

        let requests: Vec<_> = Requests::new(&bytes).map(|(_, request)| request).collect();
        for request in &requests {
            let mut refused = false;
            request.findings(&device, |finding| refused |= finding.severity() == Severity::Refused);
            prop_assert!(!refused, "{}", request.pretty(device, Style::Plain));
            prop_assert_eq!(request.control().qpn_ds_word().qpn(), QPN.get());
        }
        let Some(Body::Configure(umr)) = requests.first().map(WorkRequest::body) else {
            return Err(TestCaseError::fail("no UMR"));
        };
        prop_assert_eq!((umr.key(), umr.tag()), (KEY, Some(KEY.tag())));
        prop_assert_eq!(umr.access(), access);
        prop_assert_eq!(umr.length(), entries.length());
        let list: Vec<_> = umr.layout().iter().flat_map(|layout| layout.list_entries()).collect();
        let streams: Result<Vec<_>, _> =
            umr.layout().iter().flat_map(|layout| layout.interleaved_entries()).collect();
        let streams = streams.map_err(|e| TestCaseError::fail(e.to_string()))?;
        let layout = match umr.layout() {
            None => Layout::Unchanged,
            Some(LayoutView::List(_)) => Layout::List(&list),
            Some(LayoutView::Pages(_)) => return Err(TestCaseError::fail("no request of ours has pages")),
            Some(LayoutView::Interleaved { header, .. }) => {
                Layout::Interleaved { repeat: header.repeat_count.get(), entries: &streams }
            }
        };
        prop_assert_eq!(layout, entries.layout());

        let expected = match change {
            SignatureChange::Set(block) => SignatureChange::Set(normalised(block)),
            // An mkey without block signature has no signature to change.
            _ if !signature_mkey => SignatureChange::Keep,
            _ if engine.is_none() => SignatureChange::Reset,
            SignatureChange::Keep if crypto.is_none() => SignatureChange::Keep,
            _ => SignatureChange::Reset,
        };
        prop_assert_eq!(umr.signature_change(), Ok(expected));
        prop_assert_eq!(umr.crypto(engine.unwrap_or(XtsEngine::Unspecified)), Ok(crypto));
        prop_assert_eq!(umr.error_count(), signature_mkey.then_some(true));

        let block = match change { SignatureChange::Set(block) => Some(block), _ => None };
        let psvs: Vec<_> = requests.iter().filter_map(|request| match request.body() {
            Body::SetPsv(segment) => Some(segment.psv_index.get()),
            _ => None,
        }).collect();
        let memory = block.as_ref().and_then(BlockSignature::memory_domain).map(|_| MEMORY_PSV.get());
        let wire = block.as_ref().and_then(BlockSignature::wire_domain).map(|_| WIRE_PSV.get());
        prop_assert_eq!(psvs, memory.into_iter().chain(wire).collect::<Vec<_>>());
        if let (Some(_), Some((memory_psv, wire_psv))) = (block, umr.psvs()) {
            prop_assert_eq!(memory.unwrap_or(0), memory_psv.get());
            prop_assert_eq!(wire.unwrap_or(0), wire_psv.get());
        }
        exercise(&bytes);
    }

    #[test]
    fn damaged_configurations_do_no_harm(
        entries in entries(),
        block in blocks(),
        crypto in cryptos(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let (access, signature) = (Some(Access::ALL), SignatureChange::Set(block));
        let config = MkeyConfig { access, signature, crypto: Some(crypto) };
        let attributes = attributes(true, Some(XtsEngine::Unspecified));
        let Ok(mut bytes) = configured(attributes, &config, entries.layout()) else { return Ok(()) };
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(&bytes);
        exercise(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn random_bytes_do_no_harm(
        mut bytes in vec(any::<u8>(), 0..1100),
        opcode in of(proptest::sample::select(&[0x25_u8, 0x20, 0x08, 0x0a, 0x10, 0x11, 0x2f, 0][..])),
        small in any::<bool>(),
    ) {
        exercise(&bytes);
        if let (Some(opcode), true) = (opcode, bytes.len() > 40) {
            bytes[3] = opcode;
            if small {
                // Modifier 1 makes a memory-to-memory request a copy. A UMR and a SET_PSV with a modifier are
                // about another object. The other values limit the sizes of a UMR's entries and BSFs to 31
                // octowords each.
                bytes[0] = u8::from(opcode == 0x2f);
                (bytes[20], bytes[22]) = (0, 0);
                (bytes[21], bytes[23]) = (bytes[21] % 32, bytes[23] % 32);
            }
            exercise(&bytes);
        }
    }

    #[test]
    fn random_completions_do_no_harm(bytes in vec(any::<u8>(), 0..80), stride in of(any::<u32>())) {
        let Ok(entry) = CompletionEntry::parse(&bytes) else {
            prop_assert!(bytes.len() < 64);
            return Ok(());
        };
        check_page(&entry.pretty(stride, Style::Plain).to_string());
        entry.findings(|finding| assert!(finding.offset < 64));
        let shown: usize = entry.fields().map(|field| field.bytes.len()).sum();
        prop_assert!(shown <= 64);
    }

    #[test]
    fn data_paths_come_back(
        sges in vec((any::<u64>(), 1..=Sge::MAX_BYTES, any::<u32>()), 0..30),
        inline in of(vec(any::<u8>(), 0..200)),
        address: u64,
        rkey: u32,
        imm: u32,
    ) {
        let sges: Vec<_> = sges
            .into_iter()
            .map(|(address, length, key)| Sge { address, length, lkey: Key::from_raw(key) })
            .collect();
        let payload = inline.as_ref().map_or(Payload::Sges(&sges), |bytes| Payload::Inline(bytes));
        let remote = Remote { address, rkey: Key::from_raw(rkey) };
        let bytes = encoded(|queue| queue.request(1).signaled().rdma_write_imm(remote, imm, payload));
        let bytes = bytes.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let request = parse(&bytes);
        prop_assert_eq!(request.worst(&DeviceContext::UNKNOWN), None);
        prop_assert_eq!(request.control().imm.get(), imm);
        let Body::DataPath(transfer) = request.body() else { return Err(TestCaseError::fail("no transfer")) };
        let place = transfer.remote().map(|remote| (remote.address.get(), remote.rkey.get()));
        prop_assert_eq!(place, Some((address, rkey)));
        let segments: Vec<_> = transfer.data_segments().map(|(_, segment)| segment).collect();
        match &inline {
            Some(data) if data.is_empty() => prop_assert!(segments.is_empty()),
            Some(data) => {
                let length = data.len() as u32;
                prop_assert_eq!(segments, [DataSegmentView::Inline { length, bytes: data }]);
            }
            None => {
                let want: Vec<_> = sges.iter().map(|sge| DataSegmentView::Memory(sge.to_wire())).collect();
                prop_assert_eq!(segments, want);
            }
        }
        exercise(&bytes);
    }
}
