//! Speed of the whole engine on the shapes it is built for: prefill, decoding at several batch sizes, a transfer matrix,
//! embeddings.
//!
//! `lifelong bench`, `cargo bench` and the comparison with other programs (`benches/peers/`) all run what stands here, so
//! that a number printed by one can be checked by the others. Prompts are random but fixed tokens: speed depends on shapes,
//! not on words.

mod completions;
mod embeddings;
mod growth;
mod law;
mod measurement;
mod prompt;
mod table;
mod workload;

pub use completions::measure_completions;
pub use embeddings::measure_embeddings;
pub use growth::{Curve, GrowthScale, Point, measure_growth};
pub use law::Law;
pub use measurement::{LimitShares, Measurement, Times, Unit};
pub use table::{curve_lines, header, limits_line, line};
pub use workload::{
    DEPTH, EngineShape, Kind, MATRIX_WITHOUT_SHARING, MatrixShape, Prompts, Scale, UnknownWorkload, WORKLOADS,
    Workload, chosen,
};
