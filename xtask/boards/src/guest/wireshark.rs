//! Wireshark's judgement of captures. The command line program of Debian's packages (`tshark`) dissects them.

use crate::machine::unpacked;
use std::collections::BTreeSet;
use std::path::Path;
use xtask::debian::{self, Architecture, Dependencies};
use xtask::run::{answer, program};

/// The severity of Wireshark's reports of malformed packets and of wrong checksums (`PI_ERROR`).
const ERROR: &str = "8388608";

/// Dissectors that guess the protocol of a payload, and report malformed packets after a wrong guess.
const GUESSES: &[&str] = &[
    "eth_over_ib",
    "fc_infiniband",
    "iser_infiniband",
    "lnet_ib",
    "mellanox_eoib",
    "rpcrdma_infiniband",
    "sdp_infiniband",
    "smb_direct_infiniband",
    "smcr_infiniband",
];

/// Checks that a capture file is complete, that Wireshark reports no error in it, and that it has packets of
/// these kinds. A kind is the opcode of InfiniBand's BTH, such as `RoCE 4`. For other packets, a kind is a
/// list of protocols with colons between, such as `eth:ethertype:arp`.
///
/// Wireshark compares the checksums of IPv4, TCP and UDP, but not the invariant CRC of RoCE. Tests of
/// `mlx5-record` compare the latter.
pub(super) fn judge(capture: &Path, wanted: &[&str]) -> Result<(), String> {
    let root = debian::unpack(None, Architecture::Own, "wireshark", &["tshark"], Dependencies::Included)?;
    let words = unpacked::words(&root, "tshark");
    let (first, rest) = words.split_first().ok_or("no tshark")?;
    let mut command = program(first, &rest.iter().map(String::as_str).collect::<Vec<_>>());
    command.env("WIRESHARK_DATA_DIR", root.join("usr/share/wireshark")).arg("-r").arg(capture).arg("-n");
    for name in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{name}.check_checksum:TRUE")]);
    }
    command.args(GUESSES.iter().flat_map(|name| ["--disable-heuristic", name]));
    // All TCP payloads are dissected as plain data: they are random bytes, and a wrongly guessed protocol
    // would report errors.
    command.args(["-d", "tcp.port==1-65535,data", "-T", "fields"]);
    for field in [
        "frame.protocols",
        "infiniband.bth.opcode",
        "_ws.expert.severity",
        "frame.number",
        "_ws.expert.message",
    ] {
        command.args(["-e", field]);
    }
    found(&answer(command)?, wanted)
}

/// Judges the fields of the packets that Wireshark has printed, a line for each packet.
fn found(lines: &str, wanted: &[&str]) -> Result<(), String> {
    let mut kinds = BTreeSet::new();
    for line in lines.lines() {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or_default();
        let (protocols, opcode, severities) = (next(), next(), next());
        if severities.split(',').any(|severity| severity == ERROR) {
            return Err(format!("Wireshark reports an error: {line}"));
        }
        let is_roce = protocols.starts_with("eth:ethertype:ipv6:udp:infiniband");
        kinds.insert(if is_roce { format!("RoCE {opcode}") } else { protocols.to_owned() });
    }
    let missing: Vec<_> = wanted.iter().filter(|kind| !kinds.contains(**kind)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("the capture lacks {missing:?}, and has {kinds:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_an_error_and_a_missing_kind_are_failures() {
        let lines =
            "eth:ethertype:arp\t\t\t1\t\neth:ethertype:ipv6:udp:infiniband:data\t4\t2097152,4194304\t2\tok\n";
        let all = ["eth:ethertype:arp", "RoCE 4"];
        assert_eq!(found(lines, &all), Ok(()));
        assert!(found(lines, &["RoCE 5"]).unwrap_err().contains("lacks"));
        let wrong = lines.replace("4194304", ERROR);
        assert!(found(&wrong, &all).unwrap_err().contains("an error"));
    }
}
