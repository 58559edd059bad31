//! What libFuzzer calls with each story that it makes.
#![no_main]

libfuzzer_sys::fuzz_target!(|story: bellwether_fuzz::Story| bellwether_fuzz::tell(&story));
