use proptest::prelude::*;
use rwctx::remote::{RemoteAddr, Rkey};
use zerocopy::{FromBytes, IntoBytes};

use super::async_message::{AsyncEvent, AsyncMessage};
use super::bhs::{BHS_LEN, Bhs, Numbers, Order};
use super::iser::{Control, ISER_HEADER_LEN, IserHeader};
use super::login::{Isid, LoginResponse, LoginStatus, Stage, Step, Tsih};
use super::message::{HEADERS_LEN, Message, MessageError};
use super::nop::NopOut;
use super::number::{Itt, Lun, Sn, Ttt};
use super::opcode::Opcode;
use super::pdu::{Pdu, PduError};
use super::reject::{Reject, RejectReason};
use super::scsi::{Residual, ScsiCommand, ScsiResponse, TaskAttribute};
use super::task::{TaskFunction, TaskRequest, TaskResponse, TaskResponseCode};
use crate::iscsi::recorded::{DISCOVERY, NORMAL, Recorded, recorded};

fn bhs(hex: &str) -> Bhs {
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    Bhs::read_from_bytes(&bytes).unwrap()
}

const ORDER: Order = Order { immediate: false, cmd_sn: Sn(0x10), exp_stat_sn: Sn(0x20) };
const NUMBERS: Numbers = Numbers { stat_sn: Sn(0x21), exp_cmd_sn: Sn(0x11), max_cmd_sn: Sn(0x50) };

#[test]
fn every_recorded_message_is_emitted_again_byte_for_byte() {
    let mut seen = 0;
    for qpn in [DISCOVERY, NORMAL] {
        for record in recorded(qpn) {
            let (Recorded::Host(bytes) | Recorded::Target(bytes, _)) = record else { continue };
            let message = Message::parse(&bytes).unwrap();
            let pdu = Pdu::parse(message.bhs).unwrap();
            let mut header = pdu.emit();
            header.set_data_len(message.data.len());
            assert_eq!(header, *message.bhs, "{pdu:?}");
            let mut again = vec![0xff; message.emitted_len()];
            Message { bhs: &header, ..message }.emit(&mut again);
            assert_eq!(again, bytes, "{pdu:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, 54);
}

#[test]
fn a_recorded_write_with_immediate_data_is_read_exactly() {
    let write = recorded(NORMAL).into_iter().find_map(|record| match record {
        Recorded::Host(bytes) if bytes.len() > 8192 => Some(bytes),
        _ => None,
    });
    let bytes = write.unwrap();
    let message = Message::parse(&bytes).unwrap();
    let at = RemoteAddr { addr: 0xff22_2880_8998_c000, rkey: Rkey(0x7811) };
    assert_eq!(message.control, Control { write: Some(at), read: None });
    assert_eq!((message.data.len(), message.data_offset(), message.ahs.len()), (8192, HEADERS_LEN, 0));
    let Ok(Pdu::ScsiCommand(command)) = Pdu::parse(message.bhs) else { panic!("{message:?}") };
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x2a, 0x20);
    let order = Order { immediate: false, cmd_sn: Sn(0x13), exp_stat_sn: Sn(0xcddd_160a) };
    let expected = ScsiCommand {
        order,
        last: true,
        to_host: false,
        from_host: true,
        attribute: TaskAttribute::Simple,
        lun: Lun::default(),
        itt: Itt(0x1400_0000),
        expected_length: 0x2_0000,
        cdb,
    };
    assert_eq!(command, expected);
}

#[test]
fn fields_stand_where_the_rfc_draws_them() {
    let task = TaskRequest {
        order: Order { immediate: true, ..ORDER },
        function: TaskFunction::AbortTask,
        lun: Lun([0, 3, 0, 0, 0, 0, 0, 0]),
        itt: Itt(7),
        referenced: Itt(6),
        ref_cmd_sn: Sn(0x0f),
        exp_data_sn: 0,
    };
    let at = |words: [&str; 6]| bhs(&words.concat());
    assert_eq!(
        task.emit(),
        at([
            "4281000000000000",
            "0003000000000000",
            "0000000700000006",
            "0000001000000020",
            "0000000f00000000",
            "0000000000000000"
        ])
    );
    let done = TaskResponse { code: TaskResponseCode::Rejected, itt: Itt(7), numbers: NUMBERS };
    assert_eq!(
        done.emit(),
        at([
            "2280ff0000000000",
            "0000000000000000",
            "0000000700000000",
            "0000002100000011",
            "0000005000000000",
            "0000000000000000"
        ])
    );
    let nop = NopOut {
        order: Order { immediate: true, ..ORDER },
        lun: Lun::default(),
        itt: Itt::NONE,
        ttt: Ttt(9),
    };
    assert_eq!(
        nop.emit(),
        at([
            "4080000000000000",
            "0000000000000000",
            "ffffffff00000009",
            "0000001000000020",
            "0000000000000000",
            "0000000000000000"
        ])
    );
    let reject = Reject { reason: RejectReason::InvalidField, numbers: NUMBERS, data_sn: 0 };
    assert_eq!(
        reject.emit(),
        at([
            "3f80090000000000",
            "0000000000000000",
            "ffffffff00000000",
            "0000002100000011",
            "0000005000000000",
            "0000000000000000"
        ])
    );
    let dropped = AsyncMessage {
        event: AsyncEvent::ConnectionDropped { cid: 1, time_to_wait: 2, time_to_retain: 3 },
        vendor_code: 4,
        lun: Lun::default(),
        numbers: NUMBERS,
    };
    assert_eq!(
        dropped.emit(),
        at([
            "3280000000000000",
            "0000000000000000",
            "ffffffff00000000",
            "0000002100000011",
            "0000005002040001",
            "0002000300000000"
        ])
    );
    let over = ScsiResponse {
        response: super::scsi::ServiceResponse::Completed,
        status: 2,
        itt: Itt(5),
        numbers: NUMBERS,
        residual: Residual::Overflow(0x200),
    };
    assert_eq!(
        over.emit(),
        at([
            "2184000200000000",
            "0000000000000000",
            "0000000500000000",
            "0000002100000011",
            "0000005000000000",
            "0000000000000200"
        ])
    );
    let refused = LoginResponse {
        step: Step::Stay(Stage::Security),
        version_max: 0,
        version_active: 0,
        isid: Isid([0x40, 1, 2, 3, 4, 5]),
        tsih: Tsih(0),
        itt: Itt(1),
        numbers: NUMBERS,
        status: LoginStatus::NotFound,
    };
    assert_eq!(
        refused.emit(),
        at([
            "2300000000000000",
            "4001020304050000",
            "0000000100000000",
            "0000002100000011",
            "0000005002030000",
            "0000000000000000"
        ])
    );
}

#[test]
fn what_has_no_place_over_iser_is_named_and_refused() {
    let of = |opcode: u8, flags: u8| {
        let mut header = bhs(&"00".repeat(BHS_LEN));
        (header.opcode, header.flags) = (opcode, flags);
        Pdu::parse(&header).unwrap_err()
    };
    assert_eq!(of(0x05, 0x80), PduError::NotOverIser(Opcode::DataOut));
    assert_eq!(of(0x25, 0x80), PduError::NotOverIser(Opcode::DataIn));
    assert_eq!(of(0x31, 0x80), PduError::NotOverIser(Opcode::ReadyToTransfer));
    assert_eq!(of(0x10, 0x80), PduError::NotSupported(Opcode::SnackRequest));
    assert_eq!(of(0x1e, 0x80), PduError::NotSupported(Opcode::Unknown(0x1e)));
    for (opcode, flags) in [
        (0x03, 0xc7), // T and C
        (0x03, 0x08), // CSG 2
        (0x03, 0x0c), // CSG 3
        (0x03, 0x86), // NSG 2
        (0x03, 0x85), // from 1 to 1
        (0x03, 0x84), // from 1 to 0
        (0x04, 0xc0), // F and C
        (0x21, 0x86), // overflow and underflow
    ] {
        assert!(matches!(of(opcode, flags), PduError::Field(_)), "{opcode:#x} {flags:#x}");
    }
}

#[test]
fn lengths_must_be_those_of_the_message() {
    let mut bytes = recorded(NORMAL).into_iter().find_map(|record| match record {
        Recorded::Host(bytes) => Some(bytes),
        _ => None,
    });
    let bytes = bytes.as_mut().unwrap();
    let length = |bytes: &[u8]| Message::parse(bytes).unwrap_err();
    assert_eq!(length(&bytes[..HEADERS_LEN - 1]), MessageError::Short(75));
    assert_eq!(length(&[]), MessageError::Short(0));
    assert_eq!(length(&bytes[..HEADERS_LEN + 441]), MessageError::Length { named: 442, found: 441 });
    bytes.extend([0; 2]);
    assert_eq!(length(bytes), MessageError::Length { named: 442, found: 446 });
    bytes[ISER_HEADER_LEN + 4] = 0xff;
    assert!(matches!(length(bytes), MessageError::Length { named: 1462, .. }));
    bytes[0] = 0x20;
    assert!(matches!(length(bytes), MessageError::Header(IserHeader::Hello { .. })));
}

proptest! {
    #[test]
    fn what_parses_is_the_same_after_it_was_emitted(
        first in any::<[u8; 16]>(),
        second in any::<[u8; 32]>(),
        opcode in prop::sample::select(vec![
            0, 1, 2, 3, 4, 6, 0x20, 0x21, 0x22, 0x23, 0x24, 0x26, 0x32, 0x3f, 0x40, 0x41, 0x43, 0x7f,
        ]),
    ) {
        let mut raw = [0; BHS_LEN];
        raw[..16].copy_from_slice(&first);
        raw[16..].copy_from_slice(&second);
        raw[0] = opcode;
        let header = Bhs::read_from_bytes(&raw).unwrap();
        if let Ok(pdu) = Pdu::parse(&header) {
            let emitted = pdu.emit();
            prop_assert_eq!(Pdu::parse(&emitted), Ok(pdu));
            // Nothing is emitted that wasn't there, but F where the RFC wants it always.
            for (at, (new, old)) in emitted.as_bytes().iter().zip(&raw).enumerate() {
                let allowed = if at == 1 { old | 0x80 } else { *old };
                let none = (16..20).contains(&at) && matches!(pdu, Pdu::Reject(_) | Pdu::AsyncMessage(_));
                prop_assert!(none || new & !allowed == 0, "byte {}", at);
            }
        }
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(
        flags in any::<u8>(),
        header in prop::collection::vec(any::<u8>(), HEADERS_LEN - 1),
        rest in prop::collection::vec(any::<u8>(), 0..64),
        length in 0_u8..70,
    ) {
        let mut bytes = [&[flags & 0x3c | 0x10][..], &header, &rest].concat();
        bytes[ISER_HEADER_LEN + 4..ISER_HEADER_LEN + 8].copy_from_slice(&[flags & 3, 0, 0, length]);
        if let Ok(message) = Message::parse(&bytes) {
            let _ = Pdu::parse(message.bhs);
            let _ = super::ahs::parse(message.ahs);
            let mut again = vec![0; message.emitted_len()];
            message.emit(&mut again);
            prop_assert_eq!(Message::parse(&again).map(|again| (again.bhs, again.ahs, again.data)),
                Ok((message.bhs, message.ahs, message.data)));
        }
    }

    #[test]
    fn iser_headers_are_the_same_after_they_were_emitted(bytes in any::<[u8; ISER_HEADER_LEN]>()) {
        let header = IserHeader::parse(&bytes);
        prop_assert_eq!(IserHeader::parse(&header.emit()), header);
    }
}
