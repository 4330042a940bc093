//! Fuzz target for the device's commands: decodes replies of arbitrary bytes, and encodes requests into
//! mailboxes of any length.

use crate::input::Input;
use crate::values::KEY;
use mlx5_mkey::command::*;
use mlx5_mkey::error::CommandError::{self, MailboxTooShort};
use mlx5_mkey::mkey::{Access, KlmEntry, KsmEntry};
use mlx5_mkey::types::{Cqn, Key, KsmEntrySize, MkeyIndex, PsvIndex, Qpn};
use mlx5_mkey::wire::mkey_context::AccessByte;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Debug;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let which: u8 = input.any();
    let (room, number): (u16, u32) = (input.any(), input.any());
    let case = Case { room: usize::from(room) % 700, number, reply: input.rest(), note: &|_| {} };
    case.run(which);
}

/// Returns the type names of all commands that this target calls.
pub fn commands() -> BTreeSet<String> {
    let names = RefCell::new(BTreeSet::new());
    let note = |name: &str| {
        // `mlx5_mkey::command::eq::CreateEq<2>` is `CreateEq`.
        let path = name.split('<').next().unwrap_or_default();
        names.borrow_mut().insert(path.rsplit("::").next().unwrap_or_default().to_owned());
    };
    let reply = vec![0; 4200];
    (0..COMMANDS).for_each(|which| Case { room: 699, number: 0, reply: &reply, note: &note }.run(which));
    names.into_inner()
}

/// The parts of an input: the length of the mailbox, the reply, and a number from which the fields of a
/// command are made.
struct Case<'a> {
    room: usize,
    number: u32,
    reply: &'a [u8],
    /// The function that is called with the type name of each command.
    note: &'a dyn Fn(&str),
}

/// Number of cases. New cases come last, so that inputs of the corpus keep their meaning.
const COMMANDS: u8 = 50;

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
            1 => self.check(&QueryCryptoCapabilities),
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
            32 => self.check(&QueryQp(qp)),
            which => self.run_new(which - 33),
        }
    }

    /// Runs the commands that a machine without a kernel driver needs, and the commands that connect queue
    /// pairs.
    fn run_new(&self, which: u8) {
        let number = self.number;
        let function = Function { number: number as u16, embedded_cpu: number >> 16 & 1 != 0 };
        let phase = if number >> 17 & 1 != 0 { PagePhase::Boot } else { PagePhase::Init };
        match which {
            0 => self.check(&self.eq()),
            1 => self.check(&DestroyEq(Eqn::new(number & 0xff).unwrap())),
            2 => self.check(&self.cq_on_pages()),
            3 => self.check(&self.qp_on_pages()),
            4 => self.list_mkey(),
            5 => {
                let (pd, access) = (Pdn::new(number & 0xff_ffff).unwrap(), self.access());
                self.check(&CreatePhysicalRegion { pd, access, tag: (number >> 24) as u8 });
            }
            6 => self.check(&self.init2rtr()),
            7 => self.check(&Rtr2Rts {
                qp: Qpn::from_low_bits(number),
                first_psn: Psn::new(number & 0xff_ffff).unwrap(),
                log_max_rd_atomic: LogMaxRdAtomic::new(number as u8 & 7).unwrap(),
                ack_timeout: AckTimeout::new(number as u8 & 31).unwrap(),
                retries: Retries::new(number as u8 & 7).unwrap(),
                rnr_retries: Retries::MAX,
                log_ack_interval: LogAckInterval::new(number as u8 % 9).unwrap(),
            }),
            8 => self.check(&EnableHca(function)),
            9 => self.check(&DisableHca(function)),
            10 => self.check(&InitHca),
            11 => self.check(&TeardownHca),
            12 => self.check(&SetIssi(Issi::new(number as u8 & 31).unwrap())),
            13 => {
                self.check(&QueryIssi);
                if let Ok(info) = QueryIssi.decode(self.reply) {
                    let known = (0..32).filter(|version| info.knows(Issi::new(*version).unwrap()));
                    assert_eq!(known.count() as u32, info.supported.count_ones());
                }
            }
            14 => {
                let query = QueryPages { phase, function };
                self.check(&query);
                if let Ok(wanted) = query.decode(self.reply) {
                    assert_eq!(
                        wanted.function.embedded_cpu, function.embedded_cpu,
                        "the reply does not report it"
                    );
                }
            }
            15 => {
                // Most of these page addresses are valid.
                let address = |page: u64| u64::from(number) << (number % 14) | page << 44;
                self.check(&GivePages { function, pages: [0, 1, 2].map(address) });
                self.check(&GivePages { function, pages: [4096; 64] });
            }
            _ => {
                self.taken::<1>(function);
                self.taken::<64>(function);
            }
        }
    }

    /// Asserts that a reply with a bad status or with missing bytes is an error, and that surplus bytes are
    /// ignored. Asserts that encoding writes the complete request, or leaves a mailbox that is too short
    /// unchanged.
    fn check<C: Command<Reply: Debug + PartialEq>>(&self, command: &C) {
        let read = command.decode(self.reply);
        match self.reply.first() {
            Some(0) if self.reply.len() >= C::OUTPUT => {
                assert_eq!(
                    read,
                    command.decode(&self.reply[..C::OUTPUT]),
                    "bytes after the reply change the result"
                );
            }
            Some(status) if *status != 0 && self.reply.len() >= 8 => {
                assert!(matches!(read, Err(CommandError::Status { .. })), "{read:?}");
            }
            _ => assert!(matches!(read, Err(CommandError::ReplyTooShort { .. })), "{read:?}"),
        }
        if let Err(error) = &read {
            assert!(!error.to_string().is_empty());
        }
        (self.note)(std::any::type_name::<C>());
        let (mut mailbox, bytes) = (vec![0xa5; self.room], command.input_bytes());
        let encoded = command.encode(&mut mailbox).map(|request| request.len());
        match (command.verify(), encoded) {
            (Err(refused), _) => assert_eq!(encoded, Err(refused)),
            (Ok(()), Ok(length)) => assert!(length == bytes && self.room >= length),
            (Ok(()), Err(error)) => {
                let MailboxTooShort { length, needed, .. } = error else { panic!("{error:?}") };
                assert!(length == self.room && needed == bytes && self.room < needed);
            }
        }
        let untouched = &mailbox[encoded.unwrap_or(0)..];
        assert!(untouched.iter().all(|byte| *byte == 0xa5), "bytes after the request are written");
    }

    /// Decodes capabilities, and computes the values that depend on capabilities.
    fn capabilities(&self) {
        self.check(&QueryRoceCapabilities);
        self.check(&QueryAtomicCapabilities);
        self.check(&QueryGeneralCapabilities);
        if let Ok(device) = QueryGeneralCapabilities.decode(self.reply) {
            let _ = (device.signatures(), device.xts_engine(), self.mkey().check(&device));
            let psvs = [PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2)];
            let key = Key::from_raw(self.number);
            let _ = self.mkey().attributes(key, &device, psvs);
        }
    }

    fn mkey(&self) -> CreateMkey {
        let bits = self.number;
        let features =
            MkeyFeatures { block_signature: bits & 1 != 0, crypto: bits & 2 != 0, ..MkeyFeatures::default() };
        let entries = EntryCount::new(bits >> 8 & 0xff).unwrap_or(EntryCount::new(4).unwrap());
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

    /// Makes a credential from arbitrary bytes. A wrong length is refused.
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

    /// Returns two contiguous pages.
    fn pages(&self) -> PageList<2> {
        let size = LogPageSize::new(12 + (self.number % 20) as u8).unwrap();
        let address = u64::from(self.number);
        let aligned = address & ((1 << size.get()) - 1) == 0;
        assert_eq!(PageList::new(size, [0, address]).is_ok(), aligned);
        PageList::contiguous(size, address << size.get()).unwrap()
    }

    fn access(&self) -> Access {
        Access::from_wire(AccessByte::from_bits((self.number << 3) as u8))
    }

    fn eq(&self) -> CreateEq<2> {
        CreateEq {
            size: EqSize::new(1 << (self.number % 23)).unwrap(),
            uar: UarPage::new(self.number & 0xff_ffff).unwrap(),
            events: u64::from(self.number) << 16,
            interrupt: self.number as u8,
            entries: self.pages(),
        }
    }

    fn cq_on_pages(&self) -> CreateCqOnPages<2> {
        CreateCqOnPages {
            size: CqSize::new(1 << (self.number % 23)).unwrap(),
            uar: UarPage::new(self.number & 0xff_ffff).unwrap(),
            event_queue: Eqn::new(self.number & 0xff).unwrap(),
            entries: self.pages(),
            doorbell: u64::from(self.number) << 2,
            ignore_overrun: self.number & 8 != 0,
        }
    }

    fn qp_on_pages(&self) -> CreateQpOnPages<2> {
        let qp = self.qp();
        CreateQpOnPages {
            pd: qp.pd,
            uar: qp.uar,
            send_cq: qp.send_cq,
            receive_cq: qp.receive_cq,
            user_index: qp.user_index,
            send_ring: qp.send_ring,
            receive_ring: qp.receive_ring,
            rings: self.pages(),
            doorbell: u64::from(self.number) << 2,
            timestamps: qp.timestamps,
        }
    }

    /// Makes a command that creates an mkey with a list, for a device whose capabilities the reply contains.
    /// Compares a refusal by the library with the expected one.
    fn list_mkey(&self) {
        let (query, zeros) = (QueryGeneralCapabilities, [0; QueryGeneralCapabilities::OUTPUT]);
        let mut device = query.decode(self.reply).or(query.decode(&zeros)).unwrap();
        if self.number & 1 == 0 {
            (device.log_max_entries, device.fixed_buffer_size) = (5, true);
        }
        let (length, key) = (self.number >> 1, Key::from_raw(self.number));
        let address = u64::from(self.number) << (self.number % 33);
        let count = self.reply.len() % 36;
        let (klm, ksm) = ([KlmEntry { address, length, key }; 36], [KsmEntry { address, key }; 36]);
        // If `number` is 0, this choice makes a valid list.
        let list = match self.number >> 8 & 1 {
            0 => MkeyEntries::Ksm(KsmEntrySize::new(4096).unwrap(), &ksm[..count]),
            _ => MkeyEntries::Klm(&klm[..count]),
        };
        let pd = Pdn::new(self.number & 0xff_ffff).unwrap();
        let made = CreateListMkey::new(pd, self.access(), address, list, &device);
        match made.and_then(|mkey| mkey.with_length(mkey.length() / 2 + 1)) {
            Ok(mkey) => {
                assert!(mkey.length() > 0 && mkey.address().checked_add(mkey.length() - 1).is_some());
                self.check(&mkey.with_tag(self.number as u8));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    fn init2rtr(&self) -> Init2Rtr {
        let number = self.number;
        let bytes = number.to_be_bytes();
        let priority = Priority::new(number as u8 & 7).unwrap();
        let path = match number >> 24 & 3 {
            0 => Path::Loopback,
            1 => Path::Infiniband(InfinibandPath { lid: number as u16, service_level: priority }),
            _ => Path::Roce(RocePath {
                source_gid_index: bytes[0],
                gid: [bytes[1]; 16],
                mac: [bytes[2]; 6],
                udp_source_port: number as u16,
                hop_limit: bytes[3],
                traffic_class: bytes[2],
                flow_label: FlowLabel::new(number & 0xf_ffff).unwrap(),
                priority,
            }),
        };
        Init2Rtr {
            qp: Qpn::from_low_bits(number),
            remote_qp: Qpn::from_low_bits(!number),
            path,
            port: bytes[3],
            mtu: PathMtu::B1024,
            log_max_message: LogMessage::new(bytes[1] & 31).unwrap(),
            first_psn: Psn::new(number & 0xff_ffff).unwrap(),
            log_max_rd_atomic: LogMaxRdAtomic::new(bytes[2] & 7).unwrap(),
            rnr_timer: RnrTimer::new(bytes[3] & 31).unwrap(),
        }
    }

    /// Asserts that a reply returns at most as many pages as were requested.
    fn taken<const PAGES: usize>(&self, function: Function) {
        let command = TakePages::<PAGES> { function };
        self.check(&command);
        let count = self.reply.get(8..12).map_or(0, |count| u32::from_be_bytes(count.try_into().unwrap()));
        match command.decode(self.reply) {
            Ok(taken) => {
                let written =
                    self.reply[16..].as_chunks::<8>().0.iter().map(|page| u64::from_be_bytes(*page));
                assert_eq!(taken.addresses().len() as u32, count);
                assert!(taken.addresses().iter().copied().eq(written.take(count as usize)));
            }
            Err(CommandError::TooManyPages { pages, asked }) => {
                assert!(pages == count && asked == PAGES as u32 && pages > asked);
            }
            Err(_) => {}
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
