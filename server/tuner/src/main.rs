//! `tunedweb-tuner`: tunes the node that it runs on.

fn main() {}
