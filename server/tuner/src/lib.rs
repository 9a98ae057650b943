//! Reads and writes kernel keys: apply, verify, restore, under a journal of what was there before.
//!
//! Two programs call this library on a node, the init container of a serving pod and the node's
//! agent; a lock and a journal in one folder of the node keep them from undoing each other.
//!
//! # Guarantees
//!
//! - A plan is carried out whole or not at all: when one key fails, those written before it are put
//!   back.
//! - The value from before the first write of a boot is on disk, synced, before that write. A
//!   process killed at any moment loses no such value, and the next call finishes or undoes what
//!   was begun.
//! - Each write is read back, and compared without regard to separators.
//! - A value is put back only if the one found is the one written here, in the same boot.
//! - An older generation of an owner's wishes never replaces a newer one.
//!
//! # Assumptions
//!
//! - All callers on a node use the same journal folder, on a file system with `flock(2)`.
//! - A caller in [`PlanContext::Host`](tunedweb_tuning::PlanContext::Host) runs in the host's network
//!   namespace: `/proc/sys/net` shows the namespace of whoever opens it, even through a bind mount.
//!
//! # Not done
//!
//! - Nothing is written that the catalogue does not know.
//! - Network keys of a pod's own namespace are set exactly as asked and not remembered: they end
//!   with the pod.
//! - Nobody is told when a value changes; the agent calls [`Tuner::sync`] again and again.

pub mod cli;

mod facts;
mod journal;
mod settle;
mod tree;
mod tuner;
mod write;

pub use journal::JournalError;
pub use tree::{Host, KernelTree, ProcTree};
pub use tuner::{
    Applied, OwnerOutcome, OwnerReport, OwnerWishes, Preview, PreviewStep, Standing, SyncReport,
    TuneError, Tuner,
};
