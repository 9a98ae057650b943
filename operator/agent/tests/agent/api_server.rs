//! As much of an API server as an agent uses: list, watch and the status of one `NodeTuning`.
//! Anything else is a test's failure.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::node::wait_until;

const PATH: &str = "/apis/tunedweb.io/v1alpha1/nodetunings";

pub(crate) struct ApiServer {
    state: Arc<State>,
    address: String,
}

#[derive(Default)]
struct State {
    /// Every version of the object, the last one being the present one.
    versions: Mutex<Vec<Value>>,
    changed: Condvar,
    status_writes: AtomicU32,
    refusals: AtomicU32,
    violations: Mutex<Vec<String>>,
}

impl ApiServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let state = Arc::new(State::default());
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&served);
                std::thread::spawn(move || answer(&state, stream));
            }
        });
        Self { state, address }
    }

    pub(crate) fn kubeconfig(&self) -> String {
        let address = &self.address;
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        })
        .to_string()
    }

    /// Makes or changes the object, as the operator does; its status stays.
    pub(crate) fn put(&self, mut object: Value) {
        let mut versions = self.state.versions.lock().expect("no panic");
        if let Some(last) = versions.last() {
            object["status"] = last["status"].clone();
        }
        push(&mut versions, object);
        self.state.changed.notify_all();
    }

    pub(crate) fn refuse_status_writes(&self, count: u32) {
        self.state.refusals.store(count, Ordering::SeqCst);
    }

    pub(crate) fn status_writes(&self) -> u32 {
        self.state.status_writes.load(Ordering::SeqCst)
    }

    pub(crate) fn wait_for_status(&self, accept: impl Fn(&Value) -> bool) -> Value {
        let mut found = Value::Null;
        wait_until("a status", || {
            found = self
                .state
                .last()
                .map(|o| o["status"].clone())
                .unwrap_or_default();
            !found.is_null() && accept(&found)
        });
        let violations = self.state.violations.lock().expect("no panic");
        assert!(violations.is_empty(), "{violations:?}");
        found
    }
}

impl State {
    fn last(&self) -> Option<Value> {
        self.versions.lock().expect("no panic").last().cloned()
    }
}

fn push(versions: &mut Vec<Value>, mut object: Value) {
    object["metadata"]["resourceVersion"] = json!((versions.len() + 1).to_string());
    versions.push(object);
}

/// One request a connection.
fn answer(state: &State, mut stream: TcpStream) {
    let Some((request, headers, body)) = read_request(&stream) else {
        return;
    };
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match (method, path) {
        ("GET", PATH) if !query.contains("fieldSelector=metadata.name%3Dn1") => {
            violate(state, format!("not its own object alone: {target}"));
        }
        ("GET", PATH) if query.contains("watch=true") => watch(state, stream, query),
        ("GET", PATH) => respond(&mut stream, 200, &list(state)),
        ("PATCH", path) if path == format!("{PATH}/n1/status") => {
            if !query.contains("fieldManager=tunedweb-agent") || !query.contains("force=true") {
                violate(state, format!("{target}: not the agent's field manager"));
            }
            if !headers.contains("application/apply-patch+yaml") {
                violate(state, format!("{target}: no server-side apply"));
            }
            patch_status(state, &mut stream, &body);
        }
        _ => violate(state, request),
    }
}

fn violate(state: &State, what: String) {
    state.violations.lock().expect("no panic").push(what);
}

fn list(state: &State) -> Value {
    let versions = state.versions.lock().expect("no panic");
    json!({
        "apiVersion": "tunedweb.io/v1alpha1",
        "kind": "NodeTuningList",
        "metadata": {"resourceVersion": versions.len().to_string()},
        "items": versions.last().into_iter().collect::<Vec<_>>(),
    })
}

/// Sends each version after the one asked for, until the client goes.
fn watch(state: &State, mut stream: TcpStream, query: &str) {
    let since = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("resourceVersion="));
    let mut sent: usize = since.and_then(|version| version.parse().ok()).unwrap_or(0);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
    let mut alive = stream.write_all(head.as_bytes()).is_ok();
    while alive {
        let versions = state.versions.lock().expect("no panic");
        let (versions, _) = state
            .changed
            .wait_timeout_while(versions, Duration::from_millis(200), |v| v.len() <= sent)
            .expect("no panic");
        let news: Vec<Value> = versions[sent..].to_vec();
        drop(versions);
        for object in news {
            sent += 1;
            let kind = if sent == 1 { "ADDED" } else { "MODIFIED" };
            let event = json!({"type": kind, "object": object});
            alive = stream.write_all(format!("{event}\n").as_bytes()).is_ok();
        }
    }
}

fn patch_status(state: &State, stream: &mut TcpStream, body: &[u8]) {
    let refused = state
        .refusals
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        })
        .is_ok();
    if refused {
        let error = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": "no leader", "reason": "InternalError", "code": 500});
        return respond(stream, 500, &error);
    }
    let patch: Value = serde_json::from_slice(body).unwrap_or_default();
    if patch.get("spec").is_some() || patch["kind"] != "NodeTuning" {
        violate(state, format!("more than a status: {patch}"));
    }
    let mut versions = state.versions.lock().expect("no panic");
    let mut object = versions.last().cloned().unwrap_or_default();
    object["status"] = patch["status"].clone();
    push(&mut versions, object.clone());
    drop(versions);
    state.status_writes.fetch_add(1, Ordering::SeqCst);
    state.changed.notify_all();
    respond(stream, 200, &object);
}

fn respond(stream: &mut TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes()).ok();
}

fn read_request(stream: &TcpStream) -> Option<(String, String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request).ok()?;
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") && headers != "\r\n" {
        if reader.read_line(&mut headers).ok()? == 0 {
            return None;
        }
    }
    let headers = headers.to_lowercase();
    let length = headers
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length = length
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((request.trim_end().to_owned(), headers, body))
}
