//! What can go wrong in an operation: always a caller's mistake, named with the operands.

use crate::matrix::Format;

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// A request that cannot be carried out. Operations check before they write: on an error no output was touched.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A slice has not the length its shape asks for.
    #[error("{op}: `{operand}` holds {found} values, expected {expected} = {shape}")]
    Length { op: &'static str, operand: &'static str, found: usize, expected: usize, shape: String },
    /// Two operands, or an operand and its geometry, contradict each other.
    #[error("{op}: {problem}")]
    Shape { op: &'static str, problem: String },
    /// An index points outside of what it indexes.
    #[error("{op}: {operand} {index} is out of range, there are {limit}")]
    Index { op: &'static str, operand: &'static str, index: usize, limit: usize },
    /// The rows of a weight matrix do not fill whole blocks of its storage format.
    #[error(
        "matrix [{rows}, {columns}] cannot be stored as {format:?}: its rows are cut into blocks of {block} values"
    )]
    Blocks { format: Format, rows: usize, columns: usize, block: usize },
    /// The processor cannot run the instruction set asked for.
    #[error("instruction set {asked} is not available on this processor (best available: {best})")]
    InstructionSet { asked: &'static str, best: &'static str },
    /// Devices that cannot compute one model together, or a group that is used as one device is.
    #[error("group of devices: {0}")]
    Group(String),
    /// A member of a group waits for what another, which has failed, does not give.
    #[error("rank {rank} of the group of devices has failed")]
    Left { rank: usize },
    /// There is no CUDA device behind this build or this operation.
    #[error("cuda: {0}")]
    Cuda(String),
}

/// Fails unless `found` is the product of the named dimensions.
pub(crate) fn check_length(
    op: &'static str,
    operand: &'static str,
    found: usize,
    dimensions: &[(&str, usize)],
) -> Result<()> {
    let expected = dimensions.iter().map(|(_, size)| size).product();
    if found == expected {
        return Ok(());
    }
    let shape = dimensions.iter().map(|(name, size)| format!("{name} {size}")).collect::<Vec<_>>().join(" × ");
    Err(Error::Length { op, operand, found, expected, shape })
}

/// The number of whole rows of `width` values in a slice of `length`.
pub(crate) fn check_rows(op: &'static str, operand: &'static str, length: usize, width: usize) -> Result<usize> {
    if width == 0 || !length.is_multiple_of(width) {
        let problem = format!("`{operand}` holds {length} values, which is not a whole number of rows of {width}");
        return Err(Error::Shape { op, problem });
    }
    Ok(length / width)
}
