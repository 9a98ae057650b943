//! The operator of tunedweb.
fn main() {}
