//! SCSI commands, carried out one at a time: what a host asks of a target's logical units.

use std::time::Duration;

use intact::iscsi::wire::iser::Control;
use intact::iscsi::wire::number::Lun;
use intact::iscsi::wire::scsi::Residual;
use intact::scsi::luns::LunAddress;

use super::cdb::Cdb;
use super::initiator::{Completion, Initiator};
use super::inquiry::{self, Description};
use super::session::{Command, Direction};
use super::unit::{CAPACITY_LEN, Unit};
use super::{Failure, GOOD};
use crate::host::buffers::Buffers;
use crate::host::clock;
use crate::host::controller::Data;
use crate::host::error::HostError;

/// How long a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Unit attentions that a unit may tell before it is taken for broken.
const ATTENTIONS_MAX: u32 = 16;

impl Initiator {
    /// Carries out one command, `name`, in a session. Returns how many bytes of `data` moved.
    ///
    /// # Errors
    /// When it ends with another status than GOOD, or the target does not answer.
    pub fn execute(
        &mut self,
        session: usize,
        lun: Lun,
        cdb: &Cdb,
        data: Data<'_>,
        name: &'static str,
    ) -> Result<usize, HostError> {
        let length = match &data {
            Data::None => 0,
            Data::Send(from) => from.len(),
            Data::Receive(to) => to.len(),
        };
        let too_many = || HostError::Invalid(format!("{length} bytes are too many for one command"));
        let length32 = u32::try_from(length).map_err(|_| too_many())?;
        let keys = self.keys();
        let mut memory = Buffers::new(self, 1, length, keys)?;
        let direction = match &data {
            Data::None => Direction::None,
            Data::Send(_) => Direction::FromHost(length32),
            Data::Receive(_) => Direction::ToHost(length32),
        };
        if let Data::Send(from) = &data {
            memory.write(0, from);
        }
        let loan = Loan::make(self, &mut memory, session, 0, direction)?;
        let command = Command { tag: 0, lun, cdb: cdb.in_header(), data: direction };
        let until = clock::now() + COMMAND_TIMEOUT;
        while !self.has_room(session) {
            // The window opens, or acknowledgements come.
            self.step(until, name, COMMAND_TIMEOUT)?;
            let _ = self.next_completion()?;
        }
        let message = self.submit(session, &command, cdb.behind_header(), loan.control, loan.immediate)?;
        let mut done: Option<Completion> = None;
        let done = loop {
            while let Some(completion) = self.next_completion()? {
                if completion.session == session {
                    done = Some(completion);
                }
            }
            match done {
                Some(done) if loan.immediate.is_none() || self.is_acked(session, message) => break done,
                _ => self.step(until, name, COMMAND_TIMEOUT)?,
            }
        };
        memory.returned(self, session, 0, done.invalidated)?;
        let left = match done.residual {
            Residual::Underflow(left) => left,
            Residual::None | Residual::Overflow(_) => 0,
        };
        let moved = length - left.min(length32) as usize;
        if let Data::Receive(to) = data
            && done.status == Some(GOOD)
        {
            memory.read(0, &mut to[..moved]);
        }
        memory.release(self)?;
        tracing::trace!(command = name, status = ?done.status, residual = ?done.residual, "command completed");
        if done.status == Some(GOOD) {
            return Ok(moved);
        }
        Err(HostError::Scsi { command: name, failure: Failure::new(done.status, self.sense()) })
    }

    /// The logical units that the target reports.
    ///
    /// # Errors
    /// When the target refuses or does not answer.
    pub fn report_luns(&mut self, session: usize) -> Result<Vec<u16>, HostError> {
        let mut data = vec![0; 8 + 8 * 1024];
        let allocation = u32::try_from(data.len()).expect("a few units");
        let cdb = Cdb::report_luns(allocation);
        let moved = self.execute(session, Lun::default(), &cdb, Data::Receive(&mut data), "REPORT LUNS")?;
        let entries = data[..moved].as_chunks::<8>().0;
        let Some((header, listed)) = entries.split_first() else { return Ok(Vec::new()) };
        let [a, b, c, d, ..] = *header;
        let count = u32::from_be_bytes([a, b, c, d]) as usize / 8;
        let units = listed.iter().take(count).filter_map(|entry| match LunAddress::parse(*entry) {
            Some(LunAddress::Unit(number)) => Some(number),
            Some(LunAddress::ReportLuns) | None => None,
        });
        Ok(units.collect())
    }

    /// Waits until a logical unit has told everything that happened to it, and is ready.
    ///
    /// # Errors
    /// When it is not ready, or does not answer.
    pub fn await_unit(&mut self, session: usize, lun: Lun) -> Result<(), HostError> {
        let cdb = Cdb::test_unit_ready();
        let mut told = 0;
        loop {
            match self.execute(session, lun, &cdb, Data::None, "TEST UNIT READY") {
                Err(HostError::Scsi { failure, .. })
                    if failure.is_unit_attention() && told < ATTENTIONS_MAX =>
                {
                    tracing::debug!(%failure, "the unit tells");
                    told += 1;
                }
                other => return other.map(|_| ()),
            }
        }
    }

    /// Geometry and protection of a logical unit that is a disk.
    ///
    /// # Errors
    /// When there is no such unit, it is of a format that this host does not know, or does not answer.
    pub fn unit(&mut self, session: usize, lun: u16) -> Result<Unit, HostError> {
        let wire = Lun(LunAddress::Unit(lun).emit());
        self.await_unit(session, wire)?;
        let mut data = [0; CAPACITY_LEN as usize];
        let cdb = Cdb::read_capacity_16(CAPACITY_LEN);
        let moved = self.execute(session, wire, &cdb, Data::Receive(&mut data), "READ CAPACITY (16)")?;
        Unit::parse(lun, &data[..moved]).map_err(HostError::Invalid)
    }

    /// Everything that a logical unit says of itself.
    ///
    /// # Errors
    /// When it does not answer, or makes no sense.
    pub fn describe(&mut self, session: usize, lun: u16) -> Result<Description, HostError> {
        let wire = Lun(LunAddress::Unit(lun).emit());
        let standard = self.inquire(session, wire, None, inquiry::STANDARD_LEN)?;
        let mut description = Description::new(lun, &standard).map_err(HostError::Invalid)?;
        if !description.is_disk() {
            return Ok(description);
        }
        let supported = self.inquire(session, wire, Some(inquiry::SUPPORTED), inquiry::PAGE_LEN)?;
        description.take_page(inquiry::SUPPORTED, &supported);
        for page in description.wanted_pages() {
            let data = self.inquire(session, wire, Some(page), inquiry::PAGE_LEN)?;
            description.take_page(page, &data);
        }
        description.take_unit(&self.unit(session, lun)?);
        Ok(description)
    }

    /// User data of a command at most, in bytes, as the unit's block limits say it.
    ///
    /// # Errors
    /// When the unit does not answer, or makes no sense.
    pub fn max_data(&mut self, session: usize, unit: &Unit) -> Result<u64, HostError> {
        let limits = self.describe(session, unit.lun)?.limits;
        let blocks = limits.map_or(0, |limits| limits.maximum_transfer_length);
        let blocks = if blocks == 0 { u32::MAX } else { blocks };
        Ok(u64::from(blocks) * u64::from(unit.block_size))
    }

    fn inquire(
        &mut self,
        session: usize,
        lun: Lun,
        page: Option<u8>,
        allocation: u16,
    ) -> Result<Vec<u8>, HostError> {
        let mut data = vec![0; usize::from(allocation)];
        let cdb = Cdb::inquiry(page, allocation);
        let moved = self.execute(session, lun, &cdb, Data::Receive(&mut data), "INQUIRY")?;
        data.truncate(moved);
        Ok(data)
    }
}

/// The memory of a command as it names it: what the target may read or write, and what goes along.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loan {
    pub(super) control: Control,
    pub(super) immediate: Option<rwctx::wr::Sge>,
}

impl Loan {
    /// The memory of a slot for a command that moves data in this direction: registered for it, unless all of it goes along.
    ///
    /// # Errors
    /// When the queue pair failed.
    #[inline]
    pub(super) fn make(
        initiator: &mut Initiator,
        memory: &mut Buffers,
        session: usize,
        slot: usize,
        direction: Direction,
    ) -> Result<Self, HostError> {
        let mut loan = Self { control: Control::default(), immediate: None };
        match direction {
            Direction::None | Direction::ToHost(0) | Direction::FromHost(0) => {}
            Direction::ToHost(length) => {
                loan.control.read = Some(memory.lend(initiator, session, slot, length)?.at);
            }
            Direction::FromHost(length) => {
                let along = initiator.agreed(session).immediate(length);
                if along > 0 {
                    loan.immediate = Some(memory.sge(slot, along));
                }
                if along < length {
                    // The target reads what does not go along, and is told where that begins (RFC 7145 section 7.3.5).
                    let mut at = memory.lend(initiator, session, slot, length)?.at;
                    at.addr += u64::from(along);
                    loan.control.write = Some(at);
                }
            }
        }
        Ok(loan)
    }
}
