//! Opcodes (RFC 7143 section 11.2.1.2).

use super::codes::codes;

codes! {
    /// What a PDU is: the low six bits of its first byte. Those of targets have bit 5 set.
    Opcode: u8, 0x3f;
    NopOut = 0x00 "NOP-Out";
    ScsiCommand = 0x01 "SCSI Command";
    TaskManagementRequest = 0x02 "SCSI Task Management Function Request";
    LoginRequest = 0x03 "Login Request";
    TextRequest = 0x04 "Text Request";
    DataOut = 0x05 "SCSI Data-Out; over iSER data is read from the host's memory instead";
    LogoutRequest = 0x06 "Logout Request";
    SnackRequest = 0x10 "SNACK Request; needs an ErrorRecoveryLevel above 0";
    NopIn = 0x20 "NOP-In";
    ScsiResponse = 0x21 "SCSI Response";
    TaskManagementResponse = 0x22 "SCSI Task Management Function Response";
    LoginResponse = 0x23 "Login Response";
    TextResponse = 0x24 "Text Response";
    DataIn = 0x25 "SCSI Data-In; over iSER data is written to the host's memory instead";
    LogoutResponse = 0x26 "Logout Response";
    ReadyToTransfer = 0x31 "Ready To Transfer; over iSER it never leaves the target";
    AsyncMessage = 0x32 "Asynchronous Message";
    Reject = 0x3f "Reject";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_an_opcode_and_back() {
        for byte in 0..=0x3f {
            assert_eq!(Opcode::from_wire(byte).to_wire(), byte);
            assert_eq!(
                Opcode::from_wire(byte | 0x40),
                Opcode::from_wire(byte),
                "immediate delivery is apart"
            );
        }
        assert_eq!(Opcode::from_wire(0x1c), Opcode::Unknown(0x1c));
    }
}
