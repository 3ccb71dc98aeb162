//! The formats of vectors.

use t10pi::nvme::Layout;
use t10pi::{Checks, Format, Guard, PiContext, PiType, Position, Tags};

use super::Malformed;
use super::value::Object;

pub(super) const GUARDS: [(&str, Guard); 4] = [
    (Guard::Crc16.name(), Guard::Crc16),
    (Guard::Crc32c.name(), Guard::Crc32c),
    (Guard::Crc64.name(), Guard::Crc64),
    (Guard::Ip.name(), Guard::Ip),
];

/// `fmt` of a vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// As if there were protection, also for type 0.
    pub(super) format: Format,
    /// `None` is type 0.
    pub(super) pi_type: Option<PiType>,
    pub(super) layout: Layout,
}

impl Shape {
    pub(super) fn of(vector: &Object<'_>) -> Result<Self, Malformed> {
        let fmt = vector.object("fmt")?;
        fmt.only(&["pif", "guard", "type", "lba", "md", "pos", "sts", "lbstm", "layout"])?;
        Self::parse(&fmt)
    }

    pub(super) fn parse(fmt: &Object<'_>) -> Result<Self, Malformed> {
        let guard = fmt.one_of("guard", &GUARDS)?;
        let pif = match guard {
            Guard::Crc16 | Guard::Ip => 16,
            Guard::Crc32c => 32,
            Guard::Crc64 => 64,
        };
        if fmt.number("pif")? != pif {
            return Err(fmt.refuse("pif", &format!("does not go with its guard, whose number is {pif}")));
        }
        let position = fmt.one_of("pos", &[("last", Position::Last), ("first", Position::First)])?;
        let format = Format::new(guard, fmt.small("lba")?, fmt.small("md")?)
            .map(|format| format.with_position(position))
            .map_err(|error| fmt.refuse("md", &format!("can't be: {error}")))?;
        let format = format
            .with_storage_tag(fmt.small("sts")?, fmt.number("lbstm")?)
            .map_err(|error| fmt.refuse("sts", &format!("can't be: {error}")))?;
        let layout = fmt.one_of("layout", &[("ext", Layout::Extended), ("sep", Layout::Separate)])?;
        Ok(Self { format, pi_type: pi_type(fmt, "type")?, layout })
    }

    /// The context of a command; `None` for type 0.
    pub(super) fn context(&self, checks: Checks, tags: Tags) -> Result<Option<PiContext>, Malformed> {
        let Some(pi_type) = self.pi_type else { return Ok(None) };
        let context = PiContext::new(&self.format, pi_type, checks, tags);
        context.map(Some).map_err(|error| format!("cmd can't be: {error}"))
    }

    /// As [`context`](Self::context), where type 0 makes no sense.
    pub(super) fn protected(&self, checks: Checks, tags: Tags) -> Result<PiContext, Malformed> {
        self.context(checks, tags)?.ok_or_else(|| "fmt.type is 0, and there is nothing to do then".to_owned())
    }

    pub(super) fn block(&self) -> usize {
        self.format.block_size() as usize
    }

    pub(super) fn metadata(&self) -> usize {
        usize::from(self.format.metadata_size())
    }

    /// Blocks in these data and metadata, which must agree with each other.
    pub(super) fn blocks(&self, data: &[u8], md: &[u8]) -> Result<usize, Malformed> {
        let blocks = data.len() / self.block();
        if data.len() == blocks * self.block() && md.len() == blocks * self.metadata() {
            return Ok(blocks);
        }
        Err(format!(
            "{} bytes of data and {} of metadata are not equally many blocks of {} + {}",
            data.len(),
            md.len(),
            self.block(),
            self.metadata()
        ))
    }

    /// Each block followed by its metadata.
    pub(super) fn interleave(&self, data: &[u8], md: &[u8]) -> Vec<u8> {
        let pairs = data.chunks(self.block()).zip(md.chunks(self.metadata()));
        pairs.flat_map(|(data, md)| [data, md].concat()).collect()
    }

    /// The buffer that is transferred.
    pub(super) fn transfer(&self, data: &[u8], md: &[u8]) -> Vec<u8> {
        match self.layout {
            Layout::Extended => self.interleave(data, md),
            Layout::Separate => [data, md].concat(),
        }
    }
}

/// A type of protection, 0 to 3.
pub(super) fn pi_type(object: &Object<'_>, key: &str) -> Result<Option<PiType>, Malformed> {
    match object.number(key)? {
        0 => Ok(None),
        1 => Ok(Some(PiType::Type1)),
        2 => Ok(Some(PiType::Type2)),
        3 => Ok(Some(PiType::Type3)),
        other => Err(object.refuse(key, &format!("is {other}, and types are 0 to 3"))),
    }
}

/// The tags of a command, zero where it names none.
pub(super) fn tags(cmd: &Object<'_>) -> Result<Tags, Malformed> {
    Ok(Tags {
        app_tag: cmd.small_or_zero("app_tag")?,
        app_tag_mask: cmd.small_or_zero("app_mask")?,
        storage_tag: cmd.small_or_zero("storage_tag")?,
        ref_tag: cmd.small_or_zero("ref_tag")?,
    })
}
