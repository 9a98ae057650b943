//! The objects of the fake API server, and the rules by which they change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// `group/resource`, with an empty group for the core.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// A change, as a watch tells it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) resource: String,
    pub(crate) kind: &'static str,
    pub(crate) object: Value,
}

/// Everything there is.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) objects: BTreeMap<Key, Value>,
    applied: BTreeMap<(Key, String, bool), Value>,
    history: Vec<Change>,
    watchers: Vec<mpsc::UnboundedSender<Change>>,
    version: u64,
    /// Watches of this resource tell nothing for now.
    pub(crate) late: Option<&'static str>,
    /// Pods that lost their owner stay, on their way out, until they are removed.
    pub(crate) holds_pods: bool,
    /// The time that new objects carry.
    pub(crate) now: String,
}

/// Kinds whose status is written apart from the rest.
fn has_status(resource: &str) -> bool {
    resource.starts_with("tunedweb.io/")
}

impl Store {
    /// Creates or replaces an object, as the cluster itself would.
    pub(crate) fn put(&mut self, key: &Key, mut object: Value) {
        let existing = self.objects.get(key).cloned();
        object["metadata"]["name"] = json!(key.name);
        if !key.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(key.namespace);
        }
        let kept = |field: &str| existing.as_ref().map(|e| e["metadata"][field].clone());
        let fresh = format!(
            "uid-{}-{}-{}",
            key.resource.replace('/', "-"),
            key.name,
            self.version
        );
        object["metadata"]["uid"] = kept("uid").unwrap_or_else(|| json!(fresh));
        let created = kept("creationTimestamp").unwrap_or_else(|| json!(self.now));
        object["metadata"]["creationTimestamp"] = created;
        let generation = existing.as_ref().map_or(1, |existing| {
            let before = existing["metadata"]["generation"].as_i64().unwrap_or(1);
            if existing["spec"] == object["spec"] {
                before
            } else {
                before + 1
            }
        });
        object["metadata"]["generation"] = json!(generation);
        self.commit(key, object, existing.as_ref());
    }

    /// Changes an object in place.
    pub(crate) fn change(&mut self, key: &Key, change: impl FnOnce(&mut Value)) {
        let mut object = self.objects.get(key).expect("an object to change").clone();
        change(&mut object);
        self.put(key, object);
    }

    fn commit(&mut self, key: &Key, mut object: Value, existing: Option<&Value>) {
        if let Some(existing) = existing {
            object["metadata"]["resourceVersion"] = existing["metadata"]["resourceVersion"].clone();
            if object == *existing {
                return;
            }
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        let kind = if existing.is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.tell(&key.resource, kind, object);
    }

    fn tell(&mut self, resource: &str, kind: &'static str, object: Value) {
        let change = Change {
            version: self.version,
            resource: resource.to_owned(),
            kind,
            object,
        };
        if self.late != Some(resource) {
            self.watchers
                .retain(|watcher| watcher.send(change.clone()).is_ok());
        }
        self.history.push(change);
    }

    /// All changes of a resource from a version on, and those to come.
    pub(crate) fn watch(&mut self, resource: &str, from: u64) -> mpsc::UnboundedReceiver<Change> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let past = self.history.iter();
        for change in past.filter(|c| c.version > from && c.resource == resource) {
            sender.send(change.clone()).expect("the receiver is here");
        }
        self.watchers.push(sender);
        receiver
    }

    /// Ends every watch, as an API server does now and then.
    pub(crate) fn end_watches(&mut self) {
        self.watchers.clear();
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Server-side apply, forced: what the manager sent before and does not send now is removed.
    pub(crate) fn apply(&mut self, key: &Key, manager: &str, status: bool, mut sent: Value) {
        if status {
            sent = json!({"status": sent["status"]});
        } else if has_status(&key.resource) {
            sent.as_object_mut().expect("an object").remove("status");
        }
        let existing = self.objects.get(key).cloned();
        let mut object = existing.clone().unwrap_or_else(
            || json!({"apiVersion": sent["apiVersion"], "kind": sent["kind"], "metadata": {}}),
        );
        let owned = (key.clone(), manager.to_owned(), status);
        if let Some(before) = self.applied.get(&owned) {
            remove(&mut object, before, &sent);
        }
        merge(&mut object, &sent);
        if has_status(&key.resource) && !status {
            drop_emptied(&mut object, "spec");
            fill_in_default(&mut object);
        }
        self.applied.insert(owned, sent);
        if status {
            self.commit(key, object, existing.as_ref());
        } else {
            self.put(key, object);
        }
    }

    /// JSON merge patch (RFC 7386). False where the version is not the one expected.
    pub(crate) fn merge_patch(&mut self, key: &Key, patch: &Value) -> bool {
        let mut object = self.objects.get(key).expect("checked").clone();
        let expected = &patch["metadata"]["resourceVersion"];
        if !expected.is_null() && *expected != object["metadata"]["resourceVersion"] {
            return false;
        }
        for (name, value) in patch["metadata"].as_object().into_iter().flatten() {
            object["metadata"][name] = value.clone();
        }
        self.put(key, object);
        self.finish(key);
        true
    }

    /// Deletes an object: at once, or once its last finalizer is gone.
    pub(crate) fn delete(&mut self, key: &Key) {
        let now = self.now.clone();
        self.change(key, |object| {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = json!(now);
            }
        });
        self.finish(key);
    }

    /// Removes an object that is to be deleted and has no finalizer, and what it owned.
    fn finish(&mut self, key: &Key) {
        let Some(object) = self.objects.get(key).cloned() else {
            return;
        };
        let finalizers = object["metadata"]["finalizers"].as_array();
        let is_held = finalizers.is_some_and(|finalizers| !finalizers.is_empty());
        if object["metadata"]["deletionTimestamp"].is_null() || is_held {
            return;
        }
        self.remove(key);
    }

    /// Removes an object, and what it owned.
    pub(crate) fn remove(&mut self, key: &Key) {
        let Some(object) = self.objects.remove(key) else {
            return;
        };
        self.applied.retain(|(owned, _, _), _| owned != key);
        self.version += 1;
        let uid = object["metadata"]["uid"].clone();
        self.tell(&key.resource, "DELETED", object);
        let owned: BTreeSet<Key> = self
            .objects
            .iter()
            .filter(|(_, other)| {
                let owners = other["metadata"]["ownerReferences"].as_array();
                owners
                    .into_iter()
                    .flatten()
                    .any(|owner| owner["uid"] == uid)
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in owned {
            if key.resource == "/pods" && self.holds_pods {
                let now = self.now.clone();
                self.change(&key, |pod| {
                    pod["metadata"]["deletionTimestamp"] = json!(now);
                });
            } else {
                self.delete(&key);
            }
        }
    }
}

/// A list that is applied empty goes, and the object around it when nothing else is in it (measured
/// on 1.34).
fn drop_emptied(object: &mut Value, name: &str) {
    let Some(fields) = object[name].as_object_mut() else {
        return;
    };
    fields.retain(|_, field| field.as_array().is_none_or(|items| !items.is_empty()));
    if fields.is_empty() {
        object.as_object_mut().expect("an object").remove(name);
    }
}

/// The default of a spec that is missing, as the definition says.
fn fill_in_default(object: &mut Value) {
    let definitions = tunedweb_api::custom_resource_definitions();
    let of_kind = definitions
        .iter()
        .find(|definition| object["kind"] == definition.spec.names.kind);
    let definition = serde_json::to_value(of_kind).expect("JSON");
    let default = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/default";
    if object["spec"].is_null()
        && let Some(default) = definition.pointer(default)
    {
        object["spec"] = default.clone();
    }
}

/// Removes from `object` what is in `before` and not in `sent`.
fn remove(object: &mut Value, before: &Value, sent: &Value) {
    let (Some(object), Some(before)) = (object.as_object_mut(), before.as_object()) else {
        return;
    };
    for (name, was) in before {
        match sent.get(name) {
            None => {
                object.remove(name);
            }
            Some(now) => {
                if let Some(inner) = object.get_mut(name) {
                    remove(inner, was, now);
                }
            }
        }
    }
}

/// Maps are merged, everything else is replaced.
fn merge(object: &mut Value, sent: &Value) {
    match (object, sent) {
        (Value::Object(object), Value::Object(sent)) => {
            for (name, value) in sent {
                merge(object.entry(name).or_insert(Value::Null), value);
            }
        }
        (object, Value::Object(sent)) => {
            *object = Value::Object(Map::new());
            for (name, value) in sent {
                merge(&mut object[name.as_str()], value);
            }
        }
        (object, sent) => *object = sent.clone(),
    }
}
