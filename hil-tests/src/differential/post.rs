//! Posts the random requests of the differential test with the library.

use super::case::{Config, SignatureStep, Work};
use crate::doorbell::Silent;
use crate::request::{Flags, Objects, Request};
use crate::way::{Way, block_signature, with_masks};
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{Access, MemoryWindow, Mkey, MkeyConfig, SignatureChange};
use mlx5_mkey::queue::{SendQueue, SendRequest};
use mlx5_mkey::wqe::PreparedConfig;

/// The library's send queue in this test. Its doorbell has no effect: the test itself copies the ring to a
/// software device.
pub(super) type Ours<'r> = SendQueue<'r, Silent>;

/// A chain of requests, the id (`wr_id`) of its first one, and the posting method.
#[derive(Clone, Copy)]
pub(super) struct Chain<'c> {
    pub(super) way: Way,
    pub(super) first: u64,
    pub(super) works: &'c [(Flags, Work)],
}

/// Posts a chain of requests with the library and rings the doorbell. Returns the position of a refused
/// request, and its error. After a refusal the doorbell does not ring, but a batch publishes the requests
/// before the refused one.
pub(super) fn post_chain(
    queue: &mut Ours<'_>,
    chain: &Chain<'_>,
    mkey: &mut Mkey,
) -> Result<(), (usize, PostError)> {
    let mut poster = chain.way.open(queue);
    let mut last: Last<'_> = None;
    for (number, (flags, work)) in chain.works.iter().enumerate() {
        let request = flags.apply(poster.request(chain.first + number as u64));
        post(request, (chain.way, &mut last), work, mkey).map_err(|error| (number, error))?;
    }
    poster.publish();
    Ok(())
}

/// The last configuration of the chain, and its prepared configuration. The next configuration uses the
/// prepared one again if it differs only in the layout.
type Last<'c> = Option<(&'c Config, PreparedConfig)>;

/// Posts a request of a chain with the library.
fn post<'c>(
    request: SendRequest<'_, '_>,
    (way, last): (Way, &mut Last<'c>),
    work: &'c Work,
    mkey: &mut Mkey,
) -> Result<(), PostError> {
    let mkeys = std::slice::from_mut(mkey);
    match work {
        Work::Configure(config) => {
            let prepared = std::slice::from_ref(prepare(way, last, config, &mkeys[0])?);
            let mut configure = Request::Configure(0, 0, config.layout.clone());
            configure.perform(request, Objects { mkeys, windows: &mut [], prepared })
        }
        Work::Bind(key, range, rights, zero_based) => {
            let start = if *zero_based { 0 } else { range.address };
            let windows = &mut [MemoryWindow::new(*key)];
            let mut bind = Request::BindWindow(0, *range, access(*rights), start);
            bind.perform(request, Objects { mkeys, windows, prepared: &[] })
        }
        Work::Plain(plain) => plain.clone().perform(request, Objects::none()),
    }
}

fn prepare<'l, 'c>(
    way: Way,
    last: &'l mut Last<'c>,
    config: &'c Config,
    mkey: &Mkey,
) -> Result<&'l PreparedConfig, ConfigError> {
    let prepared = match last.take() {
        Some((of, prepared)) if of.is_prepared_as(config) => prepared,
        _ => {
            let words = MkeyConfig {
                access: config.access.map(access),
                signature: signature(&config.signature)?,
                crypto: config.crypto,
            };
            way.prepare_with_any_data_unit(mkey.kind(), &words)?
        }
    };
    Ok(&last.insert((config, prepared)).1)
}

fn signature(step: &SignatureStep) -> Result<SignatureChange, ConfigError> {
    let SignatureStep::Set { memory, wire, check_mask, copy_mask } = step else {
        let reset = *step == SignatureStep::Reset;
        return Ok(if reset { SignatureChange::Reset } else { SignatureChange::Keep });
    };
    let signature = block_signature(*memory, *wire).expect("cases have a signature in a domain");
    Ok(SignatureChange::Set(with_masks(signature, *check_mask, *copy_mask)?))
}

/// Converts access rights of verbs (the bits IBV_ACCESS_LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ and
/// REMOTE_ATOMIC) to the library's.
fn access(bits: u32) -> Access {
    [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC]
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .fold(Access::NONE, |rights, (_, right)| rights | right)
}
