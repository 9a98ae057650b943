//! The calls: preview, apply, release, sync.

mod apply;
mod draft;
mod item;
mod session;
mod sync;

use std::path::PathBuf;
use std::time::Duration;

use tunedweb_tuning::{ApplyReport, CheckedPlan, Class, KeyReport, NodeFacts, Owner, PlanContext};

use crate::facts::node_facts;
use crate::journal::JournalError;
use crate::tree::KernelTree;

pub use sync::{OwnerOutcome, OwnerReport, OwnerWishes, Standing, SyncReport};

/// How long a call waits for another that holds the node's lock. A whole sync takes milliseconds;
/// an init container that gives up is started again by the kubelet.
const LOCK_DEADLINE: Duration = Duration::from_secs(30);

/// Tunes one node.
#[derive(Clone, Debug)]
pub struct Tuner<T> {
    tree: T,
    journal: PathBuf,
    node: String,
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
    /// Each key of the plan, and keys that left it.
    pub keys: Vec<KeyReport>,
}

/// What [`Tuner::apply`] would do with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Name with dots.
    pub name: String,
    /// Which way it goes under the oldest Kubernetes supported.
    pub class: Class,
    /// Value now, in the user's unit; empty where it cannot be read.
    pub current: String,
    /// Value afterwards; the one asked for where it would be refused.
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

impl<T: KernelTree> Tuner<T> {
    /// Tunes through `tree`, with the journal in the folder `journal`, for the node of that name.
    pub fn new(tree: T, journal: impl Into<PathBuf>, node: impl Into<String>) -> Self {
        Self {
            tree,
            journal: journal.into(),
            node: node.into(),
        }
    }

    /// What the node says of itself.
    pub fn facts(&self) -> Result<NodeFacts, TuneError> {
        node_facts(&self.tree).map_err(TuneError::ReadHost)
    }

    /// Says what [`Self::apply`] would do. Nothing is written, not even the journal, and no lock is
    /// taken. A plan holds when every step is [`PreviewStep::Keep`].
    pub fn preview(&self, plan: &CheckedPlan) -> Result<Vec<Preview>, TuneError> {
        apply::preview(self, plan)
    }

    /// Carries a plan out, whole or not at all. The plan's keys replace what its owner wished for:
    /// under `Host` all of it, under `Pod` the keys of the whole kernel (`vm.*`, `fs.*`) of older
    /// generations.
    ///
    /// An owner that was released is refused until it comes with a newer generation; under `Host`,
    /// where only those who know that the owner is back call, with the same one.
    pub fn apply(&self, plan: &CheckedPlan) -> Result<Applied, TuneError> {
        apply::apply(self, plan)
    }

    /// Withdraws an owner's wishes on this node and puts back what nobody else wants. A pod's plan
    /// that comes late, with this generation or an older one, is refused from then on.
    ///
    /// A value that could not be put back is tried again by the next call of any kind. From a pod,
    /// keys of the host's network namespace are left to the next call in it.
    pub fn release(
        &self,
        owner: &Owner,
        context: PlanContext,
    ) -> Result<Vec<KeyReport>, TuneError> {
        sync::release(self, owner, context)
    }

    /// Brings the node to what its owners want: releases those marked so, applies the others'
    /// wishes, writes again what others changed. Owners that are not given stay as they are. Called
    /// in the host's network namespace.
    pub fn sync(&self, owners: &[OwnerWishes]) -> Result<SyncReport, TuneError> {
        sync::sync(self, owners)
    }

    fn session(&self, context: PlanContext) -> Result<session::Session<'_, T>, TuneError> {
        session::Session::open(
            &self.tree,
            &self.journal,
            &self.node,
            context,
            LOCK_DEADLINE,
        )
    }
}
