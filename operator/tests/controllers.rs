//! The controllers against a fake API server: every request that they make, and no more permissions
//! than the table grants.

#[path = "controllers/api_server.rs"]
mod api_server;
#[path = "controllers/cluster.rs"]
mod cluster;
#[path = "controllers/leaving.rs"]
mod leaving;
#[path = "controllers/permissions.rs"]
mod permissions;
#[path = "controllers/running.rs"]
mod running;
#[path = "controllers/serving.rs"]
mod serving;
#[path = "controllers/store.rs"]
mod store;
