//! The plan file: what `tunedweb-tuner --plan FILE` reads and the operator renders (JSON).

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::check::check_below;
use crate::{CheckedTuning, Problem, SysctlSetting, UlimitSetting};

/// Format of the plan file that this version reads and writes.
pub const PLAN_VERSION: u32 = 1;

/// Largest plan file: 64 keys with values of 256 characters and their names fit several times.
pub const PLAN_BYTES_MAX: usize = 128 * 1024;

/// Most characters of an owner's uid and resource: a namespace, a slash and a name are 317.
const OWNER_TEXT_MAX: usize = 320;

/// What one owner wants on the node that the tuner runs on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Format of this file: 1.
    pub version: u32,
    /// Who wants it.
    pub owner: Owner,
    /// Where the tuner runs, which decides what it may write and what it must remember.
    pub context: PlanContext,
    /// Keys and values wished for.
    #[serde(default)]
    pub sysctls: Vec<SysctlSetting>,
    /// Process limits that the server is going to ask for; compared with the hard limit here.
    #[serde(default)]
    pub ulimits: Vec<UlimitSetting>,
}

/// Who wants a value. Together with the node's name it is the key of a wish in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Owner {
    /// UID of the resource; any stable word for plans written by hand.
    pub uid: String,
    /// `namespace/name` of the resource, for people.
    pub resource: String,
    /// Generation of the resource at which its tuning last changed. An older generation never
    /// replaces a newer one.
    pub generation: i64,
}

/// Where the tuner runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum PlanContext {
    /// In a pod with a network namespace of its own: `net.*` keys end with the pod and are not
    /// journalled; node-wide keys are.
    Pod,
    /// In the node's network namespace: every key is journalled.
    Host,
}

/// A plan that passed every check that needs no node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedPlan {
    /// Who wants it.
    pub owner: Owner,
    /// Where the tuner runs.
    pub context: PlanContext,
    /// Keys and limits.
    pub tuning: CheckedTuning,
    /// [`Plan::hash`] of the file.
    pub hash: String,
}

/// What is wrong with a plan file.
#[derive(Debug, thiserror::Error)]
pub enum ParsePlanError {
    /// Not JSON, or not of the plan's form.
    #[error("read the plan file")]
    Json(#[source] serde_json::Error),
    /// Longer than any plan.
    #[error("the plan file has more than the {PLAN_BYTES_MAX} bytes that are permitted")]
    TooLong,
    /// Of the right form, with values that are refused: all of them.
    #[error("the plan asks for what is not permitted:{}", Lines(.0))]
    Refused(Vec<Problem>),
}

impl Plan {
    /// Reads and checks a plan file.
    pub fn parse(bytes: &[u8]) -> Result<CheckedPlan, ParsePlanError> {
        if bytes.len() > PLAN_BYTES_MAX {
            return Err(ParsePlanError::TooLong);
        }
        let plan: Self = serde_json::from_slice(bytes).map_err(ParsePlanError::Json)?;
        let mut problems = plan.head_problems();
        match check_below("", &plan.sysctls, &plan.ulimits) {
            Ok(tuning) if problems.is_empty() => Ok(CheckedPlan {
                owner: plan.owner,
                context: plan.context,
                tuning,
                hash: Self::hash(bytes),
            }),
            Ok(_) => Err(ParsePlanError::Refused(problems)),
            Err(more) => {
                problems.extend(more);
                Err(ParsePlanError::Refused(problems))
            }
        }
    }

    /// The file: the same bytes for the same plan.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// SHA-256 of the file's bytes, the first 16 hexadecimal digits, as reports carry it.
    pub fn hash(bytes: &[u8]) -> String {
        let digest = Sha256::digest(bytes);
        digest
            .iter()
            .take(8)
            .fold(String::with_capacity(16), |mut text, byte| {
                // Writing to a String does not fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
    }

    fn head_problems(&self) -> Vec<Problem> {
        let problem = |field: &str, value: String, permitted: String, reason: &str| Problem {
            field: field.to_owned(),
            value,
            permitted,
            reason: reason.to_owned(),
            instead: String::new(),
        };
        let mut problems = Vec::new();
        if self.version != PLAN_VERSION {
            problems.push(problem(
                "version",
                self.version.to_string(),
                PLAN_VERSION.to_string(),
                "another version of this program wrote the plan",
            ));
        }
        let owner = &self.owner;
        for (field, text) in [
            ("owner.uid", &owner.uid),
            ("owner.resource", &owner.resource),
        ] {
            let length = text.chars().count();
            if !(1..=OWNER_TEXT_MAX).contains(&length) || text.chars().any(char::is_control) {
                problems.push(problem(
                    field,
                    format!("{length} characters"),
                    format!("1 to {OWNER_TEXT_MAX} printable characters"),
                    "wishes are kept by it",
                ));
            }
        }
        if owner.generation < 0 {
            problems.push(problem(
                "owner.generation",
                owner.generation.to_string(),
                "0 and more".to_owned(),
                "generations count up from zero",
            ));
        }
        problems
    }
}

/// One problem a line, each indented.
struct Lines<'a>(&'a [Problem]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"version": 1, "context": "Pod",
        "owner": {"uid": "u", "resource": "web/site", "generation": 3},
        "sysctls": [{"name": "net.core.somaxconn", "value": "65535"}],
        "ulimits": [{"name": "nofile", "soft": 16384}]}"#;

    #[test]
    fn a_good_plan_is_read_with_the_hash_of_its_bytes() {
        let plan = Plan::parse(GOOD.as_bytes()).expect("a good plan");
        assert_eq!(plan.owner.generation, 3);
        assert_eq!(plan.context, PlanContext::Pod);
        assert_eq!(plan.tuning.sysctls().len(), 1);
        assert_eq!(plan.tuning.nofile(), Some(16_384));
        assert_eq!(plan.hash, Plan::hash(GOOD.as_bytes()));
    }

    #[test]
    fn the_hash_is_the_head_of_sha_256() {
        // FIPS 180-4, example of the one-block message "abc".
        assert_eq!(Plan::hash(b"abc"), "ba7816bf8f01cfea");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let plan: Plan = serde_json::from_str(GOOD).expect("a plan");
        let text = plan.to_json().expect("plain data");
        assert_eq!(
            serde_json::from_str::<Plan>(&text).expect("the same form"),
            plan
        );
    }

    #[test]
    fn all_problems_of_a_plan_are_told_together() {
        let bad = r#"{"version": 2, "context": "Host",
            "owner": {"uid": "", "resource": "web/site", "generation": -1},
            "sysctls": [{"name": "vm.max_map_count", "value": "1"},
                        {"name": "kernel.pid_max", "value": "1"}]}"#;
        let error = Plan::parse(bad.as_bytes()).expect_err("five problems");
        let text = error.to_string();
        for field in [
            "version is",
            "owner.uid is",
            "owner.generation is",
            "sysctls[vm.max_map_count].value is",
            "sysctls[kernel.pid_max] is",
        ] {
            assert!(text.contains(field), "{field} in {text}");
        }
    }

    #[test]
    fn an_unknown_field_and_an_oversized_file_are_refused() {
        let misspelt = GOOD.replace("ulimits", "ulimit");
        let error = Plan::parse(misspelt.as_bytes()).expect_err("a misspelt field");
        assert!(matches!(error, ParsePlanError::Json(_)));
        let error = Plan::parse(&vec![b' '; PLAN_BYTES_MAX + 1]).expect_err("too long");
        assert!(matches!(error, ParsePlanError::TooLong));
    }
}
