//! The suite on the soft device, as itself and as each persona, over sockets on loopback.

use std::net::{IpAddr, Ipv4Addr};

use super::link::Link;
use crate::device::DeviceCaps;
use crate::device::soft::device::{SoftConfig, SoftDevice};
use crate::device::soft::endpoint::{CAPS, IcrcCheck};
use crate::device::soft::persona::Persona;

/// Port 4791 of an address has one owner, and tests run side by side.
pub(super) fn fresh_address() -> IpAddr {
    Ipv4Addr::new(127, fastrand::u8(1..255), fastrand::u8(..), fastrand::u8(1..255)).into()
}

pub(super) fn open(address: IpAddr, caps: DeviceCaps, icrc: IcrcCheck) -> SoftDevice {
    let config = SoftConfig { caps, icrc, ..SoftConfig::new(vec![address], 1) };
    SoftDevice::open(&config).unwrap().remove(0)
}

fn link(caps: DeviceCaps) -> Link<SoftDevice> {
    let addresses = [fresh_address(), fresh_address()];
    // The peer is always the usual device: what it serves needs no registrations of its own.
    let devices = [caps, CAPS].into_iter().zip(addresses);
    let devices: Vec<SoftDevice> =
        devices.map(|(caps, address)| open(address, caps, IcrcCheck::On)).collect();
    let devices = devices.try_into().expect("two devices");
    Link::new(devices, addresses, [None; 2])
}

/// The suite on one kind of soft device, with a peer that is another, and with one that forges packets.
macro_rules! soft {
    ($($(#[$attribute:meta])* $kind:ident: $caps:expr;)+) => {$(
        $(#[$attribute])*
        mod $kind {
            use super::*;

            crate::device::conformance::conforms_with_a_peer!([] || link($caps));
            crate::device::conformance::cases! {
                [] || $caps;
                forged:
                    a_read_that_is_answered_short_fails
                    an_answer_that_comes_twice_counts_once
                    answers_to_nothing_are_no_answers
                    an_answer_that_comes_too_late_reaches_nobody
                    a_peer_that_falls_silent_is_given_up;
            }
        }
    )+};
}

soft! {
    usual: CAPS;
    rxe: Persona::Rxe.caps();
    mlx5: Persona::Mlx5.caps();
    iwarp: Persona::Iwarp.caps();
    /// Every context uses registrations (Linux module option `force_mr`).
    forced: DeviceCaps { force_mr: true, ..CAPS };
    /// Software runs signatures.
    without_integrity: DeviceCaps { max_pi_fast_reg_page_list_len: 0, ..CAPS };
}
