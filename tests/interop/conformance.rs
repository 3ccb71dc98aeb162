//! The suite that every device has to pass (`rwctx/src/device/conformance/`), on the verbs device over Linux's software RoCE.
//!
//! The program is the library's own tests, built with the verbs device (`./test.sh verbs` does that).

use std::time::Duration;

use intact_tests::guest::Guest;
use intact_tests::net::{JUMBO_MTU, Network, TargetPlace};
use intact_tests::target::built_with_verbs;
use intact_tests::vm::{Kernel, VmConfig};

const ADDRESS: &str = "10.77.0.1";

/// The cases, as the library's macros name them.
const CASES: [&str; 18] = [
    "lists_of_any_length_move_both_ways",
    "page_arrays_move_from_where_their_iterator_stands",
    "what_can_not_be_moved_is_refused_with_the_kernels_errno",
    "registrations_are_used_again_until_their_keys_have_come_round",
    "tuples_are_made_checked_and_left_out_as_software_does_it",
    "a_status_is_asked_for_once_and_after_the_completion",
    "read_chunks_and_inline_bytes_become_the_message_that_was_sent",
    "a_call_chunk_with_read_chunks_inside_becomes_the_message_that_was_sent",
    "payloads_go_to_write_chunks_the_rest_to_the_reply_chunk_and_all_before_the_send",
    "a_wrong_key_in_the_middle_of_a_list_fails_all_of_it",
    "whoever_waits_for_credits_gets_them_in_turn",
    "what_was_never_posted_leaves_nothing",
    "a_queue_that_is_full_at_any_step_leaves_nothing",
    "memory_that_was_not_granted_fails_the_context_alone",
    "a_key_that_is_taken_back_fails_the_context_that_was_made_with_it",
    "a_peer_that_invalidates_what_it_was_not_granted_loses_its_connection",
    "a_peer_that_closes_in_the_middle_leaves_nothing",
    "a_connection_that_is_closed_in_the_middle_leaves_nothing",
];

#[test]
fn contexts_on_software_roce_do_what_they_do_on_every_device() {
    let mut network = Network::new(JUMBO_MTU, TargetPlace::Guest);
    let mut config = VmConfig::new("conformance", Kernel::V6_12, 2);
    config.programs.push(built_with_verbs("conformance"));
    let mut guest = Guest::boot(&config, &mut network, 1);
    guest.check_within(Duration::from_secs(240), &format!("conformance.sh {ADDRESS}"), &CASES);
}
