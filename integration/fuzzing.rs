//! The library of `hack/fuzz`: the fuzz targets and their parts shared with the tests, as the root of a crate of its
//! own (fuzz/Cargo.toml), so that the tests' binary needs no fuzzer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unused_imports,
    reason = "parts of the tests; a property that does not hold is a panic"
)]

mod fixtures;
pub mod fuzz;
pub mod properties;

use std::sync::OnceLock;

use fuzz::{Change, Target};

/// What AGENTBOX_FUZZ names.
fn chosen() -> (Target, Change) {
    static CHOSEN: OnceLock<(Target, Change)> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("AGENTBOX_FUZZ").expect("AGENTBOX_FUZZ names a target");
        let found = fuzz::TARGETS.iter().find(|(known, ..)| *known == name);
        let (_, target, change) = found.expect("a target of integration/fuzz/mod.rs");
        (*target, *change)
    })
}

/// Feeds one input to the target.
pub fn feed(data: &[u8]) {
    chosen().0(data);
}

/// libFuzzer's mutator: bytes at random now and then, else JSON that stays JSON. What is no JSON is libFuzzer's alone, which
/// knows what was compared. Returns the new length.
pub fn mutated(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let (_, change) = chosen();
    let mut dice = properties::Dice::new(u64::from(seed) + 1);
    if std::ptr::fn_addr_eq(change, fuzz::change_bytes as Change) || dice.one_in(8) {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let changed = change(&data[..size], &mut dice);
    if changed.len() > max_size {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    data[..changed.len()].copy_from_slice(&changed);
    changed.len()
}
