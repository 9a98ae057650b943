//! Reads what the answer is made of.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::{DeserializeGuard, Resource as _};
use kube::{Api, Client};
use tunedweb_api::names::{COMPONENT_LABEL, SERVER_COMPONENT, SERVER_LABEL};
use tunedweb_api::{NodeTuning, TunedWebServer};

use crate::connection::Connected;

/// Objects a list call brings at once.
const PAGE: u32 = 500;

/// What was read. What could not be read is empty and named in `problems`.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The resource.
    pub server: TunedWebServer,
    /// The `NodeTuning`s of all nodes.
    pub tunings: Vec<NodeTuning>,
    /// The serving pods.
    pub pods: Vec<Pod>,
    /// What could not be read, and why.
    pub problems: Vec<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObserveError {
    #[error("TunedWebServer {namespace}/{name} does not exist")]
    NotFound { namespace: String, name: String },
    #[error("read TunedWebServer {namespace}/{name}: {problem}")]
    Read {
        namespace: String,
        name: String,
        problem: String,
    },
    #[error(
        "TunedWebServer {namespace}/{name} does not fit this plugin's version {}: {problem}",
        env!("CARGO_PKG_VERSION")
    )]
    Unreadable {
        namespace: String,
        name: String,
        problem: String,
    },
}

pub(crate) async fn observe(connected: &Connected, name: &str) -> Result<Observed, ObserveError> {
    let server = server(connected, name).await?;
    let mut problems = Vec::new();
    let tunings = tunings(&connected.client, &mut problems).await;
    let pods = pods(connected, name).await.unwrap_or_else(|error| {
        problems.push(format!(
            "serving pods could not be listed: {}",
            plain(&error)
        ));
        Vec::new()
    });
    Ok(Observed {
        server,
        tunings,
        pods,
        problems,
    })
}

async fn server(connected: &Connected, name: &str) -> Result<TunedWebServer, ObserveError> {
    let Connected { client, namespace } = connected;
    let servers: Api<DeserializeGuard<TunedWebServer>> = Api::namespaced(client.clone(), namespace);
    let (namespace, name) = (namespace.clone(), name.to_owned());
    match servers.get_opt(&name).await {
        Ok(Some(DeserializeGuard(Ok(server)))) => Ok(server),
        Ok(Some(DeserializeGuard(Err(unreadable)))) => Err(ObserveError::Unreadable {
            namespace,
            name,
            problem: unreadable.error,
        }),
        Ok(None) => Err(ObserveError::NotFound { namespace, name }),
        Err(error) => Err(ObserveError::Read {
            namespace,
            name,
            problem: plain(&error),
        }),
    }
}

async fn tunings(client: &Client, problems: &mut Vec<String>) -> Vec<NodeTuning> {
    let api: Api<DeserializeGuard<NodeTuning>> = Api::all(client.clone());
    let mut parameters = ListParams::default().limit(PAGE);
    let mut tunings = Vec::new();
    loop {
        let page = match api.list(&parameters).await {
            Ok(page) => page,
            Err(error) => {
                problems.push(format!(
                    "NodeTunings could not be listed: {}",
                    plain(&error)
                ));
                return tunings;
            }
        };
        let next = page
            .metadata
            .continue_
            .clone()
            .filter(|token| !token.is_empty());
        for tuning in page.items {
            let name = tuning.meta().name.clone().unwrap_or_default();
            match tuning.0 {
                Ok(tuning) => tunings.push(tuning),
                Err(error) => problems.push(format!("NodeTuning {name} is unreadable: {error}")),
            }
        }
        let Some(token) = next else { return tunings };
        parameters = parameters.continue_token(&token);
    }
}

async fn pods(connected: &Connected, name: &str) -> kube::Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(connected.client.clone(), &connected.namespace);
    let labels = format!("{SERVER_LABEL}={name},{COMPONENT_LABEL}={SERVER_COMPONENT}");
    let mut parameters = ListParams::default().labels(&labels).limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = pods.list(&parameters).await?;
        let next = page
            .metadata
            .continue_
            .clone()
            .filter(|token| !token.is_empty());
        found.extend(page.items);
        let Some(token) = next else { return Ok(found) };
        parameters = parameters.continue_token(&token);
    }
}

/// What the API server said; the client would print the whole answer, twice.
fn plain(error: &kube::Error) -> String {
    match error {
        // what is missing is the kind: a missing object is told apart before
        kube::Error::Api(status) if status.code == 404 => {
            "this cluster does not know the kind; is tunedweb installed?".to_owned()
        }
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
