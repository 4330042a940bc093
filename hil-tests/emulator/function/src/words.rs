//! Describes events of the device in words.

use mlx5_mkey::inspect::DeviceContext;
use mlx5_mkey::wire::prm::command::{Opcode, Status};
use mlx5_record::Queue;
use mlx5_softdev::{Seen, Written};

/// Names of the commands that the library does not send (`enum` of `MLX5_CMD_OP_*` in Linux's `mlx5_ifc.h`),
/// by their opcodes.
const COMMANDS: &[(u16, &str)] = &[
    (0x101, "QUERY_ADAPTER"),
    (0x109, "SET_HCA_CAP"),
    (0x10d, "SET_DRIVER_VERSION"),
    (0x111, "QUERY_SF_PARTITION"),
    (0x113, "ALLOC_SF"),
    (0x114, "DEALLOC_SF"),
    (0x115, "SUSPEND_VHCA"),
    (0x116, "RESUME_VHCA"),
    (0x117, "QUERY_VHCA_MIGRATION_STATE"),
    (0x118, "SAVE_VHCA_STATE"),
    (0x119, "LOAD_VHCA_STATE"),
    (0x201, "QUERY_MKEY"),
    (0x203, "QUERY_SPECIAL_CONTEXTS"),
    (0x204, "PAGE_FAULT_RESUME"),
    (0x205, "ALLOC_MEMIC"),
    (0x206, "DEALLOC_MEMIC"),
    (0x207, "MODIFY_MEMIC"),
    (0x303, "QUERY_EQ"),
    (0x304, "GEN_EQE"),
    (0x402, "QUERY_CQ"),
    (0x403, "MODIFY_CQ"),
    (0x50d, "MAD_IFC"),
    (0x700, "CREATE_SRQ"),
    (0x701, "DESTROY_SRQ"),
    (0x702, "QUERY_SRQ"),
    (0x703, "ARM_RQ"),
    (0x705, "CREATE_XRC_SRQ"),
    (0x706, "DESTROY_XRC_SRQ"),
    (0x707, "QUERY_XRC_SRQ"),
    (0x708, "ARM_XRC_SRQ"),
    (0x710, "CREATE_DCT"),
    (0x711, "DESTROY_DCT"),
    (0x712, "DRAIN_DCT"),
    (0x713, "QUERY_DCT"),
    (0x714, "ARM_DCT_FOR_KEY_VIOLATION"),
    (0x717, "CREATE_XRQ"),
    (0x718, "DESTROY_XRQ"),
    (0x719, "QUERY_XRQ"),
    (0x71a, "ARM_XRQ"),
    (0x725, "QUERY_XRQ_DC_PARAMS_ENTRY"),
    (0x726, "SET_XRQ_DC_PARAMS_ENTRY"),
    (0x727, "QUERY_XRQ_ERROR_PARAMS"),
    (0x729, "RELEASE_XRQ_ERROR"),
    (0x72a, "MODIFY_XRQ"),
    (0x740, "QUERY_ESW_FUNCTIONS"),
    (0x750, "QUERY_VPORT_STATE"),
    (0x751, "MODIFY_VPORT_STATE"),
    (0x752, "QUERY_ESW_VPORT_CONTEXT"),
    (0x753, "MODIFY_ESW_VPORT_CONTEXT"),
    (0x754, "QUERY_NIC_VPORT_CONTEXT"),
    (0x755, "MODIFY_NIC_VPORT_CONTEXT"),
    (0x760, "QUERY_ROCE_ADDRESS"),
    (0x761, "SET_ROCE_ADDRESS"),
    (0x762, "QUERY_HCA_VPORT_CONTEXT"),
    (0x763, "MODIFY_HCA_VPORT_CONTEXT"),
    (0x764, "QUERY_HCA_VPORT_GID"),
    (0x765, "QUERY_HCA_VPORT_PKEY"),
    (0x76f, "QUERY_VNIC_ENV"),
    (0x770, "QUERY_VPORT_COUNTER"),
    (0x771, "ALLOC_Q_COUNTER"),
    (0x772, "DEALLOC_Q_COUNTER"),
    (0x773, "QUERY_Q_COUNTER"),
    (0x774, "SET_MONITOR_COUNTER"),
    (0x775, "ARM_MONITOR_COUNTER"),
    (0x780, "SET_PP_RATE_LIMIT"),
    (0x781, "QUERY_RATE_LIMIT"),
    (0x782, "CREATE_SCHEDULING_ELEMENT"),
    (0x783, "DESTROY_SCHEDULING_ELEMENT"),
    (0x784, "QUERY_SCHEDULING_ELEMENT"),
    (0x785, "MODIFY_SCHEDULING_ELEMENT"),
    (0x786, "CREATE_QOS_PARA_VPORT"),
    (0x787, "DESTROY_QOS_PARA_VPORT"),
    (0x804, "CONFIG_INT_MODERATION"),
    (0x805, "ACCESS_REG"),
    (0x806, "ATTACH_TO_MCG"),
    (0x807, "DETACH_FROM_MCG"),
    (0x80a, "GET_DROPPED_PACKET_LOG"),
    (0x80b, "QUERY_MAD_DEMUX"),
    (0x80c, "SET_MAD_DEMUX"),
    (0x80d, "NOP"),
    (0x80e, "ALLOC_XRCD"),
    (0x80f, "DEALLOC_XRCD"),
    (0x816, "ALLOC_TRANSPORT_DOMAIN"),
    (0x817, "DEALLOC_TRANSPORT_DOMAIN"),
    (0x822, "QUERY_CONG_STATUS"),
    (0x823, "MODIFY_CONG_STATUS"),
    (0x824, "QUERY_CONG_PARAMS"),
    (0x825, "MODIFY_CONG_PARAMS"),
    (0x826, "QUERY_CONG_STATISTICS"),
    (0x827, "ADD_VXLAN_UDP_DPORT"),
    (0x828, "DELETE_VXLAN_UDP_DPORT"),
    (0x829, "SET_L2_TABLE_ENTRY"),
    (0x82a, "QUERY_L2_TABLE_ENTRY"),
    (0x82b, "DELETE_L2_TABLE_ENTRY"),
    (0x830, "SET_WOL_ROL"),
    (0x831, "QUERY_WOL_ROL"),
    (0x840, "CREATE_LAG"),
    (0x841, "MODIFY_LAG"),
    (0x842, "QUERY_LAG"),
    (0x843, "DESTROY_LAG"),
    (0x844, "CREATE_VPORT_LAG"),
    (0x845, "DESTROY_VPORT_LAG"),
    (0x900, "CREATE_TIR"),
    (0x901, "MODIFY_TIR"),
    (0x902, "DESTROY_TIR"),
    (0x903, "QUERY_TIR"),
    (0x904, "CREATE_SQ"),
    (0x905, "MODIFY_SQ"),
    (0x906, "DESTROY_SQ"),
    (0x907, "QUERY_SQ"),
    (0x908, "CREATE_RQ"),
    (0x909, "MODIFY_RQ"),
    (0x90a, "DESTROY_RQ"),
    (0x90b, "QUERY_RQ"),
    (0x90c, "CREATE_RMP"),
    (0x90d, "MODIFY_RMP"),
    (0x90e, "DESTROY_RMP"),
    (0x90f, "QUERY_RMP"),
    (0x910, "SET_DELAY_DROP_PARAMS"),
    (0x912, "CREATE_TIS"),
    (0x913, "MODIFY_TIS"),
    (0x914, "DESTROY_TIS"),
    (0x915, "QUERY_TIS"),
    (0x916, "CREATE_RQT"),
    (0x917, "MODIFY_RQT"),
    (0x918, "DESTROY_RQT"),
    (0x919, "QUERY_RQT"),
    (0x92f, "SET_FLOW_TABLE_ROOT"),
    (0x930, "CREATE_FLOW_TABLE"),
    (0x931, "DESTROY_FLOW_TABLE"),
    (0x932, "QUERY_FLOW_TABLE"),
    (0x933, "CREATE_FLOW_GROUP"),
    (0x934, "DESTROY_FLOW_GROUP"),
    (0x935, "QUERY_FLOW_GROUP"),
    (0x936, "SET_FLOW_TABLE_ENTRY"),
    (0x937, "QUERY_FLOW_TABLE_ENTRY"),
    (0x938, "DELETE_FLOW_TABLE_ENTRY"),
    (0x939, "ALLOC_FLOW_COUNTER"),
    (0x93a, "DEALLOC_FLOW_COUNTER"),
    (0x93b, "QUERY_FLOW_COUNTER"),
    (0x93c, "MODIFY_FLOW_TABLE"),
    (0x93d, "ALLOC_PACKET_REFORMAT_CONTEXT"),
    (0x93e, "DEALLOC_PACKET_REFORMAT_CONTEXT"),
    (0x93f, "QUERY_PACKET_REFORMAT_CONTEXT"),
    (0x940, "ALLOC_MODIFY_HEADER_CONTEXT"),
    (0x941, "DEALLOC_MODIFY_HEADER_CONTEXT"),
    (0x942, "QUERY_MODIFY_HEADER_CONTEXT"),
    (0x960, "FPGA_CREATE_QP"),
    (0x961, "FPGA_MODIFY_QP"),
    (0x962, "FPGA_QUERY_QP"),
    (0x963, "FPGA_DESTROY_QP"),
    (0x964, "FPGA_QUERY_QP_COUNTERS"),
    (0xa04, "CREATE_UCTX"),
    (0xa06, "DESTROY_UCTX"),
    (0xa08, "CREATE_UMEM"),
    (0xa0a, "DESTROY_UMEM"),
    (0xb00, "SYNC_STEERING"),
    (0xb0d, "QUERY_VHCA_STATE"),
    (0xb0e, "MODIFY_VHCA_STATE"),
];

/// Returns the name of a command, or `None` for an opcode without a known name.
pub fn command(opcode: u16) -> Option<&'static str> {
    let other = || COMMANDS.iter().find(|(known, _)| *known == opcode).map(|(_, name)| *name);
    Opcode(opcode).name().or_else(other)
}

/// Describes an event in words. The description of a request has findings (faults in its bytes), which depend
/// on the device's properties in `device`. Returns `None` for messages between queue pairs, since their
/// requests and completions are described.
pub fn words(seen: Seen<'_>, device: DeviceContext) -> Option<String> {
    match seen {
        Seen::Command { opcode, op_mod, status, syndrome } => {
            let name = command(opcode).map_or_else(|| format!("command {opcode:#x}"), String::from);
            let modifier = if op_mod == 0 { String::new() } else { format!("/{op_mod:#x}") };
            let outcome = match status {
                0 => String::new(),
                2 => ": this device does not know it (BAD_OP)".into(),
                _ => {
                    let why = Status(status).description().unwrap_or("an unknown status");
                    format!(": {why} (status {status:#x}, syndrome {syndrome:#x})")
                }
            };
            Some(format!("{name}{modifier}{outcome}"))
        }
        Seen::Completion { cqn, entry, cause } => {
            Some(format!("completion queue {cqn:#x}: {}", Written { cqn, entry: *entry, cause }))
        }
        Seen::Request { queue, transport, block, bytes } => {
            Some(mlx5_record::request(&Queue { number: queue, transport, device }, block, bytes))
        }
        Seen::Packet { queue, packets, bytes, header } => Some(packet(queue, packets, bytes, header)),
        Seen::Sent(_) | Seen::Received(_) => None,
    }
}

/// Joins equal lines of a log that follow one another. Linux creates and destroys thousands of mkeys in a
/// row, and each command is a line.
#[derive(Debug, Default)]
pub struct Repeats {
    last: String,
    /// How often the last line has been repeated.
    more: u64,
}

impl Repeats {
    /// Takes the next line of the log, and returns the text to print. Returns `None` if `line` repeats the
    /// last line. The text of the next different line then also has the number of repetitions.
    pub fn join(&mut self, line: String) -> Option<String> {
        if line == self.last {
            self.more += 1;
            return None;
        }
        let text = match self.more {
            0 => line.clone(),
            more => format!("{}, {more} times more\n{line}", self.last),
        };
        *self = Self { last: line, more: 0 };
        Some(text)
    }
}

/// Describes a packet of the network interface by its Ethernet header: the receiver's address, and the
/// packet's type.
fn packet(queue: u32, packets: u64, bytes: u64, header: &[u8]) -> String {
    let what = match header {
        [a, b, c, d, e, f, _, _, _, _, _, _, high, low, ..] => {
            let count = if packets == 1 { "a packet".into() } else { format!("{packets} packets") };
            let to = [a, b, c, d, e, f].map(|byte| format!("{byte:02x}")).join(":");
            format!("{count} of {bytes} bytes to {to}, type {high:#04x}{low:02x}, taken")
        }
        _ => "a packet that cannot be read, counted as an error".into(),
    };
    format!("send queue {queue:#x}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_by_its_name_and_how_it_ended() {
        let told = |opcode, op_mod, status, syndrome| {
            words(Seen::Command { opcode, op_mod, status, syndrome }, DeviceContext::UNKNOWN).unwrap()
        };
        assert_eq!(told(0x104, 0, 0, 0), "ENABLE_HCA");
        assert_eq!(told(0x107, 1, 0, 0), "QUERY_PAGES/0x1");
        assert_eq!(told(0xfff, 0, 2, 1), "command 0xfff: this device does not know it (BAD_OP)");
        assert_eq!(told(0x500, 0, 3, 2), "CREATE_QP: bad parameter (status 0x3, syndrome 0x2)");
        assert_eq!(told(0xb12, 0, 0, 0), "SYNC_CRYPTO");
        let sorted = COMMANDS.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(sorted, "each opcode once");
        assert!(
            COMMANDS.iter().all(|(opcode, _)| Opcode(*opcode).name().is_none()),
            "not in the library's list"
        );
    }

    #[test]
    fn repeated_lines_are_counted() {
        let mut repeats = Repeats::default();
        let printed = ["NOP", "CREATE_MKEY", "CREATE_MKEY", "CREATE_MKEY", "CREATE_QP", "CREATE_MKEY"]
            .map(|line| repeats.join(line.into()));
        let printed: Vec<String> = printed.into_iter().flatten().collect();
        assert_eq!(printed, ["NOP", "CREATE_MKEY", "CREATE_MKEY, 2 times more\nCREATE_QP", "CREATE_MKEY"]);
    }

    #[test]
    fn a_packet_is_told_with_its_receiver() {
        let header = [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat();
        let header = &[&header[..], &[0x08, 0x06]].concat();
        let told = |packets, bytes, header| {
            words(Seen::Packet { queue: 7, packets, bytes, header }, DeviceContext::UNKNOWN).unwrap()
        };
        let line = told(1, 42, header);
        assert!(line.contains("a packet of 42 bytes to ff:ff:ff:ff:ff:ff, type 0x0806, taken"), "{line}");
        assert!(told(3, 4000, header).contains("3 packets of 4000 bytes"));
        assert!(told(0, 0, &[]).contains("cannot be read"));
    }

    #[test]
    fn a_completion_is_told_with_its_queue() {
        let entry = &[0; 64];
        let told = words(Seen::Completion { cqn: 0x12, entry, cause: None }, DeviceContext::UNKNOWN).unwrap();
        assert!(told.starts_with("completion queue 0x12: "), "{told}");
    }
}
