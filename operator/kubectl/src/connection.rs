//! Which cluster and namespace, as kubectl's flags say.

use std::path::PathBuf;

use clap::Args;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// kubectl's flags that choose a cluster and a namespace.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Connection {
    /// Kubeconfig file; else those of KUBECONFIG, else ~/.kube/config, else the pod's own account
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context in the kubeconfig
    #[arg(long, global = true)]
    context: Option<String>,

    /// Cluster in the kubeconfig
    #[arg(long, global = true)]
    cluster: Option<String>,

    /// User in the kubeconfig
    #[arg(long, global = true)]
    user: Option<String>,

    /// Namespace; else that of the context
    #[arg(long, short, global = true)]
    namespace: Option<String>,
}

/// A client and the namespace that is meant.
#[derive(Clone)]
pub(crate) struct Connected {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("read kubeconfig {path}")]
    ReadFile {
        path: PathBuf,
        source: Box<KubeconfigError>,
    },
    #[error("choose cluster and user from the kubeconfig")]
    Choose(#[source] Box<KubeconfigError>),
    #[error("find a cluster; set --kubeconfig or KUBECONFIG")]
    Find(#[source] Box<InferConfigError>),
    #[error("make a client for the cluster")]
    MakeClient(#[source] Box<kube::Error>),
}

impl Connection {
    pub(crate) async fn connect(&self) -> Result<Connected, ConnectError> {
        let config = self.config().await?;
        let namespace = self
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client =
            Client::try_from(config).map_err(|error| ConnectError::MakeClient(Box::new(error)))?;
        Ok(Connected { client, namespace })
    }

    async fn config(&self) -> Result<Config, ConnectError> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let chosen = match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| ConnectError::ReadFile {
                    path: path.clone(),
                    source: Box::new(error),
                })?;
                Config::from_custom_kubeconfig(file, &options).await
            }
            None if chooses_nothing(&options) => {
                let found = Config::infer().await;
                return found.map_err(|error| ConnectError::Find(Box::new(error)));
            }
            None => Config::from_kubeconfig(&options).await,
        };
        chosen.map_err(|error| ConnectError::Choose(Box::new(error)))
    }
}

fn chooses_nothing(options: &KubeConfigOptions) -> bool {
    options.context.is_none() && options.cluster.is_none() && options.user.is_none()
}
