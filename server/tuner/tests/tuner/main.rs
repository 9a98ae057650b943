//! The tuner from outside: the library over a kernel in memory, the program over the real one.

mod crash;
mod histories;
mod kernel;
mod owners;
mod program;
mod support;
mod sync;
mod transactions;
