//! Condition types and reasons: documented API, in one list.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// An enum whose variants are words of the API, each with its description.
macro_rules! words {
    ($(#[$attribute:meta])* pub enum $name:ident {
        $($(#[doc = $description:literal])+ $word:ident,)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[doc = $description])+ $word,)+
        }

        impl $name {
            /// Every word, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$word),+];

            /// The word in the API.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => stringify!($word),)+
                }
            }

            /// What the word says.
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$word => concat!($($description),+).trim(),)+
                }
            }
        }
    };
}

words! {
/// Types of conditions.
pub enum ConditionType {
    /// Every selected, reachable node acknowledged this generation and serves.
    Ready,
    /// Work towards this generation is under way (kstatus).
    Reconciling,
    /// Nothing will happen until a person acts (kstatus).
    Stalled,
    /// Every selected, reachable node has the kernel keys and process limits asked for.
    Tuned,
    /// Every selected, reachable node has a ready serving pod of this generation.
    Serving,
    /// What a benchmark measured reached its objectives.
    BenchmarkPassed,
    /// `NodeTuning`: every wish of every owner is in place.
    Applied,
    /// `BenchmarkRun`: the run ended with a result.
    Succeeded,
}
}

words! {
/// Reasons of conditions and events.
pub enum Reason {
    /// The state asked for is reached.
    AsSpecified,
    /// Nothing was observed yet.
    Pending,
    /// Pods are being replaced, or nodes are being tuned.
    RollingOut,
    /// The resource is being deleted: nodes are being put back.
    Deleting,
    /// The operator is being uninstalled: nodes are being put back.
    Draining,
    /// Every live node was put back; the resource is gone.
    Restored,
    /// The resource went although nodes that are named had not confirmed that they were put back.
    RestoreIncomplete,
    /// The spec cannot be right; the message names each field, value and permitted range.
    InvalidSpec,
    /// The object in the cluster does not fit this operator's schema.
    Undecodable,
    /// The namespace lacks the label by which an administrator lets its resources touch nodes.
    NodeAccessDenied,
    /// The `ConfigMap` with the content does not exist.
    ContentNotFound,
    /// The namespace's Pod Security level refuses the pods.
    PodSecurityDenied,
    /// No node matches the placement.
    NoNodesSelected,
    /// At least one node could not be tuned.
    TuningFailed,
    /// Owners want different values of a key that cannot be merged.
    Conflict,
    /// A process limit above the hard limit was asked for.
    LimitNotPermitted,
    /// The node's agent has not answered.
    AgentNotReporting,
    /// At least one serving pod is not ready.
    PodsNotReady,
    /// Kubernetes refused an object, or could not be reached.
    ApplyFailed,
    /// Nothing was asked for.
    NotRequested,
    /// The objectives were reached.
    ObjectivesReached,
    /// At least one objective was missed.
    ObjectivesMissed,
    /// The result is not a measurement of the server.
    ResultInvalid,
    /// The run goes on.
    Running,
    /// The run took longer than its deadline.
    DeadlineExceeded,
    /// The load pods failed.
    LoadFailed,
    /// The resource named as the target does not exist or does not serve.
    TargetNotFound,
    /// The run was stopped before its end, or what it left behind was deleted.
    Aborted,
}
}

/// The condition of a type among many.
pub fn find(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions
        .iter()
        .find(|condition| condition.type_ == kind.as_str())
}

/// Whether the condition of a type is `True`.
pub fn is_true(conditions: &[Condition], kind: ConditionType) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_its_variant_and_says_what_it_means() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str(), format!("{reason:?}"));
            assert!(reason.description().ends_with('.'), "{reason:?}");
        }
        for kind in ConditionType::ALL {
            assert_eq!(kind.as_str(), format!("{kind:?}"));
            assert!(kind.description().len() > 10, "{kind:?}");
        }
    }
}
