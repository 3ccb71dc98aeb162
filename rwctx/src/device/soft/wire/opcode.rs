//! The BTH opcode: which operation a packet is part of and what follows its header (IBTA 9.2).

/// What a packet is. The transport (top three bits) is part of it: 000 reliable connection, 011 unreliable
/// datagram, 100 congestion notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// First packet of a SEND of two or more.
    SendFirst,
    /// Neither the first nor the last packet of a SEND.
    SendMiddle,
    /// Last packet of a SEND.
    SendLast,
    /// Last packet of a SEND with immediate data.
    SendLastWithImm,
    /// SEND in one packet.
    SendOnly,
    /// SEND with immediate data in one packet.
    SendOnlyWithImm,
    /// First packet of an RDMA WRITE of two or more.
    WriteFirst,
    /// Neither the first nor the last packet of an RDMA WRITE.
    WriteMiddle,
    /// Last packet of an RDMA WRITE.
    WriteLast,
    /// Last packet of an RDMA WRITE with immediate data.
    WriteLastWithImm,
    /// RDMA WRITE in one packet.
    WriteOnly,
    /// RDMA WRITE with immediate data in one packet.
    WriteOnlyWithImm,
    /// RDMA READ request.
    ReadRequest,
    /// First of two or more READ responses.
    ReadResponseFirst,
    /// Neither the first nor the last READ response.
    ReadResponseMiddle,
    /// Last READ response.
    ReadResponseLast,
    /// READ response in one packet.
    ReadResponseOnly,
    /// Acknowledge: ACK, RNR NAK or NAK.
    Acknowledge,
    /// Answer to an atomic operation.
    AtomicAcknowledge,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// Last packet of a SEND that invalidates a key.
    SendLastWithInvalidate,
    /// SEND that invalidates a key in one packet.
    SendOnlyWithInvalidate,
    /// Unreliable datagram.
    UdSendOnly,
    /// Unreliable datagram with immediate data.
    UdSendOnlyWithImm,
    /// Congestion notification packet.
    Cnp,
    /// Any other value.
    Unknown(u8),
}

/// Where a packet stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// It begins a message that goes on.
    First,
    /// It neither begins nor ends one.
    Middle,
    /// It ends a message that an earlier packet began.
    Last,
    /// It is a message.
    Only,
}

/// Which half of an endpoint a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The responder of a reliable connection.
    Request,
    /// The requester of a reliable connection.
    Response,
    /// A datagram queue pair.
    Datagram,
    /// Rate control.
    Congestion,
    /// Nothing we know.
    Unknown,
}

/// Which extension headers follow the BTH, in the order of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtKind {
    /// None.
    None,
    /// Immediate data.
    Imm,
    /// RDMA.
    Reth,
    /// RDMA, then immediate data.
    RethImm,
    /// Acknowledge.
    Aeth,
    /// Acknowledge, then the original value of an atomic operation.
    AethAtomicAck,
    /// Atomic operation.
    Atomic,
    /// Invalidated key.
    Ieth,
    /// Datagram.
    Deth,
    /// Datagram, then immediate data.
    DethImm,
    /// 16 reserved bytes of a congestion notification.
    Cnp,
}

impl From<u8> for Opcode {
    #[inline]
    fn from(code: u8) -> Self {
        match code {
            0x00 => Self::SendFirst,
            0x01 => Self::SendMiddle,
            0x02 => Self::SendLast,
            0x03 => Self::SendLastWithImm,
            0x04 => Self::SendOnly,
            0x05 => Self::SendOnlyWithImm,
            0x06 => Self::WriteFirst,
            0x07 => Self::WriteMiddle,
            0x08 => Self::WriteLast,
            0x09 => Self::WriteLastWithImm,
            0x0A => Self::WriteOnly,
            0x0B => Self::WriteOnlyWithImm,
            0x0C => Self::ReadRequest,
            0x0D => Self::ReadResponseFirst,
            0x0E => Self::ReadResponseMiddle,
            0x0F => Self::ReadResponseLast,
            0x10 => Self::ReadResponseOnly,
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicAcknowledge,
            0x13 => Self::CompareSwap,
            0x14 => Self::FetchAdd,
            0x16 => Self::SendLastWithInvalidate,
            0x17 => Self::SendOnlyWithInvalidate,
            0x64 => Self::UdSendOnly,
            0x65 => Self::UdSendOnlyWithImm,
            0x81 => Self::Cnp,
            other => Self::Unknown(other),
        }
    }
}

impl From<Opcode> for u8 {
    #[inline]
    fn from(opcode: Opcode) -> Self {
        match opcode {
            Opcode::SendFirst => 0x00,
            Opcode::SendMiddle => 0x01,
            Opcode::SendLast => 0x02,
            Opcode::SendLastWithImm => 0x03,
            Opcode::SendOnly => 0x04,
            Opcode::SendOnlyWithImm => 0x05,
            Opcode::WriteFirst => 0x06,
            Opcode::WriteMiddle => 0x07,
            Opcode::WriteLast => 0x08,
            Opcode::WriteLastWithImm => 0x09,
            Opcode::WriteOnly => 0x0A,
            Opcode::WriteOnlyWithImm => 0x0B,
            Opcode::ReadRequest => 0x0C,
            Opcode::ReadResponseFirst => 0x0D,
            Opcode::ReadResponseMiddle => 0x0E,
            Opcode::ReadResponseLast => 0x0F,
            Opcode::ReadResponseOnly => 0x10,
            Opcode::Acknowledge => 0x11,
            Opcode::AtomicAcknowledge => 0x12,
            Opcode::CompareSwap => 0x13,
            Opcode::FetchAdd => 0x14,
            Opcode::SendLastWithInvalidate => 0x16,
            Opcode::SendOnlyWithInvalidate => 0x17,
            Opcode::UdSendOnly => 0x64,
            Opcode::UdSendOnlyWithImm => 0x65,
            Opcode::Cnp => 0x81,
            Opcode::Unknown(other) => other,
        }
    }
}

impl Opcode {
    /// Which half of an endpoint it is for.
    #[must_use]
    #[inline]
    pub fn role(self) -> Role {
        match self {
            Self::ReadResponseFirst
            | Self::ReadResponseMiddle
            | Self::ReadResponseLast
            | Self::ReadResponseOnly
            | Self::Acknowledge
            | Self::AtomicAcknowledge => Role::Response,
            Self::UdSendOnly | Self::UdSendOnlyWithImm => Role::Datagram,
            Self::Cnp => Role::Congestion,
            // An unknown operation on a reliable connection is a request: the responder refuses it.
            Self::Unknown(code) if code >> 5 != 0 => Role::Unknown,
            _ => Role::Request,
        }
    }

    /// Where it stands in its message.
    #[must_use]
    #[inline]
    pub fn place(self) -> Place {
        match self {
            Self::SendFirst | Self::WriteFirst | Self::ReadResponseFirst => Place::First,
            Self::SendMiddle | Self::WriteMiddle | Self::ReadResponseMiddle => Place::Middle,
            Self::SendLast
            | Self::SendLastWithImm
            | Self::SendLastWithInvalidate
            | Self::WriteLast
            | Self::WriteLastWithImm
            | Self::ReadResponseLast => Place::Last,
            _ => Place::Only,
        }
    }

    /// Whether it is part of a SEND.
    #[must_use]
    #[inline]
    pub fn is_send(self) -> bool {
        matches!(
            self,
            Self::SendFirst
                | Self::SendMiddle
                | Self::SendLast
                | Self::SendLastWithImm
                | Self::SendLastWithInvalidate
                | Self::SendOnly
                | Self::SendOnlyWithImm
                | Self::SendOnlyWithInvalidate
        )
    }

    /// Whether it is part of an RDMA WRITE.
    #[must_use]
    #[inline]
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::WriteFirst
                | Self::WriteMiddle
                | Self::WriteLast
                | Self::WriteLastWithImm
                | Self::WriteOnly
                | Self::WriteOnlyWithImm
        )
    }

    /// Whether it is a READ response.
    #[must_use]
    #[inline]
    pub fn is_read_response(self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst
                | Self::ReadResponseMiddle
                | Self::ReadResponseLast
                | Self::ReadResponseOnly
        )
    }

    /// Whether packets of this kind may carry payload.
    #[must_use]
    #[inline]
    pub fn may_carry_payload(self) -> bool {
        !matches!(
            self,
            Self::ReadRequest
                | Self::Acknowledge
                | Self::AtomicAcknowledge
                | Self::CompareSwap
                | Self::FetchAdd
                | Self::Cnp
        )
    }

    /// Extension headers that follow the BTH.
    #[must_use]
    #[inline]
    pub fn ext_kind(self) -> ExtKind {
        match self {
            Self::SendLastWithImm | Self::SendOnlyWithImm | Self::WriteLastWithImm => ExtKind::Imm,
            Self::WriteFirst | Self::WriteOnly | Self::ReadRequest => ExtKind::Reth,
            Self::WriteOnlyWithImm => ExtKind::RethImm,
            Self::ReadResponseFirst | Self::ReadResponseLast | Self::ReadResponseOnly | Self::Acknowledge => {
                ExtKind::Aeth
            }
            Self::AtomicAcknowledge => ExtKind::AethAtomicAck,
            Self::CompareSwap | Self::FetchAdd => ExtKind::Atomic,
            Self::SendLastWithInvalidate | Self::SendOnlyWithInvalidate => ExtKind::Ieth,
            Self::UdSendOnly => ExtKind::Deth,
            Self::UdSendOnlyWithImm => ExtKind::DethImm,
            Self::Cnp => ExtKind::Cnp,
            Self::SendFirst
            | Self::SendMiddle
            | Self::SendLast
            | Self::SendOnly
            | Self::WriteMiddle
            | Self::WriteLast
            | Self::ReadResponseMiddle
            | Self::Unknown(_) => ExtKind::None,
        }
    }

    /// Bytes of the BTH and the extension headers: 12 to 40.
    #[must_use]
    #[inline]
    pub fn header_len(self) -> usize {
        super::BTH_LEN + self.ext_kind().len()
    }
}

impl ExtKind {
    /// Bytes: 0 to 28.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a size, not a container")]
    pub fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Imm | Self::Aeth | Self::Ieth => 4,
            Self::Deth => 8,
            Self::AethAtomicAck | Self::DethImm => 12,
            Self::Reth | Self::Cnp => 16,
            Self::RethImm => 20,
            Self::Atomic => 28,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_way_through_the_enum() {
        for code in 0..=u8::MAX {
            assert_eq!(u8::from(Opcode::from(code)), code);
        }
    }

    #[test]
    fn header_lengths_are_those_of_the_table() {
        let table = [
            (0x00, 12),
            (0x01, 12),
            (0x02, 12),
            (0x03, 16),
            (0x04, 12),
            (0x05, 16),
            (0x06, 28),
            (0x07, 12),
            (0x08, 12),
            (0x09, 16),
            (0x0A, 28),
            (0x0B, 32),
            (0x0C, 28),
            (0x0D, 16),
            (0x0E, 12),
            (0x0F, 16),
            (0x10, 16),
            (0x11, 16),
            (0x12, 24),
            (0x13, 40),
            (0x14, 40),
            (0x16, 16),
            (0x17, 16),
            (0x64, 20),
            (0x65, 24),
            (0x81, 28),
        ];
        for (code, length) in table {
            let opcode = Opcode::from(code);
            assert!(!matches!(opcode, Opcode::Unknown(_)));
            assert_eq!(opcode.header_len(), length, "{opcode:?}");
        }
        assert_eq!(
            (0..=u8::MAX).filter(|&c| !matches!(Opcode::from(c), Opcode::Unknown(_))).count(),
            table.len()
        );
    }
}
