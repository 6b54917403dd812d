//! What is asked: facts and word forms that a 135M model knows about half the time.

/// One kind of question with its subjects and their answers.
pub struct Topic {
    pub name: &'static str,
    /// The question; `{}` is the subject.
    pub question: &'static str,
    /// The reply as a sentence; the first `{}` is the subject, the second the answer.
    pub sentence: &'static str,
    /// Subject and answer. Subjects are unique.
    pub items: &'static [(&'static str, &'static str)],
}

impl Topic {
    /// Most tasks a family can have: every topic holds this many items for each form.
    pub const MOST_PER_FORM: usize = 6;
}

/// Every topic. A new one is one entry, and a new `KATA_VERSION`.
pub static TOPICS: &[Topic] = &[
    Topic {
        name: "capital",
        question: "What is the capital of {}?",
        sentence: "The capital of {} is {}.",
        items: &[
            ("France", "Paris"),
            ("Japan", "Tokyo"),
            ("Italy", "Rome"),
            ("Egypt", "Cairo"),
            ("Spain", "Madrid"),
            ("Germany", "Berlin"),
            ("China", "Beijing"),
            ("Russia", "Moscow"),
            ("Greece", "Athens"),
            ("Cuba", "Havana"),
            ("Peru", "Lima"),
            ("Ireland", "Dublin"),
        ],
    },
    Topic {
        name: "language",
        question: "What language do people speak in {}?",
        sentence: "People in {} speak {}.",
        items: &[
            ("France", "French"),
            ("Japan", "Japanese"),
            ("Italy", "Italian"),
            ("Egypt", "Arabic"),
            ("Spain", "Spanish"),
            ("Germany", "German"),
            ("Russia", "Russian"),
            ("Greece", "Greek"),
            ("Mexico", "Spanish"),
            ("Brazil", "Portuguese"),
            ("Poland", "Polish"),
            ("England", "English"),
        ],
    },
    Topic {
        name: "continent",
        question: "Which continent is {} in?",
        sentence: "{} is in {}.",
        items: &[
            ("France", "Europe"),
            ("Japan", "Asia"),
            ("Italy", "Europe"),
            ("Egypt", "Africa"),
            ("Spain", "Europe"),
            ("Germany", "Europe"),
            ("China", "Asia"),
            ("Kenya", "Africa"),
            ("Poland", "Europe"),
            ("India", "Asia"),
            ("Nigeria", "Africa"),
            ("Vietnam", "Asia"),
        ],
    },
    Topic {
        name: "opposite",
        question: "What is the opposite of {}?",
        sentence: "The opposite of {} is {}.",
        items: &[
            ("hot", "cold"),
            ("big", "small"),
            ("happy", "sad"),
            ("up", "down"),
            ("old", "new"),
            ("dark", "light"),
            ("open", "closed"),
            ("left", "right"),
            ("fast", "slow"),
            ("rich", "poor"),
            ("hard", "soft"),
            ("true", "false"),
        ],
    },
    Topic {
        name: "plural",
        question: "What is the plural of {}?",
        sentence: "The plural of {} is {}.",
        items: &[
            ("book", "books"),
            ("car", "cars"),
            ("tree", "trees"),
            ("box", "boxes"),
            ("child", "children"),
            ("foot", "feet"),
            ("city", "cities"),
            ("mouse", "mice"),
            ("dog", "dogs"),
            ("house", "houses"),
            ("man", "men"),
            ("leaf", "leaves"),
        ],
    },
    Topic {
        name: "past",
        question: "What is the past tense of {}?",
        sentence: "The past tense of {} is {}.",
        items: &[
            ("start", "started"),
            ("open", "opened"),
            ("work", "worked"),
            ("go", "went"),
            ("play", "played"),
            ("call", "called"),
            ("see", "saw"),
            ("run", "ran"),
            ("eat", "ate"),
            ("make", "made"),
            ("think", "thought"),
            ("walk", "walked"),
        ],
    },
];
