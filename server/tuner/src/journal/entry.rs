//! One key in one place: its values and who wants it.

use serde::{Deserialize, Serialize};
use tunedweb_tuning::Wish;
use tunedweb_tuning::catalogue::Key;

/// One key in one place.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Entry {
    /// Name with dots.
    pub(crate) key: String,
    /// Where the key lives; none: one value for the whole kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<Network>,
    /// Boot that the three values below belong to.
    pub(crate) boot_id: String,
    /// The kernel's text before the first write; none: nothing was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) baseline: Option<String>,
    /// The text read back after the last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) written: Option<String>,
    /// The text of a write that was announced and is not confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<String>,
    /// Who wants what.
    #[serde(default)]
    pub(crate) wishes: Vec<StoredWish>,
}

/// The network namespace of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Network {
    /// Name of the node.
    pub(crate) node: String,
    /// Inode number of the namespace.
    pub(crate) inode: u64,
}

/// One owner's value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StoredWish {
    /// Who.
    pub(crate) owner: OwnerId,
    /// Who, for people.
    pub(crate) resource: String,
    /// Generation of the owner.
    pub(crate) generation: i64,
    /// [`Journal::sequence`] when the owner first wished for this value.
    pub(crate) since: u64,
    /// The value in the user's unit.
    pub(crate) value: String,
}

/// A resource on a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OwnerId {
    /// UID of the resource.
    pub(crate) uid: String,
    /// Name of the node.
    pub(crate) node: String,
}

/// Where and when a call runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Here {
    /// Name of the node.
    pub(crate) node: String,
    /// This boot.
    pub(crate) boot_id: String,
    /// Inode number of the host's network namespace; none: this process is in a pod's own, and sees
    /// none of the host's keys.
    pub(crate) inode: Option<u64>,
}

impl Here {
    /// The owner on this node.
    pub(crate) fn owner(&self, uid: &str) -> OwnerId {
        OwnerId {
            uid: uid.to_owned(),
            node: self.node.clone(),
        }
    }
}

impl Entry {
    pub(super) fn new(key: &str, network: Option<Network>, boot_id: &str) -> Self {
        Self {
            key: key.to_owned(),
            network,
            boot_id: boot_id.to_owned(),
            baseline: None,
            written: None,
            pending: None,
            wishes: Vec::new(),
        }
    }

    /// True where this process sees the key: the kernel's own, or that of the host's namespace.
    pub(crate) fn is_visible(&self, here: &Here) -> bool {
        self.network
            .as_ref()
            .is_none_or(|n| n.node == here.node && Some(n.inode) == here.inode)
    }

    /// True where an owner on this node wants the key.
    pub(crate) fn concerns(&self, here: &Here) -> bool {
        self.wishes.iter().any(|wish| wish.owner.node == here.node)
    }

    /// The wishes as the merge takes them. Values that this version cannot read are left out; they
    /// were written by another version with another catalogue.
    pub(crate) fn merge_input(&self, key: &Key) -> Vec<Wish> {
        let wishes = self.wishes.iter();
        wishes
            .filter_map(|wish| {
                Some(Wish {
                    owner: wish.owner.text(),
                    resource: wish.resource.clone(),
                    generation: wish.generation,
                    since: wish.since,
                    // A page of one byte: stored values are in the user's unit.
                    value: key.from_kernel(&wish.value, 1)?,
                })
            })
            .collect()
    }

    /// True where this owner (`uid@node`) wants the key.
    pub(crate) fn merges(&self, owner: &str) -> bool {
        self.wishes.iter().any(|wish| wish.owner.text() == owner)
    }

    /// Who wants the key, for people: each once.
    pub(crate) fn resources(&self) -> Vec<String> {
        let mut resources: Vec<_> = self
            .wishes
            .iter()
            .map(|wish| wish.resource.clone())
            .collect();
        resources.sort();
        resources.dedup();
        resources
    }

    /// True where nothing would be lost without it.
    pub(super) fn is_empty(&self) -> bool {
        self.wishes.is_empty() && self.baseline.is_none() && self.pending.is_none()
    }
}

impl OwnerId {
    /// `uid@node`.
    pub(crate) fn text(&self) -> String {
        format!("{}@{}", self.uid, self.node)
    }
}
