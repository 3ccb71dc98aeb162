//! The standard's rules of protection information, written down a second time and slowly: tuples, the space of tags, the
//! escape value, what is checked in which order. Nothing here comes from the product.
//!
//! NVM Command Set: tuples and checksums in "End-to-end Data Protection", tags of a command in "Variable Sized Expected
//! Initial Logical Block Storage Tag and Reference Tag". The order of fields in a block, guard, application tag, storage tag, reference
//! tag, is this project's choice where the standard leaves it open.

use super::format::{Format, Guard, Protection};

/// A field of a tuple, in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    Guard,
    App,
    Storage,
    Ref,
}

impl Field {
    pub(crate) const ALL: [Self; 4] = [Self::Guard, Self::App, Self::Storage, Self::Ref];

    /// As the log names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::App => "app_tag",
            Self::Storage => "storage_tag",
            Self::Ref => "ref_tag",
        }
    }

    /// Status code type and status code of its check's failure.
    pub(crate) fn status(self) -> (u8, u8) {
        match self {
            Self::Guard => (2, 0x82),
            Self::App => (2, 0x83),
            Self::Ref => (2, 0x84),
            Self::Storage => (2, 0x88),
        }
    }
}

/// Which fields a command has checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checks([bool; 4]);

impl Checks {
    pub(crate) const ALL: Self = Self([true; 4]);
    pub(crate) const NONE: Self = Self([false; 4]);

    /// All but one.
    pub(crate) fn without(field: Field) -> Self {
        let mut checks = Self::ALL;
        checks.0[field as usize] = false;
        checks
    }

    pub(crate) fn has(self, field: Field) -> bool {
        self.0[field as usize]
    }
}

/// The tags of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    pub(crate) app: u16,
    /// Bits of it that are compared.
    pub(crate) app_mask: u16,
    pub(crate) storage: u64,
    /// Reference tag of the first block.
    pub(crate) first_ref: u64,
}

/// A tuple's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) guard: u64,
    pub(crate) app: u16,
    pub(crate) storage: u64,
    pub(crate) reference: u64,
}

/// The first check that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) block: usize,
    pub(crate) field: Field,
    /// After masking.
    pub(crate) expected: u64,
    pub(crate) actual: u64,
}

/// The low `bits` bits of a word, set.
pub(crate) fn low(bits: u32) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

impl Protection {
    fn guard_size(&self) -> usize {
        match self.guard {
            Guard::Crc16 => 2,
            Guard::Crc32c => 4,
            Guard::Crc64 => 8,
        }
    }

    /// Bytes of a tuple.
    pub(crate) fn tuple_size(&self) -> usize {
        if self.guard == Guard::Crc16 { 8 } else { 16 }
    }

    /// Bits of the reference tag: what the storage tag leaves of the space.
    pub(crate) fn ref_bits(&self) -> u32 {
        let space = match self.guard {
            Guard::Crc16 => 32,
            Guard::Crc32c => 80,
            Guard::Crc64 => 48,
        };
        space - self.storage_bits
    }

    /// Whether reference tags are compared.
    pub(crate) fn checks_refs(&self) -> bool {
        self.pi_type != 3 && self.ref_bits() > 0
    }

    /// The reference tag of a command's block `index`.
    pub(crate) fn reference(&self, tags: &Tags, index: usize) -> u64 {
        let step = if self.pi_type == 3 { 0 } else { index as u64 };
        tags.first_ref.wrapping_add(step) & low(self.ref_bits())
    }

    /// Storage and reference tag as one number, as it stands in tuples and commands.
    pub(crate) fn space(&self, storage: u64, reference: u64) -> u128 {
        u128::from(storage) << self.ref_bits() | u128::from(reference)
    }

    /// The tuple's bytes: each field, its most significant byte first.
    pub(crate) fn emit(&self, tuple: &Tuple) -> Vec<u8> {
        let mut bytes = tuple.guard.to_be_bytes()[8 - self.guard_size()..].to_vec();
        bytes.extend(tuple.app.to_be_bytes());
        let rest = self.tuple_size() - bytes.len();
        bytes.extend(&self.space(tuple.storage, tuple.reference).to_be_bytes()[16 - rest..]);
        bytes
    }

    /// The fields of a tuple's bytes.
    pub(crate) fn parse(&self, bytes: &[u8]) -> Tuple {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
        let small = |value: u128| u64::try_from(value).expect("a field has at most 64 bits");
        let (guard, rest) = bytes.split_at(self.guard_size());
        let space = number(&rest[2..]);
        Tuple {
            guard: small(number(guard)),
            app: u16::from_be_bytes([rest[0], rest[1]]),
            storage: small(space >> self.ref_bits()),
            reference: small(space & u128::from(low(self.ref_bits()))),
        }
    }

    /// Whether a stored tuple switches off all checks of its block.
    pub(crate) fn escapes(&self, tuple: &Tuple) -> bool {
        tuple.app == 0xffff && (self.pi_type != 3 || tuple.reference == low(self.ref_bits()))
    }

    /// The checksum of data and of the metadata before the tuple.
    pub(crate) fn checksum(&self, covered: &[u8]) -> u64 {
        match self.guard {
            // x^16 + …, highest bit first.
            Guard::Crc16 => covered.iter().fold(0, |crc, byte| {
                (crc << 8 & 0xffff) ^ CRC16[usize::from(u8::try_from(crc >> 8).expect("16 bits") ^ byte)]
            }),
            Guard::Crc32c => !reflected(&CRC32C, low(32), covered) & low(32),
            Guard::Crc64 => !reflected(&CRC64, u64::MAX, covered),
        }
    }
}

impl Format {
    /// A block with its metadata: `payload` is its data and the metadata before the tuple.
    pub(crate) fn seal(&self, payload: &[u8], tags: &Tags, index: usize) -> Vec<u8> {
        let mut block = payload.to_vec();
        if let Some(protection) = &self.protection {
            let tuple = Tuple {
                guard: protection.checksum(payload),
                app: tags.app,
                storage: tags.storage,
                reference: protection.reference(tags, index),
            };
            block.extend(protection.emit(&tuple));
        }
        block
    }

    /// The first check that fails on blocks with their metadata.
    pub(crate) fn judge(&self, blocks: &[Vec<u8>], tags: &Tags, checks: Checks) -> Option<Finding> {
        let protection = self.protection.as_ref()?;
        for (index, block) in blocks.iter().enumerate() {
            let (covered, bytes) = block.split_at(self.stride() - protection.tuple_size());
            let tuple = protection.parse(bytes);
            if protection.escapes(&tuple) {
                continue;
            }
            for field in Field::ALL.into_iter().filter(|&field| checks.has(field)) {
                let (expected, actual) = match field {
                    Field::Guard => (protection.checksum(covered), tuple.guard),
                    Field::App => (u64::from(tags.app & tags.app_mask), u64::from(tuple.app & tags.app_mask)),
                    Field::Storage => {
                        (tags.storage & protection.storage_mask, tuple.storage & protection.storage_mask)
                    }
                    Field::Ref if protection.checks_refs() => {
                        (protection.reference(tags, index), tuple.reference)
                    }
                    Field::Ref => continue,
                };
                if expected != actual {
                    return Some(Finding { block: index, field, expected, actual });
                }
            }
        }
        None
    }
}

/// A CRC whose lowest bits come first, before its last inversion.
fn reflected(table: &[u64; 256], begin: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(begin, |crc, byte| crc >> 8 ^ table[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

static CRC16: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u64) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1 ^ 0x8bb7) & 0xffff };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

static CRC32C: [u64; 256] = reflected_table(0x82f6_3b78);
static CRC64: [u64; 256] = reflected_table(0x9a6c_9329_ac4b_c9b5);

const fn reflected_table(polynomial: u64) -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ polynomial };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection(guard: Guard, storage_bits: u32) -> Protection {
        Protection { pi_type: 1, guard, metadata: 16, storage_bits, storage_mask: low(storage_bits) }
    }

    #[test]
    fn checksums_have_their_published_values() {
        for (guard, digits, zeroes) in [
            (Guard::Crc16, 0xd0db, 0),
            (Guard::Crc32c, 0xe306_9283, 0x98f9_4189),
            (Guard::Crc64, 0xae8b_1486_0a79_9888, 0x6482_d367_eb22_b64e),
        ] {
            let protection = protection(guard, 0);
            assert_eq!(protection.checksum(b"123456789"), digits, "{guard:?}");
            assert_eq!(protection.checksum(&[0; 4096]), zeroes, "{guard:?}");
        }
    }

    #[test]
    fn tuples_are_those_of_worked_examples() {
        for (guard, bits, storage, reference, expected) in [
            (Guard::Crc16, 0, 0, 0x89ab_cdef, "0000123489abcdef"),
            (Guard::Crc16, 8, 0xa5, 0x01_2345, "00001234a5012345"),
            (Guard::Crc32c, 16, 0xbeef, 0x0123_4567_89ab_cdef, "98f941891234beef0123456789abcdef"),
            (Guard::Crc64, 0, 0, 0x1234_5678_9abc, "6482d367eb22b64e1234123456789abc"),
            (Guard::Crc64, 18, 0x2_aaab, 5, "6482d367eb22b64e1234aaaac0000005"),
        ] {
            let protection = protection(guard, bits);
            let tuple = Tuple { guard: protection.checksum(&[0; 4096]), app: 0x1234, storage, reference };
            let bytes = protection.emit(&tuple);
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected);
            assert_eq!(protection.parse(&bytes), tuple);
        }
    }
}
