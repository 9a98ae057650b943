//! What only a real cluster can show. Run by `e2e/test`, or by
//! `cargo test -p tunedweb-e2e --test cluster -- --test-threads=1` in the cluster of `e2e/test --up`:
//! the tests share the kernel's node-wide keys, so they run one after another.

mod access;
mod benchmark;
mod harness;
mod rollout;
mod site;
mod tuning;
mod uninstall;
