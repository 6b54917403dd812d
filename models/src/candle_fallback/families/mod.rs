//! One file a family: what candle needs to be told, and what it leaves out.

pub(super) mod gemma;
pub(super) mod gemma2;
pub(super) mod glm4;
pub(super) mod granite;
pub(super) mod olmo;
pub(super) mod olmo2;
pub(super) mod phi;
pub(super) mod starcoder2;
