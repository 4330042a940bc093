//! Commands: replies of any bytes are read or refused, and requests are encoded into mailboxes of any length.

use crate::input::Input;
use mlx5_mkey::command::*;
use mlx5_mkey::error::CommandError::{self, MailboxTooShort};
use mlx5_mkey::mkey::Access;
use mlx5_mkey::types::{Cqn, MkeyIndex, PsvIndex, Qpn};
use std::fmt::Debug;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let which: u8 = input.any();
    let (room, number): (u16, u32) = (input.any(), input.any());
    let case = Case { room: usize::from(room) % 700, number, reply: input.rest() };
    case.run(which);
}

/// A mailbox, a number for whatever a command names, and a reply.
struct Case<'a> {
    room: usize,
    number: u32,
    reply: &'a [u8],
}

/// How many commands there are.
const COMMANDS: u8 = 33;

impl Case<'_> {
    fn run(&self, which: u8) {
        let (number, small) = (self.number, self.number & 0xff_ffff);
        let (qp, pd) = (Qpn::from_low_bits(number), Pdn::new(small).unwrap());
        let change = QpChange {
            access: (number & 1 != 0).then_some(QpAccess::READ_WRITE),
            rnr_timer: (number & 2 != 0).then_some(RnrTimer::MAX),
        };
        match which % COMMANDS {
            0 => self.capabilities(),
            1 => self.crypto_capabilities(),
            2 => self.check(&AllocPd),
            3 => self.check(&AllocUar),
            4 => self.check(&DeallocPd(pd)),
            5 => self.check(&DeallocUar(UarPage::new(small).unwrap())),
            6 => self.check(&CreatePsv::<1>::new(pd)),
            7 => self.check(&CreatePsv::<2>::new(pd)),
            8 => self.check(&CreatePsv::<4>::new(pd)),
            9 => self.check(&DestroyPsv(PsvIndex::from_low_bits(number))),
            10 => self.check(&self.mkey()),
            11 => self.check(&DestroyMkey(MkeyIndex::from_low_bits(number))),
            12 => self.check(&self.region()),
            13 => self.check(&CreateDek { pd, key: DekKey::Wrapped256Tagged(&[0x55; 80]), opaque: [1; 8] }),
            14 => self.check(&QueryDek(DekObject::new(number))),
            15 => {
                self.check(&DestroyDek(DekObject::new(number)));
                let (dek, key) = (DekObject::new(number), DekKey::Wrapped128(&[0x55; 40]));
                self.check(&ModifyDek { dek, pd, key });
                self.check(&SyncCrypto);
            }
            16 => self.login(),
            17 => self.check(&QueryLogin(LoginObject::new(number))),
            18 => self.check(&DestroyLogin(LoginObject::new(number))),
            19 => self.check(&self.cq()),
            20 => self.check(&DestroyCq(Cqn::from_low_bits(number))),
            21 => self.check(&self.qp()),
            22 => self.check(&DestroyQp(qp)),
            23 => {
                self.check(&Rst2Init { qp, port: 1, pkey_index: number as u16, access: QpAccess::READ_WRITE })
            }
            24 => {
                let drain = (number & 4 != 0).then_some(number & 8 != 0);
                let memcpy = (number & 16 != 0).then_some(number & 32 != 0);
                let access = change.access;
                self.check(&Init2Init { qp, drain_signature_errors: drain, memcpy, access });
            }
            25 => self.check(&Rts2Rts { qp, change }),
            26 => self.check(&Sqd2Rts { qp, change }),
            27 => self.check(&SqErr2Rts { qp, change }),
            28 => self.check(&QpToError(qp)),
            29 => self.check(&QpToReset(qp)),
            30 => {
                let key = DekKey::Plain256 { key: XtsKey::new(&KEY).unwrap(), keytag: None };
                self.check(&CreateDek { pd, key, opaque: [0; 8] });
            }
            31 => self.credential(),
            _ => self.check(&QueryQp(qp)),
        }
    }

    /// Reads the reply: refused where it says so or is too short, and nothing behind its end counts. Encodes the request: as a
    /// whole or not at all.
    fn check<C: Command<Reply: Debug + PartialEq>>(&self, command: &C) {
        let read = command.decode(self.reply);
        match self.reply.first() {
            Some(0) if self.reply.len() >= C::OUTPUT => {
                assert_eq!(read, command.decode(&self.reply[..C::OUTPUT]), "what is behind the reply counts");
            }
            Some(status) if *status != 0 && self.reply.len() >= 8 => {
                assert!(matches!(read, Err(CommandError::Status { .. })), "{read:?}");
            }
            _ => assert!(matches!(read, Err(CommandError::ReplyTooShort { .. })), "{read:?}"),
        }
        if let Err(error) = &read {
            assert!(!error.to_string().is_empty());
        }
        let mut mailbox = vec![0xa5; self.room];
        match command.encode(&mut mailbox).map(|request| request.len()) {
            Ok(length) => assert!(length == C::INPUT && self.room >= length),
            Err(error) => {
                let MailboxTooShort { length, needed, .. } = error else { panic!("{error:?}") };
                assert!(length == self.room && needed == C::INPUT && self.room < needed);
            }
        }
        let untouched = if self.room < C::INPUT { &mailbox[..] } else { &mailbox[C::INPUT..] };
        assert!(untouched.iter().all(|byte| *byte == 0xa5), "nothing behind the request is written");
    }

    /// What a device says that it can do decides what is made of it.
    fn capabilities(&self) {
        self.check(&QueryGeneralCapabilities);
        if let Ok(device) = QueryGeneralCapabilities.decode(self.reply) {
            let _ = (device.signatures(), device.xts_engine(), self.mkey().check(&device));
            let psvs = [PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2)];
            let key = mlx5_mkey::types::Key::from_raw(self.number);
            let _ = self.mkey().attributes(key, &device, psvs);
        }
    }

    fn crypto_capabilities(&self) {
        self.check(&QueryCryptoCapabilities);
        if let Ok(device) = QueryCryptoCapabilities.decode(self.reply) {
            let _ = format!("{device:?}");
        }
    }

    fn mkey(&self) -> CreateMkey {
        let bits = self.number;
        let features =
            MkeyFeatures { block_signature: bits & 1 != 0, crypto: bits & 2 != 0, ..MkeyFeatures::default() };
        let entries = EntryCount::new((bits >> 8) as u32 & 0xff).unwrap_or(EntryCount::new(4).unwrap());
        CreateMkey {
            pd: Pdn::new(bits & 0xff_ffff).unwrap(),
            max_entries: entries,
            features,
            tag: bits as u8,
        }
    }

    fn region(&self) -> CreateMemoryRegion {
        let number = self.number;
        CreateMemoryRegion {
            pd: Pdn::new(number & 0xff_ffff).unwrap(),
            access: Access::NONE,
            address: u64::from(number) << 32 | u64::from(number),
            length: u64::from(number) << (number % 33),
            memory: UmemSlice { umem: UmemId(number), offset: u64::MAX },
            page_size: LogPageSize::new(12 + (number % 20) as u8).unwrap(),
            tag: number as u8,
        }
    }

    fn login(&self) {
        let small = self.number & 0xff_ffff;
        self.check(&CreateLogin {
            credential_id: CredentialId::new(small).unwrap(),
            import_kek_id: ImportKekId::new(small).unwrap(),
            credential: Credential::wrapped(&[0x55; 48]),
        });
    }

    /// A credential of any bytes, as many as its field has, or refused.
    fn credential(&self) {
        assert_eq!(Credential::new(self.reply).is_ok(), self.reply.len() <= Credential::MAX);
        if let Ok(credential) = Credential::new(self.reply) {
            let (credential_id, import_kek_id) =
                (CredentialId::new(1).unwrap(), ImportKekId::new(2).unwrap());
            self.check(&CreateLogin { credential_id, import_kek_id, credential });
        }
    }

    fn cq(&self) -> CreateCq {
        CreateCq {
            size: CqSize::new(1 << (self.number % 23)).unwrap(),
            cqe_size: if self.number & 2 != 0 { CqeSize::B128 } else { CqeSize::B64 },
            uar: UarPage::new(self.number & 0xff_ffff).unwrap(),
            event_queue: self.number,
            entries: UmemSlice { umem: UmemId(self.number), offset: u64::from(self.number) },
            doorbell: UmemSlice { umem: UmemId(self.number), offset: u64::MAX },
            page_size: LogPageSize::P64K,
            ignore_overrun: self.number & 1 != 0,
        }
    }

    fn qp(&self) -> CreateQp {
        let small = self.number & 0xff_ffff;
        CreateQp {
            pd: Pdn::new(small).unwrap(),
            uar: UarPage::new(small).unwrap(),
            send_cq: Cqn::from_low_bits(small),
            receive_cq: Cqn::from_low_bits(small),
            user_index: UserIndex::new(small).unwrap(),
            send_ring: SendRingSize::new(1 << (small % 16)).unwrap(),
            receive_ring: (small & 1 != 0).then(|| ReceiveRing {
                slots: SlotCount::new(1 << (small % 16)).unwrap(),
                stride: SlotStride::new(64).unwrap(),
            }),
            rings: UmemSlice { umem: UmemId(self.number), offset: 0 },
            doorbell: UmemSlice { umem: UmemId(self.number), offset: u64::MAX },
            page_size: LogPageSize::P64K,
            timestamps: TimestampFormat::RealTime,
        }
    }
}

/// An AES-XTS key.
const KEY: [u8; 64] = {
    let mut key = [7; 64];
    key[0] = 8;
    key
};

/// A good reply of each command, all of it zeros, and one whose bits are all set.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let reply = |which: u8, fill: u8| {
        let mut bytes = vec![fill; 4200];
        bytes[0] = which;
        bytes[7] = 0;
        bytes
    };
    (0..COMMANDS).flat_map(|which| [reply(which, 0), reply(which, 0xff)]).collect()
}
