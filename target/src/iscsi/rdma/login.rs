//! Drives the login phase of a connection.

use rwctx::device::Device;

use super::Common;
use super::connection::{Connection, Logged, Phase, WINDOW};
use super::notice::Notice;
use crate::iscsi::login::{Established, LoginAction, LoginClose};
use crate::iscsi::registry::NoNexus;
use crate::iscsi::session::{Patience, Session, SessionParams};
use crate::scsi::shared::NexusView;
use crate::transport::Event;
use crate::transport::core::Core;

impl Connection {
    /// Does what the login says.
    pub(super) fn run_login<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common) {
        while let Phase::Login(login) = &mut self.phase
            && let Some(action) = login.poll_action()
        {
            match action {
                LoginAction::Send(outgoing) => self.send(core, outgoing),
                LoginAction::Admit(request) => {
                    match common.registry.admit(&request, self.peer) {
                        Ok(admission) => {
                            self.place = Some(admission);
                            if let Some(old) = admission.replaces {
                                core.events.push(Event::Iscsi(Notice::End(old)));
                            }
                            self.try_attach(common);
                        }
                        Err(status) => login.handle_admission(Err(status)),
                    };
                }
                LoginAction::Established(established) => self.begin(core, common, *established),
                LoginAction::Close(why) => {
                    common.stats.failed_logins.add(1);
                    let peer = self.peer;
                    match why {
                        LoginClose::Refused(fault) => {
                            core.warn(|| tracing::warn!(%peer, %fault, "iSCSI login refused"));
                        }
                        why => core.warn(|| tracing::warn!(%peer, %why, "iSCSI login failed")),
                    }
                    self.end_soon(core);
                }
            }
        }
    }

    /// Asks for the session's nexus, which the session that this one replaces may still have.
    pub(super) fn try_attach(&mut self, common: &Common) {
        let (Phase::Login(login), Some(place), None) = (&mut self.phase, self.place, &self.attached) else {
            return;
        };
        match common.registry.attach(place.tsih) {
            Ok(attached) => {
                self.attached = attached;
                login.handle_admission(Ok((place, WINDOW)));
            }
            // It is asked again when a session ended; the login's time is limited.
            Err(NoNexus::NotYet) => {}
            Err(NoNexus::Refused(status)) => login.handle_admission(Err(status)),
        }
    }

    /// The full feature phase begins.
    fn begin<D: Device>(&mut self, core: &mut Core<D>, common: &Common, established: Established) {
        common.stats.logins.add(1);
        let (peer, initiator) = (self.peer, &established.initiator);
        // Hosts can come and go as they like.
        core.warn(|| match &established.target {
            Some(target) => {
                tracing::info!(%peer, %initiator, %target, tsih = established.tsih.0, "iSCSI session");
            }
            None => tracing::debug!(%peer, %initiator, "iSCSI discovery session"),
        });
        let (initiator, target) = (established.initiator.clone(), established.target.clone());
        let session = Session::new(
            core.now,
            SessionParams {
                established,
                directory: common.registry.directory(),
                invalidation: self.invalidation,
                patience: Patience { idle: super::connection::IDLE, answer: super::connection::ANSWER },
            },
        );
        let view = NexusView::default();
        self.phase = Phase::Session(Box::new(Logged { session, view, initiator, target }));
    }
}
