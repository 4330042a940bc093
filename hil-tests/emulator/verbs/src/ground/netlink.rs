//! Netlink messages as bytes: headers and attributes (`linux/netlink.h`), of requests and of answers.

/// Bytes of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;
/// Bytes of `struct nlattr`.
const ATTRIBUTE: usize = 4;

/// Types of messages: `NLMSG_ERROR`, `NLMSG_DONE`.
pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;

/// Flags of messages: `NLM_F_REQUEST`, `NLM_F_MULTI`, `NLM_F_ACK`, `NLM_F_DUMP`.
pub(crate) const REQUEST: u16 = 1;
pub(crate) const MULTI: u16 = 2;
pub(crate) const ACK: u16 = 4;
pub(crate) const DUMP: u16 = 0x300;

/// The bits of an attribute's type without its flags (`NLA_TYPE_MASK`).
const TYPE: u16 = 0x3fff;

/// A netlink message: fields of its header, and its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// Returns the messages in `bytes`, up to the first malformed one.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(rest, 0)?).ok()?;
        let body = rest.get(HEADER..length)?;
        let message =
            Message { kind: u16_at(rest, 4)?, flags: u16_at(rest, 6)?, sequence: u32_at(rest, 8)?, body };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Returns type and value of the attributes in `bytes`, up to the first malformed one.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let attribute = (u16_at(rest, 2)? & TYPE, rest.get(ATTRIBUTE..length)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(attribute)
    })
}

/// Appends a message whose body `fill` appends.
pub(crate) fn message(
    out: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    [sequence, port]: [u32; 2],
    fill: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend([kind, flags].into_iter().flat_map(u16::to_ne_bytes));
    out.extend([sequence, port].into_iter().flat_map(u32::to_ne_bytes));
    fill(out);
    let length = (out.len() - start) as u32;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_ne_bytes());
    }
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends an attribute.
pub(crate) fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend([(ATTRIBUTE + value.len()) as u16, kind].into_iter().flat_map(u16::to_ne_bytes));
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Returns the number of 2 bytes at a place, in the machine's byte order.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the number of 4 bytes at a place, in the machine's byte order.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_attributes_survive_the_way() {
        let mut bytes = Vec::new();
        for number in [7, 8] {
            message(&mut bytes, number, ACK, [5, 6], |out| {
                attribute(out, 1, b"odd");
                attribute(out, 2, &9_u32.to_ne_bytes());
            });
        }
        let found: Vec<_> = messages(&bytes).collect();
        assert_eq!(found.iter().map(|message| message.kind).collect::<Vec<_>>(), [7, 8]);
        assert_eq!((found[1].flags, found[1].sequence), (ACK, 5));
        let attributes: Vec<_> = attributes(found[0].body).collect();
        assert_eq!(attributes, [(1, &b"odd"[..]), (2, &9_u32.to_ne_bytes())]);
    }

    #[test]
    fn bytes_cut_short_end_the_list_and_nothing_else() {
        let mut bytes = Vec::new();
        message(&mut bytes, 1, 0, [0, 0], |out| attribute(out, 1, &[1; 9]));
        for length in 0..bytes.len() {
            assert_eq!(messages(&bytes[..length]).count(), 0);
        }
        // A header with the length zero ends the list. Otherwise the iterator would return the same message
        // for ever.
        assert_eq!(messages(&[0; 64]).count(), 0);
        assert_eq!(attributes(&[0; 64]).count(), 0);
        assert_eq!(attributes(&[0xff; 64]).count(), 0);
    }
}
