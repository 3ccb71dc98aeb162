//! What the counters of all reactors are called towards Prometheus.

use std::sync::Arc;

use rwctx::device::provider::VerbsCounters;
use rwctx::device::soft::Counters;
use rwctx::device::soft::device::SoftCounters;

use crate::iscsi::rdma::IserStats;
use crate::iscsi::registry::Registry as IscsiRegistry;
use crate::metrics::{Family, Source};
use crate::nvmf::registry::Registry;
use crate::reactor::{DeviceCounters, Published};
use crate::transport::{Counter, Stats};

/// A counter's name, help, labels and place.
type Row<F> = (&'static str, &'static str, Labels, F);
type Labels = &'static [(&'static str, &'static str)];
type OfTransport = fn(&Stats) -> &Counter;
type OfIser = fn(&IserStats) -> &Counter;
type OfEndpoint = fn(&Counters) -> u64;
type OfSockets = fn(&SoftCounters) -> u64;
type OfVerbs = fn(&VerbsCounters) -> u64;

/// Counters that only grow.
const COUNTERS: &[Row<OfTransport>] = &[
    ("intact_nvme_commands", "Commands answered.", &[], |s| &s.commands),
    ("intact_nvme_failed_commands", "Commands answered with an error.", &[], |s| &s.failed_commands),
    ("intact_nvme_bytes", "Data moved.", &[("direction", "to_host")], |s| &s.bytes_to_host),
    ("intact_nvme_bytes", "Data moved.", &[("direction", "from_host")], |s| &s.bytes_from_host),
    ("intact_nvme_bad_capsules", "Capsules too short, or beyond the queue's size.", &[], |s| &s.bad_capsules),
    ("intact_nvme_cid_conflicts", "Commands with an identifier in use.", &[], |s| &s.cid_conflicts),
    ("intact_nvme_failed_queues", "Queues closed because of an error.", &[], |s| &s.failed_queues),
    ("intact_nvme_refused_queues", "Queues refused for want of room.", &[], |s| &s.refused_queues),
    ("intact_nvme_refused_connects", "Connect commands refused.", &[], |s| &s.refused_connects),
    ("intact_nvme_abandoned_queues", "Queues closed as no Connect came.", &[], |s| &s.abandoned_queues),
    ("intact_nvme_stuck_queues", "Queues closed as their host took no data.", &[], |s| &s.stuck_queues),
    ("intact_media_errors", "Operations that a medium failed, or did not complete in time.", &[], |s| {
        &s.media_errors
    }),
    ("intact_pi_errors", "Failed checks of protection information.", &[("field", "guard")], |s| {
        &s.guard_errors
    }),
    ("intact_pi_errors", "Failed checks of protection information.", &[("field", "app_tag")], |s| {
        &s.app_tag_errors
    }),
    ("intact_pi_errors", "Failed checks of protection information.", &[("field", "storage_tag")], |s| {
        &s.storage_tag_errors
    }),
    ("intact_pi_errors", "Failed checks of protection information.", &[("field", "ref_tag")], |s| {
        &s.ref_tag_errors
    }),
    (
        "intact_protection_signatures",
        "Transfers from hosts whose protection information the device checked or made.",
        &[],
        |s| &s.signatures,
    ),
    ("intact_waits", "Requests that waited.", &[("for", "buffer")], |s| &s.buffer_waits),
    ("intact_waits", "Requests that waited.", &[("for", "range")], |s| &s.range_waits),
    ("intact_waits", "Requests that waited.", &[("for", "engine")], |s| &s.engine_waits),
    ("intact_in_place_conflicts", "Reads in place that were copied, because somebody waited.", &[], |s| {
        &s.in_place_conflicts
    }),
    ("intact_reactor_busy_rounds", "Rounds that found work.", &[], |s| &s.busy_rounds),
    ("intact_reactor_sleeps", "Times that a reactor slept.", &[], |s| &s.sleeps),
];

/// Those of iSCSI.
const ISCSI: &[Row<OfIser>] = &[
    ("intact_iscsi_commands", "Commands answered.", &[], |i| &i.commands),
    ("intact_iscsi_failed_commands", "Commands answered with another status than GOOD.", &[], |i| {
        &i.failed_commands
    }),
    ("intact_iscsi_aborted_commands", "Commands that were aborted.", &[], |i| &i.aborted_commands),
    ("intact_iscsi_bytes", "Data moved.", &[("direction", "to_host")], |i| &i.bytes_to_host),
    ("intact_iscsi_bytes", "Data moved.", &[("direction", "from_host")], |i| &i.bytes_from_host),
    ("intact_iscsi_logins", "Sessions that began.", &[], |i| &i.logins),
    ("intact_iscsi_failed_logins", "Logins that came to nothing.", &[], |i| &i.failed_logins),
    ("intact_iscsi_refused_connections", "Connections refused for want of room.", &[], |i| {
        &i.refused_connections
    }),
    (
        "intact_iscsi_failed_sessions",
        "Sessions closed for what their host sent, or did not answer.",
        &[],
        |i| &i.failed_sessions,
    ),
    ("intact_iscsi_failed_connections", "Connections closed because of an error.", &[], |i| {
        &i.failed_connections
    }),
    ("intact_iscsi_stuck_connections", "Connections closed as their host took no data.", &[], |i| {
        &i.stuck_connections
    }),
];

const DROPS: &str = "Datagrams dropped before any queue pair acted on them.";
const NAKS_SENT: &str = "Negative acknowledges sent.";
const NAKS_RECEIVED: &str = "Negative acknowledges received.";

/// Counters of the reliable connections.
const ENDPOINT: &[Row<OfEndpoint>] = &[
    ("intact_roce_packets", "Packets.", &[("direction", "received")], |c| c.rx_packets),
    ("intact_roce_packets", "Packets.", &[("direction", "sent")], |c| c.tx_packets),
    ("intact_roce_bytes", "Bytes in packets.", &[("direction", "received")], |c| c.rx_bytes),
    ("intact_roce_bytes", "Bytes in packets.", &[("direction", "sent")], |c| c.tx_bytes),
    ("intact_roce_dropped", DROPS, &[("cause", "icrc")], |c| c.drop_icrc),
    ("intact_roce_dropped", DROPS, &[("cause", "malformed")], |c| c.drop_parse),
    ("intact_roce_dropped", DROPS, &[("cause", "pkey")], |c| c.drop_pkey),
    ("intact_roce_dropped", DROPS, &[("cause", "qpn")], |c| c.drop_qpn),
    ("intact_roce_dropped", DROPS, &[("cause", "address")], |c| c.drop_address),
    ("intact_roce_dropped", DROPS, &[("cause", "state")], |c| c.drop_state),
    ("intact_roce_dropped", DROPS, &[("cause", "response")], |c| c.drop_response),
    ("intact_roce_dropped", DROPS, &[("cause", "datagram")], |c| c.drop_datagram),
    (
        "intact_roce_congestion_notifications",
        "Congestion notifications received; nothing slows down for them.",
        &[],
        |c| c.rx_cnps,
    ),
    ("intact_roce_acks", "Positive acknowledges.", &[("direction", "received")], |c| c.rx_acks),
    ("intact_roce_acks", "Positive acknowledges.", &[("direction", "sent")], |c| c.tx_acks),
    ("intact_roce_duplicates", "Duplicate requests received.", &[], |c| c.duplicates),
    ("intact_roce_read_replays", "Duplicate READ requests that were executed again.", &[], |c| {
        c.read_replays
    }),
    ("intact_roce_out_of_sequence", "Requests received out of sequence.", &[], |c| c.out_of_sequence),
    ("intact_roce_naks_sent", NAKS_SENT, &[("kind", "sequence")], |c| c.tx_sequence_naks),
    ("intact_roce_naks_sent", NAKS_SENT, &[("kind", "rnr")], |c| c.tx_rnr_naks),
    ("intact_roce_naks_sent", NAKS_SENT, &[("kind", "fatal")], |c| c.tx_fatal_naks),
    ("intact_roce_naks_received", NAKS_RECEIVED, &[("kind", "sequence")], |c| c.rx_sequence_naks),
    ("intact_roce_naks_received", NAKS_RECEIVED, &[("kind", "rnr")], |c| c.rx_rnr_naks),
    ("intact_roce_naks_received", NAKS_RECEIVED, &[("kind", "fatal")], |c| c.rx_fatal_naks),
    ("intact_roce_retransmits", "Request packets sent again.", &[], |c| c.retransmits),
    ("intact_roce_read_rerequests", "READ requests sent again, whole or for the rest.", &[], |c| {
        c.read_rerequests
    }),
    ("intact_roce_read_duplicates", "READ responses that came twice.", &[], |c| c.read_duplicates),
    ("intact_roce_timeouts", "Retransmission timers that expired.", &[], |c| c.timeouts),
    ("intact_roce_qp_failures", "Queue pairs that failed by themselves.", &[], |c| c.qp_failures),
    ("intact_roce_flushes", "Work requests flushed.", &[], |c| c.flushes),
    ("intact_roce_fast_registrations", "Fast registrations that were carried out.", &[], |c| {
        c.fast_registrations
    }),
];

/// Counters of the sockets.
const SOCKETS: &[Row<OfSockets>] = &[
    (
        "intact_socket_datagrams",
        "Datagrams; a segmentation batch holds several.",
        &[("direction", "received")],
        |c| c.rx.datagrams,
    ),
    (
        "intact_socket_datagrams",
        "Datagrams; a segmentation batch holds several.",
        &[("direction", "sent")],
        |c| c.tx.packets,
    ),
    ("intact_socket_bytes", "Bytes after the UDP header.", &[("direction", "received")], |c| c.rx.bytes),
    ("intact_socket_bytes", "Bytes after the UDP header.", &[("direction", "sent")], |c| c.tx.bytes),
    ("intact_socket_send_messages", "Segmentation batches and single datagrams.", &[], |c| c.tx.messages),
    ("intact_socket_calls", "System calls.", &[("call", "recvmmsg")], |c| c.rx.calls),
    ("intact_socket_calls", "System calls.", &[("call", "sendmmsg")], |c| c.tx.calls),
    (
        "intact_socket_receive_drops",
        "Datagrams that the kernel dropped: a receive buffer was full.",
        &[],
        |c| c.rx.drops,
    ),
    ("intact_socket_receive_malformed", "Messages of the kernel that could not be used.", &[], |c| {
        c.rx.malformed
    }),
    ("intact_socket_receive_errors", "Receive calls that failed.", &[], |c| c.rx.errors),
    ("intact_socket_send_errors", "Messages that the kernel refused to send.", &[], |c| c.tx.errors),
    ("intact_socket_send_too_long", "Those of them that exceeded an interface's MTU.", &[], |c| {
        c.tx.too_long
    }),
    (
        "intact_socket_send_no_source",
        "Packets dropped unsent, as their source address is not ours.",
        &[],
        |c| c.tx.no_source,
    ),
    (
        "intact_socket_send_no_room",
        "Packets dropped unsent: to peers that may not exist, while the kernel had no room.",
        &[],
        |c| c.tx.no_room,
    ),
    ("intact_socket_segmentation_refused", "Batches that went as single datagrams.", &[], |c| {
        c.tx.segmentation_refused
    }),
    ("intact_gsi_dropped", "Datagrams to queue pair 1 that were no management datagrams.", &[], |c| {
        c.gsi_dropped
    }),
];

const UNCONFIRMED: &str = "Connection requests refused before their peers showed that they exist.";

/// Counters of a verbs device.
const VERBS: &[Row<OfVerbs>] = &[
    ("intact_verbs_work_requests", "Work requests posted.", &[("queue", "send")], |v| v.sends),
    ("intact_verbs_work_requests", "Work requests posted.", &[("queue", "receive")], |v| v.receives),
    ("intact_verbs_send_calls", "Calls that posted sends, all of a queue pair at once.", &[], |v| {
        v.send_calls
    }),
    ("intact_verbs_completions", "Completions.", &[], |v| v.completions),
    ("intact_verbs_failed_completions", "Those with an error other than a flush.", &[], |v| v.failures),
    ("intact_verbs_notifications", "Completions that woke a reactor.", &[], |v| v.notifications),
    ("intact_verbs_qp_failures", "Queue pairs that failed by themselves.", &[], |v| v.qp_failures),
    ("intact_verbs_port_errors", "Times that a port went down.", &[], |v| v.port_errors),
    ("intact_verbs_connection_requests", "Connection requests.", &[], |v| v.requests),
    ("intact_verbs_unconfirmed_ended", UNCONFIRMED, &[("reason", "no_room")], |v| v.crowded_out),
    ("intact_verbs_unconfirmed_ended", UNCONFIRMED, &[("reason", "displaced")], |v| v.displaced),
    ("intact_verbs_unconfirmed_ended", UNCONFIRMED, &[("reason", "expired")], |v| v.expired),
    ("intact_verbs_cm_failures", "Calls of the connection manager that came to nothing.", &[], |v| {
        v.cm_failures
    }),
];

/// Where a reactor's counters are read.
#[derive(Clone, Debug)]
pub struct ReactorStats {
    /// Of its queues and commands.
    pub transport: Arc<Stats>,
    /// Of its iSCSI connections.
    pub iser: Arc<IserStats>,
    /// Of its device.
    pub device: Arc<Published>,
}

/// Where metrics come from: the counters of each reactor, and who is connected.
#[must_use]
pub fn source(reactors: Vec<ReactorStats>, registry: Arc<Registry>, targets: Arc<IscsiRegistry>) -> Source {
    Arc::new(move || families(&reactors, &registry, &targets))
}

fn families(reactors: &[ReactorStats], registry: &Registry, targets: &IscsiRegistry) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for (name, help, labels, counter) in COUNTERS {
        let values = reactors.iter().map(|reactor| counter(&reactor.transport).value());
        add(&mut families, name, help, labels, values);
    }
    for (name, help, labels, counter) in ISCSI {
        add(&mut families, name, help, labels, reactors.iter().map(|reactor| counter(&reactor.iser).value()));
    }
    let devices: Vec<DeviceCounters> = reactors.iter().map(|reactor| reactor.device.counters()).collect();
    if devices.iter().any(|device| device.provider.verbs.is_some()) {
        for (name, help, labels, counter) in VERBS {
            let values = devices.iter().map(|device| device.provider.verbs.as_ref().map_or(0, counter));
            add(&mut families, name, help, labels, values);
        }
    } else {
        add_soft(&mut families, &devices);
    }
    if let Some(first) = devices.first() {
        families.push(
            Family::counter("intact_nvme_rejected_connections", "Connection requests refused.")
                .with(&[], first.rejected),
        );
    }
    let mut queues = Family::gauge("intact_nvme_queues", "Queues open.");
    for (index, stats) in reactors.iter().enumerate() {
        queues = queues.with(&[("reactor", index.to_string().as_str())], stats.transport.queues.value());
    }
    families.push(queues);
    let mut connections = Family::gauge("intact_iscsi_connections", "iSCSI connections open.");
    for (index, stats) in reactors.iter().enumerate() {
        let reactor = index.to_string();
        connections = connections.with(&[("reactor", reactor.as_str())], stats.iser.connections.value());
    }
    families.push(connections);
    let mut regions = Family::gauge("intact_memory_regions", "Memory regions of the device.");
    for (index, device) in devices.iter().enumerate() {
        let soft = device.provider.soft.as_ref().map(|soft| soft.memory_regions.into());
        let verbs = device.provider.verbs.as_ref().map(|v| v.memory_regions);
        let live = soft.or(verbs).unwrap_or_default();
        regions = regions.with(&[("reactor", index.to_string().as_str())], live);
    }
    families.push(regions);
    let mut controllers = Family::gauge("intact_nvme_controllers", "Controllers, by subsystem.");
    let mut counts = std::collections::BTreeMap::new();
    for controller in registry.controllers() {
        *counts.entry(controller.subnqn).or_insert(0_u64) += 1;
    }
    for (subsystem, count) in &counts {
        controllers = controllers.with(&[("subsystem", subsystem)], *count);
    }
    families.push(controllers);
    let mut sessions =
        Family::gauge("intact_iscsi_sessions", "Sessions, by target; those of discovery have none.");
    let mut counts = std::collections::BTreeMap::new();
    for session in targets.sessions() {
        let target = session.target.map(|target| target.as_str().to_owned()).unwrap_or_default();
        *counts.entry(target).or_insert(0_u64) += 1;
    }
    for (target, count) in &counts {
        sessions = sessions.with(&[("target", target)], *count);
    }
    families.push(sessions);
    families
}

/// The counters of soft devices: zeroes until the reactors ran.
fn add_soft(families: &mut Vec<Family>, devices: &[DeviceCounters]) {
    for (name, help, labels, counter) in ENDPOINT {
        let of =
            |device: &DeviceCounters| device.provider.soft.as_ref().map_or(0, |soft| counter(&soft.endpoint));
        add(families, name, help, labels, devices.iter().map(of));
    }
    for (name, help, labels, counter) in SOCKETS {
        let values = devices.iter().map(|device| device.provider.soft.as_ref().map_or(0, counter));
        add(families, name, help, labels, values);
    }
    if let Some(first) = devices.first() {
        let cm = first.provider.cm.unwrap_or_default();
        families.push(
            Family::counter(
                "intact_cm_messages",
                "Connection manager messages that came to nothing, or were repeated.",
            )
            .with(&[("what", "malformed")], cm.malformed)
            .with(&[("what", "over_limit")], cm.over_limit)
            .with(&[("what", "displaced")], cm.displaced)
            .with(&[("what", "refused")], cm.refused)
            .with(&[("what", "unanswered")], cm.unanswered)
            .with(&[("what", "retransmitted")], cm.retransmitted),
        );
    }
}

/// Adds a value of each reactor to the family of this name, which is the last one if there is one.
fn add(
    families: &mut Vec<Family>,
    name: &'static str,
    help: &'static str,
    labels: Labels,
    values: impl Iterator<Item = u64>,
) {
    let mut family = match families.pop() {
        Some(last) if last.name == name => last,
        other => {
            families.extend(other);
            Family::counter(name, help)
        }
    };
    for (index, value) in values.enumerate() {
        let reactor = index.to_string();
        let mut all = vec![("reactor", reactor.as_str())];
        all.extend_from_slice(labels);
        family = family.with(&all, value);
    }
    families.push(family);
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// The names of a structure's numbers.
    fn fields(counters: &impl Debug) -> Vec<String> {
        let text = format!("{counters:#?}");
        let names = text.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
        names.map(|(name, _)| name.to_owned()).filter(|name| !name.starts_with(' ')).collect()
    }

    #[test]
    fn what_is_counted_is_shown() {
        let rows = include_str!("stats.rs").split("#[cfg(test)]").next().unwrap();
        let shown = |path: String| {
            let at = rows.match_indices(&path).map(|(at, found)| rows[at + found.len()..].chars().next());
            let mut next = at.flatten();
            next.any(|next| !next.is_alphanumeric() && next != '_')
        };
        let soft = SoftCounters::default();
        let all = [
            ("s.", fields(&Stats::default())),
            ("i.", fields(&IserStats::default())),
            ("c.", fields(&soft.endpoint)),
            ("c.rx.", fields(&soft.rx)),
            ("c.tx.", fields(&soft.tx)),
            ("v.", fields(&VerbsCounters::default())),
        ];
        for (of, names) in all {
            assert!(names.len() > 5, "{of}: {names:?}");
            for name in names {
                assert!(
                    shown(format!("{of}{name}")) || name == "queues" || name == "connections",
                    "no metric shows {of}{name}"
                );
            }
        }
    }
}
