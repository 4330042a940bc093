//! The ten rows of the table in the man page of `mlx5dv_wr_set_mkey_crypto`, each by all methods of moving
//! data.

use super::examples::Setup;
use super::kit::{KEY, dif, domain, pattern};
use crate::board::{Board, DekSpec};
use crate::expected;
use crate::qp_pair::{Rx, Tx, Verdict};
use crate::way::block_signature;
use mlx5_mkey::mkey::{BlockSignature, Crypto, Direction, Keytag, Signature, SignatureOrder};
use mlx5_mkey::types::{BlockSize, DekId, Seed, Tweak};

/// A row of the man page's table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The letter of the row.
    pub letter: char,
    /// The content of memory, in the words of the man page.
    pub memory: &'static str,
    /// The content of the wire, in the words of the man page.
    pub wire: &'static str,
    direction: Direction,
    /// The signature orders that the row allows: both if the man page says that the order does not matter.
    orders: &'static [SignatureOrder],
    memory_signature: Option<Signature>,
    wire_signature: Option<Signature>,
    unit: BlockSize,
}

const BEFORE: &[SignatureOrder] = &[SignatureOrder::BeforeCryptoOnTx];
const AFTER: &[SignatureOrder] = &[SignatureOrder::AfterCryptoOnTx];
const EITHER: &[SignatureOrder] = &[SignatureOrder::AfterCryptoOnTx, SignatureOrder::BeforeCryptoOnTx];

const DIF: Option<Signature> = Some(Signature::T10Dif(dif(0x5eed, LBA as u32)));
/// Rows with two signatures have a CRC on one side and a T10-DIF on the other. A CRC is shorter, so memory
/// and wire have different lengths.
const CRC: Option<Signature> = Some(Signature::Crc32(Seed::Ones));

/// Tweak and reference tag of the first block.
const LBA: u64 = 0x0001_fffe;
/// The number of bytes of plain data, without signatures.
const DATA: usize = 4 * 512;

const fn row(
    letter: char,
    (memory, memory_signature): (&'static str, Option<Signature>),
    (wire, wire_signature): (&'static str, Option<Signature>),
    direction: Direction,
    orders: &'static [SignatureOrder],
    unit: BlockSize,
) -> Row {
    Row { letter, memory, wire, direction, orders, memory_signature, wire_signature, unit }
}

/// The table of the man page. The data unit is 512 bytes, or 520 if the cipher also covers the signature.
pub const ROWS: [Row; 10] = {
    use BlockSize::{B512, B520};
    use Direction::{DecryptOnTx as D, EncryptOnTx as E};
    [
        row('A', ("data", None), ("enc(data)", None), E, EITHER, B512),
        row('B', ("data", None), ("enc(data)+SIG", DIF), E, AFTER, B512),
        row('C', ("data", None), ("enc(data+SIG)", DIF), E, BEFORE, B520),
        row('D', ("data+SIG", DIF), ("enc(data)", None), E, BEFORE, B512),
        row('E', ("data+SIG1", CRC), ("enc(data+SIG2)", DIF), E, BEFORE, B520),
        row('F', ("enc(data)", None), ("data", None), D, EITHER, B512),
        row('G', ("enc(data)", None), ("data+SIG", DIF), D, AFTER, B512),
        row('H', ("enc(data+SIG)", DIF), ("data", None), D, AFTER, B520),
        row('I', ("enc(data+SIG1)", DIF), ("data+SIG2", CRC), D, AFTER, B520),
        row('J', ("enc(data)+SIG", DIF), ("data", None), D, BEFORE, B512),
    ]
};

/// A method of moving data through an mkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Data move out of the mkey.
    Tx(Tx),
    /// Data move into the mkey.
    Rx(Rx),
}

/// The result of moving a row's data by one method.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The method by which the data moved.
    pub way: Way,
    /// The signature order: before or after the cipher.
    pub order: SignatureOrder,
    /// Success if the bytes were the expected ones, otherwise the error.
    pub verdict: Verdict,
}

/// The results of moving a row's data by all methods.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The row of the man page's table.
    pub row: Row,
    /// The number of bytes that the row's data have in memory.
    pub memory_bytes: usize,
    /// The number of bytes that the row's data have on the wire.
    pub wire_bytes: usize,
    /// A result for each method and each signature order that the man page allows.
    pub moved: Vec<Moved>,
}

impl Row {
    /// Returns the signature that the row prescribes for an mkey, if any.
    fn signature(&self) -> Option<BlockSignature> {
        let of = |signature| domain(signature, BlockSize::B512);
        block_signature(self.memory_signature.map(of), self.wire_signature.map(of))
    }

    fn crypto(&self, order: SignatureOrder, dek: DekId) -> Crypto {
        let (direction, data_unit) = (self.direction, self.unit);
        let (tweak, keytag) = (Tweak::from_lba(LBA), Keytag::default());
        Crypto { direction, order, data_unit, tweak, dek, keytag }
    }

    /// Moves the row's data by all methods.
    pub fn run(&self, board: &mut dyn Board) -> Outcome {
        let dek = board.create_dek(DekSpec { key: &KEY, keytag: None });
        let (data, signature) = (pattern(DATA), self.signature());
        // The order of cipher and signature changes no length.
        let any = self.crypto(self.orders[0], dek);
        let images = expected::images(&data, signature.as_ref(), Some((&any, &KEY)));
        let ways = Tx::ALL.map(Way::Tx).into_iter().chain(Rx::ALL.map(Way::Rx));
        let ways = ways.flat_map(|way| self.orders.iter().map(move |order| (way, *order)));
        let moved = ways.map(|(way, order)| {
            // Each transfer has a new mkey and new queue pairs.
            let setup = Setup::new(board, &data, signature, Some(self.crypto(order, dek)));
            let verdict = setup.and_then(|mut setup| match way {
                Way::Tx(way) => setup.transmit(way),
                Way::Rx(way) => setup.receive(way),
            });
            Moved { way, order, verdict }
        });
        let moved = moved.collect();
        Outcome { row: *self, memory_bytes: images.memory.len(), wire_bytes: images.wire.len(), moved }
    }
}
