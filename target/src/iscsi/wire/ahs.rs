//! Additional header segments (RFC 7143 section 11.2.2).

use thiserror::Error;

const TYPE_EXTENDED_CDB: u8 = 1;
const TYPE_BIDIRECTIONAL_READ: u8 = 2;

/// AHSLength (2 bytes), AHSType (1).
const PREFIX_LEN: usize = 3;

/// An additional header segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahs<'a> {
    /// What the CDB has beyond 16 bytes.
    ExtendedCdb(&'a [u8]),
    /// Expected Bidirectional Read Data Length, in bytes.
    BidirectionalRead(u32),
    /// Of a type that is reserved or a vendor's.
    Unknown(u8),
}

/// Why additional header segments are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "an additional header segment is longer than TotalAHSLength leaves room for, or of the wrong length for its type"
)]
pub struct AhsError;

/// The segments that the header says are there: `bytes` are all of them, whole words of four bytes.
///
/// # Errors
/// When their lengths don't fit.
pub fn parse(bytes: &[u8]) -> Result<Vec<Ahs<'_>>, AhsError> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(([high, low, kind], _)) = rest.split_first_chunk::<PREFIX_LEN>() {
        // The length counts what follows the type.
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let whole = (PREFIX_LEN + length).next_multiple_of(4);
        let (segment, behind) = rest.split_at_checked(whole).ok_or(AhsError)?;
        // The byte behind the type is the segment's own; both types keep it reserved.
        let specific = segment.get(PREFIX_LEN + 1..PREFIX_LEN + length).unwrap_or_default();
        found.push(match *kind & 0x3f {
            TYPE_EXTENDED_CDB if !specific.is_empty() => Ahs::ExtendedCdb(specific),
            TYPE_BIDIRECTIONAL_READ => {
                let length = specific.try_into().map_err(|_| AhsError)?;
                Ahs::BidirectionalRead(u32::from_be_bytes(length))
            }
            TYPE_EXTENDED_CDB => return Err(AhsError),
            other => Ahs::Unknown(other),
        });
        rest = behind;
    }
    if rest.is_empty() { Ok(found) } else { Err(AhsError) }
}

/// The bytes of these segments, in whole words of four; `None` for one of a type that nobody can write.
#[must_use]
pub fn emit(segments: &[Ahs<'_>]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for segment in segments {
        let (kind, specific) = match segment {
            Ahs::ExtendedCdb(cdb) => (TYPE_EXTENDED_CDB, cdb.to_vec()),
            Ahs::BidirectionalRead(length) => (TYPE_BIDIRECTIONAL_READ, length.to_be_bytes().to_vec()),
            Ahs::Unknown(_) => return None,
        };
        let length = u16::try_from(specific.len() + 1).ok()?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[kind, 0]);
        out.extend_from_slice(&specific);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_written_as_the_rfc_draws_them_and_read_back() {
        let segments = [Ahs::ExtendedCdb(&[1; 16]), Ahs::BidirectionalRead(0x1234)];
        let bytes = emit(&segments).unwrap();
        assert_eq!(bytes[..5], [0, 17, 1, 0, 1]);
        assert_eq!(bytes[20..], [0, 5, 2, 0, 0, 0, 0x12, 0x34]);
        assert_eq!(parse(&bytes), Ok(segments.to_vec()));
        // A CDB of 17 bytes: one more, and padding.
        assert_eq!(emit(&[Ahs::ExtendedCdb(&[9])]).unwrap(), [0, 2, 1, 0, 9, 0, 0, 0]);
        assert_eq!(parse(&[]), Ok(vec![]));
        assert_eq!(parse(&[0, 1, 0x3f, 0]), Ok(vec![Ahs::Unknown(0x3f)]));
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        assert_eq!(parse(&[0, 5, 2, 0]), Err(AhsError), "longer than what is there");
        assert_eq!(parse(&[0xff, 0xff, 1, 0]), Err(AhsError));
        assert_eq!(parse(&[0, 4, 2, 0, 0, 0, 0, 0]), Err(AhsError), "three bytes are no length");
        assert_eq!(parse(&[0, 1, 1, 0]), Err(AhsError), "an extended CDB without bytes");
        assert_eq!(parse(&[0, 0, 9, 0, 0]), Err(AhsError), "a byte that belongs to nothing");
    }
}
