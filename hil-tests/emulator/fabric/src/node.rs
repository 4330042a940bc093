//! The decisions of a gateway, without input and output. The owner of a [`Node`] tells it what arrives, and
//! carries out its [`Effect`]s.

use crate::frame::{Channel, Frame, Malformed, Table};
use crate::secret::{Nonce, Secret};
use std::collections::{BTreeMap, VecDeque};

/// The most members of a fabric, with the hub.
pub const MEMBERS: u8 = 16;

/// The number of slots (places of processes) that each member has.
pub const SLOTS: u8 = 16;

/// The most bytes that may be under way in a channel: sent, and not yet taken by the receiving process.
pub const WINDOW: u32 = 1 << 20;

/// The most channels (streams of bytes to processes of other members) that the processes of one member may
/// have open at a time.
const CHANNELS: usize = 4096;

/// The number of the hub among the members.
const HUB: u8 = 0;

/// The byte in each proof of the secret that tells who makes the proof: a member or the hub. No side can send
/// back the other side's proof.
const OF_MEMBER: u8 = 1;
const OF_HUB: u8 = 2;

/// Returns the member to whose range a slot belongs.
pub const fn member_of(slot: u8) -> u8 {
    slot / SLOTS
}

/// The role of a gateway in the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The gateway to which all others connect.
    Hub,
    /// Any other gateway.
    Member,
}

/// An action that the owner of the sockets has to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// These bytes have to be written to the connection of the link with this number.
    Send(u32, Vec<u8>),
    /// A link is over, for this reason. Its connection has to be closed.
    Drop(u32, &'static str),
    /// This gateway has become a member with this number.
    Joined(u8),
    /// A process of another member lives in this slot, and publishes these lists of addresses and services.
    Show(u8, Table),
    /// The process of another member in this slot has ended.
    Hide(u8),
    /// A process of another member has opened this channel. The channel needs a connection to the process in
    /// this slot of this directory.
    Connect(Channel, u8),
    /// These bytes have to be written to the process of this directory to which the channel leads.
    Write(Channel, Vec<u8>),
    /// A channel is over. Its connection has to be closed.
    Close(Channel),
}

/// The progress of a link: the frames of the greeting that the two sides have exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The peer has not sent `Hello` yet. `own` is this side's random number.
    Silent { own: Nonce },
    /// The peer has sent `Hello` with its random number (`theirs`), and has not yet proven that it knows the
    /// secret.
    Greeted { own: Nonce, theirs: Nonce },
    /// The hub has proven that it knows the secret, and has not yet given this gateway a number.
    Proven,
    /// Both sides have proven that they know the secret. The peer is this member.
    Up { member: u8 },
}

#[derive(Clone, Debug)]
struct Link {
    stage: Stage,
    inbox: Vec<u8>,
}

/// The two ends of a channel, by their members, and the number of bytes that the opener may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    opener: u8,
    acceptor: u8,
    room: u32,
}

/// A gateway, without its sockets.
#[derive(Clone, Debug)]
pub struct Node {
    secret: Secret,
    role: Role,
    /// This gateway's number. A member has none until the hub has given it one.
    own: Option<u8>,
    links: BTreeMap<u32, Link>,
    /// The processes of this gateway's directory.
    processes: BTreeMap<u8, Table>,
    /// The processes of other members.
    shown: BTreeMap<u8, Table>,
    channels: BTreeMap<Channel, Route>,
    next: u32,
    effects: VecDeque<Effect>,
}

type Outcome = Result<(), &'static str>;

impl Node {
    /// Makes a gateway without links.
    pub fn new(role: Role, secret: Secret) -> Self {
        Self {
            secret,
            role,
            own: (role == Role::Hub).then_some(HUB),
            links: BTreeMap::new(),
            processes: BTreeMap::new(),
            shown: BTreeMap::new(),
            channels: BTreeMap::new(),
            next: 0,
            effects: VecDeque::new(),
        }
    }

    /// Removes and returns the oldest action that the owner of the sockets has not taken yet.
    pub fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns whether the peer of a link has proven that it knows the secret.
    pub fn is_up(&self, link: u32) -> bool {
        matches!(self.links.get(&link), Some(Link { stage: Stage::Up { .. }, .. }))
    }

    /// Returns the number of bytes that this gateway may still send on a channel that it has opened.
    pub fn room(&self, channel: Channel) -> usize {
        self.channels.get(&channel).map_or(0, |route| route.room as usize)
    }

    /// Returns the most bytes that may be under way over a link, in all channels that lead over it.
    pub fn window_of(&self, link: u32) -> usize {
        let over = self.channels.values().filter(|route| self.link_to(route.acceptor) == Some(link));
        over.count().saturating_mul(WINDOW as usize)
    }

    /// Adds a link whose connection has just been made. `nonce` is a fresh random number.
    pub fn connect(&mut self, link: u32, nonce: Nonce) {
        self.links.insert(link, Link { stage: Stage::Silent { own: nonce }, inbox: Vec::new() });
        if self.role == Role::Member {
            self.send(link, &Frame::Hello(nonce));
        }
    }

    /// Notes that the connection of a link is over.
    pub fn disconnect(&mut self, link: u32) {
        let Some(Link { stage, .. }) = self.links.remove(&link) else { return };
        let Stage::Up { member } = stage else { return };
        // A member reaches all other members through the hub. If the hub is gone, they are gone too.
        let speaks_for = |other: u8| self.speaks_for(member, other);
        let hidden: Vec<u8> =
            self.shown.keys().copied().filter(|slot| speaks_for(member_of(*slot))).collect();
        let over = |route: &Route| speaks_for(route.opener) || speaks_for(route.acceptor);
        let closed: Vec<Channel> =
            self.channels.iter().filter(|(_, route)| over(route)).map(|(channel, _)| *channel).collect();
        for slot in hidden {
            self.hide(slot);
        }
        for channel in closed {
            self.close_except(channel, member);
        }
    }

    /// Takes bytes that have arrived over a link. A link that sends malformed or forbidden frames is dropped,
    /// with all processes and channels of its peer.
    pub fn receive(&mut self, link: u32, bytes: &[u8]) {
        let Some(Link { inbox, .. }) = self.links.get_mut(&link) else { return };
        inbox.extend_from_slice(bytes);
        let mut bytes = std::mem::take(inbox);
        let mut done = 0;
        let outcome = loop {
            match Frame::decode(bytes.get(done..).unwrap_or_default()) {
                Ok(None) => break Ok(()),
                Ok(Some((length, frame))) => {
                    done += length;
                    if let Err(why) = self.take(link, frame) {
                        break Err(why);
                    }
                }
                Err(Malformed) => break Err("it sends no frames"),
            }
        };
        match outcome {
            Ok(()) => {
                bytes.drain(..done);
                if let Some(link) = self.links.get_mut(&link) {
                    link.inbox = bytes;
                }
            }
            Err(why) => self.drop_link(link, why),
        }
    }

    /// Drops a link.
    pub fn drop_link(&mut self, link: u32, why: &'static str) {
        if self.links.contains_key(&link) {
            self.disconnect(link);
            self.effects.push_back(Effect::Drop(link, why));
        }
    }

    /// Notes the lists of the process in a slot of this directory, or (`None`) the end of the process. Tells
    /// the other members.
    pub fn process(&mut self, slot: u8, table: Option<Table>) {
        let before = match &table {
            Some(table) => self.processes.insert(slot, table.clone()),
            None => self.processes.remove(&slot),
        };
        if before != table {
            let frame = table.map_or(Frame::Gone(slot), |table| Frame::Process(slot, table));
            self.broadcast(&frame, None);
        }
    }

    /// Opens a channel for a process of this directory to the process of another member in a slot. Returns
    /// `None` if no process lives there.
    pub fn open(&mut self, slot: u8) -> Option<Channel> {
        let opener = self.own.filter(|_| self.shown.contains_key(&slot))?;
        let own = |channel: &Channel| channel.member == opener;
        if self.channels.keys().copied().filter(own).count() >= CHANNELS {
            return None;
        }
        let acceptor = member_of(slot);
        let link = self.link_to(acceptor)?;
        let channel = Channel { member: opener, number: self.next };
        self.next = self.next.wrapping_add(1);
        self.channels.insert(channel, Route { opener, acceptor, room: WINDOW });
        self.send(link, &Frame::Open(channel, slot));
        Some(channel)
    }

    /// Sends bytes that a process of this directory has written to a channel. The caller ensures that there
    /// are at most [`Node::room`] bytes.
    pub fn write(&mut self, channel: Channel, bytes: &[u8]) {
        let Some(route) = self.channels.get_mut(&channel) else { return };
        route.room = route.room.saturating_sub(bytes.len() as u32);
        let acceptor = route.acceptor;
        if let Some(link) = self.link_to(acceptor) {
            self.send(link, &Frame::Data(channel, bytes.to_vec()));
        }
    }

    /// Notes that a process of this directory has taken bytes of a channel.
    pub fn taken(&mut self, channel: Channel, bytes: u32) {
        let Some(route) = self.channels.get_mut(&channel) else { return };
        route.room = route.room.saturating_add(bytes).min(WINDOW);
        let opener = route.opener;
        if let Some(link) = self.link_to(opener) {
            self.send(link, &Frame::Credit(channel, bytes));
        }
    }

    /// Removes a channel whose connection in this directory is over, and tells the member at the channel's
    /// other end.
    pub fn close(&mut self, channel: Channel) {
        let Some(route) = self.channels.remove(&channel) else { return };
        for end in [route.opener, route.acceptor] {
            if Some(end) != self.own
                && let Some(link) = self.link_to(end)
            {
                self.send(link, &Frame::Close(channel));
            }
        }
    }

    fn take(&mut self, link: u32, frame: Frame) -> Outcome {
        let stage = self.links.get(&link).map(|link| link.stage).ok_or("it is gone")?;
        match (stage, self.role, frame) {
            (Stage::Silent { own }, role, Frame::Hello(theirs)) => {
                if role == Role::Hub {
                    self.send(link, &Frame::Hello(own));
                } else {
                    let proof = self.secret.proof(OF_MEMBER, &own, &theirs);
                    self.send(link, &Frame::Proof(proof));
                }
                self.set(link, Stage::Greeted { own, theirs });
                Ok(())
            }
            (Stage::Greeted { own, theirs }, Role::Hub, Frame::Proof(proof)) => {
                if !self.secret.proves(OF_MEMBER, &theirs, &own, &proof) {
                    return Err("it does not know the secret");
                }
                self.welcome(link, self.secret.proof(OF_HUB, &theirs, &own))
            }
            (Stage::Greeted { own, theirs }, Role::Member, Frame::Proof(proof)) => {
                if !self.secret.proves(OF_HUB, &own, &theirs, &proof) {
                    return Err("it does not know the secret");
                }
                self.set(link, Stage::Proven);
                Ok(())
            }
            (Stage::Proven, Role::Member, Frame::Welcome(member)) => {
                if member == HUB || member >= MEMBERS || self.own.is_some() {
                    return Err("it gives a wrong number");
                }
                self.own = Some(member);
                self.set(link, Stage::Up { member: HUB });
                self.effects.push_back(Effect::Joined(member));
                Ok(())
            }
            (Stage::Up { member }, _, frame) => self.take_from(member, frame),
            _ => Err("it does not keep to the order of the greeting"),
        }
    }

    /// Makes a peer that has proven the secret a member. Sends it the hub's `proof`, its number, and the
    /// lists of all processes.
    fn welcome(&mut self, link: u32, proof: [u8; 32]) -> Outcome {
        let is_taken =
            |member: &u8| self.links.values().any(|link| link.stage == Stage::Up { member: *member });
        let free = (1..MEMBERS).find(|member| !is_taken(member));
        let member = free.ok_or("the fabric has no room for another member")?;
        self.set(link, Stage::Up { member });
        self.send(link, &Frame::Proof(proof));
        self.send(link, &Frame::Welcome(member));
        let all: Vec<Frame> = self
            .processes
            .iter()
            .chain(&self.shown)
            .map(|(slot, table)| Frame::Process(*slot, table.clone()))
            .collect();
        all.iter().for_each(|frame| self.send(link, frame));
        Ok(())
    }

    /// Takes a frame from the peer that is member `from`. The hub also passes on frames of the other members.
    fn take_from(&mut self, from: u8, frame: Frame) -> Outcome {
        match frame {
            Frame::Process(slot, table) => {
                self.check(from, member_of(slot))?;
                self.shown.insert(slot, table.clone());
                self.effects.push_back(Effect::Show(slot, table.clone()));
                self.broadcast(&Frame::Process(slot, table), Some(from));
                Ok(())
            }
            Frame::Gone(slot) => {
                self.check(from, member_of(slot))?;
                self.hide(slot);
                Ok(())
            }
            Frame::Open(channel, slot) => self.take_open(from, channel, slot),
            Frame::Data(channel, bytes) => {
                let Some(Route { opener, acceptor, room }) = self.channels.get(&channel).copied() else {
                    return Ok(());
                };
                self.check(from, opener)?;
                let length = u32::try_from(bytes.len()).map_err(|_| "it sends too much")?;
                let room = room.checked_sub(length).ok_or("it sends more than the receiver has room for")?;
                self.channels.insert(channel, Route { opener, acceptor, room });
                if Some(acceptor) == self.own {
                    self.effects.push_back(Effect::Write(channel, bytes));
                } else if let Some(link) = self.link_to(acceptor) {
                    self.send(link, &Frame::Data(channel, bytes));
                }
                Ok(())
            }
            Frame::Credit(channel, bytes) => {
                let Some(Route { opener, acceptor, room }) = self.channels.get(&channel).copied() else {
                    return Ok(());
                };
                self.check(from, acceptor)?;
                let room = room.checked_add(bytes).filter(|room| *room <= WINDOW);
                let room = room.ok_or("it takes more than was sent")?;
                self.channels.insert(channel, Route { opener, acceptor, room });
                if Some(opener) != self.own
                    && let Some(link) = self.link_to(opener)
                {
                    self.send(link, &Frame::Credit(channel, bytes));
                }
                Ok(())
            }
            Frame::Close(channel) => {
                let Some(Route { opener, acceptor, .. }) = self.channels.get(&channel).copied() else {
                    return Ok(());
                };
                self.check(from, opener).or_else(|_| self.check(from, acceptor))?;
                self.close_except(channel, from);
                Ok(())
            }
            Frame::Hello(_) | Frame::Proof(_) | Frame::Welcome(_) => Err("it greets again"),
        }
    }

    fn take_open(&mut self, from: u8, channel: Channel, slot: u8) -> Outcome {
        let (opener, acceptor) = (channel.member, member_of(slot));
        self.check(from, opener)?;
        let of_opener = self.channels.keys().filter(|other| other.member == opener).count();
        if self.channels.contains_key(&channel) || of_opener >= CHANNELS {
            return Err("it opens a channel twice, or too many");
        }
        let route = Route { opener, acceptor, room: WINDOW };
        if Some(acceptor) == self.own && self.processes.contains_key(&slot) {
            self.channels.insert(channel, route);
            self.effects.push_back(Effect::Connect(channel, slot));
        } else if self.role == Role::Hub
            && acceptor != opener
            && let Some(link) = self.link_to(acceptor)
        {
            self.channels.insert(channel, route);
            self.send(link, &Frame::Open(channel, slot));
        } else if let Some(link) = self.link_to(opener) {
            self.send(link, &Frame::Close(channel));
        }
        Ok(())
    }

    /// Removes a channel, and tells both its ends that it is over. An end behind the peer `knows` is left
    /// out, since this peer has reported the end of the channel or has itself ended.
    fn close_except(&mut self, channel: Channel, knows: u8) {
        let Some(Route { opener, acceptor, .. }) = self.channels.remove(&channel) else { return };
        for end in [opener, acceptor] {
            if Some(end) == self.own {
                self.effects.push_back(Effect::Close(channel));
            } else if !self.speaks_for(knows, end)
                && let Some(link) = self.link_to(end)
            {
                self.send(link, &Frame::Close(channel));
            }
        }
    }

    fn hide(&mut self, slot: u8) {
        if self.shown.remove(&slot).is_some() {
            self.effects.push_back(Effect::Hide(slot));
            self.broadcast(&Frame::Gone(slot), Some(member_of(slot)));
        }
    }

    /// Checks that the peer that is member `from` may speak for a member.
    fn check(&self, from: u8, member: u8) -> Outcome {
        if self.speaks_for(from, member) { Ok(()) } else { Err("it speaks for another member") }
    }

    /// Returns whether the peer that is member `from` may speak for a member: the hub for all but this
    /// gateway, each member for itself.
    fn speaks_for(&self, from: u8, member: u8) -> bool {
        member < MEMBERS
            && match self.role {
                Role::Hub => from == member,
                Role::Member => from == HUB && Some(member) != self.own,
            }
    }

    /// Returns the link that leads to a member.
    fn link_to(&self, member: u8) -> Option<u32> {
        let next = if self.role == Role::Hub { member } else { HUB };
        let up = |link: &Link| link.stage == Stage::Up { member: next };
        self.links.iter().find(|(_, link)| up(link)).map(|(number, _)| *number)
    }

    /// Sends a frame to the peers of all links. With `except`, the frame comes from this member, and the hub
    /// passes the frame on to all others. Any other gateway passes on no frames, so it ignores calls with
    /// `except`.
    fn broadcast(&mut self, frame: &Frame, except: Option<u8>) {
        if self.role == Role::Member && except.is_some() {
            return;
        }
        let up = |(number, link): (&u32, &Link)| match link.stage {
            Stage::Up { member } if Some(member) != except => Some(*number),
            _ => None,
        };
        let links: Vec<u32> = self.links.iter().filter_map(up).collect();
        links.into_iter().for_each(|link| self.send(link, frame));
    }

    fn set(&mut self, link: u32, stage: Stage) {
        if let Some(link) = self.links.get_mut(&link) {
            link.stage = stage;
        }
    }

    fn send(&mut self, link: u32, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.effects.push_back(Effect::Send(link, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"sixteen bytes or more\n";

    fn secret(bytes: &[u8]) -> Secret {
        Secret::new(bytes).unwrap()
    }

    /// A hub and members. The hub's link to `members[N]` has the number N.
    struct Fabric {
        hub: Node,
        members: Vec<Node>,
    }

    impl Fabric {
        fn new(secrets: &[&[u8]]) -> Self {
            let members = secrets.iter().map(|bytes| Node::new(Role::Member, secret(bytes))).collect();
            let mut fabric = Self { hub: Node::new(Role::Hub, secret(SECRET)), members };
            for number in 0..fabric.members.len() {
                fabric.hub.connect(number as u32, [number as u8; 32]);
                fabric.members[number].connect(0, [0x80 + number as u8; 32]);
            }
            fabric
        }

        /// Carries bytes between hub and members until none are left. Returns all other effects, each with
        /// the index of its member, or `None` for the hub.
        fn settle(&mut self) -> Vec<(Option<usize>, Effect)> {
            let mut seen = Vec::new();
            loop {
                let mut moved = false;
                for number in 0..self.members.len() {
                    while let Some(effect) = self.members[number].effect() {
                        moved = true;
                        match effect {
                            Effect::Send(_, bytes) => self.hub.receive(number as u32, &bytes),
                            other => seen.push((Some(number), other)),
                        }
                    }
                }
                while let Some(effect) = self.hub.effect() {
                    moved = true;
                    match effect {
                        Effect::Send(link, bytes) => self.members[link as usize].receive(0, &bytes),
                        other => seen.push((None, other)),
                    }
                }
                if !moved {
                    return seen;
                }
            }
        }
    }

    fn table(name: &str) -> Table {
        Table { addresses: name.into(), services: Vec::new() }
    }

    #[test]
    fn who_does_not_know_the_secret_gets_nothing() {
        let mut fabric = Fabric::new(&[SECRET, b"another secret of 16 bytes"]);
        fabric.hub.process(0, Some(table("of the hub")));
        let seen = fabric.settle();
        let expected = [
            (None, Effect::Drop(1, "it does not know the secret")),
            (Some(0), Effect::Joined(1)),
            (Some(0), Effect::Show(0, table("of the hub"))),
        ];
        assert_eq!(seen, expected);
        assert!(fabric.hub.is_up(0) && !fabric.hub.is_up(1) && !fabric.members[1].is_up(0));
        // A member that sends other frames before its proof is refused too.
        let mut bytes = Vec::new();
        Frame::Hello([1; 32]).encode(&mut bytes);
        Frame::Process(16, table("")).encode(&mut bytes);
        fabric.hub.connect(2, [2; 32]);
        fabric.hub.receive(2, &bytes);
        let dropped = Effect::Drop(2, "it does not keep to the order of the greeting");
        assert!(std::iter::from_fn(|| fabric.hub.effect()).any(|effect| effect == dropped));
        assert_eq!(Secret::new(b"fifteen bytes..\n").err(), Some(crate::TooShort));
    }

    /// A member refuses a hub that sends back the member's own proof. A hub could do this without the secret.
    #[test]
    fn the_hub_has_to_prove_that_it_knows_the_secret() {
        let mut member = Node::new(Role::Member, secret(SECRET));
        member.connect(0, [1; 32]);
        let mut bytes = Vec::new();
        Frame::Hello([2; 32]).encode(&mut bytes);
        Frame::Proof(secret(SECRET).proof(OF_MEMBER, &[1; 32], &[2; 32])).encode(&mut bytes);
        Frame::Welcome(1).encode(&mut bytes);
        member.receive(0, &bytes);
        assert!(!member.is_up(0));
    }

    /// The hub refuses a member that proves the secret with a proof of the hub, over the same random numbers.
    #[test]
    fn a_member_has_to_make_a_proof_of_its_own() {
        for (whose, is_up) in [(OF_HUB, false), (OF_MEMBER, true)] {
            let mut hub = Node::new(Role::Hub, secret(SECRET));
            hub.connect(0, [2; 32]);
            let mut bytes = Vec::new();
            Frame::Hello([1; 32]).encode(&mut bytes);
            Frame::Proof(secret(SECRET).proof(whose, &[1; 32], &[2; 32])).encode(&mut bytes);
            hub.receive(0, &bytes);
            assert_eq!(hub.is_up(0), is_up);
        }
    }

    #[test]
    fn channels_lead_through_the_hub_and_end_with_their_members() {
        let mut fabric = Fabric::new(&[SECRET, SECRET]);
        fabric.settle();
        fabric.members[1].process(32, Some(table("second")));
        let shown = Effect::Show(32, table("second"));
        assert_eq!(fabric.settle(), [(None, shown.clone()), (Some(0), shown)]);
        assert_eq!(fabric.members[0].open(33), None, "no process");
        let channel = fabric.members[0].open(32).unwrap();
        fabric.members[0].write(channel, b"data");
        assert_eq!(fabric.members[0].room(channel), WINDOW as usize - 4);
        let expected =
            [(Some(1), Effect::Connect(channel, 32)), (Some(1), Effect::Write(channel, b"data".to_vec()))];
        assert_eq!(fabric.settle(), expected);
        fabric.members[1].taken(channel, 4);
        assert_eq!(fabric.settle(), []);
        assert_eq!(fabric.members[0].room(channel), WINDOW as usize);
        // The connection of the second member ends.
        fabric.hub.disconnect(1);
        let seen = fabric.settle();
        assert!(seen.contains(&(Some(0), Effect::Hide(32))) && seen.contains(&(None, Effect::Hide(32))));
        assert!(seen.contains(&(Some(0), Effect::Close(channel))), "{seen:?}");
        assert_eq!(fabric.members[0].room(channel), 0);
    }

    #[test]
    fn a_member_speaks_for_itself_only() {
        let channel = Channel { member: 2, number: 0 };
        for frame in [
            Frame::Process(0, table("")),
            Frame::Process(32, table("")),
            Frame::Gone(32),
            Frame::Open(channel, 0),
            Frame::Data(channel, vec![1]),
            Frame::Credit(channel, 1),
            Frame::Close(channel),
            Frame::Credit(Channel { member: 1, number: 0 }, 1),
            Frame::Data(Channel { member: 1, number: 0 }, vec![0; WINDOW as usize / 4 + 1]),
            Frame::Welcome(3),
            Frame::Open(Channel { member: 1, number: 0 }, 32),
        ] {
            let mut fabric = Fabric::new(&[SECRET, SECRET, SECRET]);
            fabric.settle();
            fabric.members[1].process(32, Some(table("second")));
            fabric.members[2].process(48, Some(table("third")));
            fabric.settle();
            let own = fabric.members[0].open(32).unwrap();
            let other = fabric.members[1].open(48).unwrap();
            assert_eq!(other, channel);
            fabric.settle();
            let mut bytes = Vec::new();
            (0..4).for_each(|_| frame.encode(&mut bytes));
            fabric.hub.receive(0, &bytes);
            let seen = fabric.settle();
            assert!(seen.iter().any(|(who, effect)| who.is_none() && matches!(effect, Effect::Drop(0, _))));
            // The member that has sent the forbidden frame loses its own channel. The channel between the
            // other members stays open.
            assert!(seen.contains(&(Some(1), Effect::Close(own))), "{frame:?}");
            fabric.members[1].write(other, b"on");
            let written = (Some(2), Effect::Write(other, b"on".to_vec()));
            assert_eq!(fabric.settle(), [written], "{frame:?}");
        }
    }

    #[test]
    fn a_full_fabric_refuses_further_members() {
        let mut fabric = Fabric::new(&[SECRET; MEMBERS as usize]);
        let seen = fabric.settle();
        let joined = seen.iter().filter(|(_, effect)| matches!(effect, Effect::Joined(_))).count();
        assert_eq!(joined, usize::from(MEMBERS) - 1);
        assert!(seen.contains(&(None, Effect::Drop(15, "the fabric has no room for another member"))));
    }
}
