use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rwctx::device::null::NullDevice;
use rwctx::device::provider::{ProviderCounters, Sleep};
use rwctx::device::soft::cm::{CmError, PeerQp};
use rwctx::device::soft::driver::More;
use rwctx::device::soft::persona::Persona;
use rwctx::device::soft::wire::cm::REQ_PRIVATE_LEN;
use rwctx::device::{
    Device, DeviceCaps, DeviceError, PathMtu, PostError, QpCap, QpConnect, QpEvent, QpState,
};
use rwctx::mem::{Access, Mr, MrId, Pd, Region};
use rwctx::wc::Wc;
use rwctx::wr::{RecvWr, SendWr, Sge, WrId};

use super::super::mailbox::{Mailbox, mailbox};
use super::*;

/// A connection manager that says what a test wants it to, and accepts nothing when it shall not.
#[derive(Debug)]
struct Stub {
    null: NullDevice,
    events: VecDeque<CmEvent>,
    accepts: bool,
    disconnected: Vec<CmId>,
}

impl Device for Stub {
    fn caps(&self) -> &DeviceCaps {
        self.null.caps()
    }
    fn alloc_pd(&mut self) -> Result<Pd, DeviceError> {
        self.null.alloc_pd()
    }
    fn reg_mr(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<Mr, DeviceError> {
        self.null.reg_mr(pd, region, offset, length, access)
    }
    fn alloc_fast_reg(&mut self, pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        self.null.alloc_fast_reg(pd, pages)
    }
    fn dereg_mr(&mut self, id: MrId) -> Result<(), DeviceError> {
        self.null.dereg_mr(id)
    }
    fn create_qp(&mut self, pd: Pd, cap: &QpCap) -> Result<Qpn, DeviceError> {
        self.null.create_qp(pd, cap)
    }
    fn connect_qp(&mut self, qpn: Qpn, to: &QpConnect) -> Result<(), DeviceError> {
        self.null.connect_qp(qpn, to)
    }
    fn error_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        self.null.error_qp(qpn)
    }
    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        self.null.destroy_qp(qpn)
    }
    fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.null.qp_state(qpn)
    }
    fn post_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.null.post_send(qpn, wr)
    }
    fn replace_source(&mut self, qpn: Qpn, wr_id: WrId, from: Sge, to: Sge) -> Result<(), DeviceError> {
        self.null.replace_source(qpn, wr_id, from, to)
    }
    fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.null.post_recv(qpn, wr)
    }
    fn poll_cq(&mut self) -> Option<Wc> {
        None
    }
    fn poll_qp_event(&mut self) -> Option<QpEvent> {
        None
    }
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

impl Provider for Stub {
    fn receive(&mut self, _: Instant) -> More {
        More::No
    }
    fn transmit(&mut self, _: Instant) {}
    fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::empty()
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn prepare_sleep(&mut self) -> Sleep {
        Sleep::Ready
    }
    fn woken(&mut self) {}
    fn number_next_qp(&mut self, _: Option<Qpn>) {}
    fn failure(&self) -> Option<&str> {
        None
    }
    fn counters(&self) -> ProviderCounters {
        ProviderCounters::default()
    }
    fn listen(&mut self, _: u16) -> io::Result<()> {
        Ok(())
    }
    fn unlisten(&mut self, _: u16) {}
    fn accept(&mut self, _: Instant, id: CmId, _: &AcceptParams<'_>) -> Result<(), CmError> {
        if self.accepts {
            return Ok(());
        }
        // As devices do: events say so, too.
        self.events.extend([CmEvent::Unreachable { id }, CmEvent::Released { id }]);
        Err(CmError::WrongState)
    }
    fn reject(&mut self, _: Instant, _: CmId, _: &[u8]) -> Result<(), CmError> {
        Ok(())
    }
    fn disconnect(&mut self, _: Instant, id: CmId) -> Result<(), CmError> {
        self.disconnected.push(id);
        Ok(())
    }
    fn handle_qp_traffic(&mut self, _: Instant, _: CmId) {}
    fn poll_cm_event(&mut self, _: Instant) -> Option<CmEvent> {
        self.events.pop_front()
    }
}

struct World {
    acceptor: Acceptor,
    device: Stub,
    reactors: [Postbox<Message>; 1],
    mail: Mailbox<Message>,
    now: Instant,
}

const ID: CmId = CmId(5);
const QPN: Qpn = Qpn(0x17);

impl World {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary point to count from")]
    fn new() -> Self {
        let (post, mail) = mailbox().unwrap();
        let limits = QueueLimits { max_qid: 8, max_entries: 128 };
        Self {
            acceptor: Acceptor::new(limits, Ports { nvme: Some(4420), iser: None }, 1),
            device: Stub {
                null: NullDevice::new(Persona::Rxe.caps()),
                events: VecDeque::new(),
                accepts: true,
                disconnected: Vec::new(),
            },
            reactors: [post],
            mail,
            now: Instant::now(),
        }
    }

    /// Events happen; what the reactor is told, in a word each.
    fn happen(&mut self, events: impl IntoIterator<Item = CmEvent>) -> Vec<String> {
        self.device.events.extend(events);
        self.acceptor.poll(self.now, &mut self.device, &self.reactors);
        self.told()
    }

    fn opened(&mut self, result: Result<(Qpn, u32), RejectStatus>) -> Vec<String> {
        let opened = Opened { id: ID, reactor: 0, result };
        self.acceptor.opened(self.now, &mut self.device, &self.reactors, &opened);
        self.told()
    }

    fn told(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.mail.take())
            .map(|message| match message {
                Message::Open(open) => format!("open {}", open.id.0),
                Message::Established(qpn) => format!("established {:#x}", qpn.0),
                Message::Disconnected(qpn) => format!("disconnected {:#x}", qpn.0),
                other => format!("{other:?}"),
            })
            .collect()
    }
}

fn request() -> CmEvent {
    let mut private = [0; REQ_PRIVATE_LEN];
    let asked = QueueRequest { qid: 0, host_recv_entries: 32, host_send_entries: 32, cntlid: 0 }.emit();
    private[..asked.as_bytes().len()].copy_from_slice(asked.as_bytes());
    let address = IpAddr::from([10, 77, 0, 2]);
    let peer = PeerQp {
        qpn: Qpn(0x11),
        psn: 1,
        path_mtu: PathMtu::Mtu1024,
        retry_cnt: 7,
        rnr_retry: 7,
        ack_timeout: Duration::from_millis(67),
        responder_resources: 16,
        initiator_depth: 0,
        tos: 0,
        flow_label: 0,
        rq_psn: Some(2),
        route: None,
    };
    let doubtful = false;
    CmEvent::ConnectRequest { id: ID, local: address, remote: address, port: 4420, peer, private, doubtful }
}

#[test]
fn a_connection_that_is_not_accepted_is_told_to_be_over_once() {
    let mut world = World::new();
    assert_eq!(world.happen([request()]), ["open 5"]);
    world.device.accepts = false;
    assert_eq!(world.opened(Ok((QPN, 2))), ["disconnected 0x17"]);
    assert_eq!(world.happen([]), [""; 0], "the number may be another queue's by now");
    assert!(world.acceptor.connections.is_empty() && world.acceptor.by_qpn.is_empty());
}

#[test]
fn a_connection_that_ends_while_its_queue_is_made_is_told_to_be_over_once() {
    for released in [false, true] {
        let mut world = World::new();
        world.happen([request()]);
        let mut events = vec![CmEvent::Unreachable { id: ID }];
        events.extend(released.then_some(CmEvent::Released { id: ID }));
        assert_eq!(world.happen(events), [""; 0]);
        assert_eq!(world.opened(Ok((QPN, 2))), ["disconnected 0x17"]);
        assert_eq!(world.happen([CmEvent::Released { id: ID }]), [""; 0]);
        assert!(world.acceptor.connections.is_empty() && world.acceptor.by_qpn.is_empty());
    }
}

#[test]
fn a_connection_is_told_to_be_there_and_to_be_over_once_each() {
    let mut world = World::new();
    world.happen([request()]);
    assert_eq!(world.opened(Ok((QPN, 2))), [""; 0]);
    assert_eq!(world.happen([CmEvent::Established { id: ID }]), ["established 0x17"]);
    let ends = [CmEvent::Disconnected { id: ID }, CmEvent::Unreachable { id: ID }];
    assert_eq!(world.happen(ends), ["disconnected 0x17"]);
    assert_eq!(world.happen([CmEvent::Released { id: ID }]), [""; 0]);
    assert!(world.device.disconnected.is_empty());
}

#[test]
fn a_queue_that_closes_ends_its_connection_and_is_told_nothing() {
    let mut world = World::new();
    world.happen([request()]);
    world.opened(Ok((QPN, 2)));
    world.acceptor.queue_closed(world.now, &mut world.device, QPN);
    assert_eq!(world.device.disconnected, [ID]);
    let ends = [CmEvent::Disconnected { id: ID }, CmEvent::Released { id: ID }];
    assert_eq!(world.happen(ends), [""; 0]);
}
