//! The server over raw sockets: what a client, a probe and a supervisor see.
#![expect(
    clippy::unwrap_used,
    reason = "a test may fail where it stands; the lint excepts only functions marked as tests"
)]

mod admin;
mod ending;
mod files;
mod framing;
mod limits;
mod program;
mod site;
mod validators;
