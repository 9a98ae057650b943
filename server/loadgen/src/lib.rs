//! Makes HTTP load and measures the answers.
//!
//! A closed loop: each connection sends its next request when the former one was answered. Each
//! thread has its own epoll loop, its own connections and its own histogram; nothing is shared
//! while the load runs, and no request allocates memory.
//!
//! What is measured: the response time runs from before the request is sent to the last byte of the
//! response; with a new connection for each request, from before `connect`. Only answers that are
//! complete and have a status below 400 are counted in it, everything else is an error by kind.
//!
//! What is bounded: a thread has one read buffer and one histogram, a connection keeps nothing but a
//! head that came in pieces, up to 16 KiB; bodies are followed, not kept. Memory does not grow with
//! the length of a run, nor with what a server sends.
//!
//! What is not done: an answer that is late because the server stood still delays the requests
//! after it, which then are not sent; a closed loop does not show how many users would have waited.

mod cli;
mod duration;
mod limits;
mod measurement;
mod output;
mod plan;
mod resolve;
mod response;
mod run;
mod url;
mod worker;

pub use cli::{Cli, Command, HttpArgs, OutputArgs};
pub use run::{Outcome, RunError, run};
