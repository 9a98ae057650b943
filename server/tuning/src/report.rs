//! What was found and done on a node, in the words that status, files and people read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest termination message. The kubelet keeps the last 4096 bytes of a container's, and 12 KiB
/// of all of a pod, divided by its containers: with this limit up to six of them lose nothing.
pub const TERMINATION_MESSAGE_BYTES_MAX: usize = 2048;

/// The outcome of `tunedweb-tuner apply`, small enough for a termination message (2 KiB).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyReport {
    /// Format of this report: 1.
    pub version: u32,
    /// SHA-256 of the plan file's bytes, the first 16 hexadecimal digits.
    pub plan_hash: String,
    /// Generation of the plan's owner.
    pub generation: i64,
    /// All or nothing: `Failed` means that every key has the value it had before.
    pub outcome: Outcome,
    /// Keys written and read back.
    pub applied: u32,
    /// Keys that had the value already.
    pub unchanged: u32,
    /// Keys with a problem, as many as fit.
    #[serde(default)]
    pub failures: Vec<KeyReport>,
    /// Problems left out because the report would have become too long.
    #[serde(default)]
    pub failures_dropped: u32,
    /// Hard limit of open files seen by this process, which is the server's too.
    pub hard_nofile: u64,
    /// Set when a wish for open files exceeds `hard_nofile`: what is asked, what is permitted, and
    /// what would permit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_not_permitted: Option<String>,
}

impl ApplyReport {
    /// The report as JSON of at most [`TERMINATION_MESSAGE_BYTES_MAX`] bytes. Failures that do not
    /// fit lose the names of their owners, are then dropped from the end and counted; a limit's text
    /// is cut when even that is too long.
    pub fn to_termination_message(&self) -> Result<String, serde_json::Error> {
        let mut report = self.clone();
        report.plan_hash = cut(&report.plan_hash, TEXT_MAX);
        report.limit_not_permitted = report.limit_not_permitted.map(|text| cut(&text, TEXT_MAX));
        report.failures = report
            .failures
            .into_iter()
            .map(KeyReport::bounded)
            .collect();
        loop {
            let text = serde_json::to_string(&report)?;
            if text.len() <= TERMINATION_MESSAGE_BYTES_MAX {
                return Ok(text);
            }
            if report.failures.iter().any(|key| !key.owners.is_empty()) {
                // Who wants a key stands in the node's status as well; why it failed only here.
                report
                    .failures
                    .iter_mut()
                    .for_each(|key| key.owners.clear());
            } else if report.failures.pop().is_some() {
                report.failures_dropped = report.failures_dropped.saturating_add(1);
            } else {
                report.plan_hash.clear();
                report.limit_not_permitted = None;
            }
        }
    }

    /// Reads a termination message.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

impl KeyReport {
    /// The report with every text cut to what the schema permits.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.name = cut(&self.name, NAME_MAX);
        self.wanted = cut(&self.wanted, VALUE_MAX);
        self.found = cut(&self.found, VALUE_MAX);
        self.baseline = cut(&self.baseline, VALUE_MAX);
        self.owners.truncate(OWNERS_MAX);
        self.owners = self
            .owners
            .iter()
            .map(|owner| cut(owner, OWNER_MAX))
            .collect();
        self.reason = cut(&self.reason, TEXT_MAX);
        self
    }
}

/// Most characters of a name, an owner, a value, a text; most owners: the schema of [`KeyReport`].
const NAME_MAX: usize = 128;
const OWNER_MAX: usize = 320;
const VALUE_MAX: usize = 256;
const TEXT_MAX: usize = 512;
const OWNERS_MAX: usize = 64;

fn cut(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    text.chars().take(characters_max - 1).chain(['…']).collect()
}

/// Whether a plan was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Outcome {
    /// Every key has the value asked for, or a higher one where the merge rule keeps it.
    Applied,
    /// At least one key could not be set; nothing was left changed.
    Failed,
}

/// One key on one node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyReport {
    /// Name with dots.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Merged value of all owners.
    #[schemars(length(max = 256))]
    pub wanted: String,
    /// Value read last; empty where it could not be read.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub found: String,
    /// Value before the first write of this boot; empty where nothing was written.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub baseline: String,
    /// What became of the wish.
    pub state: KeyState,
    /// Owners (`namespace/name`) that want this key.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 320)))]
    pub owners: Vec<String>,
    /// Why the state is what it is and what to do, for people; empty where there is nothing to say.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub reason: String,
}

/// What became of the wish for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum KeyState {
    /// Written, and read back with the value wanted.
    Applied,
    /// Had the value wanted (or a higher one, for keys that merge by maximum) before any write.
    Unchanged,
    /// Written, but the kernel stored another value within its own limits.
    Clamped,
    /// The kernel refused the value (`EINVAL`).
    Rejected,
    /// The file cannot be written here (`EACCES`, `EPERM`, `EROFS`).
    ReadOnly,
    /// This kernel has no such key (`ENOENT`), or it is not visible in this namespace.
    Absent,
    /// Owners want different values of a key that cannot be merged.
    Conflict,
    /// The value cannot be right on this node, such as `tcp_mem` beyond its memory.
    NotPermitted,
    /// Not attempted because another key of the same plan failed.
    Skipped,
    /// Put back to its baseline.
    Restored,
    /// Left at its raised value although no owner is left, because lowering it would harm others
    /// (`fs.nr_open`).
    Kept,
    /// Not put back, because the value found is not the one written here.
    ChangedByOthers,
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// Kernel release (`uname -r`).
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub kernel: String,
    /// Size of a memory page.
    #[serde(default)]
    pub page_size_bytes: u64,
    /// Memory of the node (`MemTotal`).
    #[serde(default)]
    pub memory_bytes: u64,
    /// Hard limit of open files that the agent's container got; containers of one runtime get the
    /// same.
    #[serde(default)]
    pub hard_nofile: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failure(reason: String) -> KeyReport {
        KeyReport {
            name: "net.core.somaxconn".to_owned(),
            wanted: "65535".to_owned(),
            found: "4096".to_owned(),
            baseline: String::new(),
            state: KeyState::Rejected,
            owners: vec!["web/site".to_owned()],
            reason,
        }
    }

    fn report(failures: Vec<KeyReport>, limit_not_permitted: Option<String>) -> ApplyReport {
        ApplyReport {
            version: 1,
            plan_hash: "ba7816bf8f01cfea".to_owned(),
            generation: 3,
            outcome: Outcome::Failed,
            applied: 0,
            unchanged: 2,
            failures,
            failures_dropped: 0,
            hard_nofile: 20_000,
            limit_not_permitted,
        }
    }

    #[test]
    fn a_short_report_arrives_whole() {
        let report = report(
            vec![failure("EINVAL".to_owned())],
            Some("20000 at most".to_owned()),
        );
        let message = report.to_termination_message().expect("plain data");
        assert_eq!(ApplyReport::parse(&message).expect("our own words"), report);
    }

    #[test]
    fn failures_that_do_not_fit_are_counted() {
        let all = report(
            (0..64).map(|n| failure(format!("reason {n}"))).collect(),
            None,
        );
        let message = all.to_termination_message().expect("plain data");
        assert!(message.len() <= TERMINATION_MESSAGE_BYTES_MAX);
        let arrived = ApplyReport::parse(&message).expect("our own words");
        assert!(!arrived.failures.is_empty());
        for (arrived, sent) in arrived.failures.iter().zip(&all.failures) {
            assert_eq!(arrived.reason, sent.reason);
        }
        assert_eq!(
            arrived.failures.len() + arrived.failures_dropped as usize,
            64
        );
    }

    #[test]
    fn a_failure_of_a_key_that_many_want_keeps_its_name_and_reason() {
        let mut shared = failure("EINVAL".to_owned());
        shared.owners = vec!["namespace-of-a-team/name-of-a-site".to_owned(); OWNERS_MAX];
        let all = report(vec![shared], None);
        let message = all.to_termination_message().expect("plain data");
        let arrived = ApplyReport::parse(&message).expect("our own words");
        assert_eq!(arrived.failures_dropped, 0);
        assert_eq!(arrived.failures[0].name, "net.core.somaxconn");
        assert_eq!(arrived.failures[0].reason, "EINVAL");
    }

    #[test]
    fn the_words_of_the_report_are_stable() {
        let text = serde_json::to_string(&report(vec![], None)).expect("plain data");
        assert_eq!(
            text,
            r#"{"version":1,"planHash":"ba7816bf8f01cfea","generation":3,"outcome":"Failed","applied":0,"unchanged":2,"failures":[],"failuresDropped":0,"hardNofile":20000}"#
        );
    }

    proptest! {
        #[test]
        fn no_report_is_longer_than_the_message_may_be(
            texts in prop::collection::vec(".{0,900}", 0..20), limit in ".{0,3000}"
        ) {
            let report = report(texts.into_iter().map(failure).collect(), Some(limit));
            let message = report.to_termination_message().expect("plain data");
            prop_assert!(message.len() <= TERMINATION_MESSAGE_BYTES_MAX);
            prop_assert!(ApplyReport::parse(&message).is_ok());
        }
    }
}
