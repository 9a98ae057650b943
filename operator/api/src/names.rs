//! Labels, annotations, finalizers and names that more than one program reads or writes.

/// Label: the `TunedWebServer` that a child object belongs to.
pub const SERVER_LABEL: &str = "tunedweb.io/server";
/// Label: the `BenchmarkRun` that a child object belongs to.
pub const RUN_LABEL: &str = "tunedweb.io/run";
/// Label of Kubernetes: which program manages an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`] on everything that the operator makes.
pub const MANAGED_BY: &str = "tunedweb-operator";
/// Label of Kubernetes: which part of an application an object is.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// Value of [`COMPONENT_LABEL`] on agent pods.
pub const AGENT_COMPONENT: &str = "agent";

/// Label on a namespace by which an administrator lets its resources touch nodes.
pub const NODE_ACCESS_LABEL: &str = "tunedweb.io/node-access";
/// Value of [`NODE_ACCESS_LABEL`] that grants it.
pub const NODE_ACCESS_ALLOWED: &str = "allowed";

/// Finalizer on a `TunedWebServer`: the nodes are put back before the object goes.
pub const FINALIZER: &str = "tunedweb.io/restore-nodes";
/// Annotation on a `TunedWebServer` that is being deleted: `true` lets it go without waiting for
/// the nodes.
pub const SKIP_RESTORE_ANNOTATION: &str = "tunedweb.io/skip-restore";

/// Annotation on a `DaemonSet`: hash of the pod plan that its template carries.
pub const PLAN_HASH_ANNOTATION: &str = "tunedweb.io/plan-hash";
/// Annotation on a `DaemonSet`: generation of the resource at which its tuning last changed.
pub const PLAN_GENERATION_ANNOTATION: &str = "tunedweb.io/plan-generation";

/// Annotation on a serving pod: hash of the pod template that it was made from.
pub const TEMPLATE_HASH_ANNOTATION: &str = "tunedweb.io/template-hash";

/// Value of [`COMPONENT_LABEL`] on what serves: pods, their Service, settings and plans.
pub const SERVER_COMPONENT: &str = "server";
/// Value of [`COMPONENT_LABEL`] on what makes load: pods, their Job, histograms.
pub const LOAD_COMPONENT: &str = "load";

/// Name of the serving container.
pub const SERVER_CONTAINER: &str = "server";
/// Name of the init container that tunes.
pub const TUNE_CONTAINER: &str = "tune";
/// Name of the load container.
pub const LOAD_CONTAINER: &str = "load";

/// Port of `/healthz`, `/readyz`, `/metrics` and `/tuning` in a serving pod.
pub const ADMIN_PORT: u16 = 9180;
/// Folder on a node, mounted into the agent and the init container only, that holds the journal.
pub const JOURNAL_DIRECTORY: &str = "/var/lib/tunedweb";
