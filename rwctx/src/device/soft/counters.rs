//! What an endpoint counts.

/// Totals since the endpoint was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams received, good or not.
    pub rx_packets: u64,
    /// UDP payload bytes received.
    pub rx_bytes: u64,
    /// Packets given to the sink.
    pub tx_packets: u64,
    /// Payload bytes given to the sink, without headers, padding and ICRC.
    pub tx_bytes: u64,
    /// Dropped: the ICRC is wrong.
    pub drop_icrc: u64,
    /// Dropped: not a packet of a transport that we speak.
    pub drop_parse: u64,
    /// Dropped: another partition.
    pub drop_pkey: u64,
    /// Dropped: no such queue pair.
    pub drop_qpn: u64,
    /// Dropped: source or destination address is not the queue pair's.
    pub drop_address: u64,
    /// Dropped: the queue pair is not connected.
    pub drop_state: u64,
    /// Dropped: a response that no outstanding request explains.
    pub drop_response: u64,
    /// Dropped: of an unreliable datagram queue pair, which no endpoint has.
    pub drop_datagram: u64,
    /// Congestion notifications received.
    pub rx_cnps: u64,
    /// Duplicate requests received.
    pub duplicates: u64,
    /// Duplicate READ requests that were executed again.
    pub read_replays: u64,
    /// Requests received out of sequence.
    pub out_of_sequence: u64,
    /// Acknowledges sent.
    pub tx_acks: u64,
    /// Sequence NAKs sent.
    pub tx_sequence_naks: u64,
    /// RNR NAKs sent.
    pub tx_rnr_naks: u64,
    /// Fatal NAKs sent.
    pub tx_fatal_naks: u64,
    /// Acknowledges received.
    pub rx_acks: u64,
    /// Sequence NAKs received.
    pub rx_sequence_naks: u64,
    /// RNR NAKs received.
    pub rx_rnr_naks: u64,
    /// Fatal NAKs received.
    pub rx_fatal_naks: u64,
    /// Request packets sent again.
    pub retransmits: u64,
    /// READ requests sent again, whole or for the rest.
    pub read_rerequests: u64,
    /// READ responses that came twice.
    pub read_duplicates: u64,
    /// Retransmission timers that expired.
    pub timeouts: u64,
    /// Queue pairs that failed by themselves.
    pub qp_failures: u64,
    /// Work requests flushed.
    pub flushes: u64,
    /// Fast registrations of our own work requests.
    pub fast_registrations: u64,
}
