//! The encoding of the frames that gateways send to each other: a length of 4 bytes in little endian, a kind
//! of one byte, and the content. Bytes of a peer are never trusted: malformed bytes end the connection.

/// The most bytes of a frame, not counting the 4 bytes of its length.
const LONGEST: usize = 1 << 18;

/// The most bytes of a list of addresses, or of services.
const LONGEST_LIST: usize = 1 << 16;

/// The first bytes in a `Hello`, by which gateways recognize the protocol.
const MAGIC: &[u8; 8] = b"MLX5FAB2";

/// A channel: a stream of bytes from a process of one member to a process of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Channel {
    /// The member whose process has opened the channel.
    pub member: u8,
    /// The number of the channel among the channels of the member.
    pub number: u32,
}

/// The lists that a process publishes in its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The addresses of the process's port.
    pub addresses: Vec<u8>,
    /// The services for which the process listens.
    pub services: Vec<u8>,
}

/// A frame: one message between two gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The first frame of each side, with a random number.
    Hello([u8; 32]),
    /// The proof that the sender knows the secret.
    Proof([u8; 32]),
    /// The hub's answer to a proven member: the member's number.
    Welcome(u8),
    /// A process lives in a slot, with these lists.
    Process(u8, Table),
    /// The process in this slot has ended.
    Gone(u8),
    /// A process opens this channel to the process in this slot.
    Open(Channel, u8),
    /// Bytes that the opener of a channel sends.
    Data(Channel, Vec<u8>),
    /// The receiver of a channel has taken this number of bytes, so the opener may send as many more.
    Credit(Channel, u32),
    /// The connection at one end of a channel is over, and so is the channel.
    Close(Channel),
}

/// The error for bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Frame {
    /// Appends the encoded frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Self::Hello(nonce) => {
                out.push(1);
                out.extend_from_slice(MAGIC);
                out.extend_from_slice(nonce);
            }
            Self::Proof(proof) => {
                out.push(2);
                out.extend_from_slice(proof);
            }
            Self::Welcome(member) => out.extend_from_slice(&[3, *member]),
            Self::Process(slot, Table { addresses, services }) => {
                out.extend_from_slice(&[4, *slot]);
                out.extend_from_slice(&(addresses.len() as u32).to_le_bytes());
                out.extend_from_slice(addresses);
                out.extend_from_slice(services);
            }
            Self::Gone(slot) => out.extend_from_slice(&[5, *slot]),
            Self::Open(channel, slot) => {
                put(out, 6, *channel);
                out.push(*slot);
            }
            Self::Data(channel, bytes) => {
                put(out, 7, *channel);
                out.extend_from_slice(bytes);
            }
            Self::Credit(channel, bytes) => {
                put(out, 8, *channel);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Close(channel) => put(out, 9, *channel),
        }
        let length = (out.len() - start - 4) as u32;
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Decodes the first frame in `bytes`. Returns the number of its bytes and the frame, or `None` if the
    /// frame is incomplete.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no frame.
    pub fn decode(bytes: &[u8]) -> Result<Option<(usize, Self)>, Malformed> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST {
            return Err(Malformed);
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = parse(body).ok_or(Malformed)?;
        Ok(Some((length + 4, frame)))
    }
}

fn put(out: &mut Vec<u8>, kind: u8, channel: Channel) {
    out.extend_from_slice(&[kind, channel.member]);
    out.extend_from_slice(&channel.number.to_le_bytes());
}

fn parse(body: &[u8]) -> Option<Frame> {
    let (kind, rest) = body.split_first()?;
    Some(match kind {
        1 => Frame::Hello(rest.strip_prefix(MAGIC)?.try_into().ok()?),
        2 => Frame::Proof(rest.try_into().ok()?),
        3 => Frame::Welcome(only(rest)?),
        4 => {
            let (slot, rest) = rest.split_first()?;
            let (length, rest) = rest.split_first_chunk::<4>()?;
            let (addresses, services) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            if addresses.len() > LONGEST_LIST || services.len() > LONGEST_LIST {
                return None;
            }
            Frame::Process(*slot, Table { addresses: addresses.to_vec(), services: services.to_vec() })
        }
        5 => Frame::Gone(only(rest)?),
        6 => {
            let (channel, rest) = channel(rest)?;
            Frame::Open(channel, only(rest)?)
        }
        7 => {
            let (channel, rest) = channel(rest)?;
            Frame::Data(channel, rest.to_vec())
        }
        8 => {
            let (channel, rest) = channel(rest)?;
            Frame::Credit(channel, u32::from_le_bytes(rest.try_into().ok()?))
        }
        9 => {
            let (channel, rest) = channel(rest)?;
            rest.is_empty().then_some(Frame::Close(channel))?
        }
        _ => return None,
    })
}

fn only(rest: &[u8]) -> Option<u8> {
    if let [byte] = rest { Some(*byte) } else { None }
}

fn channel(rest: &[u8]) -> Option<(Channel, &[u8])> {
    let (member, rest) = rest.split_first()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    Some((Channel { member: *member, number: u32::from_le_bytes(*number) }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_way() {
        let channel = Channel { member: 3, number: 0x0102_0304 };
        let table =
            Table { addresses: b"::1 020000000001\n".to_vec(), services: b"1 262 [::]:5 x\n".to_vec() };
        let frames = [
            Frame::Hello([7; 32]),
            Frame::Proof([8; 32]),
            Frame::Welcome(9),
            Frame::Process(17, table),
            Frame::Process(255, Table::default()),
            Frame::Gone(18),
            Frame::Open(channel, 19),
            Frame::Data(channel, vec![1, 2, 3]),
            Frame::Credit(channel, u32::MAX),
            Frame::Close(channel),
        ];
        for frame in frames {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            for length in 0..bytes.len() {
                assert_eq!(Frame::decode(&bytes[..length]), Ok(None));
            }
            assert_eq!(Frame::decode(&bytes), Ok(Some((bytes.len(), frame))));
        }
        assert_eq!(Frame::decode(&[0xff; 4]), Err(Malformed));
        assert_eq!(Frame::decode(&[1, 0, 0, 0, 77]), Err(Malformed));
        assert_eq!(Frame::decode(&[0, 0, 0, 0]), Err(Malformed));
    }
}
