//! Checksums alone, by every kernel that this machine runs.

use t10pi::{Guard, Kernel, crc};

use super::Malformed;
use super::data::data;
use super::format::GUARDS;
use super::outcome::Outcome;
use super::value::Object;

pub(super) fn value(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let guard = vector.one_of("alg", &GUARDS)?;
    let data = data(vector)?;
    let expect = vector.object("expect")?;
    expect.only(&["crc"])?;
    let expected = expect.number("crc")?;
    for kernel in Kernel::available() {
        let value = match guard {
            Guard::Crc16 => kernel.crc16(0, &data).into(),
            Guard::Crc32c => kernel.crc32c(0, &data).into(),
            Guard::Crc64 => kernel.crc64(0, &data),
            Guard::Ip => crc::ip_checksum(&data).into(),
        };
        outcome.number(format_args!("crc by {}", kernel.name()), expected, value);
    }
    Ok(())
}
