//! A request to the API server, taken apart.

use std::collections::BTreeMap;

use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};

use super::store::Key;

/// A request, taken apart.
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) resource: String,
    pub(crate) subresource: Option<String>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) metadata_only: bool,
}

impl Call {
    pub(crate) fn of(request: &Request<Body>) -> Self {
        let uri = request.uri();
        let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            other => panic!("{other:?}"),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let query = form(uri.query().unwrap_or_default());
        let name = rest.get(1).copied().unwrap_or_default();
        let is_watch = query.get("watch").is_some_and(|watch| watch == "true");
        let verb = match (request.method(), name.is_empty()) {
            (&Method::GET, true) if is_watch => "watch",
            (&Method::GET, true) => "list",
            (&Method::GET, false) => "get",
            (&Method::POST, _) => "create",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, _) => "delete",
            other => panic!("{other:?}"),
        };
        let accept = request.headers().get(http::header::ACCEPT);
        let accept = accept
            .and_then(|accept| accept.to_str().ok())
            .unwrap_or_default();
        Self {
            verb,
            resource: format!("{group}/{}", rest[0]),
            subresource: rest.get(2).map(|name| (*name).to_owned()),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            query,
            metadata_only: accept.contains("as=PartialObjectMetadata"),
        }
    }

    pub(crate) fn selection(&self) -> Self {
        Self {
            verb: self.verb,
            resource: self.resource.clone(),
            subresource: None,
            namespace: self.namespace.clone(),
            name: String::new(),
            query: self.query.clone(),
            metadata_only: self.metadata_only,
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(&self.resource, &self.namespace, &self.name)
    }

    pub(crate) fn full_resource(&self) -> String {
        match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.clone(),
        }
    }

    pub(crate) fn selects(&self, resource: &str, object: &Value) -> bool {
        let namespace = &object["metadata"]["namespace"];
        let labels = self
            .query
            .get("labelSelector")
            .map(String::as_str)
            .unwrap_or_default();
        let has_labels =
            pairs(labels).all(|(name, value)| object["metadata"]["labels"][name] == value);
        let fields = self
            .query
            .get("fieldSelector")
            .map(String::as_str)
            .unwrap_or_default();
        let has_fields = pairs(fields).all(|(path, value)| {
            path.split('.').fold(object, |object, name| &object[name]) == value
        });
        resource == self.resource
            && (self.namespace.is_empty() || *namespace == self.namespace)
            && has_labels
            && has_fields
    }

    pub(crate) fn shape(&self, object: &Value) -> Value {
        if self.metadata_only {
            return json!({
                "apiVersion": "meta.k8s.io/v1",
                "kind": "PartialObjectMetadata",
                "metadata": object["metadata"],
            });
        }
        object.clone()
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').filter_map(|pair| pair.split_once('='))
}

fn form(query: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            match byte {
                b'%' => {
                    let hex = [rest.next().expect("hex"), rest.next().expect("hex")];
                    let hex = std::str::from_utf8(&hex).expect("hex");
                    bytes.push(u8::from_str_radix(hex, 16).expect("hex"));
                }
                b'+' => bytes.push(b' '),
                other => bytes.push(other),
            }
        }
        String::from_utf8(bytes).expect("UTF-8")
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}
