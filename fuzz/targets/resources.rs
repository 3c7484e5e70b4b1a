#![no_main]
use agentbox_fuzz::fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::resources(data));

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    agentbox_fuzz::mutated(data, size, max_size, seed)
});
