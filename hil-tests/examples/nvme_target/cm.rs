//! Connections by the kernel's connection manager: the functions of librdmacm that a server needs.
//!
//! The program loads librdmacm at run time. The connection manager does not manage the queue pairs: the
//! program passes their numbers to it, and asks it for the path to the peer.

#![allow(unsafe_code)]

use super::error::Result;
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use libc::{sockaddr, sockaddr_in, sockaddr_in6};
use mlx5_mkey::command::{AckTimeout, FlowLabel, LogMaxRdAtomic, PathMtu, Priority, Psn, Retries, RnrTimer};
use mlx5_mkey::devx::abi::IbvQpAttr;
use mlx5_mkey::devx::{ConnectOptions, QpAddress};
use mlx5_mkey::types::Qpn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// librdmacm's `struct rdma_cm_id`. Its fields are not read.
enum RawId {}

/// librdmacm's `struct rdma_event_channel`.
enum RawChannel {}

/// librdmacm's `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters {
    private_data: *const c_void,
    private_data_length: u8,
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: u8,
    qp_num: u32,
}

/// librdmacm's `struct rdma_cm_event`. Its last field is a union. This structure declares only the member for
/// reliable connections.
#[repr(C)]
struct RawEvent {
    id: *mut RawId,
    listener: *mut RawId,
    kind: c_int,
    status: c_int,
    connection: Parameters,
}

const _: () = assert!(size_of::<Parameters>() == 24 && core::mem::offset_of!(Parameters, qp_num) == 16);
const _: () = assert!(core::mem::offset_of!(RawEvent, connection) == 24);

/// `RDMA_PS_TCP`: reliable connections.
const RELIABLE: c_int = 0x106;
/// `RDMA_CM_EVENT_CONNECT_REQUEST`.
const CONNECT_REQUEST: c_int = 4;
/// Events after which a connection is useless: `RDMA_CM_EVENT_CONNECT_ERROR`, `UNREACHABLE`, `REJECTED`,
/// `DISCONNECTED`, `DEVICE_REMOVAL`, `ADDR_CHANGE` and `TIMEWAIT_EXIT`.
const ENDS: [c_int; 7] = [6, 7, 8, 10, 11, 14, 15];
/// States of a queue pair: `IBV_QPS_RTR`.
const READY_TO_RECEIVE: u32 = 2;
/// `IBV_QPS_RTS`.
const READY_TO_SEND: u32 = 3;
/// The retry count that stands for unlimited retries.
const RETRIES: u8 = 7;

/// Declares functions of librdmacm, and the code that looks them up.
macro_rules! api {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)+) => {
        struct Api {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
            /// The library is never unloaded, because its exit handlers may still run its code.
            _library: ManuallyDrop<libloading::Library>,
        }

        impl Api {
            fn load() -> Result<Self> {
                // SAFETY: librdmacm is made to be loaded by programs.
                let library = unsafe { libloading::Library::new("librdmacm.so.1")? };
                Ok(Self {
                    $($name: {
                        // SAFETY: the signature is the one of the library's public header.
                        *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes())? }
                    },)+
                    _library: ManuallyDrop::new(library),
                })
            }
        }
    };
}

api! {
    rdma_create_event_channel: fn() -> *mut RawChannel;
    rdma_create_id: fn(*mut RawChannel, *mut *mut RawId, *mut c_void, c_int) -> c_int;
    rdma_bind_addr: fn(*mut RawId, *const sockaddr) -> c_int;
    rdma_listen: fn(*mut RawId, c_int) -> c_int;
    rdma_get_cm_event: fn(*mut RawChannel, *mut *mut RawEvent) -> c_int;
    rdma_ack_cm_event: fn(*mut RawEvent) -> c_int;
    rdma_init_qp_attr: fn(*mut RawId, *mut IbvQpAttr, *mut c_int) -> c_int;
    rdma_accept: fn(*mut RawId, *mut Parameters) -> c_int;
    rdma_reject: fn(*mut RawId, *const c_void, u8) -> c_int;
    rdma_disconnect: fn(*mut RawId) -> c_int;
    rdma_destroy_id: fn(*mut RawId) -> c_int;
}

/// Turns the return value of a function of librdmacm into a result.
fn check(name: &str, value: c_int) -> Result {
    if value != 0 {
        return Err(format!("{name}: {}", io::Error::last_os_error()).into());
    }
    Ok(())
}

/// The connection manager's object of a connection or of the listener (`rdma_cm_id`). Dropping the value
/// destroys the object.
pub(crate) struct Id {
    api: Arc<Api>,
    raw: NonNull<RawId>,
}

// SAFETY: librdmacm allows calls from any thread. Only `Drop` frees the object, and no other reference to the
// value exists then.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

/// A number that identifies a connection: the address of its `rdma_cm_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Number(usize);

/// The path to a peer that asks for a connection: the peer's address, and the options for the queue pair.
pub(crate) struct Path {
    pub(crate) peer: QpAddress,
    pub(crate) options: ConnectOptions,
}

impl Id {
    pub(crate) fn number(&self) -> Number {
        Number(self.raw.as_ptr().addr())
    }

    /// Asks librdmacm for the attributes that the connection's queue pair needs in the state `state`. All
    /// other attributes are zero.
    fn attributes(&self, state: u32) -> Result<IbvQpAttr> {
        let mut attr = IbvQpAttr { state, ..IbvQpAttr::default() };
        let mut mask = 0;
        // SAFETY: the object lives, and both other arguments are written during the call.
        let value = unsafe { (self.api.rdma_init_qp_attr)(self.raw.as_ptr(), &mut attr, &mut mask) };
        check("rdma_init_qp_attr", value)?;
        Ok(attr)
    }

    /// Asks librdmacm for the path to the peer.
    pub(crate) fn path(&self) -> Result<Path> {
        let (receive, send) = (self.attributes(READY_TO_RECEIVE)?, self.attributes(READY_TO_SEND)?);
        // The peer states the maximum number of reads in flight. The library takes the base-2 logarithm of
        // this number.
        let log = |reads: u8| LogMaxRdAtomic::new(reads.max(1).ilog2() as u8);
        let [high, low] = receive.gid.map(u64::to_ne_bytes);
        let mut gid = [0; 16];
        gid.iter_mut().zip(high.into_iter().chain(low)).for_each(|(place, byte)| *place = byte);
        let mtu = PathMtu::from_code(receive.path_mtu as u8).ok_or("the path has no MTU")?;
        Ok(Path {
            peer: QpAddress {
                qpn: Qpn::new(receive.dest_qp)?,
                first_psn: Psn::new(receive.rq_psn)?,
                gid,
                lid: receive.dlid,
                mtu,
            },
            options: ConnectOptions {
                source_gid_index: receive.sgid_index,
                first_psn: Psn::new(send.sq_psn)?,
                mtu: Some(mtu),
                ack_timeout: AckTimeout::new(send.timeout)?,
                retries: Retries::new(send.retry_count)?,
                rnr_retries: Retries::new(send.rnr_retry)?,
                rnr_timer: RnrTimer::new(receive.min_rnr_timer)?,
                log_max_rd_atomic: Some(log(send.max_rd_atomic)?),
                log_max_dest_rd_atomic: Some(log(receive.max_dest_rd_atomic)?),
                service_level: Priority::new(receive.sl)?,
                traffic_class: receive.traffic_class,
                hop_limit: receive.hop_limit,
                flow_label: FlowLabel::new(receive.flow_label)?,
                ..ConnectOptions::default()
            },
        })
    }

    /// Accepts the connection for this queue pair, which is connected already, and hands private data to the
    /// peer.
    pub(crate) fn accept(&self, qpn: Qpn, path: &Path, private_data: &[u8]) -> Result {
        let reads = |log: Option<LogMaxRdAtomic>| log.map_or(1, |log| 1 << log.get());
        let mut parameters = Parameters {
            private_data: private_data.as_ptr().cast(),
            private_data_length: u8::try_from(private_data.len())?,
            responder_resources: reads(path.options.log_max_dest_rd_atomic),
            initiator_depth: reads(path.options.log_max_rd_atomic),
            flow_control: 1,
            retry_count: RETRIES,
            rnr_retry_count: RETRIES,
            srq: 0,
            qp_num: qpn.get(),
        };
        // SAFETY: the object lives; the parameters and the private data are read during the call.
        check("rdma_accept", unsafe { (self.api.rdma_accept)(self.raw.as_ptr(), &mut parameters) })
    }

    /// Rejects the connection, with private data for the peer.
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result {
        let length = u8::try_from(private_data.len())?;
        // SAFETY: the object lives; the private data are read during the call.
        let value =
            unsafe { (self.api.rdma_reject)(self.raw.as_ptr(), private_data.as_ptr().cast(), length) };
        check("rdma_reject", value)
    }

    /// Ends the connection. An event reports the end. A connection that has ended already stays as it is.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the object lives.
        let _ = unsafe { (self.api.rdma_disconnect)(self.raw.as_ptr()) };
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: nobody else has the object. `Listener::next` acknowledges each event at once, hence the
        // call does not wait for an event that this thread would acknowledge later.
        let _ = unsafe { (self.api.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

/// An event of the connection manager.
pub(crate) enum Event {
    /// A peer asks for a connection, with private data.
    Request(Id, Vec<u8>),
    /// The connection has ended.
    End(Number),
    /// An event that needs no action.
    Other,
}

/// Waits for peers at an address.
pub(crate) struct Listener {
    channel: NonNull<RawChannel>,
    id: Id,
}

impl Listener {
    pub(crate) fn new(address: SocketAddr) -> Result<Self> {
        let api = Arc::new(Api::load()?);
        // SAFETY: the function has no arguments.
        let channel = NonNull::new(unsafe { (api.rdma_create_event_channel)() });
        let channel =
            channel.ok_or_else(|| format!("rdma_create_event_channel: {}", io::Error::last_os_error()))?;
        let mut raw = ptr::null_mut();
        // SAFETY: the channel lives until the process ends; `raw` is written during the call.
        let value = unsafe { (api.rdma_create_id)(channel.as_ptr(), &mut raw, ptr::null_mut(), RELIABLE) };
        check("rdma_create_id", value)?;
        let id = Id { api, raw: NonNull::new(raw).ok_or("rdma_create_id returns nothing")? };
        // SAFETY: the object lives; librdmacm reads the address during the call.
        let value = unsafe {
            match address {
                SocketAddr::V4(address) => {
                    let mut raw: sockaddr_in = core::mem::zeroed();
                    raw.sin_family = libc::AF_INET as _;
                    raw.sin_port = address.port().to_be();
                    raw.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                    (id.api.rdma_bind_addr)(id.raw.as_ptr(), ptr::from_ref(&raw).cast())
                }
                SocketAddr::V6(address) => {
                    let mut raw: sockaddr_in6 = core::mem::zeroed();
                    raw.sin6_family = libc::AF_INET6 as _;
                    raw.sin6_port = address.port().to_be();
                    raw.sin6_addr.s6_addr = address.ip().octets();
                    raw.sin6_scope_id = address.scope_id();
                    (id.api.rdma_bind_addr)(id.raw.as_ptr(), ptr::from_ref(&raw).cast())
                }
            }
        };
        check("rdma_bind_addr", value)?;
        // SAFETY: the object lives.
        check("rdma_listen", unsafe { (id.api.rdma_listen)(id.raw.as_ptr(), 8) })?;
        Ok(Self { channel, id })
    }

    pub(crate) fn next(&self) -> Result<Event> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel lives; `raw` is written during the call.
        check("rdma_get_cm_event", unsafe {
            (self.id.api.rdma_get_cm_event)(self.channel.as_ptr(), &mut raw)
        })?;
        // SAFETY: the function has returned an event, which lives until it is acknowledged.
        let event = unsafe { raw.as_ref() }.ok_or("rdma_get_cm_event returns nothing")?;
        let id = NonNull::new(event.id).ok_or("an event of nothing")?;
        let news = if event.kind == CONNECT_REQUEST {
            let Parameters { private_data, private_data_length: length, .. } = event.connection;
            let private_data = match NonNull::new(private_data.cast_mut()) {
                None => Vec::new(),
                Some(bytes) => {
                    // SAFETY: librdmacm tells address and length of the private data, which belong to the
                    // event.
                    unsafe { NonNull::slice_from_raw_parts(bytes.cast::<u8>(), length.into()).as_ref() }
                        .to_vec()
                }
            };
            Event::Request(Id { api: self.id.api.clone(), raw: id }, private_data)
        } else if ENDS.contains(&event.kind) {
            Event::End(Number(id.as_ptr().addr()))
        } else {
            Event::Other
        };
        // SAFETY: the event is not used from here on.
        check("rdma_ack_cm_event", unsafe { (self.id.api.rdma_ack_cm_event)(raw) })?;
        Ok(news)
    }
}
