//! Any history of calls and kills: what counts at the end depends on the wishes that stand, not on
//! the way there, and when the last owner has gone the node is as it was.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tunedweb_tuning::PlanContext;

use crate::support::{FakeKernel, Node, active, plan, released};

const MAPS: &str = "vm.max_map_count";
const SOMAXCONN: &str = "net.core.somaxconn";
const PORTS: &str = "net.ipv4.ip_local_reserved_ports";

const DEFAULTS: [(&str, &str); 3] = [(MAPS, "65530"), (SOMAXCONN, "4096"), (PORTS, "")];
const OWNERS: [&str; 3] = ["a", "b", "c"];
const MAPS_VALUES: [&str; 4] = ["65530", "100000", "200000", "300000"];
const PORT_VALUES: [&str; 3] = ["8080", "8080-8090", "30000-32767"];

/// One call of one owner.
#[derive(Clone, Debug)]
enum Call {
    Apply {
        owner: usize,
        maps: Option<usize>,
        ports: Option<usize>,
    },
    Sync {
        owner: usize,
        maps: Option<usize>,
    },
    Release {
        owner: usize,
    },
    Reboot,
}

/// A call, and the moment at which it is killed.
type Step = (Call, Option<usize>);

fn any_call() -> impl Strategy<Value = Call> {
    let owner = 0..OWNERS.len();
    let maps = prop::option::of(0..MAPS_VALUES.len());
    let ports = prop::option::of(0..PORT_VALUES.len());
    prop_oneof![
        4 => (owner.clone(), maps.clone(), ports)
            .prop_map(|(owner, maps, ports)| Call::Apply { owner, maps, ports }),
        2 => (owner.clone(), maps).prop_map(|(owner, maps)| Call::Sync { owner, maps }),
        2 => owner.prop_map(|owner| Call::Release { owner }),
        1 => Just(Call::Reboot),
    ]
}

fn sysctls(maps: Option<usize>, ports: Option<usize>) -> Vec<(&'static str, &'static str)> {
    let maps = maps.map(|index| (MAPS, MAPS_VALUES[index]));
    let ports = ports.map(|index| (PORTS, PORT_VALUES[index]));
    maps.into_iter().chain(ports).collect()
}

/// Makes one call. Each has a newer generation than the one before, as new wishes have.
fn carry_out(node: &Node, generation: i64, call: &Call) {
    match call {
        Call::Apply { owner, maps, ports } => {
            let wishes = sysctls(*maps, *ports);
            node.apply(&plan(
                PlanContext::Host,
                OWNERS[*owner],
                generation,
                &wishes,
            ));
        }
        Call::Sync { owner, maps } => {
            let wishes = [active(OWNERS[*owner], generation, &sysctls(*maps, None))];
            node.tuner().sync(&wishes).expect("the journal is usable");
        }
        Call::Release { owner } => {
            node.release(OWNERS[*owner], generation);
        }
        Call::Reboot => node.kernel.reboot(&DEFAULTS),
    }
}

/// The largest wish that stands, by each owner's last call.
fn expected_maps(calls: &[Step]) -> u64 {
    let mut standing: BTreeMap<usize, Option<usize>> = BTreeMap::new();
    for (call, _) in calls {
        match call {
            Call::Apply { owner, maps, .. } | Call::Sync { owner, maps } => {
                standing.insert(*owner, *maps);
            }
            Call::Release { owner } => {
                standing.remove(owner);
            }
            Call::Reboot => {}
        }
    }
    let values = standing.values().flatten().map(|&index| MAPS_VALUES[index]);
    values
        .map(|value| value.parse().expect("a number"))
        .max()
        .unwrap_or(65_530)
        .max(65_530)
}

fn number(kernel: &FakeKernel, name: &str) -> u64 {
    kernel.value(name).parse().expect("a number")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_history_ends_at_the_wishes_that_stand_and_then_at_the_defaults(
        steps in prop::collection::vec((any_call(), prop::option::of(0usize..30)), 1..12)
    ) {
        let node = Node::new(&DEFAULTS);
        for (generation, (call, kill)) in (1i64..).zip(&steps) {
            if let Some(moment) = kill {
                node.kernel.kill_at(*moment);
                let survived = node.survives(|node| carry_out(node, generation, call));
                node.kernel.heal();
                if survived {
                    continue;
                }
            }
            // A killed call is made again, as the kubelet and the agent do.
            carry_out(&node, generation, call);
        }
        node.tuner().sync(&[]).expect("the journal is usable");
        prop_assert_eq!(number(&node.kernel, MAPS), expected_maps(&steps));
        let all = OWNERS.map(|owner| released(owner, 1_000));
        node.tuner().sync(&all).expect("the journal is usable");
        let defaults = DEFAULTS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        prop_assert_eq!(node.kernel.values(), BTreeMap::from(defaults));
        prop_assert!(node.journal_text().contains(r#""entries": []"#));
    }
}
