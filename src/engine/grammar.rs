//! Replies that must have a form: a JSON schema, a regular expression or a grammar, as a mask on the logits.
//!
//! A [`Grammar`] is part of a request's sampling. It is compiled before the request is queued, so that a schema with a
//! keyword that cannot be honoured is an error and no wrong reply. Before each draw the logits of all tokens that cannot
//! go on in the form are masked; a form that admits nothing more ends the completion, and one that may end here admits
//! the model's own end tokens too. Of a reply that thinks first the form holds the answer: while the thought is open nothing
//! is masked, and where the template's models may open one, the token that does is admitted in front of the form.
//!
//! Each request walks a parser of its own, caches included: `llguidance` limits the work of one mask, and a cache filled
//! by a neighbour would let a row through that fails alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toktrie::{SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use super::error::{Error, Result};
use super::tokenizer::{Specials, TokenKind, Tokenizer};

/// The form of a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grammar {
    /// JSON that this schema (draft 2020-12 and earlier) describes. Between its tokens stands at most a blank, or a line
    /// break and indentation; `"x-guidance": {"whitespace_flexible": false}` in the schema allows none.
    JsonSchema(Value),
    /// Text that this regular expression (syntax of the Rust crate `regex`, without look-around) matches as a whole.
    Regex(String),
    /// Text of this grammar, in the `llguidance` dialect of Lark.
    Lark(String),
}

/// What stands between two tokens of JSON where the schema does not say: without a bound, a model that repeats itself
/// fills its whole reply with line breaks.
const JSON_SPACE: &str = r"( |\r?\n[ \t]{0,40})";

impl Grammar {
    fn kind(&self) -> &'static str {
        match self {
            Grammar::JsonSchema(_) => "JSON schema",
            Grammar::Regex(_) => "regular expression",
            Grammar::Lark(_) => "grammar",
        }
    }

    fn lowered(&self) -> TopLevelGrammar {
        match self {
            Grammar::JsonSchema(schema) => {
                let mut schema = schema.clone();
                if let Some(fields) = schema.as_object_mut() {
                    fields.entry("x-guidance").or_insert_with(|| json!({ "whitespace_pattern": JSON_SPACE }));
                }
                TopLevelGrammar::from_json_schema(schema)
            }
            Grammar::Regex(pattern) => TopLevelGrammar::from_regex(pattern),
            Grammar::Lark(grammar) => TopLevelGrammar::from_lark(grammar.clone()),
        }
    }
}

/// Compiled grammars kept at once; beyond that all are forgotten.
const MOST_COMPILED: usize = 256;

/// Compiles grammars for one model.
pub(crate) struct GrammarCompiler {
    tokenizer: Tokenizer,
    /// Ascending.
    eos: Vec<u32>,
    /// Built with the first grammar: it walks the whole vocabulary.
    factory: OnceLock<Result<ParserFactory, String>>,
    compiled: Mutex<BTreeMap<String, Matcher>>,
}

impl GrammarCompiler {
    pub(crate) fn new(tokenizer: Tokenizer, eos: Vec<u32>) -> Self {
        GrammarCompiler { tokenizer, eos, factory: OnceLock::new(), compiled: Mutex::default() }
    }

    /// A fresh walk through a grammar.
    ///
    /// # Errors
    /// [`Error::Grammar`] when it is not valid, uses what is not supported, or is too large.
    pub(crate) fn constraint(&self, grammar: &Grammar) -> Result<Constraint> {
        let fault = |reason: String| Error::Grammar { what: grammar.kind(), reason };
        let key = serde_json::to_string(grammar).map_err(|error| fault(error.to_string()))?;
        let poisoned = |_| fault("an earlier grammar made its compiler panic".to_string());
        if let Some(matcher) = self.compiled.lock().map_err(poisoned)?.get(&key) {
            return Ok(Constraint::new(matcher.deep_clone()));
        }
        let factory = self.factory.get_or_init(|| factory(&self.tokenizer, &self.eos));
        let factory = factory.as_ref().map_err(|reason| fault(reason.clone()))?;
        let matcher = Matcher::new(factory.create_parser(grammar.lowered()));
        if let Some(reason) = matcher.get_error() {
            return Err(fault(first_line(&reason)));
        }
        let mut compiled = self.compiled.lock().map_err(poisoned)?;
        if compiled.len() >= MOST_COMPILED {
            compiled.clear();
        }
        compiled.insert(key, matcher.deep_clone());
        Ok(Constraint::new(matcher))
    }
}

/// Where one request stands in its grammar.
pub(crate) struct Constraint {
    matcher: Matcher,
    /// Why it can go no further.
    fault: Option<String>,
}

impl Constraint {
    fn new(matcher: Matcher) -> Self {
        Constraint { matcher, fault: None }
    }

    /// Masks the logits of every token that cannot come next, but for one `beside` the form; `false` when the walk failed
    /// (see [`fault`](Constraint::fault)).
    pub(crate) fn mask(&mut self, logits: &mut [f32], beside: Option<u32>) -> bool {
        match self.matcher.compute_mask() {
            Ok(allowed) => {
                let kept = beside.and_then(|token| Some((token as usize, *logits.get(token as usize)?)));
                keep_only(&allowed, logits);
                if let Some((token, logit)) = kept {
                    logits[token] = logit;
                }
                true
            }
            Err(error) => {
                self.fault = Some(first_line(&error.to_string()));
                false
            }
        }
    }

    /// Takes in the token that was drawn; `true` when the form is complete and nothing can follow.
    pub(crate) fn push(&mut self, token: u32) -> bool {
        if let Err(error) = self.matcher.consume_token(token) {
            self.fault = Some(first_line(&error.to_string()));
            return false;
        }
        self.matcher.is_stopped()
    }

    /// Why the walk failed, once it has: a mask took more work than one may.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}

/// Masks what is not allowed, 32 tokens at a time.
fn keep_only(allowed: &SimpleVob, logits: &mut [f32]) {
    for (index, chunk) in logits.chunks_mut(32).enumerate() {
        let bits = allowed.as_slice().get(index).copied().unwrap_or(0);
        match bits {
            u32::MAX => {}
            0 => chunk.fill(f32::NEG_INFINITY),
            _ => {
                for (bit, logit) in chunk.iter_mut().enumerate() {
                    if (bits >> bit) & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

fn first_line(reason: &str) -> String {
    reason.lines().next().unwrap_or_default().to_string()
}

fn factory(tokenizer: &Tokenizer, eos: &[u32]) -> Result<ParserFactory, String> {
    let vocabulary = Vocabulary::of(tokenizer, eos);
    let environment: TokEnv = Arc::new(vocabulary);
    let factory = ParserFactory::new_simple(&environment);
    let mut factory = factory.map_err(|error| first_line(&error.to_string()))?;
    factory.quiet();
    factory.limits_mut().verbose_errors = false;
    Ok(factory)
}

/// A model's vocabulary as the bytes that its tokens print.
struct Vocabulary {
    tokenizer: Tokenizer,
    trie: TokTrie,
}

impl Vocabulary {
    fn of(tokenizer: &Tokenizer, eos: &[u32]) -> Vocabulary {
        let words: Vec<Vec<u8>> = (0..tokenizer.vocab_size() as u32).map(|id| printed(tokenizer, id)).collect();
        let info = TokRxInfo::new(words.len() as u32, eos.first().copied().unwrap_or(toktrie::INVALID_TOKEN));
        let known: Vec<u32> = eos.iter().copied().filter(|id| (*id as usize) < words.len()).collect();
        let trie = TokTrie::from(&info, &words);
        let trie = if known.is_empty() { trie } else { trie.with_eos_tokens(&known) };
        Vocabulary { tokenizer: tokenizer.clone(), trie }
    }
}

/// What a token prints; control tokens under the mark that keeps them out of text, nothing for what prints nothing.
fn printed(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    match tokenizer.token_kind(id) {
        Some(TokenKind::Control) => {
            let name = tokenizer.token_text(id).unwrap_or_default();
            [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat()
        }
        Some(TokenKind::Unused) | None => Vec::new(),
        Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte(_)) => {
            // The byte 0xff is in no UTF-8 text, and the trie takes it for its mark.
            let bytes = tokenizer.token_bytes(id).unwrap_or_default();
            if bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) { Vec::new() } else { bytes }
        }
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        let encode = |text: &str| self.tokenizer.encode(text, Specials::Literal);
        self.trie.tokenize_with_greedy_fallback(bytes, encode)
    }

    /// Text that the form leaves no choice in is still drawn token by token: which tokens spell it is the model's choice.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tokenizer::GgufVocabulary;

    /// Every printable character, some JSON in one piece, and two tokens that end a generation.
    fn compiler() -> (GrammarCompiler, Tokenizer) {
        let pieces = ["{\"", "\":", "true", "Ġ", "\"}"].map(String::from);
        let tokens: Vec<String> = ["<end>", "<turn>"]
            .map(String::from)
            .into_iter()
            .chain((0x21..=0x7e).filter_map(char::from_u32).map(String::from))
            .chain(pieces)
            .collect();
        let tokenizer = Tokenizer::from_gguf(&GgufVocabulary {
            model: "gpt2".to_string(),
            pre: Some("smollm".to_string()),
            token_types: (0..tokens.len()).map(|id| if id < 2 { 3 } else { 1 }).collect(),
            tokens,
            merges: vec!["{ \"".to_string()],
            eos: Some(0),
            ..GgufVocabulary::default()
        })
        .unwrap();
        (GrammarCompiler::new(tokenizer.clone(), vec![0, 1]), tokenizer)
    }

    fn allowed(constraint: &mut Constraint, tokenizer: &Tokenizer) -> Vec<String> {
        // Wider than the vocabulary, as padded logits are.
        let mut logits = vec![0.5; tokenizer.vocab_size() + 37];
        assert!(constraint.mask(&mut logits, None), "{:?}", constraint.fault());
        let ids = (0u32..).zip(&logits).filter(|(_, logit)| **logit == 0.5).map(|(id, _)| id);
        ids.map(|id| tokenizer.token_text(id).expect("a token of the vocabulary").to_string()).collect()
    }

    fn push(constraint: &mut Constraint, tokenizer: &Tokenizer, token: &str) -> bool {
        constraint.push(tokenizer.token_id(token).unwrap())
    }

    #[test]
    fn only_what_the_schema_describes_can_be_drawn() {
        let (compiler, tokenizer) = compiler();
        let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false});
        let mut walk = compiler.constraint(&Grammar::JsonSchema(schema)).unwrap();
        assert_eq!(allowed(&mut walk, &tokenizer), ["{", "{\""]);
        for (token, next) in [("{\"", vec!["a"]), ("a", vec!["\"", "\":"]), ("\":", vec!["f", "t", "true", "Ġ"])] {
            assert!(!push(&mut walk, &tokenizer, token));
            assert_eq!(allowed(&mut walk, &tokenizer), next, "after {token}");
        }
        assert!(!push(&mut walk, &tokenizer, "true"));
        assert_eq!(allowed(&mut walk, &tokenizer), ["}", "Ġ"]);
        assert!(push(&mut walk, &tokenizer, "}"), "complete: nothing can follow");
    }

    #[test]
    fn what_may_end_admits_every_end_token() {
        let (compiler, tokenizer) = compiler();
        let mut walk = compiler.constraint(&Grammar::Regex("ab*".into())).unwrap();
        assert_eq!(allowed(&mut walk, &tokenizer), ["a"]);
        assert!(!push(&mut walk, &tokenizer, "a"));
        assert_eq!(allowed(&mut walk, &tokenizer), ["<end>", "<turn>", "b"]);
        let mut choice = compiler.constraint(&Grammar::Lark("start: \"yes\" | \"no\"".into())).unwrap();
        assert_eq!(allowed(&mut choice, &tokenizer), ["n", "y"]);
    }

    #[test]
    fn one_token_may_be_admitted_beside_the_form() {
        let (compiler, tokenizer) = compiler();
        let mut walk = compiler.constraint(&Grammar::Regex("ab".into())).unwrap();
        let mut logits = vec![0.5; tokenizer.vocab_size()];
        let beside = tokenizer.token_id("z").unwrap();
        logits[beside as usize] = -3.0;
        assert!(walk.mask(&mut logits, Some(beside)));
        let kept: Vec<f32> = logits.iter().copied().filter(|logit| logit.is_finite()).collect();
        assert_eq!((kept.len(), logits[beside as usize]), (2, -3.0), "`a`, and the other as likely as it was");
        assert!(walk.mask(&mut [0.5; 4], Some(beside)), "a token that has no logit");
    }

    #[test]
    fn a_walk_does_not_move_the_next_one() {
        let (compiler, tokenizer) = compiler();
        let grammar = Grammar::Regex("ab".into());
        let mut first = compiler.constraint(&grammar).unwrap();
        push(&mut first, &tokenizer, "a");
        let mut second = compiler.constraint(&grammar).unwrap();
        assert_eq!(allowed(&mut second, &tokenizer), ["a"]);
        assert_eq!(allowed(&mut first, &tokenizer), ["b"]);
        assert!(push(&mut first, &tokenizer, "b"));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        let (compiler, _) = compiler();
        let refused = |grammar: Grammar| compiler.constraint(&grammar).err().expect("refused").to_string();
        let unique = refused(Grammar::JsonSchema(json!({"type": "array", "uniqueItems": true})));
        assert!(unique.contains("uniqueItems") && unique.contains("JSON schema"), "{unique}");
        for schema in [json!(3), json!({"type": "objekt"}), json!({"$ref": "#/$defs/none"})] {
            refused(Grammar::JsonSchema(schema));
        }
        assert!(refused(Grammar::Regex("(".into())).contains("regular expression"));
        refused(Grammar::Lark("begin: \"a\"".into()));
    }
}
