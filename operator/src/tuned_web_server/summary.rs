//! From the states of the nodes to counts and conditions. Pure.

use tunedweb_api::condition::{ConditionType, Reason};
use tunedweb_api::tuned_web_server::{FailingNode, NodeCounts};

use super::judge::{Failure, NodeState};
use crate::conditions::{Draft, Status};

/// Nodes named in a status: enough to begin with, and a status stays small with any number of nodes.
const NAMED_MAX: usize = 10;

/// What the whole has reached.
#[derive(Clone, Debug)]
pub(crate) struct Progress<'a> {
    pub(crate) states: &'a [NodeState],
    /// Whether any key or limit was asked for.
    pub(crate) wants_tuning: bool,
    /// Whether every reachable node served this hash before; what is missing since then is no
    /// rollout.
    pub(crate) was_reached: bool,
    /// Reachable nodes that serve the content as it is now.
    pub(crate) has_content: usize,
    /// Why pods cannot be made, where they cannot.
    pub(crate) pods_refused: Option<Failure>,
}

/// Reasons for which nothing happens until a person acts.
/// An agent that is missing may be about to start.
const FOR_A_PERSON: [Reason; 4] = [
    Reason::PodSecurityDenied,
    Reason::Conflict,
    Reason::TuningFailed,
    Reason::LimitNotPermitted,
];

/// Reasons that say why a node is not tuned.
const OF_TUNING: [Reason; 4] = [
    Reason::Conflict,
    Reason::TuningFailed,
    Reason::LimitNotPermitted,
    Reason::AgentNotReporting,
];

impl Progress<'_> {
    pub(crate) fn counts(&self) -> NodeCounts {
        let count = |of: fn(&NodeState) -> bool| {
            u32::try_from(self.states.iter().filter(|state| of(state)).count()).unwrap_or(u32::MAX)
        };
        let desired = count(|_| true);
        let both = count(|state| state.is_tuned && state.is_serving);
        let failing = self.states.iter().filter_map(|state| {
            let failure = state.failure.as_ref()?;
            Some(FailingNode {
                name: state.name.clone(),
                reason: failure.reason.as_str().to_owned(),
                message: failure.message.clone(),
            })
        });
        NodeCounts {
            desired,
            tuned: count(|state| state.is_tuned),
            serving: count(|state| state.is_serving),
            failed: count(|state| state.failure.is_some()),
            unreachable: count(|state| !state.is_reachable),
            summary: format!("{both}/{desired}"),
            failing: failing.take(NAMED_MAX).collect(),
        }
    }

    /// Every reachable node serves the content, and is tuned or cannot be: what is measured now is
    /// what will be.
    pub(crate) fn is_settled(&self) -> bool {
        let mut reachable = self.reachable().peekable();
        let is_final = |state: &NodeState| {
            let failed = state.failure.as_ref();
            state.is_tuned || failed.is_some_and(|failure| FOR_A_PERSON.contains(&failure.reason))
        };
        reachable.peek().is_some()
            && reachable.all(|state| state.is_serving && is_final(state))
            && self.has_content == self.reachable().count()
    }

    pub(crate) fn conditions(&self) -> Vec<Draft> {
        let tuned = self.tuned();
        let serving = self.serving();
        let ready = self.ready(&tuned, &serving);
        let stalled = ready.status != Status::True && FOR_A_PERSON.contains(&ready.reason);
        let reconciling = !stalled && !self.was_reached;
        let message = if reconciling {
            self.under_way()
        } else {
            String::new()
        };
        vec![
            ready.clone(),
            Draft::new(
                ConditionType::Reconciling,
                Status::of(reconciling),
                if reconciling {
                    Reason::RollingOut
                } else {
                    Reason::AsSpecified
                },
                message,
            ),
            Draft {
                kind: ConditionType::Stalled,
                status: Status::of(stalled),
                reason: if stalled {
                    ready.reason
                } else {
                    Reason::AsSpecified
                },
                message: if stalled {
                    ready.message
                } else {
                    String::new()
                },
            },
            tuned,
            serving,
        ]
    }

    fn reachable(&self) -> impl Iterator<Item = &NodeState> {
        self.states.iter().filter(|state| state.is_reachable)
    }

    fn ready(&self, tuned: &Draft, serving: &Draft) -> Draft {
        let kind = ConditionType::Ready;
        if tuned.status == Status::True && serving.status == Status::True {
            let counts = self.counts();
            let unreachable = match counts.unreachable {
                0 => String::new(),
                count => format!("; {count} are not ready themselves and not counted on"),
            };
            let message = format!(
                "{} of {} nodes are tuned and serve{unreachable}",
                counts.serving, counts.desired
            );
            return Draft::new(kind, Status::True, Reason::AsSpecified, message);
        }
        let worse = [serving, tuned]
            .into_iter()
            .filter(|draft| draft.status != Status::True)
            .min_by_key(|draft| weight(draft.reason));
        match worse {
            Some(worse) => Draft {
                kind,
                ..worse.clone()
            },
            None => Draft::new(kind, Status::Unknown, Reason::Pending, ""),
        }
    }

    fn tuned(&self) -> Draft {
        let kind = ConditionType::Tuned;
        if !self.wants_tuning {
            return Draft::new(
                kind,
                Status::True,
                Reason::NotRequested,
                "no key or limit is asked for",
            );
        }
        let concerns = |reason: Reason| OF_TUNING.contains(&reason);
        self.condition(kind, |state| state.is_tuned, concerns, Reason::RollingOut)
    }

    fn serving(&self) -> Draft {
        let kind = ConditionType::Serving;
        if let Some(Failure { reason, message }) = &self.pods_refused {
            return Draft::new(kind, Status::False, *reason, message);
        }
        let under_way = if self.was_reached {
            Reason::PodsNotReady
        } else {
            Reason::RollingOut
        };
        self.condition(
            kind,
            |state| state.is_serving,
            |reason| reason == Reason::PodsNotReady,
            under_way,
        )
    }

    fn condition(
        &self,
        kind: ConditionType,
        is_done: fn(&NodeState) -> bool,
        concerns: impl Fn(Reason) -> bool,
        under_way: Reason,
    ) -> Draft {
        let reachable = self.reachable().count();
        let done = self.reachable().filter(|state| is_done(state)).count();
        if done == reachable && reachable > 0 {
            let message = format!("{done} of {} nodes", self.states.len());
            return Draft::new(kind, Status::True, Reason::AsSpecified, message);
        }
        let failing: Vec<(&NodeState, &Failure)> = self
            .reachable()
            .filter(|state| !is_done(state))
            .filter_map(|state| Some((state, state.failure.as_ref()?)))
            .filter(|(_, failure)| concerns(failure.reason))
            .collect();
        let Some(reason) = failing
            .iter()
            .map(|(_, f)| f.reason)
            .min_by_key(|r| weight(*r))
        else {
            let message = format!("{done} of {} nodes", self.states.len());
            return Draft::new(kind, Status::False, under_way, message);
        };
        let mut named: Vec<String> = failing
            .iter()
            .take(NAMED_MAX)
            .map(|(state, failure)| format!("node {}: {}", state.name, failure.message))
            .collect();
        if failing.len() > NAMED_MAX {
            named.push(format!("and {} more nodes", failing.len() - NAMED_MAX));
        }
        let message = format!(
            "{done} of {} nodes; {}",
            self.states.len(),
            named.join("; ")
        );
        Draft::new(kind, Status::False, reason, message)
    }

    fn under_way(&self) -> String {
        let counts = self.counts();
        format!(
            "of {} nodes {} are tuned, {} serve, {} have the content",
            counts.desired, counts.tuned, counts.serving, self.has_content
        )
    }
}

/// What a person should read first.
fn weight(reason: Reason) -> usize {
    const ORDER: [Reason; 7] = [
        Reason::PodSecurityDenied,
        Reason::Conflict,
        Reason::TuningFailed,
        Reason::LimitNotPermitted,
        Reason::AgentNotReporting,
        Reason::PodsNotReady,
        Reason::RollingOut,
    ];
    ORDER
        .iter()
        .position(|other| *other == reason)
        .unwrap_or(ORDER.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, is_tuned: bool, is_serving: bool) -> NodeState {
        NodeState {
            name: name.to_owned(),
            is_reachable: true,
            is_tuned,
            is_serving,
            failure: None,
        }
    }

    fn failing(name: &str, reason: Reason, is_serving: bool) -> NodeState {
        NodeState {
            failure: Some(Failure::new(reason, "why")),
            ..state(name, false, is_serving)
        }
    }

    fn unreachable(name: &str) -> NodeState {
        NodeState {
            is_reachable: false,
            ..state(name, false, false)
        }
    }

    fn progress(states: &[NodeState]) -> Progress<'_> {
        Progress {
            states,
            wants_tuning: true,
            was_reached: false,
            has_content: states.iter().filter(|state| state.is_serving).count(),
            pods_refused: None,
        }
    }

    fn find(progress: &Progress<'_>, kind: ConditionType) -> (Status, Reason) {
        let drafts = progress.conditions();
        let draft = drafts.iter().find(|draft| draft.kind == kind).unwrap();
        (draft.status, draft.reason)
    }

    const READY: ConditionType = ConditionType::Ready;

    #[test]
    fn ready_needs_every_reachable_node_and_no_other() {
        let states = [state("a", true, true), unreachable("b")];
        assert_eq!(
            find(&progress(&states), READY),
            (Status::True, Reason::AsSpecified)
        );
        let states = [state("a", true, true), state("b", false, true)];
        assert_eq!(
            find(&progress(&states), READY),
            (Status::False, Reason::RollingOut)
        );
        let states = [unreachable("a")];
        assert_eq!(find(&progress(&states), READY).0, Status::False);
    }

    #[test]
    fn one_failing_node_is_counted_named_and_makes_it_stalled() {
        let states = [
            state("a", true, true),
            failing("b", Reason::TuningFailed, false),
        ];
        let progress = progress(&states);
        assert_eq!(
            find(&progress, READY),
            (Status::False, Reason::TuningFailed)
        );
        assert_eq!(
            find(&progress, ConditionType::Stalled),
            (Status::True, Reason::TuningFailed)
        );
        assert_eq!(find(&progress, ConditionType::Reconciling).0, Status::False);
        let counts = progress.counts();
        assert_eq!((counts.failed, counts.summary.as_str()), (1, "1/2"));
        assert_eq!(counts.failing[0].name, "b");
    }

    #[test]
    fn a_limit_not_permitted_is_settled_and_not_ready() {
        let states = [failing("a", Reason::LimitNotPermitted, true)];
        let progress = progress(&states);
        assert!(progress.is_settled());
        assert_eq!(find(&progress, ConditionType::Serving).0, Status::True);
        assert_eq!(
            find(&progress, READY),
            (Status::False, Reason::LimitNotPermitted)
        );
    }

    #[test]
    fn the_content_has_to_have_arrived_everywhere() {
        let states = [state("a", true, true), state("b", true, true)];
        let mut progress = progress(&states);
        assert!(progress.is_settled());
        progress.has_content = 1;
        assert!(!progress.is_settled());
    }

    #[test]
    fn what_is_missing_after_it_was_reached_is_no_rollout() {
        let states = [state("a", true, true), state("b", false, false)];
        let mut progress = progress(&states);
        assert_eq!(find(&progress, ConditionType::Reconciling).0, Status::True);
        progress.was_reached = true;
        assert_eq!(find(&progress, ConditionType::Reconciling).0, Status::False);
        assert_eq!(
            find(&progress, READY),
            (Status::False, Reason::PodsNotReady)
        );
    }

    #[test]
    fn many_failing_nodes_are_counted_and_ten_are_named() {
        let states: Vec<_> = (0..25)
            .map(|n| failing(&format!("n{n:02}"), Reason::TuningFailed, false))
            .collect();
        let progress = progress(&states);
        let counts = progress.counts();
        assert_eq!((counts.failed, counts.failing.len()), (25, 10));
        let drafts = progress.conditions();
        assert!(
            drafts[0].message.ends_with("and 15 more nodes"),
            "{}",
            drafts[0].message
        );
    }

    #[test]
    fn without_wishes_there_is_nothing_to_tune() {
        let states = [state("a", true, true)];
        let mut progress = progress(&states);
        progress.wants_tuning = false;
        let found = find(&progress, ConditionType::Tuned);
        assert_eq!(found, (Status::True, Reason::NotRequested));
    }

    #[test]
    fn refused_pods_are_told_before_all_else() {
        let states = [failing("a", Reason::AgentNotReporting, false)];
        let mut progress = progress(&states);
        progress.pods_refused = Some(Failure::new(Reason::PodSecurityDenied, "restricted"));
        assert_eq!(
            find(&progress, READY),
            (Status::False, Reason::PodSecurityDenied)
        );
    }
}
