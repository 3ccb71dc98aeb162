//! The descriptors that a last segment in the capsule names: several pieces of the host's memory for one command (base
//! 4.1.2; RDMA transport 3.3 and 3.6.1).

use rwctx::remote::{RemoteSegment, Rkey};

use super::data_pointer::keyed;
use crate::nvmf::wire::sgl::{self, SGL_DESCRIPTOR_LEN};
use crate::nvmf::wire::status::Status;

/// Descriptors of a command at most (MSDBD).
pub const MAX_SGL_DESCRIPTORS: usize = 16;

/// The pieces of a command's data, in order.
#[derive(Debug, Default)]
pub struct SglList {
    segments: Vec<RemoteSegment>,
    length: u32,
    invalidate: Option<Rkey>,
}

impl SglList {
    /// Without pieces.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties it; it keeps its room.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.length = 0;
        self.invalidate = None;
    }

    /// Reads the descriptors of a segment, 1 to [`MAX_SGL_DESCRIPTORS`] in `bytes`. It is empty after an error.
    ///
    /// # Errors
    /// `SGL_DESCRIPTOR_TYPE_INVALID` for descriptors other than keyed data blocks, `INVALID_NUMBER_OF_SGL_DESCRIPTORS` for
    /// further segments, `INVALID_FIELD` for subtypes that are not announced and for memory that wraps around the address
    /// space.
    pub fn parse(&mut self, bytes: &[u8]) -> Result<(), Status> {
        self.clear();
        let (descriptors, _) = bytes.as_chunks::<SGL_DESCRIPTOR_LEN>();
        let read = descriptors.iter().try_for_each(|descriptor| self.push(descriptor));
        if read.is_err() {
            self.clear();
        }
        read
    }

    fn push(&mut self, descriptor: &[u8; SGL_DESCRIPTOR_LEN]) -> Result<(), Status> {
        match descriptor[15] {
            sglid @ (sgl::KEYED | sgl::KEYED_INVALIDATE) => {
                // One without length moves nothing, and is no error.
                let segment = keyed(descriptor)?;
                // Of several keys only the last descriptor's may be invalidated; so another one's never is.
                self.invalidate = None;
                if let Some(segment) = segment {
                    self.segments.push(segment);
                    self.length += segment.length;
                    self.invalidate = (sglid == sgl::KEYED_INVALIDATE).then_some(segment.at.rkey);
                }
                Ok(())
            }
            sgl::IN_CAPSULE => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
            other => match other >> 4 {
                0x0 | 0x4 => Err(Status::INVALID_FIELD),
                0x2 | 0x3 => Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
                _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
            },
        }
    }

    /// The pieces; none is empty.
    #[must_use]
    pub fn segments(&self) -> &[RemoteSegment] {
        &self.segments
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The key that the response must invalidate, if any: the last descriptor's, when that asks for it.
    #[must_use]
    pub fn invalidate_rkey(&self) -> Option<Rkey> {
        self.invalidate
    }
}

#[cfg(test)]
mod tests {
    use rwctx::remote::RemoteAddr;

    use super::*;
    use crate::nvmf::command::DataPointer;

    fn descriptor(key: u32, length: u32, invalidate: bool) -> [u8; 16] {
        let at = RemoteAddr { addr: u64::from(key) << 32, rkey: Rkey(key) };
        DataPointer::Keyed { segment: RemoteSegment { at, length }, invalidate }.emit()
    }

    /// Keys and lengths of the pieces, the bytes of all, the key to invalidate.
    type Parsed = (Vec<(u32, u32)>, u32, Option<Rkey>);

    fn parse(descriptors: &[[u8; 16]]) -> Result<Parsed, Status> {
        let mut list = SglList::new();
        list.parse(descriptors.as_flattened())?;
        let pieces = list.segments().iter().map(|segment| (segment.at.rkey.0, segment.length)).collect();
        Ok((pieces, list.length(), list.invalidate_rkey()))
    }

    #[test]
    fn pieces_come_in_order_and_empty_ones_are_none() {
        let list = [descriptor(1, 100, false), descriptor(2, 0, false), descriptor(1, 0xff_ffff, false)];
        assert_eq!(parse(&list), Ok((vec![(1, 100), (1, 0xff_ffff)], 0x100_0063, None)));
        assert_eq!(parse(&[descriptor(1, 0, true)]), Ok((vec![], 0, None)));
        let most = [descriptor(3, 0xff_ffff, false); MAX_SGL_DESCRIPTORS];
        assert_eq!(parse(&most).map(|(pieces, length, _)| (pieces.len(), length)), Ok((16, 0xfff_fff0)));
    }

    #[test]
    fn only_the_last_descriptors_key_is_invalidated() {
        let key = |list: &[[u8; 16]]| parse(list).unwrap().2;
        let plain = |key| descriptor(key, 8, false);
        let asks = |key| descriptor(key, 8, true);
        assert_eq!(key(&[asks(1)]), Some(Rkey(1)));
        assert_eq!(key(&[asks(1), asks(2), asks(3)]), Some(Rkey(3)));
        assert_eq!(key(&[plain(1), asks(2)]), Some(Rkey(2)));
        assert_eq!(key(&[asks(1), plain(2)]), None);
        assert_eq!(key(&[asks(1), descriptor(2, 0, true)]), None);
    }

    #[test]
    fn what_is_no_keyed_data_block_is_refused_and_leaves_nothing() {
        for (sglid, status) in [
            (0x00, Status::INVALID_FIELD),
            (0x01, Status::SGL_DESCRIPTOR_TYPE_INVALID),
            (0x10, Status::SGL_DESCRIPTOR_TYPE_INVALID),
            (0x20, Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
            (0x31, Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
            (0x41, Status::INVALID_FIELD),
            (0x5a, Status::SGL_DESCRIPTOR_TYPE_INVALID),
            (0xf0, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ] {
            let mut bad = descriptor(2, 8, false);
            bad[15] = sglid;
            let mut list = SglList::new();
            let bytes = [descriptor(1, 8, true), bad, descriptor(3, 8, true)];
            assert_eq!(list.parse(bytes.as_flattened()), Err(status), "{sglid:#x}");
            assert_eq!((list.segments(), list.length(), list.invalidate_rkey()), (&[][..], 0, None));
        }
        let mut wraps = descriptor(1, 8, false);
        wraps[..8].fill(0xff);
        assert_eq!(parse(&[descriptor(1, 8, false), wraps]), Err(Status::INVALID_FIELD));
    }
}
