//! The program against real servers on the loopback interface.

#![cfg(test)]

mod answers;
mod bounds;
mod program;
mod results;
mod server;
