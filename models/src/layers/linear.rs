//! `y = x Wᵀ (+ b)`.

use lifelong_kernels::ops::matmul::{self, Precision};
use lifelong_kernels::{Device, Matrix, Values};

use crate::error::Result;
use crate::share::Share;
use crate::weights::Weights;

pub(crate) struct Linear {
    weight: Matrix,
    bias: Option<Values>,
}

/// Whether a projection adds a vector.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bias {
    Absent,
    Present,
}

impl From<bool> for Bias {
    fn from(present: bool) -> Self {
        if present { Bias::Present } else { Bias::Absent }
    }
}

impl Linear {
    pub fn new(weight: Matrix, bias: Option<Values>) -> Self {
        Linear { weight, bias }
    }

    /// Takes `{name}.weight` `[n, k]`, and `{name}.bias` `[n]`.
    pub fn load(weights: &mut Weights, name: &str, n: usize, k: usize, bias: Bias) -> Result<Self> {
        let weight = weights.projection(&format!("{name}.weight"), n, k)?;
        Self::with_bias(weights, name, weight, bias)
    }

    /// As [`Linear::load`], never quantised.
    pub fn load_as_stored(weights: &mut Weights, name: &str, n: usize, k: usize, bias: Bias) -> Result<Self> {
        let weight = weights.matrix(&format!("{name}.weight"), n, k)?;
        Self::with_bias(weights, name, weight, bias)
    }

    fn with_bias(weights: &mut Weights, name: &str, weight: Matrix, bias: Bias) -> Result<Self> {
        let n = weight.rows();
        let bias = match bias {
            Bias::Present => Some(weights.values(&format!("{name}.bias"), n)?),
            Bias::Absent => None,
        };
        Ok(Linear { weight, bias })
    }

    /// A projection of numbers that are at hand.
    pub fn from_f32(device: &Device, n: usize, k: usize, weight: &[f32], bias: &[f32]) -> Result<Self> {
        Ok(Linear { weight: Matrix::f32_on(device, n, k, weight)?, bias: Some(Values::copied(device, bias)?) })
    }

    /// As [`Linear::load`], of the outputs that are here.
    pub fn load_outputs(weights: &mut Weights, name: &str, outputs: &Share, k: usize, bias: Bias) -> Result<Self> {
        let weight = weights.part(&format!("{name}.weight"), outputs, &Share::whole(k))?;
        let bias = match bias {
            Bias::Present => Some(weights.values_part(&format!("{name}.bias"), outputs)?),
            Bias::Absent => None,
        };
        Ok(Linear { weight, bias })
    }

    /// As [`Linear::load`], of the inputs that are here: its outputs are parts of a sum, the bias is in the first of them.
    pub fn load_inputs(weights: &mut Weights, name: &str, n: usize, inputs: &Share, bias: Bias) -> Result<Self> {
        let weight = weights.part(&format!("{name}.weight"), &Share::whole(n), inputs)?;
        if bias == Bias::Present && !weights.device.rank().is_first() {
            weights.skip(&format!("{name}.bias"));
            return Ok(Linear { weight, bias: None });
        }
        Self::with_bias(weights, name, weight, bias)
    }

    /// Takes several projections out of one `{name}.weight` `[Σn, k]`, without biases: of each the outputs that are here.
    pub fn load_split<const N: usize>(
        weights: &mut Weights,
        name: &str,
        outputs: [Share; N],
        k: usize,
    ) -> Result<[Self; N]> {
        let parts = weights.split(&format!("{name}.weight"), outputs, k)?;
        Ok(parts.map(|weight| Linear { weight, bias: None }))
    }

    /// Output features n.
    pub fn outputs(&self) -> usize {
        self.weight.rows()
    }

    /// `out` `[T, n]` · `x` `[T, k]`
    pub fn forward(&self, device: &Device, out: &mut [f32], x: &[f32]) -> Result<()> {
        match &self.bias {
            Some(bias) => matmul::linear_bias(device, out, x, &self.weight, bias)?,
            None => matmul::linear(device, out, x, &self.weight)?,
        }
        Ok(())
    }
}

/// Several projections of the same rows: the same bits as one after the other, in less time.
pub(crate) fn forward_each<const N: usize>(
    device: &Device,
    projections: [(&mut [f32], &Linear); N],
    x: &[f32],
    precision: Precision,
) -> Result<()> {
    if projections.iter().all(|(_, linear)| linear.bias.is_none()) {
        let mut products = projections.map(|(out, linear)| (out, &linear.weight));
        return Ok(matmul::linear_each(device, &mut products, x, precision)?);
    }
    if projections.iter().all(|(_, linear)| linear.bias.is_some()) {
        let mut products =
            projections.map(|(out, linear)| (out, &linear.weight, linear.bias.as_deref().unwrap_or_default()));
        return Ok(matmul::linear_bias_each(device, &mut products, x, precision)?);
    }
    projections.into_iter().try_for_each(|projection| forward_each(device, [projection], x, precision))
}
