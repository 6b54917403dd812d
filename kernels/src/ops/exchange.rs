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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn group(count: usize) -> Device {
        Device::group((0..count).map(|_| Device::cpu(1)).collect()).unwrap()
    }

    /// Numbers whose sum shows its order: (1 + 1e8) − 1e8 is 0, and 1 in any order that ends with the 1.
    #[test]
    fn sums_are_made_in_the_order_of_ranks_by_all() {
        let group = group(3);
        let mut x = [vec![1.0f32, 2.0], vec![1e8, 0.5], vec![-1e8, 0.25]];
        group.together(x.iter_mut().collect(), |device, x: &mut Vec<f32>| sum(device, x)).unwrap();
        assert_eq!(x, [[0.0, 2.75], [0.0, 2.75], [0.0, 2.75]].map(|x| x.to_vec()));
        let mut alone = [3.0];
        sum(&Device::cpu(1), &mut alone).unwrap();
        assert_eq!(alone, [3.0]);
    }

    #[test]
    fn columns_stand_beside_each_other_on_the_first() {
        let group = group(3);
        // Two rows of seven columns: shares of 2, 2 and 3.
        let mut out = [vec![0.0; 14], Vec::new(), Vec::new()];
        let parts = [vec![0.0, 1.0, 7.0, 8.0], vec![2.0, 3.0, 9.0, 10.0], vec![4.0, 5.0, 6.0, 11.0, 12.0, 13.0]];
        let shares = out.iter_mut().zip(&parts).collect();
        group.together(shares, |device, (out, x): (&mut Vec<f32>, _)| columns(device, out, x, 7)).unwrap();
        assert_eq!(out[0], (0..14).map(|value| value as f32).collect::<Vec<_>>());
        let mut alone = [0.0; 2];
        columns(&Device::cpu(1), &mut alone, &[1.0, 2.0], 2).unwrap();
        assert_eq!(alone, [1.0, 2.0]);
    }

    #[test]
    fn a_result_of_another_length_is_refused_before_anyone_waits() {
        let error = columns(&Device::cpu(1), &mut [0.0; 3], &[1.0, 2.0], 2).unwrap_err();
        assert!(matches!(error, Error::Length { operand: "out", .. }), "{error}");
    }
}
