//! A namespace of one test.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use tunedweb_api::TunedWebServer;
use tunedweb_api::names::{NODE_ACCESS_ALLOWED, NODE_ACCESS_LABEL};

use crate::cluster::Cluster;
use crate::wait::{self, WaitError};

/// A resource's nodes are put back, and a namespace is emptied, well within this.
const REMOVE_SECONDS: u64 = 120;

/// Why a namespace could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The API server refused it.
    #[error("{action} namespace {name}")]
    Request {
        /// What was asked for.
        action: &'static str,
        /// Its name.
        name: String,
        /// Why.
        source: kube::Error,
    },
    /// Something in it stayed.
    #[error("remove namespace {name}")]
    Remain {
        /// Its name.
        name: String,
        /// What stayed.
        source: WaitError,
    },
}

/// Whether an administrator lets a namespace's resources touch nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAccess {
    /// Both labels that it takes are set.
    Allowed,
    /// None is.
    Denied,
}

/// A namespace that no other test uses. A test ends with [`Self::remove`]; where it fails before,
/// what happened in the namespace is printed and the namespace is removed without waiting.
pub struct TestNamespace {
    name: String,
    client: Client,
    removed: bool,
}

impl TestNamespace {
    /// Makes a namespace whose name begins with a word of the test.
    pub async fn create(
        cluster: &Cluster,
        word: &str,
        access: NodeAccess,
    ) -> Result<Self, NamespaceError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // The process number tells runs apart, the count tests of a run.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{word}-{}-{count}", std::process::id());
        let labels: &[(&str, &str)] = match access {
            NodeAccess::Allowed => &[
                (NODE_ACCESS_LABEL, NODE_ACCESS_ALLOWED),
                ("pod-security.kubernetes.io/enforce", "privileged"),
            ],
            NodeAccess::Denied => &[],
        };
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(
                    labels
                        .iter()
                        .map(|(k, v)| ((*k).into(), (*v).into()))
                        .collect(),
                ),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let client = cluster.client();
        Api::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .map_err(|source| NamespaceError::Request {
                action: "create",
                name: name.clone(),
                source,
            })?;
        Ok(Self {
            name,
            client,
            removed: false,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Deletes the resources, waits until their nodes are put back, then deletes the namespace and
    /// waits until it is gone.
    pub async fn remove(mut self) -> Result<(), NamespaceError> {
        let servers: Api<TunedWebServer> = Api::namespaced(self.client.clone(), &self.name);
        let everything = (DeleteParams::default(), ListParams::default());
        servers
            .delete_collection(&everything.0, &everything.1)
            .await
            .map_err(|source| self.request("empty", source))?;
        self.gone("its TunedWebServers", async || {
            servers
                .list(&everything.1)
                .await
                .map(|list| list.items.len())
        })
        .await?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces
            .delete(&self.name, &everything.0)
            .await
            .map_err(|source| self.request("delete", source))?;
        self.gone("the namespace", async || {
            namespaces
                .get_opt(&self.name)
                .await
                .map(|found| usize::from(found.is_some()))
        })
        .await?;
        self.removed = true;
        Ok(())
    }

    async fn gone(
        &self,
        what: &str,
        count: impl AsyncFn() -> kube::Result<usize>,
    ) -> Result<(), NamespaceError> {
        let look = async || match count().await {
            Ok(0) => Ok(()),
            Ok(left) => Err(format!("{left} left")),
            Err(error) => Err(error.to_string()),
        };
        wait::eventually(
            Duration::from_secs(REMOVE_SECONDS),
            &format!("{what} gone"),
            look,
        )
        .await
        .map_err(|source| NamespaceError::Remain {
            name: self.name.clone(),
            source,
        })
    }

    fn request(&self, action: &'static str, source: kube::Error) -> NamespaceError {
        NamespaceError::Request {
            action,
            name: self.name.clone(),
            source,
        }
    }
}

impl Drop for TestNamespace {
    /// Nothing can be awaited here, so `kubectl` does it. Its output reaches the test's.
    #[expect(
        clippy::print_stdout,
        reason = "the test runner shows it where the test failed"
    )]
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        let name = self.name.as_str();
        let looks: [&[&str]; 4] = [
            &[
                "get",
                "tws,bench,daemonset,job,pod",
                "-n",
                name,
                "-o",
                "wide",
            ],
            &["get", "tws", "-n", name, "-o", "yaml"],
            &["get", "events", "-n", name, "--sort-by=.lastTimestamp"],
            &[
                "logs",
                "deployment/tunedweb-operator",
                "-n",
                "tunedweb-system",
                "--tail=40",
            ],
        ];
        let removal: &[&str] = &["delete", "namespace", name, "--wait=false"];
        for arguments in looks.into_iter().chain([removal]) {
            println!("$ kubectl {}", arguments.join(" "));
            match Command::new("kubectl").args(arguments).output() {
                Ok(output) => println!(
                    "{}{}",
                    String::from_utf8_lossy(&output.stdout),
                    String::from_utf8_lossy(&output.stderr)
                ),
                Err(error) => println!("{error}"),
            }
        }
    }
}
