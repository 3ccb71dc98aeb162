//! Makes a connection: its queue pair, its memory, and the login that begins.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use rwctx::device::{Device, DeviceError, QpCap, QpConnect, Qpn};
use rwctx::plan::Integrity;
use rwctx::qp::RwQp;
use rwctx::sq::SqCredits;

use super::{
    AHS_MAX, CONTROLS, Connection, Control, LOGIN, Phase, SPARE_RECEIVES, STUCK_CHECK, State, WINDOW,
};
use crate::iscsi::keys::Offers;
use crate::iscsi::login::{Login, LoginParams};
use crate::iscsi::rdma::request::Request;
use crate::iscsi::rdma::{Common, ConnectionRequest};
use crate::iscsi::session::{CONTROL_DATA_MAX, IMMEDIATE_MAX};
use crate::iscsi::wire::message::HEADERS_LEN;
use crate::iscsi::wire::number::Sn;
use crate::transport::core::{Core, slots};
use crate::transport::slots::Slots;

impl Connection {
    /// Makes the RDMA queue pair and its memory, and posts its receives.
    pub(in crate::iscsi::rdma) fn open<D: Device>(
        core: &mut Core<D>,
        common: &mut Common,
        index: u32,
        request: ConnectionRequest,
        peer: IpAddr,
        connect: impl FnOnce(&mut D, Qpn) -> QpConnect,
    ) -> Result<Self, DeviceError> {
        let entries = u32::from(WINDOW + IMMEDIATE_MAX);
        let receives = entries + SPARE_RECEIVES;
        let size = core.queue_size(entries, Integrity::Off).with_more(CONTROLS);
        let cap = QpCap {
            max_send_wr: size.max_send_wr(&core.caps),
            max_recv_wr: receives,
            max_send_sge: core.caps.max_send_sge,
            max_recv_sge: 1,
            integrity: Integrity::Off,
        };
        let qpn = core.device.create_qp(core.pd, &cap)?;
        let made = RwQp::init_pools(&mut core.device, core.pd, &cap, size.pools(&core.caps))
            .and_then(|rw| Self::open_on(core, common, index, request, peer, (qpn, rw), &cap, connect));
        if made.is_err() {
            // The error to report is the first one; the queue pair exists, so this succeeds.
            let _ = core.device.destroy_qp(qpn);
        }
        made
    }

    #[expect(clippy::too_many_arguments, reason = "what a connection is made of")]
    fn open_on<D: Device>(
        core: &mut Core<D>,
        common: &mut Common,
        index: u32,
        request: ConnectionRequest,
        peer: IpAddr,
        (qpn, mut rw): (Qpn, RwQp),
        cap: &QpCap,
        connect: impl FnOnce(&mut D, Qpn) -> QpConnect,
    ) -> Result<Self, DeviceError> {
        let to = connect(&mut core.device, qpn);
        let tasks = u32::from(WINDOW + IMMEDIATE_MAX);
        let requests = slots(tasks);
        let offers = Offers::default();
        let whole = HEADERS_LEN + offers.target_recv as usize;
        let memory = [
            (cap.max_recv_wr, whole + AHS_MAX),
            (requests, HEADERS_LEN + CONTROL_DATA_MAX),
            (CONTROLS, whole),
        ];
        let made = login(core, common, offers)
            .ok_or(DeviceError::NoResources("randomness"))
            .and_then(|login| Ok((memory_of(core, memory)?, login)));
        let ([received, responses, controls], login) = match made {
            Ok(made) => made,
            Err(error) => {
                rw.cleanup_mrs(&mut core.device);
                return Err(error);
            }
        };
        let connection = Self {
            index,
            qpn,
            peer,
            share: core.share(peer),
            rw,
            invalidation: request.invalidation,
            phase: Phase::Login(Box::new(login)),
            place: None,
            attached: None,
            requests: (0..requests).map(|_| Request::new()).collect(),
            tasks: vec![None; tasks as usize],
            commands: VecDeque::with_capacity(tasks as usize),
            aborts: Vec::new(),
            answering: None,
            engine_busy: 0,
            state: State::Connecting,
            check_stuck: core.now + STUCK_CHECK,
            received,
            responses,
            controls,
            control_sends: (0..CONTROLS).map(|_| Control::default()).collect(),
            free: (0..requests).rev().collect(),
            free_controls: (requests..requests + CONTROLS).rev().collect(),
            arrived: VecDeque::with_capacity(cap.max_recv_wr as usize),
            credits: SqCredits::new(cap.max_send_wr, (requests + CONTROLS) as usize),
        };
        let posted = (0..cap.max_recv_wr).try_for_each(|slot| connection.post_receive(core, slot));
        match posted.and_then(|()| core.device.connect_qp(qpn, &to)) {
            Ok(()) => Ok(connection),
            Err(error) => {
                connection.release_memory(core);
                Err(error)
            }
        }
    }
}

/// Slots of these numbers and lengths: all or none.
fn memory_of<D: Device, const N: usize>(
    core: &mut Core<D>,
    sizes: [(u32, usize); N],
) -> Result<[Slots; N], DeviceError> {
    let mut made = Vec::with_capacity(N);
    for (count, length) in sizes {
        match Slots::new(&mut core.device, core.pd, count, length) {
            Ok(slots) => made.push(slots),
            Err(error) => {
                made.into_iter().for_each(|slots: Slots| slots.release(&mut core.device));
                return Err(error);
            }
        }
    }
    Ok(made.try_into().expect("as many as there are sizes"))
}

/// A login that begins now; `None` without randomness.
fn login<D: Device>(core: &mut Core<D>, common: &mut Common, offers: Offers) -> Option<Login> {
    let seed = match common.seed() {
        Ok(seed) => seed,
        Err(error) => {
            core.warn(|| tracing::error!(%error, "the system gives no randomness; nobody can log in"));
            return None;
        }
    };
    let directory = common.registry.directory();
    // Where protection information is checked, nothing comes along with a command.
    let offers = Offers { immediate_data: !common.registry.has_protection(), ..offers };
    let stat_sn = Sn(u32::from(seed.identifier) << 16);
    let deadline = core.now + LOGIN;
    Some(Login::new(LoginParams { directory: Arc::clone(&directory), offers, seed, stat_sn, deadline }))
}
