//! What validated attributes make of a transfer: the operation, the lengths, and the blocks' tuples.
//!
//! Tuples come *in* with the side that data comes from (memory of a WRITE, the wire of a READ) and go *out* to the other one.
//! A block that fails its check is moved and its tuple made as any other: the failure is told by the status, and nothing else.
//! (rw-contexts 2.3; pi 8.)

use t10pi::{Checks, Format, Guard, PiContext, PiMismatch};

use super::attrs::{CopyMask, SigAttrs, SigDomain, SigError, T10Dif};
use super::pieces::{Memory, Shape, WireMetadata};
use super::status::SigStatus;
use crate::plan::Direction;
use crate::remote::Rkey;

/// Longest message (IBTA 9.4.2).
const MAX_MESSAGE: u64 = 1 << 31;

/// What happens to the tuples of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Data comes without tuples; they are generated.
    Insert,
    /// Tuples are checked and go no further.
    Strip,
    /// Tuples are checked and passed on as they are.
    Verify,
    /// Tuples are checked and passed on with some fields made anew.
    Rewrite,
}

/// How many bytes a transfer has where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigLayout {
    /// Protected blocks.
    pub blocks: u32,
    /// User data.
    pub data: u32,
    /// Metadata of all blocks, where there is some (Linux `meta_length`).
    pub metadata: u32,
    /// What goes over the wire: the length of the one SGE of a READ or WRITE.
    pub wire: u32,
}

/// Validated attributes of a transfer in one direction.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    attrs: SigAttrs,
    direction: Direction,
    operation: Operation,
    shape: Shape,
    /// Tuples that come in; of the protected side when none do.
    input: PiContext,
    /// Tuples that go out; of the protected side when none do.
    output: PiContext,
    /// What of a tuple that comes in goes out.
    copied: Checks,
}

impl Signature {
    /// What `attrs` make of a transfer in `direction`.
    ///
    /// # Errors
    /// See [`SigError`].
    pub fn new(attrs: &SigAttrs, direction: Direction) -> Result<Self, SigError> {
        let (from, to) = match direction {
            Direction::ToHost => (attrs.mem, attrs.wire),
            Direction::FromHost => (attrs.wire, attrs.mem),
        };
        if matches!(attrs.wire, SigDomain::T10Dif(wire) if wire.format.guard() == Guard::Ip) {
            return Err(SigError::WireGuard);
        }
        let (operation, copied, format, input, output) = match (from, to) {
            (SigDomain::None, SigDomain::None) => return Err(SigError::NoProtection),
            (SigDomain::None, SigDomain::T10Dif(to)) => {
                let output = to.context(Checks::NONE)?;
                (Operation::Insert, Checks::NONE, to.format, output, output)
            }
            (SigDomain::T10Dif(from), SigDomain::None) => {
                let input = from.context(attrs.check_mask)?;
                (Operation::Strip, Checks::NONE, from.format, input, input)
            }
            (SigDomain::T10Dif(from), SigDomain::T10Dif(to)) => {
                same_shape(&from.format, &to.format)?;
                let copied = copied(attrs.copy_mask, &from, &to)?;
                let operation = if copied == Checks::ALL { Operation::Verify } else { Operation::Rewrite };
                let (input, output) = (from.context(attrs.check_mask)?, to.context(Checks::NONE)?);
                (operation, copied, from.format, input, output)
            }
        };
        let wire = match (attrs.wire, operation) {
            (SigDomain::None, _) => WireMetadata::None,
            (SigDomain::T10Dif(_), Operation::Verify) => WireMetadata::OfMemory,
            (SigDomain::T10Dif(_), _) => WireMetadata::Apart,
        };
        let mem = match attrs.mem {
            SigDomain::None => Memory::Bare,
            SigDomain::T10Dif(_) => Memory::Separate,
        };
        let shape = Shape {
            block: format.block_size(),
            metadata: u32::from(format.metadata_size()),
            memory: mem,
            wire,
        };
        Ok(Self { attrs: *attrs, direction, operation, shape, input, output, copied })
    }

    /// What it was made of.
    #[must_use]
    pub fn attrs(&self) -> &SigAttrs {
        &self.attrs
    }

    /// Which way the data moves.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// What happens to tuples.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// What of a tuple that comes in goes out as it is.
    #[cfg(feature = "mlx5")]
    pub(crate) fn copied(&self) -> Checks {
        self.copied
    }

    /// The shape of blocks: of the side that is checked, or of the one that is protected.
    #[must_use]
    pub fn format(&self) -> &Format {
        self.input.format()
    }

    /// Whether tuples go over the wire.
    #[must_use]
    pub fn protects_wire(&self) -> bool {
        self.shape.wire != WireMetadata::None
    }

    /// Whether tuples lie in memory.
    #[must_use]
    pub fn protects_memory(&self) -> bool {
        self.shape.memory != Memory::Bare
    }

    /// The lengths of a transfer whose data list has `data` bytes and whose protection list `protection`. Protected memory
    /// without a protection list is interleaved: the data list holds the metadata too.
    ///
    /// # Errors
    /// [`SigError::Lengths`] when these are not the same number of blocks, at least one; [`SigError::TooLong`].
    pub fn layout(&self, data: u64, protection: u64) -> Result<SigLayout, SigError> {
        let shape = self.shape_of(protection);
        let (block, metadata) = (u64::from(shape.block), u64::from(shape.metadata));
        let unit = if shape.memory == Memory::Interleaved { block + metadata } else { block };
        let beside = if shape.memory == Memory::Separate { metadata } else { 0 };
        let blocks = data / unit;
        if blocks == 0 || !data.is_multiple_of(unit) || protection != blocks * beside {
            let metadata = if self.protects_memory() { self.format().metadata_size() } else { 0 };
            return Err(SigError::Lengths { data, protection, block: shape.block, metadata });
        }
        let most = blocks * (block + metadata);
        let length = |bytes: u64| {
            u32::try_from(bytes).ok().filter(|_| most <= MAX_MESSAGE).ok_or(SigError::TooLong(most))
        };
        let wire = if self.protects_wire() { block + metadata } else { block };
        Ok(SigLayout {
            blocks: length(blocks)?,
            data: length(blocks * block)?,
            metadata: length(blocks * metadata)?,
            wire: length(blocks * wire)?,
        })
    }

    /// Where the bytes of a transfer lie whose protection list has `protection` bytes.
    pub(crate) fn shape_of(&self, protection: u64) -> Shape {
        let interleaved = protection == 0 && self.shape.memory == Memory::Separate;
        let memory = if interleaved { Memory::Interleaved } else { self.shape.memory };
        Shape { memory, ..self.shape }
    }

    /// Checks and makes the tuples of some blocks, of which `first` is the first: `data` is their user data, `given` their
    /// metadata as it came in (none for [`Operation::Insert`]), `made` the room for what goes out (none for
    /// [`Operation::Strip`] and [`Operation::Verify`]). All of `made` is written, whatever failed.
    ///
    /// # Errors
    /// The first mismatch; blocks are counted from the start of the transfer.
    ///
    /// # Panics
    /// When the lengths are not the same number of blocks.
    pub fn run(
        &self,
        first: u64,
        data: &[&[u8]],
        given: &[&[u8]],
        made: &mut [&mut [u8]],
    ) -> Result<(), PiMismatch> {
        if self.operation == Operation::Insert {
            for piece in &mut *made {
                piece.fill(0);
            }
            self.output.from_block(first).generate(data, made);
            return Ok(());
        }
        let checked = self.input.from_block(first).verify(data, given);
        if self.operation == Operation::Rewrite {
            self.input.rewrite(data, given, made, &self.output.from_block(first), self.copied);
        }
        checked.map_err(|mismatch| PiMismatch { block: first + mismatch.block, ..mismatch })
    }

    /// The status of a transfer.
    pub(crate) fn status(&self, key: Rkey, mismatch: Option<PiMismatch>) -> SigStatus {
        SigStatus::of(self.format(), key, mismatch)
    }
}

/// Both domains must describe tuples of one layout in blocks of one size, or none could become the other.
fn same_shape(from: &Format, to: &Format) -> Result<(), SigError> {
    let differs = |field| Err(SigError::Shape(field));
    if from.block_size() != to.block_size() {
        return differs("block size");
    }
    if from.metadata_size() != to.metadata_size() {
        return differs("metadata size");
    }
    if from.position() != to.position() {
        return differs("position of the tuple");
    }
    if (from.guard().size(), from.tuple_size()) != (to.guard().size(), to.tuple_size()) {
        return differs("layout of the tuple");
    }
    if from.storage_tag_bits() != to.storage_tag_bits() {
        return differs("width of the storage tag");
    }
    Ok(())
}

/// The fields that go from one domain to the other.
fn copied(mask: CopyMask, from: &T10Dif, to: &T10Dif) -> Result<Checks, SigError> {
    let same_guard = from.format.guard() == to.format.guard() && from.guard_seed == to.guard_seed;
    match mask {
        CopyMask::Equal => Ok(Checks {
            guard: same_guard,
            app_tag: from.app_tag == to.app_tag,
            storage_tag: from.storage_tag == to.storage_tag,
            ref_tag: (from.ref_tag, from.ref_remap) == (to.ref_tag, to.ref_remap),
        }),
        CopyMask::Fields(fields) if fields.guard && !same_guard => Err(SigError::CopyGuard),
        CopyMask::Fields(fields) => Ok(fields),
    }
}
