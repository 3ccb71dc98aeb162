//! The request for a connection (IBTA 12.6.5), its paths, and the header of rdma_cm (annex A11).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY_LEN, split, word};
use crate::device::{PathMtu, Qpn};

/// Bytes of private data that the user of a connection may put into a REQ, behind the rdma_cm header.
pub const REQ_PRIVATE_LEN: usize = 56;

/// Service IDs of rdma_cm's TCP port space; the low 16 bits are the port.
const SERVICE_TCP: u64 = 0x0106_0000;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPath {
    local_lid: U16,
    remote_lid: U16,
    local_gid: [u8; 16],
    remote_gid: [u8; 16],
    /// Flow label (20), reserved (6), packet rate (6).
    flow: U32,
    traffic_class: u8,
    hop_limit: u8,
    /// Service level (4), subnet local (1), reserved (3).
    level: u8,
    /// Local ACK timeout (5), reserved (3).
    ack_timeout: u8,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawReq {
    local_comm_id: U32,
    vendor: U32,
    service_id: U64,
    local_ca_guid: U64,
    reserved: U32,
    local_qkey: U32,
    /// Local QPN (24), responder resources (8).
    qpn: U32,
    /// Local EECN (24), initiator depth (8).
    local_eecn: U32,
    /// Remote EECN (24), remote CM response timeout (5), transport service (2), end-to-end flow control (1).
    remote_eecn: U32,
    /// Starting PSN (24), local CM response timeout (5), retry count (3).
    psn: U32,
    pkey: U16,
    /// Path MTU (4), RDC exists (1), RNR retry count (3).
    mtu: u8,
    /// Max CM retries (4), SRQ (1), extended transport (3).
    retries: u8,
    primary: RawPath,
    alternate: RawPath,
    cma: RawCmaHeader,
    private: [u8; REQ_PRIVATE_LEN],
}

/// Annex A11.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCmaHeader {
    version: u8,
    /// IP version (4), reserved (4).
    ip_version: u8,
    port: U16,
    src: [u8; 16],
    dst: [u8; 16],
}

const _: () = assert!(size_of::<RawPath>() == 44);
const _: () = assert!(size_of::<RawCmaHeader>() == 36);
const _: () = assert!(size_of::<RawReq>() == BODY_LEN);

/// Request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Req {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// Service wanted; see [`service_port`].
    pub service_id: u64,
    /// The sender's channel adapter.
    pub ca_guid: u64,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// READs that the sender serves at once.
    pub responder_resources: u8,
    /// READs that the sender may have outstanding.
    pub initiator_depth: u8,
    /// Exponent (0-31) of the time in which the receiver should answer.
    pub remote_response_timeout: u8,
    /// 0 = reliable connection.
    pub transport: u8,
    /// End-to-end credits.
    pub flow_control: bool,
    /// PSN at which the receiver starts to send, 24 bits.
    pub starting_psn: u32,
    /// Exponent (0-31) of the time in which the sender answers.
    pub local_response_timeout: u8,
    /// Transport retries, 0-7.
    pub retry_count: u8,
    /// Partition.
    pub pkey: u16,
    /// Path MTU, or the code that is none.
    pub path_mtu: Result<PathMtu, u8>,
    /// RNR retries, 0-7.
    pub rnr_retry_count: u8,
    /// CM retries, 0-15.
    pub max_cm_retries: u8,
    /// The sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// The path.
    pub primary: Path,
    /// A spare path; all zero when there is none.
    pub alternate: Path,
    /// The rdma_cm header; `None` when it has no known version.
    pub cma: Option<CmaHeader>,
    /// Private data of the connection's user.
    pub private: [u8; REQ_PRIVATE_LEN],
}

/// A path between two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Local identifiers, 0xFFFF on RoCE, of the sender and the receiver.
    pub lids: [u16; 2],
    /// The sender's address.
    pub local_gid: Ipv6Addr,
    /// The receiver's address.
    pub remote_gid: Ipv6Addr,
    /// 20 bits.
    pub flow_label: u32,
    /// IBTA code, 6 bits.
    pub packet_rate: u8,
    /// IP traffic class.
    pub traffic_class: u8,
    /// IP hop limit.
    pub hop_limit: u8,
    /// 4 bits.
    pub service_level: u8,
    /// Whether both ends are in one subnet.
    pub subnet_local: bool,
    /// Exponent (0-31) of the sender's transport timer.
    pub ack_timeout: u8,
}

/// What rdma_cm says about the connection's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmaHeader {
    /// The initiator's port.
    pub src_port: u16,
    /// The initiator's address.
    pub src: IpAddr,
    /// The target's address.
    pub dst: IpAddr,
}

/// The port of a service ID of rdma_cm's TCP port space.
#[must_use]
pub fn service_port(service_id: u64) -> Option<u16> {
    u16::try_from(service_id ^ SERVICE_TCP).ok()
}

/// The service ID of a port of rdma_cm's TCP port space.
#[must_use]
pub fn service_id(port: u16) -> u64 {
    SERVICE_TCP | u64::from(port)
}

/// An address as a GID.
#[must_use]
pub fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

impl Path {
    fn from_raw(raw: &RawPath) -> Self {
        let flow = raw.flow.get();
        let [.., rate] = flow.to_be_bytes();
        Self {
            lids: [raw.local_lid.get(), raw.remote_lid.get()],
            local_gid: raw.local_gid.into(),
            remote_gid: raw.remote_gid.into(),
            flow_label: flow >> 12,
            packet_rate: rate & 0x3F,
            traffic_class: raw.traffic_class,
            hop_limit: raw.hop_limit,
            service_level: raw.level >> 4,
            subnet_local: raw.level & 8 != 0,
            ack_timeout: raw.ack_timeout >> 3,
        }
    }

    fn to_raw(self) -> RawPath {
        RawPath {
            local_lid: U16::new(self.lids[0]),
            remote_lid: U16::new(self.lids[1]),
            local_gid: self.local_gid.octets(),
            remote_gid: self.remote_gid.octets(),
            flow: U32::new(self.flow_label << 12 | u32::from(self.packet_rate & 0x3F)),
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            level: self.service_level << 4 | u8::from(self.subnet_local) << 3,
            ack_timeout: self.ack_timeout << 3,
        }
    }

    /// No path.
    #[must_use]
    pub fn none() -> Self {
        Self::from_raw(&RawPath::new_zeroed())
    }
}

impl CmaHeader {
    fn from_raw(raw: &RawCmaHeader) -> Option<Self> {
        let address: fn(&[u8; 16]) -> IpAddr = match raw.ip_version >> 4 {
            4 => |bytes| {
                let [.., a, b, c, d] = *bytes;
                Ipv4Addr::new(a, b, c, d).into()
            },
            6 => |bytes| Ipv6Addr::from(*bytes).into(),
            _ => return None,
        };
        if raw.version != 0 {
            return None;
        }
        Some(Self { src_port: raw.port.get(), src: address(&raw.src), dst: address(&raw.dst) })
    }

    fn to_raw(self) -> RawCmaHeader {
        let octets = |address| match address {
            IpAddr::V4(v4) => {
                Ipv4Addr::octets(&v4).into_iter().fold(0, |all, byte| all << 8 | u128::from(byte))
            }
            IpAddr::V6(v6) => v6.to_bits(),
        };
        RawCmaHeader {
            version: 0,
            ip_version: if self.src.is_ipv4() { 0x40 } else { 0x60 },
            port: U16::new(self.src_port),
            src: octets(self.src).to_be_bytes(),
            dst: octets(self.dst).to_be_bytes(),
        }
    }
}

fn path_mtu(code: u8) -> Result<PathMtu, u8> {
    match code {
        1 => Ok(PathMtu::Mtu256),
        2 => Ok(PathMtu::Mtu512),
        3 => Ok(PathMtu::Mtu1024),
        4 => Ok(PathMtu::Mtu2048),
        5 => Ok(PathMtu::Mtu4096),
        other => Err(other),
    }
}

impl Req {
    pub(super) fn from_raw(raw: &RawReq) -> Self {
        let (qpn, responder_resources) = split(raw.qpn);
        let (_, initiator_depth) = split(raw.local_eecn);
        let (_, transport) = split(raw.remote_eecn);
        let (starting_psn, retry) = split(raw.psn);
        Self {
            local_comm_id: raw.local_comm_id.get(),
            service_id: raw.service_id.get(),
            ca_guid: raw.local_ca_guid.get(),
            qpn: Qpn(qpn),
            responder_resources,
            initiator_depth,
            remote_response_timeout: transport >> 3,
            transport: (transport >> 1) & 3,
            flow_control: transport & 1 != 0,
            starting_psn,
            local_response_timeout: retry >> 3,
            retry_count: retry & 7,
            pkey: raw.pkey.get(),
            path_mtu: path_mtu(raw.mtu >> 4),
            rnr_retry_count: raw.mtu & 7,
            max_cm_retries: raw.retries >> 4,
            srq: raw.retries & 8 != 0,
            primary: Path::from_raw(&raw.primary),
            alternate: Path::from_raw(&raw.alternate),
            cma: CmaHeader::from_raw(&raw.cma),
            private: raw.private,
        }
    }

    pub(super) fn to_raw(self) -> RawReq {
        let mtu = self.path_mtu.map_or_else(|code| code, |mtu| mtu as u8);
        RawReq {
            local_comm_id: U32::new(self.local_comm_id),
            vendor: U32::ZERO,
            service_id: U64::new(self.service_id),
            local_ca_guid: U64::new(self.ca_guid),
            reserved: U32::ZERO,
            local_qkey: U32::ZERO,
            qpn: word(self.qpn.0, self.responder_resources),
            local_eecn: word(0, self.initiator_depth),
            remote_eecn: word(
                0,
                self.remote_response_timeout << 3 | (self.transport & 3) << 1 | u8::from(self.flow_control),
            ),
            psn: word(self.starting_psn, self.local_response_timeout << 3 | (self.retry_count & 7)),
            pkey: U16::new(self.pkey),
            mtu: mtu << 4 | (self.rnr_retry_count & 7),
            retries: self.max_cm_retries << 4 | u8::from(self.srq) << 3,
            primary: self.primary.to_raw(),
            alternate: self.alternate.to_raw(),
            cma: self.cma.map_or_else(RawCmaHeader::new_zeroed, CmaHeader::to_raw),
            private: self.private,
        }
    }
}
