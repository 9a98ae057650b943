//! An API server in memory: as much of one as the operator uses, and not a permission more than it
//! has.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tunedweb_operator::rbac::{Holder, PERMISSIONS};

use super::call::Call;
use super::store::{Change, Key, Store};

/// Namespace that the operator runs in.
pub(crate) const OPERATOR_NAMESPACE: &str = "tunedweb-system";

/// The server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct ApiServer {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct State {
    store: Store,
    log: Vec<Recorded>,
    used: BTreeSet<(String, String)>,
    refused: Vec<String>,
    failures: Vec<(String, String, u16)>,
    pod_security: BTreeMap<String, String>,
    pod_logs: BTreeMap<String, String>,
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) name: String,
}

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>>;

impl ApiServer {
    pub(crate) fn new(now: &str) -> Self {
        let mut state = State::default();
        now.clone_into(&mut state.store.now);
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(watch::channel(0).0),
        }
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "default")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes objects as somebody else would.
    pub(crate) fn edit<T>(&self, edit: impl FnOnce(&mut Store) -> T) -> T {
        let result = edit(&mut self.state().store);
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// The same, telling of it only where something changed.
    pub(crate) fn edit_if_needed(&self, edit: impl FnOnce(&mut Store)) {
        let mut state = self.state();
        let before = state.store.version();
        edit(&mut state.store);
        if state.store.version() != before {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn put(&self, resource: &str, namespace: &str, name: &str, object: Value) {
        self.edit(|store| store.put(&Key::new(resource, namespace, name), object));
    }

    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.state()
            .store
            .objects
            .get(&Key::new(resource, namespace, name))
            .cloned()
    }

    pub(crate) fn list(&self, resource: &str) -> Vec<Value> {
        let state = self.state();
        let objects = state.store.objects.iter();
        objects
            .filter(|(key, _)| key.resource == resource)
            .map(|(_, o)| o.clone())
            .collect()
    }

    /// Tells of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The next request of this kind is answered with this status.
    pub(crate) fn fail_next(&self, verb: &str, resource: &str, status: u16) {
        self.state()
            .failures
            .push((verb.to_owned(), resource.to_owned(), status));
    }

    /// Pods of a namespace are refused with this text from now on.
    pub(crate) fn refuse_pods(&self, namespace: &str, why: Option<&str>) {
        let mut state = self.state();
        match why {
            Some(why) => state
                .pod_security
                .insert(namespace.to_owned(), why.to_owned()),
            None => state.pod_security.remove(namespace),
        };
    }

    pub(crate) fn set_log(&self, pod: &str, log: String) {
        self.state().pod_logs.insert(pod.to_owned(), log);
    }

    /// Requests that changed something, dry runs and events left out.
    pub(crate) fn writes(&self) -> Vec<Recorded> {
        let state = self.state();
        let writes = |call: &&Recorded| {
            ["create", "patch", "delete"].contains(&call.verb.as_str())
                && call.resource != "events.k8s.io/events"
        };
        state.log.iter().filter(writes).cloned().collect()
    }

    pub(crate) fn count(&self, verb: &str, resource: &str) -> usize {
        let state = self.state();
        state
            .log
            .iter()
            .filter(|call| call.verb == verb && call.resource == resource)
            .count()
    }

    /// Requests that no permission covers.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.state().refused.clone()
    }

    /// Permissions of the operator that no request needed.
    pub(crate) fn unused(&self) -> Vec<String> {
        let state = self.state();
        let of_operator = PERMISSIONS
            .iter()
            .filter(|p| matches!(p.holder, Holder::Operator | Holder::OperatorNamespace));
        of_operator
            .flat_map(|p| {
                p.verbs
                    .iter()
                    .map(move |verb| (*verb, format!("{}/{}", p.group, p.resource)))
            })
            .filter(|(verb, resource)| {
                !state.used.contains(&((*verb).to_owned(), resource.clone()))
            })
            .map(|(verb, resource)| format!("{verb} {resource}"))
            .collect()
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let call = Call::of(&request);
        let (parts, body) = request.into_parts();
        let body = body.collect().await.expect("a body in memory").to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let answer = self.decide(&call, &parts.headers, body);
        self.changed.send_modify(|count| *count += 1);
        answer
    }

    fn decide(&self, call: &Call, headers: &http::HeaderMap, body: Value) -> Answer {
        let mut state = self.state();
        if let Some(refusal) = state.refusal(call) {
            return refusal;
        }
        let is_dry_run = call.query.contains_key("dryRun");
        if !is_dry_run {
            state.log.push(Recorded {
                verb: call.verb.to_owned(),
                resource: call.full_resource(),
                name: call.name.clone(),
            });
        }
        match call.verb {
            "list" => state.list(call),
            "watch" => state.watch(call),
            "get" if call.subresource.as_deref() == Some("log") => state.log_of(call),
            "get" => match state.store.objects.get(&call.key()) {
                Some(object) => json_answer(StatusCode::OK, &call.shape(object)),
                None => status_answer(404, "not found"),
            },
            "create" => state.create(call, body, is_dry_run),
            "patch" => state.patch(call, headers, body),
            "delete" => state.delete(call, &body),
            other => panic!("{other}"),
        }
    }
}

impl State {
    fn refusal(&mut self, call: &Call) -> Option<Answer> {
        let resource = call.full_resource();
        let mut verbs = vec![call.verb];
        let is_new = !self.store.objects.contains_key(&call.key());
        if call.verb == "patch" && call.subresource.is_none() && is_new {
            verbs.push("create");
        }
        for verb in verbs {
            if !is_permitted(verb, call, &resource) {
                self.refused.push(format!(
                    "{verb} {resource} {}/{}",
                    call.namespace, call.name
                ));
                return Some(status_answer(403, "no permission"));
            }
            self.used.insert((verb.to_owned(), resource.clone()));
        }
        let failure = self
            .failures
            .iter()
            .position(|(verb, on, _)| verb == call.verb && *on == resource)?;
        let (_, _, status) = self.failures.remove(failure);
        Some(status_answer(status, "made to fail"))
    }

    fn list(&self, call: &Call) -> Answer {
        let objects = self.store.objects.iter();
        let items: Vec<Value> = objects
            .filter(|(key, object)| call.selects(&key.resource, object))
            .map(|(_, object)| call.shape(object))
            .collect();
        let version = self.store.version().to_string();
        let list = json!({
            "apiVersion": if call.metadata_only { "meta.k8s.io/v1" } else { "v1" },
            "kind": if call.metadata_only { "PartialObjectMetadataList" } else { "List" },
            "metadata": {"resourceVersion": version},
            "items": items,
        });
        json_answer(StatusCode::OK, &list)
    }

    fn watch(&mut self, call: &Call) -> Answer {
        let from = call
            .query
            .get("resourceVersion")
            .and_then(|v| v.parse().ok())
            .unwrap_or(0);
        let receiver = self.store.watch(&call.resource, from);
        let call = call.selection();
        let events = futures::stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        });
        let lines = events.filter_map(move |change: Change| {
            let selected = call.selects(&change.resource, &change.object);
            let event = json!({"type": change.kind, "object": call.shape(&change.object)});
            let line = selected.then(|| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
            futures::future::ready(line)
        });
        Response::new(http_body_util::StreamBody::new(lines).boxed_unsync())
    }

    fn log_of(&self, call: &Call) -> Answer {
        match self.pod_logs.get(&call.name) {
            Some(log) => Response::new(text_body(log.clone())),
            None => status_answer(404, "no log"),
        }
    }

    fn create(&mut self, call: &Call, mut body: Value, is_dry_run: bool) -> Answer {
        if is_dry_run {
            return match self.pod_security.get(&call.namespace) {
                Some(why) => {
                    let text = format!("pods \"site-x1y2z\" is forbidden: {why}");
                    status_answer(403, &text)
                }
                None => json_answer(StatusCode::CREATED, &body),
            };
        }
        let name = body["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        let key = Key { name, ..call.key() };
        if self.store.objects.contains_key(&key) {
            return status_answer(409, "exists already");
        }
        if call.resource.starts_with("tunedweb.io/") {
            body.as_object_mut().expect("an object").remove("status");
        }
        self.store.put(&key, body);
        json_answer(StatusCode::CREATED, &self.store.objects[&key])
    }

    fn patch(&mut self, call: &Call, headers: &http::HeaderMap, body: Value) -> Answer {
        let key = call.key();
        let kind = headers
            .get(http::header::CONTENT_TYPE)
            .map(http::HeaderValue::as_bytes);
        let is_apply = kind == Some(b"application/apply-patch+yaml");
        let exists = self.store.objects.contains_key(&key);
        if !exists && (!is_apply || call.subresource.is_some()) {
            return status_answer(404, "not found");
        }
        // an object whose last finalizer goes is answered as it was
        let before = self.store.objects.get(&key).cloned();
        if is_apply {
            let manager = &call.query["fieldManager"];
            let is_status = call.subresource.as_deref() == Some("status");
            self.store.apply(&key, manager, is_status, body);
        } else if !self.store.merge_patch(&key, &body) {
            return status_answer(409, "changed meanwhile");
        }
        let object = self.store.objects.get(&key).cloned().or(before);
        json_answer(StatusCode::OK, &object.expect("it was there or is now"))
    }

    fn delete(&mut self, call: &Call, body: &Value) -> Answer {
        let key = call.key();
        let Some(object) = self.store.objects.get(&key) else {
            return status_answer(404, "not found");
        };
        let expected = &body["preconditions"]["uid"];
        if !expected.is_null() && *expected != object["metadata"]["uid"] {
            return status_answer(409, "another uid");
        }
        let object = object.clone();
        self.store.delete(&key);
        json_answer(StatusCode::OK, &object)
    }
}

fn is_permitted(verb: &str, call: &Call, resource: &str) -> bool {
    PERMISSIONS.iter().any(|permission| {
        let reaches = match permission.holder {
            Holder::Operator => true,
            Holder::OperatorNamespace => call.namespace == OPERATOR_NAMESPACE,
            Holder::Drain | Holder::DrainNamespace | Holder::Agent => false,
        };
        reaches
            && format!("{}/{}", permission.group, permission.resource) == resource
            && permission.verbs.contains(&verb)
    })
}

fn text_body(text: String) -> http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible> {
    http_body_util::Full::new(Bytes::from(text)).boxed_unsync()
}

fn json_answer(status: StatusCode, value: &Value) -> Answer {
    let mut response = Response::new(text_body(value.to_string()));
    *response.status_mut() = status;
    response
}

fn status_answer(code: u16, message: &str) -> Answer {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message,
        "reason": reason, "code": code,
    });
    json_answer(StatusCode::from_u16(code).expect("a status"), &status)
}
