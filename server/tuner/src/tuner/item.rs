//! One key of a call: what is wanted, what is there, what is to be done, and how that is told.

use tunedweb_tuning::catalogue::{Key, Unit, find};
use tunedweb_tuning::{Conflict, KeyReport, KeyState, Value, merge};

use crate::journal::{Entry, Network};
use crate::settle::{Decision, is_same, settle};
use crate::tree::{Host, KernelTree};
use crate::write::{Failure, Outcome, Step};

/// One key of a call.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Which.
    pub(crate) key: &'static Key,
    /// False where the journal is not concerned: the value belongs to a pod's own network namespace,
    /// or is only looked at.
    pub(crate) journalled: bool,
    /// The place of the entry in the journal.
    pub(crate) network: Option<Network>,
    /// True where the plan of this call asks for the key, and a failure fails the plan.
    pub(crate) strict: bool,
    /// The kernel's text; empty where it could not be read.
    pub(crate) found: String,
    /// The value wanted, in the user's unit; empty where nobody wants it.
    pub(crate) wanted: String,
    /// The kernel's text before the first write of this boot, where the journal knew it.
    pub(crate) baseline: Option<String>,
    /// What is to be done.
    pub(crate) decision: Decision,
    /// Others changed what was written here.
    pub(crate) drifted: bool,
    /// Why it cannot be done.
    pub(crate) failure: Option<Failure>,
    /// What is to be said of it beside that.
    pub(crate) note: String,
    /// Who wants it.
    pub(crate) owners: Vec<String>,
}

/// Most of the node's memory that `tcp_mem` may take, as a divisor: the kernel's own choice is 9 %,
/// and what sockets hold can be neither swapped nor reclaimed.
const TCP_MEMORY_DIVISOR: u64 = 4;

impl Item {
    /// A key that is set as asked and not remembered.
    pub(crate) fn private(
        tree: &impl KernelTree,
        host: &Host,
        key: &'static Key,
        value: &Value,
        owner: &str,
    ) -> Self {
        let mut item = Self::read(tree, key, vec![owner.to_owned()]);
        item.strict = true;
        item.wanted = value.to_string();
        let target = key.to_kernel(value, host.page_size_bytes);
        if item.failure.is_none() && !is_same(key, &item.found, &target, host.page_size_bytes) {
            item.decision = Decision::Write(target);
        }
        item.check_writable(tree);
        item
    }

    /// A key of a newer generation than this call's: it is looked at and left.
    pub(crate) fn superseded(
        tree: &impl KernelTree,
        key: &'static Key,
        value: &Value,
        generation: i64,
        owner: &str,
    ) -> Self {
        let mut item = Self::read(tree, key, vec![owner.to_owned()]);
        item.wanted = value.to_string();
        item.failure = None;
        item.note = format!("left: generation {generation} of the same owner is in force");
        item
    }

    /// A key with an entry in the journal. `None` where this version does not know the key.
    pub(crate) fn journalled(tree: &impl KernelTree, host: &Host, entry: &Entry) -> Option<Self> {
        Self::settled(tree, host, entry).map(|(item, _)| item)
    }

    /// The same for a key that a plan of `owner` (`uid@node`) asks for: a failure is the plan's.
    pub(crate) fn planned(
        tree: &impl KernelTree,
        host: &Host,
        entry: &Entry,
        owner: &str,
    ) -> Option<Self> {
        let (mut item, conflicts) = Self::settled(tree, host, entry)?;
        item.strict = true;
        if let Some(conflict) = conflicts.iter().find(|conflict| conflict.owner == owner) {
            let asked = entry.wishes.iter().find(|wish| wish.owner.text() == owner);
            let reason = format!(
                "{} wished for {} earlier, and the two cannot be merged",
                conflict.held_by, item.wanted
            );
            item.wanted = asked.map(|wish| wish.value.clone()).unwrap_or_default();
            item.failure = Some(Failure::new(KeyState::Conflict, reason));
        }
        Some(item)
    }

    fn settled(
        tree: &impl KernelTree,
        host: &Host,
        entry: &Entry,
    ) -> Option<(Self, Vec<Conflict>)> {
        let mut item = Self::read(tree, find(&entry.key)?, entry.resources());
        item.journalled = true;
        item.network.clone_from(&entry.network);
        item.baseline.clone_from(&entry.baseline);
        if item.failure.is_some() {
            item.forget_if_gone(entry);
            let merged = merge(item.key, &entry.merge_input(item.key));
            item.wanted = merged
                .map(|merged| merged.value.to_string())
                .unwrap_or_default();
            return Some((item, Vec::new()));
        }
        let settled = settle(item.key, entry, &item.found, host.page_size_bytes);
        item.decision = settled.decision;
        item.drifted = settled.drifted;
        if let Some(wanted) = &settled.wanted {
            item.wanted = wanted.to_string();
            item.failure = beyond_memory(item.key, wanted, host);
        }
        item.check_writable(tree);
        Some((item, settled.conflicts))
    }

    /// A key that went away with its module took its value with it: there is nothing to put back.
    fn forget_if_gone(&mut self, entry: &Entry) {
        let is_gone = |failure: &mut Failure| failure.state == KeyState::Absent;
        if entry.wishes.is_empty()
            && let Some(failure) = self.failure.take_if(is_gone)
        {
            self.decision = Decision::Forget(KeyState::Absent);
            self.note = failure.reason;
        }
    }

    /// The write that this item needs.
    pub(crate) fn step(&self) -> Option<Step> {
        let Decision::Write(target) = &self.decision else {
            return None;
        };
        if self.failure.is_some() {
            return None;
        }
        Some(Step {
            key: self.key,
            found: self.found.clone(),
            target: target.clone(),
            strict: self.strict,
        })
    }

    /// What became of the key. `entry` is what the journal says of it afterwards.
    pub(crate) fn report(
        &self,
        outcome: Option<&Outcome>,
        entry: Option<&Entry>,
        page_size_bytes: u64,
    ) -> KeyReport {
        let (state, reason, found) = self.state(outcome);
        let private_baseline = match outcome {
            Some(Outcome::Written(_)) if !self.journalled => Some(&self.found),
            _ => None,
        };
        let known = entry
            .and_then(|entry| entry.baseline.as_ref())
            .or(self.baseline.as_ref());
        let baseline = known.or(private_baseline);
        KeyReport {
            name: self.key.name.to_owned(),
            wanted: self.wanted.clone(),
            found: shown(self.key, found, page_size_bytes),
            baseline: baseline
                .map(|text| shown(self.key, text, page_size_bytes))
                .unwrap_or_default(),
            state,
            owners: self.owners.clone(),
            reason,
        }
        .bounded()
    }

    fn read(tree: &impl KernelTree, key: &'static Key, owners: Vec<String>) -> Self {
        let read = tree.read(key);
        let failure = read
            .as_ref()
            .err()
            .map(|error| Failure::of_read(key, error));
        Self {
            key,
            journalled: false,
            network: None,
            strict: false,
            found: read.unwrap_or_default(),
            wanted: String::new(),
            baseline: None,
            decision: Decision::Keep,
            drifted: false,
            failure,
            note: String::new(),
            owners,
        }
    }

    fn check_writable(&mut self, tree: &impl KernelTree) {
        if self.failure.is_some() {
            return;
        }
        if let Decision::Write(target) = &self.decision
            && let Err(error) = tree.check_writable(self.key)
        {
            self.failure = Some(Failure::of_write(self.key, target, &error));
        }
    }

    fn state<'a>(&'a self, outcome: Option<&'a Outcome>) -> (KeyState, String, &'a str) {
        if let Some(failure) = &self.failure {
            return (failure.state, failure.reason.clone(), &self.found);
        }
        let restored = self.wanted.is_empty();
        match outcome {
            Some(Outcome::Written(text)) if restored => {
                (KeyState::Restored, self.note.clone(), text)
            }
            Some(Outcome::Written(text)) => (KeyState::Applied, self.note.clone(), text),
            Some(Outcome::Failed(failure)) => (failure.state, failure.reason.clone(), &self.found),
            Some(Outcome::Stuck(failure, now)) => {
                let reason = format!("{}; the former value could not be put back", failure.reason);
                (failure.state, reason, now)
            }
            Some(Outcome::PutBack | Outcome::NotReached) => (
                KeyState::Skipped,
                "another key of the plan failed".to_owned(),
                &self.found,
            ),
            None => match self.decision {
                Decision::Forget(state) => (state, self.note.clone(), &self.found),
                _ => (KeyState::Unchanged, self.note.clone(), &self.found),
            },
        }
    }
}

/// A kernel's text in the user's unit and with single spaces.
pub(crate) fn shown(key: &Key, text: &str, page_size_bytes: u64) -> String {
    match key.from_kernel(text, page_size_bytes) {
        Some(value) => value.to_string(),
        None => text.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
    }
}

fn beyond_memory(key: &Key, value: &Value, host: &Host) -> Option<Failure> {
    let Value::Numbers(numbers) = value else {
        return None;
    };
    let permitted = host.memory_bytes / TCP_MEMORY_DIVISOR;
    let asked = numbers.iter().max().copied().unwrap_or_default();
    (key.unit == Unit::BytesKeptInPages && asked > permitted).then(|| {
        Failure::new(
            KeyState::NotPermitted,
            format!(
                "{asked} bytes are more than a quarter of this node's memory ({permitted} bytes \
                 are permitted): {}",
                key.advice
            ),
        )
    })
}
