"""The texts on which tokenizers are compared: prose, code, scripts, emoji, white space, control characters, random runs.

Everything is written out here or drawn from a fixed linear congruential generator, so that the list never changes.
"""

PROSE = [
    "", " ", "  ", "\n", "\t", "Hello world", "Hello world 12345", "The quick brown fox jumps over the lazy dog.",
    "I'm sure they'll say it's fine, don't you think? We've seen it. I'd go; you're late.",
    "I'M SURE THEY'LL SAY IT'S FINE, DON'T YOU THINK? WE'VE SEEN IT.",
    "  leading and trailing spaces  ", "multiple   internal    spaces", "a  b", "a   b", "x\n\n\ny", "x \n \n y",
    "tabs\tand\nnewlines\r\nmixed\r\rcarriage", "end of line \n", "\n\n  indented after blank lines",
    "Dr. Smith paid $1,234.56 on 2024-07-26 (about 90%).", "3.14159 1e-10 0xDEADBEEF 1_000_000 007 v2.10",
    "1234567890123456789012345678901234567890", "1 22 333 4444 55555", "½ ² ³ ① Ⅷ ٣ ४ 五 Ⅻ ㊿", "e.g. i.e. etc...",
    "https://example.org/a/b?c=d&e=%20f#g", "user@example.org", "C:\\Users\\name\\file.txt", "~/dir/.hidden",
    "-- em—dash – en - hyphen ‐ figure‒", "“curly” ‘quotes’ «guillemets» „low“ 'straight' \"double\"",
    "!@#$%^&*()_+-=[]{}|;':\",./<>?`~", "!!!???...---===", "<html><body class=\"x\">text</body></html>",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case", "ALLCAPS mixedCASE aBcDeF",
    "supercalifragilisticexpialidocious antidisestablishmentarianism", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the the the the the the", "Once upon a time, there was a little girl who lived in a village near the forest.",
]

CODE = [
    "def add(a, b):\n    \"\"\"Adds.\"\"\"\n    return a + b\n",
    "for i in range(10):\n\tif i % 2 == 0:\n\t\tprint(f\"{i:>3} {i**2}\")\n",
    "fn main() {\n    let x: Vec<u32> = (0..10).map(|i| i * 2).collect();\n    println!(\"{x:?}\");\n}\n",
    "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 42); return 0; }\n",
    "SELECT name, COUNT(*) FROM t WHERE x >= 10 AND y IS NOT NULL GROUP BY name; -- comment",
    "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"b\\u00e9\"}}",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "$ ls -la | grep '^d' && echo \"$HOME\" > /dev/null",
    "\\frac{\\partial f}{\\partial x} = \\sum_{i=1}^{n} x_i^2", "x <- c(1,2,3); y %>% filter(z != 'a')",
    "if (a&&b||!c) { d??=e?.f ?? g; }  // TODO: fix", "    \t  mixed indentation\n        deeper\n\n\n",
    "class A<T extends B> implements C { private final int x = 0x1F; }", "@decorator\nasync def f(*args, **kwargs): ...",
    "a=1;b=2;c=a+b;//no spaces", "```python\nprint('hi')\n```\n", "# Heading\n\n- item *one*\n- item **two**\n\n> quote\n",
]

SCRIPTS = [
    "Café naïve résumé façade Ångström", "cafe\u0301 A\u030a n\u0303 o\u0302\u0301", "Straße GROẞ ĲSSEL ŉ ǆ ﬁ ﬀ",
    "Zażółć gęślą jaźń", "Příliš žluťoučký kůň", "Đặng Thị Hương", "Ελληνικά και ΚΕΦΑΛΑΙΑ ὅς ᾳ",
    "Россия и Україна, съешь ещё этих мягких", "你好，世界！这是一个测试。", "我有3个苹果和5本书", "日本語のテキストとカタカナ ー ｶﾀｶﾅ",
    "한국어 텍스트입니다", "ㅎㅏㄴㄱㅡㄹ", "مرحبا بالعالم، كيف حالك؟", "שלום עולם", "سلام دنیا ۱۲۳", "नमस्ते दुनिया", "বাংলা ভাষা",
    "தமிழ் மொழி", "ภาษาไทยไม่มีช่องว่าง", "ქართული ენა", "Հայերեն", "አማርኛ", "ᏣᎳᎩ", "ꦗꦮ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒮𝒸𝓇𝒾𝓅𝓉", "𐐷𐑊𐐨𐐮", "𠀀𠮷",
    "mixed 中文 and English と 日本語 123", "abc\u200bdef\u200c\u200d\ufeff", "\u202eRTL override\u202c", "\u00a0nbsp\u00a0here\u2003em\u3000ideographic",
    "line\u2028sep\u2029par\u0085nel", "soft\u00adhyphen", "▁already▁marked ▁", "Ġbyte Ċlevel ĉlook-alikes",
]

EMOJI = [
    "😀", "I ❤️ 🦙", "👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇺🇸🇯🇵", "a😀b😀😀c", "☃ ☂ ★ ♥ ✓ ✗ → ⇒ ∀ ∃ ∑ √ ∞ ≠ ≤", "🧑🏿‍🚀 to the 🌕!!!", "1️⃣2️⃣ #️⃣", "\U0001fae8\U0001fab7\U0001f6dc",
]

CONTROL = [chr(code) for code in range(0x00, 0x21)] + [
    "\x7f", "\x80", "\x9f", "a\x00b", "a\x01b\x02c", "x\x04y", "in\x06to", "\x13\x14\x16\x1d", "\x1b[31mred\x1b[0m", "a\x0bb\x0cc",
    "tab\tvt\x0bff\x0c", "\x00\x00\x00", "bell\x07 \x08back", "\ufffd", "\ufffe\uffff", "\ue000\uf8ff", "\U000e0041\U000e0042",
    "\U0010ffff", "\U00040000 \U0007abcd", "\U000f0000",
]

SPECIAL = [
    "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "hello<|im_end|>", "<|im_end|><|im_end|>",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n",
    "say <|im_end|> now", "<|im_end", "|im_end|>", "< |im_end|>", "<repo_name>x<file_sep>y", "<|IM_END|>", "  <|im_start|>  ",
    "<s>[INST] hi [/INST]</s>", "<unk><pad><bos>", "<0x0A><0xFF>",
]


def spaces():
    """White space of every kind, before, between and after words."""
    kinds = [" ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\x0b"]
    for kind in kinds:
        for count in (1, 2, 3, 7, 16):
            yield f"a{kind * count}b"
    for kind in kinds[:4]:
        yield f"{kind * 3}a"
        yield f"a{kind * 3}"
        yield f"a{kind} b {kind}c"
        yield f"1{kind}2 {kind} .{kind}."


class Generator:
    """Numerical Recipes' 32-bit generator, high bits."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return (self.state >> 8) * limit >> 24


RANGES = [
    (0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x09, 0x0D), (0x20, 0x20), (0x30, 0x39), (0xA0, 0x17F), (0x300, 0x36F),
    (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x20A0, 0x21FF),
    (0x2460, 0x24FF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFE00, 0xFE0F), (0xFF00, 0xFFEF),
    (0x1F300, 0x1F6FF), (0x1D400, 0x1D7FF),
]


def random_texts(count):
    generator = Generator(2024)
    for _ in range(count):
        text = []
        while len(text) < 1 + generator.below(40) or generator.below(4):
            low, high = RANGES[generator.below(len(RANGES))]
            for _ in range(1 + generator.below(6)):
                text.append(chr(low + generator.below(high - low + 1)))
        yield "".join(text)


def mixed_texts(count):
    """Pieces of the texts above, joined without regard for their borders."""
    generator = Generator(7)
    pool = PROSE + CODE + SCRIPTS + EMOJI
    for _ in range(count):
        parts = []
        for _ in range(2 + generator.below(3)):
            text = pool[generator.below(len(pool))]
            start = generator.below(len(text) + 1)
            parts.append(text[start:start + 1 + generator.below(16)])
        yield "".join(parts)


def texts():
    listed = PROSE + CODE + SCRIPTS + EMOJI + CONTROL + SPECIAL + list(spaces())
    return listed + list(random_texts(120)) + list(mixed_texts(160))
