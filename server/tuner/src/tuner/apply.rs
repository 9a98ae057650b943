//! One plan: what would be done, and doing it.

use tunedweb_tuning::{
    ApplyReport, CheckedPlan, KUBERNETES_MINOR_MIN, KeyReport, KeyState, Outcome, PlanContext,
    classify,
};

use super::draft::{Wishes, draft};
use super::item::{Item, shown};
use super::session::{Session, here};
use super::{Applied, Preview, PreviewStep, TuneError, Tuner};
use crate::facts::{hard_nofile, limit_not_permitted};
use crate::journal::{Here, Journal, load};
use crate::settle::Decision;
use crate::tree::KernelTree;
use crate::write;

/// Says what [`apply`] would do.
pub(super) fn preview<T: KernelTree>(
    tuner: &Tuner<T>,
    plan: &CheckedPlan,
) -> Result<Vec<Preview>, TuneError> {
    let host = tuner.tree.host().map_err(TuneError::ReadHost)?;
    let here = here(&tuner.node, &host, plan.context);
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
    let mut session = tuner.session(plan.context)?;
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
    let of_plan = |holds: &dyn Fn(KeyState) -> bool| -> Vec<KeyReport> {
        let planned = items.iter().zip(keys).filter(|(item, _)| item.strict);
        planned
            .map(|(_, key)| key.clone())
            .filter(|key| holds(key.state))
            .collect()
    };
    let mut failures = of_plan(&is_failure);
    if failures.is_empty() {
        // A plan that is refused as a whole has no key that failed, but each says why.
        failures = of_plan(&|state| state == KeyState::Skipped);
    }
    let hard_nofile = hard_nofile(session.tree, &session.host);
    ApplyReport {
        version: 1,
        plan_hash: plan.hash.clone(),
        generation: plan.owner.generation,
        outcome: if failures.is_empty() {
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
