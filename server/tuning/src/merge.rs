//! How the wishes of several owners for one key become one value.

use std::collections::BTreeMap;

use crate::catalogue::{Key, MergeRule};
use crate::value::Value;

/// What one owner wants of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Who, unambiguously.
    pub owner: String,
    /// Who, for people: `namespace/name`.
    pub resource: String,
    /// Generation of the owner. Of two wishes of one owner the newer counts, whichever came first.
    pub generation: i64,
    /// Order in which the values were first wished for; the smaller came earlier.
    pub since: u64,
    /// The value, in the user's unit.
    pub value: Value,
}

/// The outcome of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The value that counts.
    pub value: Value,
    /// Wishes that cannot be met beside it, in the order of their owners.
    pub conflicts: Vec<Conflict>,
}

/// A wish that lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Whose wish.
    pub owner: String,
    /// `namespace/name` of the owner whose earlier value stays.
    pub held_by: String,
}

/// Merges wishes by the key's rule. The outcome is the same for every order of `wishes`; without a
/// wish there is none.
pub fn merge(key: &Key, wishes: &[Wish]) -> Option<Merged> {
    let newest = newest_of_each_owner(wishes);
    if key.merge == MergeRule::EqualOrConflict {
        return equal_or_conflict(&newest);
    }
    let value = newest
        .values()
        .map(|wish| wish.value.clone())
        .reduce(|merged, value| key.combine(&merged, &value))?;
    Some(Merged {
        value,
        conflicts: Vec::new(),
    })
}

fn newest_of_each_owner(wishes: &[Wish]) -> BTreeMap<&str, &Wish> {
    let mut newest: BTreeMap<&str, &Wish> = BTreeMap::new();
    for wish in wishes {
        let kept = newest.entry(&wish.owner).or_insert(wish);
        if rank(wish) > rank(kept) {
            *kept = wish;
        }
    }
    newest
}

/// Generation first; the rest only makes the choice independent of the order of the list.
fn rank(wish: &Wish) -> (i64, u64, String) {
    (wish.generation, wish.since, wish.value.to_string())
}

fn equal_or_conflict(newest: &BTreeMap<&str, &Wish>) -> Option<Merged> {
    let first = newest
        .values()
        .min_by_key(|wish| (wish.since, &wish.owner))?;
    let conflicts = newest
        .values()
        .filter(|wish| wish.value != first.value)
        .map(|wish| Conflict {
            owner: wish.owner.clone(),
            held_by: first.resource.clone(),
        })
        .collect();
    Some(Merged {
        value: first.value.clone(),
        conflicts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::find;
    use crate::value::PortSet;
    use proptest::prelude::*;

    fn wish(owner: &str, generation: i64, since: u64, value: Value) -> Wish {
        let resource = format!("web/{owner}");
        Wish {
            owner: owner.to_owned(),
            resource,
            generation,
            since,
            value,
        }
    }

    fn number(value: u64) -> Value {
        Value::Numbers(vec![value])
    }

    fn key(name: &str) -> &'static Key {
        find(name).expect("a known key")
    }

    #[test]
    fn the_largest_wish_counts_and_nobody_is_in_conflict() {
        let wishes = [
            wish("a", 1, 0, number(70_000)),
            wish("b", 1, 1, number(262_144)),
        ];
        let merged = merge(key("vm.max_map_count"), &wishes).expect("two wishes");
        assert_eq!(
            merged,
            Merged {
                value: number(262_144),
                conflicts: vec![]
            }
        );
    }

    #[test]
    fn each_place_of_a_vector_takes_the_largest() {
        let wishes = [
            wish("a", 1, 0, Value::Numbers(vec![4_096, 87_380, 33_554_432])),
            wish("b", 1, 1, Value::Numbers(vec![8_192, 65_536, 16_777_216])),
        ];
        let merged = merge(key("net.ipv4.tcp_rmem"), &wishes).expect("two wishes");
        assert_eq!(
            merged.value,
            Value::Numbers(vec![8_192, 87_380, 33_554_432])
        );
    }

    #[test]
    fn a_vector_that_others_let_fall_does_not_make_ours_fall() {
        let found = Value::Numbers(vec![9_999_999, 5, 1]);
        let wished = Value::Numbers(vec![4_096, 131_072, 16_777_216]);
        let combined = key("net.ipv4.tcp_rmem").combine(&found, &wished);
        let expected = Value::Numbers(vec![9_999_999, 9_999_999, 16_777_216]);
        assert_eq!(combined, expected);
    }

    #[test]
    fn the_earlier_name_stays_and_the_later_is_told_whose_it_is() {
        let word = |word: &str| Value::Word(word.to_owned());
        let wishes = [wish("b", 1, 7, word("bbr")), wish("a", 1, 9, word("cubic"))];
        let merged = merge(key("net.ipv4.tcp_congestion_control"), &wishes).expect("two wishes");
        assert_eq!(merged.value, word("bbr"));
        let lost = Conflict {
            owner: "a".to_owned(),
            held_by: "web/b".to_owned(),
        };
        assert_eq!(merged.conflicts, [lost]);
    }

    #[test]
    fn an_older_generation_never_replaces_a_newer_one() {
        let wishes = [
            wish("a", 3, 0, number(70_000)),
            wish("a", 2, 5, number(900_000)),
        ];
        let merged = merge(key("vm.max_map_count"), &wishes).expect("a wish");
        assert_eq!(merged.value, number(70_000));
    }

    fn any_value(rule: MergeRule) -> BoxedStrategy<Value> {
        let number = 1u64..5;
        match rule {
            MergeRule::Union => prop::sample::select(vec!["1-3", "2-5", "9", "7-9,20"])
                .prop_map(|text| Value::Ports(PortSet::parse(text).expect("ports")))
                .boxed(),
            MergeRule::ElementwiseMax => prop::collection::vec(number, 3)
                .prop_map(Value::Numbers)
                .boxed(),
            _ => number.prop_map(|n| Value::Numbers(vec![n])).boxed(),
        }
    }

    fn any_wishes() -> impl Strategy<Value = (&'static Key, Vec<Wish>)> {
        prop::sample::select(vec![
            "vm.max_map_count",
            "net.ipv4.ip_unprivileged_port_start",
            "net.ipv4.ip_local_reserved_ports",
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_fin_timeout",
        ])
        .prop_flat_map(|name| {
            let key = key(name);
            let wish = (0u8..5, 0i64..4, 0u64..9, any_value(key.merge))
                .prop_map(|(owner, g, since, value)| wish(&owner.to_string(), g, since, value));
            (Just(key), prop::collection::vec(wish, 0..8))
        })
    }

    proptest! {
        #[test]
        fn the_order_of_wishes_does_not_matter(
            ((key, wishes), shuffled) in any_wishes().prop_flat_map(|(key, wishes)| {
                (Just((key, wishes.clone())), Just(wishes).prop_shuffle())
            })
        ) {
            prop_assert_eq!(merge(key, &wishes), merge(key, &shuffled));
        }

        #[test]
        fn a_wish_of_an_older_generation_changes_nothing(
            (key, mut wishes) in any_wishes(), value in 1u64..5
        ) {
            let before = merge(key, &wishes);
            if let Some(first) = wishes.first().cloned() {
                let value = match key.merge {
                    MergeRule::Union | MergeRule::ElementwiseMax => first.value.clone(),
                    _ => number(value),
                };
                wishes.push(Wish { generation: first.generation - 1, value, ..first });
                prop_assert_eq!(merge(key, &wishes), before);
            }
        }
    }
}
