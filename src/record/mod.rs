//! Plain stored data: what was asked, what was tried, how it went. No behaviour beyond small queries; imports nothing.

mod attempt;
mod coord;
mod experience;
pub mod experiment;
mod memory_work;
pub mod plan;
pub mod python_environment;
mod score;
mod task;
pub mod tool;

pub use attempt::{Attempt, AttemptRecord, Ending, Usage, Vote};
pub use coord::Coord;
pub use experience::{Experience, Feedback};
pub use memory_work::{MemoryCall, MemoryWork};
pub use score::Score;
pub use task::{Message, Reference, ReplyFormat, Role, Task, TaskId, TaskView};
