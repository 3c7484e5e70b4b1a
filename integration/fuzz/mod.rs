//! Fuzz targets: all code that turns outside bytes into a decision. `hack/fuzz` runs [`TARGETS`] with coverage. The
//! test here runs the corpus and mutations of it, always the same ones.

mod mutate;
mod requests;
mod targets;
mod wire;

pub use mutate::{change_bytes, mutate};
pub use requests::request;
pub use targets::{annotations, config, process, resources};
pub use wire::{hello, host, http, question, socks};

use crate::properties::Dice;

/// A target: panics if a property does not hold.
pub type Target = fn(&[u8]);

/// Makes another input from one.
pub type Change = fn(&[u8], &mut Dice) -> Vec<u8>;

/// The targets by name, with the mutation of their inputs.
pub const TARGETS: [(&str, Target, Change); 10] = [
    ("config", config, mutate),
    ("process", process, mutate),
    ("resources", resources, mutate),
    ("annotations", annotations, mutate),
    ("host", host, change_bytes),
    ("hello", hello, change_bytes),
    ("http", http, change_bytes),
    ("question", question, change_bytes),
    ("socks", socks, change_bytes),
    ("request", request, change_bytes),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    /// Mutations of each text of the corpus; `hack/fuzz` makes millions.
    const CHANGES: usize = 60;

    fn corpus(target: &str) -> Vec<Vec<u8>> {
        let entries = std::fs::read_dir(fixtures::path("../fuzz/corpus").join(target)).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
            .into_iter()
            .map(|f| std::fs::read(f).unwrap())
            .collect()
    }

    #[test]
    fn every_property_holds_for_the_corpus_and_changes_of_it() {
        let mut dice = Dice::new(0x0dd5_eed5);
        for (name, run, change) in TARGETS {
            let texts = corpus(name);
            assert!(texts.len() > 3, "the corpus of {name} is gone");
            for text in texts {
                run(&text);
                let mut changed = text;
                for _ in 0..CHANGES {
                    changed = change(&changed, &mut dice);
                    let result = std::panic::catch_unwind(|| run(&changed));
                    let shown = String::from_utf8_lossy(&changed);
                    assert!(result.is_ok(), "{name}: {shown}");
                }
            }
        }
    }
}
