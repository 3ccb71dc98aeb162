//! The invariant CRC of RoCEv2 packets: made for those we send, checked on those we receive (IBTA 7.8.1, A17.3.3).
//!
//! The ICRC is the ordinary CRC-32 of: eight bytes of ones, the IP header with traffic class, TTL, flow label and
//! header checksum replaced by ones, the UDP header with its checksum replaced by ones, and the packet from the BTH
//! on, with the byte that holds the congestion bits replaced by ones. It is appended least significant byte first.
//!
//! All that stands before the BTH is one value per flow, corrected for the length fields and the Identification by
//! table: the CRC is linear, so what a byte adds depends only on its value and its distance from the end of the
//! prefix. The replaced byte of the BTH is corrected in the initial value too. So the bytes of a packet go through the
//! CRC once, as they lie in memory.
//!
//! A UDP socket does not show the IPv4 Identification, which the ICRC covers. [`IcrcChecker`] first tries the value
//! that would follow the last one; if that fails it solves for the 16 bits that would make the ICRC right, and accepts
//! when there is such a value: a check of 16 bits instead of 32.
//!
//! Nothing here touches a socket or allocates after construction.

use std::net::{IpAddr, Ipv4Addr};

use t10pi::{Ahead, Kernel};

use super::RxMeta;
use super::wire::{BTH_LEN, ICRC_LEN, UDP_PORT};
use crate::device::SUM_PIECE;

/// Bytes of ones that stand for the link header.
const LRH_LEN: usize = 8;
const UDP_LEN: usize = 8;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const PROTOCOL_UDP: u8 = 17;

/// Masked prefix of an IPv4 packet: link header, IP, UDP.
const V4_PREFIX: usize = LRH_LEN + V4_LEN + UDP_LEN;
/// Masked prefix of an IPv6 packet.
const V6_PREFIX: usize = LRH_LEN + V6_LEN + UDP_LEN;

/// Offset of the IPv4 total length in the prefix.
const V4_TOTAL_AT: usize = LRH_LEN + 2;
/// Offset of the IPv4 Identification in the prefix.
const V4_ID_AT: usize = LRH_LEN + 4;
/// Offset of the IPv6 payload length in the prefix.
const V6_PAYLOAD_AT: usize = LRH_LEN + 4;
/// Offset of the UDP length, counted from the end of the prefix.
const UDP_LENGTH_BEFORE_END: usize = 4;

/// Offset in the BTH of the byte that counts as ones: FECN, BECN and reserved bits.
const BTH_MASKED_AT: usize = 4;

/// One direction of traffic between two addresses from one UDP port. Small, copied freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcrcFlow {
    /// CRC of the prefix with both length fields and the Identification zero.
    base: u32,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// The ICRC of one packet, while its payload is fed.
#[derive(Clone, Debug)]
pub struct Icrc {
    kernel: Kernel,
    /// Of what was fed.
    crc: u32,
    pad: u8,
}

/// What follows the payload on the wire: pad bytes, then the ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    bytes: [u8; 3 + ICRC_LEN],
    start: u8,
}

impl IcrcFlow {
    /// The flow of packets from `src`, UDP port `src_port`, to `dst`, UDP port 4791. IPv4 when both addresses are;
    /// an IPv4 address beside an IPv6 one counts as IPv4-mapped.
    #[must_use]
    pub fn new(src: IpAddr, dst: IpAddr, src_port: u16) -> Self {
        match (src.to_canonical(), dst.to_canonical()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut prefix = [0xFF; V4_PREFIX];
                let ip = &mut prefix[LRH_LEN..LRH_LEN + V4_LEN];
                ip[0] = 0x45;
                ip[2..6].fill(0);
                // Don't fragment, offset 0: every RoCEv2 sender sets it.
                ip[6..8].copy_from_slice(&[0x40, 0]);
                ip[9] = PROTOCOL_UDP;
                ip[12..16].copy_from_slice(&src.octets());
                ip[16..20].copy_from_slice(&dst.octets());
                emit_ports(&mut prefix[LRH_LEN + V4_LEN..], src_port);
                Self { base: Kernel::active().crc32(0, &prefix), family: Family::V4 }
            }
            (src, dst) => {
                let mut prefix = [0xFF; V6_PREFIX];
                let ip = &mut prefix[LRH_LEN..LRH_LEN + V6_LEN];
                ip[0] = 0x6F;
                ip[4..6].fill(0);
                ip[6] = PROTOCOL_UDP;
                ip[8..24].copy_from_slice(&octets_v6(src));
                ip[24..40].copy_from_slice(&octets_v6(dst));
                emit_ports(&mut prefix[LRH_LEN + V6_LEN..], src_port);
                Self { base: Kernel::active().crc32(0, &prefix), family: Family::V6 }
            }
        }
    }

    /// Begins a packet that we send: `header` is the BTH with its extension headers, `payload_len` the bytes that will
    /// be fed with [`Icrc::update`], without padding. `id` is the IPv4 Identification that the kernel will use: 0 for
    /// a single datagram, the position within the call for a segment of a UDP_SEGMENT batch. IPv6 ignores it.
    ///
    /// # Panics
    /// When `header` is shorter than a BTH.
    #[must_use]
    #[inline]
    pub fn begin(&self, id: u16, header: &[u8], payload_len: usize) -> Icrc {
        let pad = payload_len.wrapping_neg() & 3;
        let init = self.init(id, header.len() + payload_len + pad + ICRC_LEN, header[BTH_MASKED_AT]);
        let kernel = Kernel::active();
        #[expect(clippy::cast_possible_truncation, reason = "0 to 3")]
        let pad = pad as u8;
        Icrc { kernel, crc: kernel.crc32(init, header), pad }
    }

    /// The ICRC that a whole UDP payload must end with, for IPv4 Identification `id`.
    #[inline]
    fn crc(&self, id: u16, covered: &[u8]) -> u32 {
        let init = self.init(id, covered.len() + ICRC_LEN, covered[BTH_MASKED_AT]);
        Kernel::active().crc32(init, covered)
    }

    /// CRC after the prefix, corrected so that feeding the BTH unmasked, with `masked` as it is, gives the ICRC.
    #[inline]
    fn init(&self, id: u16, udp_payload_len: usize, masked: u8) -> u32 {
        // Lengths beyond 16 bits never leave a host; wrapped, they make an ICRC that no receiver accepts.
        #[expect(clippy::cast_possible_truncation, reason = "wraps by intent")]
        let udp_len = (udp_payload_len + UDP_LEN) as u16;
        let lengths = match self.family {
            Family::V4 => {
                #[expect(clippy::cast_possible_truncation, reason = "20")]
                let total = udp_len.wrapping_add(V4_LEN as u16);
                V4_TOTAL.of(total) ^ V4_ID.of(id)
            }
            Family::V6 => V6_PAYLOAD.of(udp_len),
        };
        self.base ^ lengths ^ UDP_LENGTH.of(udp_len) ^ BTH_MASK[usize::from(masked)]
    }
}

impl Icrc {
    /// Feeds the next piece of the payload.
    #[inline]
    pub fn update(&mut self, piece: &[u8]) {
        self.update_ahead(piece, Ahead::NONE);
    }

    /// As [`Icrc::update`], and fetches `ahead` meanwhile.
    #[inline]
    pub fn update_ahead(&mut self, piece: &[u8], ahead: Ahead) {
        self.crc = self.kernel.crc32_ahead(self.crc, piece, ahead);
    }

    /// Feeds a piece of [`SUM_PIECE`] bytes by its CRC-32 from register 0, without the final complement.
    #[inline]
    pub fn update_known(&mut self, sum: u32) {
        // The CRC is linear: the register runs through as many zero bytes, and what the piece adds is added.
        self.crc = !(multiply(!self.crc, BEHIND_PIECE) ^ sum);
    }

    /// After the last piece: the bytes that go behind it.
    #[must_use]
    #[inline]
    pub fn finish(mut self) -> Trailer {
        let pad = usize::from(self.pad);
        if pad != 0 {
            self.update(&[0; 3][..pad]);
        }
        let mut bytes = [0; 3 + ICRC_LEN];
        bytes[3..].copy_from_slice(&self.crc.to_le_bytes());
        Trailer { bytes, start: 3 - self.pad }
    }
}

impl Trailer {
    /// The bytes: 4 to 7.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

/// Checks the ICRC of received packets. Remembers a few flows, for speed only.
#[derive(Debug)]
pub struct IcrcChecker {
    slots: Box<[Slot; SLOTS]>,
}

const SLOTS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Slot {
    meta: RxMeta,
    flow: IcrcFlow,
    /// The Identification that the next packet of the flow may have.
    next_id: u16,
}

impl Default for IcrcChecker {
    fn default() -> Self {
        Self::new()
    }
}

impl IcrcChecker {
    /// A checker that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let meta = RxMeta { src: any, dst: any, src_port: 0 };
        let flow = IcrcFlow::new(meta.src, meta.dst, meta.src_port);
        Self { slots: Box::new([Slot { meta, flow, next_id: 0 }; SLOTS]) }
    }

    /// Whether `udp_payload`, the BTH to the ICRC inclusive, ends with the right ICRC. Over IPv4 that is: with the
    /// right one for some Identification.
    #[must_use]
    #[inline]
    pub fn check(&mut self, meta: &RxMeta, udp_payload: &[u8]) -> bool {
        self.identify(meta, udp_payload).is_some()
    }

    /// As [`Self::check`]; returns the IPv4 Identification that the sender used (0 over IPv6).
    #[must_use]
    pub fn identify(&mut self, meta: &RxMeta, udp_payload: &[u8]) -> Option<u16> {
        let (covered, icrc) = udp_payload.split_last_chunk::<ICRC_LEN>()?;
        if covered.len() < BTH_LEN || covered.len() % 4 != 0 {
            return None;
        }
        let wire = u32::from_le_bytes(*icrc);
        let slot = &mut self.slots[slot_of(meta)];
        if slot.meta != *meta {
            *slot = Slot { meta: *meta, flow: IcrcFlow::new(meta.src, meta.dst, meta.src_port), next_id: 0 };
        }
        let guess = slot.next_id;
        let difference = slot.flow.crc(guess, covered) ^ wire;
        if difference == 0 {
            if slot.flow.family == Family::V4 {
                slot.next_id = guess.wrapping_add(1);
                return Some(guess);
            }
            return Some(0);
        }
        if slot.flow.family == Family::V6 {
            return None;
        }
        let id = guess ^ solve_id(difference, covered.len())?;
        slot.next_id = id.wrapping_add(1);
        Some(id)
    }
}

/// Slot of a flow: peers differ in the low bytes of their addresses, and flows of one peer in the port.
#[inline]
fn slot_of(meta: &RxMeta) -> usize {
    let low = match meta.src {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => {
            #[expect(clippy::cast_possible_truncation, reason = "the low bits")]
            let low = v6.to_bits() as u32;
            low
        }
    };
    let mixed = (low ^ u32::from(meta.src_port)).wrapping_mul(0x9E37_79B1);
    (mixed >> 26) as usize
}

const _: () = assert!(SLOTS == 1 << (32 - 26));

fn octets_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Ports and a zero length at the start of a UDP header.
fn emit_ports(udp: &mut [u8], src_port: u16) {
    udp[..2].copy_from_slice(&src_port.to_be_bytes());
    udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
    udp[4..6].fill(0);
}

/// The two bytes that, xored into the Identification, change the CRC by `difference`, if there are any; `covered_len`
/// is the number of covered bytes from the BTH on.
fn solve_id(difference: u32, covered_len: usize) -> Option<u16> {
    let behind_id = V4_PREFIX - (V4_ID_AT + 2) + covered_len;
    // The register right behind the Identification, if only its bytes were not zero.
    let register = multiply(difference, inverse_power(behind_id));
    // Undo the two byte steps that led to it: the top byte of a table entry names the entry.
    let second = ENTRY_OF_TOP[(register >> 24) as usize];
    let before = (register ^ TABLE[usize::from(second)]) << 8;
    let first = ENTRY_OF_TOP[(before >> 24) as usize];
    let redundant = TABLE[usize::from(first)] ^ before;
    if redundant & 0xFFFF_FF00 != 0 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the upper three bytes are zero")]
    let low = second ^ redundant as u8;
    Some(u16::from_be_bytes([first, low]))
}

/// x^(-8n) modulo the polynomial.
fn inverse_power(n: usize) -> u32 {
    match INVERSE_POWERS.get(n / 4) {
        Some(&power) if n % 4 == INVERSE_POWERS_REST => power,
        _ => {
            // Longer than any path MTU allows: by repeated squaring.
            let mut result = ONE;
            let mut base = INVERSE_X8;
            let mut rest = n;
            while rest != 0 {
                if rest & 1 != 0 {
                    result = multiply(result, base);
                }
                base = multiply(base, base);
                rest >>= 1;
            }
            result
        }
    }
}

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0xEDB8_8320;
/// x^0 in reflected order.
const ONE: u32 = 1 << 31;

/// Product modulo the polynomial, both factors reflected.
#[inline]
fn multiply(a: u32, b: u32) -> u32 {
    // Reflected factors give the reflected product one place too low.
    let product = carryless_product(a, b) << 1;
    // The lower half holds x^32 to x^63: it is what its register becomes after four zero bytes.
    let low_degree = (product >> 32) as u32;
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let high_degree = product as u32;
    let [b0, b1, b2, b3] = high_degree.to_le_bytes().map(usize::from);
    low_degree ^ AFTER_ZEROS[3][b0] ^ AFTER_ZEROS[2][b1] ^ AFTER_ZEROS[1][b2] ^ AFTER_ZEROS[0][b3]
}

/// Product of polynomials over one bit. Each factor is split into four numbers with three zero bits between the bits,
/// so that the up to eight ones that meet in a place of an integer product can't carry into a place that counts.
#[inline]
fn carryless_product(a: u32, b: u32) -> u64 {
    const EVERY_FOURTH: u64 = 0x1111_1111_1111_1111;
    let split = |factor: u32| [0, 1, 2, 3].map(|at| u64::from(factor) & (EVERY_FOURTH << at));
    let (a, b) = (split(a), split(b));
    let place = |at: usize| {
        let sum =
            (a[0] * b[at]) ^ (a[1] * b[(at + 3) % 4]) ^ (a[2] * b[(at + 2) % 4]) ^ (a[3] * b[(at + 1) % 4]);
        sum & (EVERY_FOURTH << at)
    };
    place(0) | place(1) | place(2) | place(3)
}

/// The register after one byte, by the xor of its low byte and the byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0_u32;
    while index < 256 {
        let mut register = index;
        let mut bit = 0;
        while bit < 8 {
            register = (register >> 1) ^ (POLYNOMIAL & (register & 1).wrapping_neg());
            bit += 1;
        }
        table[index as usize] = register;
        index += 1;
    }
    table
};

/// [`TABLE`] after `behind` further zero bytes.
const fn after_zeros(behind: usize) -> [u32; 256] {
    let mut table = TABLE;
    let mut index = 0;
    while index < 256 {
        let mut left = behind;
        while left > 0 {
            let register: u32 = table[index];
            table[index] = (register >> 8) ^ TABLE[(register & 0xFF) as usize];
            left -= 1;
        }
        index += 1;
    }
    table
}

/// The register after one byte and 0 to 3 zero bytes.
static AFTER_ZEROS: [[u32; 256]; 4] = [after_zeros(0), after_zeros(1), after_zeros(2), after_zeros(3)];

/// x^(8n) for the n bytes of a piece whose checksum is known.
const BEHIND_PIECE: u32 = {
    let mut register = ONE;
    let mut left = SUM_PIECE;
    while left > 0 {
        register = (register >> 8) ^ TABLE[(register & 0xFF) as usize];
        left -= 1;
    }
    register
};

/// Which entry of [`TABLE`] has this top byte; all differ.
const ENTRY_OF_TOP: [u8; 256] = {
    let mut entries = [0; 256];
    let mut index = 0_u8;
    loop {
        entries[(TABLE[index as usize] >> 24) as usize] = index;
        if index == u8::MAX {
            break;
        }
        index += 1;
    }
    entries
};

/// The register from which one zero byte led to `register`.
const fn rewind(register: u32) -> u32 {
    let entry = ENTRY_OF_TOP[(register >> 24) as usize];
    ((register ^ TABLE[entry as usize]) << 8) | entry as u32
}

/// x^-8: one zero byte undone.
const INVERSE_X8: u32 = rewind(ONE);

/// The lengths in [`INVERSE_POWERS`] are this modulo 4: what lies between the Identification and the BTH is.
const INVERSE_POWERS_REST: usize = (V4_PREFIX - (V4_ID_AT + 2)) % 4;

/// x^(-8n) for n = 4i + [`INVERSE_POWERS_REST`], up to packets of the largest path MTU.
static INVERSE_POWERS: [u32; 1056] = {
    let mut powers = [0; 1056];
    let mut power = ONE;
    let mut skipped = 0;
    while skipped < INVERSE_POWERS_REST {
        power = rewind(power);
        skipped += 1;
    }
    let mut index = 0;
    while index < powers.len() {
        powers[index] = power;
        power = rewind(rewind(rewind(rewind(power))));
        index += 1;
    }
    powers
};

/// What a big-endian 16-bit field adds to the CRC at the end of the prefix.
struct FieldTable {
    high: [u32; 256],
    low: [u32; 256],
}

impl FieldTable {
    /// For a field whose first byte lies `before_end` bytes before the end of the prefix.
    const fn new(before_end: usize) -> Self {
        Self { high: after_zeros(before_end - 1), low: after_zeros(before_end - 2) }
    }

    #[inline]
    fn of(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes();
        self.high[usize::from(high)] ^ self.low[usize::from(low)]
    }
}

static V4_TOTAL: FieldTable = FieldTable::new(V4_PREFIX - V4_TOTAL_AT);
static V4_ID: FieldTable = FieldTable::new(V4_PREFIX - V4_ID_AT);
static V6_PAYLOAD: FieldTable = FieldTable::new(V6_PREFIX - V6_PAYLOAD_AT);
static UDP_LENGTH: FieldTable = FieldTable::new(UDP_LENGTH_BEFORE_END);

/// By the byte of the BTH that counts as ones: the change of the register before the BTH that makes up for it.
static BTH_MASK: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u32;
    while byte < 256 {
        let mut register = byte ^ 0xFF;
        let mut before = 0;
        while before < BTH_MASKED_AT {
            register = rewind(register);
            before += 1;
        }
        table[byte as usize] = register;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, byte by byte, over a datagram whose header is built field by field.
    fn oracle(meta: &RxMeta, id: u16, covered: &[u8]) -> [u8; 4] {
        let udp_len = u16::try_from(covered.len() + ICRC_LEN + 8).unwrap();
        let mut bytes = vec![0xFF; 8];
        match (meta.src, meta.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                bytes.extend([0x45, 0xFF]);
                bytes.extend((udp_len + 20).to_be_bytes());
                bytes.extend(id.to_be_bytes());
                bytes.extend([0x40, 0, 0xFF, 17, 0xFF, 0xFF]);
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                bytes.extend([0x6F, 0xFF, 0xFF, 0xFF]);
                bytes.extend(udp_len.to_be_bytes());
                bytes.extend([17, 0xFF]);
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
            }
            _ => unreachable!("tests use one family"),
        }
        bytes.extend(meta.src_port.to_be_bytes());
        bytes.extend(4791_u16.to_be_bytes());
        bytes.extend(udp_len.to_be_bytes());
        bytes.extend([0xFF, 0xFF]);
        let bth = bytes.len();
        bytes.extend(covered);
        bytes[bth + 4] = 0xFF;
        let mut register = u32::MAX;
        for byte in bytes {
            register ^= u32::from(byte);
            for _ in 0..8 {
                register = if register & 1 == 1 { (register >> 1) ^ POLYNOMIAL } else { register >> 1 };
            }
        }
        (!register).to_le_bytes()
    }

    fn meta(v6: bool, src: u32, dst: u32, src_port: u16) -> RxMeta {
        let address = |bits: u32| {
            if v6 { IpAddr::V6((u128::from(bits) | 0xFD77 << 112).into()) } else { IpAddr::V4(bits.into()) }
        };
        RxMeta { src: address(src), dst: address(dst), src_port }
    }

    fn wire(meta: &RxMeta, id: u16, covered: &[u8]) -> Vec<u8> {
        let mut bytes = covered.to_vec();
        bytes.extend(oracle(meta, id, covered));
        bytes
    }

    proptest! {
        #[test]
        fn scattered_payload_gets_the_crc_of_the_definition(
            v6 in any::<bool>(),
            src in any::<u32>(),
            dst in any::<u32>(),
            port in any::<u16>(),
            id in any::<u16>(),
            header in proptest::collection::vec(any::<u8>(), 12..=48),
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..4),
        ) {
            let meta = meta(v6, src, dst, port);
            let payload = pieces.concat();
            let mut covered = header.clone();
            covered.extend(&payload);
            covered.resize(header.len() + payload.len().next_multiple_of(4), 0);
            let mut icrc = IcrcFlow::new(meta.src, meta.dst, port).begin(id, &header, payload.len());
            pieces.iter().for_each(|piece| icrc.update(piece));
            let trailer = icrc.finish();
            let (pad, sum) = trailer.as_bytes().split_at(trailer.as_bytes().len() - 4);
            prop_assert_eq!(header.len() + payload.len() + pad.len(), covered.len());
            prop_assert!(pad.iter().all(|&byte| byte == 0));
            prop_assert_eq!(sum, oracle(&meta, id, &covered));
        }

        #[test]
        fn a_piece_of_known_checksum_need_not_be_read(
            seed in any::<u64>(),
            header in proptest::collection::vec(any::<u8>(), 12..=48),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let piece: Vec<u8> = (0..SUM_PIECE).map(|_| random.u8(..)).collect();
            let meta = meta(true, 1, 2, 3);
            let begun = IcrcFlow::new(meta.src, meta.dst, meta.src_port).begin(0, &header, piece.len());
            let (mut read, mut known) = (begun.clone(), begun);
            read.update(&piece);
            let mut sum = 0;
            for byte in &piece {
                sum = (sum >> 8) ^ TABLE[((sum ^ u32::from(*byte)) & 0xFF) as usize];
            }
            known.update_known(sum);
            prop_assert_eq!(read.finish(), known.finish());
        }

        #[test]
        fn the_identification_of_any_packet_is_found(
            src in any::<u32>(),
            dst in any::<u32>(),
            port in any::<u16>(),
            ids in proptest::collection::vec(any::<u16>(), 1..6),
            words in 3_usize..1400,
            seed in any::<u8>(),
        ) {
            let meta = meta(false, src, dst, port);
            let mut checker = IcrcChecker::new();
            #[expect(clippy::cast_possible_truncation, reason = "any bytes")]
            let covered: Vec<u8> = (0..words * 4).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
            for id in ids {
                prop_assert_eq!(checker.identify(&meta, &wire(&meta, id, &covered)), Some(id));
            }
        }

        #[test]
        fn a_flipped_bit_is_found_over_ipv6(
            words in 3_usize..300,
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let meta = meta(true, 1, 2, 0xC000);
            let covered = vec![0x5A; words * 4];
            let mut bytes = wire(&meta, 0, &covered);
            let mut checker = IcrcChecker::new();
            prop_assert!(checker.check(&meta, &bytes));
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            // The byte of the congestion bits is not covered.
            prop_assert_eq!(checker.check(&meta, &bytes), at == 4);
        }

        #[test]
        fn a_flipped_bit_is_found_over_ipv4(
            words in 3_usize..1060,
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
            id in any::<u16>(),
        ) {
            let meta = meta(false, 1, 2, 0xC000);
            let covered = vec![0x5A; words * 4];
            let mut bytes = wire(&meta, id, &covered);
            let mut checker = IcrcChecker::new();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            // One flipped bit and two bytes of another value: never equal within the period of the polynomial.
            prop_assert_eq!(checker.check(&meta, &bytes), at == 4);
        }
    }

    #[test]
    fn consecutive_identifications_need_no_solving_and_are_followed() {
        let meta = meta(false, 0x0A4D_0001, 0x0A4D_0002, 0xF688);
        let mut checker = IcrcChecker::new();
        let covered = [0x11; 16];
        for id in [0, 1, 2, 700, 701, 0xFFFF, 0, 0, 1] {
            assert_eq!(checker.identify(&meta, &wire(&meta, id, &covered)), Some(id));
            assert_eq!(checker.slots[slot_of(&meta)].next_id, id.wrapping_add(1));
        }
    }

    #[test]
    fn every_identification_of_a_short_and_a_long_packet_is_solved() {
        for length in [12, 4128] {
            let meta = meta(false, 3, 4, 5);
            let flow = IcrcFlow::new(meta.src, meta.dst, meta.src_port);
            let covered = vec![7; length];
            let zero = flow.crc(0, &covered);
            for id in 0..=u16::MAX {
                assert_eq!(solve_id(zero ^ flow.crc(id, &covered), length), Some(id));
            }
        }
    }

    #[test]
    fn the_product_is_that_of_the_definition() {
        let slow = |a: u32, mut b: u32| {
            let mut product = 0;
            for bit in 0..32 {
                if a & (ONE >> bit) != 0 {
                    product ^= b;
                }
                b = if b & 1 == 1 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
            }
            product
        };
        let mut random = fastrand::Rng::with_seed(2);
        for (a, b) in
            (0..10_000).map(|_| (random.u32(..), random.u32(..))).chain([(0, 5), (ONE, ONE), (!0, !0)])
        {
            assert_eq!(multiply(a, b), slow(a, b), "{a:#x} {b:#x}");
        }
        assert_eq!(multiply(INVERSE_X8, ONE >> 8), ONE, "x^8 and its inverse");
    }

    #[test]
    fn about_one_of_65536_random_differences_passes_without_the_identification() {
        let mut random = fastrand::Rng::with_seed(1);
        let passed = (0..4_000_000).filter(|_| solve_id(random.u32(..), 36).is_some()).count();
        assert!((30..100).contains(&passed), "{passed} of 4 million, 61 expected");
    }

    #[test]
    fn the_flow_of_another_address_or_port_is_refused_over_ipv6() {
        let covered = [9; 64];
        let good = meta(true, 1, 2, 3);
        let bytes = wire(&good, 0, &covered);
        let mut checker = IcrcChecker::new();
        assert!(checker.check(&good, &bytes));
        for other in [meta(true, 9, 2, 3), meta(true, 1, 9, 3), meta(true, 1, 2, 9)] {
            assert!(!checker.check(&other, &bytes));
        }
        assert!(checker.check(&good, &bytes));
    }

    #[test]
    fn short_and_unaligned_payloads_are_refused() {
        let meta = meta(false, 1, 2, 3);
        let mut checker = IcrcChecker::new();
        let bytes = wire(&meta, 0, &[0; 12]);
        for length in 0..bytes.len() {
            assert!(!checker.check(&meta, &bytes[..length]));
        }
        assert!(checker.check(&meta, &bytes));
        assert!(!checker.check(&meta, &wire(&meta, 0, &[0; 13])));
    }
}
