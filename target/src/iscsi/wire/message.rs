//! One SEND: iSER header, basic header segment, additional ones, data segment, padding (RFC 7145 section 7.1).

use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

use super::bhs::{BHS_LEN, Bhs};
use super::iser::{Control, ISER_HEADER_LEN, IserHeader};

/// Bytes ahead of the data segment when there are no additional headers.
pub const HEADERS_LEN: usize = ISER_HEADER_LEN + BHS_LEN;

/// Padding brings a data segment to whole words of so many bytes.
const PAD: usize = 4;

/// A message in the buffer in which it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The host's memory.
    pub control: Control,
    /// Basic header segment.
    pub bhs: &'a Bhs,
    /// Additional header segments.
    pub ahs: &'a [u8],
    /// Data segment without padding.
    pub data: &'a [u8],
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Fewer bytes than the headers have.
    #[error("{0} bytes are fewer than the {HEADERS_LEN} of the headers")]
    Short(usize),
    /// The iSER header is not that of a PDU.
    #[error("{0:?} is no header of an iSCSI PDU")]
    Header(IserHeader),
    /// The lengths that the header names, with padding, are not what was sent.
    #[error("the header names {named} bytes behind it, {found} were sent")]
    Length {
        /// Additional headers and data, bytes.
        named: usize,
        /// Bytes behind the basic header segment.
        found: usize,
    },
}

impl<'a> Message<'a> {
    /// Reads what a SEND brought.
    ///
    /// # Errors
    /// When it is not a PDU behind an iSER header, or not of the length that it says.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let short = || MessageError::Short(bytes.len());
        let (iser, rest) = bytes.split_first_chunk::<ISER_HEADER_LEN>().ok_or_else(short)?;
        let (bhs, rest) = Bhs::ref_from_prefix(rest).map_err(|_| short())?;
        let control = match IserHeader::parse(iser) {
            IserHeader::Control(control) => control,
            other => return Err(MessageError::Header(other)),
        };
        let data_len = usize::try_from(bhs.data_len()).unwrap_or(usize::MAX);
        let named = bhs.ahs_len().saturating_add(data_len);
        let length = || MessageError::Length { named, found: rest.len() };
        let (ahs, segment) = rest.split_at_checked(bhs.ahs_len()).ok_or_else(length)?;
        let (data, padding) = segment.split_at_checked(data_len).ok_or_else(length)?;
        if padding.len() >= PAD {
            return Err(length());
        }
        Ok(Self { control, bhs, ahs, data })
    }

    /// Bytes of the message ahead of the data segment.
    #[must_use]
    pub fn data_offset(&self) -> usize {
        HEADERS_LEN + self.ahs.len()
    }

    /// Bytes that [`Message::emit`] writes.
    #[must_use]
    pub fn emitted_len(&self) -> usize {
        self.data_offset() + self.data.len().next_multiple_of(PAD)
    }

    /// Writes the message to the start of `out`; returns how long it is. Padding is zero.
    ///
    /// # Panics
    /// When `out` is shorter than [`Message::emitted_len`], or the header doesn't name the segments' lengths.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        assert_eq!(self.bhs.ahs_len(), self.ahs.len(), "the header names the additional headers");
        assert_eq!(self.bhs.data_len() as usize, self.data.len(), "the header names the data");
        let length = self.emitted_len();
        let mut rest = &mut out[..length];
        let iser = IserHeader::Control(self.control).emit();
        for part in [&iser[..], self.bhs.as_bytes(), self.ahs, self.data] {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
        rest.fill(0);
        length
    }
}
