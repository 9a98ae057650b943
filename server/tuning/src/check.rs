//! Checks of what a user asks for: every problem at once, each with what is permitted.

mod across;
mod problem;
mod value;

use std::collections::HashSet;

pub use problem::Problem;

use crate::catalogue::{Key, Lookup, lookup};
use crate::value::Value;
use crate::{Class, SysctlSetting, UlimitName, UlimitSetting, classify};
use value::{WrongValue, parse_value};

/// Most keys of one owner, as the custom resource permits.
const SYSCTLS_MAX: usize = 64;

/// Permitted open files of a process: fewer than 64 leave a server no room for its own files, and
/// 1048576 is the default of `fs.nr_open`, the most that the kernel grants.
pub(crate) const NOFILE_PERMITTED: std::ops::RangeInclusive<u64> = 64..=1_048_576;

/// Keys and limits that passed every check that needs no node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedTuning {
    sysctls: Vec<CheckedSysctl>,
    nofile: Option<u64>,
}

/// One key with a value of its type and range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedSysctl {
    /// What the catalogue says of the key.
    pub key: &'static Key,
    /// Its value, in the user's unit.
    pub value: Value,
}

impl CheckedTuning {
    /// The keys, in the order in which they were given.
    pub fn sysctls(&self) -> &[CheckedSysctl] {
        &self.sysctls
    }

    /// Open files asked for.
    pub fn nofile(&self) -> Option<u64> {
        self.nofile
    }

    /// The keys that go one of these ways, in canonical form.
    pub fn settings_of(
        &self,
        classes: &[Class],
        kubernetes_minor: u32,
        host_network: bool,
    ) -> Vec<SysctlSetting> {
        self.sysctls
            .iter()
            .filter(|sysctl| {
                classes.contains(&classify(sysctl.key, kubernetes_minor, host_network))
            })
            .map(CheckedSysctl::setting)
            .collect()
    }
}

impl CheckedSysctl {
    /// The setting in canonical form.
    pub fn setting(&self) -> SysctlSetting {
        SysctlSetting {
            name: self.key.name.to_owned(),
            value: self.value.to_string(),
        }
    }
}

/// Checks `spec.tuning.sysctls` and `spec.tuning.ulimits`.
pub fn check_sysctls(
    sysctls: &[SysctlSetting],
    ulimits: &[UlimitSetting],
) -> Result<CheckedTuning, Vec<Problem>> {
    check_below("spec.tuning.", sysctls, ulimits)
}

/// The same for lists that stand elsewhere; `prefix` is where, with its final dot.
pub(crate) fn check_below(
    prefix: &str,
    sysctls: &[SysctlSetting],
    ulimits: &[UlimitSetting],
) -> Result<CheckedTuning, Vec<Problem>> {
    let mut checked = CheckedTuning::default();
    let mut problems = count_problems(prefix, sysctls);
    for setting in sysctls.iter().take(SYSCTLS_MAX) {
        match check_one(prefix, setting) {
            Ok(sysctl) => checked.sysctls.push(sysctl),
            Err(problem) => problems.push(problem),
        }
    }
    // Those behind the first are repetitions, which are told as one problem.
    if let Some(ulimit) = ulimits.first() {
        let UlimitName::Nofile = ulimit.name;
        if NOFILE_PERMITTED.contains(&ulimit.soft) {
            checked.nofile = Some(ulimit.soft);
        } else {
            problems.push(nofile_problem(prefix, ulimit.soft));
        }
    }
    problems.extend(repeated_limit(prefix, ulimits));
    problems.extend(across::problems(prefix, &checked));
    if problems.is_empty() {
        Ok(checked)
    } else {
        Err(problems)
    }
}

fn count_problems(prefix: &str, sysctls: &[SysctlSetting]) -> Vec<Problem> {
    let mut problems = Vec::new();
    if sysctls.len() > SYSCTLS_MAX {
        problems.push(Problem {
            field: format!("{prefix}sysctls"),
            value: format!("{} keys", sysctls.len()),
            permitted: format!("at most {SYSCTLS_MAX}"),
            reason: "too many keys".to_owned(),
            instead: String::new(),
        });
    }
    let mut seen = HashSet::new();
    for setting in sysctls.iter().take(SYSCTLS_MAX) {
        if !seen.insert(setting.name.as_str()) {
            problems.push(Problem {
                field: field(prefix, &setting.name),
                value: shown(&setting.value),
                permitted: "each name once".to_owned(),
                reason: "the key stands twice".to_owned(),
                instead: String::new(),
            });
        }
    }
    problems
}

fn check_one(prefix: &str, setting: &SysctlSetting) -> Result<CheckedSysctl, Problem> {
    let problem = |reason: &str, instead: &str| Problem {
        field: field(prefix, &setting.name),
        value: shown(&setting.value),
        permitted: String::new(),
        reason: reason.to_owned(),
        instead: instead.to_owned(),
    };
    let key = match lookup(&setting.name) {
        Lookup::Known(key) => key,
        Lookup::Refused(refusal) => return Err(problem(refusal.reason, refusal.instead)),
        Lookup::Unknown { nearest } => {
            let reason = "not a key that is known here, and unknown keys are never written";
            return Err(problem(reason, nearest.unwrap_or_default()));
        }
    };
    match parse_value(key, &setting.value) {
        Ok(value) => Ok(CheckedSysctl { key, value }),
        Err(WrongValue { reason, instead }) => Err(Problem {
            field: format!("{prefix}sysctls[{}].value", key.name),
            permitted: key.permitted(),
            ..problem(&reason, instead)
        }),
    }
}

fn nofile_problem(prefix: &str, soft: u64) -> Problem {
    Problem {
        field: format!("{prefix}ulimits[nofile].soft"),
        value: soft.to_string(),
        permitted: format!("{} to {}", NOFILE_PERMITTED.start(), NOFILE_PERMITTED.end()),
        reason: "the kernel grants no more than fs.nr_open, and a server needs some files of its \
                 own"
        .to_owned(),
        instead: String::new(),
    }
}

fn repeated_limit(prefix: &str, ulimits: &[UlimitSetting]) -> Option<Problem> {
    (ulimits.len() > 1).then(|| Problem {
        field: format!("{prefix}ulimits[nofile]"),
        value: format!("{} entries", ulimits.len()),
        permitted: "each name once".to_owned(),
        reason: "the limit stands more than once".to_owned(),
        instead: String::new(),
    })
}

/// Characters of a value that a message shows: enough to know it again.
const SHOWN_MAX: usize = 80;

/// The field of a key. Names come from anyone: what is no plain character is escaped, so that none
/// writes lines or colours of its own into logs.
fn field(prefix: &str, name: &str) -> String {
    format!("{prefix}sysctls[{}]", shown(name).escape_debug())
}

fn shown(text: &str) -> String {
    if text.chars().count() <= SHOWN_MAX {
        return text.to_owned();
    }
    text.chars().take(SHOWN_MAX).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, value: &str) -> SysctlSetting {
        SysctlSetting {
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }

    fn problems(settings: &[(&str, &str)]) -> Vec<Problem> {
        let settings: Vec<_> = settings.iter().map(|(n, v)| setting(n, v)).collect();
        check_sysctls(&settings, &[]).err().unwrap_or_default()
    }

    fn accepted(name: &str, value: &str) -> bool {
        problems(&[(name, value)]).is_empty()
    }

    #[test]
    fn every_problem_is_reported_at_once_with_its_field() {
        let found = problems(&[
            ("net.core.somaxconn", "3240000"),
            ("net.ipv4.tcp_tw_recycle", "1"),
            ("net.ipv4.tcp_syncookies", "0"),
            ("net.core.somaxcon", "4096"),
            ("vm.max_map_count", "262144"),
        ]);
        let fields: Vec<_> = found.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.tuning.sysctls[net.core.somaxconn].value",
                "spec.tuning.sysctls[net.ipv4.tcp_tw_recycle]",
                "spec.tuning.sysctls[net.ipv4.tcp_syncookies].value",
                "spec.tuning.sysctls[net.core.somaxcon]",
            ]
        );
        assert_eq!(found[0].permitted, "128 to 65535");
        assert!(found[0].reason.contains("gigabyte"), "{}", found[0].reason);
        assert!(found[1].reason.contains("4.12"), "{}", found[1].reason);
        assert!(found[2].reason.contains("flood"), "{}", found[2].reason);
        assert!(
            found.iter().all(|problem| !problem.instead.is_empty()),
            "{found:?}"
        );
        assert_eq!(found[3].instead, "net.core.somaxconn");
    }

    #[test]
    fn only_canonical_decimal_in_full_number_is_accepted() {
        for value in [
            "0x1000",
            "010000",
            " 4096",
            "4096 ",
            "4096 4096",
            "-4096",
            "4e3",
            "",
            "4096\n",
        ] {
            assert!(!accepted("net.core.somaxconn", value), "{value:?}");
        }
        for value in [
            "4096",
            "4096 131072",
            "4096\t131072\t16777216",
            "4096  131072 16777216",
        ] {
            assert!(!accepted("net.ipv4.tcp_rmem", value), "{value:?}");
        }
        assert!(accepted("net.ipv4.tcp_rmem", "4096 131072 16777216"));
        assert!(
            !accepted("net.ipv4.tcp_rmem", "16777216 131072 4096"),
            "a falling vector"
        );
    }

    #[test]
    fn pages_given_as_tcp_mem_are_recognised() {
        let found = problems(&[("net.ipv4.tcp_mem", "786432 2097152 3145728")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].reason.contains("in bytes"), "{}", found[0].reason);
        assert!(accepted(
            "net.ipv4.tcp_mem",
            "805306368 1073741824 1610612736"
        ));
    }

    #[test]
    fn a_port_range_below_the_unprivileged_ports_is_refused() {
        let range = ("net.ipv4.ip_local_port_range", "1000 65000");
        assert_eq!(problems(&[range]).len(), 1);
        assert_eq!(
            problems(&[range, ("net.ipv4.ip_unprivileged_port_start", "80")]),
            []
        );
        assert!(accepted("net.ipv4.ip_local_port_range", "2000 65000"));
    }

    #[test]
    fn a_key_or_limit_that_stands_twice_is_refused() {
        let twice = [
            ("vm.max_map_count", "262144"),
            ("vm.max_map_count", "300000"),
        ];
        assert_eq!(problems(&twice).len(), 1);
        let nofile = UlimitSetting {
            name: UlimitName::Nofile,
            soft: 16_384,
        };
        assert!(check_sysctls(&[], std::slice::from_ref(&nofile)).is_ok());
        assert!(check_sysctls(&[], &[nofile.clone(), nofile]).is_err());
    }

    #[test]
    fn thousands_of_limits_are_two_problems() {
        let nofile = UlimitSetting {
            name: UlimitName::Nofile,
            soft: 1,
        };
        let found = check_sysctls(&[], &vec![nofile; 5_000]).expect_err("too many");
        assert_eq!(found.len(), 2, "out of range, and more than one");
    }

    #[test]
    fn a_name_with_control_characters_is_shown_escaped() {
        let found = problems(&[("vm.\u{1b}[2J\nnet.core.somaxconn\0", "1\u{1b}[2J\n")]);
        let text = found[0].to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(
            text.contains(r"vm.\u{1b}[2J\nnet.core.somaxconn\0"),
            "{text}"
        );
    }

    #[test]
    fn open_files_beyond_the_range_are_refused() {
        for soft in [0, 63, 1_048_577, u64::MAX] {
            let nofile = UlimitSetting {
                name: UlimitName::Nofile,
                soft,
            };
            let found = check_sysctls(&[], &[nofile]).expect_err("out of range");
            assert_eq!(found[0].field, "spec.tuning.ulimits[nofile].soft");
        }
    }

    #[test]
    fn a_long_list_and_a_long_value_stay_bounded_in_the_report() {
        let many: Vec<_> = (0..10_000)
            .map(|n| setting(&format!("a.b{n}"), "1"))
            .collect();
        let found = check_sysctls(&many, &[]).expect_err("too many");
        assert_eq!(found.len(), SYSCTLS_MAX + 1);
        let long = problems(&[("net.core.somaxconn", &"9".repeat(100_000))]);
        assert!(long[0].to_string().len() < 1_000);
    }

    #[test]
    fn every_setting_of_the_reference_systems_is_taken_or_refused_with_a_reason() {
        for (name, value) in [
            ("net.ipv4.ip_local_port_range", "2000 65000"),
            ("net.ipv4.tcp_window_scaling", "1"),
            ("net.ipv4.tcp_max_tw_buckets", "1440000"),
            ("net.core.rmem_default", "8388608"),
            ("net.core.wmem_default", "262144"),
            ("net.core.rmem_max", "16777216"),
            ("net.core.wmem_max", "16777216"),
            ("net.ipv4.tcp_rmem", "4096 87380 16777216"),
            ("net.ipv4.tcp_wmem", "4096 65536 16777216"),
            ("net.ipv4.tcp_rmem", "4096 4096 16777216"),
            ("net.ipv4.tcp_congestion_control", "cubic"),
            ("net.core.somaxconn", "20480"),
            ("net.core.somaxconn", "2048"),
            ("net.core.somaxconn", "65535"),
            ("net.ipv4.tcp_tw_reuse", "1"),
            ("net.ipv4.tcp_max_syn_backlog", "16384"),
            ("net.core.netdev_max_backlog", "20000"),
            ("net.ipv4.tcp_fin_timeout", "15"),
            ("net.ipv4.tcp_max_orphans", "131072"),
        ] {
            assert!(accepted(name, value), "{name} = {value}");
        }
        for (name, value) in [
            ("net.core.somaxconn", "3240000"),
            ("net.ipv4.tcp_max_syn_backlog", "3240000"),
            ("net.ipv4.tcp_tw_recycle", "1"),
            ("net.ipv4.tcp_syncookies", "0"),
            ("net.ipv4.tcp_mem", "786432 2097152 3145728"),
        ] {
            let found = problems(&[(name, value)]);
            assert_eq!(found.len(), 1, "{name} = {value}");
            assert!(!found[0].instead.is_empty(), "{name} = {value}");
        }
    }

    #[test]
    fn keys_are_dealt_out_by_their_way() {
        let checked = check_sysctls(
            &[
                setting("net.ipv4.tcp_fin_timeout", "15"),
                setting("net.core.somaxconn", "65535"),
                setting("vm.max_map_count", "262144"),
                setting("net.core.rmem_max", "16777216"),
            ],
            &[],
        )
        .expect("all are permitted");
        let names = |classes: &[Class], host| -> Vec<String> {
            let settings = checked.settings_of(classes, 33, host);
            settings.into_iter().map(|setting| setting.name).collect()
        };
        assert_eq!(
            names(&[Class::PodSafe], false),
            ["net.ipv4.tcp_fin_timeout"]
        );
        assert_eq!(
            names(&[Class::PodInit, Class::NodeFromPod], false),
            ["net.core.somaxconn", "vm.max_map_count"]
        );
        assert_eq!(names(&[Class::HostAgent], false), ["net.core.rmem_max"]);
        assert_eq!(names(&[Class::HostAgent], true).len(), 3);
    }

    #[test]
    fn every_key_takes_its_own_advice_where_that_is_a_value() {
        for key in crate::catalogue::keys() {
            if key
                .advice
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b' ')
            {
                assert!(accepted(key.name, key.advice), "{}", key.name);
            }
        }
    }
}
