//! Answers at the terminal: the words that count, and the line in which the user types them.

/// The longest word, with room for a mistake.
const LONGEST: usize = 32;

/// The user's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Once,
    Run,
    Project,
    No,
    /// No, and no more questions in this run.
    Quiet,
}

/// The answers to a question about a host.
pub(super) const HOST_ANSWERS: [Answer; 5] = [
    Answer::Once,
    Answer::Run,
    Answer::Project,
    Answer::No,
    Answer::Quiet,
];

impl Answer {
    /// A word, or its first letter. Answers that last longer than this run need the whole word.
    fn parse(word: &str, allowed: &[Self]) -> Option<Self> {
        let fits = |answer: &&Self| {
            let name = answer.word();
            name == word || (**answer != Self::Project && name.get(..1) == Some(word))
        };
        allowed.iter().find(fits).copied()
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Run => "run",
            Self::Project => "project",
            Self::No => "no",
            Self::Quiet => "quiet",
        }
    }
}

/// The word that is being typed.
pub(super) struct Line {
    typed: String,
    /// The subject of the question.
    what: String,
    answers: &'static [Answer],
}

impl Line {
    pub fn about(what: &str, answers: &'static [Answer]) -> Self {
        Self {
            typed: String::new(),
            what: what.to_owned(),
            answers,
        }
    }

    /// The words that count, and the line in which the user types.
    fn again(&self) -> String {
        let words: Vec<&str> = self.answers.iter().map(|answer| answer.word()).collect();
        let (last, first) = words.split_last().unwrap_or((&"", &[]));
        format!("\r\n  {} or {last}: {} > ", first.join(", "), self.what)
    }

    /// Takes keys; returns the text to show, and the answer.
    pub fn take(&mut self, typed: &[u8]) -> (String, Option<Answer>) {
        let mut echo = String::new();
        for byte in typed {
            match byte {
                // ^C and ^D mean no.
                0x03 | 0x04 => return (echo, Some(Answer::No)),
                b'\r' | b'\n' => {
                    let word = std::mem::take(&mut self.typed).to_ascii_lowercase();
                    match Answer::parse(word.trim(), self.answers) {
                        Some(answer) => return (echo, Some(answer)),
                        None => echo += &self.again(),
                    }
                }
                0x7f | 0x08 if self.typed.pop().is_some() => echo += "\x08 \x08",
                // A key that sends several bytes, such as an arrow, is not a letter.
                0x1b => break,
                b' '..=b'~' if self.typed.len() < LONGEST => {
                    self.typed.push(char::from(*byte));
                    echo.push(char::from(*byte));
                }
                _ => {}
            }
        }
        (echo, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_word_and_enter() {
        for (typed, expected) in [
            ("o\r", Some(Answer::Once)),
            ("Once\n", Some(Answer::Once)),
            ("r\r", Some(Answer::Run)),
            ("  project \r", Some(Answer::Project)),
            ("n\r", Some(Answer::No)),
            ("q\r", Some(Answer::Quiet)),
            ("\u{3}", Some(Answer::No)),
            ("x\u{7f}o\r", Some(Answer::Once)),
            ("hello\ro\r", Some(Answer::Once)),
            ("o", None),
            ("\r", None),
            ("yes\r", None),
            ("on\r", None),
            ("p\r", None),
            ("\u{1b}[Ao\r", None),
        ] {
            let mut line = Line::about("a.test:443", &HOST_ANSWERS);
            assert_eq!(line.take(typed.as_bytes()).1, expected, "{typed:?}");
        }
    }

    #[test]
    fn what_is_typed_is_shown_and_bounded() {
        let mut line = Line::about("a.test:443", &HOST_ANSWERS);
        let (echo, answer) = line.take(&[b'a'; 300]);
        assert_eq!((echo.len(), answer), (LONGEST, None));
        assert_eq!(line.take(b"\x07\xff\x9b").0, "");
    }
}
