//! The controllers against a fake API server: every request that they make, and no more permissions
//! than the table grants.

#[cfg(test)]
#[path = "controllers/actors.rs"]
mod actors;
#[cfg(test)]
#[path = "controllers/api_server.rs"]
mod api_server;
#[cfg(test)]
#[path = "controllers/call.rs"]
mod call;
#[cfg(test)]
#[path = "controllers/cluster.rs"]
mod cluster;
#[cfg(test)]
#[path = "controllers/leaving.rs"]
mod leaving;
#[cfg(test)]
#[path = "controllers/permissions.rs"]
mod permissions;
#[cfg(test)]
#[path = "controllers/running.rs"]
mod running;
#[cfg(test)]
#[path = "controllers/serving.rs"]
mod serving;
#[cfg(test)]
#[path = "controllers/store.rs"]
mod store;
