//! Linear layers.

use std::time::Instant;

use crate::cpu;
use crate::cpu::matmul::Product;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Result, check_length, check_rows};
use crate::matrix::Matrix;

/// How finely a product rounds activations. On the processor that is one with quantised weights; those with plain weights
/// read `f32` there, those with rounded ones ([`Matrix::rounded_on`]) 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 8 bits: at most half a step, largest/254 of its group of 32, per activation. On a GPU, beside f16 and bf16 weights,
    /// one number of their type.
    #[default]
    Bits8,
    /// 16 bits, as two 8-bit products: at most largest/65 000. Twice the work. On a GPU, beside f16 and bf16 weights, two
    /// numbers of their type.
    Bits16,
}

/// `y = x Wᵀ`.
///
/// With plain weights (f32, f16, bf16) each output is one chain of fused multiply-adds over `k` in order. With quantised
/// weights the row is quantised to 8 bits in groups of 32 (scale = largest magnitude / 127, `f32`), products inside a
/// group are exact integers, and groups are added in order. The error against dequantised weights is that of 8-bit
/// activations ([`Precision::Bits8`]). With rounded weights both are integers of up to ±8 191 in groups of 32, each by the
/// largest magnitude of its group, and groups are added in the same way.
///
/// # Shapes
/// `out` `[T, N]` · `x` `[T, K]` · `w` `[N, K]`
///
/// # Errors
/// A wrong length.
pub fn linear(device: &Device, out: &mut [f32], x: &[f32], w: &Matrix) -> Result<()> {
    check("linear", out, x, w)?;
    dispatch(device, "linear", &mut [Product { out, w, bias: None }], x, Precision::Bits8)
}

/// `y = x Wᵀ + b`: the bias is added last, once.
///
/// # Shapes
/// `out` `[T, N]` · `x` `[T, K]` · `w` `[N, K]` · `bias` `[N]`
///
/// # Errors
/// A wrong length.
pub fn linear_bias(device: &Device, out: &mut [f32], x: &[f32], w: &Matrix, bias: &[f32]) -> Result<()> {
    check("linear_bias", out, x, w)?;
    check_length("linear_bias", "bias", bias.len(), &[("n", w.rows())])?;
    dispatch(device, "linear_bias", &mut [Product { out, w, bias: Some(bias) }], x, Precision::Bits8)
}

/// [`linear`] of the same rows by several matrices, such as query, key and value, at a chosen precision: the same bits as
/// one after the other in less time, as the rows are quantised once and the threads meet once.
///
/// # Shapes
/// each `out` `[T, Nᵢ]` and `w` `[Nᵢ, K]` · `x` `[T, K]`
///
/// # Errors
/// A wrong length.
pub fn linear_each(
    device: &Device,
    products: &mut [(&mut [f32], &Matrix)],
    x: &[f32],
    precision: Precision,
) -> Result<()> {
    for (out, w) in products.iter() {
        check("linear_each", out, x, w)?;
    }
    let mut products: Vec<Product<'_>> = products.iter_mut().map(|(out, w)| Product { out, w, bias: None }).collect();
    dispatch(device, "linear_each", &mut products, x, precision)
}

/// [`linear_each`] with a bias for each matrix.
///
/// # Errors
/// A wrong length.
pub fn linear_bias_each(
    device: &Device,
    products: &mut [(&mut [f32], &Matrix, &[f32])],
    x: &[f32],
    precision: Precision,
) -> Result<()> {
    let op = "linear_bias_each";
    for (out, w, bias) in products.iter() {
        check(op, out, x, w)?;
        check_length(op, "bias", bias.len(), &[("n", w.rows())])?;
    }
    let mut products: Vec<Product<'_>> =
        products.iter_mut().map(|(out, w, bias)| Product { out, w, bias: Some(bias) }).collect();
    dispatch(device, op, &mut products, x, precision)
}

fn check(op: &'static str, out: &[f32], x: &[f32], w: &Matrix) -> Result<()> {
    let tokens = check_rows(op, "x", x.len(), w.columns())?;
    check_length(op, "out", out.len(), &[("tokens", tokens), ("n", w.rows())])
}

fn dispatch(
    device: &Device,
    op: &'static str,
    products: &mut [Product<'_>],
    x: &[f32],
    precision: Precision,
) -> Result<()> {
    for product in products.iter() {
        product.w.check_place(op, device)?;
    }
    let begun = Instant::now();
    match device.backend() {
        Backend::Cpu(cpu) => cpu::matmul::linear(cpu, products, x, precision),
        Backend::Cuda(cuda) => on_gpu!(cuda, matmul::linear(op, products, x, precision))?,
    }
    let Some(first) = products.first() else { return Ok(()) };
    let counters = device.counters();
    let counter = if first.w.is_quantised() { &counters.integer_products } else { &counters.float_products };
    let outputs: usize = products.iter().map(|product| product.out.len()).sum();
    let weight_bytes = products.iter().map(|product| product.w.bytes()).sum();
    counter.add(2 * outputs * first.w.columns() * first.w.eight_bit_products(), weight_bytes, begun);
    Ok(())
}
