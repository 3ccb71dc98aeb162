//! Why a list of segments could not be carried out, and what its sender is told.

use thiserror::Error;

use crate::plan::RwError;

/// Why contexts could not be built or posted. A segment whose context failed took no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// A segment ends more than 2^32 - 1 bytes behind the start of the page that it begins in.
    #[error("segment too long")]
    LengthOverflow,
    /// There are not enough pages.
    #[error("segments longer than the page array")]
    PageOverrun,
    /// A chunk without segments.
    #[error("chunk without segments")]
    EmptyChunk,
    /// A position that is no multiple of four, or lies outside the message or in what stands before it.
    #[error("chunk at an impossible position")]
    Position,
    /// More segments than pages.
    #[error("too many segments")]
    TooManySegments,
    /// The work requests are more than the send queue has entries.
    #[error("more work requests than the send queue has entries")]
    TooManyEntries,
    /// No memory for a context.
    #[error("no memory for a context")]
    NoMemory,
    /// A context could not be made.
    #[error("a segment's context could not be made")]
    Context(#[source] RwError),
    /// The peer's segments are shorter than what is to be moved.
    #[error("segments too short")]
    ChunkTooSmall,
    /// The reply fits neither the pieces nor the bytes of a Send.
    #[error("reply too long for a Send")]
    ReplyTooLong,
    /// A payload that is not a part of the message, or not behind the payload before it.
    #[error("payload outside the message")]
    PayloadRange,
    /// The connection is being closed.
    #[error("not connected")]
    NotConnected,
}

impl SegmentError {
    /// The errno that Linux's `svc_rdma` gives in the same case, positive.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::LengthOverflow
            | Self::PageOverrun
            | Self::EmptyChunk
            | Self::Position
            | Self::TooManySegments
            | Self::TooManyEntries => libc::EINVAL,
            Self::NoMemory => libc::ENOMEM,
            // Whatever the cause.
            Self::Context(_) => libc::EIO,
            Self::ChunkTooSmall | Self::ReplyTooLong => libc::E2BIG,
            Self::PayloadRange => libc::EMSGSIZE,
            Self::NotConnected => libc::ENOTCONN,
        }
    }
}

/// Why a received message is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvFault {
    /// Its header can't be decoded.
    Header,
    /// A protocol version other than 1.
    Version,
    /// `RDMA_DONE` or `RDMA_ERROR`, which ask for nothing.
    Procedure,
    /// Its chunks can't be read.
    Chunks(SegmentError),
}

/// What is done about a message that is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvAnswer {
    /// `RDMA_ERROR` with `ERR_CHUNK` is sent, the message dropped.
    ErrChunk,
    /// `RDMA_ERROR` with `ERR_VERS` is sent, which names the versions that are understood.
    ErrVers {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// Dropped without a word.
    Drop,
    /// The connection is closed.
    Close,
}

impl RecvFault {
    /// What is done about it.
    #[must_use]
    pub fn answer(self) -> RecvAnswer {
        match self {
            Self::Header => RecvAnswer::ErrChunk,
            Self::Version => RecvAnswer::ErrVers { low: 1, high: 1 },
            Self::Procedure => RecvAnswer::Drop,
            Self::Chunks(error) if error.errno() == libc::EINVAL => RecvAnswer::ErrChunk,
            Self::Chunks(_) => RecvAnswer::Close,
        }
    }
}

/// Where a reply failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStage {
    /// Contexts of the Write list.
    WriteList,
    /// Contexts of the Reply chunk, or the Send and its posting.
    ReplyChunkOrSend,
    /// The reply's header.
    Header,
}

/// What is done about a reply that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyAnswer {
    /// `RDMA_ERROR` with `ERR_CHUNK` is sent instead, without what was built.
    ErrChunk,
    /// The connection is closed.
    Close,
}

impl ReplyStage {
    /// What is done when it failed like this.
    #[must_use]
    pub fn answer(self, error: SegmentError) -> ReplyAnswer {
        match (self, error.errno()) {
            (Self::ReplyChunkOrSend, libc::E2BIG | libc::EINVAL) => ReplyAnswer::ErrChunk,
            _ => ReplyAnswer::Close,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(SegmentError, i32); 12] = [
        (SegmentError::LengthOverflow, libc::EINVAL),
        (SegmentError::PageOverrun, libc::EINVAL),
        (SegmentError::EmptyChunk, libc::EINVAL),
        (SegmentError::Position, libc::EINVAL),
        (SegmentError::TooManySegments, libc::EINVAL),
        (SegmentError::TooManyEntries, libc::EINVAL),
        (SegmentError::NoMemory, libc::ENOMEM),
        (SegmentError::Context(RwError::InvalidList), libc::EIO),
        (SegmentError::ChunkTooSmall, libc::E2BIG),
        (SegmentError::ReplyTooLong, libc::E2BIG),
        (SegmentError::PayloadRange, libc::EMSGSIZE),
        (SegmentError::NotConnected, libc::ENOTCONN),
    ];

    #[test]
    fn each_error_has_the_kernels_number() {
        for (error, errno) in ALL {
            assert_eq!(error.errno(), errno, "{error:?}");
        }
    }

    #[test]
    fn a_message_that_is_not_processed_is_answered_as_the_table_says() {
        assert_eq!(RecvFault::Header.answer(), RecvAnswer::ErrChunk);
        assert_eq!(RecvFault::Version.answer(), RecvAnswer::ErrVers { low: 1, high: 1 });
        assert_eq!(RecvFault::Procedure.answer(), RecvAnswer::Drop);
        for (error, errno) in ALL {
            let answer = if errno == libc::EINVAL { RecvAnswer::ErrChunk } else { RecvAnswer::Close };
            assert_eq!(RecvFault::Chunks(error).answer(), answer, "{error:?}");
        }
    }

    #[test]
    fn a_reply_that_failed_is_answered_as_the_table_says() {
        for (error, errno) in ALL {
            let told = matches!(errno, libc::EINVAL | libc::E2BIG);
            let answer = if told { ReplyAnswer::ErrChunk } else { ReplyAnswer::Close };
            assert_eq!(ReplyStage::ReplyChunkOrSend.answer(error), answer, "{error:?}");
            for stage in [ReplyStage::WriteList, ReplyStage::Header] {
                assert_eq!(stage.answer(error), ReplyAnswer::Close, "{stage:?} {error:?}");
            }
        }
    }
}
