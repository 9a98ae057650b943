//! Writes keys one by one, reads each back, and puts back what was written when one fails.

use std::io;

use rustix::io::Errno;
use tunedweb_tuning::KeyState;
use tunedweb_tuning::catalogue::{Key, Scope, Shape};

use crate::settle::is_same;
use crate::tree::KernelTree;

/// One key to be written.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Which.
    pub(crate) key: &'static Key,
    /// The text that is there.
    pub(crate) found: String,
    /// The text to be written.
    pub(crate) target: String,
    /// True where a failure undoes all steps; false where it leaves only this key as it is.
    pub(crate) strict: bool,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Written, and read back as this text.
    Written(String),
    /// Not written, or written and put back.
    Failed(Failure),
    /// Written well, and put back because another failed.
    PutBack,
    /// Written and impossible to put back: this text is there now.
    Stuck(Failure, String),
    /// Not tried because another failed before.
    NotReached,
}

/// Why a key does not have the value wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The kind.
    pub(crate) state: KeyState,
    /// In words.
    pub(crate) reason: String,
}

impl Failure {
    pub(crate) fn new(state: KeyState, reason: impl Into<String>) -> Self {
        Self {
            state,
            reason: reason.into(),
        }
    }

    /// A key that could not be read.
    pub(crate) fn of_read(key: &Key, error: &io::Error) -> Self {
        if error.kind() != io::ErrorKind::NotFound {
            return Self::new(KeyState::ReadOnly, format!("cannot be read: {error}"));
        }
        let reason = match key.scope {
            Scope::HostNetwork => {
                "not there in this network namespace: only the host's has it, or this kernel lacks it"
            }
            _ => "this kernel lacks it, or its module is not loaded",
        };
        Self::new(KeyState::Absent, reason)
    }

    /// A key that could not be opened for writing or written.
    pub(crate) fn of_write(key: &Key, value: &str, error: &io::Error) -> Self {
        let denied = matches!(
            error.kind(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
        );
        // A name that is not allowed in this namespace is EPERM, one that is not there ENOENT.
        let is_unknown_word = matches!(key.shape, Shape::Word { .. })
            && matches!(
                Errno::from_io_error(error),
                Some(Errno::PERM | Errno::NOENT)
            );
        match denied {
            _ if is_unknown_word => Self::new(
                KeyState::Rejected,
                format!(
                    "the kernel does not take {value} here ({error}): its module is not loaded, \
                     or the host does not allow it in pods"
                ),
            ),
            true => Self::new(
                KeyState::ReadOnly,
                format!(
                    "cannot be written here ({error}): mount /proc/sys read-write{}",
                    if key.scope == Scope::HostNetwork {
                        ", in the host's network namespace"
                    } else {
                        ""
                    }
                ),
            ),
            _ => Self::new(
                KeyState::Rejected,
                format!("the kernel refused {value}: {error}"),
            ),
        }
    }
}

/// Carries steps out: the strict ones first, then, if they all went well, the others.
pub(crate) fn carry_out(
    tree: &impl KernelTree,
    steps: &[Step],
    page_size_bytes: u64,
) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::NotReached; steps.len()];
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by_key(|&index| (!steps[index].strict, rank(&steps[index])));
    for (done, &index) in order.iter().enumerate() {
        let step = &steps[index];
        outcomes[index] = write_one(tree, step, page_size_bytes);
        if step.strict && !matches!(outcomes[index], Outcome::Written(_)) {
            for &earlier in order[..done].iter().rev() {
                outcomes[earlier] = put_back(tree, &steps[earlier], page_size_bytes)
                    .map_or(Outcome::PutBack, |(failure, now)| {
                        Outcome::Stuck(failure, now)
                    });
            }
            break;
        }
    }
    outcomes
}

/// Puts back what strict steps have written, the last first. What cannot be put back is left: the
/// journal knows of it.
pub(crate) fn undo(
    tree: &impl KernelTree,
    steps: &[Step],
    outcomes: &[Outcome],
    page_size_bytes: u64,
) {
    let written = steps
        .iter()
        .zip(outcomes)
        .filter(|(step, outcome)| step.strict && matches!(outcome, Outcome::Written(_)));
    let mut written: Vec<&Step> = written.map(|(step, _)| step).collect();
    written.sort_by_key(|step| rank(step));
    for step in written.into_iter().rev() {
        put_back(tree, step, page_size_bytes);
    }
}

/// The order of writing. The kernel refuses a port range that begins below the first unprivileged
/// port, so that port is lowered before, and raised after, the range is written. What the kernel may
/// refuse although its form is right goes before what it takes for certain, so that a plan that is
/// refused again and again moves no value.
fn rank(step: &Step) -> u8 {
    let number = |text: &str| text.trim().parse::<u64>().unwrap_or_default();
    match (step.key.name, step.key.shape) {
        ("net.ipv4.ip_unprivileged_port_start", _) => {
            if number(&step.target) < number(&step.found) {
                0
            } else {
                2
            }
        }
        ("net.ipv4.ip_local_port_range", _) | (_, Shape::Word { .. }) => 1,
        _ => 3,
    }
}

fn write_one(tree: &impl KernelTree, step: &Step, page_size_bytes: u64) -> Outcome {
    let key = step.key;
    let failure = match tree.write(key, &step.target).map(|()| tree.read(key)) {
        Ok(Ok(text)) if is_same(key, &text, &step.target, page_size_bytes) => {
            return Outcome::Written(text);
        }
        Ok(Ok(text)) => Failure::new(
            KeyState::Clamped,
            format!(
                "the kernel stored {text:?} where {:?} was written",
                step.target
            ),
        ),
        Ok(Err(error)) => Failure::of_read(key, &error),
        Err(error) => Failure::of_write(key, &step.target, &error),
    };
    match put_back(tree, step, page_size_bytes) {
        None => Outcome::Failed(failure),
        Some((_, now)) => Outcome::Stuck(failure, now),
    }
}

/// Writes what was found before, where it is not there. What stays instead, with the reason, where
/// that fails.
fn put_back(
    tree: &impl KernelTree,
    step: &Step,
    page_size_bytes: u64,
) -> Option<(Failure, String)> {
    let key = step.key;
    let is_back = |text: &str| is_same(key, text, &step.found, page_size_bytes);
    if tree.read(key).is_ok_and(|text| is_back(&text)) {
        return None;
    }
    let written = tree.write(key, &step.found);
    match (written, tree.read(key)) {
        (_, Ok(text)) if is_back(&text) => None,
        (Err(error), now) => Some((
            Failure::of_write(key, &step.found, &error),
            now.unwrap_or_else(|_| step.target.clone()),
        )),
        (Ok(()), now) => {
            let now = now.unwrap_or_else(|_| step.target.clone());
            let reason = format!(
                "was not put back to {:?}: the kernel has {now:?}",
                step.found
            );
            Some((Failure::new(KeyState::Clamped, reason), now))
        }
    }
}
