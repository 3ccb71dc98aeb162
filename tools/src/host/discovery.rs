//! The discovery log: reading it whole, and showing it as `nvme discover` does.

use std::fmt::Write as _;

use intact::nvmf::wire::identify::ascii;
use intact::nvmf::wire::log_page::{DiscoveryEntry, DiscoveryHeader, discovery_values as values, lid};
use serde::Serialize;
use zerocopy::FromBytes;

use super::controller::Controller;
use super::error::HostError;

/// Bytes of the log's header and of each entry.
const RECORD: usize = 1024;
/// Records that one command fetches.
const CHUNK: u64 = 32;
/// Records at most: beyond that it is no log.
const MOST: u64 = 65_536;
/// Tries to read a log that keeps changing.
const TRIES: u32 = 10;

/// The discovery log at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoveryLog {
    /// Generation Counter.
    pub genctr: u64,
    /// What can be reached, where.
    pub records: Vec<Record>,
}

/// One entry of the log, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Transport.
    pub trtype: String,
    /// Address family.
    pub adrfam: String,
    /// What kind of subsystem.
    pub subtype: String,
    /// Secure channel, and flow control.
    pub treq: String,
    /// Port ID.
    pub portid: u16,
    /// Port.
    pub trsvcid: String,
    /// Subsystem NQN.
    pub subnqn: String,
    /// Address.
    pub traddr: String,
    /// Flags.
    pub eflags: String,
    /// RDMA provider.
    pub rdma_prtype: String,
    /// RDMA queue pair type.
    pub rdma_qptype: String,
    /// RDMA connection management.
    pub rdma_cms: String,
}

/// Reads the whole log; again, if it changed meanwhile.
///
/// # Errors
/// When the controller refuses or does not answer.
pub fn read(controller: &mut Controller) -> Result<DiscoveryLog, HostError> {
    for _ in 0..TRIES {
        let header = header(controller)?;
        let count = header.numrec.get();
        if count > MOST {
            return Err(HostError::Invalid(format!("a discovery log of {count} records")));
        }
        let mut records = Vec::new();
        let mut next = 0;
        while next < count {
            let chunk = CHUNK.min(count - next);
            let mut bytes = vec![0; usize::try_from(chunk).expect("a small number") * RECORD];
            controller.log_page(lid::DISCOVERY, 0, (next + 1) * RECORD as u64, &mut bytes)?;
            for entry in bytes.chunks_exact(RECORD) {
                let entry = DiscoveryEntry::ref_from_bytes(entry).expect("as long as an entry");
                records.push(Record::new(entry));
            }
            next += chunk;
        }
        let genctr = header.genctr.get();
        if count == 0 || self::header(controller)?.genctr.get() == genctr {
            return Ok(DiscoveryLog { genctr, records });
        }
    }
    Err(HostError::Invalid("the discovery log changes faster than it can be read".to_owned()))
}

fn header(controller: &mut Controller) -> Result<DiscoveryHeader, HostError> {
    let mut bytes = [0; RECORD];
    controller.log_page(lid::DISCOVERY, 0, 0, &mut bytes)?;
    Ok(DiscoveryHeader::read_from_bytes(&bytes).expect("as long as the header"))
}

impl Record {
    fn new(entry: &DiscoveryEntry) -> Self {
        let rdma = entry.trtype == values::TRTYPE_RDMA;
        let named = |names: &[(u8, &str)], value: u8| {
            let known = names.iter().find(|(number, _)| *number == value);
            known.map_or_else(|| format!("unrecognized ({value})"), |(_, name)| (*name).to_owned())
        };
        let only_rdma = |name: String| if rdma { name } else { String::new() };
        Self {
            trtype: named(&[(1, "rdma"), (2, "fc"), (3, "tcp"), (254, "loop")], entry.trtype),
            adrfam: named(&[(1, "ipv4"), (2, "ipv6"), (3, "ib"), (4, "fibre-channel")], entry.adrfam),
            subtype: named(
                &[
                    (1, "discovery subsystem referral"),
                    (values::SUBTYPE_NVM, "nvme subsystem"),
                    (values::SUBTYPE_CURRENT_DISCOVERY, "current discovery subsystem"),
                ],
                entry.subtype,
            ),
            treq: treq(entry.treq),
            portid: entry.portid.get(),
            trsvcid: ascii(&entry.trsvcid),
            subnqn: ascii(&entry.subnqn),
            traddr: ascii(&entry.traddr),
            eflags: eflags(entry.eflags.get()),
            rdma_prtype: only_rdma(named(
                &[(1, "not specified"), (2, "infiniband"), (3, "roce"), (4, "roce-v2"), (5, "iwarp")],
                entry.prtype,
            )),
            rdma_qptype: only_rdma(named(&[(1, "connected"), (2, "datagram")], entry.qptype)),
            rdma_cms: only_rdma(named(&[(1, "rdma-cm")], entry.cms)),
        }
    }
}

fn treq(value: u8) -> String {
    let secure = match value & 3 {
        0 => "not specified",
        1 => "required",
        2 => "not required",
        _ => "reserved",
    };
    let flow = if value & 4 != 0 { ", sq flow control disable supported" } else { "" };
    format!("{secure}{flow}")
}

fn eflags(value: u16) -> String {
    let names = [
        (values::EFLAGS_DUPRETINFO, "duplicate discovery information"),
        (values::EFLAGS_EPCSD, "explicit discovery connections"),
    ];
    let set: Vec<&str> = names.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(", ") }
}

impl DiscoveryLog {
    /// The log as `nvme discover` shows it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "\nDiscovery Log Number of Records {}, Generation counter {}\n",
            self.records.len(),
            self.genctr
        );
        for (index, record) in self.records.iter().enumerate() {
            record.write(&mut text, index).expect("writing to a string can't fail");
        }
        text
    }
}

impl Record {
    fn write(&self, text: &mut String, index: usize) -> std::fmt::Result {
        writeln!(text, "=====Discovery Log Entry {index}======")?;
        writeln!(text, "trtype:  {}", self.trtype)?;
        writeln!(text, "adrfam:  {}", self.adrfam)?;
        writeln!(text, "subtype: {}", self.subtype)?;
        writeln!(text, "treq:    {}", self.treq)?;
        writeln!(text, "portid:  {}", self.portid)?;
        writeln!(text, "trsvcid: {}", self.trsvcid)?;
        writeln!(text, "subnqn:  {}", self.subnqn)?;
        writeln!(text, "traddr:  {}", self.traddr)?;
        writeln!(text, "eflags:  {}", self.eflags)?;
        if !self.rdma_prtype.is_empty() {
            writeln!(text, "rdma_prtype: {}", self.rdma_prtype)?;
            writeln!(text, "rdma_qptype: {}", self.rdma_qptype)?;
            writeln!(text, "rdma_cms:    {}", self.rdma_cms)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn an_entry_reads_as_nvme_cli_words_it() {
        let mut entry = DiscoveryEntry::new_zeroed();
        entry.trtype = 1;
        entry.adrfam = 1;
        entry.subtype = 2;
        entry.treq = 6;
        entry.trsvcid[..6].copy_from_slice(b"4420  ");
        entry.subnqn[..5].copy_from_slice(b"nqn.x");
        entry.prtype = 4;
        entry.qptype = 1;
        entry.cms = 1;
        let log = DiscoveryLog { genctr: 3, records: vec![Record::new(&entry)] };
        let text = log.to_text();
        for line in [
            "Discovery Log Number of Records 1, Generation counter 3",
            "subtype: nvme subsystem",
            "treq:    not required, sq flow control disable supported",
            "trsvcid: 4420",
            "subnqn:  nqn.x",
            "eflags:  none",
            "rdma_prtype: roce-v2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} in {text}");
        }
    }
}
