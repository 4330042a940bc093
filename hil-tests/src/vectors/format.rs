//! The types of the vectors' file format. See `vectors/FORMAT.md`.

#![allow(missing_docs)] // FORMAT.md describes the fields.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A number, which the file format writes as a JSON number or as a string `0x…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Int(pub u64);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntVisitor;
        impl Visitor<'_> for IntVisitor {
            type Value = Int;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a string 0x…")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Int, E> {
                Ok(Int(value))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Int, E> {
                let value = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
                value.map(Int).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(IntVisitor)
    }
}

/// Bytes, which the file format writes as hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Hex(pub Vec<u8>);

impl TryFrom<String> for Hex {
    type Error = hex::FromHexError;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        hex::decode(digits).map(Self)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Vector {
    pub id: String,
    pub qp: Qp,
    pub ctx: Context,
    pub mkeys: Vec<MkeySpec>,
    pub chains: Vec<Chain>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Qp {
    pub qpn: u32,
    pub wqe_cnt: u16,
    pub sq_sig_all: u8,
    pub fm_cache: u8,
    pub max_inline_data: u32,
    pub max_post: u32,
    pub head: u32,
    pub tail: u32,
    pub max_send_sge: usize,
    pub bf: BlueFlameSpec,
    pub wq_sig: u8,
}

#[derive(Clone, Debug, Deserialize)]
pub struct BlueFlameSpec {
    pub uuarn: u32,
    pub buf_size: usize,
    pub offset: usize,
    pub prefer_bf: u8,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Context {
    pub mkey_update_tag: u8,
    pub crypto_engines: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct MkeySpec {
    pub lkey: u32,
    pub num_desc: u16,
    pub crypto: bool,
    pub sig: Option<SignatureSpec>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct SignatureSpec {
    pub mem_psv: u32,
    pub wire_psv: u32,
    pub err_count: u32,
    pub err_count_updated: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Chain {
    pub ops: Vec<Op>,
    pub result: ChainResult,
}

#[derive(Clone, Debug, Deserialize)]
pub struct SgeSpec {
    pub addr: Int,
    pub length: u32,
    pub lkey: u32,
}

#[derive(Clone, Debug, Deserialize)]
pub struct InterleavedSpec {
    pub addr: Int,
    pub bytes_count: u32,
    pub bytes_skip: u32,
    pub lkey: u32,
}

#[derive(Clone, Debug, Deserialize)]
pub struct DomainSpec {
    #[serde(rename = "type")]
    pub kind: String,
    pub bg_type: Option<String>,
    pub bg: Option<u32>,
    pub app_tag: Option<u16>,
    pub ref_tag: Option<u32>,
    pub flags: Option<Vec<String>>,
    pub flags_raw: Option<Int>,
    pub seed: Option<Int>,
    pub block_size: Option<u32>,
    pub comp_mask: Option<Int>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant)] // The size does not matter: each value is read once and replayed once.
pub enum Op {
    Start,
    Complete,
    Abort,
    Wr {
        wr_id: Int,
        send_flags: Vec<String>,
    },
    MkeyConfigure {
        mkey: usize,
        num_setters: usize,
        conf_flags: Vec<String>,
        conf_flags_raw: Option<Int>,
        comp_mask: Option<Int>,
    },
    SetAccess {
        access: Vec<String>,
    },
    SetLayoutList {
        sges: Vec<SgeSpec>,
    },
    SetLayoutInterleaved {
        repeat_count: u32,
        entries: Vec<InterleavedSpec>,
    },
    SetSigBlock {
        mem: Option<DomainSpec>,
        wire: Option<DomainSpec>,
        flags: Vec<String>,
        check_mask: u8,
        copy_mask: u8,
        flags_raw: Option<Int>,
        comp_mask: Option<Int>,
    },
    SetCrypto {
        encrypt_on_tx: bool,
        order: String,
        data_unit_size: Option<u32>,
        tweak: Hex,
        dek_id: u32,
        keytag: Hex,
        standard_raw: Option<Int>,
        data_unit_size_raw: Option<Int>,
        order_raw: Option<Int>,
        comp_mask: Option<Int>,
    },
    MrList {
        mkey: usize,
        access: Vec<String>,
        sges: Vec<SgeSpec>,
    },
    MrInterleaved {
        mkey: usize,
        access: Vec<String>,
        repeat_count: u32,
        entries: Vec<InterleavedSpec>,
    },
    Send,
    SendImm {
        imm: u32,
    },
    SendInv {
        rkey: u32,
    },
    RdmaWrite {
        rkey: u32,
        raddr: Int,
    },
    RdmaWriteImm {
        rkey: u32,
        raddr: Int,
        imm: u32,
    },
    RdmaRead {
        rkey: u32,
        raddr: Int,
    },
    LocalInv {
        rkey: u32,
    },
    SetSge(SgeSpec),
    SetSgeList {
        sges: Vec<SgeSpec>,
    },
    SetInline {
        data: Hex,
    },
    Cancel {
        wr_id: Int,
        hw_wqebb_counter: u32,
    },
    SigErrorCqe {
        mkey: usize,
    },
    SetLkey {
        mkey: usize,
        lkey: u32,
    },
    PostSend {
        opcode: String,
        wr_id: Int,
        send_flags: Vec<String>,
        #[serde(default)]
        sges: Vec<SgeSpec>,
        rkey: Option<u32>,
        raddr: Option<Int>,
        imm: Option<u32>,
        inv_rkey: Option<u32>,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Ret {
    Errno(u32),
    Aborted(String),
}

#[derive(Clone, Debug, Deserialize)]
pub struct ChainResult {
    pub ret: Ret,
    pub cancel_ret: Option<usize>,
    pub pi_before: Int,
    pub pi_after: Int,
    #[serde(default)]
    pub bbs: Vec<BlockSpec>,
    #[serde(default)]
    pub wqes: Vec<WqeSpec>,
    pub dbrec: Option<Hex>,
    pub doorbell: Option<DoorbellSpec>,
    pub bf_offset_after: usize,
    pub fm_cache_after: u8,
    pub sq_head_after: u32,
    pub mkeys_after: Vec<MkeyAfter>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct BlockSpec {
    pub bb: usize,
    pub hex: Hex,
    pub untouched: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct WqeSpec {
    pub bb: usize,
    pub ds: usize,
    pub n_bb: usize,
}

#[derive(Clone, Debug, Deserialize)]
pub struct DoorbellSpec {
    pub offset: usize,
    pub len: Option<usize>,
    pub kind: String,
    pub hex: Option<Hex>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct MkeyAfter {
    pub err_count: u32,
    pub err_count_updated: bool,
    pub length: Int,
}
