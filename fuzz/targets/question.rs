#![no_main]
use agentbox_fuzz::fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::question(data));
