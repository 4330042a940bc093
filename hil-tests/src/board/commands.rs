//! Measures behaviour that only commands to the device show, not work requests. The commands go through
//! libmlx5.

#![allow(unsafe_code)]

use super::Finding;
use mlx5_mkey::command::{
    Command, CqSize, CqeSize, CreateCq, CreateListMkey, CreateMemoryRegion, CreateMkey, EntryCount,
    LogPageSize, MkeyEntries, MkeyFeatures, QpAccess, TimestampFormat,
};
use mlx5_mkey::devx::{
    CqReader, Device, DevxError, DevxObject, MappedClock, ProtectionDomain, QueuePair, QueuePairSpec, Umem,
    UmemSpec,
};
use mlx5_mkey::error::CommandError;
use mlx5_mkey::mkey::{Access, KlmEntry};
use mlx5_mkey::queue::{Outcome, QpRouter};
use mlx5_mkey::types::{Cqn, Key, KsmEntrySize};
use mlx5_mkey::wire::cqe::Cqe;
use mlx5_mkey::wire::prm::command::Opcode;
use mlx5_mkey::wire::prm::mkey::{MkcFlags, MkcPd};
use mlx5_mkey::wqe::{Remote, Sge};
use std::error::Error;
use std::time::{Duration, Instant};

/// The longest wait for a completion.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The size of the pages that registered memory is made of.
const PAGE: usize = 4096;

/// A command with a change of the request that the library would not write.
struct Changed<C: Command> {
    command: C,
    change: fn(&mut C::Input),
}

impl<C: Command> Command for Changed<C> {
    const OPCODE: Opcode = C::OPCODE;
    const SECRET: bool = C::SECRET;
    type Input = C::Input;
    type Output = C::Output;
    type Reply = C::Reply;

    fn write(&self, input: &mut C::Input) {
        self.command.write(input);
        (self.change)(input);
    }

    fn input_bytes(&self) -> usize {
        self.command.input_bytes()
    }

    fn write_list(&self, list: &mut [u8]) {
        self.command.write_list(list);
    }

    fn read(&self, output: &C::Output) -> Result<C::Reply, CommandError> {
        self.command.read(output)
    }
}

/// Returns the result of a command in words.
fn told<T>(result: Result<T, DevxError>, done: &str) -> String {
    match result {
        Ok(_) => done.into(),
        Err(error) => error.to_string(),
    }
}

/// Memory of whole pages that this process never frees, so that objects of the device may keep it.
fn pages(count: usize) -> *mut u8 {
    let words = vec![0_u64; (count + 1) * PAGE / 8].leak();
    let first = words.as_mut_ptr().cast::<u8>();
    first.wrapping_add(first.align_offset(PAGE))
}

/// A queue pair that is connected to itself, and its completions.
struct Loopback {
    queue: QueuePair,
    completions: CqReader,
}

impl Loopback {
    fn new(device: &Device, pd: &ProtectionDomain, timestamps: TimestampFormat) -> Result<Self, DevxError> {
        let (cq, completions) = device.create_cq(256)?;
        let spec = QueuePairSpec {
            access: QpAccess::READ_WRITE,
            timestamps: Some(timestamps),
            ..QueuePairSpec::default()
        };
        let queue = device.create_qp(pd, &cq, &cq, spec)?;
        queue.control().connect_loopback()?;
        Ok(Self { queue, completions })
    }

    /// Takes `count` completions with their entries, or fewer if [`TIMEOUT`] ends first.
    fn wait(&mut self, count: usize) -> Vec<(Cqe, bool)> {
        let end = Instant::now() + TIMEOUT;
        let mut found = Vec::new();
        while found.len() < count && Instant::now() < end {
            let mut router = QpRouter { queues: &mut self.queue, mkeys: &mut [] };
            if let Some((entry, completion)) = self.completions.poll_with_entry(&mut router) {
                let work = completion.ok().and_then(|completion| completion.work());
                found.push((entry, work.is_some_and(|work| !matches!(work.outcome, Outcome::Failed(_)))));
            }
        }
        found
    }
}

/// Asks the device all questions. `other` is the same device, opened once more.
///
/// # Errors
/// The failure of a call that every device should execute.
pub(super) fn answers(
    device: &Device,
    pd: &ProtectionDomain,
    other: &Device,
) -> Result<Vec<Finding>, Box<dyn Error>> {
    let mut found = counters_and_stamps(device, pd)?;
    found.extend(of_another_context(pd, other)?);
    found.extend(memory_of_commands(device, pd)?);
    found.extend(new_mkeys(device, pd)?);
    Ok(found.into_iter().map(|(what, value)| (what.to_owned(), value)).collect())
}

type Found = Result<Vec<(&'static str, String)>, Box<dyn Error>>;

/// Asks for the counter of receives in QUERY_QP, and for the format of time stamps that the device prefers.
fn counters_and_stamps(device: &Device, pd: &ProtectionDomain) -> Found {
    let mut pair = Loopback::new(device, pd, TimestampFormat::DeviceDefault)?;
    let clock = device.clock().ok();
    let ticks = || clock.as_ref().map(MappedClock::ticks);
    let before = ticks();
    for id in 0..3 {
        pair.queue.post_receive(id, &[])?;
    }
    pair.queue.publish_receives();
    for id in 0..2 {
        pair.queue.request(id).signaled().send(&[][..])?;
    }
    pair.queue.ring_doorbell();
    let done = pair.wait(4);
    let after = ticks();
    let info = pair.queue.control().query()?;
    let receives = format!("{} of 3, {} completions of 4", info.receives_taken, done.len());
    let stamps: Vec<u64> = done.iter().map(|(entry, _)| entry.timestamp.get()).collect();
    let stamps = match before.zip(after) {
        None => format!("the clock cannot be read; {stamps:#x?}"),
        Some((before, after)) if stamps.iter().all(|stamp| (before..=after).contains(stamp)) => {
            "ticks of the free-running clock".into()
        }
        Some((before, after)) => format!("{stamps:x?}, the clock shows {before:#x} to {after:#x}"),
    };
    Ok(vec![
        ("receives that QUERY_QP counts, after two messages", receives),
        ("time stamps where software names no format", stamps),
    ])
}

/// Asks whether a command of one user context can name an object of another: the creation of an mkey in a
/// protection domain. (The kernel itself refuses queries of objects of another.)
fn of_another_context(pd: &ProtectionDomain, other: &Device) -> Found {
    let command = CreateMkey {
        pd: pd.number()?,
        max_entries: EntryCount::new(4)?,
        features: MkeyFeatures::default(),
        tag: 0,
    };
    // SAFETY: the mkey has no entries.
    let mkey = unsafe { other.create_object(&command, ()) };
    Ok(vec![("an mkey in a protection domain of another user context", told(mkey, "created"))])
}

/// Asks about memory that is registered for use in commands (a umem): whether its registration can end while
/// a ring is in it, where regions over it may begin, and whether a region over a read-only umem can be
/// written.
fn memory_of_commands(device: &Device, pd: &ProtectionDomain) -> Found {
    let (ring, memory) = (pages(2), pages(2));
    // SAFETY: the memory is never freed, and only the device and the requests below write to it.
    let register = |address, access| unsafe {
        device.register_umem(address, 2 * PAGE, UmemSpec { access, ..UmemSpec::default() })
    };
    let umem = register(ring, Access::LOCAL_WRITE)?;
    let uar = device.alloc_uar()?;
    let command = CreateCq {
        size: CqSize::new(64)?,
        cqe_size: CqeSize::B64,
        uar: uar.number()?,
        event_queue: device.event_queue(0)?,
        entries: umem.at(0),
        doorbell: umem.at(PAGE as u64),
        page_size: LogPageSize::P4K,
        ignore_overrun: false,
    };
    // SAFETY: the memory is never freed.
    let (queue, _): (DevxObject<()>, Cqn) = unsafe { device.create_object(&command, ()) }?;
    let ended = umem.deregister().map_err(|(error, _)| error);
    let mut found = vec![("the end of a umem under the ring of a queue", told(ended, "done"))];
    drop((queue, uar));

    let start = 0x7000_0000;
    let region = |umem: &Umem, address| CreateMemoryRegion {
        pd: pd.number().unwrap_or_default(),
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        address,
        length: PAGE as u64,
        memory: umem.at(0),
        page_size: LogPageSize::P4K,
        tag: 0x55,
    };
    // SAFETY: the memory is never freed, and only the requests below write to it.
    let made = |umem: &Umem, address| unsafe { device.create_object(&region(umem, address), ()) };
    let umem = register(memory, Access::LOCAL_WRITE)?;
    found.push(("a region over a umem, at the same offset in a page", told(made(&umem, start), "created")));
    found
        .push(("a region over a umem, at another offset in a page", told(made(&umem, start + 8), "created")));
    let read_only = register(memory, Access::NONE)?;
    let written: Result<(DevxObject<()>, Key), DevxError> = made(&read_only, start);
    let value = match written {
        Err(error) => error.to_string(),
        Ok((_region, key)) => {
            let mut pair = Loopback::new(device, pd, TimestampFormat::DeviceDefault)?;
            // SAFETY: the memory is never freed, and the device only reads it.
            let source = unsafe { pd.register(pages(1), PAGE, Access::NONE) }?;
            let sge = Sge { address: source.address(), length: 8, lkey: source.lkey() };
            pair.queue.request(1).signaled().rdma_write(Remote { address: start, rkey: key }, &[sge])?;
            pair.queue.ring_doorbell();
            match pair.wait(1).as_slice() {
                [(_, true)] => "created, and written".into(),
                [(_, false)] => "created, and a write fails".into(),
                _ => "created, and a write does not complete".into(),
            }
        }
    };
    found.push(("a region with the right to write over a umem that is only read", value));
    Ok(found)
}

/// Asks for new mkeys that the library refuses: longer than their entries, with BSFs and entries of one
/// length, and a free region that no UMR may change.
fn new_mkeys(device: &Device, pd: &ProtectionDomain) -> Found {
    // SAFETY: the memory is never freed, and no request names it.
    let region = unsafe { pd.register(pages(1), PAGE, Access::NONE) }?;
    let entries = [KlmEntry { address: region.address(), length: 64, key: region.lkey() }; 2];
    let list = MkeyEntries::Klm(&entries);
    let command = CreateListMkey::new(pd.number()?, Access::NONE, 0, list, device.capabilities())?;
    let longer = Changed { command, change: |input| input.mkc.len.set(input.mkc.len.get() + 64) };
    // SAFETY: the region lives longer than the mkey.
    let longer = told(unsafe { device.create_object(&longer, ()) }, "created");

    let entry_size = Some(KsmEntrySize::new(PAGE as u32)?);
    let features = MkeyFeatures { entry_size, ..MkeyFeatures::default() };
    let command = CreateMkey { pd: pd.number()?, max_entries: EntryCount::new(4)?, features, tag: 0 };
    // SAFETY: the mkey has no entries.
    let alike = told(unsafe { device.create_object(&command, ()) }, "created");
    let with_bsfs = Changed {
        command,
        change: |input| {
            input.mkc.pd.set(MkcPd::from_bits(input.mkc.pd.get()).with_bsf_en(true).into_bits());
            input.mkc.bsf_octword_size.set(4);
        },
    };
    // SAFETY: the mkey has no entries.
    let with_bsfs = told(unsafe { device.create_object(&with_bsfs, ()) }, "created");

    // SAFETY: the memory is never freed, and no request names it.
    let umem = unsafe { device.register_umem(pages(1), PAGE, UmemSpec::default()) }?;
    let command = CreateMemoryRegion {
        pd: pd.number()?,
        access: Access::LOCAL_WRITE,
        address: 0,
        length: PAGE as u64,
        memory: umem.at(0),
        page_size: LogPageSize::P4K,
        tag: 0,
    };
    let free = Changed {
        command,
        change: |input| {
            let flags = MkcFlags::from_bits(input.mkc.flags.get());
            input.mkc.flags.set(flags.with_free(true).with_umr_en(false).into_bits());
        },
    };
    // SAFETY: the memory is never freed.
    let free = told(unsafe { device.create_object(&free, ()) }, "created");
    Ok(vec![
        ("a new mkey that is longer than its entries", longer),
        ("a new mkey with entries of one length", alike),
        ("a new mkey with BSFs and entries of one length", with_bsfs),
        ("a new region that is free and that no UMR may change", free),
    ])
}
