//! The serialized Java objects in which Flink publishes a leader.
//!
//! Flink writes two values (ZooKeeperUtils.java, `writeLeaderInformationToZooKeeper`): the address
//! with `writeUTF`, and the leader's session id, a `java.util.UUID`, with `writeObject`. The stream
//! is that of the Java Object Serialization Specification, section 6: a header, block data, and an
//! object whose class description is written out. This reads exactly that and nothing else.

use std::fmt::Write as _;

/// The stream's header: magic number and version.
const HEADER: [u8; 4] = [0xac, 0xed, 0x00, 0x05];

/// Block data with a length in one byte, and in four.
const BLOCK: u8 = 0x77;
const LONG_BLOCK: u8 = 0x7a;

/// What stands between the block data and the two numbers of a UUID: an object, its new class
/// description with name, version and flags, the two fields of type long, no annotation, no parent.
const UUID: &[u8] = b"\x73\x72\x00\x0ejava.util.UUID\xbc\x99\x03\xf7\x98\x6d\x85\x2f\x02\x00\x02\
    J\x00\x0cleastSigBitsJ\x00\x0bmostSigBits\x78\x70";

/// A leader as Flink publishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leader {
    /// Where it is.
    pub(super) address: String,
    /// What Flink calls this term of leadership.
    pub(super) session_id: Option<String>,
}

/// Reads what Flink writes; `None` if it is anything else.
pub(super) fn flink(data: &[u8]) -> Option<Leader> {
    let mut rest = data.strip_prefix(&HEADER)?;
    // The stream cuts block data into blocks of 1024 bytes. A text has at most 65535.
    let mut block = Vec::new();
    loop {
        let (length, after) = match rest.split_first() {
            Some((&BLOCK, after)) => {
                let (length, after) = after.split_first()?;
                (usize::from(*length), after)
            }
            Some((&LONG_BLOCK, after)) => {
                let (length, after) = after.split_first_chunk()?;
                (usize::try_from(u32::from_be_bytes(*length)).ok()?, after)
            }
            _ => break,
        };
        let (bytes, after) = after.split_at_checked(length)?;
        block.extend_from_slice(bytes);
        rest = after;
    }
    let (length, text) = block.split_first_chunk()?;
    let text = text.get(..usize::from(u16::from_be_bytes(*length)))?;
    let address = modified_utf8(text)?;
    let numbers = rest.strip_prefix(UUID).and_then(<[u8]>::first_chunk::<16>);
    let session_id = numbers.map(|numbers| {
        let (least, most) = numbers.split_at(8);
        uuid(most, least)
    });
    Some(Leader {
        address,
        session_id,
    })
}

fn uuid(most: &[u8], least: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in most.iter().chain(least).enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Java's modified UTF-8: each unit of UTF-16 in one to three bytes, zero in two.
fn modified_utf8(bytes: &[u8]) -> Option<String> {
    let mut units = Vec::new();
    let mut rest = bytes.iter().copied();
    let continued = |byte: Option<u8>| {
        byte.filter(|b| b & 0xc0 == 0x80)
            .map(|b| u16::from(b & 0x3f))
    };
    while let Some(byte) = rest.next() {
        units.push(match byte {
            0x01..=0x7f => u16::from(byte),
            0xc0..=0xdf => (u16::from(byte & 0x1f) << 6) | continued(rest.next())?,
            0xe0..=0xef => {
                let middle = continued(rest.next())? << 6;
                (u16::from(byte & 0x0f) << 12) | middle | continued(rest.next())?
            }
            _ => return None,
        });
    }
    String::from_utf16(&units).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What Flink writes for an address whose modified UTF-8 is this.
    fn stream(address: &[u8]) -> Vec<u8> {
        let mut block = u16::try_from(address.len()).unwrap().to_be_bytes().to_vec();
        block.extend_from_slice(address);
        let mut stream = HEADER.to_vec();
        for part in block.chunks(1024) {
            match u8::try_from(part.len()) {
                Ok(length) => stream.extend_from_slice(&[BLOCK, length]),
                Err(_) => {
                    stream.push(LONG_BLOCK);
                    stream.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
                }
            }
            stream.extend_from_slice(part);
        }
        stream.extend_from_slice(UUID);
        stream.extend_from_slice(&0x8899_aabb_ccdd_eeff_u64.to_be_bytes());
        stream.extend_from_slice(&0x0011_2233_4455_6677_u64.to_be_bytes());
        stream
    }

    #[test]
    fn address_and_session_id_are_read() {
        let address = b"pekko.tcp://flink@jobmanager-1:6123/user/rpc/dispatcher_0";
        let leader = flink(&stream(address)).unwrap();
        assert_eq!(leader.address.as_bytes(), address);
        let id = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(leader.session_id.as_deref(), Some(id));
    }

    #[test]
    fn a_long_address_comes_in_several_blocks() {
        let address = vec![b'a'; 3000];
        assert_eq!(flink(&stream(&address)).unwrap().address.len(), 3000);
    }

    #[test]
    fn text_is_javas_own_utf_8() {
        // "ä", the null character, and a character beyond 16 bits as two surrogates.
        let leader = flink(&stream(b"\xc3\xa4\xc0\x80\xed\xa0\xbd\xed\xb0\x91")).unwrap();
        assert_eq!(leader.address, "ä\0\u{1f411}");
        assert_eq!(flink(&stream(b"\xed\xa0\xbd")), None);
        assert_eq!(flink(&stream(b"\xc3")), None);
        assert_eq!(flink(&stream(b"\xff")), None);
    }

    #[test]
    fn another_object_has_an_address_and_no_session_id() {
        let mut data = stream(b"a");
        data.truncate(HEADER.len() + 5);
        data.push(0x70);
        let leader = flink(&data).unwrap();
        assert_eq!((leader.address.as_str(), leader.session_id), ("a", None));
    }

    #[test]
    fn a_length_beyond_the_data_is_no_text() {
        let tails: [&[u8]; 6] = [
            b"",
            b"\x77",
            b"\x77\x05\x00\x01",
            b"\x77\x01\x00",
            b"\x77\x03\x00\x02a",
            b"\x7a\xff\xff\xff\xff\x00\x01a",
        ];
        for tail in tails {
            assert_eq!(flink(&[HEADER.as_slice(), tail].concat()), None, "{tail:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(tail in prop::collection::vec(any::<u8>(), 0..80), cut in 0_usize..200) {
            let mut data = HEADER.to_vec();
            data.extend_from_slice(&tail);
            let _ = flink(&data);
            let whole = stream(b"address");
            let _ = flink(&whole[..cut.min(whole.len())]);
        }
    }
}
