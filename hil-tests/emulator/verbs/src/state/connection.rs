//! Connection management: the kernel's rdma_cm over the fabric (kernel `drivers/infiniband/core/cma.c`).
//!
//! Unless a function says more, its errors are those with which the kernel refuses the call.

use super::State;
use crate::fabric::News;
use crate::fabric::connection::{Content, Notice, Parameters};
use crate::ground::errno::Errno;
use crate::ground::port::{Gid, Version, gid};
use crate::state::identifier::{ACK_TIMEOUT, Channel, Event, EventKind, Id, Shown, Step};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How long a requester waits for the answer to a request, and an accepting side for the answer to its reply.
/// The kernel repeats requests and replies for about this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a request waits for a listener before it is rejected. On a real network, a request takes some
/// time to arrive. perftest's server relies on such a delay, because it listens anew for each connection.
const SEARCH: Duration = Duration::from_millis(500);
/// The pause between two looks for a listener.
const LOOK: Duration = Duration::from_millis(2);

/// How long an `rdma_cm_id` stays in its last state, TimeWait. The kernel takes 2^10 ms for the
/// acknowledgement timeout of 18 (`cm_convert_to_ms`).
const TIME_WAIT: Duration = Duration::from_millis(1 << 10);

/// Reasons of a rejection (InfiniBand 12.6.7.2): the requester is gone (kernel `IB_CM_REJ_TIMEOUT`), no
/// listener has the address, or the program rejects the request.
const TIMEOUT: u32 = 4;
const NOBODY_LISTENS: u32 = 8;
pub(crate) const CONSUMER: u32 = 28;

/// The largest number of bytes of private data that an event shows, by the kind of message. In requests, the
/// header of IP addressing takes 36 bytes of the room (kernel `CM_*_PRIVATE_DATA_SIZE`, `struct cma_hdr`).
pub(crate) const REQUEST_DATA: usize = 92 - 36;
const REPLY_DATA: usize = 196;
pub(crate) const DATAGRAM_REQUEST_DATA: usize = 216 - 36;
const DATAGRAM_REPLY_DATA: usize = 136;
const REJECT_DATA: usize = 148;

/// The Q_Key of datagram services (`RDMA_UDP_QKEY`).
pub(crate) const QKEY: u32 = 0x0123_4567;

/// The first and the last port number that is chosen for a program that asks for any port
/// (`ip_local_port_range`).
const PORTS: (u16, u16) = (32768, 60999);

/// The most requests that wait until a listener's program takes them (kernel `max_backlog`).
const BACKLOG: u32 = 1024;

impl State {
    /// Records that a program has opened an rdma_cm file (`/dev/infiniband/rdma_cm`). `signal` is the eventfd
    /// that counts the file's events.
    pub(crate) fn open_connections(&mut self, file: u32, signal: File) {
        self.book.files.insert(file, Channel { events: VecDeque::new(), signal });
    }

    /// Closes an rdma_cm file, with its `rdma_cm_id`s.
    pub(crate) fn close_connections(&mut self, file: u32) {
        let ids = self.book.ids.iter().filter(|(_, id)| id.file == file).map(|(number, _)| *number);
        for number in ids.collect::<Vec<_>>() {
            let _ = self.destroy_id(file, number);
        }
        self.book.files.remove(&file);
    }

    /// Makes an `rdma_cm_id` of a file. `name` is the program's name for the `rdma_cm_id`, `space` its port
    /// space.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] if the process has too many `rdma_cm_id`s.
    pub(crate) fn create_id(&mut self, file: u32, name: u64, space: u16) -> Result<u32, Errno> {
        self.book.insert(Id { file, name, space, ack_timeout: ACK_TIMEOUT, ..Id::default() })
    }

    /// Destroys an `rdma_cm_id` of a file. Returns the number of its events that the program has taken.
    ///
    /// # Errors
    /// The errno of the kernel, if the file has no `rdma_cm_id` with this number.
    pub(crate) fn destroy_id(&mut self, file: u32, number: u32) -> Result<u32, Errno> {
        self.book.of_file(file, number)?;
        let Some(id) = self.book.ids.remove(&number) else { return Err(Errno::NOENT) };
        self.end(number, &id);
        let mut orphans = Vec::new();
        if let Some(channel) = self.book.files.get_mut(&file) {
            channel.events.retain(|event| {
                if event.of == number && event.told != number {
                    orphans.push(event.told);
                }
                event.of != number && event.told != number
            });
        }
        // The program never learns of connections whose requests it has not taken, so these connections end
        // too.
        for orphan in orphans {
            if let Some(id) = self.book.ids.remove(&orphan) {
                self.end(orphan, &id);
            }
        }
        if id.step == Step::Listening {
            self.publish_services();
        }
        Ok(id.taken)
    }

    /// Tells the peer of an `rdma_cm_id` that the `rdma_cm_id` was destroyed.
    fn end(&mut self, number: u32, id: &Id) {
        let content = match id.step {
            Step::Asking(_) | Step::Asked => Content::Reject(CONSUMER, Vec::new()),
            Step::Answered(_) | Step::Established if !id.is_for_datagrams() => Content::Disconnect,
            _ => return,
        };
        self.tell(number, id.peer, content);
    }

    fn tell(&mut self, number: u32, peer: Option<(u32, u32)>, content: Content) -> bool {
        let Some((slot, to)) = peer else { return false };
        let notice = Notice { from: (self.fabric.slot(), number), to, content };
        if slot == self.fabric.slot() {
            self.own_notices.push_back(notice);
            return true;
        }
        self.touch();
        self.fabric.tell(slot, &notice)
    }

    /// Queues an event of the `rdma_cm_id` `of` for the program.
    fn raise(&mut self, of: u32, kind: EventKind, status: i32, shown: Shown) {
        let file = self.book.ids.get(&of).map(|id| id.file);
        self.raise_at(file, Event { of, told: of, kind, status, shown });
    }

    fn raise_at(&mut self, file: Option<u32>, event: Event) {
        if let Some(channel) = file.and_then(|file| self.book.files.get_mut(&file)) {
            channel.events.push_back(event);
            let _ = channel.signal.write(&1_u64.to_ne_bytes());
        }
    }

    /// Takes the next event of a file. Returns the program's name for the event's `rdma_cm_id`, and the
    /// event.
    pub(crate) fn take_event(&mut self, file: u32) -> Option<(u64, Event)> {
        loop {
            let event = self.book.files.get_mut(&file)?.events.pop_front()?;
            // The kernel drops events of a connection that the program has not accepted yet.
            if let Some(id) = self.book.ids.get_mut(&event.of).filter(|id| id.name != 0) {
                id.taken = id.taken.wrapping_add(1);
                return Some((id.name, event));
            }
        }
    }

    /// Returns the index of a GID's entry for RoCE v2 in the table of the port that has the GID. A GID
    /// without an entry gets the index of the first port's default GID.
    pub(crate) fn gid_index(&self, wanted: Gid) -> u8 {
        let port = self.holder(wanted).and_then(|device| self.ports.get(device)).unwrap_or(&self.port);
        let is_it = |gid| {
            let entries = port.entries.iter();
            entries.into_iter().position(|entry| entry.gid == gid && entry.version == Version::V2)
        };
        is_it(wanted).or_else(|| is_it(port.default_gid())).unwrap_or(0) as u8
    }

    /// Returns the device whose port has a GID.
    fn holder(&self, gid: Gid) -> Option<usize> {
        self.ports.iter().position(|port| port.mac_of(gid).is_some())
    }

    /// Returns the device of an `rdma_cm_id`: the device whose port has the address of this side. Returns
    /// `None` for an `rdma_cm_id` without a device.
    pub(crate) fn device_of(&self, id: &Id) -> Option<usize> {
        let address = id.source.filter(|_| id.has_device)?.ip();
        Some(self.holder(self.own_gid(address)).unwrap_or(0))
    }

    /// Returns the MTU code of a device's port (`enum ibv_mtu`). Without a device, the code is that of the
    /// first device's port.
    pub(crate) fn mtu_of(&self, device: Option<usize>) -> u8 {
        device.and_then(|device| self.ports.get(device)).unwrap_or(&self.port).mtu
    }

    /// Returns the GID for an address of this machine. An address without an entry in a GID table, such as a
    /// loopback address, has the default GID of the first port.
    pub(crate) fn own_gid(&self, address: IpAddr) -> Gid {
        let wanted = gid(address);
        if self.holder(wanted).is_some() { wanted } else { self.port.default_gid() }
    }

    fn is_own_address(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.holder(gid(address)).is_some()
    }

    /// Binds an `rdma_cm_id` to an address of this machine. For port 0, a free port is chosen.
    pub(crate) fn bind_id(&mut self, file: u32, number: u32, address: SocketAddr) -> Result<(), Errno> {
        let id = self.book.of_file(file, number)?;
        let (space, may_share) = (id.space, id.may_share_port);
        if id.step != Step::Idle {
            return Err(Errno::INVAL);
        }
        if !address.ip().is_unspecified() && !self.is_own_address(address.ip()) {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        let port = self.port_for(space, address, may_share)?;
        let id = self.book.of_file(file, number)?;
        id.source = Some(SocketAddr::new(address.ip(), port));
        id.owns_port = true;
        id.has_device = !address.ip().is_unspecified();
        id.step = Step::Bound;
        Ok(())
    }

    /// Returns the port of `asked` if it is free. For port 0, returns a free port.
    fn port_for(&mut self, space: u16, asked: SocketAddr, may_share: bool) -> Result<u16, Errno> {
        let others: Vec<Service> = self.services_of_others().map(|(_, service)| service).collect();
        let own = self.book.ids.values().filter(|id| id.space == space && id.owns_port);
        let own: Vec<(SocketAddr, bool)> =
            own.filter_map(|id| Some((id.source?, id.may_share_port))).collect();
        let view = self.view_name();
        // If another `rdma_cm_id` has the port, the errno is EADDRNOTAVAIL if one of the two is bound to all
        // addresses of this machine, and EADDRINUSE if both have the same address (kernel `cma_check_port`).
        let conflict = |port, other: SocketAddr| match other.ip() {
            _ if other.port() != port => None,
            ip if ip.is_unspecified() || asked.ip().is_unspecified() => Some(libc::EADDRNOTAVAIL),
            ip => (ip == asked.ip()).then_some(libc::EADDRINUSE),
        };
        let refusal = |port| {
            let mut own = own.iter().filter(|(_, shares)| !(may_share && *shares));
            let of_others = || {
                let mut others = others.iter().filter(|other| other.space == space && other.view == view);
                others.find_map(|other| conflict(port, other.address))
            };
            own.find_map(|(other, _)| conflict(port, *other)).or_else(of_others)
        };
        if asked.port() != 0 {
            return refusal(asked.port()).map_or(Ok(asked.port()), |errno| Err(Errno(errno)));
        }
        // Each process begins its search at a different port, so that processes seldom choose the same port.
        let (first, last) = PORTS;
        let count = u32::from(last - first) + 1;
        let start = self.fabric.slot() * 110 + u32::from(self.book.next_port);
        let found = (0..count)
            .map(|step| first + ((start + step) % count) as u16)
            .find(|port| refusal(*port).is_none());
        self.book.next_port = self.book.next_port.wrapping_add(1);
        found.ok_or(Errno(libc::EADDRNOTAVAIL))
    }

    /// Resolves the address of a peer, and chooses this side's address. An event reports the end of the
    /// search.
    pub(crate) fn resolve_address(
        &mut self,
        file: u32,
        number: u32,
        source: Option<SocketAddr>,
        mut destination: SocketAddr,
        limit: Duration,
    ) -> Result<(), Errno> {
        let step = self.book.of_file(file, number)?.step;
        if step == Step::Idle {
            let any: IpAddr = if destination.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
            self.bind_id(file, number, source.unwrap_or(SocketAddr::new(any, 0)))?;
        } else if step != Step::Bound {
            return Err(Errno::INVAL);
        }
        // An unspecified destination means this machine.
        if destination.ip().is_unspecified() {
            let is_ipv4 = destination.is_ipv4();
            destination.set_ip(if is_ipv4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        let id = self.book.of_file(file, number)?;
        if id.source.is_some_and(|source| source.is_ipv4() != destination.is_ipv4()) {
            id.step = Step::Bound;
            return Err(Errno::INVAL);
        }
        id.destination = Some(destination);
        id.step = Step::Resolving(Instant::now().checked_add(limit).unwrap_or_else(Instant::now));
        self.touch();
        self.try_to_resolve(number);
        Ok(())
    }

    fn try_to_resolve(&mut self, number: u32) {
        let Some(id) = self.book.ids.get(&number) else { return };
        let (Step::Resolving(until), Some(source), Some(destination)) = (id.step, id.source, id.destination)
        else {
            return;
        };
        let ip = destination.ip();
        let is_own = self.is_own_address(ip);
        let is_known = is_own || self.resolve_now(gid(ip)).is_some();
        let own = match source.ip() {
            own if !own.is_unspecified() => Some(own),
            _ if is_own => Some(ip),
            _ => self.routed_address(ip).or_else(|| self.first_address(ip)),
        };
        if let (true, Some(own)) = (is_known, own) {
            if let Some(id) = self.book.ids.get_mut(&number) {
                id.source = Some(SocketAddr::new(own, source.port()));
                (id.has_device, id.step) = (true, Step::Resolved);
            }
            self.raise(number, EventKind::AddressResolved, 0, Shown::Nothing);
        } else if Instant::now() >= until {
            if let Some(id) = self.book.ids.get_mut(&number) {
                id.step = Step::Bound;
            }
            self.raise(number, EventKind::AddressError, -libc::ETIMEDOUT, Shown::Nothing);
        }
    }

    /// Returns this machine's own address on the route to `other`, if an RDMA port has this address.
    fn routed_address(&self, other: IpAddr) -> Option<IpAddr> {
        let any: IpAddr = if other.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        // A datagram socket finds the route when it connects, and sends nothing.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((other, 1)).ok()?;
        let own = socket.local_addr().ok()?.ip();
        self.holder(gid(own)).map(|_| own)
    }

    /// Returns the first address of a port that has the same kind as `other`: an IPv4 address, or an IPv6
    /// address with the same first 16 bits.
    fn first_address(&self, other: IpAddr) -> Option<IpAddr> {
        let wanted = gid(other);
        let is_alike = |own: &Gid| match other {
            IpAddr::V4(_) => own.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]),
            IpAddr::V6(_) => own.first() == wanted.first() && own.get(1) == wanted.get(1),
        };
        let entries = self.ports.iter().flat_map(|port| &port.entries);
        let found = entries.map(|entry| entry.gid).find(is_alike)?;
        let address = Ipv6Addr::from(found);
        Some(if other.is_ipv4() { IpAddr::V4(address.to_ipv4_mapped()?) } else { IpAddr::V6(address) })
    }

    /// Ends the search for a route to the resolved address. The search always succeeds, and an event reports
    /// its end.
    pub(crate) fn resolve_route(&mut self, file: u32, number: u32) -> Result<(), Errno> {
        let id = self.book.of_file(file, number)?;
        if id.step != Step::Resolved {
            return Err(Errno::INVAL);
        }
        id.step = Step::Routed;
        self.raise(number, EventKind::RouteResolved, 0, Shown::Nothing);
        Ok(())
    }

    /// Makes an `rdma_cm_id` listen for requests to its bound address.
    pub(crate) fn listen(&mut self, file: u32, number: u32, backlog: u32) -> Result<(), Errno> {
        let id = self.book.of_file(file, number)?;
        if id.step == Step::Idle {
            self.bind_id(file, number, SocketAddr::new(IpAddr::from([0; 4]), 0))?;
        }
        let id = self.book.of_file(file, number)?;
        if id.step != Step::Bound {
            return Err(Errno::INVAL);
        }
        id.backlog = if (1..=BACKLOG).contains(&backlog) { backlog } else { BACKLOG };
        id.step = Step::Listening;
        self.publish_services();
        Ok(())
    }

    fn view_name(&self) -> String {
        self.news.as_ref().map_or_else(String::new, |news| news.view().network())
    }

    fn publish_services(&self) {
        let view = self.view_name();
        let listeners = self.book.ids.iter().filter(|(_, id)| id.step == Step::Listening);
        let lines: String = listeners
            .filter_map(|(number, id)| Some(format!("{number} {} {} {view}\n", id.space, id.source?)))
            .collect();
        self.fabric.publish_services(&lines);
    }

    fn services_of_others(&self) -> impl Iterator<Item = (u32, Service)> {
        self.fabric.services_of_others().flat_map(|(slot, lines)| {
            let services: Vec<_> = lines.lines().filter_map(Service::parse).collect();
            services.into_iter().map(move |service| (slot, service))
        })
    }

    /// Returns the listener at an address, in this process or in another process: the slot of its process
    /// (the number of the process in the fabric), and the number of its `rdma_cm_id`.
    fn listener(&mut self, space: u16, to: SocketAddr) -> Option<(u32, u32)> {
        let takes = |at: SocketAddr| {
            let is_all = at.ip().is_unspecified() && (at.is_ipv6() || to.is_ipv4());
            at.port() == to.port() && (is_all || at.ip() == to.ip())
        };
        if self.is_own_address(to.ip()) {
            let own = self.book.ids.iter().find(|(_, id)| {
                id.step == Step::Listening && id.space == space && id.source.is_some_and(takes)
            });
            if let Some((number, _)) = own {
                return Some((self.fabric.slot(), *number));
            }
        }
        let (view, is_own) = (self.view_name(), self.is_own_address(to.ip()));
        let found: Vec<(u32, Service)> = self
            .services_of_others()
            .filter(|(_, service)| service.space == space && takes(service.address))
            // An address of this machine leads only to listeners with the same view (network namespace and
            // interfaces), and any other address only to listeners with another view.
            .filter(|(_, service)| (service.view == view) == is_own)
            .collect();
        let wanted = gid(to.ip());
        let is_there =
            |slot: u32| (is_own || self.fabric.has_address(slot, wanted)) && self.fabric.is_alive(slot);
        found.into_iter().find(|(slot, _)| is_there(*slot)).map(|(slot, service)| (slot, service.number))
    }

    /// Sends a request for a connection, or for the queue pair of a datagram service.
    pub(crate) fn connect_id(&mut self, file: u32, number: u32, asked: Parameters) -> Result<(), Errno> {
        let id = self.book.of_file(file, number)?.clone();
        let (Step::Routed, Some(source)) = (id.step, id.source) else {
            return Err(Errno::INVAL);
        };
        let datagrams = id.is_for_datagrams();
        let room = if datagrams { DATAGRAM_REQUEST_DATA } else { REQUEST_DATA };
        if asked.data.len() > room {
            return Err(Errno::INVAL);
        }
        let own = self.completed(number, source.ip(), asked);
        let id = self.book.of_file(file, number)?;
        id.own = own;
        let now = Instant::now();
        id.step = Step::Searching { until: now + SEARCH, next: now };
        self.search(number);
        Ok(())
    }

    /// Looks for the listener at the destination of an `rdma_cm_id`, and sends the request to it. Without a
    /// listener, the function tries again later. If the time for the search is over, the request counts as
    /// rejected.
    fn search(&mut self, number: u32) {
        let Some(id) = self.book.ids.get(&number).cloned() else { return };
        let now = Instant::now();
        let (Some(source), Some(destination)) = (id.source, id.destination) else { return };
        let Step::Searching { until, next } = id.step else { return };
        if now < next {
            return;
        }
        let listener = self.listener(id.space, destination);
        let content =
            Content::Request { datagrams: id.is_for_datagrams(), source, destination, parameters: id.own };
        let is_told = self.tell(number, listener, content);
        match self.book.ids.get_mut(&number) {
            Some(id) if is_told => id.step = Step::Asking(until + (PATIENCE - SEARCH)),
            Some(id) if now < until => id.step = Step::Searching { until, next: now + LOOK },
            _ => self.refuse(number, NOBODY_LISTENS, &[]),
        }
    }

    /// Returns the program's parameters with this side's first packet number and GID added.
    fn completed(&self, number: u32, own: IpAddr, asked: Parameters) -> Parameters {
        let first_psn = number.wrapping_mul(0x9e37_79b9) ^ self.fabric.slot();
        Parameters { first_psn: first_psn & 0x00ff_ffff, gid: self.own_gid(own), ..asked }
    }

    /// Ends an `rdma_cm_id`'s request because the peer has rejected it, and queues the event for the program.
    fn refuse(&mut self, number: u32, reason: u32, data: &[u8]) {
        let Some(id) = self.book.ids.get_mut(&number) else { return };
        (id.step, id.peer) = (Step::Over, None);
        let shown = Parameters { data: padded(data, REJECT_DATA), ..Parameters::default() };
        let (kind, shown) = match id.is_for_datagrams() {
            // For a datagram service, the event is "unreachable" (kernel `cma_sidr_rep_handler`).
            true => (EventKind::Unreachable, Shown::Datagrams(shown, 0)),
            false => (EventKind::Rejected, Shown::Connection(shown)),
        };
        self.raise(number, kind, reason as i32, shown);
    }

    /// Accepts a peer's request if `asked` has parameters. Without parameters, completes this side's own
    /// request, which the peer has accepted.
    pub(crate) fn accept_id(
        &mut self,
        file: u32,
        number: u32,
        name: u64,
        asked: Option<Parameters>,
    ) -> Result<(), Errno> {
        let id = self.book.of_file(file, number)?.clone();
        match (asked, id.step) {
            (Some(asked), Step::Asked) => {
                let (datagrams, ip) = (id.is_for_datagrams(), id.source.ok_or(Errno::INVAL)?.ip());
                let room = if datagrams { DATAGRAM_REPLY_DATA } else { REPLY_DATA };
                if asked.data.len() > room {
                    return Err(Errno::INVAL);
                }
                let mut own = self.completed(number, ip, asked);
                if datagrams && own.qkey == 0 {
                    own.qkey = QKEY;
                }
                let id = self.book.of_file(file, number)?;
                (id.name, id.own) = (name, own.clone());
                let until = Some(Instant::now() + PATIENCE);
                id.step = if datagrams { Step::Over } else { Step::Answered(until) };
                let peer = id.peer;
                if !self.tell(number, peer, Content::Reply(own)) {
                    self.lose(number);
                }
                Ok(())
            }
            (None, Step::Answered(_)) => {
                self.book.of_file(file, number)?.step = Step::Established;
                self.tell(number, id.peer, Content::Ready);
                Ok(())
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Rejects the request of a peer.
    pub(crate) fn reject_id(
        &mut self,
        file: u32,
        number: u32,
        reason: u32,
        data: Vec<u8>,
    ) -> Result<(), Errno> {
        let id = self.book.of_file(file, number)?;
        if !matches!(id.step, Step::Asked | Step::Answered(_)) || data.len() > REJECT_DATA {
            return Err(Errno::INVAL);
        }
        id.step = Step::Over;
        let peer = id.peer.take();
        self.tell(number, peer, Content::Reject(reason, data));
        Ok(())
    }

    /// Ends the connection of an `rdma_cm_id`.
    pub(crate) fn disconnect_id(&mut self, file: u32, number: u32) -> Result<(), Errno> {
        let id = self.book.of_file(file, number)?;
        let (step, peer) = (id.step, id.peer);
        match step {
            Step::Answered(_) | Step::Established => {
                id.step = Step::Over;
                if !self.tell(number, peer, Content::Disconnect) {
                    self.leave(number);
                }
                Ok(())
            }
            // The connection has already ended, or this side has already disconnected.
            Step::Over | Step::Leaving(_) => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Handles an event of a queue pair that a program reports by `rdma_notify` (kernel `ib_cm_notify`). The
    /// event that a message has come (COMM_EST) establishes a connection without the peer's message RTU
    /// ("ready to use"). A change of the path (PATH_MIG) has no effect.
    ///
    /// # Errors
    /// The errno with which the kernel refuses the call: [`Errno::INVAL`] for another event or in another
    /// state, `EISCONN` if the connection is established.
    pub(crate) fn notify_id(&mut self, file: u32, number: u32, event: u32) -> Result<(), Errno> {
        const COMM_EST: u32 = 4;
        const PATH_MIG: u32 = 6;
        let id = self.book.of_file(file, number)?;
        match (id.step, event) {
            (Step::Answered(_), COMM_EST) if !id.is_for_datagrams() => {
                id.step = Step::Established;
                self.raise(number, EventKind::Established, 0, Shown::Nothing);
                Ok(())
            }
            (Step::Established, COMM_EST) => Err(Errno(libc::EISCONN)),
            (Step::Established, PATH_MIG) => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Moves an `rdma_cm_id` to another file, with its events. Returns the number of its events that the
    /// program has taken so far.
    pub(crate) fn migrate_id(&mut self, from: u32, to: u32, number: u32) -> Result<u32, Errno> {
        if !self.book.files.contains_key(&to) {
            return Err(Errno::INVAL);
        }
        let id = self.book.of_file(from, number)?;
        id.file = to;
        let taken = id.taken;
        let moved: Vec<Event> = self.book.files.get_mut(&from).map_or_else(Vec::new, |channel| {
            let (moved, kept) = channel.events.drain(..).partition(|event| event.of == number);
            channel.events = Vec::into(kept);
            moved
        });
        for event in moved {
            if event.told != number
                && let Some(child) = self.book.ids.get_mut(&event.told)
            {
                child.file = to;
            }
            self.raise_at(Some(to), event);
        }
        Ok(taken)
    }

    /// Handles a message of connection management, or the end of a peer's process.
    pub(crate) fn manage(&mut self, news: News) {
        match news {
            News::Notice(notice) => self.take_notice(notice),
            // Only the virtual PCI function sends and takes Ethernet frames. Here, the port's network
            // interface belongs to the kernel, which carries the interface's frames itself.
            News::Frame(_) => {}
            News::Gone(slot) => {
                let of_it = self.book.ids.iter().filter(|(_, id)| id.peer.is_some_and(|peer| peer.0 == slot));
                for number in of_it.map(|(number, _)| *number).collect::<Vec<_>>() {
                    self.lose(number);
                }
            }
        }
    }

    /// Ends the connection or the request of an `rdma_cm_id` whose peer is gone, or has not answered in time.
    fn lose(&mut self, number: u32) {
        let Some(id) = self.book.ids.get_mut(&number) else { return };
        let step = std::mem::replace(&mut id.step, Step::Over);
        match step {
            // The kernel raises the same event for a request or a reply that nobody answers
            // (`cma_ib_handler`, `IB_CM_REQ_ERROR` and `IB_CM_REP_ERROR`).
            Step::Asking(_) | Step::Answered(Some(_)) => {
                self.raise(number, EventKind::Unreachable, -libc::ETIMEDOUT, Shown::Nothing);
            }
            // A connection that this side has ended still waits for the peer's confirmation.
            Step::Answered(None) | Step::Established | Step::Over if !id.is_for_datagrams() => {
                self.leave(number);
            }
            other => {
                if let Some(id) = self.book.ids.get_mut(&number) {
                    id.step = other;
                }
            }
        }
    }

    /// Reports the end of a connection. The `rdma_cm_id` stays in its last state for a while.
    fn leave(&mut self, number: u32) {
        let Some(id) = self.book.ids.get_mut(&number) else { return };
        (id.step, id.peer) = (Step::Leaving(Instant::now() + TIME_WAIT), None);
        self.raise(number, EventKind::Disconnected, 0, Shown::Nothing);
    }

    /// Handles messages from this process to itself, continues searches for addresses and listeners, and ends
    /// waits whose time is over. Returns whether there was a message.
    pub(crate) fn manage_connections(&mut self) -> bool {
        let mut any = false;
        while let Some(notice) = self.own_notices.pop_front() {
            any = true;
            self.take_notice(notice);
        }
        if self.book.waits() {
            let steps: Vec<_> = self.book.ids.iter().map(|(number, id)| (*number, id.step)).collect();
            for (number, step) in steps {
                match step {
                    Step::Resolving(_) => self.try_to_resolve(number),
                    Step::Searching { .. } => self.search(number),
                    Step::Asking(until) | Step::Answered(Some(until)) if Instant::now() >= until => {
                        self.lose(number);
                    }
                    Step::Leaving(until) if Instant::now() >= until => {
                        if let Some(id) = self.book.ids.get_mut(&number) {
                            id.step = Step::Over;
                        }
                        self.raise(number, EventKind::TimewaitExit, 0, Shown::Nothing);
                    }
                    _ => {}
                }
            }
        }
        any
    }

    fn take_notice(&mut self, notice: Notice) {
        let Notice { from, to, content } = notice;
        if let Content::Request { datagrams, source, destination, parameters } = content {
            self.take_request(from, to, datagrams, [source, destination], parameters);
            return;
        }
        // The first answer names the peer's `rdma_cm_id`. Later messages must come from this `rdma_cm_id`.
        let is_for = |id: &&mut Id| matches!(id.step, Step::Asking(_)) || id.peer == Some(from);
        let Some(id) = self.book.ids.get_mut(&to).filter(is_for) else {
            if matches!(content, Content::Reply(_)) {
                // The requester was destroyed after it had sent the request. On Linux, its destruction
                // rejects the request at once. Here, the rejection answers the peer's reply.
                self.answer(from, to, Content::Reject(TIMEOUT, Vec::new()));
            }
            return;
        };
        let (step, datagrams, now) = (id.step, id.is_for_datagrams(), Instant::now());
        match (content, step) {
            (Content::Reply(theirs), Step::Asking(_)) => {
                id.peer = Some(from);
                id.theirs = theirs;
                id.step = if datagrams { Step::Over } else { Step::Answered(None) };
                let shown = id.theirs.clone();
                let own = id.own.gid;
                let (kind, shown) = match datagrams {
                    true => {
                        let data = padded(&shown.data, DATAGRAM_REPLY_DATA);
                        let shown = Shown::Datagrams(Parameters { data, ..shown }, self.gid_index(own));
                        (EventKind::Established, shown)
                    }
                    false => (EventKind::ConnectResponse, connection(&shown, REPLY_DATA)),
                };
                self.raise(to, kind, 0, shown);
            }
            (Content::Ready, Step::Answered(_)) => {
                id.step = Step::Established;
                self.raise(to, EventKind::Established, 0, Shown::Nothing);
            }
            // The listener has ended, or has no room for more requests. On Linux, a requester repeats a
            // request that a full listener has dropped. Here, the requester looks for a listener again.
            (Content::Reject(NOBODY_LISTENS, _), Step::Asking(until))
                if now + (PATIENCE - SEARCH) < until =>
            {
                id.step = Step::Searching { until: until - (PATIENCE - SEARCH), next: now + LOOK };
            }
            (Content::Reject(reason, data), Step::Asking(_) | Step::Asked | Step::Answered(_)) => {
                self.refuse(to, reason, &data);
            }
            (Content::Disconnect, Step::Answered(_) | Step::Established) => {
                let peer = id.peer;
                self.leave(to);
                self.tell(to, peer, Content::Disconnected);
            }
            // Both sides have disconnected at the same time, or the peer confirms the end.
            (Content::Disconnect | Content::Disconnected, Step::Over) if !datagrams => self.leave(to),
            _ => {}
        }
    }

    fn take_request(
        &mut self,
        from: (u32, u32),
        to: u32,
        datagrams: bool,
        [source, destination]: [SocketAddr; 2],
        theirs: Parameters,
    ) {
        let listener = self
            .book
            .ids
            .get(&to)
            .filter(|id| id.step == Step::Listening && id.is_for_datagrams() == datagrams);
        let Some(listener) = listener.cloned() else {
            self.answer(from, to, Content::Reject(NOBODY_LISTENS, Vec::new()));
            return;
        };
        let waiting = self
            .book
            .files
            .get(&listener.file)
            .map_or(0, |channel| channel.events.iter().filter(|event| event.of == to).count());
        if waiting >= listener.backlog as usize {
            // The listener's backlog is full. This answer makes the requester look for a listener again.
            self.answer(from, to, Content::Reject(NOBODY_LISTENS, Vec::new()));
            return;
        }
        // Datagrams to the peer need the peer's MAC address. `resolve_now` finds the address if it is already
        // published. A gateway may publish the address of another machine a moment later. In this case, the
        // program's CREATE_AH waits for the address.
        self.resolve_now(theirs.gid);
        let child = Id {
            name: 0,
            step: Step::Asked,
            source: Some(destination),
            destination: Some(source),
            has_device: true,
            owns_port: false,
            // The timeout that a program sets for a listener does not apply to the listener's connections
            // (kernel `cma_ib_new_conn_id`).
            ack_timeout: ACK_TIMEOUT,
            peer: Some(from),
            theirs: theirs.clone(),
            taken: 0,
            ..listener.clone()
        };
        let Ok(told) = self.book.insert(child) else { return };
        let shown = match datagrams {
            true => {
                let data = padded(&theirs.data, DATAGRAM_REQUEST_DATA);
                Shown::Datagrams(Parameters { data, ..theirs }, 0)
            }
            false => connection(&theirs, REQUEST_DATA),
        };
        let event = Event { of: to, told, kind: EventKind::ConnectRequest, status: 0, shown };
        self.raise_at(Some(listener.file), event);
    }

    fn answer(&mut self, to: (u32, u32), number: u32, content: Content) {
        self.tell(number, Some(to), content);
    }
}

/// Returns private data, filled up with zeros to the length that an event shows.
fn padded(data: &[u8], length: usize) -> Vec<u8> {
    let mut data = data.to_vec();
    data.resize(length, 0);
    data
}

/// Returns the parameters of a peer as an event shows them: the responder resources of one side are the
/// initiator depth of the other.
fn connection(theirs: &Parameters, room: usize) -> Shown {
    Shown::Connection(Parameters {
        data: padded(&theirs.data, room),
        responder_resources: theirs.initiator_depth,
        initiator_depth: theirs.responder_resources,
        ..theirs.clone()
    })
}

/// A listener, as a line of the list of services that its process publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    number: u32,
    space: u16,
    address: SocketAddr,
    view: String,
}

impl Service {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        Some(Self {
            number: words.next()?.parse().ok()?,
            space: words.next()?.parse().ok()?,
            address: words.next()?.parse().ok()?,
            view: words.next()?.into(),
        })
    }
}
