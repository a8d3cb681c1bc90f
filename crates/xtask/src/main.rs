//! Generated files, demo, benchmarks.
fn main() {}
