//! The one fuzzer: AGENTBOX_FUZZ says what it feeds. One binary, since each would link all of agentbox.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agentbox_fuzz::feed(data));

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    agentbox_fuzz::mutated(data, size, max_size, seed)
});
