//! The target's name and ports, and REPORT TARGET PORT GROUPS. (SPC-4 "REPORT TARGET PORT GROUPS"; names: RFC
//! 7143 4.2.7.)
//!
//! All ports are one group, and each reaches every unit equally well.

use super::big_endian::put;

/// A target port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// RELATIVE TARGET PORT IDENTIFIER, from 1.
    pub relative: u16,
    /// iSCSI's target portal group tag, which is part of the port's name.
    pub portal_group: u16,
}

/// A target device's name and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPorts {
    /// The iSCSI name, of at most [`NAME_MAX`](super::nexus::NAME_MAX) bytes.
    pub name: String,
    /// Its ports, at least one and at most 255.
    pub ports: Vec<TargetPort>,
}

/// TARGET PORT GROUP of all ports.
pub(super) const GROUP: u16 = 1;

impl TargetPorts {
    /// The iSCSI name of a port.
    #[must_use]
    pub fn port_name(&self, port: &TargetPort) -> String {
        format!("{},t,0x{:04x}", self.name, port.portal_group)
    }

    /// The port with this identifier, if there is one.
    #[must_use]
    pub fn find(&self, relative: u16) -> Option<&TargetPort> {
        self.ports.iter().find(|port| port.relative == relative)
    }

    /// The parameter data of REPORT TARGET PORT GROUPS, untruncated; `extended` with the longer header.
    #[must_use]
    pub fn report_groups(&self, extended: bool) -> Vec<u8> {
        const EXTENDED_HEADER: u8 = 0b001 << 4;
        /// Asymmetric access state.
        const ACTIVE_OPTIMIZED: u8 = 0;
        /// AO_SUP: that is the one state there is.
        const ACTIVE_OPTIMIZED_SUPPORTED: u8 = 1;
        let mut data = if extended { vec![0, 0, 0, 0, EXTENDED_HEADER, 0, 0, 0] } else { vec![0; 4] };
        let [high, low] = GROUP.to_be_bytes();
        let count = u8::try_from(self.ports.len()).unwrap_or(u8::MAX);
        data.extend([ACTIVE_OPTIMIZED, ACTIVE_OPTIMIZED_SUPPORTED, high, low, 0, 0, 0, count]);
        for port in &self.ports[..usize::from(count)] {
            let [high, low] = port.relative.to_be_bytes();
            data.extend([0, 0, high, low]);
        }
        let len = u32::try_from(data.len() - 4).expect("255 ports at most");
        put(&mut data, 0, &len.to_be_bytes());
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_group_has_all_ports() {
        let ports = [(1, 1), (2, 7)].map(|(relative, portal_group)| TargetPort { relative, portal_group });
        let target = TargetPorts { name: "iqn.x:t".to_owned(), ports: ports.to_vec() };
        let group = [0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
        assert_eq!(target.report_groups(false), [&[0, 0, 0, 16], group.as_slice()].concat());
        let extended = [&[0, 0, 0, 20, 0x10, 0, 0, 0], group.as_slice()].concat();
        assert_eq!(target.report_groups(true), extended);
        assert_eq!(target.port_name(&ports[1]), "iqn.x:t,t,0x0007");
        assert_eq!((target.find(2), target.find(3)), (Some(&ports[1]), None));
    }
}
