//! One locked call: the journal, the place, and the transaction that changes both kernel and
//! journal.

use std::path::Path;
use std::time::Duration;

use tunedweb_tuning::PlanContext;

use crate::journal::{Entry, Here, Journal, Store};
use crate::settle::{Decision, baseline_for_write, is_ours};
use crate::tree::{Host, KernelTree};
use crate::tuner::TuneError;
use crate::tuner::item::Item;
use crate::write::{Outcome, Step, carry_out, undo};

/// One locked call.
pub(crate) struct Session<'a, T> {
    pub(crate) tree: &'a T,
    pub(crate) host: Host,
    pub(crate) here: Here,
    /// What holds: this boot's view of the journal.
    pub(crate) journal: Journal,
    store: Store,
    /// What stands in the file.
    on_disk: Journal,
}

impl<'a, T: KernelTree> Session<'a, T> {
    /// Takes the lock, reads the journal, and finishes or undoes what a killed call left behind.
    pub(crate) fn open(
        tree: &'a T,
        folder: &Path,
        node: &str,
        context: PlanContext,
        lock_deadline: Duration,
    ) -> Result<Self, TuneError> {
        let (store, on_disk) = Store::open(folder, lock_deadline).map_err(TuneError::UseJournal)?;
        let host = tree.host().map_err(TuneError::ReadHost)?;
        let here = here(node, &host, context);
        let mut journal = on_disk.clone();
        journal.refresh(&here);
        let mut session = Self {
            tree,
            host,
            here,
            journal,
            store,
            on_disk,
        };
        session.recover()?;
        Ok(session)
    }

    /// Looks at the entries that are picked, as they would be with the wishes of `next`.
    pub(crate) fn survey(&self, next: &Journal, pick: impl Fn(&Entry) -> bool) -> Vec<Item> {
        let entries = next.entries.iter();
        entries
            .filter(|entry| entry.is_visible(&self.here) && pick(entry))
            .filter_map(|entry| Item::journalled(self.tree, &self.host, entry))
            .collect()
    }

    /// What the journal says of an item now.
    pub(crate) fn entry_of(&self, item: &Item) -> Option<&Entry> {
        if !item.journalled {
            return None;
        }
        self.journal.entry(item.key.name, item.network.as_ref())
    }

    /// Writes what the items need and makes `next` the journal; when a strict item fails or the
    /// journal cannot be saved, kernel and journal are as before. The order is what makes it safe to be killed at any moment:
    /// baseline and announced value go to disk, then the kernel is written, then the wishes and the
    /// values read back go to disk.
    pub(crate) fn transact(
        &mut self,
        next: Journal,
        items: &[Item],
    ) -> Result<Vec<Option<Outcome>>, TuneError> {
        let steps: Vec<Option<Step>> = items.iter().map(Item::step).collect();
        let intent = self.intent(items, &steps);
        if steps.iter().any(Option::is_some) {
            self.save(intent.clone())?;
        }
        let flat: Vec<Step> = steps.iter().flatten().cloned().collect();
        let page_size = self.host.page_size_bytes;
        let carried = carry_out(self.tree, &flat, page_size);
        let mut each = carried.iter().cloned();
        let outcomes: Vec<Option<Outcome>> = steps
            .iter()
            .map(|step| step.as_ref().and_then(|_| each.next()))
            .collect();
        let undone = items.iter().zip(&outcomes).any(|(item, outcome)| {
            item.strict
                && outcome
                    .as_ref()
                    .is_some_and(|o| !matches!(o, Outcome::Written(_)))
        });
        let mut result = if undone { self.journal.clone() } else { next };
        for (item, outcome) in items.iter().zip(&outcomes) {
            self.conclude(&mut result, &intent, item, outcome.as_ref(), undone);
        }
        result.tidy();
        if let Err(error) = self.save(result.clone()) {
            // The plan does not count, so its values must not stay.
            undo(self.tree, &flat, &carried, page_size);
            return Err(error);
        }
        self.journal = result;
        Ok(outcomes)
    }

    /// Settles what was announced and not confirmed, and what could not be put back before.
    fn recover(&mut self) -> Result<(), TuneError> {
        let unsettled = |entry: &Entry| entry.pending.is_some() || entry.wishes.is_empty();
        let items = self.survey(&self.journal, unsettled);
        if items.is_empty() {
            return Ok(());
        }
        self.transact(self.journal.clone(), &items).map(drop)
    }

    /// The journal as it is, with the baseline and the announced value of each write.
    fn intent(&self, items: &[Item], steps: &[Option<Step>]) -> Journal {
        let mut intent = self.journal.clone();
        for (item, step) in items.iter().zip(steps) {
            let Some(step) = step.as_ref().filter(|_| item.journalled) else {
                continue;
            };
            let (network, page_size) = (item.network.as_ref(), self.host.page_size_bytes);
            let entry = intent.entry_mut(item.key.name, network, &self.here.boot_id);
            entry.baseline = Some(baseline_for_write(item.key, entry, &item.found, page_size));
            entry.pending = Some(step.target.clone());
        }
        intent
    }

    /// Brings the outcome of one item into the journal that is to be saved.
    fn conclude(
        &self,
        result: &mut Journal,
        intent: &Journal,
        item: &Item,
        outcome: Option<&Outcome>,
        undone: bool,
    ) {
        if !item.journalled {
            return;
        }
        let network = item.network.as_ref();
        let announced = intent.entry(item.key.name, network);
        let entry = result.entry_mut(item.key.name, network, &self.here.boot_id);
        let baseline = announced.and_then(|entry| entry.baseline.clone());
        match outcome {
            Some(Outcome::Written(_)) if entry.wishes.is_empty() => forget(entry),
            Some(Outcome::Written(text)) => {
                entry.baseline = baseline;
                entry.written = Some(text.clone());
                entry.pending = None;
            }
            Some(Outcome::Stuck(_, now)) => {
                entry.baseline = baseline;
                entry.pending = Some(now.clone());
            }
            Some(Outcome::Failed(_) | Outcome::PutBack | Outcome::NotReached) => {}
            None if undone => {}
            None => match item.decision {
                Decision::Forget(_) => forget(entry),
                Decision::Keep if item.failure.is_none() => {
                    if is_ours(item.key, entry, &item.found, self.host.page_size_bytes) {
                        entry.written = Some(item.found.clone());
                    }
                    entry.pending = None;
                }
                Decision::Keep | Decision::Write(_) => {}
            },
        }
    }

    fn save(&mut self, journal: Journal) -> Result<(), TuneError> {
        if journal != self.on_disk {
            self.store.save(&journal).map_err(TuneError::UseJournal)?;
            self.on_disk = journal;
        }
        Ok(())
    }
}

/// Where a call runs.
pub(crate) fn here(node: &str, host: &Host, context: PlanContext) -> Here {
    Here {
        node: node.to_owned(),
        boot_id: host.boot_id.clone(),
        inode: (context == PlanContext::Host).then_some(host.network_namespace),
    }
}

fn forget(entry: &mut Entry) {
    entry.baseline = None;
    entry.written = None;
    entry.pending = None;
}
