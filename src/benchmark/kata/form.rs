//! How a reply has to look: the rule that families share or clash over.

use serde_json::json;

use super::topic::Topic;
use crate::record::Reference;

/// The wanted form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A sentence that holds the answer.
    Sentence,
    /// The answer alone; the question says so in two small words at its end.
    Word,
}

/// Fewest words of a sentence: `Italy is in Europe` has four, a bare answer at most two.
const SENTENCE_WORDS: usize = 3;

impl Form {
    pub const ALL: [Form; 2] = [Form::Sentence, Form::Word];

    pub fn name(self) -> &'static str {
        match self {
            Form::Sentence => "sentence",
            Form::Word => "word",
        }
    }

    pub fn question(self, topic: &Topic, subject: &str) -> String {
        let question = topic.question.replace("{}", subject);
        match self {
            Form::Sentence => question,
            Form::Word => format!("{question} (word)"),
        }
    }

    pub fn reference(self, topic: &Topic, subject: &str, answer: &str) -> Reference {
        match self {
            Form::Sentence => Reference {
                solution: topic.sentence.replacen("{}", subject, 1).replacen("{}", answer, 1),
                scorer: "contains".into(),
                options: json!({ "answers": [answer], "min_words": SENTENCE_WORDS }),
            },
            // A sentence around the answer earns the share of its words that F1 gives, a wrong word earns nothing.
            Form::Word => Reference {
                solution: answer.into(),
                scorer: "token_f1".into(),
                options: json!({ "answers": [answer] }),
            },
        }
    }
}
