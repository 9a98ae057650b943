//! Which way a key goes onto a node. It is decided here and nowhere else.

use crate::catalogue::{Key, Scope};

/// The oldest Kubernetes 1.x that is supported.
pub const KUBERNETES_MINOR_MIN: u32 = 33;

/// The least privileged way that works for a key. Keys that go no way at all are refused by the
/// catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A: in the pod's network namespace and on Kubernetes' safe list: `securityContext.sysctls`.
    PodSafe,
    /// B: in the pod's network namespace and not on the list: an init container of the pod.
    PodInit,
    /// C: node-wide and writable from a pod: the same init container, under the node's journal;
    /// kept by the agent.
    NodeFromPod,
    /// D: of the host's network namespace: the agent.
    HostAgent,
}

/// The way of a key under this version of Kubernetes (the smallest over the nodes concerned), for
/// a pod with a network namespace of its own or (`host_network`) in the host's.
pub fn classify(key: &Key, kubernetes_minor: u32, host_network: bool) -> Class {
    match key.scope {
        Scope::Node => Class::NodeFromPod,
        Scope::HostNetwork => Class::HostAgent,
        Scope::PodNetwork | Scope::PodNetworkInherited if host_network => Class::HostAgent,
        Scope::PodNetwork | Scope::PodNetworkInherited => match key.safe_since {
            Some(since) if since <= kubernetes_minor => Class::PodSafe,
            _ => Class::PodInit,
        },
    }
}

impl Class {
    /// The letter that the documentation uses.
    pub fn letter(self) -> char {
        match self {
            Self::PodSafe => 'A',
            Self::PodInit => 'B',
            Self::NodeFromPod => 'C',
            Self::HostAgent => 'D',
        }
    }

    /// The way, for people.
    pub fn way(self) -> &'static str {
        match self {
            Self::PodSafe => "securityContext.sysctls of the pod",
            Self::PodInit => "init container of the pod",
            Self::NodeFromPod => "init container of the pod, kept by the node's agent",
            Self::HostAgent => "agent of the node",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::find;

    fn class(name: &str, minor: u32, host_network: bool) -> char {
        classify(find(name).expect("a known key"), minor, host_network).letter()
    }

    #[test]
    fn a_key_goes_the_least_privileged_way_of_this_kubernetes() {
        assert_eq!(class("net.ipv4.tcp_syncookies", 33, false), 'A');
        assert_eq!(class("net.ipv4.tcp_rmem", 31, false), 'B');
        assert_eq!(class("net.ipv4.tcp_rmem", 32, false), 'A');
        assert_eq!(class("net.ipv4.tcp_slow_start_after_idle", 36, false), 'B');
        assert_eq!(class("net.ipv4.tcp_slow_start_after_idle", 37, false), 'A');
        assert_eq!(class("net.core.somaxconn", 99, false), 'B');
        assert_eq!(class("net.ipv4.tcp_max_syn_backlog", 33, false), 'B');
    }

    #[test]
    fn node_wide_keys_of_a_pod_are_c_and_host_keys_are_d() {
        for name in ["vm.max_map_count", "fs.nr_open", "fs.file-max"] {
            assert_eq!(class(name, 33, false), 'C', "{name}");
            assert_eq!(class(name, 33, true), 'C', "{name}");
        }
        for name in [
            "net.core.rmem_max",
            "net.core.wmem_default",
            "net.core.netdev_max_backlog",
            "net.ipv4.tcp_mem",
            "net.ipv4.tcp_max_orphans",
        ] {
            assert_eq!(class(name, 33, false), 'D', "{name}");
        }
    }

    #[test]
    fn under_host_network_the_keys_of_a_pod_are_the_agents() {
        for name in ["net.ipv4.tcp_syncookies", "net.core.somaxconn"] {
            assert_eq!(class(name, 37, true), 'D', "{name}");
        }
    }
}
