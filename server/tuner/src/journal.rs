//! The journal: what was there before the first write of a boot, what was written since, and who
//! wants what.
//!
//! Plain values and their rules; [`store`] keeps them on disk.
//!
//! A value found in the kernel is *ours* when it is the one written last, or the one whose write was
//! announced and not confirmed: a process may be killed between the two.

mod entry;
mod store;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tunedweb_tuning::catalogue::Key;

pub(crate) use entry::{Entry, Here, Network, OwnerId, StoredWish};
pub use store::JournalError;
pub(crate) use store::{Store, load};

/// Format of the journal file that this version reads and writes.
pub(crate) const JOURNAL_VERSION: u32 = 1;

/// Released owners that are remembered. A late plan comes from a sandbox of the last minutes, and a
/// node sees at most 64 owners at a time, so the oldest of a thousand has long had its last word.
const TOMBSTONES_MAX: usize = 1024;

/// All that is remembered on a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Journal {
    /// Format of this file.
    pub(crate) version: u32,
    /// Counts the values wished for, so that of two the earlier is known.
    pub(crate) sequence: u64,
    /// One for each key and place.
    pub(crate) entries: Vec<Entry>,
    /// Owners whose wishes count.
    pub(crate) owners: Vec<OwnerRecord>,
    /// Owners that were released, the oldest first.
    pub(crate) tombstones: Vec<Tombstone>,
    /// Tombstones that were dropped because there were too many.
    pub(crate) tombstones_dropped: u64,
}

/// The two halves of an owner's wishes. A pod governs the first only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// Keys of the whole kernel.
    Node,
    /// Keys of the host's network namespace.
    Network,
}

/// An owner whose wishes count: the generation of each half, which must not go back even when the
/// half holds no key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OwnerRecord {
    /// Who.
    pub(crate) owner: OwnerId,
    /// Generation of the keys of the whole kernel.
    pub(crate) node_generation: Option<i64>,
    /// Generation of the keys of the network namespace.
    pub(crate) network_generation: Option<i64>,
}

/// An owner that was released.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Tombstone {
    /// Who.
    pub(crate) owner: OwnerId,
    /// The last generation that was released.
    pub(crate) generation: i64,
}

impl Half {
    /// The half that a key belongs to.
    pub(crate) fn of(key: &Key) -> Self {
        if key.is_network() {
            Self::Network
        } else {
            Self::Node
        }
    }

    fn holds(self, entry: &Entry) -> bool {
        entry.network.is_some() == (self == Self::Network)
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            version: JOURNAL_VERSION,
            sequence: 0,
            entries: Vec::new(),
            owners: Vec::new(),
            tombstones: Vec::new(),
            tombstones_dropped: 0,
        }
    }
}

impl OwnerRecord {
    /// Generation of a half.
    pub(crate) fn generation(&self, half: Half) -> Option<i64> {
        match half {
            Half::Node => self.node_generation,
            Half::Network => self.network_generation,
        }
    }
}

impl Journal {
    /// Forgets what another boot, or another network namespace of this node, left behind: those
    /// values are gone with it. Wishes stay.
    pub(crate) fn refresh(&mut self, here: &Here) {
        for entry in &mut self.entries {
            let moved = match (&mut entry.network, here.inode) {
                (Some(network), Some(inode))
                    if network.node == here.node && network.inode != inode =>
                {
                    network.inode = inode;
                    true
                }
                _ => false,
            };
            if moved || (entry.is_visible(here) && entry.boot_id != here.boot_id) {
                entry.boot_id.clone_from(&here.boot_id);
                entry.baseline = None;
                entry.written = None;
                entry.pending = None;
            }
        }
        self.tidy();
    }

    /// The entry of a key in a place.
    pub(crate) fn entry(&self, key: &str, network: Option<&Network>) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|entry| entry.key == key && entry.network.as_ref() == network)
    }

    /// The same, made where it is not there yet.
    pub(crate) fn entry_mut(
        &mut self,
        key: &str,
        network: Option<&Network>,
        boot_id: &str,
    ) -> &mut Entry {
        let is_it = |entry: &Entry| entry.key == key && entry.network.as_ref() == network;
        let index = self.entries.iter().position(is_it).unwrap_or_else(|| {
            self.entries
                .push(Entry::new(key, network.cloned(), boot_id));
            self.entries.len() - 1
        });
        &mut self.entries[index]
    }

    /// The record of an owner.
    pub(crate) fn owner(&self, owner: &OwnerId) -> Option<&OwnerRecord> {
        self.owners.iter().find(|record| record.owner == *owner)
    }

    /// The generation at which an owner was released.
    pub(crate) fn released_at(&self, owner: &OwnerId) -> Option<i64> {
        self.tombstones
            .iter()
            .find(|tombstone| tombstone.owner == *owner)
            .map(|t| t.generation)
    }

    /// Replaces what an owner wishes for in one half. The caller has made sure that `generation` is
    /// not older than the record's, and governs the network half only in the host's namespace.
    pub(crate) fn set_wishes(
        &mut self,
        owner: (&OwnerId, &str),
        generation: i64,
        half: Half,
        keep_same_generation: bool,
        wishes: &BTreeMap<&'static str, String>,
        here: &Here,
    ) {
        let (id, resource) = owner;
        for entry in self.entries.iter_mut().filter(|entry| half.holds(entry)) {
            entry.wishes.retain(|wish| {
                wish.owner != *id
                    || wishes.contains_key(entry.key.as_str())
                    || (keep_same_generation && wish.generation == generation)
            });
        }
        let network = here.inode.filter(|_| half == Half::Network);
        let network = network.map(|inode| Network {
            node: here.node.clone(),
            inode,
        });
        for (name, value) in wishes {
            let next_in_line = self.sequence.saturating_add(1);
            let entry = self.entry_mut(name, network.as_ref(), &here.boot_id);
            let former = entry.wishes.iter().position(|wish| wish.owner == *id);
            let since = former
                .map(|index| entry.wishes.remove(index))
                .filter(|wish| wish.value == *value)
                .map_or(next_in_line, |wish| wish.since);
            entry.wishes.push(StoredWish {
                owner: id.clone(),
                resource: resource.to_owned(),
                generation,
                since,
                value: value.clone(),
            });
            self.sequence = self.sequence.max(since);
        }
        self.record(id, generation, half);
    }

    /// True where both hold the same wishes of the same owners and generations.
    pub(crate) fn same_wishes(&self, other: &Self) -> bool {
        let wishes = |journal: &Self| -> Vec<(String, Option<Network>, StoredWish)> {
            let entries = journal.entries.iter();
            entries
                .flat_map(|entry| {
                    let place = move |wish: &StoredWish| {
                        (entry.key.clone(), entry.network.clone(), wish.clone())
                    };
                    entry.wishes.iter().map(place)
                })
                .collect()
        };
        self.owners == other.owners && wishes(self) == wishes(other)
    }

    /// Withdraws all wishes of an owner and remembers that it is gone.
    pub(crate) fn release(&mut self, owner: &OwnerId, generation: i64) {
        let record = self.owner(owner);
        let known = record.and_then(|record| record.node_generation.max(record.network_generation));
        let before = self.released_at(owner);
        if record.is_none() && before.is_some_and(|before| before >= generation) {
            return;
        }
        let generation = generation.max(known.max(before).unwrap_or(generation));
        for entry in &mut self.entries {
            entry.wishes.retain(|wish| wish.owner != *owner);
        }
        self.owners.retain(|record| record.owner != *owner);
        self.tombstones
            .retain(|tombstone| tombstone.owner != *owner);
        self.tombstones.push(Tombstone {
            owner: owner.clone(),
            generation,
        });
        if self.tombstones.len() > TOMBSTONES_MAX {
            self.tombstones.remove(0);
            self.tombstones_dropped = self.tombstones_dropped.saturating_add(1);
        }
    }

    /// Drops entries that say nothing and puts the rest in a stable order.
    pub(crate) fn tidy(&mut self) {
        self.entries.retain(|entry| !entry.is_empty());
        let place = |entry: &Entry| entry.network.as_ref().map(|n| (n.node.clone(), n.inode));
        self.entries
            .sort_by(|a, b| (&a.key, place(a)).cmp(&(&b.key, place(b))));
        for entry in &mut self.entries {
            entry.wishes.sort_by_key(|wish| wish.since);
        }
    }

    fn record(&mut self, owner: &OwnerId, generation: i64, half: Half) {
        self.tombstones
            .retain(|tombstone| tombstone.owner != *owner);
        let index = self
            .owners
            .iter()
            .position(|record| record.owner == *owner)
            .unwrap_or_else(|| {
                self.owners.push(OwnerRecord {
                    owner: owner.clone(),
                    node_generation: None,
                    network_generation: None,
                });
                self.owners.len() - 1
            });
        let record = &mut self.owners[index];
        match half {
            Half::Node => record.node_generation = Some(generation),
            Half::Network => record.network_generation = Some(generation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tombstones_are_bounded_and_those_dropped_are_counted() {
        let mut journal = Journal::default();
        let owner = |n: usize| OwnerId {
            uid: n.to_string(),
            node: "node-1".to_owned(),
        };
        for n in 0..TOMBSTONES_MAX + 3 {
            journal.release(&owner(n), 1);
        }
        assert_eq!(journal.tombstones.len(), TOMBSTONES_MAX);
        assert_eq!(journal.tombstones_dropped, 3);
        assert_eq!(journal.released_at(&owner(2)), None, "the oldest go first");
        assert_eq!(journal.released_at(&owner(3)), Some(1));
    }

    #[test]
    fn counters_at_their_end_stay_there() {
        let mut journal = Journal {
            sequence: u64::MAX,
            tombstones_dropped: u64::MAX,
            ..Journal::default()
        };
        let here = Here {
            node: "node-1".to_owned(),
            boot_id: "boot".to_owned(),
            inode: None,
        };
        let owner = here.owner("a");
        let wishes = BTreeMap::from([("vm.max_map_count", "262144".to_owned())]);
        journal.set_wishes((&owner, "web/a"), 1, Half::Node, false, &wishes, &here);
        assert_eq!(journal.sequence, u64::MAX);
        for n in 0..=TOMBSTONES_MAX {
            journal.release(&here.owner(&n.to_string()), 1);
        }
        assert_eq!(journal.tombstones_dropped, u64::MAX);
    }

    #[test]
    fn a_second_release_changes_nothing_and_an_older_one_lowers_nothing() {
        let mut journal = Journal::default();
        let owner = OwnerId {
            uid: "a".to_owned(),
            node: "node-1".to_owned(),
        };
        journal.release(&owner, 5);
        let once = journal.clone();
        journal.release(&owner, 5);
        journal.release(&owner, 3);
        assert_eq!(journal, once);
        journal.release(&owner, 6);
        assert_eq!(journal.released_at(&owner), Some(6));
    }
}
