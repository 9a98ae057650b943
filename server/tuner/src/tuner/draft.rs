//! What an owner's wishes change: the journal as it would be, and the keys that are concerned.

use std::collections::{BTreeMap, BTreeSet};

use tunedweb_tuning::catalogue::{Key, find};
use tunedweb_tuning::{CheckedPlan, CheckedSysctl, Owner, PlanContext, Value};

use super::item::Item;
use crate::facts::nr_open;
use crate::journal::{Half, Here, Journal};
use crate::tree::{Host, KernelTree};

/// What an owner wants, sorted by where it is kept.
pub(super) struct Wishes<'a> {
    pub(super) owner: &'a Owner,
    /// Halves that the caller governs, with the values wished for.
    halves: Vec<(Half, BTreeMap<&'static str, Value>)>,
    /// True where wishes of the same generation that are not among these stay.
    keep_same_generation: bool,
    /// Keys that are set as asked and not remembered.
    private: Vec<(&'static Key, Value)>,
}

impl<'a> Wishes<'a> {
    pub(super) fn of_plan(tree: &impl KernelTree, plan: &'a CheckedPlan) -> Self {
        let mut wishes = Self::of_host(&plan.owner, plan.tuning.sysctls());
        if plan.context == PlanContext::Pod {
            wishes.keep_same_generation = true;
            for (_, values) in wishes
                .halves
                .extract_if(.., |(half, _)| *half == Half::Network)
            {
                let keys = values
                    .into_iter()
                    .filter_map(|(name, value)| Some((find(name)?, value)));
                wishes.private.extend(keys);
            }
        }
        wishes.raise_nr_open(tree, plan.tuning.nofile());
        wishes
    }

    /// All that an owner wants on this node.
    pub(super) fn of_host(owner: &'a Owner, sysctls: &[CheckedSysctl]) -> Self {
        let values_of = |half: Half| {
            let of_half = sysctls.iter().filter(|sysctl| Half::of(sysctl.key) == half);
            (
                half,
                of_half
                    .map(|sysctl| (sysctl.key.name, sysctl.value.clone()))
                    .collect(),
            )
        };
        Self {
            owner,
            halves: vec![values_of(Half::Node), values_of(Half::Network)],
            keep_same_generation: false,
            private: Vec::new(),
        }
    }

    /// Makes these the owner's wishes, except in halves that hold a newer generation already.
    pub(super) fn enter(&self, journal: &Journal, here: &Here) -> Entered {
        let mut next = journal.clone();
        let id = here.owner(&self.owner.uid);
        let mut superseded = BTreeMap::new();
        for (half, values) in &self.halves {
            let known = next.owner(&id).and_then(|record| record.generation(*half));
            match known.filter(|known| *known > self.owner.generation) {
                Some(newer) => {
                    superseded.extend(values.keys().map(|name| (*name, newer)));
                }
                None => next.set_wishes(
                    (&id, &self.owner.resource),
                    self.owner.generation,
                    *half,
                    self.keep_same_generation,
                    &values
                        .iter()
                        .map(|(name, value)| (*name, value.to_string()))
                        .collect(),
                    here,
                ),
            }
        }
        next.tidy();
        Entered { next, superseded }
    }

    /// A limit of open files needs `fs.nr_open` to be as high.
    fn raise_nr_open(&mut self, tree: &impl KernelTree, nofile: Option<u64>) {
        let (Some(key), Some(asked)) = (find("fs.nr_open"), nofile) else {
            return;
        };
        if nr_open(tree).is_none_or(|there| asked <= there) {
            return;
        }
        let node_half = self.halves.iter_mut().find(|(half, _)| *half == Half::Node);
        if let Some((_, values)) = node_half {
            values
                .entry(key.name)
                .or_insert_with(|| Value::Numbers(vec![asked]));
        }
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.halves.iter().find_map(|(_, values)| values.get(name))
    }
}

/// A journal with an owner's wishes entered.
pub(super) struct Entered {
    pub(super) next: Journal,
    /// Keys left out because a newer generation of the owner, this one, is in force.
    pub(super) superseded: BTreeMap<&'static str, i64>,
}

/// The journal as it would be, and every key that is concerned: the wishes' own, and those that
/// the owner wanted before and no longer does.
pub(super) fn draft(
    tree: &impl KernelTree,
    host: &Host,
    here: &Here,
    journal: &Journal,
    wishes: &Wishes<'_>,
) -> (Journal, Vec<Item>) {
    let Entered { next, superseded } = wishes.enter(journal, here);
    let resource = wishes.owner.resource.as_str();
    let mut items: Vec<Item> = wishes
        .private
        .iter()
        .map(|(key, value)| Item::private(tree, host, key, value, resource))
        .collect();
    for (name, generation) in &superseded {
        if let (Some(key), Some(value)) = (find(name), wishes.value(name)) {
            items.push(Item::superseded(tree, key, value, *generation, resource));
        }
    }
    let id = here.owner(&wishes.owner.uid).text();
    let dropped = dropped_keys(journal, &next);
    // An entry that the owner leaves without any wish is gone from `next` when nothing was ever
    // written for it; one that was written stays, and is put back.
    for entry in next.entries.iter().filter(|entry| entry.is_visible(here)) {
        let is_planned = !superseded.contains_key(entry.key.as_str())
            && wishes.value(&entry.key).is_some()
            && entry.merges(&id);
        if is_planned {
            items.extend(Item::planned(tree, host, entry, &id));
        } else if dropped.contains(entry.key.as_str()) {
            items.extend(Item::journalled(tree, host, entry));
        }
    }
    (next, items)
}

fn dropped_keys<'a>(former: &'a Journal, next: &Journal) -> BTreeSet<&'a str> {
    let lost = former.entries.iter().filter(|entry| {
        let now = next.entry(&entry.key, entry.network.as_ref());
        now.is_none_or(|now| now.wishes.len() < entry.wishes.len())
    });
    lost.map(|entry| entry.key.as_str()).collect()
}
