//! A target of memory volumes and a host that talks to it, for tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use t10pi::{Format, PiType};
use zerocopy::FromBytes;

use super::command::{
    AdminCommand, AdminOp, ConnectFields, DataPointer, FabricsCommand, FabricsOp, PropertySize,
};
use super::controller::{AdminOutcome, Controller, Effect, TargetLimits};
use super::registry::{
    AdminQueue, ConnectError, ConnectRequest, IoQueue, NvmeConfig, Registry, SubsystemConfig,
};
use super::subsystem::Hosts;
use super::wire::fabrics::property;
use super::wire::features::Select;
use super::wire::private_data::QueueRequest;
use super::wire::status::Status;
use crate::block::{BackendConfig, Identity, Layout, Protection, Stop, Volume, VolumeConfig};

pub(super) const NQN: &str = "nqn.2026-11.io.intact:disk0";
pub(super) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:7e10bb22-0cd4-4ad7-b4ed-08d0299e3a3c";
pub(super) const HOST_ID: [u8; 16] = [7; 16];
/// Where the host is.
pub(super) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
/// CC as a Linux host writes it to enable: IOCQES 4, IOSQES 6, EN.
pub(super) const CC_ENABLE: u64 = 0x46_0001;

/// A memory volume of `blocks` blocks.
pub(super) fn volume(
    name: &str,
    block_size: u32,
    blocks: u64,
    protection: Option<(Format, PiType)>,
) -> Arc<Volume> {
    let protection =
        protection.map(|(format, pi_type)| Protection { format, pi_type, layout: Layout::Separate });
    let config = VolumeConfig {
        name: name.to_owned(),
        identity: Identity::new(NQN, name, None, None),
        block_size,
        protection,
        read_only: false,
        backend: BackendConfig::Memory { size: blocks * u64::from(block_size) },
        stop: Stop::default(),
    };
    Volume::open(config).unwrap()
}

/// A volume in a file of `folder`.
pub(super) fn file_volume(folder: &Path, name: &str) -> Arc<Volume> {
    let config = VolumeConfig {
        name: name.to_owned(),
        identity: Identity::new(NQN, name, None, None),
        block_size: 4096,
        protection: None,
        read_only: false,
        backend: BackendConfig::File { path: folder.join(name), size: Some(1 << 20) },
        stop: Stop::default(),
    };
    Volume::open(config).unwrap()
}

pub(super) fn listener(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// One subsystem that everybody may use.
pub(super) fn config(namespaces: &[(u32, Arc<Volume>)]) -> NvmeConfig {
    NvmeConfig {
        listeners: vec![listener("10.77.0.1:4420")],
        subsystems: vec![SubsystemConfig {
            nqn: NQN.to_owned(),
            serial: "INTACT0001".to_owned(),
            hosts: Hosts::Any,
            namespaces: namespaces.to_vec(),
        }],
    }
}

pub(super) fn registry(now: Instant, namespaces: &[(u32, Arc<Volume>)]) -> Registry {
    let registry = Registry::new(TargetLimits::default(), 2);
    let applied = registry.apply(now, config(namespaces));
    assert_eq!(applied, super::registry::Applied::default());
    registry
}

/// Connect's data.
pub(super) fn connect_data(cntlid: u16, subnqn: &str, hostnqn: &str) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[..16].copy_from_slice(&HOST_ID);
    data[16..18].copy_from_slice(&cntlid.to_le_bytes());
    data[256..256 + subnqn.len()].copy_from_slice(subnqn.as_bytes());
    data[512..512 + hostnqn.len()].copy_from_slice(hostnqn.as_bytes());
    data
}

pub(super) fn fields(qid: u16, sq_entries: u32, kato_ms: u32) -> ConnectFields {
    ConnectFields { recfmt: 0, qid, sq_entries, cattr: 0, kato_ms }
}

pub(super) fn transport(qid: u16, entries: u32) -> QueueRequest {
    QueueRequest { qid, host_recv_entries: entries, host_send_entries: entries, cntlid: 0 }
}

/// Connects an admin queue to `subnqn` as `hostnqn`.
pub(super) fn connect_as(
    registry: &Registry,
    now: Instant,
    subnqn: &str,
    hostnqn: &str,
    kato_ms: u32,
) -> Result<AdminQueue, ConnectError> {
    registry.connect_admin(
        now,
        &ConnectRequest {
            fields: &fields(0, 32, kato_ms),
            data: &connect_data(0xffff, subnqn, hostnqn),
            transport: &transport(0, 32),
            local: listener("10.77.0.1:4420"),
            peer: PEER,
            reactor: 0,
        },
    )
}

pub(super) fn connect_io(registry: &Registry, cntlid: u16, qid: u16) -> Result<IoQueue, ConnectError> {
    registry.connect_io(&ConnectRequest {
        fields: &fields(qid, 128, 0),
        data: &connect_data(cntlid, NQN, HOST),
        transport: &transport(qid, 128),
        local: listener("10.77.0.1:4420"),
        peer: PEER,
        reactor: 1,
    })
}

/// A host with an enabled controller.
pub(super) struct Host {
    pub(super) now: Instant,
    pub(super) controller: Controller,
    cid: u16,
}

impl Host {
    /// Connects and enables.
    pub(super) fn connect(registry: &Registry, now: Instant, subnqn: &str, kato_ms: u32) -> Self {
        let controller = connect_as(registry, now, subnqn, HOST, kato_ms).unwrap().controller;
        let mut host = Self { now, controller, cid: 0 };
        assert_eq!(host.set(property::CC, CC_ENABLE), Ok(None));
        assert_eq!(host.get(property::CSTS), Ok(1));
        host
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub(super) fn set(&mut self, offset: u32, value: u64) -> Result<Option<Effect>, Status> {
        let op = FabricsOp::PropertySet { size: PropertySize::Dword, offset, value };
        let outcome = self.controller.fabrics(&FabricsCommand { cid: 0, op, dptr: DataPointer::None });
        if outcome.status.is_success() { Ok(outcome.effect) } else { Err(outcome.status) }
    }

    pub(super) fn get(&mut self, offset: u32) -> Result<u64, Status> {
        let size = if offset == property::CAP { PropertySize::Qword } else { PropertySize::Dword };
        let op = FabricsOp::PropertyGet { size, offset };
        let outcome = self.controller.fabrics(&FabricsCommand { cid: 0, op, dptr: DataPointer::None });
        if outcome.status.is_success() { Ok(outcome.result) } else { Err(outcome.status) }
    }

    /// Sends an admin command whose SGL describes `sgl` bytes, of which the first are `data`.
    pub(super) fn submit(
        &mut self,
        nsid: u32,
        op: AdminOp,
        sgl: usize,
        data: &[u8],
    ) -> (AdminOutcome, Vec<u8>) {
        self.cid += 1;
        let at = RemoteAddr { addr: 0x1000, rkey: Rkey(1) };
        let dptr = match u32::try_from(sgl).unwrap() {
            0 => DataPointer::None,
            length => DataPointer::Keyed { segment: RemoteSegment { at, length }, invalidate: true },
        };
        let command = AdminCommand { cid: self.cid, opcode: 0, nsid, op, dptr };
        let lengths = match self.controller.data_lengths(&command) {
            Ok(lengths) => lengths,
            Err(status) => return (self.controller.fail_admin(&command, status), Vec::new()),
        };
        // What is not written has to be noticed.
        // It may also be longer than needed.
        let mut out = vec![0xee; lengths.to_host + 64];
        let outcome = self.controller.admin(self.now, &command, &data[..lengths.from_host], &mut out);
        (outcome, out)
    }

    /// Sends an admin command: its result and data.
    pub(super) fn send(
        &mut self,
        nsid: u32,
        op: AdminOp,
        sgl: usize,
        data: &[u8],
    ) -> Result<(u64, Vec<u8>), Status> {
        match self.submit(nsid, op, sgl, data) {
            (AdminOutcome::Complete { status, result, data_len }, mut out) if status.is_success() => {
                out.truncate(data_len);
                Ok((result, out))
            }
            (AdminOutcome::Complete { status, data_len, .. }, _) => {
                assert_eq!(data_len, 0, "a failed command returns no data");
                Err(status)
            }
            (AdminOutcome::Pend, _) => panic!("only event requests pend"),
        }
    }

    /// Sends an Asynchronous Event Request: its CID, or how it ended.
    pub(super) fn request_event(&mut self) -> Result<u16, Status> {
        match self.submit(0, AdminOp::AsyncEventRequest, 0, &[]).0 {
            AdminOutcome::Pend => Ok(self.cid),
            AdminOutcome::Complete { status, .. } => Err(status),
        }
    }

    pub(super) fn identify<T: FromBytes>(&mut self, nsid: u32, cns: u8) -> Result<T, Status> {
        let op = AdminOp::Identify { cns, cntid: 0, cnssid: 0, csi: 0, uuid_index: 0 };
        self.send(nsid, op, 4096, &[]).map(|(_, data)| T::read_from_bytes(&data).ok().unwrap())
    }

    /// Reads `length` bytes at `offset` of log page `lid`.
    pub(super) fn log(&mut self, lid: u8, offset: u64, length: usize, rae: bool) -> Result<Vec<u8>, Status> {
        let op = AdminOp::GetLogPage {
            lid,
            lsp: 0,
            rae,
            length: u64::try_from(length).unwrap(),
            lsi: 0,
            offset,
            offset_is_index: false,
            csi: 0,
            uuid_index: 0,
        };
        self.send(0, op, length, &[]).map(|(_, data)| data)
    }

    pub(super) fn get_feature(&mut self, fid: u8, select: Select) -> Result<u64, Status> {
        self.send(0, AdminOp::GetFeatures { fid, select, cdw11: 1 }, 512, &[]).map(|(result, _)| result)
    }

    pub(super) fn get_feature_data(&mut self, fid: u8) -> Result<Vec<u8>, Status> {
        let op = AdminOp::GetFeatures { fid, select: Select::Current, cdw11: 1 };
        self.send(0, op, 512, &[]).map(|(_, data)| data)
    }

    pub(super) fn set_feature(&mut self, fid: u8, cdw11: u32) -> Result<u64, Status> {
        let op = AdminOp::SetFeatures { fid, save: false, cdw: [cdw11, 0, 0, 0, 0] };
        self.send(0, op, 0, &[]).map(|(result, _)| result)
    }

    pub(super) fn set_feature_data(&mut self, fid: u8, data: &[u8]) -> Result<u64, Status> {
        let op = AdminOp::SetFeatures { fid, save: false, cdw: [0; 5] };
        self.send(0, op, data.len(), data).map(|(result, _)| result)
    }
}
