//! Counters of one reactor's iSCSI connections: written by the reactor alone, read by whoever serves metrics.

use crate::transport::Counter;

/// Counters of one reactor's iSCSI connections. What volumes, buffers and protection information add is counted with the
/// transport's.
#[derive(Debug, Default)]
pub struct IserStats {
    /// Commands answered.
    pub commands: Counter,
    /// Commands answered with another status than GOOD.
    pub failed_commands: Counter,
    /// Commands that were aborted.
    pub aborted_commands: Counter,
    /// Bytes of data that hosts read.
    pub bytes_to_host: Counter,
    /// Bytes of data that hosts wrote.
    pub bytes_from_host: Counter,
    /// Sessions that began.
    pub logins: Counter,
    /// Logins that came to nothing.
    pub failed_logins: Counter,
    /// Connections that were refused for want of room, or to leave room to others.
    pub refused_connections: Counter,
    /// Sessions closed because of what their host sent, or did not answer.
    pub failed_sessions: Counter,
    /// Connections closed because of an error.
    pub failed_connections: Counter,
    /// Connections closed because their host did not take data or responses.
    pub stuck_connections: Counter,
    /// Connections now open.
    pub connections: Counter,
}
