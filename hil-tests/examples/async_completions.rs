//! Two tasks on one thread exchange messages with tokio, and sleep until completions arrive.
//!
//! `cargo xtask emulate -- cargo run --package hil-tests --example async_completions` runs the example on the
//! software device. On a BlueField or any other mlx5 device the program runs unchanged. Argument: the name of
//! the device; the first one by default.

#![allow(unsafe_code)] // For the descriptor of the completion channel.

use mlx5_mkey::devx::{
    Buffer, CompletionChannel, CqReader, CqSpec, Device, ProtectionDomain, QueuePair, QueuePairSpec,
};
use mlx5_mkey::mkey::Access;
use mlx5_mkey::queue::{Outcome, QpRouter, WorkCompletion};
use mlx5_mkey::wqe::Payload;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, timeout};

type Failure = Box<dyn Error + Send + Sync>;

/// Messages in each direction.
const MESSAGES: u64 = 5;
/// Bytes of a message.
const LENGTH: usize = 8;

/// A queue pair, and the descriptor that becomes readable when completions arrive.
struct End {
    queue: QueuePair,
    completions: CqReader,
    readable: AsyncFd<CompletionChannel>,
    buffer: Buffer,
}

impl End {
    fn new(device: &Device, pd: &ProtectionDomain) -> Result<Self, Failure> {
        let (cq, mut completions) = device.create_cq(CqSpec::entries_for(1, 64, 16, 0))?;
        let queue = device.create_qp(pd, &cq, &cq, QueuePairSpec::default())?;
        // SAFETY: a channel keeps one descriptor, which stays open as long as the channel lives.
        let readable =
            unsafe { AsyncFd::register_with_interest(completions.channel()?, Interest::READABLE)? };
        let mut end =
            Self { queue, completions, readable, buffer: pd.alloc_buffer(LENGTH, Access::LOCAL_WRITE)? };
        end.post_receive()?;
        Ok(end)
    }

    fn post_receive(&mut self) -> Result<(), Failure> {
        self.queue.post_receive(0, &[self.buffer.sge(0..LENGTH)?])?;
        self.queue.publish_receives();
        Ok(())
    }

    /// Returns the next completion. Other tasks run meanwhile.
    async fn completion(&mut self) -> Result<WorkCompletion, Failure> {
        loop {
            let mut router = QpRouter { queues: &mut self.queue, mkeys: &mut [] };
            if let Some(completion) = self.completions.poll_or_arm(&mut router)? {
                return completion.work().ok_or_else(|| "there are no mkeys".into());
            }
            self.readable.readable().await?.clear_ready();
        }
    }

    fn send(&mut self, number: u64) -> Result<(), Failure> {
        self.queue.request(number).signaled().send(Payload::Inline(&number.to_le_bytes()))?;
        self.queue.ring_doorbell();
        Ok(())
    }

    /// Waits for a message and returns its number. Ignores completions of sends that arrive meanwhile.
    async fn message(&mut self) -> Result<u64, Failure> {
        loop {
            match self.completion().await?.outcome {
                Outcome::Sent { .. } => {}
                Outcome::Received { .. } => {
                    let mut bytes = [0; LENGTH];
                    self.buffer.read(0, &mut bytes)?;
                    self.post_receive()?;
                    return Ok(u64::from_le_bytes(bytes));
                }
                Outcome::Failed(failure) => return Err(format!("{failure:?}").into()),
            }
        }
    }
}

/// Sends each received number back, plus one.
async fn server(mut end: End) -> Result<(), Failure> {
    for _ in 0..MESSAGES {
        let number = end.message().await?;
        end.send(number + 1)?;
    }
    // Takes the completion of the last answer, so that the answer is sent before the queue pair is destroyed.
    end.completion().await?;
    Ok(())
}

async fn client(mut end: End) -> Result<(), Failure> {
    for number in 0..MESSAGES {
        sleep(Duration::from_millis(20)).await;
        let start = Instant::now();
        end.send(number * 10)?;
        let answer = end.message().await?;
        println!("sent {}, got {answer} after {:?}", number * 10, start.elapsed());
        if answer != number * 10 + 1 {
            return Err("a wrong answer".into());
        }
    }
    Ok(())
}

async fn both(device: Option<&str>) -> Result<(), Failure> {
    let device = Device::open(device)?;
    let pd = device.alloc_pd()?;
    let (one, other) = (End::new(&device, &pd)?, End::new(&device, &pd)?);
    for (end, peer) in [(&one, &other), (&other, &one)] {
        end.queue.control().connect_local(peer.queue.qpn())?;
    }
    let server = tokio::spawn(server(one));
    client(other).await?;
    server.await?
}

/// Runs both tasks on this thread.
pub(crate) fn run(device: Option<&str>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { timeout(Duration::from_secs(10), both(device)).await? })
}

fn main() -> ExitCode {
    let Err(error) = run(std::env::args().nth(1).as_deref()) else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
