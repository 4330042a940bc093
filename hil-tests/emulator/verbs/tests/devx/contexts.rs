//! Tests of fields in the contexts of objects that depend on the device's capabilities, not on the user's
//! choice.

use super::completions::next_entry;
use super::connect::Context;
use super::umem::created_with;
use super::{Bench, nop, says, unsupported};
use mlx5_mkey::command::{MkeyEntries, TimestampFormat, TimestampSupport, UserIndex};
use mlx5_mkey::devx::{CqSpec, Device, DevxError, MkeySpec, QueuePair, QueuePairSpec};
use mlx5_mkey::mkey::Access;
use mlx5_mkey::types::KsmEntrySize;
use mlx5_testing::preload::{Side::Inside, preloaded_with};

/// Returns fields that CREATE_QP, INIT2RTR and RTR2RTS have written into the queue pair's context: the format
/// of time stamps, then logarithms of the longest message, of READs in flight as responder and as requester,
/// and of the packets per acknowledgement.
fn written(bench: &Bench) -> [u32; 5] {
    let control = bench.queue.control();
    let context = control.execute_query(&Context(control.qpn())).unwrap();
    let (sizes, retry) = (context.sizes.get(), context.retry.get());
    [sizes >> 6 & 3, sizes >> 24 & 0x1f, context.rights.get() >> 21 & 7, retry >> 21 & 7, retry >> 28]
}

/// Makes a queue pair from a spec, with a protection domain and a completion queue of its own.
fn create(device: &Device, spec: QueuePairSpec) -> Result<QueuePair, DevxError> {
    let pd = device.alloc_pd()?;
    let (cq, _completions) = device.create_cq(128)?;
    device.create_qp(&pd, &cq, &cq, spec)
}

fn is_refused_for(device: &Device, format: TimestampFormat, words: &str) {
    let spec = QueuePairSpec { timestamps: Some(format), ..QueuePairSpec::default() };
    unsupported(create(device, spec), words);
}

#[test]
fn a_device_of_real_time_only_and_low_limits_is_used_within_them() {
    let variables = [("MLX5_UVERBS_TIMESTAMPS", "real-time"), ("MLX5_UVERBS_LIMITS", "low")];
    let Inside = preloaded_with(&variables) else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    assert_eq!(bench.device.timestamp_support(), TimestampSupport::REAL_TIME);
    assert_eq!(written(&bench), [1, 24, 2, 2, 8]);
    is_refused_for(&bench.device, TimestampFormat::FreeRunning, "time stamps of a free-running clock");
    let spec = QueuePairSpec { timestamps: Some(TimestampFormat::RealTime), ..QueuePairSpec::default() };
    create(&bench.device, spec).unwrap();
    created_with(&bench.device, TimestampFormat::DeviceDefault).unwrap();
    created_with(&bench.device, TimestampFormat::RealTime).unwrap();
    let refused = created_with(&bench.device, TimestampFormat::FreeRunning).unwrap_err();
    says(&refused.to_string(), &["CREATE_QP refused", "bad parameter"]);

    nop(&mut bench.queue, 1);
    let (entry, _) = next_entry(&mut bench.completions, &mut bench.queue);
    let stamp = entry.timestamp.get();
    assert!(stamp & 0xffff_ffff < 1_000_000_000, "nanoseconds of a second: {stamp:#x}");
}

#[test]
fn a_device_with_a_free_running_clock_has_its_stamps() {
    for support in ["free-running", "both"] {
        let Inside = preloaded_with(&[("MLX5_UVERBS_TIMESTAMPS", support)]) else { continue };
        let has_real_time = std::env::var("MLX5_UVERBS_TIMESTAMPS").unwrap() == "both";
        let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
        assert_eq!(written(&bench), [0, 30, 4, 4, 8]);
        nop(&mut bench.queue, 1);
        bench.next();
        let refused = created_with(&bench.device, TimestampFormat::RealTime);
        if has_real_time {
            refused.unwrap();
            let timestamps = Some(TimestampFormat::RealTime);
            let spec = QueuePairSpec { timestamps, ..QueuePairSpec::default() };
            assert_eq!(written(&Bench::on(bench.device, spec, 128).unwrap())[0], 2);
        } else {
            says(&refused.unwrap_err().to_string(), &["CREATE_QP refused", "bad parameter"]);
            is_refused_for(&bench.device, TimestampFormat::RealTime, "time stamps in real time");
        }
    }
}

/// Runs the calling test in a separate program, and returns there a device that lacks a feature.
fn lacking(feature: &str) -> Option<Device> {
    let Inside = preloaded_with(&[("MLX5_UVERBS_LACKS", feature)]) else { return None };
    Some(Device::open(None).unwrap())
}

#[test]
fn no_queue_ignores_overruns_where_none_can() {
    let Some(device) = lacking("cq-oi") else { return };
    let spec = |ignore_overrun| CqSpec { ignore_overrun, ..CqSpec::from(64_u32) };
    unsupported(device.create_cq(spec(true)), "ignore overrun");
    device.create_cq(spec(false)).unwrap();
}

#[test]
fn no_queue_pair_has_an_index_where_completions_lack_it() {
    let Some(device) = lacking("cqe-version") else { return };
    let spec = |index| QueuePairSpec { user_index: UserIndex::new(index).unwrap(), ..Default::default() };
    unsupported(create(&device, spec(7)), "user indices in completions");
    create(&device, spec(0)).unwrap();
}

#[test]
fn nothing_has_atomics_where_there_are_none() {
    let Some(device) = lacking("atomic") else { return };
    // `Bench::new` makes a queue pair that gives its peer the right to atomics.
    unsupported(Bench::new(QueuePairSpec::default()), "atomics");
    let pd = device.alloc_pd().unwrap();
    let buffer = pd.alloc_buffer(4096, Access::LOCAL_WRITE).unwrap();
    let entries = [buffer.entry(0..4096).unwrap()];
    let list = |access| pd.create_list_mkey(access, 0, MkeyEntries::Klm(&entries));
    unsupported(list(Access::LOCAL_WRITE | Access::REMOTE_ATOMIC), "atomics");
    list(Access::LOCAL_WRITE).unwrap();
}

#[test]
fn no_list_has_entries_of_one_length_where_none_can() {
    let Some(device) = lacking("fixed-buffer-size") else { return };
    let pd = device.alloc_pd().unwrap();
    let plain = MkeySpec { max_entries: 4, ..MkeySpec::default() };
    let spec = MkeySpec { entry_size: Some(KsmEntrySize::new(4096).unwrap()), ..plain };
    unsupported(pd.create_mkey(spec), "entries of one length");
    pd.create_mkey(plain).unwrap();
}
