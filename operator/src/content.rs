//! What a `ConfigMap` holds, as far as it matters: a hash, and how the server names each file's
//! version.

use k8s_openapi::api::core::v1::ConfigMap;
use tunedweb_config::content_etag;

use crate::hash;

/// Files that a serving pod is asked for to see whether a change has arrived. A `ConfigMap` volume
/// changes as a whole, so one changed file would do; nobody remembers which one changed, and more
/// than this many are not asked for.
pub(crate) const FILES_ASKED_MAX: usize = 256;

/// The content at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// `metadata.resourceVersion` that it was read at.
    pub(crate) version: String,
    /// Of all names and bytes.
    pub(crate) hash: String,
    /// Name and entity tag of files that can be asked for, at most [`FILES_ASKED_MAX`].
    pub(crate) etags: Vec<(String, String)>,
}

impl Content {
    pub(crate) fn of(map: &ConfigMap) -> Self {
        let mut files: Vec<(&str, &[u8])> = Vec::new();
        for (name, text) in map.data.iter().flatten() {
            files.push((name, text.as_bytes()));
        }
        for (name, bytes) in map.binary_data.iter().flatten() {
            files.push((name, &bytes.0));
        }
        files.sort_unstable();
        let parts = files
            .iter()
            .flat_map(|(name, bytes)| [name.as_bytes(), bytes]);
        Self {
            version: map.metadata.resource_version.clone().unwrap_or_default(),
            hash: hash::of_parts(parts),
            etags: files
                .iter()
                // the server hides them
                .filter(|(name, _)| !name.starts_with('.'))
                .take(FILES_ASKED_MAX)
                .map(|(name, bytes)| ((*name).to_owned(), content_etag(bytes)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn content(data: &serde_json::Value) -> Content {
        let map: ConfigMap =
            serde_json::from_value(json!({"metadata": {"resourceVersion": "1"}, "data": data}))
                .unwrap();
        Content::of(&map)
    }

    #[test]
    fn the_hash_follows_names_and_bytes_only() {
        let first = content(&json!({"a.html": "x", "b.html": "y"}));
        assert_eq!(
            first.hash,
            content(&json!({"b.html": "y", "a.html": "x"})).hash
        );
        for other in [
            json!({"a.html": "x"}),
            json!({"a.html": "y", "b.html": "y"}),
            json!({"a.html": "x", "c.html": "y"}),
        ] {
            assert_ne!(first.hash, content(&other).hash, "{other}");
        }
    }

    #[test]
    fn hidden_files_are_not_asked_for_and_many_are_bounded() {
        let many: serde_json::Map<_, _> = (0..300).map(|n| (format!("f{n}"), json!("x"))).collect();
        assert_eq!(content(&json!(many)).etags.len(), FILES_ASKED_MAX);
        assert_eq!(content(&json!({".hidden": "x"})).etags, []);
    }
}
