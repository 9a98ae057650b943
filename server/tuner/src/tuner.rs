//! The calls: preview, apply, verify, release, sync.

use std::path::PathBuf;
use std::time::Duration;

use tunedweb_tuning::{ApplyReport, CheckedPlan, Class, KeyReport, Owner, SysctlSetting};

use crate::journal::JournalError;
use crate::tree::KernelTree;

/// How long a call waits for another that holds the node's lock. A whole sync takes milliseconds;
/// an init container that gives up is started again by the kubelet.
const LOCK_DEADLINE: Duration = Duration::from_secs(30);

/// Tunes one node.
#[derive(Clone, Debug)]
pub struct Tuner<T> {
    tree: T,
    journal: PathBuf,
    node: String,
    lock_deadline: Duration,
}

/// Why a call could not even be tried.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The journal cannot be used.
    #[error("use the journal of this node")]
    UseJournal(#[source] JournalError),
    /// Boot, memory, page size or namespace cannot be told.
    #[error("read what this node says of itself")]
    ReadHost(#[source] std::io::Error),
}

/// What [`Tuner::apply`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The summary.
    pub report: ApplyReport,
    /// Each key of the plan, and keys that left it, with `baseline` the value before this call.
    pub keys: Vec<KeyReport>,
}

/// What [`Tuner::apply`] would do with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Name with dots.
    pub name: String,
    /// Which way it goes under the oldest Kubernetes supported.
    pub class: Class,
    /// Value now; empty where it cannot be read.
    pub current: String,
    /// Value afterwards.
    pub would_be: String,
    /// What would be done.
    pub step: PreviewStep,
    /// Why.
    pub reason: String,
}

/// What would be done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviewStep {
    /// It would be written.
    Write,
    /// It is right already.
    Keep,
    /// It would fail, and the plan with it.
    Refuse,
}

/// What one owner wants on this node, as [`Tuner::sync`] takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerWishes {
    /// Who.
    pub owner: Owner,
    /// True when the owner is gone: its wishes are withdrawn and what was written for it is put
    /// back.
    pub released: bool,
    /// Every key of class C and D that it wants.
    pub sysctls: Vec<SysctlSetting>,
}

/// What [`Tuner::sync`] found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncReport {
    /// Boot that the values belong to.
    pub boot_id: String,
    /// Each key that an owner wants on this node, once, by name.
    pub keys: Vec<KeyReport>,
    /// Each owner that was given, in the same order.
    pub owners: Vec<OwnerReport>,
    /// Keys put back, or not, because their last owner was released.
    pub released: Vec<KeyReport>,
    /// Names of keys that others had changed and that were written again.
    pub rewritten: Vec<String>,
}

/// What became of one owner's wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReport {
    /// UID of the resource.
    pub uid: String,
    /// `namespace/name`.
    pub resource: String,
    /// Generation that was asked for.
    pub generation: i64,
    /// What became of it.
    pub outcome: OwnerOutcome,
    /// Keys with a problem.
    pub failures: Vec<KeyReport>,
}

/// What became of one owner's wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerOutcome {
    /// All of them hold.
    Applied,
    /// One could not be met; the owner's former wishes hold.
    Failed,
    /// The journal holds a newer generation, which stays.
    Superseded,
    /// The owner is gone and nothing of it is left.
    Released,
    /// The owner is gone, and a value could not be put back; the next sync tries again.
    RestoreFailed,
}

impl<T: KernelTree> Tuner<T> {
    /// Tunes through `tree`, with the journal in the folder `journal`, for the node of that name.
    pub fn new(tree: T, journal: impl Into<PathBuf>, node: impl Into<String>) -> Self {
        Self {
            tree,
            journal: journal.into(),
            node: node.into(),
            lock_deadline: LOCK_DEADLINE,
        }
    }

    /// Waits this long for the node's lock instead of 30 seconds.
    #[must_use]
    pub fn with_lock_deadline(self, lock_deadline: Duration) -> Self {
        Self {
            lock_deadline,
            ..self
        }
    }

    /// The tree that it tunes through.
    pub fn tree(&self) -> &T {
        &self.tree
    }

    /// Says what [`Self::apply`] would do. Nothing is written, not even the journal.
    pub fn preview(&self, plan: &CheckedPlan) -> Result<Vec<Preview>, TuneError> {
        let _ = plan;
        todo!()
    }

    /// Carries a plan out, whole or not at all. The plan's keys replace all that its owner wished
    /// for in that context: under `Pod` the node-wide keys, under `Host` all of them.
    pub fn apply(&self, plan: &CheckedPlan) -> Result<Applied, TuneError> {
        let _ = plan;
        todo!()
    }

    /// Reads each key of a plan and says whether it holds. Nothing is written.
    pub fn verify(&self, plan: &CheckedPlan) -> Result<Vec<KeyReport>, TuneError> {
        let _ = plan;
        todo!()
    }

    /// Withdraws an owner's wishes on this node and puts back what nobody else wants. A plan of
    /// that owner that comes late, with this generation or an older one, is refused from then on.
    pub fn release(&self, owner: &Owner) -> Result<Vec<KeyReport>, TuneError> {
        let _ = owner;
        todo!()
    }

    /// Brings the node to what its owners want: releases those marked so, applies the others'
    /// wishes, writes again what others changed. Owners that are not given stay as they are.
    pub fn sync(&self, owners: &[OwnerWishes]) -> Result<SyncReport, TuneError> {
        let _ = owners;
        todo!()
    }
}
