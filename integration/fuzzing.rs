//! The library of `hack/fuzz`: the fuzz targets and what they share with the tests, as the root of a crate of its own
//! (fuzz/Cargo.toml), so that the tests' binary needs no fuzzer.
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

/// libFuzzer's mutator: bytes at random now and then, else JSON that stays JSON. Returns the new length.
pub fn mutated(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut dice = properties::Dice::new(u64::from(seed) + 1);
    if dice.one_in(8) {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let changed = fuzz::mutate(&data[..size], &mut dice);
    if changed.len() > max_size {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    data[..changed.len()].copy_from_slice(&changed);
    changed.len()
}
