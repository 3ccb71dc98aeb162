//! A controller and what a host asks of it, one command at a time.
//!
//! Owns the order in which a controller is brought up (rw-contexts 4.6: Connect, properties, enable, Identify, queues) and
//! the keep-alive timer. Commands are built by the target's own types ([`intact::nvmf::command`]) where those have an
//! `emit`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use intact::nvmf::command::{DataPointer, IoCommand, IoOp};
use intact::nvmf::wire::fabrics::{
    CONNECT_DATA_LEN, ConnectData, DISCOVERY_NQN, NQN_MAX_LEN, fctype, property,
};
use intact::nvmf::wire::features::{HOST_BEHAVIOR_LBAFEE, HOST_BEHAVIOR_LEN, fid};
use intact::nvmf::wire::identify::{
    CSI_NVM, IDENTIFY_LEN, IdentifyController, IdentifyNamespace, IdentifyNamespaceNvm, NSID_LIST_LEN, cns,
    nidt,
};
use intact::nvmf::wire::sqe::{PSDT_SGL, SQE_LEN, Sqe, admin_opcode};
use rwctx::device::soft::device::SoftCounters;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::buffers::{Buffers, Keys};
use super::clock;
use super::error::{HostError, describe};
use super::identity::HostIdentity;
use super::link::{Completion, Link, Submit};
use super::namespace::Namespace;

/// Entries of the admin queue, as all hosts have it.
const ADMIN_ENTRIES: u32 = 32;
/// Data of an Admin command at most.
const ADMIN_DATA: usize = 64 << 10;
/// How long commands may take.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);
const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// Keep Alive Timeout of I/O controllers.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Pages in which MDTS counts.
const MDTS_PAGE: u64 = 4096;

/// CC: I/O queue entry sizes of 64 and 16 bytes, enabled.
const CC_ENABLE: u32 = 6 << 16 | 4 << 20 | 1;
/// CC.CSS: all supported I/O command sets.
const CC_CSS_ALL: u32 = 0b110 << 4;
/// CC.SHN: normal shutdown.
const CC_SHN_NORMAL: u32 = 0b01 << 14;
/// CSTS.RDY, CSTS.CFS, CSTS.SHST (complete).
const CSTS_RDY: u64 = 1 << 0;
const CSTS_CFS: u64 = 1 << 1;
const CSTS_SHST: u64 = 0b11 << 2;
const CSTS_SHST_COMPLETE: u64 = 0b10 << 2;
/// CAP.CSS: I/O command sets beyond NVM.
const CAP_CSS_MORE: u64 = 1 << 43;
/// CTRATT: extended LBA formats.
const CTRATT_ELBAS: u32 = 1 << 15;
/// SGLS: keyed SGLs; offsets, that is, in-capsule data.
const SGLS_KEYED: u32 = 1 << 2;
const SGLS_OFFSET: u32 = 1 << 20;

/// Data of a command.
#[derive(Debug)]
pub enum Data<'d> {
    /// None.
    None,
    /// To the controller.
    Send(&'d [u8]),
    /// From the controller: it fills all of it.
    Receive(&'d mut [u8]),
}

/// A controller that is ready for commands.
#[derive(Debug)]
pub struct Controller {
    link: Link,
    admin: usize,
    host: HostIdentity,
    nqn: String,
    /// Admin commands' data.
    data: Buffers,
    keys: Keys,
    cntlid: u16,
    cap: u64,
    version: u32,
    id: Box<IdentifyController>,
    /// When the next Keep Alive is due; none without a timer.
    next_keep_alive: Option<Instant>,
}

impl Controller {
    /// Connects to the controller of subsystem `nqn` (or of discovery) and enables it.
    ///
    /// # Errors
    /// When the target refuses, does not answer, or can't be used.
    pub fn connect(mut link: Link, nqn: &str, host: HostIdentity, keys: Keys) -> Result<Self, HostError> {
        if nqn.is_empty() || nqn.len() > NQN_MAX_LEN {
            return Err(HostError::Invalid(format!("NQN: 1 to {NQN_MAX_LEN} bytes, not {}", nqn.len())));
        }
        let admin = link.connect_queue(0, ADMIN_ENTRIES, 0)?;
        let data = Buffers::new(&mut link, 1, ADMIN_DATA, Keys::Lasting)?;
        let mut controller = Self {
            link,
            admin,
            host,
            nqn: nqn.to_owned(),
            data,
            keys,
            cntlid: DYNAMIC,
            cap: 0,
            version: 0,
            id: Box::new(IdentifyController::new_zeroed()),
            next_keep_alive: None,
        };
        let timer = if nqn == DISCOVERY_NQN { Duration::ZERO } else { KEEP_ALIVE };
        let result = controller.connect_command(admin, 0, ADMIN_ENTRIES, timer)?;
        let [low, high, ..] = result.to_le_bytes();
        controller.cntlid = u16::from_le_bytes([low, high]);
        if !timer.is_zero() {
            controller.next_keep_alive = Some(clock::now() + timer / 3);
        }
        controller.enable()?;
        controller.id = controller.identify_controller()?;
        controller.check()?;
        Ok(controller)
    }

    /// The Connect command of a queue; returns the completion's result.
    fn connect_command(
        &mut self,
        queue: usize,
        qid: u16,
        entries: u32,
        timer: Duration,
    ) -> Result<u64, HostError> {
        let mut data = Box::new(ConnectData::new_zeroed());
        data.hostid = self.host.id;
        data.cntlid = self.cntlid.into();
        data.subnqn[..self.nqn.len()].copy_from_slice(self.nqn.as_bytes());
        data.hostnqn[..self.host.nqn.len()].copy_from_slice(self.host.nqn.as_bytes());
        debug_assert_eq!(data.as_bytes().len(), CONNECT_DATA_LEN);
        let kato = u32::try_from(timer.as_millis()).expect("seconds");
        let sqe = Sqe {
            nsid: u32::from(fctype::CONNECT).into(),
            cdw10: (u32::from(qid) << 16).into(),
            cdw11: (entries - 1).into(),
            cdw12: kato.into(),
            ..command(admin_opcode::FABRICS)
        };
        let done = self.admin_on(queue, sqe, Data::Send(data.as_bytes()), "Connect")?;
        Ok(done.result)
    }

    fn enable(&mut self) -> Result<(), HostError> {
        self.cap = self.property(property::CAP, 8)?;
        if self.cap >> 48 & 0xf != 0 {
            return Err(HostError::Invalid("the controller's smallest memory page is not 4 KiB".to_owned()));
        }
        self.version = u32::try_from(self.property(property::VS, 4)?).expect("a property of 4 bytes");
        let css = if self.cap & CAP_CSS_MORE != 0 { CC_CSS_ALL } else { 0 };
        self.set_property(property::CC, CC_ENABLE | css)?;
        let ready = Duration::from_millis(((self.cap >> 24 & 0xff) + 1) * 500);
        let csts = self.await_status(CSTS_RDY, CSTS_RDY, ready)?;
        if csts & CSTS_CFS != 0 {
            return Err(HostError::Invalid("the controller reports a fatal status".to_owned()));
        }
        Ok(())
    }

    /// Waits until the bits of CSTS in `mask` are `value`.
    fn await_status(&mut self, mask: u64, value: u64, within: Duration) -> Result<u64, HostError> {
        let until = clock::now() + within;
        loop {
            let csts = self.property(property::CSTS, 4)?;
            if csts & mask == value || csts & CSTS_CFS != 0 {
                return Ok(csts);
            }
            if clock::now() >= until {
                let what = "controller status";
                return Err(HostError::Timeout { target: self.link.target(), what, after: within });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What hosts check before they use a controller.
    fn check(&self) -> Result<(), HostError> {
        let problem = if self.id.cntlid.get() != self.cntlid {
            format!("Identify says controller {}, Connect said {}", self.id.cntlid, self.cntlid)
        } else if self.id.sgls.get() & SGLS_KEYED == 0 {
            "no keyed SGLs".to_owned()
        } else if !self.is_discovery() && (self.id.ioccsz.get() < 4 || self.id.iorcsz.get() < 1) {
            "capsules too small for queue entries".to_owned()
        } else if self.id.icdoff.get() != 0 {
            "in-capsule data does not follow the command".to_owned()
        } else {
            return Ok(());
        };
        Err(HostError::Invalid(format!("the controller can't be used: {problem}")))
    }

    fn is_discovery(&self) -> bool {
        self.nqn == DISCOVERY_NQN
    }

    /// The link, for many commands at once.
    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// The other side.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.link.target()
    }

    /// Sums of the device.
    #[must_use]
    pub fn counters(&self) -> SoftCounters {
        self.link.counters()
    }

    /// As [`Link::has_room`].
    #[inline]
    #[must_use]
    pub fn has_room(&self, queue: usize) -> bool {
        self.link.has_room(queue)
    }

    /// As [`Link::is_acked`].
    #[inline]
    #[must_use]
    pub fn is_acked(&self, queue: usize, number: u32) -> bool {
        self.link.is_acked(queue, number)
    }

    /// Controller ID.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Property CAP.
    #[must_use]
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Property VS.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Identify Controller.
    #[must_use]
    pub fn id(&self) -> &IdentifyController {
        &self.id
    }

    /// User data of one I/O command at most, in bytes.
    #[must_use]
    pub fn max_data(&self) -> u64 {
        match self.id.mdts {
            0 => u64::from(u32::MAX),
            shift => MDTS_PAGE << shift.min(32),
        }
    }

    /// Bytes of data that an I/O command's capsule may hold.
    #[must_use]
    pub fn in_capsule_max(&self) -> u32 {
        if self.id.sgls.get() & SGLS_OFFSET == 0 {
            return 0;
        }
        let entry = u32::try_from(SQE_LEN).expect("64");
        self.id.ioccsz.get().saturating_mul(16).saturating_sub(entry)
    }

    /// Entries of an I/O queue at most.
    #[must_use]
    pub fn max_entries(&self) -> u32 {
        let mqes = u32::try_from(self.cap & 0xffff).expect("16 bits") + 1;
        match self.id.maxcmd.get() {
            0 => mqes,
            maxcmd => mqes.min(u32::from(maxcmd)),
        }
    }

    /// Reads a property of 4 or 8 bytes.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn property(&mut self, offset: u32, size: u32) -> Result<u64, HostError> {
        let sqe = Sqe {
            nsid: u32::from(fctype::PROPERTY_GET).into(),
            cdw10: u32::from(size == 8).into(),
            cdw11: offset.into(),
            ..command(admin_opcode::FABRICS)
        };
        let value = self.admin_on(self.admin, sqe, Data::None, "Property Get")?.result;
        Ok(if size == 8 { value } else { value & 0xffff_ffff })
    }

    /// Writes a property of 4 bytes.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn set_property(&mut self, offset: u32, value: u32) -> Result<(), HostError> {
        let sqe = Sqe {
            nsid: u32::from(fctype::PROPERTY_SET).into(),
            cdw11: offset.into(),
            cdw12: value.into(),
            ..command(admin_opcode::FABRICS)
        };
        self.admin_on(self.admin, sqe, Data::None, "Property Set").map(|_| ())
    }

    /// Identify: any of its structures.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn identify(&mut self, cns: u8, nsid: u32, csi: u8) -> Result<Vec<u8>, HostError> {
        let sqe = Sqe {
            nsid: nsid.into(),
            cdw10: u32::from(cns).into(),
            cdw11: (u32::from(csi) << 24).into(),
            ..command(admin_opcode::IDENTIFY)
        };
        let mut data = vec![0; IDENTIFY_LEN];
        self.admin_on(self.admin, sqe, Data::Receive(&mut data), "Identify")?;
        Ok(data)
    }

    fn identify_controller(&mut self) -> Result<Box<IdentifyController>, HostError> {
        let data = self.identify(cns::CONTROLLER, 0, CSI_NVM)?;
        Ok(Box::new(IdentifyController::read_from_bytes(&data).expect("as long as the structure")))
    }

    /// Identifiers of all active namespaces.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn namespaces(&mut self) -> Result<Vec<u32>, HostError> {
        let mut all = Vec::new();
        loop {
            let after = all.last().copied().unwrap_or(0);
            let page = self.identify(cns::ACTIVE_NAMESPACES, after, CSI_NVM)?;
            let before = all.len();
            for entry in page.chunks_exact(4) {
                let nsid = u32::from_le_bytes(entry.try_into().expect("4 bytes"));
                if nsid <= all.last().copied().unwrap_or(0) {
                    break;
                }
                all.push(nsid);
            }
            if all.len() - before < NSID_LIST_LEN {
                return Ok(all);
            }
        }
    }

    /// Identify Namespace, and its NVM Command Set part if the controller has extended formats.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn identify_namespace(
        &mut self,
        nsid: u32,
    ) -> Result<(Box<IdentifyNamespace>, Option<Box<IdentifyNamespaceNvm>>), HostError> {
        let data = self.identify(cns::NAMESPACE, nsid, CSI_NVM)?;
        let id = IdentifyNamespace::read_from_bytes(&data).expect("as long as the structure");
        let nvm = if self.has_extended_formats() {
            let data = self.identify(cns::CSI_NAMESPACE, nsid, CSI_NVM)?;
            Some(Box::new(IdentifyNamespaceNvm::read_from_bytes(&data).expect("as long as the structure")))
        } else {
            None
        };
        Ok((Box::new(id), nvm))
    }

    /// Geometry and protection of a namespace.
    ///
    /// # Errors
    /// When it does not exist, or the controller does not answer.
    pub fn namespace(&mut self, nsid: u32) -> Result<Namespace, HostError> {
        let (id, nvm) = self.identify_namespace(nsid)?;
        Namespace::parse(nsid, &id, nvm.as_deref())
    }

    /// The UUID that a namespace's descriptors state.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn namespace_uuid(&mut self, nsid: u32) -> Result<Option<[u8; 16]>, HostError> {
        let list = self.identify(cns::NAMESPACE_DESCRIPTORS, nsid, CSI_NVM)?;
        let mut rest = list.as_slice();
        while let [kind, length, _, _, tail @ ..] = rest {
            let Some((value, next)) = tail.split_at_checked(usize::from(*length)) else { break };
            if *length == 0 {
                break;
            }
            if *kind == nidt::UUID {
                return Ok(value.try_into().ok());
            }
            rest = next;
        }
        Ok(None)
    }

    fn has_extended_formats(&self) -> bool {
        self.id.ctratt.get() & CTRATT_ELBAS != 0
    }

    /// Get Log Page: `to.len()` bytes (a multiple of 4, at most 64 KiB) from `offset` on.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn log_page(&mut self, lid: u8, nsid: u32, offset: u64, to: &mut [u8]) -> Result<(), HostError> {
        debug_assert!(to.len().is_multiple_of(4) && (4..=ADMIN_DATA).contains(&to.len()), "whole dwords");
        let dwords = u32::try_from(to.len() / 4 - 1).expect("at most 64 KiB");
        let [low, high] = [offset & 0xffff_ffff, offset >> 32].map(|v| u32::try_from(v).expect("32 bits"));
        let sqe = Sqe {
            nsid: nsid.into(),
            cdw10: (u32::from(lid) | (dwords & 0xffff) << 16).into(),
            cdw11: (dwords >> 16).into(),
            cdw12: low.into(),
            cdw13: high.into(),
            ..command(admin_opcode::GET_LOG_PAGE)
        };
        self.admin_on(self.admin, sqe, Data::Receive(to), "Get Log Page").map(|_| ())
    }

    /// Set Features; returns the completion's DW0.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn set_feature(&mut self, feature: u8, value: u32, data: &[u8]) -> Result<u32, HostError> {
        let sqe = Sqe {
            cdw10: u32::from(feature).into(),
            cdw11: value.into(),
            ..command(admin_opcode::SET_FEATURES)
        };
        let data = if data.is_empty() { Data::None } else { Data::Send(data) };
        Ok(dword(self.admin_on(self.admin, sqe, data, "Set Features")?.result))
    }

    /// Get Features: the current value, as the completion's DW0.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn feature(&mut self, feature: u8) -> Result<u32, HostError> {
        let sqe = Sqe { cdw10: u32::from(feature).into(), ..command(admin_opcode::GET_FEATURES) };
        Ok(dword(self.admin_on(self.admin, sqe, Data::None, "Get Features")?.result))
    }

    /// Connects `count` I/O queues of `entries` entries each, numbered from 1; returns their indexes in the link. Says to the
    /// controller first that we know extended formats, where it has them.
    ///
    /// # Errors
    /// When the controller gives fewer queues, or smaller ones.
    pub fn connect_io_queues(&mut self, count: u16, entries: u32) -> Result<Vec<usize>, HostError> {
        if count == 0 {
            return Err(HostError::Invalid("at least one I/O queue is needed".to_owned()));
        }
        if entries > self.max_entries() {
            return Err(HostError::Invalid(format!(
                "the controller's queues hold at most {} commands, {} were asked for",
                self.max_entries() - 1,
                entries - 1
            )));
        }
        if self.has_extended_formats() {
            let mut behavior = [0; HOST_BEHAVIOR_LEN];
            behavior[HOST_BEHAVIOR_LBAFEE] = 1;
            self.set_feature(fid::HOST_BEHAVIOR_SUPPORT, 0, &behavior)?;
        }
        let asked = u32::from(count - 1);
        let granted = self.set_feature(fid::NUMBER_OF_QUEUES, asked | asked << 16, &[])?;
        let granted = (granted & 0xffff).min(granted >> 16) + 1;
        if granted < u32::from(count) {
            return Err(HostError::Invalid(format!(
                "the controller grants {granted} I/O queues, not {count}"
            )));
        }
        let mut queues = Vec::with_capacity(usize::from(count));
        for qid in 1..=count {
            let queue = self.link.connect_queue(qid, entries, self.cntlid)?;
            self.connect_command(queue, qid, entries, Duration::ZERO)?;
            queues.push(queue);
        }
        Ok(queues)
    }

    /// Carries out one I/O command on `queue`. Data to the controller goes in the capsule if it fits there.
    ///
    /// # Errors
    /// When it fails, or the controller does not answer.
    pub fn io(&mut self, queue: usize, nsid: u32, op: IoOp, data: Data<'_>) -> Result<(), HostError> {
        let length = match &data {
            Data::None => 0,
            Data::Send(from) => from.len(),
            Data::Receive(to) => to.len(),
        };
        let length32 = u32::try_from(length)
            .ok()
            .filter(|&length| length < 1 << 24)
            .ok_or_else(|| HostError::Invalid(format!("{length} bytes are too many for one command")))?;
        let mut memory = Buffers::new(&mut self.link, 1, length, self.keys)?;
        if let Data::Send(from) = &data {
            memory.write(0, from);
        }
        let capsule = matches!(data, Data::Send(_)) && length32 <= self.in_capsule_max();
        let (dptr, in_capsule) = if capsule {
            (DataPointer::InCapsule { offset: 0, length: length32 }, Some(memory.sge(0, length32)))
        } else {
            (memory.grant(&mut self.link, queue, 0, length32)?, None)
        };
        let cid = self.free_cid(queue)?;
        let sqe = IoCommand { cid, opcode: 0, nsid, op, dptr }.emit();
        let done = self.link.execute(queue, &sqe, in_capsule, "I/O command", IO_TIMEOUT)?;
        memory.completed(&mut self.link, 0, &done)?;
        if let Data::Receive(to) = data
            && done.status.is_success()
        {
            memory.read(0, to);
        }
        memory.release(&mut self.link)?;
        succeeded(&done, name(&op))
    }

    /// Sends a Keep Alive when it is due; its completion comes among the others, on the admin queue.
    ///
    /// # Errors
    /// When the queue pair failed.
    #[inline]
    pub fn keep_alive_if_due(&mut self, now: Instant) -> Result<(), HostError> {
        match self.next_keep_alive {
            Some(due) if due <= now => self.keep_alive(now),
            _ => Ok(()),
        }
    }

    #[cold]
    fn keep_alive(&mut self, now: Instant) -> Result<(), HostError> {
        self.next_keep_alive = Some(now + KEEP_ALIVE / 3);
        let Some(cid) = self.link.free_cid(self.admin) else { return Ok(()) };
        let sqe = Sqe { cid: cid.into(), ..command(admin_opcode::KEEP_ALIVE) };
        if self.link.submit(self.admin, &sqe, None)? == Submit::Full {
            tracing::warn!("no room for a Keep Alive: earlier ones were not answered");
        }
        Ok(())
    }

    /// Shuts the controller down and disconnects.
    pub fn close(mut self) {
        if let Err(error) = self.shut_down() {
            tracing::debug!(%error, "the controller was not shut down");
        }
        self.link.close();
    }

    fn shut_down(&mut self) -> Result<(), HostError> {
        if self.is_discovery() {
            return Ok(());
        }
        let cc = u32::try_from(self.property(property::CC, 4)?).expect("a property of 4 bytes");
        self.set_property(property::CC, cc | CC_SHN_NORMAL)?;
        self.await_status(CSTS_SHST, CSTS_SHST_COMPLETE, Duration::from_secs(1)).map(|_| ())
    }

    fn free_cid(&mut self, queue: usize) -> Result<u16, HostError> {
        let target = self.link.target();
        self.link
            .free_cid(queue)
            .ok_or_else(|| HostError::Protocol { target, what: "it does not complete commands".to_owned() })
    }

    /// Carries out a command with data in host memory.
    fn admin_on(
        &mut self,
        queue: usize,
        mut sqe: Sqe,
        data: Data<'_>,
        name: &'static str,
    ) -> Result<Completion, HostError> {
        let length = match &data {
            Data::None => 0,
            Data::Send(from) => {
                self.data.write(0, from);
                from.len()
            }
            Data::Receive(to) => to.len(),
        };
        let length = u32::try_from(length).expect("at most 64 KiB");
        sqe.dptr = self.data.grant(&mut self.link, queue, 0, length)?.emit();
        sqe.cid = self.free_cid(queue)?.into();
        let done = self.link.execute(queue, &sqe, None, name, ADMIN_TIMEOUT)?;
        if let Data::Receive(to) = data
            && done.status.is_success()
        {
            self.data.read(0, to);
        }
        succeeded(&done, name)?;
        Ok(done)
    }
}

/// CNTLID that asks for any controller.
const DYNAMIC: u16 = 0xffff;

/// A command without data: also then the descriptor is a keyed one, or Linux's target refuses the command.
fn command(opcode: u8) -> Sqe {
    Sqe { opc: opcode, flags: PSDT_SGL, dptr: DataPointer::None.emit(), ..Sqe::default() }
}

fn succeeded(done: &Completion, command: &'static str) -> Result<(), HostError> {
    tracing::trace!(
        command,
        status = describe(command, done.status),
        result = done.result,
        "command completed"
    );
    if done.status.is_success() { Ok(()) } else { Err(HostError::Status { command, status: done.status }) }
}

fn dword(result: u64) -> u32 {
    let [a, b, c, d, ..] = result.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// What a command is called.
pub(super) fn name(op: &IoOp) -> &'static str {
    match op {
        IoOp::Flush => "Flush",
        IoOp::Read(_) => "Read",
        IoOp::Write(_) => "Write",
        IoOp::Compare(_) => "Compare",
        IoOp::Verify(_) => "Verify",
        IoOp::WriteZeroes { .. } => "Write Zeroes",
        IoOp::DatasetManagement { .. } => "Dataset Management",
    }
}
