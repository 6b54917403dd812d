//! How text is cut into words before byte-pair merging, by the names that GGUF files use.
//!
//! A GGUF file stores only a name (`tokenizer.ggml.pre`); the patterns behind it live in the program that reads it. A
//! wrong pattern does not fail, it encodes text in a way the model never saw, so a name outside this table is refused.
//!
//! Names and groups: `src/llama-vocab.cpp` of ggml-org/llama.cpp. Patterns are those of the models' own
//! `tokenizer.json` files where llama.cpp quotes them (its regex engine needs rewritten ones, which differ on letters
//! outside ASCII for `tekken` and `gpt-4o`), else llama.cpp's. `tests/golden/tokenizer` compares every entry with the
//! reference library and with llama.cpp.

use super::error::TokenizerError;

/// What a pre-tokenizer name stands for.
#[derive(Debug, PartialEq, Eq)]
pub struct PreTokenizer {
    pub names: &'static [&'static str],
    /// Applied in order; each cuts the pieces of the one before at its matches, which become pieces of their own, as
    /// does the text between them.
    pub patterns: &'static [&'static str],
    /// A word that is a token as a whole is taken without merging.
    pub ignore_merges: bool,
    /// Text is composed (Unicode NFC) first.
    pub compose: bool,
    /// Whether prompts begin with BOS when the file does not say.
    pub add_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_V3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const DIGIT: &str = r"\p{N}";

const fn plain(names: &'static [&'static str], patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { names, patterns, ignore_merges: false, compose: false, add_bos: false }
}

/// Every pre-tokenizer we know.
pub static PRE_TOKENIZERS: &[PreTokenizer] = &[
    plain(&["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"], &[DIGIT, GPT2]),
    plain(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "modern-bert",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "trillion",
        ],
        &[GPT2],
    ),
    PreTokenizer {
        ignore_merges: true,
        add_bos: true,
        ..plain(&["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0", "lfm2"], &[LLAMA3])
    },
    plain(&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], &[LLAMA3]),
    PreTokenizer { compose: true, ..plain(&["qwen2"], &[QWEN2]) },
    plain(&["deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"], &[QWEN2]),
    PreTokenizer { compose: true, ..plain(&["qwen35"], &[QWEN35]) },
    PreTokenizer { ignore_merges: true, add_bos: true, ..plain(&["tekken"], &[TEKKEN]) },
    plain(&["gpt-4o", "llama4"], &[GPT4O]),
    plain(&["deepseek-v3", "hunyuan-dense"], &[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3]),
    plain(&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", DIGIT]),
    plain(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"]),
    plain(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"]),
    plain(&["seed-coder"], &[SEED_CODER]),
    plain(&["bailingmoe"], &[BAILING]),
    plain(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    plain(&["viking"], &[BLOOM, DIGIT]),
];

impl PreTokenizer {
    /// The entry with this name.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownPreTokenizer`] with the names we know.
    pub fn find(name: &str) -> Result<&'static PreTokenizer, TokenizerError> {
        PRE_TOKENIZERS.iter().find(|entry| entry.names.contains(&name)).ok_or_else(|| {
            let known = PRE_TOKENIZERS.iter().flat_map(|entry| entry.names).copied().collect();
            TokenizerError::UnknownPreTokenizer { found: name.to_string(), known }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = PreTokenizer::find("smollm9").unwrap_err().to_string();
        assert!(error.contains("`smollm9`") && error.contains("smollm, "), "{error}");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = PRE_TOKENIZERS.iter().flat_map(|entry| entry.names).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
