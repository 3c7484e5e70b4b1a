//! The library of `hack/fuzz`: the fuzz targets and the code that they share with the tests, as the root of a separate
//! crate (fuzz/Cargo.toml). So the tests' binary needs no fuzzer.
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

/// The target of AGENTBOX_FUZZ.
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

/// libFuzzer's mutator: sometimes random bytes, else JSON that stays JSON. Input that is not JSON is left to libFuzzer,
/// which knows the comparisons. Returns the new length.
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
