//! What every device has to do for contexts: one suite, which each provider runs on a [`Rig`] of its own.
//!
//! A rig is a device with a peer behind it, and memory on both sides. Cases are generic over rigs and know no provider; what a
//! device can't do, by its capabilities, contexts do without. At the end of each case nothing may be left: no registration, no
//! credit, no byte elsewhere than it belongs. (rw-contexts 1 to 3)

mod bench;
pub(crate) mod credits;
pub(crate) mod failing;
pub(crate) mod forged;
pub(crate) mod hostile;
mod link;
pub(crate) mod plain;
pub(crate) mod registered;
pub(crate) mod segments;
pub(crate) mod signatures;
mod soft;
pub(crate) mod transfer;
#[cfg(feature = "verbs")]
mod verbs;

use crate::device::{Device, QpCap, Qpn};
use crate::mem::{Mr, Pd};
use crate::wc::Wc;

/// Bytes of each side's memory.
pub(crate) const MEMORY: usize = 1 << 20;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The device that is tested.
    Ours,
    /// What it talks to.
    Peer,
}

/// A device and its peer.
pub(crate) trait Rig {
    /// What is tested.
    type Device: Device;

    /// How many times as many rounds the random cases make: devices that are simulated are quick.
    const ROUNDS: u64;
    /// Whether of several faults in a block the first is named, in the order that software has.
    const NAMES_FIRST_FAULT: bool;

    /// The device that is tested.
    fn device(&mut self) -> &mut Self::Device;

    /// Where our memory belongs.
    fn pd(&self) -> Pd;

    /// [`MEMORY`] bytes, registered with all rights.
    fn memory(&self, side: Side) -> Mr;

    /// Writes memory.
    fn put(&mut self, side: Side, offset: usize, bytes: &[u8]);

    /// Reads memory.
    fn bytes(&self, side: Side, offset: usize, length: usize) -> Vec<u8>;

    /// A queue pair that is connected with the peer. A rig has at least one.
    fn connect(&mut self, cap: &QpCap) -> Qpn;

    /// Takes a queue pair away, at both ends.
    fn disconnect(&mut self, qpn: Qpn);

    /// Lets things move, and returns what completed of ours by then: at least `count`, if that many ever come.
    fn completions(&mut self, count: usize) -> Vec<Wc>;

    /// Regions that the device has, registered memory and others.
    fn live_mrs(&mut self) -> u64;
}

/// A rig whose peer is a device that does what it is told.
pub(crate) trait Peered: Rig {
    /// The peer's device.
    fn peer(&mut self) -> &mut Self::Device;

    /// The peer's queue pair, of one of ours.
    fn peer_qpn(&self, qpn: Qpn) -> Qpn;

    /// What completed of the peer's, of which at least `count` come.
    fn peer_completions(&mut self, count: usize) -> Vec<Wc>;

    /// The whole of the peer's memory once more, with a key of its own.
    fn peer_registers(&mut self) -> Mr;
}

/// Makes a test, with these attributes, of each case named, on rigs that `make` makes.
macro_rules! cases {
    (@case [$($attribute:tt)*] $make:expr, $family:ident, $case:ident) => {
        $($attribute)*
        #[test]
        fn $case() {
            crate::device::conformance::$family::$case($make);
        }
    };
    ($attributes:tt $make:expr; $($family:ident: $($case:ident)+;)+) => {
        $($(crate::device::conformance::cases!(@case $attributes $make, $family, $case);)+)+
    };
}
pub(crate) use cases;

/// The cases that any rig passes.
macro_rules! conforms {
    ($attributes:tt $make:expr) => {
        crate::device::conformance::cases! {
            $attributes $make;
            plain:
                lists_of_any_length_move_both_ways
                page_arrays_move_from_where_their_iterator_stands
                what_can_not_be_moved_is_refused_with_the_kernels_errno;
            registered: registrations_are_used_again_until_their_keys_have_come_round;
            signatures:
                tuples_are_made_checked_and_left_out_as_software_does_it
                a_status_is_asked_for_once_and_after_the_completion;
            segments:
                read_chunks_and_inline_bytes_become_the_message_that_was_sent
                a_call_chunk_with_read_chunks_inside_becomes_the_message_that_was_sent;
            credits: whoever_waits_for_credits_gets_them_in_turn;
            failing:
                what_was_never_posted_leaves_nothing
                a_queue_that_is_full_at_any_step_leaves_nothing;
        }
    };
}
pub(crate) use conforms;

/// The cases that rigs pass whose peer is a device.
macro_rules! conforms_with_a_peer {
    ($attributes:tt $make:expr) => {
        crate::device::conformance::conforms!($attributes $make);
        crate::device::conformance::cases! {
            $attributes $make;
            segments:
                payloads_go_to_write_chunks_the_rest_to_the_reply_chunk_and_all_before_the_send
                a_wrong_key_in_the_middle_of_a_list_fails_all_of_it;
            hostile:
                memory_that_was_not_granted_fails_the_context_alone
                a_key_that_is_taken_back_fails_the_context_that_was_made_with_it
                a_peer_that_invalidates_what_it_was_not_granted_loses_its_connection
                a_peer_that_closes_in_the_middle_leaves_nothing
                a_connection_that_is_closed_in_the_middle_leaves_nothing;
        }
    };
}
pub(crate) use conforms_with_a_peer;
