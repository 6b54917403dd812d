//! Layers that keep a state instead of keys and values.

use lifelong_kernels::ops::delta::DeltaShape;

/// The linear attention of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Recurrence {
    pub shape: DeltaShape,
    /// Which layers have it; the others attend by softmax. One entry a layer.
    pub layers: Vec<bool>,
}
