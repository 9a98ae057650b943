//! All owners of a node at once, and the release of one.

use std::collections::BTreeMap;

use tunedweb_tuning::{
    CheckedTuning, KeyReport, KeyState, Owner, PlanContext, Problem, SysctlSetting, check_sysctls,
};

use super::apply::{carry_out, is_failure};
use super::draft::{Wishes, draft};
use super::session::Session;
use super::{TuneError, Tuner};
use crate::journal::Entry;
use crate::settle::Decision;
use crate::tree::KernelTree;

/// What one owner wants on this node, as [`Tuner::sync`] takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerWishes {
    /// Who.
    pub owner: Owner,
    /// Whether they stand.
    pub standing: Standing,
    /// Every key of class C and D that it wants.
    pub sysctls: Vec<SysctlSetting>,
}

/// Whether an owner's wishes stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They stand.
    Active,
    /// A call from the owner's pod comes first. Nothing is changed, but a former release no longer
    /// keeps that call out.
    Pending,
    /// The owner is gone: they are withdrawn, and what was written for it is put back.
    Released,
}

/// What [`Tuner::sync`] found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncReport {
    /// Boot that the values belong to.
    pub boot_id: String,
    /// Each key that an owner wants on this node, and each that could not be put back; once, by
    /// name.
    pub keys: Vec<KeyReport>,
    /// Each owner that was given, in the same order.
    pub owners: Vec<OwnerReport>,
    /// Keys of owners released in this call, and what became of them.
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
    /// The owner's pod has not called yet, or its call stands as it is.
    Pending,
    /// All of them hold.
    Applied,
    /// One could not be met; the owner's former wishes hold.
    Failed,
    /// The journal holds a newer generation, which stays.
    Superseded,
    /// The owner is gone and nothing of it is left.
    Released,
    /// The owner is gone, and a value could not be put back; the next call tries again.
    RestoreFailed,
}

/// Withdraws an owner's wishes.
pub(super) fn release<T: KernelTree>(
    tuner: &Tuner<T>,
    owner: &Owner,
    context: PlanContext,
) -> Result<Vec<KeyReport>, TuneError> {
    release_in(&mut tuner.session(context)?, owner)
}

/// Brings the node to what its owners want.
pub(super) fn sync<T: KernelTree>(
    tuner: &Tuner<T>,
    owners: &[OwnerWishes],
) -> Result<SyncReport, TuneError> {
    let mut session = tuner.session(PlanContext::Host)?;
    let mut report = SyncReport {
        boot_id: session.host.boot_id.clone(),
        ..SyncReport::default()
    };
    for wishes in owners {
        match wishes.standing {
            Standing::Active => {}
            Standing::Pending => let_in(&mut session, &wishes.owner)?,
            Standing::Released => report
                .released
                .extend(release_in(&mut session, &wishes.owner)?),
        }
    }
    let mut results: BTreeMap<usize, OwnerReport> = BTreeMap::new();
    for index in active_in_order(&session, owners) {
        results.insert(index, admit(&mut session, &owners[index])?);
    }
    report.keys = settle_all(&mut session, &mut report.rewritten)?;
    report.owners = owners
        .iter()
        .enumerate()
        .map(|(index, wishes)| match results.remove(&index) {
            Some(result) => with_standing(result, wishes, &report.keys),
            None if wishes.standing == Standing::Pending => {
                owner_report(&wishes.owner, OwnerOutcome::Pending, Vec::new())
            }
            None => released_report(wishes, &report.keys),
        })
        .collect();
    overlay_failures(&mut report);
    Ok(report)
}

/// Takes the mark of a former release away, by wishes of the owner that are none.
fn let_in<T: KernelTree>(session: &mut Session<'_, T>, owner: &Owner) -> Result<(), TuneError> {
    let id = session.here.owner(&owner.uid);
    let released = session.journal.released_at(&id);
    if released.is_some_and(|released| owner.generation >= released) {
        admit_checked(session, owner, &CheckedTuning::default())?;
    }
    Ok(())
}

fn release_in<T: KernelTree>(
    session: &mut Session<'_, T>,
    owner: &Owner,
) -> Result<Vec<KeyReport>, TuneError> {
    let id = session.here.owner(&owner.uid);
    let mut next = session.journal.clone();
    next.release(&id, owner.generation);
    if next == session.journal {
        return Ok(Vec::new());
    }
    let was_wanted = |entry: &Entry| {
        let former = session.journal.entry(&entry.key, entry.network.as_ref());
        former.is_some_and(|former| former.merges(&id.text()))
    };
    let items = session.survey(&next, was_wanted);
    carry_out(session, next, &items)
}

/// Owners known to the journal come first, in the order of their first wish: the earlier value of
/// a key that cannot be merged stays. New ones follow by uid, so that the order in which they are
/// given does not matter.
fn active_in_order<T: KernelTree>(session: &Session<'_, T>, owners: &[OwnerWishes]) -> Vec<usize> {
    let first_wish = |uid: &str| {
        let id = session.here.owner(uid);
        let wishes = session
            .journal
            .entries
            .iter()
            .flat_map(|entry| &entry.wishes);
        wishes
            .filter(|wish| wish.owner == id)
            .map(|wish| wish.since)
            .min()
            .unwrap_or(u64::MAX)
    };
    let mut order: Vec<usize> = (0..owners.len())
        .filter(|&i| owners[i].standing == Standing::Active)
        .collect();
    order.sort_by_key(|&index| {
        let uid = owners[index].owner.uid.as_str();
        (first_wish(uid), uid)
    });
    order
}

/// Makes an owner's wishes count, whole or not at all.
fn admit<T: KernelTree>(
    session: &mut Session<'_, T>,
    wishes: &OwnerWishes,
) -> Result<OwnerReport, TuneError> {
    let owner = &wishes.owner;
    let checked = match check_sysctls(&wishes.sysctls, &[]) {
        Ok(checked) => checked,
        Err(problems) => return Ok(refused(wishes, &problems)),
    };
    let id = session.here.owner(&owner.uid);
    if session
        .journal
        .released_at(&id)
        .is_some_and(|released| owner.generation < released)
    {
        return Ok(owner_report(owner, OwnerOutcome::Superseded, Vec::new()));
    }
    admit_checked(session, owner, &checked)
}

fn admit_checked<T: KernelTree>(
    session: &mut Session<'_, T>,
    owner: &Owner,
    checked: &CheckedTuning,
) -> Result<OwnerReport, TuneError> {
    let wishes = Wishes::of_host(owner, checked.sysctls());
    let entered = wishes.enter(&session.journal, &session.here);
    let holds_already = entered.next.same_wishes(&session.journal);
    let is_superseded = !entered.superseded.is_empty();
    let failures = if holds_already {
        Vec::new()
    } else {
        let (next, items) = draft(
            session.tree,
            &session.host,
            &session.here,
            &session.journal,
            &wishes,
        );
        let keys = carry_out(session, next, &items)?;
        let planned = items.iter().zip(keys).filter(|(item, _)| item.strict);
        planned
            .map(|(_, key)| key)
            .filter(|key| is_unmet(key.state))
            .collect()
    };
    let outcome = match (failures.is_empty(), is_superseded) {
        (false, _) => OwnerOutcome::Failed,
        (true, true) => OwnerOutcome::Superseded,
        (true, false) => OwnerOutcome::Applied,
    };
    Ok(owner_report(owner, outcome, failures))
}

/// Looks at every key of this node, writes again what others changed, and retries what could not
/// be put back.
fn settle_all<T: KernelTree>(
    session: &mut Session<'_, T>,
    rewritten: &mut Vec<String>,
) -> Result<Vec<KeyReport>, TuneError> {
    let next = session.journal.clone();
    let here = session.here.clone();
    let items = session.survey(&next, |entry| {
        entry.concerns(&here) || entry.wishes.is_empty()
    });
    let outcomes = session.transact(next, &items)?;
    let page_size = session.host.page_size_bytes;
    let mut keys = Vec::with_capacity(items.len());
    for (item, outcome) in items.iter().zip(&outcomes) {
        let entry = session.entry_of(item);
        let mut key = item.report(outcome.as_ref(), entry, page_size);
        if key.state == KeyState::Applied && item.drifted {
            key.reason = format!("others had set it to {}", item.found.trim());
            rewritten.push(key.name.clone());
        }
        let written_before = entry.is_some_and(|entry| entry.written.is_some());
        if key.state == KeyState::Unchanged && written_before && !item.drifted {
            key.state = KeyState::Applied;
        }
        if !matches!(item.decision, Decision::Forget(_)) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// An owner whose wishes count can still have a key that does not hold now.
fn with_standing(mut result: OwnerReport, wishes: &OwnerWishes, keys: &[KeyReport]) -> OwnerReport {
    if result.outcome == OwnerOutcome::Applied {
        let wanted = |key: &&KeyReport| {
            is_failure(key.state) && wishes.sysctls.iter().any(|sysctl| sysctl.name == key.name)
        };
        result.failures = keys.iter().filter(wanted).cloned().collect();
        if !result.failures.is_empty() {
            result.outcome = OwnerOutcome::Failed;
        }
    }
    result
}

/// Whose value it was is no longer known, so every released owner waits until all is put back.
fn released_report(wishes: &OwnerWishes, keys: &[KeyReport]) -> OwnerReport {
    let left: Vec<KeyReport> = keys
        .iter()
        .filter(|key| key.wanted.is_empty())
        .cloned()
        .collect();
    let outcome = if left.is_empty() {
        OwnerOutcome::Released
    } else {
        OwnerOutcome::RestoreFailed
    };
    owner_report(&wishes.owner, outcome, left)
}

/// Shows the failed wishes among the keys: where the key has a value of other owners, its state and
/// reason are those of the failure.
fn overlay_failures(report: &mut SyncReport) {
    let failed = report
        .owners
        .iter()
        .filter(|owner| owner.outcome == OwnerOutcome::Failed);
    for failure in failed.flat_map(|owner| &owner.failures) {
        match report.keys.iter_mut().find(|key| key.name == failure.name) {
            Some(_) if failure.state == KeyState::Skipped => {}
            Some(key) => {
                key.state = failure.state;
                key.reason.clone_from(&failure.reason);
            }
            None => report.keys.push(failure.clone()),
        }
    }
    report.keys.sort_by(|a, b| a.name.cmp(&b.name));
}

/// True for a key of a plan that does not have the value wanted after a failed call.
fn is_unmet(state: KeyState) -> bool {
    is_failure(state) || state == KeyState::Skipped
}

fn refused(wishes: &OwnerWishes, problems: &[Problem]) -> OwnerReport {
    let failures = problems.iter().map(|problem| {
        let named = wishes
            .sysctls
            .iter()
            .find(|sysctl| problem.field.contains(&format!("[{}]", sysctl.name)));
        KeyReport {
            name: named.map_or_else(|| problem.field.clone(), |sysctl| sysctl.name.clone()),
            wanted: problem.value.clone(),
            found: String::new(),
            baseline: String::new(),
            state: KeyState::Rejected,
            owners: vec![wishes.owner.resource.clone()],
            reason: problem.to_string(),
        }
        .bounded()
    });
    owner_report(&wishes.owner, OwnerOutcome::Failed, failures.collect())
}

fn owner_report(owner: &Owner, outcome: OwnerOutcome, failures: Vec<KeyReport>) -> OwnerReport {
    OwnerReport {
        uid: owner.uid.clone(),
        resource: owner.resource.clone(),
        generation: owner.generation,
        outcome,
        failures,
    }
}
