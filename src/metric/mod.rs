//! Numbers out of stored scores: pure functions with a fixed order of every sum, so that the same records give the same
//! bits on any machine and after any resume.
//!
//! A value that is not defined (no graded score, k above n, one sample's standard error) is `None`, printed as `n/a`;
//! it is never 0 and never NaN. Shares are in 0..=1 here; only reports multiply by 100.

mod agreement;
mod bootstrap;
mod concordance;
mod continual;
mod gain;
mod mean;
mod pass_at_k;
mod permutation;
mod retrieval;
mod sequential;
mod sum;
mod task_matrix;
mod tool_turns;
mod vote;

pub use agreement::{agreement, kendall_tau_b, ranks};
pub use bootstrap::{
    Distribution, INTERVAL_METHOD, Interval, MINIMUM_UNITS, RESAMPLES, cluster_interval, difference_interval,
    mean_interval, ratio_interval,
};
pub use concordance::{Concordance, TwoGains, concordance};
pub use continual::{PathMetric, PathMetrics, PathSummary, path_metrics, probe_curve, summarise};
pub use gain::{Gain, mean_gain, transfer_gain};
pub use mean::{Accuracy, Mean, Part, Weights, accuracy, group, mean_of, median};
pub use pass_at_k::pass_at_k;
pub use permutation::{PERMUTATIONS, holm, paired_permutation_p};
pub use retrieval::{Retrieval, retrieval};
pub use sequential::{Settled, Stop, full_sign, stop};
pub use sum::{mean, sum};
pub use task_matrix::{TaskMatrix, task_matrix};
pub use tool_turns::{Portion, ToolTurns, tool_turns};
pub use vote::{logprob_gains, seed_groups, sign, vote};
