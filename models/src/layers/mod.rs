//! The parts that architectures are made of: weights with the operation that uses them, one idea each.

pub(crate) mod attention;
pub(crate) mod delta;
pub(crate) mod embedding;
pub(crate) mod expert_weights;
pub(crate) mod experts;
pub(crate) mod head;
pub(crate) mod linear;
pub(crate) mod mlp;
pub(crate) mod norm;
pub(crate) mod rope;
