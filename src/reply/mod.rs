//! Reading a model's reply: reasoning apart from the answer, fences, numbers, option letters, JSON, Python, tool calls.
//!
//! A bad reply is data, so nothing here returns an error for what a model wrote: readers return `Option`.

pub mod answer;
pub mod code;
pub mod fence;
pub mod json;
pub mod python;
pub mod similarity;
pub mod think;
pub mod tool_call;
