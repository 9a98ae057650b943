//! Decides what is to be done with one key, from what the journal says and what was found.

use tunedweb_tuning::catalogue::{Key, MergeRule, ReleaseRule};
use tunedweb_tuning::{Conflict, KeyState, Merged, Value, merge};

use crate::journal::Entry;

/// What is to be done with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// What is there is right.
    Keep,
    /// This text is to be written.
    Write(String),
    /// Nobody wants the key any more and nothing is to be written.
    Forget(KeyState),
}

/// A decision and what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// What is to be done.
    pub(crate) decision: Decision,
    /// The merged wish in the user's unit; none: nobody wants the key.
    pub(crate) wanted: Option<Value>,
    /// Wishes that cannot be met beside it.
    pub(crate) conflicts: Vec<Conflict>,
    /// The value was written here before and others changed it since.
    pub(crate) drifted: bool,
}

/// Decides for one key. `found` is the kernel's text.
pub(crate) fn settle(key: &Key, entry: &Entry, found: &str, page_size_bytes: u64) -> Settled {
    let same = |text: &str| is_same(key, text, found, page_size_bytes);
    let ours = is_ours(key, entry, found, page_size_bytes);
    let drifted = entry.written.is_some() && !ours;
    let Some(Merged { value, conflicts }) = merge(key, &entry.merge_input(key)) else {
        let decision = match &entry.baseline {
            None => Decision::Forget(KeyState::Unchanged),
            Some(baseline) if same(baseline) => Decision::Forget(KeyState::Restored),
            Some(_) if key.release == ReleaseRule::KeepRaised => Decision::Forget(KeyState::Kept),
            Some(baseline) if ours => Decision::Write(baseline.clone()),
            Some(_) => Decision::Forget(KeyState::ChangedByOthers),
        };
        return Settled {
            decision,
            wanted: None,
            conflicts: Vec::new(),
            drifted,
        };
    };
    // What would be there without us: other software may have set a higher floor, which is kept.
    let without_us = match (&entry.baseline, key.release) {
        (Some(baseline), ReleaseRule::Restore) if ours => baseline,
        _ => found,
    };
    let target = match key.from_kernel(without_us, page_size_bytes) {
        Some(without_us) => key.combine(&without_us, &value),
        None => value.clone(),
    };
    let target = key.to_kernel(&target, page_size_bytes);
    let decision = if same(&target) {
        Decision::Keep
    } else {
        Decision::Write(target)
    };
    Settled {
        decision,
        wanted: Some(value),
        conflicts,
        drifted,
    }
}

/// True where the value found is one that was written here.
pub(crate) fn is_ours(key: &Key, entry: &Entry, found: &str, page_size_bytes: u64) -> bool {
    let mut texts = entry.written.iter().chain(&entry.pending);
    texts.any(|text| is_same(key, text, found, page_size_bytes))
}

/// The baseline to remember when a key is written: the one already known, else what was found.
/// What others added to a set since, or set beyond our value, is theirs and is what is put back.
pub(crate) fn baseline_for_write(
    key: &Key,
    entry: &Entry,
    found: &str,
    page_size_bytes: u64,
) -> String {
    let Some(baseline) = &entry.baseline else {
        return found.to_owned();
    };
    if is_ours(key, entry, found, page_size_bytes) {
        return baseline.clone();
    }
    let read = |text: &str| key.from_kernel(text, page_size_bytes);
    let written = entry.written.as_deref().and_then(read);
    match (read(baseline), read(found), written) {
        (Some(Value::Ports(baseline)), Some(Value::Ports(found)), Some(Value::Ports(written))) => {
            baseline.union(&found.difference(&written)).to_string()
        }
        (_, Some(theirs), Some(written))
            if key.merge != MergeRule::EqualOrConflict
                && key.combine(&theirs, &written) == theirs =>
        {
            found.to_owned()
        }
        _ => baseline.clone(),
    }
}

/// Compares two texts of the kernel by their meaning: separators do not count.
pub(crate) fn is_same(key: &Key, a: &str, b: &str, page_size_bytes: u64) -> bool {
    match (
        key.from_kernel(a, page_size_bytes),
        key.from_kernel(b, page_size_bytes),
    ) {
        (Some(a), Some(b)) => a == b,
        _ => a.split_ascii_whitespace().eq(b.split_ascii_whitespace()),
    }
}
