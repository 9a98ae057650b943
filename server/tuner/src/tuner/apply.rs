//! One plan: what would be done, and doing it.

use std::collections::{BTreeMap, BTreeSet};

use tunedweb_tuning::catalogue::{Key, find};
use tunedweb_tuning::{
    ApplyReport, CheckedPlan, CheckedSysctl, KUBERNETES_MINOR_MIN, KeyReport, KeyState, Outcome,
    PlanContext, Value, classify,
};

use super::item::{Item, shown};
use super::session::{Session, here};
use super::{Applied, Preview, PreviewStep, TuneError, Tuner};
use crate::facts::{hard_nofile, limit_not_permitted, nr_open};
use crate::journal::{Half, Here, Journal, load};
use crate::settle::Decision;
use crate::tree::{Host, KernelTree};
use crate::write;

/// Says what [`apply`] would do.
pub(super) fn preview<T: KernelTree>(
    tuner: &Tuner<T>,
    plan: &CheckedPlan,
) -> Result<Vec<Preview>, TuneError> {
    let host = tuner.tree.host().map_err(TuneError::ReadHost)?;
    let here = here(&tuner.node, &host);
    let mut journal = load(&tuner.journal).map_err(TuneError::UseJournal)?;
    journal.refresh(&here);
    let refusal = refusal(&journal, &here, plan);
    let wishes = Wishes::of_plan(&tuner.tree, plan);
    let (_, items) = draft(&tuner.tree, &host, &here, &journal, &wishes);
    let previews = items.iter().map(|item| {
        let preview = preview_of(item, plan.context, host.page_size_bytes);
        match &refusal {
            Some(reason) => Preview {
                step: PreviewStep::Refuse,
                reason: reason.clone(),
                ..preview
            },
            None => preview,
        }
    });
    Ok(previews.collect())
}

/// Carries a plan out.
pub(super) fn apply<T: KernelTree>(
    tuner: &Tuner<T>,
    plan: &CheckedPlan,
) -> Result<Applied, TuneError> {
    let mut session = tuner.session()?;
    let refusal = refusal(&session.journal, &session.here, plan);
    let wishes = Wishes::of_plan(session.tree, plan);
    let (next, items) = draft(
        session.tree,
        &session.host,
        &session.here,
        &session.journal,
        &wishes,
    );
    let keys = match refusal {
        Some(reason) => skipped(&session, &items, &reason),
        None => carry_out(&mut session, next, &items)?,
    };
    Ok(Applied {
        report: summary(&session, plan, &items, &keys),
        keys,
    })
}

/// What an owner wants, sorted by where it is kept.
pub(super) struct Wishes<'a> {
    pub(super) owner: &'a tunedweb_tuning::Owner,
    /// Halves that the caller governs, with the values wished for.
    halves: Vec<(Half, BTreeMap<&'static str, Value>)>,
    /// True where wishes of the same generation that are not among these stay.
    keep_same_generation: bool,
    /// Keys that are set as asked and not remembered.
    private: Vec<(&'static Key, Value)>,
}

impl<'a> Wishes<'a> {
    fn of_plan(tree: &impl KernelTree, plan: &'a CheckedPlan) -> Self {
        let mut wishes = Self::of_host(&plan.owner, plan.tuning.sysctls());
        if plan.context == PlanContext::Pod {
            wishes.keep_same_generation = true;
            for (_, values) in wishes
                .halves
                .extract_if(.., |(half, _)| *half == Half::Network)
            {
                let keys = values
                    .into_iter()
                    .filter_map(|(name, value)| Some((find(name)?, value)));
                wishes.private.extend(keys);
            }
        }
        wishes.raise_nr_open(tree, plan.tuning.nofile());
        wishes
    }

    /// All that an owner wants on this node.
    pub(super) fn of_host(owner: &'a tunedweb_tuning::Owner, sysctls: &[CheckedSysctl]) -> Self {
        let values_of = |half: Half| {
            let of_half = sysctls.iter().filter(|sysctl| Half::of(sysctl.key) == half);
            (
                half,
                of_half
                    .map(|sysctl| (sysctl.key.name, sysctl.value.clone()))
                    .collect(),
            )
        };
        Self {
            owner,
            halves: vec![values_of(Half::Node), values_of(Half::Network)],
            keep_same_generation: false,
            private: Vec::new(),
        }
    }

    /// Makes these the owner's wishes, except in halves that hold a newer generation already.
    pub(super) fn enter(&self, journal: &Journal, here: &Here) -> Entered {
        let mut next = journal.clone();
        let id = here.owner(&self.owner.uid);
        let mut superseded = BTreeMap::new();
        for (half, values) in &self.halves {
            let known = next.owner(&id).and_then(|record| record.generation(*half));
            match known.filter(|known| *known > self.owner.generation) {
                Some(newer) => {
                    superseded.extend(values.keys().map(|name| (*name, newer)));
                }
                None => next.set_wishes(
                    (&id, &self.owner.resource),
                    self.owner.generation,
                    *half,
                    self.keep_same_generation,
                    &values
                        .iter()
                        .map(|(name, value)| (*name, value.to_string()))
                        .collect(),
                    here,
                ),
            }
        }
        next.tidy();
        Entered { next, superseded }
    }

    /// A limit of open files needs `fs.nr_open` to be as high.
    fn raise_nr_open(&mut self, tree: &impl KernelTree, nofile: Option<u64>) {
        let Some(key) = find("fs.nr_open") else {
            return;
        };
        let (Some(asked), Some(there)) = (nofile, nr_open(tree)) else {
            return;
        };
        if asked <= there {
            return;
        }
        let node_half = self.halves.iter_mut().find(|(half, _)| *half == Half::Node);
        if let Some((_, values)) = node_half {
            values
                .entry(key.name)
                .or_insert_with(|| Value::Numbers(vec![asked]));
        }
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.halves.iter().find_map(|(_, values)| values.get(name))
    }
}

/// A journal with an owner's wishes entered.
pub(super) struct Entered {
    pub(super) next: Journal,
    /// Keys left out because a newer generation of the owner, this one, is in force.
    pub(super) superseded: BTreeMap<&'static str, i64>,
}

/// The journal as it would be, and every key that is concerned: the wishes' own, and those that
/// the owner wanted before and no longer does.
pub(super) fn draft(
    tree: &impl KernelTree,
    host: &Host,
    here: &Here,
    journal: &Journal,
    wishes: &Wishes<'_>,
) -> (Journal, Vec<Item>) {
    let Entered { next, superseded } = wishes.enter(journal, here);
    let resource = wishes.owner.resource.as_str();
    let mut items: Vec<Item> = wishes
        .private
        .iter()
        .map(|(key, value)| Item::private(tree, host, key, value, resource))
        .collect();
    for (name, generation) in &superseded {
        if let (Some(key), Some(value)) = (find(name), wishes.value(name)) {
            items.push(Item::superseded(tree, key, value, *generation, resource));
        }
    }
    let id = here.owner(&wishes.owner.uid).text();
    let dropped = dropped_keys(journal, &next);
    // An entry that the owner leaves without any wish is gone from `next` when nothing was ever
    // written for it; one that was written stays, and is put back.
    for entry in next.entries.iter().filter(|entry| entry.is_visible(here)) {
        let is_planned = !superseded.contains_key(entry.key.as_str())
            && wishes.value(&entry.key).is_some()
            && entry.merges(&id);
        if is_planned {
            items.extend(Item::planned(tree, host, entry, &id));
        } else if dropped.contains(entry.key.as_str()) {
            items.extend(Item::journalled(tree, host, entry));
        }
    }
    (next, items)
}

fn dropped_keys<'a>(former: &'a Journal, next: &Journal) -> BTreeSet<&'a str> {
    let lost = former.entries.iter().filter(|entry| {
        let now = next.entry(&entry.key, entry.network.as_ref());
        now.is_none_or(|now| now.wishes.len() < entry.wishes.len())
    });
    lost.map(|entry| entry.key.as_str()).collect()
}

/// Carries a draft out, unless one of its keys cannot be set.
pub(super) fn carry_out<T: KernelTree>(
    session: &mut Session<'_, T>,
    next: Journal,
    items: &[Item],
) -> Result<Vec<KeyReport>, TuneError> {
    if items
        .iter()
        .any(|item| item.strict && item.failure.is_some())
    {
        return Ok(skipped(session, items, "another key of the plan failed"));
    }
    let outcomes = session.transact(next, items)?;
    let page_size = session.host.page_size_bytes;
    Ok(items
        .iter()
        .zip(&outcomes)
        .map(|(item, outcome)| item.report(outcome.as_ref(), session.entry_of(item), page_size))
        .collect())
}

/// Why an owner's plan is not carried out at all: it was released and comes too late.
pub(super) fn refusal(journal: &Journal, here: &Here, plan: &CheckedPlan) -> Option<String> {
    let released = journal.released_at(&here.owner(&plan.owner.uid))?;
    let is_late = match plan.context {
        PlanContext::Pod => plan.owner.generation <= released,
        PlanContext::Host => plan.owner.generation < released,
    };
    is_late.then(|| {
        format!(
            "{} was released from this node at generation {released}; only a newer one is taken",
            plan.owner.resource
        )
    })
}

/// True for the states of a key that fail a plan.
pub(super) fn is_failure(state: KeyState) -> bool {
    matches!(
        state,
        KeyState::Clamped
            | KeyState::Rejected
            | KeyState::ReadOnly
            | KeyState::Absent
            | KeyState::Conflict
            | KeyState::NotPermitted
    )
}

/// Reports of a plan of which nothing was tried.
fn skipped<T: KernelTree>(
    session: &Session<'_, T>,
    items: &[Item],
    reason: &str,
) -> Vec<KeyReport> {
    let page_size = session.host.page_size_bytes;
    let reports = items.iter().map(|item| {
        let report = item.report(None, session.entry_of(item), page_size);
        if item.failure.is_some() {
            return report;
        }
        KeyReport {
            state: KeyState::Skipped,
            reason: reason.to_owned(),
            ..report
        }
    });
    reports.collect()
}

fn summary<T: KernelTree>(
    session: &Session<'_, T>,
    plan: &CheckedPlan,
    items: &[Item],
    keys: &[KeyReport],
) -> ApplyReport {
    let count = |state: KeyState| {
        let planned = items
            .iter()
            .zip(keys)
            .filter(|(item, _)| item.strict || !item.journalled);
        u32::try_from(planned.filter(|(_, key)| key.state == state).count()).unwrap_or(u32::MAX)
    };
    let planned = items.iter().zip(keys).filter(|(item, _)| item.strict);
    let failures: Vec<KeyReport> = planned
        .filter(|(_, key)| is_failure(key.state))
        .map(|(_, key)| key.clone())
        .collect();
    let skipped = count(KeyState::Skipped) > 0;
    let hard_nofile = hard_nofile(session.tree, &session.host);
    ApplyReport {
        version: 1,
        plan_hash: plan.hash.clone(),
        generation: plan.owner.generation,
        outcome: if failures.is_empty() && !skipped {
            Outcome::Applied
        } else {
            Outcome::Failed
        },
        applied: count(KeyState::Applied),
        unchanged: count(KeyState::Unchanged),
        failures,
        failures_dropped: 0,
        hard_nofile,
        limit_not_permitted: limit_not_permitted(plan.tuning.nofile(), hard_nofile),
    }
}

fn preview_of(item: &Item, context: PlanContext, page_size_bytes: u64) -> Preview {
    let current = shown(item.key, &item.found, page_size_bytes);
    let (step, would_be, reason) = match (&item.failure, &item.decision) {
        (Some(write::Failure { state, reason }), _) => (
            PreviewStep::Refuse,
            item.wanted.clone(),
            format!("{state:?}: {reason}"),
        ),
        (None, Decision::Write(target)) => {
            let target = shown(item.key, target, page_size_bytes);
            (PreviewStep::Write, target, write_reason(item))
        }
        (None, Decision::Keep | Decision::Forget(_)) => (
            PreviewStep::Keep,
            current.clone(),
            keep_reason(item, &current),
        ),
    };
    let class = classify(item.key, KUBERNETES_MINOR_MIN, context == PlanContext::Host);
    Preview {
        name: item.key.name.to_owned(),
        class,
        current,
        would_be,
        step,
        reason,
    }
}

fn write_reason(item: &Item) -> String {
    match (item.wanted.is_empty(), item.drifted) {
        (true, _) => "no longer wanted: put back".to_owned(),
        (false, true) => "others changed it".to_owned(),
        (false, false) => String::new(),
    }
}

fn keep_reason(item: &Item, current: &str) -> String {
    if !item.note.is_empty() || item.wanted.is_empty() || item.wanted == current {
        return item.note.clone();
    }
    format!("what is there covers {}", item.wanted)
}
