//! What the members of a group of devices do together: see [`Device::group`].
//!
//! Every member calls the same operation with its own part; on a device that is alone the part is all there is.

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Result, check_length, check_rows};

/// `x = Σᵣ xᵣ` over the members' `x`, in `f32` and in the order of ranks: `((x₀ + x₁) + x₂) + …`. All get the same bits.
///
/// # Errors
/// [`crate::Error::Left`] when another member has failed; [`crate::Error::Cuda`] on a GPU that fails.
pub fn sum(device: &Device, x: &mut [f32]) -> Result<()> {
    let Some(member) = device.member() else { return Ok(()) };
    match device.backend() {
        Backend::Cpu(_) => cpu::exchange::sum(member, x),
        Backend::Cuda(cuda) => on_gpu!(cuda, exchange::sum(member, x)),
    }
}

/// Puts columns that the members computed beside each other, for the first of them: `out[t] = x₀[t] x₁[t] …`. Rank r has the
/// columns [`crate::Rank::share`] of `width`.
///
/// # Shapes
/// `out` `[T, width]` on rank 0, empty on others · `x` `[T, own share of width]`
///
/// # Errors
/// A wrong length; as [`sum`].
pub fn columns(device: &Device, out: &mut [f32], x: &[f32], width: usize) -> Result<()> {
    let op = "exchange columns";
    let rank = device.rank();
    let rows = check_rows(op, "x", x.len(), rank.share(width).len())?;
    let wanted = if rank.is_first() { rows } else { 0 };
    check_length(op, "out", out.len(), &[("rows", wanted), ("width", width)])?;
    let Some(member) = device.member() else {
        return super::residual::copy(device, out, x);
    };
    match device.backend() {
        Backend::Cpu(_) => cpu::exchange::columns(member, out, x, width),
        Backend::Cuda(cuda) => on_gpu!(cuda, exchange::columns(member, out, x, width)),
    }
}
