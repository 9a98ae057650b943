//! Controllers for the custom resources of `tunedweb.io`.

pub mod rbac;
