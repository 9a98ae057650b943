//! From what was wished before and what is wished now to the owners of one node. Pure.

use std::collections::BTreeMap;

use tunedweb_api::NodeTuning;
use tunedweb_api::node_tuning::{NodeOwner, OwnerOutcome, OwnerState};
use tunedweb_tuning::SysctlSetting;

use crate::tuned_web_server::Wishes;

/// Most owners of one node; the schema permits no more.
const OWNERS_MAX: usize = 64;

/// One server, as this node sees it.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) uid: String,
    pub(crate) resource: String,
    pub(crate) claimant: Claimant,
}

/// What is known of a server.
#[derive(Clone, Debug)]
pub(crate) enum Claimant {
    /// It is there and cannot be read.
    Unknown,
    /// Whether it selects the node, what it wants, and the generations of its plan that serving
    /// pods have carried out on the node.
    Known {
        selects: bool,
        wishes: Wishes,
        carried_out: Vec<i64>,
    },
}

/// The owners of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) owners: Vec<NodeOwner>,
    /// Owners that are left out because there are too many.
    pub(crate) dropped: u64,
}

/// An owner stays as `Released` until the agent has confirmed it, whether its resource still exists
/// or not.
pub(crate) fn resolve(before: Option<&NodeTuning>, claims: &[Claim]) -> Resolved {
    let former: BTreeMap<&str, &NodeOwner> = before
        .iter()
        .flat_map(|tuning| &tuning.spec.owners)
        .map(|owner| (owner.uid.as_str(), owner))
        .collect();
    let is_confirmed = |owner: &NodeOwner| before.is_some_and(|tuning| is_released(tuning, owner));
    let mut owners: Vec<NodeOwner> = claims
        .iter()
        .filter_map(|claim| owner(claim, former.get(claim.uid.as_str()).copied()))
        .collect();
    let is_claimed = |uid: &str| claims.iter().any(|claim| claim.uid == uid);
    let gone = former.values().filter(|owner| !is_claimed(&owner.uid));
    owners.extend(gone.map(|owner| released(owner)));
    owners.retain(|owner| owner.state != OwnerState::Released || !is_confirmed(owner));
    // those that are there already stay
    owners.sort_by_key(|owner| (!former.contains_key(owner.uid.as_str()), owner.uid.clone()));
    let dropped = owners.len().saturating_sub(OWNERS_MAX);
    owners.truncate(OWNERS_MAX);
    owners.sort_by(|a, b| a.uid.cmp(&b.uid));
    Resolved {
        owners,
        dropped: u64::try_from(dropped).unwrap_or(u64::MAX),
    }
}

/// Whether the agent has confirmed that this owner's share was put back.
pub(crate) fn is_released(tuning: &NodeTuning, owner: &NodeOwner) -> bool {
    let Some(status) = &tuning.status else {
        return false;
    };
    let is_current = tuning
        .metadata
        .generation
        .is_none_or(|g| status.observed_generation >= g);
    let of_owner = status.owners.iter().find(|other| other.uid == owner.uid);
    owner.state == OwnerState::Released
        && is_current
        && of_owner.is_some_and(|found| found.state == OwnerOutcome::Released)
}

fn owner(claim: &Claim, former: Option<&NodeOwner>) -> Option<NodeOwner> {
    match &claim.claimant {
        Claimant::Unknown
        | Claimant::Known {
            wishes: Wishes::AsBefore,
            ..
        } => former.cloned(),
        Claimant::Known { selects: false, .. }
        | Claimant::Known {
            wishes: Wishes::Nothing,
            ..
        } => former.map(released),
        Claimant::Known {
            selects: true,
            wishes:
                Wishes::Keys {
                    generation,
                    sysctls,
                    pod_first,
                },
            carried_out,
        } => {
            let standing = former.filter(|former| former.state == OwnerState::Active);
            let stands = standing.is_some_and(|former| former.generation == *generation);
            if stands || !pod_first || carried_out.contains(generation) {
                return Some(claim.owner(*generation, OwnerState::Active, sysctls.clone()));
            }
            // All or nothing: what the node's own pod has not carried out, the agent must not.
            let pending = || claim.owner(*generation, OwnerState::Pending, Vec::new());
            Some(standing.cloned().unwrap_or_else(pending))
        }
    }
}

impl Claim {
    fn owner(&self, generation: i64, state: OwnerState, sysctls: Vec<SysctlSetting>) -> NodeOwner {
        NodeOwner {
            uid: self.uid.clone(),
            resource: self.resource.clone(),
            generation,
            state,
            sysctls,
        }
    }
}

fn released(owner: &NodeOwner) -> NodeOwner {
    NodeOwner {
        state: OwnerState::Released,
        ..owner.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sysctls() -> Vec<SysctlSetting> {
        vec![SysctlSetting {
            name: "vm.max_map_count".to_owned(),
            value: "262144".to_owned(),
        }]
    }

    fn claim(uid: &str, selects: bool, wishes: Wishes) -> Claim {
        Claim {
            uid: uid.to_owned(),
            resource: format!("web/{uid}"),
            claimant: Claimant::Known {
                selects,
                wishes,
                carried_out: Vec::new(),
            },
        }
    }

    fn keys(generation: i64) -> Wishes {
        Wishes::Keys {
            generation,
            sysctls: sysctls(),
            pod_first: false,
        }
    }

    /// The same, where a pod tunes first; with the generations that one carried out.
    fn behind_a_pod(generation: i64, carried_out: &[i64]) -> Claim {
        let wishes = Wishes::Keys {
            generation,
            sysctls: sysctls(),
            pod_first: true,
        };
        let mut claim = claim("u", true, wishes);
        if let Claimant::Known {
            carried_out: done, ..
        } = &mut claim.claimant
        {
            done.extend(carried_out);
        }
        claim
    }

    /// The object as written for these owners, with the agent's answers of the same generation.
    fn tuning(owners: &[NodeOwner], answers: &Value) -> NodeTuning {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "generation": 7},
            "spec": {"owners": owners},
            "status": {"observedGeneration": 7, "owners": answers},
        }))
        .unwrap()
    }

    fn states(resolved: &Resolved) -> Vec<(&str, OwnerState)> {
        resolved
            .owners
            .iter()
            .map(|owner| (owner.uid.as_str(), owner.state))
            .collect()
    }

    fn active() -> NodeTuning {
        let first = resolve(None, &[claim("u", true, keys(3))]);
        tuning(&first.owners, &json!([]))
    }

    #[test]
    fn wishes_of_servers_that_select_the_node_are_written() {
        let claims = [
            claim("b", true, keys(1)),
            claim("a", true, keys(2)),
            claim("c", false, keys(3)),
            claim("d", true, Wishes::Nothing),
            claim("e", true, Wishes::AsBefore),
        ];
        let resolved = resolve(None, &claims);
        assert_eq!(
            states(&resolved),
            [("a", OwnerState::Active), ("b", OwnerState::Active)]
        );
    }

    #[test]
    fn an_owner_stays_released_until_the_agent_confirms_it() {
        for leaving in [
            vec![claim("u", false, keys(3))],
            vec![claim("u", true, Wishes::Nothing)],
            vec![],
        ] {
            let released = resolve(Some(&active()), &leaving);
            assert_eq!(states(&released), [("u", OwnerState::Released)]);
            let waiting = tuning(
                &released.owners,
                &json!([{
                    "uid": "u", "generation": 3, "state": "Applied",
                }]),
            );
            assert_eq!(resolve(Some(&waiting), &leaving), released);
            let confirmed = tuning(
                &released.owners,
                &json!([{
                    "uid": "u", "generation": 3, "state": "Released",
                }]),
            );
            assert_eq!(resolve(Some(&confirmed), &leaving).owners, []);
        }
    }

    #[test]
    fn a_confirmation_of_an_older_spec_is_none() {
        let released = resolve(Some(&active()), &[]);
        let mut old = tuning(
            &released.owners,
            &json!([{
                "uid": "u", "generation": 3, "state": "Released",
            }]),
        );
        old.status.as_mut().unwrap().observed_generation = 6;
        assert_eq!(resolve(Some(&old), &[]), released);
    }

    #[test]
    fn the_agent_is_asked_for_nothing_that_the_nodes_pod_has_not_carried_out() {
        let first = resolve(None, &[behind_a_pod(3, &[])]);
        assert_eq!(states(&first), [("u", OwnerState::Pending)]);
        assert_eq!(first.owners[0].sysctls, []);
        let waiting = tuning(&first.owners, &json!([]));
        let done = resolve(Some(&waiting), &[behind_a_pod(3, &[3])]);
        assert_eq!(states(&done), [("u", OwnerState::Active)]);

        // a later plan: the former one stands until it is carried out, and then it is kept
        let former = tuning(&done.owners, &json!([]));
        assert_eq!(resolve(Some(&former), &[behind_a_pod(4, &[3])]), done);
        let next = resolve(Some(&former), &[behind_a_pod(4, &[3, 4])]);
        assert_eq!(next.owners[0].generation, 4);
        let kept = tuning(&next.owners, &json!([]));
        assert_eq!(resolve(Some(&kept), &[behind_a_pod(4, &[])]), next);
    }

    #[test]
    fn a_released_owner_that_comes_back_waits_for_its_pod_again() {
        let released = resolve(Some(&active()), &[]);
        let before = tuning(&released.owners, &json!([]));
        let back = resolve(Some(&before), &[behind_a_pod(3, &[])]);
        assert_eq!(states(&back), [("u", OwnerState::Pending)]);
    }

    #[test]
    fn what_cannot_be_told_stays_as_it_was() {
        let mut unknown = claim("u", false, Wishes::Nothing);
        unknown.claimant = Claimant::Unknown;
        for claims in [[unknown], [claim("u", false, Wishes::AsBefore)]] {
            assert_eq!(
                states(&resolve(Some(&active()), &claims)),
                [("u", OwnerState::Active)]
            );
        }
    }

    #[test]
    fn a_server_that_comes_back_is_active_again() {
        let released = resolve(Some(&active()), &[]);
        let before = tuning(&released.owners, &json!([]));
        let resolved = resolve(Some(&before), &[claim("u", true, keys(3))]);
        assert_eq!(states(&resolved), [("u", OwnerState::Active)]);
    }

    #[test]
    fn too_many_owners_are_counted_and_those_that_were_first_stay() {
        let claims: Vec<Claim> = (0..70)
            .map(|n| claim(&format!("u{n:02}"), true, keys(1)))
            .collect();
        let first = resolve(None, &claims[10..]);
        let before = tuning(&first.owners, &json!([]));
        let resolved = resolve(Some(&before), &claims);
        assert_eq!((resolved.owners.len(), resolved.dropped), (64, 6));
        assert!(resolved.owners.iter().any(|owner| owner.uid == "u69"));
    }
}
