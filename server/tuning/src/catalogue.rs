//! The catalogue: every kernel key that may be asked for, and the keys that are refused with a
//! reason.
//!
//! A key that is in neither list is refused too, with the nearest known name: the kernel accepts
//! too much nonsense, and some keys cannot be put back, so none is written that is not known here.

mod key;
mod refused;
mod table;

pub use key::{EffectTime, Key, MergeRule, ReleaseRule, Scope, Shape, Unit, ValueRule};
pub(crate) use refused::Refusal;

/// Every key that may be asked for, by name.
pub fn keys() -> &'static [Key] {
    table::KEYS
}

/// Every name or group of names that is refused, with the reason.
pub(crate) fn refusals() -> &'static [Refusal] {
    refused::REFUSALS
}

/// What the catalogue says of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    /// May be asked for.
    Known(&'static Key),
    /// Harmful, gone, or owned by others.
    Refused(&'static Refusal),
    /// Not in the catalogue.
    Unknown {
        /// The known name most like it, where one is like it at all.
        nearest: Option<&'static str>,
    },
}

/// Finds a name. The name is written with dots.
pub(crate) fn lookup(name: &str) -> Lookup {
    if let Some(key) = find(name) {
        return Lookup::Known(key);
    }
    match refusals().iter().find(|refusal| refusal.covers(name)) {
        Some(refusal) => Lookup::Refused(refusal),
        None => Lookup::Unknown {
            nearest: nearest(name),
        },
    }
}

/// The key of this name, where it may be asked for.
pub fn find(name: &str) -> Option<&'static Key> {
    keys().iter().find(|key| key.name == name)
}

/// Longest name that is compared with the known ones: the longest that a resource may carry. The
/// comparison takes time and memory by the product of both lengths.
const NAME_BYTES_MAX: usize = 128;

/// Likeness below which a suggestion would only confuse: two thirds of the characters agree.
const LIKENESS_MIN: f64 = 0.66;

fn nearest(name: &str) -> Option<&'static str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let last_part = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
    let likeness = |key: &Key| {
        strsim::normalized_damerau_levenshtein(name, key.name).max(
            strsim::normalized_damerau_levenshtein(name, last_part(key.name)),
        )
    };
    keys()
        .iter()
        .map(|key| (likeness(key), key.name))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_name_stands_once_and_is_not_refused_as_well() {
        let mut seen = HashSet::new();
        for key in keys() {
            assert!(seen.insert(key.name), "{} stands twice", key.name);
            assert!(
                !refusals().iter().any(|r| r.covers(key.name)),
                "{} is refused too",
                key.name
            );
        }
    }

    #[test]
    fn each_key_says_where_its_facts_come_from_and_why_its_range_is_what_it_is() {
        for key in keys() {
            for text in [key.source, key.range_reason, key.advice] {
                assert!(!text.is_empty(), "{}", key.name);
            }
        }
        for refusal in refusals() {
            assert!(!refusal.reason.is_empty(), "{}", refusal.pattern);
        }
    }

    #[test]
    fn a_misspelt_or_shortened_name_gets_the_nearest_known_one() {
        for (typed, meant) in [
            ("net.core.somaxcon", "net.core.somaxconn"),
            ("somaxconn", "net.core.somaxconn"),
            (
                "net.ipv4.tcp_max_syn_backlogs",
                "net.ipv4.tcp_max_syn_backlog",
            ),
            ("vm.max_mapcount", "vm.max_map_count"),
        ] {
            match lookup(typed) {
                Lookup::Unknown { nearest } => assert_eq!(nearest, Some(meant)),
                other => panic!("{typed}: {other:?}"),
            }
        }
        assert!(matches!(
            lookup("zzz.qqq"),
            Lookup::Unknown { nearest: None }
        ));
    }

    /// A plan file holds so much; compared with every known name it would take minutes.
    #[test]
    fn a_name_longer_than_any_is_answered_at_once() {
        let name = format!("net.core.{}", "somaxconn".repeat(10_000));
        let began = std::time::Instant::now();
        let answer = lookup(&name);
        assert!(matches!(answer, Lookup::Unknown { nearest: None }));
        assert!(began.elapsed() < std::time::Duration::from_secs(1));
    }

    #[test]
    fn a_harmful_removed_or_foreign_key_is_refused_whatever_its_interface() {
        for name in [
            "net.ipv4.tcp_tw_recycle",
            "kernel.pid_max",
            "kernel.shmmax",
            "kernel.msgmnb",
            "kernel.core_pattern",
            "net.ipv4.conf.all.rp_filter",
            "net.ipv4.conf.eth0.forwarding",
            "net.ipv6.conf.all.forwarding",
            "net.ipv4.ip_forward",
            "net.netfilter.nf_conntrack_max",
            "net.bridge.bridge-nf-call-iptables",
            "vm.overcommit_memory",
            "vm.dirty_ratio",
            "vm.dirty_background_bytes",
            "kernel.panic",
        ] {
            assert!(matches!(lookup(name), Lookup::Refused(_)), "{name}");
        }
    }
}
