//! Models in-process: text to tokens, tokens to text, and the engine that decodes between them.

pub mod template;
pub mod tokenizer;
