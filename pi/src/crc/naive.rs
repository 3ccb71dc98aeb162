//! The oracle: checksums one bit at a time, straight from their definitions.

use crate::format::Guard;

/// The checksum of `bytes`.
pub(super) fn checksum(guard: Guard, bytes: &[u8]) -> u64 {
    match guard {
        Guard::Crc16 => bytes.iter().fold(0, |crc, byte| {
            (0..8).fold(crc ^ u64::from(*byte) << 8, |crc, _| {
                let next = crc << 1;
                if next & 0x1_0000 != 0 { next ^ 0x1_8BB7 } else { next }
            })
        }),
        Guard::Crc32c => !reflected(0x82F6_3B78, 0xFFFF_FFFF, bytes) & 0xFFFF_FFFF,
        Guard::Crc64 => !reflected(0x9A6C_9329_AC4B_C9B5, u64::MAX, bytes),
        Guard::Ip => {
            let mut sum: u64 = bytes
                .chunks(2)
                .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u64::from(*byte)))
                .sum();
            while sum > 0xFFFF {
                sum = (sum & 0xFFFF) + (sum >> 16);
            }
            !sum & 0xFFFF
        }
    }
}

/// The checksums of all beginnings of `bytes`: item `n` is that of the first `n` bytes.
pub(super) fn prefixes(guard: Guard, bytes: &[u8]) -> Vec<u64> {
    if guard == Guard::Ip {
        return (0..=bytes.len()).map(|length| checksum(guard, &bytes[..length])).collect();
    }
    let (mut crc, xorout) = match guard {
        Guard::Crc16 | Guard::Ip => (0, 0),
        Guard::Crc32c => (0xFFFF_FFFF, 0xFFFF_FFFF),
        Guard::Crc64 => (u64::MAX, u64::MAX),
    };
    let mut all = vec![crc ^ xorout];
    for byte in bytes {
        crc = match guard {
            Guard::Crc16 | Guard::Ip => (0..8).fold(crc ^ u64::from(*byte) << 8, |crc, _| {
                let next = crc << 1;
                if next & 0x1_0000 != 0 { next ^ 0x1_8BB7 } else { next }
            }),
            Guard::Crc32c => reflected(0x82F6_3B78, crc, &[*byte]),
            Guard::Crc64 => reflected(0x9A6C_9329_AC4B_C9B5, crc, &[*byte]),
        };
        all.push(crc ^ xorout);
    }
    all
}

/// The CRC-32 of IEEE 802.3 of all beginnings of `bytes`.
pub(super) fn ethernet_prefixes(bytes: &[u8]) -> Vec<u32> {
    let mut crc = 0xFFFF_FFFF;
    let mut all = vec![0];
    for byte in bytes {
        crc = reflected(0xEDB8_8320, crc, &[*byte]);
        all.push(!u32::try_from(crc).expect("32 bits"));
    }
    all
}

fn reflected(poly: u64, init: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(init, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| if crc & 1 != 0 { crc >> 1 ^ poly } else { crc >> 1 })
    })
}
