//! The agent: one pod a node, which keeps the node's kernel keys as the node's `NodeTuning` asks,
//! reports what it found, and puts back what a resource that goes had changed.
//!
//! # Guarantees
//!
//! - Only the owners in the spec of this node's `NodeTuning` are acted on, and an owner is released
//!   only where the operator marked it so.
//! - Nothing is put back because the agent ends, is upgraded or crashes, or because it cannot reach
//!   the API server: it then goes on keeping what it was last told.
//! - The status is written only when it says something new.
//!
//! # Assumptions
//!
//! - The agent runs in the node's network namespace, as uid 0, and sees the node's `/proc/sys/net`,
//!   `/proc/sys/vm` and `/proc/sys/fs` below `--root`. No capability is needed.
//!
//! # Not done
//!
//! - Keys of a pod's own network namespace cannot be seen from here.
//! - No events are emitted: the operator does so where a resource's state changes.

mod admin;
mod health;
mod keeper;
mod metrics;
mod options;
mod run;
mod status;

pub use options::Options;
pub use run::run;
