//! What data a command moves, and from or to which memory of the host's (RFC 7145 sections 7.3.5, 7.3.6; RFC 7143
//! sections 11.3.1, 11.3.4).

use std::ops::Range;

use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};

use super::super::keys::Negotiated;
use super::super::wire::message::Message;
use super::super::wire::reject::RejectReason;
use super::super::wire::scsi::{Residual, ScsiCommand};

/// The data of a command, as far as the host lets it move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// None.
    None,
    /// RDMA WRITE here, before the response.
    ToHost(RemoteSegment),
    /// From the host.
    FromHost {
        /// What came along: a range of the message's bytes; may be empty.
        immediate: Range<usize>,
        /// RDMA READ what follows it from here; none if all came along.
        solicited: Option<RemoteSegment>,
    },
}

impl Transfer {
    /// Checks what a command says of its data against what was agreed.
    pub(super) fn of(
        command: &ScsiCommand,
        message: &Message<'_>,
        negotiated: &Negotiated,
    ) -> Result<Self, RejectReason> {
        let expected = command.expected_length;
        // Not above 24 bits: it is a data segment's.
        let immediate = u32::try_from(message.data.len()).map_err(|_| RejectReason::InvalidField)?;
        match (command.to_host, command.from_host) {
            // Its second length would stand in an additional header, and no key of iSER names its second memory.
            (true, true) => return Err(RejectReason::CommandNotSupported),
            // InitialR2T is Yes: no Data-Out follows unasked.
            _ if !command.last => return Err(RejectReason::ProtocolError),
            (_, false) if immediate != 0 => return Err(RejectReason::ProtocolError),
            (false, false) if expected != 0 => return Err(RejectReason::InvalidField),
            _ => {}
        }
        let memory = |at: Option<RemoteAddr>, length: u32| {
            let at = at.ok_or(RejectReason::InvalidField)?;
            // The last byte, too, has an address.
            at.checked_add(u64::from(length) - 1).ok_or(RejectReason::InvalidField)?;
            Ok(RemoteSegment { at, length })
        };
        if command.to_host && expected != 0 {
            return Ok(Self::ToHost(memory(message.control.read, expected)?));
        }
        if !command.from_host {
            return Ok(Self::None);
        }
        let allowed = if negotiated.immediate_data { negotiated.first_burst.min(expected) } else { 0 };
        if immediate > allowed {
            return Err(RejectReason::ProtocolError);
        }
        if expected == 0 {
            return Ok(Self::None);
        }
        let solicited = expected - immediate;
        let start = message.data_offset();
        Ok(Self::FromHost {
            immediate: start..start + message.data.len(),
            // The host has added what came along to the address already.
            solicited: if solicited == 0 { None } else { Some(memory(message.control.write, solicited)?) },
        })
    }

    /// The key that the response may invalidate.
    pub(super) fn rkey(&self) -> Option<Rkey> {
        match self {
            Self::None => None,
            Self::ToHost(segment) => Some(segment.at.rkey),
            Self::FromHost { solicited, .. } => solicited.map(|segment| segment.at.rkey),
        }
    }
}

/// The residual of a command for which the host expected `expected` bytes to move and the device has `length`.
pub(super) fn residual(expected: u32, length: u64) -> Residual {
    match u64::from(expected).checked_sub(length) {
        Some(0) => Residual::None,
        Some(left) => Residual::Underflow(u32::try_from(left).unwrap_or(expected)),
        None => Residual::Overflow(u32::try_from(length - u64::from(expected)).unwrap_or(u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::bhs::Order;
    use super::super::super::wire::iser::Control;
    use super::super::super::wire::number::{Itt, Lun, Sn};
    use super::super::super::wire::scsi::TaskAttribute;
    use super::*;

    const AT: RemoteAddr = RemoteAddr { addr: 0x1000, rkey: Rkey(7) };

    fn command(to_host: bool, from_host: bool, expected_length: u32) -> ScsiCommand {
        ScsiCommand {
            order: Order { immediate: false, cmd_sn: Sn(0), exp_stat_sn: Sn(0) },
            last: true,
            to_host,
            from_host,
            attribute: TaskAttribute::Simple,
            lun: Lun::default(),
            itt: Itt(1),
            expected_length,
            cdb: [0; 16],
        }
    }

    /// A command with memory for reads and writes and so much data behind it.
    fn transfer(command: ScsiCommand, at: Option<RemoteAddr>, data: usize) -> Result<Transfer, RejectReason> {
        let negotiated = Negotiated { first_burst: 4096, ..Negotiated::default() };
        transfer_by(&negotiated, command, at, data)
    }

    fn transfer_by(
        negotiated: &Negotiated,
        command: ScsiCommand,
        at: Option<RemoteAddr>,
        data: usize,
    ) -> Result<Transfer, RejectReason> {
        let data = vec![0; data];
        let message =
            Message { control: Control { read: at, write: at }, bhs: &command.emit(), ahs: &[], data: &data };
        Transfer::of(&command, &message, negotiated)
    }

    #[test]
    fn data_goes_where_the_header_says_and_is_as_long_as_expected() {
        let segment = |length| RemoteSegment { at: AT, length };
        let read = transfer(command(true, false, 512), Some(AT), 0);
        assert_eq!(read, Ok(Transfer::ToHost(segment(512))));
        assert_eq!(read.unwrap().rkey(), Some(Rkey(7)));
        let write = |expected, data| transfer(command(false, true, expected), Some(AT), data);
        let from = |immediate, solicited| Ok(Transfer::FromHost { immediate, solicited });
        assert_eq!(write(8192, 0), from(76..76, Some(segment(8192))));
        assert_eq!(write(8192, 4096), from(76..4172, Some(segment(4096))));
        assert_eq!(write(4096, 4096), from(76..4172, None));
        assert_eq!(write(4096, 4096).unwrap().rkey(), None, "no memory of the host's is used");
        assert_eq!(write(0, 0), Ok(Transfer::None));
        assert_eq!(transfer(command(true, false, 0), None, 0), Ok(Transfer::None));
        assert_eq!(transfer(command(false, false, 0), Some(AT), 0), Ok(Transfer::None));
    }

    #[test]
    fn what_the_host_may_not_say_is_rejected() {
        let write = |expected, data| transfer(command(false, true, expected), Some(AT), data);
        assert_eq!(write(8192, 4097), Err(RejectReason::ProtocolError), "more than the first burst");
        assert_eq!(write(100, 101), Err(RejectReason::ProtocolError), "more than expected");
        assert_eq!(write(0, 1), Err(RejectReason::ProtocolError));
        let read = |at, expected| transfer(command(true, false, expected), at, 0);
        assert_eq!(read(None, 512), Err(RejectReason::InvalidField), "no memory");
        let end = |below| Some(RemoteAddr { addr: u64::MAX - below, ..AT });
        assert!(read(end(511), 512).is_ok());
        assert_eq!(read(end(510), 512), Err(RejectReason::InvalidField), "past the end of memory");
        assert_eq!(transfer(command(false, true, 512), None, 0), Err(RejectReason::InvalidField));
        assert_eq!(transfer(command(true, false, 512), Some(AT), 1), Err(RejectReason::ProtocolError));
        assert_eq!(transfer(command(true, true, 512), Some(AT), 0), Err(RejectReason::CommandNotSupported));
        assert_eq!(transfer(command(false, false, 1), Some(AT), 0), Err(RejectReason::InvalidField));
        let unsolicited = ScsiCommand { last: false, ..command(false, true, 512) };
        assert_eq!(transfer(unsolicited, Some(AT), 0), Err(RejectReason::ProtocolError));
        let none = Negotiated { immediate_data: false, ..Negotiated::default() };
        let immediate = transfer_by(&none, command(false, true, 512), Some(AT), 1);
        assert_eq!(immediate, Err(RejectReason::ProtocolError));
    }

    #[test]
    fn the_residual_is_what_was_expected_and_not_there_or_there_and_not_expected() {
        assert_eq!(residual(512, 512), Residual::None);
        assert_eq!(residual(4096, 16), Residual::Underflow(4080));
        assert_eq!(residual(0, 512), Residual::Overflow(512));
        assert_eq!(residual(u32::MAX, 0), Residual::Underflow(u32::MAX));
        assert_eq!(residual(0, u64::MAX), Residual::Overflow(u32::MAX));
    }
}
