//! PERSISTENT RESERVE IN. (SPC-4 "PERSISTENT RESERVE IN".)

use super::{Persistence, Registration, Reservations};
use crate::scsi::cdb::StatusOf;

/// SCOPE of every reservation here.
const LU_SCOPE: u8 = 0 << 4;

impl Reservations {
    /// The parameter data, untruncated: at most 256 registrations' worth.
    #[must_use]
    pub fn report(&self, of: StatusOf) -> Vec<u8> {
        let body = match of {
            StatusOf::Capabilities => return self.capabilities().to_vec(),
            StatusOf::Keys => self.registrations.iter().flat_map(|r| r.key.to_be_bytes()).collect(),
            StatusOf::Reservation => self.reservation_descriptor(),
            StatusOf::Registrations => self.registrations.iter().flat_map(|r| self.full_status(r)).collect(),
        };
        let len = u32::try_from(body.len()).expect("registrations are few");
        [self.generation.to_be_bytes().as_slice(), &len.to_be_bytes(), &body].concat()
    }

    fn reservation_descriptor(&self) -> Vec<u8> {
        let Some(reservation) = &self.reservation else { return Vec::new() };
        // Held by all registrants, it has no key of its own.
        let holder = self.registrations.iter().find(|r| Some(&r.nexus) == reservation.holder.as_ref());
        let mut data = vec![0; 16];
        data[..8].copy_from_slice(&holder.map_or(0, |r| r.key).to_be_bytes());
        data[13] = LU_SCOPE | u8::from(reservation.kind);
        data
    }

    fn full_status(&self, registration: &Registration) -> Vec<u8> {
        const R_HOLDER: u8 = 1 << 0;
        let id = registration.nexus.initiator.transport_id();
        let mut data = vec![0; 24];
        data[..8].copy_from_slice(&registration.key.to_be_bytes());
        if let Some(reservation) = self.reservation.as_ref().filter(|_| self.holds(registration)) {
            data[12] = R_HOLDER;
            data[13] = LU_SCOPE | u8::from(reservation.kind);
        }
        data[18..20].copy_from_slice(&registration.nexus.target_port.to_be_bytes());
        data[20..24].copy_from_slice(&u32::try_from(id.len()).expect("names are short").to_be_bytes());
        data.extend(id);
        data
    }

    fn capabilities(&self) -> [u8; 8] {
        /// CRH: RESERVE and RELEASE of who has a part in the reservation succeed.
        const COMPATIBLE: u8 = 1 << 4;
        const CAN_BE_STORED: u8 = 1 << 0;
        /// TMV: the mask of types is valid. ALLOW COMMANDS 001b: TEST UNIT READY is allowed under all.
        const TYPE_MASK_VALID: u8 = 1 << 7;
        const TEST_UNIT_READY_ALLOWED: u8 = 0b001 << 4;
        const IS_STORED: u8 = 1 << 0;
        /// The six types.
        const TYPES: [u8; 2] = [0b1110_1010, 0b0000_0001];
        let can = if self.persistence == Persistence::Stored { CAN_BE_STORED } else { 0 };
        let is = if self.kept { IS_STORED } else { 0 };
        let allowed = TYPE_MASK_VALID | TEST_UNIT_READY_ALLOWED | is;
        [0, 8, COMPATIBLE | can, allowed, TYPES[0], TYPES[1], 0, 0]
    }
}
